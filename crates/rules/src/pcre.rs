//! The keyword `pcre`: Perl-compatible regular expressions. Most run in a linear-time engine. Expressions with
//! look-around, back-references or atomic groups run in a backtracking engine with a step budget.

use crate::mistake::Read;
use crate::text::{Word, quoted};
use regex_automata::Input;
use regex_automata::meta;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use std::sync::OnceLock;

/// Most backtracking steps of one search.
const BACKTRACK_STEPS: usize = 100_000;
/// Budget steps charged for one backtracking search.
const BACKTRACK_WORK: u32 = 1 << 10;
/// Most memory of one compiled expression, in bytes.
const SIZE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Pcre {
    machine: Machine,
    pub negated: bool,
    pub relative: bool,
    pub relative_next: bool,
}

#[derive(Clone, Debug)]
enum Machine {
    Linear(Box<Linear>),
    Backtracking(Box<fancy_regex::Regex>),
}

/// An expression of the linear-time engine, which is built when it is first searched: most rules of a set never come so
/// far, and a built engine takes 0.1 to 1 MB.
#[derive(Clone, Debug)]
struct Linear {
    text: String,
    config: syntax::Config,
    groups: usize,
    built: OnceLock<Option<meta::Regex>>,
}

impl Linear {
    /// Checks that the expression can be built. The error is the last line of the reason.
    fn new(text: String, config: syntax::Config) -> Result<Linear, String> {
        let hir = syntax::parse_with(&text, &config).map_err(|error| last_line(&error.to_string()))?;
        let limits = thompson::Config::new().utf8(false).nfa_size_limit(Some(SIZE_BYTES));
        let nfa = thompson::Compiler::new().configure(limits).build_from_hir(&hir);
        nfa.map_err(|error| last_line(&error.to_string()))?;
        let groups = hir.properties().explicit_captures_len();
        Ok(Linear { text, config, groups, built: OnceLock::new() })
    }

    /// The engine. `None`: it takes more memory than [`SIZE_BYTES`].
    fn engine(&self) -> Option<&meta::Regex> {
        let build = || {
            let limits = meta::Config::new().nfa_size_limit(Some(SIZE_BYTES)).utf8_empty(false);
            meta::Builder::new().syntax(self.config).configure(limits).build(&self.text).ok()
        };
        self.built.get_or_init(build).as_ref()
    }
}

pub(crate) enum Search {
    /// Start and end.
    Found(usize, usize),
    None,
    /// The search exhausted its steps.
    TooLong,
}

/// Returns the expression, and the buffer that its flags select, if any.
pub(crate) fn read(value: Word<'_>) -> Read<(Pcre, Option<&'static str>)> {
    // Older rules omit the quotes.
    let (text, negated) = if value.text.starts_with('/') { (value, false) } else { quoted(value)? };
    let Some(end) = text.text.rfind('/').filter(|end| *end > 0 && text.text.starts_with('/')) else {
        return text.wrong("an expression stands between slashes");
    };
    let (body, flags) = (&text.text[1..end], &text.text[end + 1..]);
    let mut config = syntax::Config::new().unicode(false).utf8(false);
    let (mut relative, mut buffer, mut inline, mut dollar_end) = (false, None, String::new(), false);
    for (at, flag) in flags.char_indices() {
        let here = Word::new("", text.at + end + 1 + at);
        let mut of = |name| {
            if buffer.replace(name).is_some() { here.wrong("an expression looks into one buffer") } else { Ok(()) }
        };
        match flag {
            'i' | 's' | 'm' | 'x' => inline.push(flag),
            'G' => inline.push('U'),
            'E' => dollar_end = true,
            'R' => relative = true,
            'A' => {}
            'O' | 'B' => {}
            'U' => of("http.uri")?,
            'I' => of("http.uri.raw")?,
            'P' => of("http.request_body")?,
            'Q' => of("http.response_body")?,
            'H' => of("http.header")?,
            'D' => of("http.header.raw")?,
            'M' => of("http.method")?,
            'C' => of("http.cookie")?,
            'S' => of("http.stat_code")?,
            'Y' => of("http.stat_msg")?,
            'V' => of("http.user_agent")?,
            'W' => of("http.host")?,
            'Z' => of("http.host.raw")?,
            ',' => {
                captures(Word::new(&flags[at + 1..], text.at + end + 2 + at))?;
                break;
            }
            other => return here.wrong(format!("the flag {other} is not known")),
        }
    }
    let body = if flags.split(',').next().is_some_and(|flags| flags.contains('A')) {
        format!("\\A(?:{body})")
    } else {
        body.to_string()
    };
    let has = |flag| inline.contains(flag);
    config = config
        .case_insensitive(has('i'))
        .dot_matches_new_line(has('s'))
        .multi_line(has('m'))
        .ignore_whitespace(has('x'))
        .swap_greed(has('U'));
    let translated = translate(&body, has('m') || dollar_end, false);
    let machine = match Linear::new(translated, config) {
        Ok(linear) => Machine::Linear(Box::new(linear)),
        Err(reason) => {
            let inline = if inline.is_empty() { String::new() } else { format!("(?{inline})") };
            let fancy = inline + &translate(&body, has('m') || dollar_end, true);
            let made = fancy_regex::RegexBuilder::new(&fancy).backtrack_limit(BACKTRACK_STEPS).build();
            match made {
                Ok(regex) => Machine::Backtracking(Box::new(regex)),
                Err(_) => return text.wrong(format!("this expression is not supported: {reason}")),
            }
        }
    };
    Ok((Pcre { machine, negated, relative, relative_next: false }, buffer))
}

/// Checks the names of captures. The captures only add text to alerts, so they are not kept.
fn captures(names: Word<'_>) -> Read<()> {
    for word in names.split(',') {
        match word.text.split_once(':') {
            Some(("flow" | "pkt" | "alert", name)) if !name.is_empty() => {}
            _ => return word.wrong("a capture is named by flow:, pkt: or alert: and a name"),
        }
    }
    Ok(())
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().trim_start_matches("error: ").to_string()
}

/// Translates Perl syntax for the engines. `letters`: classes match ASCII only.
fn translate(body: &str, plain_dollar: bool, letters: bool) -> String {
    let mut out = String::with_capacity(body.len() + 8);
    let mut chars = body.chars().peekable();
    let mut class = false;
    let mut class_start = false;
    while let Some(letter) = chars.next() {
        let started = std::mem::take(&mut class_start);
        match letter {
            '\\' => match chars.next() {
                Some('Z') => out.push_str("(?:\\n?\\z)"),
                Some('h') => out.push_str(if class { " \\t" } else { "[ \\t]" }),
                Some('e') => out.push_str("\\x1b"),
                Some('R') if !class => out.push_str("(?:\\r\\n|[\\n\\x0b\\f\\r])"),
                Some('w') if letters => out.push_str(if class { "A-Za-z0-9_" } else { "[A-Za-z0-9_]" }),
                Some('W') if letters && !class => out.push_str("[^A-Za-z0-9_]"),
                Some('d') if letters => out.push_str(if class { "0-9" } else { "[0-9]" }),
                Some('D') if letters && !class => out.push_str("[^0-9]"),
                Some('0') => out.push_str("\\x00"),
                Some('<') => out.push('<'),
                Some('>') => out.push('>'),
                Some(other) => {
                    let special = "dDwWsSbBAzGKtnrfvxpPkgQE123456789".contains(other);
                    if special || other.is_ascii_punctuation() {
                        out.push('\\');
                    }
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if class => {
                if chars.peek() == Some(&':') {
                    out.push('[');
                    for inner in chars.by_ref() {
                        out.push(inner);
                        if inner == ']' {
                            break;
                        }
                    }
                } else {
                    out.push_str("\\[");
                }
            }
            '[' => {
                class = true;
                class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
            }
            ']' if class && started => out.push_str("\\]"),
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(letter);
            }
            '-' if class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            '$' if !class && !plain_dollar => out.push_str("(?:\\n?\\z)"),
            '{' if !class => {
                let rest: String = chars.clone().take_while(|letter| *letter != '}').collect();
                let count = rest.len() < 12
                    && rest.starts_with(|letter: char| letter.is_ascii_digit())
                    && rest.chars().all(|letter| letter.is_ascii_digit() || letter == ',')
                    && chars.clone().nth(rest.chars().count()) == Some('}');
                out.push_str(if count { "{" } else { "\\{" });
                if count {
                    out.push_str(&rest);
                    out.push('}');
                    for _ in 0..=rest.chars().count() {
                        chars.next();
                    }
                }
            }
            '}' if !class => out.push_str("\\}"),
            other => out.push(other),
        }
    }
    out
}

impl Pcre {
    /// Number of groups that capture.
    pub fn groups(&self) -> usize {
        match &self.machine {
            Machine::Linear(linear) => linear.groups,
            // The whole match is counted, too.
            Machine::Backtracking(regex) => regex.captures_len().saturating_sub(1),
        }
    }

    /// The bytes that the first group of the first match captures.
    pub fn first_group<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match &self.machine {
            Machine::Linear(linear) => {
                let regex = linear.engine()?;
                let mut captures = regex.create_captures();
                regex.search_captures(&Input::new(bytes), &mut captures);
                bytes.get(captures.get_group(1)?.range())
            }
            Machine::Backtracking(regex) => {
                let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                let group = regex.captures(&text).ok()??.get(1)?;
                let place = |at: usize| text[..at].chars().count();
                bytes.get(place(group.start())..place(group.end()))
            }
        }
    }

    /// Searches the bytes behind `from`, as if they began there, for a match that starts at or behind `low`. `text`
    /// caches the bytes as text; pass it empty for the first search of a buffer.
    pub fn find(&self, bytes: &[u8], from: usize, low: usize, text: &mut String) -> Search {
        let Some(part) = bytes.get(from..).filter(|_| from <= low && low <= bytes.len()) else { return Search::None };
        match &self.machine {
            Machine::Linear(linear) => match linear.engine().map(|it| it.search(&Input::new(part).range(low - from..)))
            {
                Some(Some(found)) => Search::Found(from + found.start(), from + found.end()),
                Some(None) => Search::None,
                None => Search::TooLong,
            },
            Machine::Backtracking(regex) => {
                // The backtracking engine searches text: each byte becomes the character of the same number.
                if text.is_empty() {
                    text.extend(bytes.iter().map(|byte| char::from(*byte)));
                }
                let width = |bytes: &[u8]| bytes.len() + bytes.iter().filter(|byte| !byte.is_ascii()).count();
                let Some(text) = text.get(width(&bytes[..from])..) else { return Search::None };
                match regex.find_from_pos(text, width(&bytes[from..low])) {
                    Ok(Some(found)) => {
                        let place = |at: usize| from + text[..at].chars().count();
                        Search::Found(place(found.start()), place(found.end()))
                    }
                    Ok(None) => Search::None,
                    Err(_) => Search::TooLong,
                }
            }
        }
    }

    /// Budget steps besides those for the bytes searched: backtracking is slow, and the bytes before the search are
    /// counted too.
    pub fn steps(&self, bytes: usize) -> u32 {
        match self.machine {
            Machine::Linear(_) => 0,
            Machine::Backtracking(_) => BACKTRACK_WORK.saturating_add(u32::try_from(bytes / 64).unwrap_or(u32::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(expression: &str, bytes: &[u8]) -> Option<(usize, usize)> {
        let value = format!("\"{expression}\"");
        let (pcre, _) = read(Word::new(&value, 0)).unwrap_or_else(|wrong| panic!("{expression}: {wrong:?}"));
        match pcre.find(bytes, 0, 0, &mut String::new()) {
            Search::Found(from, to) => Some((from, to)),
            Search::None => None,
            Search::TooLong => Some((usize::MAX, 0)),
        }
    }

    #[test]
    fn an_expression_that_was_never_searched_took_memory() {
        let (pcre, _) = read(Word::new("\"/a[b-z]{2,8}/\"", 0)).unwrap();
        let Machine::Linear(linear) = &pcre.machine else { panic!("{pcre:?}") };
        assert!(linear.built.get().is_none());
        assert!(matches!(pcre.find(b"xabc", 0, 0, &mut String::new()), Search::Found(1, 4)));
        assert!(linear.built.get().is_some());
        assert!(read(Word::new("\"/(a{1000}){1000}/\"", 0)).is_err(), "too large is said when it is read");
    }

    #[test]
    fn expressions() {
        type Row = (&'static str, &'static [u8], Option<(usize, usize)>);
        let rows: [Row; 14] = [
            ("/a.c/", b"xabc", Some((1, 4))),
            ("/A.C/i", b"xabc", Some((1, 4))),
            ("/a.c/", b"a\nc", None),
            ("/a.c/s", b"a\nc", Some((0, 3))),
            ("/^b/m", b"a\nb", Some((2, 3))),
            ("/a$/", b"a\n", Some((0, 2))),
            ("/a$/E", b"a\n", None),
            ("/a/A", b"ba", None),
            (r"/\xff\x00/", b"a\xff\x00", Some((1, 3))),
            (r"/x{/", b"x{", Some((0, 2))),
            (r"/[[]a/", b"[a", Some((0, 2))),
            (r"/a(?=b)/", b"acab", Some((2, 3))),
            (r"/(.)\1/", b"abb", Some((1, 3))),
            (r"/(?<!\xe9)b\w/", b"\xe9ba bc", Some((4, 6))),
        ];
        for (expression, bytes, expected) in rows {
            assert_eq!(found(expression, bytes), expected, "{expression}");
        }
    }

    #[test]
    fn a_search_that_goes_back_too_often_ends() {
        let mut bytes = [b'a'; 400];
        bytes[399] = b'b';
        assert_eq!(found(r"/^(?:(a|a(?=a))\1?)+$/", &bytes), Some((usize::MAX, 0)));
    }

    #[test]
    fn what_is_refused() {
        for right in ["/(?P<flow_x>a)/", "/(a)(b)/,flow:x, pkt:y", "/(a)/U,alert:x"] {
            let value = format!("\"{right}\"");
            assert!(read(Word::new(&value, 0)).is_ok(), "{right}");
        }
        for wrong in ["a", "/a", "/a/q", "/(/", "/a/UH", "/(a)/,x", "/(a)/,flow:"] {
            let value = format!("\"{wrong}\"");
            assert!(read(Word::new(&value, 0)).is_err(), "{wrong}");
        }
    }
}
