//! Turns text into tokens, one at a time, and notes the comments and blank lines between them.
//!
//! The lexer knows neither notation: the parsers decide what a word means, and where it may be cut (`22>(x)`). Names,
//! values and escapes are in `value.rs`.

use crate::diagnostic::{Diagnostic, Span};
use crate::tree::{Comment, Layout};
use crate::value::{braced_name, is_delimiter};

/// The kind of a token; its text is the source under its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    /// A word in quotes; its span includes them.
    Quoted,
    Bar,
    BarBar,
    Plus,
    OpenBrace,
    CloseBrace,
    OpenParen,
    CloseParen,
    Semicolon,
    Comma,
    Equals,
    At,
    /// The end of the text, right after its last token.
    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
}

pub(crate) struct Lexer<'a> {
    source: &'a str,
    /// Where to look for the next token.
    position: usize,
    /// The token after `position`, if it was looked at.
    peeked: Option<Token>,
    /// Where the last taken token ends.
    taken_end: usize,
    /// There is a token on the current line, so a comment here is not on a line of its own.
    line_used: bool,
    pub(crate) layout: Layout,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(source: &'a str) -> Lexer<'a> {
        let position = if source.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Lexer { source, position, peeked: None, taken_end: position, line_used: false, layout: Layout::default() }
    }

    pub(crate) fn peek(&mut self) -> Result<Token, Diagnostic> {
        if let Some(token) = self.peeked {
            return Ok(token);
        }
        self.skip_space();
        let token = self.lex()?;
        self.line_used = true;
        self.position = token.span.end;
        self.peeked = Some(token);
        Ok(token)
    }

    pub(crate) fn take(&mut self) -> Result<Token, Diagnostic> {
        let token = self.peek()?;
        self.peeked = None;
        if token.kind != Kind::End {
            self.taken_end = token.span.end;
        }
        Ok(token)
    }

    /// Takes only the first `bytes` of the next token, a word that holds more than one thing.
    pub(crate) fn take_part(&mut self, bytes: usize) -> Result<Span, Diagnostic> {
        let token = self.peek()?;
        let end = token.span.start.saturating_add(bytes).min(token.span.end);
        self.peeked = None;
        self.position = end;
        self.taken_end = end;
        Ok(Span::new(token.span.start, end))
    }

    /// The end of the last taken token, as an empty span.
    pub(crate) fn taken(&self) -> Span {
        Span::new(self.taken_end, self.taken_end)
    }

    /// The word glued to the last taken token: from its end to the next delimiter.
    pub(crate) fn glued_word(&self) -> Span {
        let rest = &self.source[self.taken_end..];
        let bytes = rest.find(is_delimiter).unwrap_or(rest.len());
        Span::new(self.taken_end, self.taken_end + bytes)
    }

    pub(crate) fn text(&self, span: Span) -> &'a str {
        &self.source[span.start..span.end]
    }

    pub(crate) fn rest(&self, token: Token) -> &'a str {
        &self.source[token.span.end..]
    }

    pub(crate) fn equals_follows(&self, token: Token) -> bool {
        self.source[token.span.end..].trim_start().starts_with('=')
    }

    fn skip_space(&mut self) {
        let mut newline_count = 0;
        while let Some(character) = self.source[self.position..].chars().next() {
            if character == '#' {
                let rest = &self.source[self.position..];
                let text = rest[..rest.find('\n').unwrap_or(rest.len())].trim_end();
                let span = Span::new(self.position, self.position + text.len());
                self.layout.comments.push(Comment { text: text.to_owned(), span, own_line: !self.line_used });
                self.position = span.end;
                newline_count = 0;
                continue;
            }
            if !character.is_whitespace() {
                break;
            }
            if character == '\n' {
                self.line_used = false;
                newline_count += 1;
                if newline_count == 2 {
                    self.layout.blank_lines.push(self.position);
                }
            }
            self.position += character.len_utf8();
        }
    }

    fn lex(&self) -> Result<Token, Diagnostic> {
        let start = self.position;
        let rest = &self.source[start..];
        let Some(first) = rest.chars().next() else {
            return Ok(Token { kind: Kind::End, span: Span::new(self.taken_end, self.taken_end) });
        };
        let (kind, bytes) = match first {
            '|' if rest.starts_with("||") => (Kind::BarBar, 2),
            '|' => (Kind::Bar, 1),
            '+' => (Kind::Plus, 1),
            '{' => (Kind::OpenBrace, 1),
            '}' => (Kind::CloseBrace, 1),
            '(' => (Kind::OpenParen, 1),
            ')' => (Kind::CloseParen, 1),
            ';' => (Kind::Semicolon, 1),
            ',' => (Kind::Comma, 1),
            '=' => (Kind::Equals, 1),
            '@' => (Kind::At, 1),
            '"' => (Kind::Quoted, self.quoted_bytes(start)?),
            _ => (Kind::Word, self.word_bytes(start)?),
        };
        Ok(Token { kind, span: Span::new(start, start + bytes) })
    }

    fn quoted_bytes(&self, start: usize) -> Result<usize, Diagnostic> {
        let mut escaped = false;
        for (index, byte) in self.source.bytes().enumerate().skip(start + 1) {
            match byte {
                // Only `\"` and `\\` matter here, and in `\c` any other c is no quote: skipping one byte serves all.
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Ok(index + 1 - start),
                _ => {}
            }
        }
        Err(Diagnostic::new("this quote is never closed", Span::new(start, start + 1))
            .with_label("opened here")
            .with_help("end the value with `\"`; inside, `\\\"` is a quote and `\\\\` a backslash"))
    }

    fn word_bytes(&self, start: usize) -> Result<usize, Diagnostic> {
        let mut at = start;
        while let Some(character) = self.source[at..].chars().next() {
            if character == '{' && self.source[start..at].ends_with('$') {
                let Some(name) = braced_name(&self.source[at..]) else {
                    return Err(Diagnostic::new(
                        "`${` opens a variable that has no name or no end",
                        Span::new(at - 1, at + 1),
                    )
                    .with_label("expected a name and `}`")
                    .with_help("write `${name}`; a name is made of letters, digits and `_`"));
                };
                at += name.len() + 2;
                continue;
            }
            if is_delimiter(character) {
                break;
            }
            at += character.len_utf8();
        }
        Ok(at - start)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Lexer};

    fn check(source: &str, expected: &[&str]) {
        let mut lexer = Lexer::new(source);
        let mut found = Vec::new();
        loop {
            let token = lexer.take().expect("the source has no lexical error");
            if token.kind == Kind::End {
                break;
            }
            found.push(lexer.text(token.span));
        }
        assert_eq!(found, expected, "{source:?}");
    }

    #[test]
    fn words_end_where_the_grammar_says() {
        let rows: &[(&str, &[&str])] = &[
            ("pcap a.pcap|tcp", &["pcap", "a.pcap", "|", "tcp"]),
            ("a||b|||c", &["a", "||", "b", "||", "|", "c"]),
            ("{a+b}", &["{", "a", "+", "b", "}"]),
            ("k=v,k2=\"v w\";", &["k", "=", "v", ",", "k2", "=", "\"v w\"", ";"]),
            ("a#b #c\nd", &["a#b", "d"]),
            ("a@b @c", &["a@b", "@", "c"]),
            ("$x ${y}/z a$", &["$x", "${y}/z", "a$"]),
            (r#""a\"b" "c\\" d"#, &[r#""a\"b""#, r#""c\\""#, "d"]),
            ("\u{feff}a\u{a0}b", &["a", "b"]),
            ("(port)22>(x)", &["(", "port", ")", "22>", "(", "x", ")"]),
            ("", &[]),
        ];
        for (source, expected) in rows {
            check(source, expected);
        }
    }

    #[test]
    fn errors_point_at_what_is_open() {
        for (source, start, end) in [("a \"b", 2, 3), ("a \"b\\\"", 2, 3), ("a ${x", 2, 4), ("a b${}", 3, 5)] {
            let mut lexer = Lexer::new(source);
            let error = loop {
                match lexer.take() {
                    Ok(token) => assert_ne!(token.kind, Kind::End, "{source:?} has an error"),
                    Err(error) => break error,
                }
            };
            assert_eq!((error.span.start, error.span.end), (start, end), "{source:?}");
        }
    }

    #[test]
    fn comments_and_blank_lines_are_kept() {
        let mut lexer = Lexer::new("# one  \na # two\n\n\n  # three\nb \"x\ny\" # four");
        while lexer.take().expect("the source has no lexical error").kind != Kind::End {}
        let comments: Vec<(&str, bool)> =
            lexer.layout.comments.iter().map(|comment| (comment.text.as_str(), comment.own_line)).collect();
        assert_eq!(comments, [("# one", true), ("# two", false), ("# three", true), ("# four", false)]);
        assert_eq!(lexer.layout.blank_lines.len(), 1);
    }
}
