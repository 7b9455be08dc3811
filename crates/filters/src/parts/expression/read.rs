//! Parses an expression: splits it into words, then descends recursively.

use super::value::Value;
use super::{Expression, Node, Op, Test};
use std::ops::Range;

/// Limit of nested parentheses and `not`s.
const DEPTH_MAX: usize = 64;

/// Limit of tests in one expression.
const TESTS_MAX: usize = 1024;

/// A mistake in the text, and its place.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) at: Range<usize>,
    pub(super) help: Option<String>,
}

impl Wrong {
    fn new(message: impl Into<String>, at: Range<usize>) -> Wrong {
        Wrong { message: message.into(), at, help: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    /// A name, a number, an address, a keyword.
    Bare(String),
    /// A text in quotes.
    Quoted(String),
    /// Operators, parentheses, commas.
    Sign(&'static str),
}

/// Signs, longer signs first.
const SIGNS: [&str; 15] = ["&&", "||", "==", "!=", "<=", ">=", "!~", "=", "<", ">", "~", "!", "(", ")", ","];

fn words(text: &str) -> Result<Vec<(Word, Range<usize>)>, Wrong> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            words.push((Word::Sign(sign), at..at + sign.len()));
            at += sign.len();
        } else if first == '\'' || first == '"' {
            let (inner, len) =
                quoted(rest, first).ok_or_else(|| Wrong::new("the text does not end", at..text.len()))?;
            words.push((Word::Quoted(inner), at..at + len));
            at += len;
        } else {
            let len = rest.find(|c: char| c.is_whitespace() || "&|=!<>~(),'\"".contains(c)).unwrap_or(rest.len());
            if len == 0 {
                return Err(Wrong::new(format!("`{first}` is no operator"), at..at + first.len_utf8()));
            }
            words.push((Word::Bare(rest[..len].to_string()), at..at + len));
            at += len;
        }
    }
    Ok(words)
}

/// The text in quotes at the beginning of `rest`, and its bytes there. A backslash escapes the quote and the backslash.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if chars.peek().is_some_and(|(_, next)| *next == quote || *next == '\\') => {
                inner.extend(chars.next().map(|(_, next)| next));
            }
            _ if c == quote => return Some((inner, at + 1)),
            _ => inner.push(c),
        }
    }
    None
}

struct Reader<'a> {
    words: &'a [(Word, Range<usize>)],
    next: usize,
    end: usize,
    fields: Vec<(String, Range<usize>)>,
    tests: usize,
}

pub(super) fn read(text: &str) -> Result<Expression, Wrong> {
    let words = words(text)?;
    let mut reader = Reader { words: &words, next: 0, end: text.len(), fields: Vec::new(), tests: 0 };
    if words.is_empty() {
        return Err(Wrong::new("an expression is missing", 0..text.len()));
    }
    let root = reader.any(0)?;
    match reader.peek() {
        None => Ok(Expression { root, fields: reader.fields }),
        Some(Word::Sign(")")) => Err(Wrong::new("`)` closes nothing", reader.here())),
        Some(_) => Err(Wrong::new("`and` or `or` is missing", reader.here())),
    }
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Word> {
        self.words.get(self.next).map(|(word, _)| word)
    }

    /// The place of the next word.
    fn here(&self) -> Range<usize> {
        self.words.get(self.next).map_or(self.end..self.end, |(_, at)| at.clone())
    }

    /// Takes the next word if it is this sign or keyword. `false`: it is another.
    fn takes(&mut self, sign: &str, keyword: &str) -> bool {
        let found = match self.peek() {
            Some(Word::Sign(found)) => *found == sign,
            Some(Word::Bare(found)) => found == keyword,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Node, Wrong> {
        let mut parts = vec![self.all(depth)?];
        while self.takes("||", "or") {
            parts.push(self.all(depth)?);
        }
        Ok(joined(parts, Node::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Node, Wrong> {
        let mut parts = vec![self.not(depth)?];
        while self.takes("&&", "and") {
            parts.push(self.not(depth)?);
        }
        Ok(joined(parts, Node::All))
    }

    fn not(&mut self, depth: usize) -> Result<Node, Wrong> {
        let at = self.here();
        if depth >= DEPTH_MAX {
            return Err(Wrong::new(format!("more than {DEPTH_MAX} parentheses are nested"), at));
        }
        if self.takes("!", "not") {
            return Ok(Node::Not(Box::new(self.not(depth + 1)?)));
        }
        if !self.takes("(", "(") {
            return self.test();
        }
        let inner = self.any(depth + 1)?;
        match self.takes(")", ")") {
            true => Ok(inner),
            false => Err(Wrong::new("`)` is missing", self.here())),
        }
    }

    fn test(&mut self) -> Result<Node, Wrong> {
        let at = self.here();
        self.tests += 1;
        if self.tests > TESTS_MAX {
            return Err(Wrong::new(format!("more than {TESTS_MAX} tests"), at));
        }
        let Some(Word::Bare(name)) = self.peek().cloned() else {
            return Err(Wrong::new("a field is missing", at));
        };
        self.next += 1;
        let field = match self.fields.iter().position(|(known, _)| *known == name) {
            Some(known) => known,
            None => {
                self.fields.push((name, at));
                self.fields.len() - 1
            }
        };
        let op = match self.peek() {
            Some(Word::Sign("=" | "==")) => Op::Equal,
            Some(Word::Sign("!=")) => Op::Unequal,
            Some(Word::Sign("<")) => Op::Less,
            Some(Word::Sign("<=")) => Op::AtMost,
            Some(Word::Sign(">")) => Op::More,
            Some(Word::Sign(">=")) => Op::AtLeast,
            Some(Word::Sign("~")) => Op::Matches,
            Some(Word::Sign("!~")) => Op::MatchesNot,
            Some(Word::Bare(word)) if word == "contains" => Op::Contains,
            Some(Word::Bare(word)) if word == "in" => {
                self.next += 1;
                let values = self.list()?;
                return Ok(Node::Test(Test { field, op: Op::Equal, values }));
            }
            _ => return Ok(Node::Test(Test { field, op: Op::Is, values: Vec::new() })),
        };
        self.next += 1;
        let values = vec![self.value(op)?];
        Ok(Node::Test(Test { field, op, values }))
    }

    fn list(&mut self) -> Result<Vec<(Value, Range<usize>)>, Wrong> {
        if !self.takes("(", "(") {
            return Err(Wrong::new("`(` is missing", self.here()));
        }
        let mut values = vec![self.value(Op::Equal)?];
        while self.takes(",", ",") {
            values.push(self.value(Op::Equal)?);
        }
        match self.takes(")", ")") {
            true => Ok(values),
            false => Err(Wrong::new("`)` is missing", self.here())),
        }
    }

    fn value(&mut self, op: Op) -> Result<(Value, Range<usize>), Wrong> {
        let at = self.here();
        let Some(Word::Bare(text) | Word::Quoted(text)) = self.peek().cloned() else {
            return Err(Wrong::new("a value is missing", at));
        };
        self.next += 1;
        let value = match op {
            Op::Matches | Op::MatchesNot => Value::pattern(&text).map_err(|why| Wrong {
                message: format!("`{text}` is no regular expression: {why}"),
                at: at.clone(),
                help: None,
            })?,
            _ => Value::read(text),
        };
        Ok((value, at))
    }
}

/// Joins the parts of a node. A single part needs no node.
fn joined(mut parts: Vec<Node>, join: fn(Vec<Node>) -> Node) -> Node {
    match parts.len() {
        1 => parts.swap_remove(0),
        _ => join(parts),
    }
}
