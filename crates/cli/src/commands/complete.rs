//! `streamline complete`: suggests the next words of a request that is being typed, for the scripts of `streamline
//! completions`.
//!
//! Not a parser: half a request seldom parses. It reads the text since the last separator, takes the first word for the
//! filter, and suggests words by that filter's kind.

use crate::exit::Outcome;
use filter::{Kind, Param, ParamType};
use std::path::Path;
use streamline::registry;

/// Print what can follow in a request (what completion scripts run)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The request up to the cursor
    #[arg(allow_hyphen_values = true)]
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    /// Replaces the word that is being typed.
    word: String,
    about: String,
}

impl Candidate {
    fn new(word: impl Into<String>, about: impl Into<String>) -> Candidate {
        Candidate { word: word.into(), about: about.into() }
    }
}

/// Prints a line per suggestion: the whole request with it, a tab, its description.
pub(crate) fn run(args: &Args) -> Outcome {
    let (kept, candidates) = candidates(&args.text);
    let lines = candidates.iter().map(|Candidate { word, about }| format!("{kept}{word}\t{about}\n"));
    crate::print_data(&lines.collect::<String>())
}

fn candidates(text: &str) -> (&str, Vec<Candidate>) {
    let Typed { separator, words, start } = typed(text);
    let (kept, word) = text.split_at(start);
    let begins = !matches!(separator, Some('|' | '>'));
    let mut candidates = match words[..] {
        [] => filters(word, begins),
        [name, ref given @ ..] => match registry().find(name) {
            Some(kind) => of_filter(kind, given, word),
            // After a setting, a name of `let` or a node there are no suggestions.
            None if matches!(name, "not" | "and" | "or") => filters(word, false),
            None => Vec::new(),
        },
    };
    if kept.ends_with(is_separator) {
        // A blank separates an edge and its filter.
        candidates.iter_mut().for_each(|candidate| candidate.word.insert(0, ' '));
    }
    (kept, candidates)
}

fn is_separator(character: char) -> bool {
    matches!(character, '|' | '{' | '}' | '+' | ';' | '(' | ')' | '>')
}

/// The text since the last separator.
struct Typed<'a> {
    separator: Option<char>,
    words: Vec<&'a str>,
    start: usize,
}

fn typed(text: &str) -> Typed<'_> {
    let mut typed = Typed { separator: None, words: Vec::new(), start: 0 };
    let mut quoted = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            _ if quoted => {}
            _ if is_separator(character) => {
                // A brace behind an edge opens branches of the filter before it.
                let is_branch = matches!(character, '{' | '+') && typed.separator.is_some_and(|last| last == '|');
                typed.separator = Some(if is_branch { '|' } else { character });
                typed.words.clear();
                typed.start = at + 1;
            }
            _ if character.is_whitespace() => {
                if typed.start < at {
                    typed.words.push(&text[typed.start..at]);
                }
                typed.start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    // A class selector is written directly behind its edge.
    if typed.separator == Some('|')
        && typed.words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '!'))
    {
        typed.words.remove(0);
    }
    typed
}

fn filters(word: &str, begins: bool) -> Vec<Candidate> {
    let fits =
        |kind: &&&Kind| (if begins { kind.may_begin() } else { !kind.is_source() }) && kind.name.starts_with(word);
    registry().kinds().iter().filter(fits).map(|kind| Candidate::new(kind.name, kind.summary)).collect()
}

/// Suggests the parameters of a filter that were not given yet.
fn of_filter(kind: &Kind, given: &[&str], word: &str) -> Vec<Candidate> {
    if let Some((key, value)) = word.split_once('=') {
        let Some(param) = kind.params.iter().find(|param| param.key == key) else { return Vec::new() };
        let mut values = values(param, value);
        values.iter_mut().for_each(|candidate| candidate.word = format!("{key}={}", candidate.word));
        return values;
    }
    let plain = given.iter().filter(|word| !word.contains('=')).count();
    let is_given =
        |param: &Param| given.iter().any(|word| word.split_once('=').is_some_and(|(key, _)| key == param.key));
    let main = kind.main_param().filter(|param| plain == 0 || param.kind == ParamType::List);
    let mut found = main.map_or_else(Vec::new, |param| values(param, word));
    let keys = kind.params.iter().filter(|param| param.key.starts_with(word) && !is_given(param));
    found.extend(keys.filter(|param| !(param.main && plain > 0)).map(|param| {
        Candidate::new(format!("{}{}", param.key, if param.key.ends_with('.') { "" } else { "=" }), param.help)
    }));
    found
}

fn values(param: &Param, word: &str) -> Vec<Candidate> {
    let fits = |value: &&str| value.starts_with(word);
    match param.kind {
        ParamType::Flag => {
            ["yes", "no"].iter().filter(|value| fits(value)).map(|value| Candidate::new(*value, param.help)).collect()
        }
        ParamType::Choice(words) => {
            words.iter().filter(|value| fits(value)).map(|value| Candidate::new(*value, param.help)).collect()
        }
        ParamType::Path => files(word),
        ParamType::List if param.key == "file" => files(word),
        ParamType::Text if param.key == "device" => devices(word),
        ParamType::Text if param.key == "ring" => rings(word),
        ParamType::Text | ParamType::List | ParamType::Number | ParamType::Size | ParamType::Duration => Vec::new(),
    }
}

fn files(word: &str) -> Vec<Candidate> {
    let typed = word.trim_start_matches('"');
    let (folder, name) = typed.rsplit_once('/').map_or(("", typed), |(folder, name)| (&typed[..=folder.len()], name));
    let listed = std::fs::read_dir(if folder.is_empty() { Path::new(".") } else { Path::new(folder) });
    let mut found: Vec<Candidate> = listed
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            // A name that is not text cannot be written in a request.
            let found = entry.file_name().into_string().ok()?;
            let is_meant = found.starts_with(name) && (!found.starts_with('.') || name.starts_with('.'));
            let is_folder = entry.path().is_dir();
            let path = format!("{folder}{found}{}", if is_folder { "/" } else { "" });
            is_meant.then(|| Candidate::new(quoted(path, word), if is_folder { "folder" } else { "file" }))
        })
        .collect();
    found.sort_by(|one, other| one.word.cmp(&other.word));
    found
}

/// A path as a request writes it: in quotes if it needs them or if they are open.
fn quoted(path: String, typed: &str) -> String {
    let bare = |c: char| c.is_alphanumeric() || "._-/:*?%~^".contains(c);
    match !typed.starts_with('"') && path.chars().all(bare) {
        true => path,
        // Quotes around a folder stay open.
        false if path.ends_with('/') => format!("\"{path}"),
        false => format!("\"{path}\""),
    }
}

/// Suggests rings of this user. Other users' rings are paths.
fn rings(word: &str) -> Vec<Candidate> {
    if word.contains('/') {
        return files(word);
    }
    let names = buffer::keeper::place::names().unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(word)).map(|name| Candidate::new(name, "ring")).collect()
}

fn devices(word: &str) -> Vec<Candidate> {
    let devices = super::devices::list().unwrap_or_default();
    let names = devices.into_iter().map(|device| device.link.name).filter(|name| name.starts_with(word));
    names.map(|name| Candidate::new(name, "device")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let (kept, candidates) = candidates(text);
        assert!(text.starts_with(kept));
        candidates.into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn filters_follow_separators_and_sources_begin_paths() {
        let rows: &[(&str, &[&str])] = &[
            ("pc", &["pcap"]),
            ("ethernet eth0 | pc", &[]),
            ("pcap x | htt", &["http", "http2"]),
            ("pcap x |htt", &[" http", " http2"]),
            ("pcap x | port | { |22 htt", &["http", "http2"]),
            ("pcap x | port |80 htt", &["http", "http2"]),
            ("pcap x | { http | json + htt", &["http", "http2"]),
            ("pcap x | count; pca", &["pcap"]),
            ("pcap x | not hos", &["host"]),
            ("pcap \"a | b\" | tl", &["tls"]),
            ("pcap \"a | tl", &[]),
            ("nonsense ht", &[]),
            ("let x = ", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(words(text), *expected, "{text}");
        }
        assert!(words("").contains(&"pcap".to_string()) && !words("").contains(&"http".to_string()));
        let all = words("pcap x |");
        assert!(all.contains(&" http".to_string()) && !all.contains(&" pcap".to_string()), "{all:?}");
    }

    #[test]
    fn parameters_and_their_values_follow_a_filter() {
        let rows: &[(&str, &[&str])] = &[
            ("pcap x | files ha", &["hash="]),
            ("pcap x | files out ha", &["hash="]),
            ("pcap x | files hash=no ha", &[]),
            ("pcap x | files hash=", &["hash=yes", "hash=no"]),
            ("ethernet eth0 mo", &["mode="]),
            ("ethernet eth0 mode=c", &["mode=consume"]),
            ("ethernet eth0 nix=", &[]),
            ("pcap x | head ", &["count="]),
        ];
        for (text, expected) in rows {
            assert_eq!(words(text), *expected, "{text}");
        }
        assert!(words("ethernet l").contains(&"lo".to_string()), "{:?}", words("ethernet l"));
    }

    #[test]
    fn files_are_completed_where_files_are_read_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        for name in ["trace.pcap", "tree", "my file.pcap", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("traces")).unwrap();
        let rows: &[(&str, &[&str])] = &[
            ("pcap @/tra", &["@/trace.pcap", "@/traces/"]),
            ("pcap a.pcap @/tre", &["@/tree"]),
            ("pcap a | save @/tree", &["@/tree"]),
            ("pcap a | json file=@/tree", &["file=@/tree"]),
            ("pcap @/my", &["\"@/my file.pcap\""]),
            ("pcap \"@/tre", &["\"@/tree\""]),
            ("pcap \"@/traces", &["\"@/traces/"]),
            ("pcap @/.h", &["@/.hidden"]),
            ("pcap a | match @/tre", &[]),
        ];
        for (text, expected) in rows {
            let expected: Vec<String> = expected.iter().map(|word| word.replace('@', &path)).collect();
            assert_eq!(words(&text.replace('@', &path)), expected, "{text}");
        }
    }
}
