//! The tree into which both notations are read. Each node knows its place in the text.
//!
//! Comparison is by meaning: `==` compares names, values and structure, not spans, comments, quotes or the notation. So
//! `parse(&print(&t)) == Ok(t)` is a real test. The tree is not the graph: it knows no filter, and follows no
//! reference. The control plane does that, after [`expand`](crate::expand()).

use crate::diagnostic::Span;

/// How a text is written: `a | b` or, as in the paper, `(a) > (b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `a | { b + c }`
    Pipe,
    /// `(a) > ((b) | (c))`
    Paper,
}

/// A whole request: its items in order, and the layout for the formatter.
#[derive(Debug, Clone)]
pub struct Text {
    /// The parts between `;`, without empty ones.
    pub items: Vec<Item>,
    /// The notation of the text. Not compared.
    pub notation: Notation,
    /// Comments and blank lines. Not compared.
    pub layout: Layout,
}

/// Everything between the tokens of a text that the formatter keeps.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// All comments, in order.
    pub comments: Vec<Comment>,
    /// Offsets at which blank lines were seen, in order.
    pub blank_lines: Vec<usize>,
}

/// `# ...` to the end of its line.
#[derive(Debug, Clone)]
pub struct Comment {
    /// The comment with its `#`, without blanks at the end.
    pub text: String,
    /// Its place in the text.
    pub span: Span,
    /// There are only blanks before it on its line.
    pub own_line: bool,
}

/// A part of a text between `;`.
#[derive(Debug, Clone)]
pub enum Item {
    /// `let name = body`: a name for a piece of a request. [`expand`](crate::expand()) removes it.
    Let {
        /// The new name.
        name: Name,
        /// The piece; each use is a fresh copy of it.
        body: Par,
        /// From `let` to the end of the body.
        span: Span,
    },
    /// `set key=value ...`: settings of the whole request.
    Set {
        /// The settings, at least one.
        settings: Vec<Param>,
        /// From `set` to the last value.
        span: Span,
    },
    /// A data path.
    Path(Par),
}

/// A name and its place in the text.
#[derive(Debug, Clone)]
pub struct Name {
    /// The name, without `@` or parentheses.
    pub text: String,
    /// Its place; for a reference it includes the `@` or the parentheses.
    pub span: Span,
}

/// Chains side by side: `a + b`. Each gets all blocks; usually there is only one chain.
#[derive(Debug, Clone)]
pub struct Par {
    /// The chains, at least one.
    pub branches: Vec<Chain>,
    /// From the first branch to the last; for a group, with its braces or parentheses.
    pub span: Span,
}

/// Terms one after the other: `a | b | c`.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The edge before the first term, as in `{ |22 a + |80 b }`: only in a group.
    pub lead: Option<Edge>,
    /// The links, at least one.
    pub links: Vec<Link>,
    /// From the lead or the first term to the end of the last.
    pub span: Span,
}

/// One term of a chain and the edge that leads to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// `None` for the first link of a chain, whose edge is [`Chain::lead`]; `Some` for all others.
    pub edge: Option<Edge>,
    /// The term behind the edge.
    pub term: Term,
}

/// An arrow: `|`, `||`, with or without a selector.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// `||` or `>>`: the two sides run on different workers.
    pub cut: bool,
    /// The classes that pass. `None`: all.
    pub select: Option<Selector>,
    /// The arrow with its selector.
    pub span: Span,
}

/// The classes that an edge lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selector {
    /// `|!`: the classes that no other edge out of the same place selects by number. Out of `{ |22 a + |80 b + |! c }`
    /// c gets the rest. If no other edge selects by number: the blocks that the filter before it rejects.
    Otherwise,
    /// `|22`, `|22:23`, `|!80`, `|!1:1023`.
    Classes {
        /// Pass everything but the range.
        invert: bool,
        /// The first number of the range.
        low: u32,
        /// The last number of the range, not below `low`.
        high: u32,
    },
}

/// A term behind an edge.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// A filter with its parameters, or, before expansion, the use of a `let`.
    Filter(FilterCall),
    /// `{ ... }`; in paper notation `( ... )`.
    Group(Par),
    /// `@x`, or in paper notation `(x)` when a node is named x: that node.
    Ref(Name),
    /// `a or b`: at least two operands, but no `Or` among them.
    Or(Vec<Term>),
    /// `a and b`: at least two operands, but no `Or` and no `And` among them.
    And(Vec<Term>),
    /// `not a`; a is neither an `Or` nor an `And`.
    Not(Box<Term>),
}

/// `name value key=value ...`
#[derive(Debug, Clone)]
pub struct FilterCall {
    /// The name of a filter (or `let`).
    pub name: Name,
    /// Plain values, which come first: `pcap trace.pcap`. The filter says how many there may be.
    pub main: Vec<Value>,
    /// `key=value` pairs, in order. Each key is there once, and never `name`.
    pub params: Vec<Param>,
    /// `name=x`: the name of this node in references.
    pub label: Option<Name>,
    /// From the name to the last value; in paper notation with the parentheses.
    pub span: Span,
}

/// `key=value`
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// The key.
    pub key: Name,
    /// Its value.
    pub value: Value,
}

/// A value: data, never read as language again.
#[derive(Debug, Clone)]
pub struct Value {
    /// The value without quotes and escapes. Before expansion, each of `variables` is in it as `${name}`.
    pub text: String,
    /// It was in quotes, or came from a variable. Not compared.
    pub quoted: bool,
    /// The variables to fill in, in order; empty after [`expand`](crate::expand()).
    pub variables: Vec<Variable>,
    /// Its place in the text, with its quotes.
    pub span: Span,
}

/// `$x` or `${x}` in a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Its name, with the span of the whole `$x` or `${x}`.
    pub name: Name,
    /// The offset of its `${name}` in [`Value::text`], in bytes.
    pub at: usize,
}

impl Text {
    /// A text of these items, without comments and in pipe notation.
    pub fn new(items: Vec<Item>) -> Text {
        Text { items, notation: Notation::Pipe, layout: Layout::default() }
    }

    /// Calls `visit` for every term of every path and `let`, outer before inner, in the order of the text.
    pub fn each_term<'a>(&'a self, visit: &mut dyn FnMut(&'a Term)) {
        for item in &self.items {
            match item {
                Item::Let { body: par, .. } | Item::Path(par) => par.each_term(visit),
                Item::Set { .. } => {}
            }
        }
    }
}

impl Item {
    /// The place of the item.
    pub fn span(&self) -> Span {
        match self {
            Item::Let { span, .. } | Item::Set { span, .. } => *span,
            Item::Path(par) => par.span,
        }
    }
}

impl Name {
    /// A name without a place in a text.
    pub fn new(text: impl Into<String>) -> Name {
        Name { text: text.into(), span: Span::NONE }
    }
}

impl FilterCall {
    /// A filter with these plain values, without a place in a text. Values are taken literally.
    pub fn new(name: &str, main: impl IntoIterator<Item = String>) -> FilterCall {
        let main = main.into_iter().map(|text| Value { quoted: true, ..Value::new(text) }).collect();
        FilterCall { name: Name::new(name), main, params: Vec::new(), label: None, span: Span::NONE }
    }
}

impl Value {
    /// A value without variables and without a place in a text, taken literally.
    pub fn new(text: impl Into<String>) -> Value {
        Value { text: text.into(), quoted: false, variables: Vec::new(), span: Span::NONE }
    }
}

impl Par {
    /// These chains side by side.
    pub fn beside(branches: Vec<Chain>) -> Par {
        let span = branches.iter().fold(Span::NONE, |span, chain| span.to(chain.span));
        Par { branches, span }
    }

    /// One chain of one term.
    pub fn of_term(term: Term) -> Par {
        let span = term.span();
        Par { branches: vec![Chain { lead: None, links: vec![Link { edge: None, term }], span }], span }
    }

    /// Calls `visit` for every term inside, outer before inner, in the order of the text.
    pub fn each_term<'a>(&'a self, visit: &mut dyn FnMut(&'a Term)) {
        for link in self.branches.iter().flat_map(|chain| &chain.links) {
            link.term.each_term(visit);
        }
    }
}

impl Term {
    /// The place of the term. It leaves out a `not`, since errors speak of its operand.
    pub fn span(&self) -> Span {
        match self {
            Term::Filter(call) => call.span,
            Term::Group(par) => par.span,
            Term::Ref(name) => name.span,
            Term::Or(terms) | Term::And(terms) => terms.iter().fold(Span::NONE, |span, term| span.to(term.span())),
            Term::Not(term) => term.span(),
        }
    }

    /// Calls `visit` for this term and every term inside it.
    pub fn each_term<'a>(&'a self, visit: &mut dyn FnMut(&'a Term)) {
        visit(self);
        match self {
            Term::Filter(_) | Term::Ref(_) => {}
            Term::Group(par) => par.each_term(visit),
            Term::Or(terms) | Term::And(terms) => terms.iter().for_each(|term| term.each_term(visit)),
            Term::Not(term) => term.each_term(visit),
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.items == other.items
    }
}

impl PartialEq for Item {
    fn eq(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Let { name, body, .. }, Item::Let { name: other_name, body: other_body, .. }) => {
                name == other_name && body == other_body
            }
            (Item::Set { settings, .. }, Item::Set { settings: other_settings, .. }) => settings == other_settings,
            (Item::Path(par), Item::Path(other_par)) => par == other_par,
            (Item::Let { .. } | Item::Set { .. } | Item::Path(_), _) => false,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.text == other.text
    }
}

impl PartialEq for Par {
    fn eq(&self, other: &Par) -> bool {
        self.branches == other.branches
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Chain) -> bool {
        self.lead == other.lead && self.links == other.links
    }
}

impl PartialEq for Edge {
    fn eq(&self, other: &Edge) -> bool {
        self.cut == other.cut && self.select == other.select
    }
}

impl PartialEq for FilterCall {
    fn eq(&self, other: &FilterCall) -> bool {
        self.name == other.name && self.main == other.main && self.params == other.params && self.label == other.label
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.text == other.text && self.variables == other.variables
    }
}
