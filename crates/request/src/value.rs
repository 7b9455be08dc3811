//! Values between text and tree: quotes, escapes and `$x`, in both directions, and which values may be bare.
//!
//! In quotes `\"` and `\\` are escapes. Any other `\c` stays two characters, so that regular expressions need no
//! doubling. A variable is a whole bare value `$x`, or `${x}` in any value. Dollars right before `{name}` escape each
//! other in pairs: `$${x}` is the text `${x}`. Elsewhere a dollar is a dollar.

use crate::diagnostic::{Diagnostic, Span};
use crate::tree::{Name, Value, Variable};

/// Words that are never names, keys or bare main values.
pub(crate) const RESERVED: [&str; 5] = ["and", "or", "not", "let", "set"];

/// The key that names a node.
pub(crate) const LABEL_KEY: &str = "name";

/// Whether this character ends a bare word.
pub(crate) fn is_delimiter(character: char) -> bool {
    character.is_whitespace() || matches!(character, '|' | '+' | '{' | '}' | '(' | ')' | ';' | ',' | '"' | '=')
}

/// Whether this is a name: a letter or `_`, then letters, digits, `_`, `-` and `.`.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(starts_name) && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

pub(crate) fn starts_name(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// The length in bytes of a variable's name at the start of `text`: ASCII letters, digits and `_`, no digit first.
fn variable_name_bytes(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

pub(crate) fn braced_name(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let name = &inner[..variable_name_bytes(inner)];
    (!name.is_empty() && inner[name.len()..].starts_with('}')).then_some(name)
}

/// The value of a bare word. `start` is its offset in the source.
pub(crate) fn decode_bare(word: &str, start: usize) -> Result<Value, Diagnostic> {
    let span = Span::new(start, start + word.len());
    if let Some(rest) = word.strip_prefix('$') {
        let name = &rest[..variable_name_bytes(rest)];
        if !name.is_empty() && name.len() == rest.len() {
            let variable = Variable { name: Name { text: name.to_owned(), span }, at: 0 };
            return Ok(Value { text: format!("${{{name}}}"), quoted: false, variables: vec![variable], span });
        }
        if !name.is_empty() {
            let name_span = Span::new(start, start + 1 + name.len());
            return Err(Diagnostic::new(format!("`${name}` is only part of this value"), name_span)
                .with_label("not the whole value")
                .with_help(format!("write `${{{name}}}` inside a value, or put text that starts with `$` in quotes")));
        }
    }
    let (text, variables) = decode(word, start, false);
    Ok(Value { text, quoted: false, variables, span })
}

/// The value of a quoted word. `inner` is the text between the quotes, `start` the offset of `inner`.
pub(crate) fn decode_quoted(inner: &str, start: usize) -> Value {
    let (text, variables) = decode(inner, start, true);
    Value { text, quoted: true, variables, span: Span::new(start - 1, start + inner.len() + 1) }
}

fn decode(raw: &str, start: usize, quoted: bool) -> (String, Vec<Variable>) {
    let mut text = String::with_capacity(raw.len());
    let mut variables = Vec::new();
    let mut at = 0;
    while let Some(character) = raw[at..].chars().next() {
        let after = &raw[at + character.len_utf8()..];
        if quoted && character == '\\' && after.starts_with(['"', '\\']) {
            text.push_str(&after[..1]);
            at += 2;
        } else if character == '$' {
            let dollars = dollar_count(&raw[at..]);
            let name = braced_name(&raw[at + dollars..]);
            // Each pair before `{name}` is one dollar. An odd dollar opens the variable.
            let kept = if name.is_some() { dollars / 2 } else { dollars };
            text.extend(std::iter::repeat_n('$', kept));
            at += dollars;
            if let Some(name) = name
                && dollars % 2 == 1
            {
                let span = Span::new(start + at - 1, start + at + name.len() + 2);
                variables.push(Variable { name: Name { text: name.to_owned(), span }, at: text.len() });
                text.push_str(&format!("${{{name}}}"));
                at += name.len() + 2;
            }
        } else {
            text.push(character);
            at += character.len_utf8();
        }
    }
    (text, variables)
}

fn dollar_count(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'$').count()
}

/// A piece of a value: text, or a variable to fill in.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Variable(&'a Variable),
}

impl Value {
    /// The value cut at its variables. A variable that does not fit the text (in a tree made by hand) counts as text.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::with_capacity(self.variables.len() * 2 + 1);
        let mut done = 0;
        for variable in &self.variables {
            let stands_there = variable.at >= done
                && self.text.get(variable.at..).and_then(|rest| rest.strip_prefix('$')).and_then(braced_name)
                    == Some(variable.name.text.as_str());
            if stands_there {
                if variable.at > done {
                    pieces.push(Piece::Text(&self.text[done..variable.at]));
                }
                pieces.push(Piece::Variable(variable));
                done = variable.at + variable.name.text.len() + 3;
            }
        }
        if done < self.text.len() {
            pieces.push(Piece::Text(&self.text[done..]));
        }
        pieces
    }

    /// The value as request text: bare if that reads back the same, else in quotes.
    pub(crate) fn encode(&self) -> String {
        let pieces = self.pieces();
        if let [Piece::Variable(variable)] = pieces.as_slice() {
            return format!("${}", variable.name.text);
        }
        if stands_bare(&pieces) {
            return self.text.clone();
        }
        let mut out = String::with_capacity(self.text.len() + 2);
        out.push('"');
        for (index, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Variable(variable) => out.push_str(&format!("${{{}}}", variable.name.text)),
                Piece::Text(text) => escape(text, index + 1 < pieces.len(), &mut out),
            }
        }
        out.push('"');
        out
    }
}

/// Writes `text` for use inside quotes; `more`: a variable follows right after it.
fn escape(text: &str, more: bool, out: &mut String) {
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let after = &text[at + character.len_utf8()..];
        match character {
            '"' => out.push_str("\\\""),
            '\\' => {
                // A backslash is an escape only before these. Before the closing quote it would escape that quote.
                let doubled = after.starts_with(['"', '\\']) || (after.is_empty() && !more);
                out.push_str(if doubled { "\\\\" } else { "\\" });
            }
            '$' => {
                let dollars = dollar_count(&text[at..]);
                let rest = &text[at + dollars..];
                let paired = braced_name(rest).is_some() || (rest.is_empty() && more);
                out.extend(std::iter::repeat_n('$', if paired { dollars * 2 } else { dollars }));
                at += dollars;
                continue;
            }
            _ => out.push(character),
        }
        at += character.len_utf8();
    }
}

fn stands_bare(pieces: &[Piece<'_>]) -> bool {
    let plain = |piece: &Piece<'_>| match piece {
        Piece::Variable(_) => true,
        Piece::Text(text) => !text.contains(|c| is_delimiter(c) || c == '$'),
    };
    let Some(first) = pieces.first() else { return false };
    let starts_well = match first {
        Piece::Variable(_) => true,
        Piece::Text(text) => !text.starts_with(['#', '@']),
    };
    let special = match pieces {
        [Piece::Text(text)] => RESERVED.contains(text) || is_arrow(text) || *text == AND,
        _ => false,
    };
    starts_well && !special && pieces.iter().all(plain)
}

/// Never a bare main value, so that `a && b` is a clear error.
pub(crate) const AND: &str = "&&";

/// Whether this is `>` or `>>`. These arrows of the paper notation are never bare values, so that `a > b` is a clear error.
pub(crate) fn is_arrow(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte == b'>')
}

#[cfg(test)]
mod tests {
    use super::{braced_name, decode_bare, decode_quoted, is_name};
    use crate::tree::Value;

    #[test]
    fn quoted_words_to_values_and_back() {
        // The text between the quotes, its meaning, and its printed form.
        let rows: &[(&str, &str, &str)] = &[
            ("", "", r#""""#),
            ("tcp port 80", "tcp port 80", r#""tcp port 80""#),
            ("plain", "plain", "plain"),
            (r"\d\.\w", r"\d\.\w", r"\d\.\w"),
            (r"\d+", r"\d+", r#""\d+""#),
            (r"\d \w", r"\d \w", r#""\d \w""#),
            (r#"say \"hi\""#, r#"say "hi""#, r#""say \"hi\"""#),
            (r"a b\\", r"a b\", r#""a b\\""#),
            (r"a b\\\\c", r"a b\\c", r#""a b\\\c""#),
            (r"\\\\ ", r"\\ ", r#""\\\ ""#),
            ("and", "and", r#""and""#),
            ("#1", "#1", r##""#1""##),
            ("@x", "@x", r#""@x""#),
            ("$x", "$x", r#""$x""#),
            (">", ">", r#"">""#),
            (">=", ">=", r#"">=""#),
            ("&&", "&&", r#""&&""#),
            ("a&&", "a&&", "a&&"),
            (">a", ">a", ">a"),
            ("a$", "a$", r#""a$""#),
            ("x{2}${3}", "x{2}${3}", r#""x{2}${3}""#),
            ("$${x}", "${x}", r#""$${x}""#),
            ("line\nbreak", "line\nbreak", "\"line\nbreak\""),
            ("!80", "!80", "!80"),
        ];
        for (inner, text, printed) in rows {
            let value = decode_quoted(inner, 1);
            assert_eq!(value.text, *text, "{inner}");
            assert!(value.variables.is_empty(), "{inner}");
            assert_eq!(value.encode(), *printed, "{inner}");
        }
    }

    #[test]
    fn variables_are_found_with_their_places() {
        type Found = &'static [(&'static str, &'static str)];
        // The source word, the names in it with the source they cover, and its printed form.
        let rows: &[(&str, Found, &str)] = &[
            ("$x", &[("x", "$x")], "$x"),
            ("${x}", &[("x", "${x}")], "$x"),
            ("\"${x}\"", &[("x", "${x}")], "$x"),
            ("${dir}/${file_2}.pcap", &[("dir", "${dir}"), ("file_2", "${file_2}")], "${dir}/${file_2}.pcap"),
            ("\"host ${a}\"", &[("a", "${a}")], "\"host ${a}\""),
            (r#""\"${a}\\${b}""#, &[("a", "${a}"), ("b", "${b}")], r#""\"${a}\${b}""#),
            ("\"$$${x} \"", &[("x", "${x}")], "\"$$${x} \""),
            ("\"$$$${x} \"", &[], "\"$$$${x} \""),
            ("@${x}", &[("x", "${x}")], "\"@${x}\""),
            ("a$", &[], "\"a$\""),
            ("$5", &[], "\"$5\""),
            ("\"${} ${2} ${a-b}\"", &[], "\"${} ${2} ${a-b}\""),
        ];
        for (word, names, printed) in rows {
            let value = decode(word);
            let found: Vec<(&str, &str)> = value
                .variables
                .iter()
                .map(|variable| (variable.name.text.as_str(), &word[variable.name.span.start..variable.name.span.end]))
                .collect();
            assert_eq!(found, *names, "{word}");
            assert_eq!(value.encode(), *printed, "{word}");
            assert_eq!(decode(printed), value, "{word} printed as {printed}");
        }
    }

    fn decode(word: &str) -> Value {
        match word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => decode_quoted(inner, 1),
            None => decode_bare(word, 0).expect("the word is whole"),
        }
    }

    #[test]
    fn part_of_a_bare_value_needs_braces() {
        let error = decode_bare("$x/out", 4).expect_err("a shell would take this");
        assert_eq!((error.span.start, error.span.end), (4, 6));
        assert!(error.help.is_some_and(|help| help.contains("`${x}`")));
    }

    #[test]
    fn names() {
        for good in ["a", "_", "http2", "ip6", "a-b.c_d", "größe"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "2a", "-a", "a/b", "a>b", "$x", "a:b"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert_eq!(braced_name("{a_1}x"), Some("a_1"));
        for bad in ["{}", "{1}", "{a", "a}", "{a b}", ""] {
            assert_eq!(braced_name(bad), None, "{bad}");
        }
    }
}
