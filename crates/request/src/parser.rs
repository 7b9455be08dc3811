//! The common part of both notations: items, settings, parameters, limits, and errors for unexpected tokens.
//!
//! The notations differ only in chains, groups and filters: `pipe.rs` and `paper.rs`.

use crate::diagnostic::{Diagnostic, Span, quote};
use std::collections::BTreeSet;

use crate::lexer::{Kind, Lexer, Token};
use crate::limits::{NESTING_MAX, SOURCE_BYTES_MAX, TERM_COUNT_MAX};
use crate::params::twice;
use crate::tree::{Item, Layout, Name, Notation, Par, Param, Term, Text, Value};
use crate::value::{LABEL_KEY, RESERVED, decode_bare, decode_quoted, is_name, starts_name};

/// Parses a request in either notation.
///
/// # Errors
///
/// The first place where the text is not in the language, or is larger than [`limits`](crate::limits) allow.
pub fn parse(source: &str) -> Result<Text, Diagnostic> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(Diagnostic::new(
            format!("the request has {} bytes; at most {SOURCE_BYTES_MAX} are read", source.len()),
            Span::NONE,
        ));
    }
    let notation = notation_of(source);
    let parser = Parser { lexer: Lexer::new(source), notation, depth: 0, term_count: 0 };
    let (items, layout) = parser.text()?;
    let mut text = Text { items, notation, layout };
    if notation == Notation::Paper {
        crate::references::resolve_references(&mut text);
    }
    Ok(text)
}

/// Finds the notation by the first token that differs, after `set ...;`, `let NAME =` and `not`; `(` is paper. A
/// lexical error counts as pipe; the parser will find it again.
fn notation_of(source: &str) -> Notation {
    let mut lexer = Lexer::new(source);
    loop {
        let Ok(token) = lexer.take() else { return Notation::Pipe };
        match token.kind {
            Kind::Semicolon => {}
            Kind::OpenParen => return Notation::Paper,
            Kind::Word => match lexer.text(token.span) {
                "not" => {}
                "set" => loop {
                    match lexer.peek().map(|token| token.kind) {
                        Ok(Kind::Semicolon) => break,
                        Err(_) | Ok(Kind::End) => return Notation::Pipe,
                        // Cannot fail: the token has been peeked.
                        Ok(_) => _ = lexer.take(),
                    }
                },
                "let" => {
                    let mut kind_is = |kind| lexer.take().is_ok_and(|token| token.kind == kind);
                    if !(kind_is(Kind::Word) && kind_is(Kind::Equals)) {
                        return Notation::Pipe;
                    }
                }
                _ => return Notation::Pipe,
            },
            _ => return Notation::Pipe,
        }
    }
}

pub(crate) struct Parser<'a> {
    pub(crate) lexer: Lexer<'a>,
    notation: Notation,
    depth: usize,
    term_count: usize,
}

impl<'a> Parser<'a> {
    fn text(mut self) -> Result<(Vec<Item>, Layout), Diagnostic> {
        let mut items = Vec::new();
        loop {
            let token = self.lexer.peek()?;
            match token.kind {
                Kind::End => break,
                Kind::Semicolon => {
                    self.lexer.take()?;
                    continue;
                }
                _ => {}
            }
            items.push(match self.word(token) {
                Some("let") => self.let_item()?,
                Some("set") => self.set_item()?,
                _ => Item::Path(self.top_par()?),
            });
            let after = self.lexer.peek()?;
            if !matches!(after.kind, Kind::Semicolon | Kind::End) {
                return Err(match items.last() {
                    Some(Item::Set { .. }) => self.unexpected("`KEY=VALUE` or `;`", after),
                    _ => self.unexpected_after_term(None, after),
                });
            }
        }
        Ok((items, self.lexer.layout))
    }

    fn let_item(&mut self) -> Result<Item, Diagnostic> {
        let start = self.lexer.take()?.span;
        let token = self.lexer.peek()?;
        if token.kind != Kind::Word {
            return Err(self.unexpected("a name after `let`", token));
        }
        let name = self.name(token, "a name after `let`")?;
        self.lexer.take()?;
        let equals = self.lexer.peek()?;
        if equals.kind != Kind::Equals {
            return Err(self.unexpected("`=` after the name", equals).with_help("write `let NAME = a | b`"));
        }
        self.lexer.take()?;
        let body = self.top_par()?;
        Ok(Item::Let { name, span: start.to(body.span), body })
    }

    fn set_item(&mut self) -> Result<Item, Diagnostic> {
        let mut span = self.lexer.take()?.span;
        let mut settings = Vec::new();
        let mut keys = BTreeSet::new();
        loop {
            let token = self.lexer.peek()?;
            if token.kind == Kind::Comma {
                return Err(self.no_comma(token));
            }
            if token.kind != Kind::Word || RESERVED.contains(&self.lexer.text(token.span)) {
                break;
            }
            let key = self.key(token)?;
            if key.text == LABEL_KEY {
                return Err(Diagnostic::new("`name` is no setting", key.span)
                    .with_label("names nodes only")
                    .with_help("`name=x` stands behind a filter"));
            }
            if !keys.insert(self.lexer.text(key.span)) {
                return Err(twice(&key));
            }
            if self.lexer.peek()?.kind != Kind::Equals {
                return Err(Diagnostic::new(format!("expected `=` after `{}`", key.text), key.span)
                    .with_label("a setting needs a value")
                    .with_help("write `set KEY=VALUE`; settings have no plain values"));
            }
            let mut value = self.value(&key)?;
            self.further_numbers(&mut value)?;
            span = span.to(value.span);
            settings.push(Param { key, value });
        }
        if settings.is_empty() {
            let token = self.lexer.peek()?;
            return Err(self.unexpected("`KEY=VALUE` after `set`", token));
        }
        Ok(Item::Set { settings, span })
    }

    /// Adds the numbers that follow a setting's number behind commas, without blanks: `cpus=0,1`.
    fn further_numbers(&mut self, value: &mut Value) -> Result<(), Diagnostic> {
        let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '-');
        loop {
            let comma = self.lexer.peek()?;
            let is_bare = !value.quoted && value.variables.is_empty() && is_number(&value.text);
            if comma.kind != Kind::Comma || comma.span.start != value.span.end || !is_bare {
                return Ok(());
            }
            self.lexer.take()?;
            let next = self.lexer.peek()?;
            let text = self.lexer.text(next.span);
            if next.kind != Kind::Word || next.span.start != comma.span.end || !is_number(text) {
                return Err(self.no_comma(comma));
            }
            value.text = format!("{},{text}", value.text);
            value.span = value.span.to(next.span);
            self.lexer.take()?;
        }
    }

    fn no_comma(&self, token: Token) -> Diagnostic {
        let error = self.unexpected("a space", token);
        error.with_help("settings are separated by spaces: `set workers=2 latency=1ms`")
    }

    fn top_par(&mut self) -> Result<Par, Diagnostic> {
        match self.notation {
            Notation::Pipe => self.pipe_par(false),
            Notation::Paper => self.paper_par(false),
        }
    }

    pub(crate) fn peek_kind(&mut self) -> Result<Kind, Diagnostic> {
        Ok(self.lexer.peek()?.kind)
    }

    pub(crate) fn word(&self, token: Token) -> Option<&'a str> {
        (token.kind == Kind::Word).then(|| self.lexer.text(token.span))
    }

    /// Enters a group or `not` that begins at `span`.
    pub(crate) fn enter(&mut self, span: Span) -> Result<(), Diagnostic> {
        if self.depth >= NESTING_MAX {
            return Err(Diagnostic::new("the request is nested too deeply", span)
                .with_label(format!("level {}", NESTING_MAX + 1))
                .with_help(format!("groups and `not` go {NESTING_MAX} levels deep")));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(crate) fn count_term(&mut self, span: Span) -> Result<(), Diagnostic> {
        if self.term_count >= TERM_COUNT_MAX {
            return Err(Diagnostic::new(format!("the request has more than {TERM_COUNT_MAX} terms"), span)
                .with_label("one too many"));
        }
        self.term_count += 1;
        Ok(())
    }

    /// Reads operands joined by `word`, after the first one. A single operand stays as it is.
    pub(crate) fn operands(
        &mut self,
        first: Term,
        word: &str,
        operand: impl Fn(&mut Self) -> Result<Term, Diagnostic>,
        join: impl Fn(Vec<Term>) -> Term,
    ) -> Result<Term, Diagnostic> {
        let mut rest = Vec::new();
        loop {
            let token = self.lexer.peek()?;
            if self.word(token) != Some(word) {
                break;
            }
            self.lexer.take()?;
            rest.push(operand(self)?);
        }
        if rest.is_empty() {
            return Ok(first);
        }
        rest.insert(0, first);
        Ok(join(rest))
    }

    /// Fails if the text ends right after the group at `opened` was opened.
    pub(crate) fn not_at_end(&mut self, opened: Span) -> Result<(), Diagnostic> {
        let token = self.lexer.peek()?;
        if token.kind == Kind::End { Err(self.unexpected_after_term(Some(opened), token)) } else { Ok(()) }
    }

    /// The name in a word; does not take the word.
    pub(crate) fn name(&self, token: Token, expected: &str) -> Result<Name, Diagnostic> {
        let text = self.lexer.text(token.span);
        if RESERVED.contains(&text) {
            return Err(self.unexpected(expected, token));
        }
        if !is_name(text) {
            return Err(if text.starts_with('$') || text.contains("${") {
                Diagnostic::new("a variable stands for a value, not for a name", token.span)
                    .with_label(format!("expected {expected}"))
                    .with_help("variables fill values: `pcap $x`, `files dir=$x`, `files dir=${x}/out`")
            } else {
                let error = Diagnostic::new(format!("{} is not a name", quote(text)), token.span)
                    .with_label(format!("expected {expected}"));
                error.with_help(self.instead_of_name(text, expected))
            });
        }
        Ok(Name { text: text.to_owned(), span: token.span })
    }

    /// The probable meaning of a word that is no name.
    fn instead_of_name(&self, text: &str, expected: &str) -> String {
        let rest = text.trim_start_matches(['!', '-']);
        let is_selector = text.trim_start_matches('!').starts_with(|c: char| c.is_ascii_digit());
        if expected == AFTER_EDGE && self.notation == Notation::Pipe && is_selector {
            return format!("a class selector is glued to its edge: `|{text} x`");
        }
        if rest != text && is_name(rest) {
            return format!("`not` inverts a selector: `not {rest}`");
        }
        if text.starts_with(starts_name) {
            return "names are made of letters, digits, `_`, `-` and `.`".into();
        }
        "a name starts with a letter or `_`".into()
    }

    pub(crate) fn key(&mut self, token: Token) -> Result<Name, Diagnostic> {
        let text = self.lexer.text(token.span);
        if RESERVED.contains(&text) {
            return Err(Diagnostic::new(format!("`{text}` is reserved and cannot be a key"), token.span)
                .with_label("reserved word"));
        }
        if !text.contains(char::is_alphanumeric) {
            // Otherwise `size >=100` and `port !=80` would be the keys `>` and `!`.
            return Err(Diagnostic::new(format!("`{text}` cannot be a key"), token.span)
                .with_label("holds no letter or digit")
                .with_help("a value that holds `=` needs quotes"));
        }
        if text.contains('$') {
            return Err(Diagnostic::new("a variable stands for a value, not for a key", token.span)
                .with_label("expected a key")
                .with_help("keys hold no `$`"));
        }
        self.lexer.take()?;
        Ok(Name { text: text.to_owned(), span: token.span })
    }

    /// Takes `=` and the value after it.
    pub(crate) fn value(&mut self, key: &Name) -> Result<Value, Diagnostic> {
        self.lexer.take()?;
        let token = self.lexer.peek()?;
        match self.plain_value(token)? {
            Some(value) => Ok(value),
            None => {
                let mut error = self.unexpected(&format!("a value after `{}=`", key.text), token);
                if error.help.is_none() {
                    error = error.with_help(format!("an empty value is written `{}=\"\"`", key.text));
                }
                Err(error)
            }
        }
    }

    /// Takes a bare or quoted value, if the next token is one.
    pub(crate) fn plain_value(&mut self, token: Token) -> Result<Option<Value>, Diagnostic> {
        let text = self.lexer.text(token.span);
        let value = match token.kind {
            Kind::Word => decode_bare(text, token.span.start)?,
            Kind::Quoted => decode_quoted(&text[1..text.len() - 1], token.span.start + 1),
            _ => return Ok(None),
        };
        self.lexer.take()?;
        Ok(Some(value))
    }

    pub(crate) fn unexpected(&self, expected: &str, token: Token) -> Diagnostic {
        let text = self.lexer.text(token.span);
        let found = match token.kind {
            Kind::End => "the end of the request".to_owned(),
            Kind::Word if RESERVED.contains(&text) => format!("the reserved word `{text}`"),
            _ => quote(text),
        };
        let error =
            Diagnostic::new(format!("expected {expected}, found {found}"), token.span).with_label(match token.kind {
                Kind::End => "ends here",
                Kind::Word if RESERVED.contains(&text) => "reserved word",
                _ => "unexpected",
            });
        let help = match (token.kind, self.notation) {
            (Kind::Comma, Notation::Pipe) => {
                "several values are separated by blanks; a value that holds `,` needs quotes"
            }
            (Kind::Bar | Kind::BarBar, Notation::Pipe) if expected == AFTER_EDGE => {
                "one edge is enough, and a class selector is glued to it: `|22 x`; branches stand in braces: \
                 `{ |22 a + |80 b }`"
            }
            (Kind::Equals, _) => "a value that holds `=` needs quotes; a key is a bare word right before its `=`",
            (Kind::At, Notation::Pipe) => "a value that starts with `@` needs quotes; `@x` refers to the node named x",
            (Kind::At, Notation::Paper) => {
                "a value that starts with `@` needs quotes; `(x)` refers to the node named x"
            }
            (Kind::OpenParen, Notation::Pipe) => {
                "this request is in pipe notation: group with `{ }`, and put values with parentheses in quotes"
            }
            (Kind::OpenBrace | Kind::CloseBrace, Notation::Paper) => "in paper notation `( )` groups",
            (Kind::Plus, Notation::Paper) => "in paper notation `|` stands between terms side by side",
            (Kind::BarBar, Notation::Paper) => {
                "in paper notation `>>` cuts between workers, `|` stands between terms side by side"
            }
            (Kind::Word, _) if text == "let" || text == "set" => "items are separated by `;`",
            _ => return error,
        };
        error.with_help(help)
    }

    /// The error for a token that cannot follow a complete term. `opened`: the group around it.
    pub(crate) fn unexpected_after_term(&self, opened: Option<Span>, token: Token) -> Diagnostic {
        let (open, close, edge, beside) = match self.notation {
            Notation::Pipe => ('{', '}', '|', '+'),
            Notation::Paper => ('(', ')', '>', '|'),
        };
        match (opened, token.kind) {
            (Some(opened), Kind::End) => Diagnostic::new(format!("this `{open}` is never closed"), opened)
                .with_label("opened here")
                .with_help(format!("add the missing `{close}`")),
            (Some(_), Kind::Semicolon) => {
                Diagnostic::new(format!("`;` ends an item and cannot stand inside `{open} {close}`"), token.span)
                    .with_label("inside a group")
                    .with_help(format!("close the group first; `{beside}` puts terms side by side"))
            }
            (Some(_), _) => self.unexpected(&format!("`{edge}`, `{beside}` or `{close}`"), token),
            (None, Kind::CloseBrace | Kind::CloseParen) => {
                let text = self.lexer.text(token.span);
                Diagnostic::new(format!("this `{text}` closes nothing"), token.span).with_label("nothing is open here")
            }
            (None, Kind::Word) if self.lexer.text(token.span) == "not" => self
                .unexpected(&format!("`{edge}`, `{beside}` or `;`"), token)
                .with_help("`not` stands before a term; to use it as a value, put it in quotes"),
            (None, _) => self.unexpected(&format!("`{edge}`, `{beside}` or `;`"), token),
        }
    }
}

/// What an edge must be followed by.
pub(crate) const AFTER_EDGE: &str = "a filter after the edge";
