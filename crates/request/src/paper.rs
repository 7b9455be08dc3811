//! Paper notation: `(a) > (b)`, `( (a) | (b) )`, `22> (x)`, `(rtsp,name=tag) ... (tag)`.
//!
//! Functions and tree are those of `pipe.rs`; the signs differ. References look like filters; they are told apart once
//! the whole text is read.

use crate::diagnostic::{Diagnostic, Span};
use crate::lexer::{Kind, Token};
use crate::params::Params;
use crate::parser::{AFTER_EDGE, Parser};
use crate::pipe::leading_edge;
use crate::selector;
use crate::tree::{Chain, Edge, Link, Par, Term};
use crate::value::{RESERVED, starts_name};

impl<'a> Parser<'a> {
    /// par = chain {"|" chain}
    pub(crate) fn paper_par(&mut self, inside: bool) -> Result<Par, Diagnostic> {
        let mut branches = vec![self.paper_chain(inside, "`(`")?];
        while self.peek_kind()? == Kind::Bar {
            self.lexer.take()?;
            branches.push(self.paper_chain(inside, "`(` after `|`")?);
        }
        Ok(Par::beside(branches))
    }

    /// chain = [edge] or {edge or}
    fn paper_chain(&mut self, inside: bool, expected: &str) -> Result<Chain, Diagnostic> {
        let start = self.lexer.peek()?.span;
        let lead = self.paper_edge()?;
        if let Some(edge) = lead
            && !inside
        {
            return Err(leading_edge(edge, "( 22> (a) | 80> (b) )"));
        }
        let mut links =
            vec![Link { edge: None, term: self.paper_or(if lead.is_some() { AFTER_EDGE } else { expected })? }];
        while let Some(edge) = self.paper_edge()? {
            links.push(Link { edge: Some(edge), term: self.paper_or(AFTER_EDGE)? });
        }
        Ok(Chain { lead, links, span: start.to(self.lexer.taken()) })
    }

    /// edge = [selector] (">" | ">>"), all in one word, which may go on: `22>(x)`, `>not (x)`
    fn paper_edge(&mut self) -> Result<Option<Edge>, Diagnostic> {
        let token = self.lexer.peek()?;
        let Some(word) = self.word(token) else { return Ok(None) };
        let Some(arrow) = word.find('>') else {
            if starts_edge(word) {
                return Err(self
                    .unexpected("an edge", token)
                    .with_help(format!("the selector is glued to the arrow: `{word}>`")));
            }
            return Ok(None);
        };
        let arrow_bytes = if word[arrow..].starts_with(">>") { 2 } else { 1 };
        let span = self.lexer.take_part(arrow + arrow_bytes)?;
        let mut select = None;
        if arrow > 0 {
            select = Some(selector::parse(&word[..arrow], Span::new(span.start, span.start + arrow))?);
        }
        if word[arrow + arrow_bytes..].starts_with(|c: char| c.is_ascii_digit() || c == '!') {
            let after = self.lexer.peek()?;
            return Err(self
                .unexpected(AFTER_EDGE, after)
                .with_help("in paper notation the selector stands before the arrow: `22>`"));
        }
        Ok(Some(Edge { cut: arrow_bytes == 2, select, span }))
    }

    /// or = and {"or" and}
    fn paper_or(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let first = self.paper_and(expected)?;
        self.operands(first, "or", |parser| parser.paper_and("`(` after `or`"), Term::Or)
    }

    /// and = unary {"and" unary}
    fn paper_and(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let first = self.paper_unary(expected)?;
        self.operands(first, "and", |parser| parser.paper_unary("`(` after `and`"), Term::And)
    }

    /// unary = "not" unary | "(" par ")" | filter
    fn paper_unary(&mut self, expected: &str) -> Result<Term, Diagnostic> {
        let token = self.lexer.peek()?;
        self.count_term(token.span)?;
        match (token.kind, self.word(token)) {
            (_, Some("not")) => {
                self.enter(token.span)?;
                self.lexer.take()?;
                let operand = self.paper_unary("`(` after `not`")?;
                self.leave();
                Ok(Term::Not(Box::new(operand)))
            }
            (Kind::OpenParen, _) => {
                self.lexer.take()?;
                self.not_at_end(token.span)?;
                let inner = self.lexer.peek()?;
                if self.word(inner).is_some_and(|word| word.starts_with(starts_name) && !RESERVED.contains(&word)) {
                    return self.paper_filter(token);
                }
                self.enter(token.span)?;
                let mut par = self.paper_par(true)?;
                let close = self.lexer.peek()?;
                if close.kind != Kind::CloseParen {
                    return Err(self.unexpected_after_term(Some(token.span), close));
                }
                self.lexer.take()?;
                self.leave();
                par.span = token.span.to(close.span);
                Ok(Term::Group(par))
            }
            (Kind::Word, Some(word)) if !RESERVED.contains(&word) => Err(self
                .unexpected(expected, token)
                .with_help(format!("in paper notation filters stand in parentheses: `({word})`"))),
            _ => Err(self.unexpected(expected, token)),
        }
    }

    /// filter = "(" NAME ["," value] {"," KEY "=" value} ")"; `open` has been read
    fn paper_filter(&mut self, open: Token) -> Result<Term, Diagnostic> {
        let token = self.lexer.peek()?;
        let name = self.name(token, "a filter")?;
        self.lexer.take()?;
        let mut params = Params::default();
        loop {
            let token = self.lexer.peek()?;
            match token.kind {
                Kind::CloseParen => break,
                Kind::Comma => {
                    self.lexer.take()?;
                    self.paper_param(&mut params)?;
                }
                Kind::End => return Err(self.unexpected_after_term(Some(open.span), token)),
                Kind::Word | Kind::Quoted => {
                    return Err(self
                        .unexpected("`,` or `)`", token)
                        .with_help("parameters are separated by `,`; a value with spaces needs quotes"));
                }
                _ => return Err(self.unexpected("`,` or `)`", token)),
            }
        }
        self.lexer.take()?;
        Ok(params.into_term(name, open.span.to(self.lexer.taken())))
    }

    fn paper_param(&mut self, params: &mut Params<'a>) -> Result<(), Diagnostic> {
        let token = self.lexer.peek()?;
        let raw = self.lexer.text(token.span);
        match token.kind {
            Kind::Word if self.lexer.equals_follows(token) => {
                let key = self.key(token)?;
                let value = self.value(&key)?;
                params.add(key, raw, value)
            }
            Kind::Quoted if self.lexer.equals_follows(token) => {
                Err(Diagnostic::new("a key stands without quotes", token.span).with_label("expected a bare word"))
            }
            _ => match self.plain_value(token)? {
                Some(value) => params.add_main(value, raw),
                None => Err(self.unexpected("`KEY=VALUE` after `,`", token)),
            },
        }
    }
}

fn starts_edge(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '!' | '>' | ':'))
}
