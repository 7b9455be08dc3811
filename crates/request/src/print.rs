//! The canonical form of a text, which `streamline fmt` writes.
//!
//! An item that fits stays on one line. Else it breaks before its edges, and groups open over several lines. Comments
//! keep their place among the terms: a comment behind a term stays behind it, and a comment on a line of its own stays
//! before the next term. One-line forms are in `flat.rs`.

use crate::flat::{PIPE, Rank, Style};
use crate::limits::PRINT_COLUMNS;
use crate::tree::{Chain, Comment, Item, Notation, Par, Term, Text};

/// The text in pipe notation, with its comments. Ends with a newline unless it is empty. Printing a printed text
/// changes nothing.
pub fn print(text: &Text) -> String {
    Printer::new(text, PIPE).text(text)
}

/// The text in paper notation, with its comments.
///
/// `main_key` gives the key of a filter's plain value. With `file` for `pcap`, `pcap a.pcap` becomes
/// `(pcap,file=a.pcap)`. With `None` the value stays plain, `(pcap,a.pcap)`, and reads back as the same tree. Paper
/// notation cannot express a reference to a node that the text does not name: `(x)` reads back as a filter.
pub fn print_paper(text: &Text, main_key: &dyn Fn(&str) -> Option<String>) -> String {
    Printer::new(text, Style { notation: Notation::Paper, main_key }).text(text)
}

const INDENT: usize = 2;

struct Printer<'a> {
    style: Style<'a>,
    /// Comments that are not written yet, in order.
    comments: &'a [Comment],
    blank_lines: &'a [usize],
    out: String,
    /// Columns on the last line.
    column: usize,
    /// There is text on the last line.
    line_used: bool,
    /// The last line ends in a comment, so no text may follow there.
    line_closed: bool,
}

impl<'a> Printer<'a> {
    fn new(text: &'a Text, style: Style<'a>) -> Printer<'a> {
        Printer {
            style,
            comments: &text.layout.comments,
            blank_lines: &text.layout.blank_lines,
            out: String::new(),
            column: 0,
            line_used: false,
            line_closed: false,
        }
    }

    fn text(mut self, text: &Text) -> String {
        let mut done = 0;
        for (index, item) in text.items.iter().enumerate() {
            let start = first_of_item(item);
            done = self.comments_between_items(start, done);
            if self.blank_between(done, start) {
                self.blank_line();
            }
            self.newline(0);
            self.item(item);
            if index + 1 < text.items.len() {
                self.write(";");
            }
            done = item.span().end;
        }
        self.comments_between_items(usize::MAX, done);
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    fn item(&mut self, item: &Item) {
        let flat = self.style.item(item);
        if !self.comment_before(last_of_item(item)) && self.fits(&flat) {
            self.write(&flat);
            return;
        }
        match item {
            Item::Path(par) => self.par(par, 0),
            Item::Let { name, body, .. } => {
                self.write(&format!("let {} =", name.text));
                if body.branches.len() > 1 || self.comment_before(first_of_par(body)) {
                    self.comments_until(first_of_par(body), INDENT);
                    self.newline(INDENT);
                    self.par(body, INDENT);
                } else {
                    self.write(" ");
                    self.par(body, 0);
                }
            }
            // Settings do not break, because they have no edges to break before.
            Item::Set { .. } => self.write(&flat),
        }
    }

    /// Writes branches: the first at the current place, the others on lines of their own.
    fn par(&mut self, par: &Par, indent: usize) {
        for (index, chain) in par.branches.iter().enumerate() {
            if index > 0 {
                self.comments_until(first_of_chain(chain), indent);
                self.newline(indent);
                self.write(self.style.beside());
                self.write(" ");
            }
            self.chain(chain, indent);
        }
    }

    fn chain(&mut self, chain: &Chain, indent: usize) {
        let flat = self.style.chain(chain);
        if !self.comment_before(last_of_chain(chain)) && self.fits(&flat) {
            self.write(&flat);
            return;
        }
        if let Some(edge) = &chain.lead {
            self.write(&self.style.edge(edge));
            self.write(" ");
        }
        for (index, link) in chain.links.iter().enumerate() {
            let mut term_indent = indent;
            if index > 0 {
                term_indent += INDENT;
                self.comments_until(first_of_term(&link.term), term_indent);
                self.newline(term_indent);
                self.write(&self.style.edge(&link.edge_or_plain()));
                self.write(" ");
            }
            self.term(&link.term, Rank::Or, term_indent);
        }
    }

    fn term(&mut self, term: &Term, rank: Rank, indent: usize) {
        let flat = self.style.term(term, rank);
        let fits = !self.comment_before(last_of_term(term)) && self.fits(&flat);
        if fits || term.rank() < rank {
            self.write(&flat);
            return;
        }
        match term {
            Term::Filter(_) | Term::Ref(_) => self.write(&flat),
            Term::Group(par) => {
                let (open, close) = self.style.group();
                self.write(open);
                self.comments_until(first_of_par(par), indent + INDENT);
                self.newline(indent + INDENT);
                self.par(par, indent + INDENT);
                self.comments_until(last_of_term(term), indent + INDENT);
                self.newline(indent);
                self.write(close);
            }
            Term::Or(terms) => self.operands(terms, "or ", Rank::And, indent),
            Term::And(terms) => self.operands(terms, "and ", Rank::Unary, indent),
            Term::Not(operand) => {
                self.write("not ");
                self.term(operand, Rank::Unary, indent);
            }
        }
    }

    fn operands(&mut self, terms: &[Term], word: &str, rank: Rank, indent: usize) {
        for (index, term) in terms.iter().enumerate() {
            let mut term_indent = indent;
            if index > 0 {
                term_indent += INDENT;
                self.comments_until(first_of_term(term), term_indent);
                self.newline(term_indent);
                self.write(word);
            }
            self.term(term, rank, term_indent);
        }
    }

    fn comment_before(&self, offset: usize) -> bool {
        self.comments.first().is_some_and(|comment| comment.span.start < offset)
    }

    /// Writes the comments from before `offset`: behind the last line, or on lines of their own at `indent`.
    fn comments_until(&mut self, offset: usize, indent: usize) {
        while self.comment_before(offset) {
            self.comment(indent);
        }
    }

    /// Does the same between items, where blank lines are kept, one for several. `done` is the end of the last item.
    /// Gives the end of the last comment if there was one, else `done`.
    fn comments_between_items(&mut self, offset: usize, mut done: usize) -> usize {
        while self.comment_before(offset) {
            let comment = &self.comments[0];
            if comment.own_line && self.blank_between(done, comment.span.start) {
                self.blank_line();
            }
            done = done.max(comment.span.end);
            self.comment(0);
        }
        done
    }

    fn comment(&mut self, indent: usize) {
        let Some((comment, rest)) = self.comments.split_first() else { return };
        self.comments = rest;
        if comment.own_line || self.line_closed || !self.line_used {
            self.newline(indent);
        } else {
            self.trim_line();
            self.write("  ");
        }
        self.write(&comment.text);
        self.line_closed = true;
    }

    fn blank_between(&self, start: usize, end: usize) -> bool {
        let first = self.blank_lines.partition_point(|offset| *offset < start);
        self.blank_lines.get(first).is_some_and(|offset| *offset < end)
    }

    fn blank_line(&mut self) {
        if !self.out.is_empty() {
            self.trim_line();
            self.out.push('\n');
            self.line_used = false;
        }
    }

    /// Starts a line, unless the output is empty.
    fn newline(&mut self, indent: usize) {
        if !self.out.is_empty() {
            self.trim_line();
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
        self.line_used = false;
        self.line_closed = false;
    }

    /// Removes blanks from the end. They are blanks between tokens, since no value ends in one.
    fn trim_line(&mut self) {
        self.out.truncate(self.out.trim_end_matches(' ').len());
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
        self.line_used = true;
    }

    fn fits(&self, flat: &str) -> bool {
        self.column + flat.chars().count() <= PRINT_COLUMNS
    }
}

// Comments are placed by units: terms that hold no others, and the ends of groups. A comment belongs before the first
// unit behind it. `first_of_*` and `last_of_*` give the offsets of a node's first and last unit. A comment behind the
// last unit does not break the node.

fn first_of_item(item: &Item) -> usize {
    match item {
        Item::Path(par) => first_of_par(par),
        Item::Let { span, .. } | Item::Set { span, .. } => span.start,
    }
}

fn last_of_item(item: &Item) -> usize {
    match item {
        Item::Path(par) | Item::Let { body: par, .. } => par.branches.last().map_or(par.span.start, last_of_chain),
        Item::Set { span, .. } => span.start,
    }
}

fn first_of_par(par: &Par) -> usize {
    par.branches.first().map_or(par.span.start, first_of_chain)
}

fn first_of_chain(chain: &Chain) -> usize {
    chain.links.first().map_or(chain.span.start, |link| first_of_term(&link.term))
}

fn last_of_chain(chain: &Chain) -> usize {
    chain.links.last().map_or(chain.span.start, |link| last_of_term(&link.term))
}

fn first_of_term(term: &Term) -> usize {
    term.span().start
}

fn last_of_term(term: &Term) -> usize {
    match term {
        Term::Filter(_) | Term::Ref(_) => term.span().start,
        Term::Group(par) => par.span.end.saturating_sub(1),
        Term::Or(terms) | Term::And(terms) => terms.last().map_or(usize::MAX, last_of_term),
        Term::Not(operand) => last_of_term(operand),
    }
}
