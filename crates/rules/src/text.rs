//! The syntax of a rule file: continuation lines, comments, header words, options. Their meaning is read elsewhere.

use crate::mistake::{Mistake, Read, Wrong};

/// A rule with its lines joined, and the position of each piece in the file.
#[derive(Debug)]
pub(crate) struct RuleText {
    pub text: String,
    /// Offset in `text`, and its line and column in the file.
    pieces: Vec<(usize, u32, u32)>,
}

impl RuleText {
    /// Line of the rule's first byte.
    pub fn line(&self) -> u32 {
        self.pieces.first().map_or(0, |piece| piece.1)
    }

    /// Converts a byte position in the rule to line and column.
    pub fn mistake(&self, wrong: Wrong) -> Mistake {
        let index = self.pieces.partition_point(|piece| piece.0 <= wrong.at).saturating_sub(1);
        let (from, line, column) = self.pieces.get(index).copied().unwrap_or((0, 1, 1));
        let column = column + (wrong.at.saturating_sub(from)) as u32;
        Mistake { line, column, sid: self.sid(), reason: wrong.reason }
    }

    /// The number that the rule gives itself, as far as its text shows that.
    fn sid(&self) -> Option<u32> {
        let behind = self.text.split([';', '(']).rev();
        behind.filter_map(|option| option.trim().strip_prefix("sid:")).find_map(|sid| sid.trim().parse().ok())
    }
}

/// Splits a file into rules. A backslash at the end of a line joins the next line.
pub(crate) fn rules(file: &str) -> Vec<RuleText> {
    let mut all = Vec::new();
    let mut open: Option<RuleText> = None;
    for (number, line) in (1u32..).zip(file.split('\n')) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let body = line.trim_start();
        if open.is_none() && (body.is_empty() || body.starts_with('#')) {
            continue;
        }
        let indent = (line.len() - body.len()) as u32;
        let trimmed = body.trim_end();
        let (part, goes_on) = trimmed.strip_suffix('\\').map_or((trimmed, false), |part| (part, true));
        let rule = open.get_or_insert_with(|| RuleText { text: String::new(), pieces: Vec::new() });
        rule.pieces.push((rule.text.len(), number, indent + 1));
        rule.text.push_str(part);
        if !goes_on {
            all.extend(open.take());
        }
    }
    all.extend(open);
    all
}

/// A word, and its byte offset in the rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Word<'a> {
    pub fn new(text: &'a str, at: usize) -> Word<'a> {
        Word { text, at }
    }

    pub fn trim(self) -> Word<'a> {
        let start = self.text.trim_start();
        Word { text: start.trim_end(), at: self.at + self.text.len() - start.len() }
    }

    /// Splits at `mark` outside quotes.
    pub fn split(self, mark: char) -> Vec<Word<'a>> {
        let (mut parts, mut from, mut quoted) = (Vec::new(), 0, false);
        for (at, letter) in self.text.char_indices() {
            quoted ^= letter == '"';
            if letter == mark && !quoted {
                parts.push(Word::new(&self.text[from..at], self.at + from).trim());
                from = at + letter.len_utf8();
            }
        }
        parts.push(Word::new(&self.text[from..], self.at + from).trim());
        parts
    }

    /// Returns a mistake at this word.
    pub fn wrong<T>(self, reason: impl Into<String>) -> Read<T> {
        Err(Wrong::new(self.at, reason))
    }
}

/// An option: name, and the value behind the colon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opt<'a> {
    pub name: Word<'a>,
    pub value: Option<Word<'a>>,
}

impl<'a> Opt<'a> {
    /// Returns the value, or a mistake if it is missing.
    pub fn needed(&self) -> Read<Word<'a>> {
        match self.value {
            Some(value) if !value.text.is_empty() => Ok(value),
            _ => self.name.wrong(format!("{} needs a value", self.name.text)),
        }
    }

    /// Returns a mistake if there is a value.
    pub fn bare(&self) -> Read<()> {
        match self.value {
            Some(value) => value.wrong(format!("{} takes no value", self.name.text)),
            None => Ok(()),
        }
    }
}

/// Splits a rule into header words and options.
pub(crate) fn parts(rule: &str) -> Read<(Vec<Word<'_>>, Vec<Opt<'_>>)> {
    let Some(open) = rule.find('(') else {
        return Err(Wrong::new(rule.len(), "a bracket with options is missing"));
    };
    let end = rule.trim_end().len();
    if !rule[..end].ends_with(')') {
        return Err(Wrong::new(end, "the closing bracket is missing"));
    }
    let mut head = header_words(Word::new(&rule[..open], 0));
    // Drop empty words: address lists may contain blanks.
    head.retain(|word| !word.text.is_empty());
    let options = options(Word::new(&rule[open + 1..end - 1], open + 1))?;
    Ok((head, options))
}

/// Splits at white space outside brackets.
fn header_words(header: Word<'_>) -> Vec<Word<'_>> {
    let (mut words, mut from, mut depth) = (Vec::new(), 0, 0i32);
    for (at, letter) in header.text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth <= 0 && letter.is_ascii_whitespace() {
            words.push(Word::new(&header.text[from..at], header.at + from));
            from = at + 1;
        }
    }
    words.push(Word::new(&header.text[from..], header.at + from));
    words
}

/// Splits at semicolons outside quotes. A quote within a quoted value is a part of it: the first semicolon ends an option
/// whose value ends with a quote there, as in Suricata.
fn options(inner: Word<'_>) -> Read<Vec<Opt<'_>>> {
    let (mut all, mut from, mut quoted, mut escaped) = (Vec::new(), 0, None, false);
    // The last quote, and whether a semicolon of the option lay within quotes.
    let (mut last_quote, mut passed) = (None, false);
    for (at, letter) in inner.text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                quoted = if quoted.is_some() { None } else { Some(at) };
                last_quote = Some(at);
            }
            ';' => {
                let is_closed = last_quote.is_some_and(|quote| {
                    inner.text[quote + 1..at].trim().is_empty() && inner.text[from..quote].contains('"')
                });
                if quoted.is_some() && (passed || !is_closed) {
                    passed = true;
                    continue;
                }
                all.extend(option(Word::new(&inner.text[from..at], inner.at + from).trim()));
                (from, quoted, last_quote, passed) = (at + 1, None, None, false);
            }
            _ => {}
        }
    }
    if let Some(at) = quoted {
        return Err(Wrong::new(inner.at + at, "the closing quote is missing"));
    }
    let rest = Word::new(&inner.text[from..], inner.at + from).trim();
    if !rest.text.is_empty() {
        return rest.wrong("a semicolon is missing behind this option");
    }
    Ok(all)
}

fn option(word: Word<'_>) -> Option<Opt<'_>> {
    if word.text.is_empty() {
        return None;
    }
    Some(match word.text.find(':') {
        Some(colon) => Opt {
            name: Word::new(&word.text[..colon], word.at).trim(),
            value: Some(Word::new(&word.text[colon + 1..], word.at + colon + 1).trim()),
        },
        None => Opt { name: word, value: None },
    })
}

/// Strips the quotes. Returns the text, and whether `!` precedes it.
pub(crate) fn quoted(value: Word<'_>) -> Read<(Word<'_>, bool)> {
    let value = value.trim();
    let negated = value.text.starts_with('!');
    let inner = if negated { Word::new(&value.text[1..], value.at + 1).trim() } else { value };
    match inner.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(text) if inner.text.len() >= 2 => Ok((Word::new(text, inner.at + 1), negated)),
        _ => inner.wrong("a text in quotes is missing"),
    }
}

/// Reads a decimal number, or a hexadecimal one after `0x`.
pub(crate) fn number(word: Word<'_>) -> Read<i64> {
    let word = word.trim();
    let (digits, minus) = word.text.strip_prefix('-').map_or((word.text, false), |digits| (digits, true));
    let read = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
        None => None,
    };
    match if minus { read.and_then(i64::checked_neg) } else { read } {
        Some(number) => Ok(number),
        None => word.wrong(format!("\u{201c}{}\u{201d} is no number", word.text)),
    }
}

/// Reads an unsigned number of at most `bits` bits.
pub(crate) fn unsigned(word: Word<'_>, bits: u32) -> Read<u64> {
    let word = word.trim();
    let read = match word.text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if word.text.bytes().all(|byte| byte.is_ascii_digit()) => word.text.parse().ok(),
        None => None,
    };
    match read {
        Some(number) if bits >= 64 || number >> bits == 0 => Ok(number),
        Some(_) => word.wrong(format!("{} is more than {bits} bits hold", word.text)),
        None => word.wrong(format!("\u{201c}{}\u{201d} is no number", word.text)),
    }
}
