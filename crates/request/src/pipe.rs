//! Pipe notation: `a | b`, `{ a + b }`, `|22 x`, `@x`.
//!
//! One function for each line of the grammar in `grammar.md`. The other notation is in `paper.rs`; items and parameters
//! are in `parser.rs`.

use crate::diagnostic::{Diagnostic, quote};
use crate::lexer::{Kind, Token};
use crate::params::Params;
use crate::parser::{AFTER_EDGE, Parser};
use crate::selector;
use crate::tree::{Chain, Edge, Link, Name, Par, Term};
use crate::value::{AND, RESERVED, is_arrow};

impl Parser<'_> {
    /// par = chain {"+" chain}
    pub(crate) fn pipe_par(&mut self, inside: bool) -> Result<Par, Diagnostic> {
        let mut branches = vec![self.pipe_chain(inside, "a filter")?];
        while self.peek_kind()? == Kind::Plus {
            self.lexer.take()?;
            branches.push(self.pipe_chain(inside, "a filter after `+`")?);
        }
        Ok(Par::beside(branches))
    }

    /// chain = [edge] or {edge or}
    fn pipe_chain(&mut self, inside: bool, expected: &str) -> Result<Chain, Diagnostic> {
        let start = self.lexer.peek()?.span;
        let lead = self.pipe_edge()?;
        if let Some(edge) = lead
            && !inside
        {
            return Err(leading_edge(edge, "{ |22 a + |80 b }"));
        }
        let mut links =
            vec![Link { edge: None, term: self.pipe_or(if lead.is_some() { AFTER_EDGE } else { expected })? }];
        while let Some(edge) = self.pipe_edge()? {
            links.push(Link { edge: Some(edge), term: self.pipe_or(AFTER_EDGE)? });
        }
        Ok(Chain { lead, links, span: start.to(self.lexer.taken()) })
    }

    /// edge = ("|" | "||") [selector], with the selector glued to it
    fn pipe_edge(&mut self) -> Result<Option<Edge>, Diagnostic> {
        let cut = match self.peek_kind()? {
            Kind::Bar => false,
            Kind::BarBar => true,
            _ => return Ok(None),
        };
        let mut span = self.lexer.take()?.span;
        let glued = self.lexer.glued_word();
        let text = self.lexer.text(glued);
        let mut select = None;
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '!') {
            select = Some(selector::parse(text, glued)?);
            self.lexer.take_part(text.len())?;
            span = span.to(glued);
        }
        Ok(Some(Edge { cut, select, span }))
    }

    /// or = and {"or" and}
    fn pipe_or(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let first = self.pipe_and(expected)?;
        self.operands(first, "or", |parser| parser.pipe_and("a filter after `or`"), Term::Or)
    }

    /// and = unary {"and" unary}
    fn pipe_and(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let first = self.pipe_unary(expected)?;
        self.operands(first, "and", |parser| parser.pipe_unary("a filter after `and`"), Term::And)
    }

    /// unary = "not" unary | "{" par "}" | "@" NAME | filter
    fn pipe_unary(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let token = self.lexer.peek()?;
        self.count_term(token.span)?;
        match (token.kind, self.word(token)) {
            (_, Some("not")) => {
                self.enter(token.span)?;
                self.lexer.take()?;
                let operand = self.pipe_unary("a filter after `not`")?;
                self.leave();
                Ok(Term::Not(Box::new(operand)))
            }
            (Kind::OpenBrace, _) => {
                self.enter(token.span)?;
                self.lexer.take()?;
                self.not_at_end(token.span)?;
                let mut par = self.pipe_par(true)?;
                let close = self.lexer.peek()?;
                if close.kind != Kind::CloseBrace {
                    return Err(self.unexpected_after_term(Some(token.span), close));
                }
                self.lexer.take()?;
                self.leave();
                par.span = token.span.to(close.span);
                Ok(Term::Group(par))
            }
            (Kind::At, _) => {
                self.lexer.take()?;
                let glued = self.lexer.glued_word();
                if glued.start == glued.end {
                    return Err(Diagnostic::new("`@` needs the name of a node", token.span)
                        .with_label("expected a name right after it")
                        .with_help("`@x` refers to the filter that has `name=x`"));
                }
                let word = self.lexer.peek()?;
                let name = self.name(word, "the name of a node")?;
                self.lexer.take()?;
                Ok(Term::Ref(Name { span: token.span.to(name.span), ..name }))
            }
            (Kind::Word, _) => self.pipe_filter(expected),
            (Kind::Quoted, _) => {
                Err(self.unexpected(expected, token).with_help("a filter's name stands without quotes"))
            }
            _ => Err(self.unexpected(expected, token)),
        }
    }

    /// filter = NAME {value} {KEY "=" value}
    fn pipe_filter(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let token = self.lexer.peek()?;
        let name = self.name(token, expected)?;
        self.lexer.take()?;
        let mut params = Params::default();
        loop {
            let token = self.lexer.peek()?;
            let raw = self.lexer.text(token.span);
            match token.kind {
                Kind::Equals if params.is_empty() => return Err(self.equals_after_name(&name.text, token)),
                Kind::Quoted if self.lexer.equals_follows(token) => {
                    return Err(
                        Diagnostic::new("a key stands without quotes", token.span).with_label("expected a bare word")
                    );
                }
                Kind::Word if self.lexer.equals_follows(token) => {
                    let key = self.key(token)?;
                    let value = self.value(&key)?;
                    params.add(key, raw, value)?;
                }
                Kind::Word if RESERVED.contains(&raw) => break,
                Kind::Word if is_arrow(raw) => {
                    return Err(self
                        .unexpected("`|`", token)
                        .with_help("in pipe notation write `a | b`; to write a file, end in `| save FILE`; a value `>` needs quotes"));
                }
                Kind::Word if raw == AND => {
                    return Err(self
                        .unexpected("`|`", token)
                        .with_help("`|` stands between filters, `and` between selectors; a value `&&` needs quotes"));
                }
                Kind::Word | Kind::Quoted => {
                    // Always a value: the token's kind was checked above.
                    if let Some(value) = self.plain_value(token)? {
                        params.add_main(value, raw)?;
                    }
                }
                _ => break,
            }
        }
        let span = name.span.to(self.lexer.taken());
        Ok(params.into_term(name, span))
    }
}

impl Parser<'_> {
    /// The error for `port=80`, or for a condition as in other programs.
    fn equals_after_name(&mut self, name: &str, token: Token) -> Diagnostic {
        let error = self.unexpected("a value", token);
        let rest = self.lexer.rest(token);
        if rest.starts_with('=') {
            return error.with_help(
                "conditions are selectors: `port 80`, `host 10.0.0.1`, or what tcpdump takes: `bpf \"port 80\"`",
            );
        }
        let value = rest.split([' ', '|', ';', '}', '+']).find(|word| !word.is_empty()).unwrap_or("VALUE");
        error.with_help(format!("the first value needs no key: {}", quote(&format!("{name} {value}"))))
    }
}

/// The error for an edge at the start of a chain outside a group.
pub(crate) fn leading_edge(edge: Edge, example: &str) -> Diagnostic {
    Diagnostic::new("an edge cannot start a request", edge.span).with_label("nothing stands before it").with_help(
        format!("begin with a source: `pcap FILE | ...`; a leading edge stands only in a group: `{example}`"),
    )
}
