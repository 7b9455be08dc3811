//! Guesses at a newcomer's mistakes: files and devices in the place of filters, requests without quotes, filters in the
//! place of commands. Also says which parts of a request do nothing yet. The language's own hints are elsewhere, beside
//! its errors.

mod expression;

use crate::Cli;
use crate::exit::CommandError;
use clap::CommandFactory;
use control::Design;
use driver::namespace::Namespace;
use packet::sniff::{FileKind, SNIFF_BYTES, sniff};
use std::io::Read;
use std::path::Path;
use streamline::language::Diagnostic;
use streamline::registry;

/// The same error with a hint, if a tcpdump expression, a file or a device stands in the place of a filter.
pub(crate) fn improved(error: Diagnostic, source: &str) -> Diagnostic {
    let Some(word) = source.get(error.span.start..error.span.end) else { return error };
    let between = |one: char| "|{};+".contains(one);
    let begin = source[..error.span.start].rfind(between).map_or(0, |at| at + 1);
    let end = source[error.span.start..].find(between).map_or(source.len(), |at| error.span.start + at);
    if let Some(step) = source.get(begin..end).map(str::trim).filter(|step| expression::is_expression(step)) {
        return error.with_help(format!("this is tcpdump's language; a filter takes it: `bpf \"{step}\"`"));
    }
    if let Some(help) = of_field(word).filter(|_| error.message.starts_with("no filter")) {
        return error.with_help(help);
    }
    let before = source[..error.span.start].trim_end();
    let begins = before.is_empty() || before.ends_with([';', '+', '{']);
    if word.is_empty() || word.contains(char::is_whitespace) || !(begins || before.ends_with('|')) {
        return error;
    }
    match meant(word, begins, before.is_empty() && source.trim() == word) {
        Some(help) => error.with_help(help),
        None => error,
    }
}

/// The hint for a field of a display filter, such as `http.request`.
fn of_field(word: &str) -> Option<String> {
    let (name, rest) = word.split_once('.')?;
    let name = match name {
        "tcp" | "udp" | "ip" | "ipv6" | "eth" | "frame" => "packets",
        other => other,
    };
    let kind = registry().find(name).filter(|kind| kind.schema.is_some() && !rest.is_empty())?;
    let name = kind.name;
    Some(format!("`{name}` gives records, and `where` asks about their fields: `streamline schema {name}` lists them"))
}

/// The hint for a word that is no filter. `begins`: a path begins with this word. `alone`: the word is the whole request.
fn meant(word: &str, begins: bool, alone: bool) -> Option<String> {
    let (path, rest) = (Path::new(word), if alone { " | ..." } else { "" });
    let is_named_so =
        path.extension().is_some_and(|ending| ["pcap", "pcapng", "cap"].iter().any(|known| ending == *known));
    match begins {
        true if is_capture(path) || path.is_dir() || (is_named_so && !path.exists()) => {
            let option = if alone { format!(", or -r {word} beside a request") } else { String::new() };
            Some(format!("to read captures: `pcap {word}{rest}`{option}"))
        }
        true if alone && path.is_file() => Some(format!("to run the request in this file: -f {word}")),
        true if path.is_file() => Some(format!("to read a capture: `pcap {word}{rest}`, and this file is none")),
        true if is_device(word) => Some(format!("to read a device: `ethernet {word}{rest}`")),
        false if is_named_so => Some(format!("to write a capture: `save {word}`")),
        _ => None,
    }
}

/// Whether this file begins like a capture.
fn is_capture(path: &Path) -> bool {
    let mut first = Vec::new();
    let file = std::fs::File::open(path).ok().filter(|_| path.is_file());
    let read = file.map(|file| file.take(SNIFF_BYTES as u64).read_to_end(&mut first));
    read.is_some() && begins_capture(&first)
}

/// Whether a capture that can be read begins with these bytes, or a compressed file, which may be one.
pub(crate) fn begins_capture(first: &[u8]) -> bool {
    sniff(first).is_some_and(|kind| kind.is_compressed() || matches!(kind, FileKind::Pcap | FileKind::Pcapng))
}

/// Whether there is a device of this name, or the name is one that Linux gives to devices.
fn is_device(word: &str) -> bool {
    let listed = || driver::device::list(&Namespace::current().ok()?).ok();
    let is_there = || listed().is_some_and(|devices| devices.iter().any(|device| device.link.name == word));
    let number = ["eth", "wlan", "enp", "ens", "eno", "wlp", "veth", "tun", "tap"]
        .iter()
        .find_map(|kind| word.strip_prefix(kind));
    number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) || is_there()
}

/// The error for a request of several words: the shell has split it.
pub(crate) fn several_words(words: &[String]) -> CommandError {
    let error = CommandError::Wrong(format!("the request is {} words, and must be one", words.len()));
    if words.iter().filter(|word| Path::new(word).is_file()).nth(1).is_some() {
        return error.with_help(
            "the shell has made names of files of a pattern: quote it (-r 'captures/*.pcap'), or give -r before each file",
        );
    }
    let text = words.join(" ");
    if expression::is_expression(&text) {
        return error.with_help(&format!("a tcpdump expression is for the filter `bpf`: 'bpf \"{text}\"'"));
    }
    let quoted = text.replace('\'', "'\\''");
    error.with_help(&format!("put the whole request into single quotes: '{quoted}'"))
}

pub(crate) fn no_command(word: &str) -> CommandError {
    let error = CommandError::Wrong(format!("there is no command `{word}`"));
    if let Some(help) = meant(word, true, false).filter(|_| registry().find(word).is_none()) {
        let request = help.split('`').nth(1).unwrap_or_default();
        return error.with_help(&format!("to run a request: streamline run '{request} | ...'"));
    }
    if let Some(kind) = registry().find(word) {
        let path = if kind.is_source() { format!("{word} ... | count") } else { format!("pcap FILE | {word}") };
        return error.with_help(&format!(
            "`{word}` is a filter, for requests: streamline run '{path}'; `streamline man {word}`"
        ));
    }
    const CALLED: [(&str, &str); 8] = [
        ("interfaces", "devices"),
        ("list", "filters"),
        ("version", "--version"),
        ("start", "run"),
        ("capture", "run"),
        ("status", "ps"),
        ("kill", "stop"),
        ("validate", "check"),
    ];
    if let Some((_, command)) = CALLED.iter().find(|(called, _)| *called == word) {
        return error.with_help(&format!("did you mean `streamline {command}`?"));
    }
    let cli = Cli::command();
    let visible = cli.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    match request::nearest(word, visible) {
        Some(near) => error.with_help(&format!("did you mean `streamline {near}`?")),
        None => error.with_help("`streamline --help` lists the commands"),
    }
}

pub(crate) fn tell_idle(design: &Design) {
    if let Some(why) = streamline::explain::stages(design).undivided {
        let text = streamline::explain::idle(design, &why);
        let (setting, rest) = text.split_once(' ').unwrap_or((&text, ""));
        tell!("warning: `{setting}` {rest}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_for_files_and_devices_where_they_may_be_some() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("request.srl"), "pcap x | count").unwrap();
        std::fs::write(path("capture"), b"\xd4\xc3\xb2\xa1\x02\0\x04\0").unwrap();
        let (request, capture) = (path("request.srl"), path("capture"));
        let rows = [
            (capture.as_str(), true, false, Some(format!("to read captures: `pcap {capture}`"))),
            (
                &capture,
                true,
                true,
                Some(format!("to read captures: `pcap {capture} | ...`, or -r {capture} beside a request")),
            ),
            (&request, true, true, Some(format!("to run the request in this file: -f {request}"))),
            ("gone.pcapng", true, false, Some("to read captures: `pcap gone.pcapng`".into())),
            ("gone.pcapng", false, false, Some("to write a capture: `save gone.pcapng`".into())),
            ("eth17", true, false, Some("to read a device: `ethernet eth17`".into())),
            ("lo", true, true, Some("to read a device: `ethernet lo | ...`".into())),
            ("eth17", false, false, None),
            ("ether", true, false, None),
            ("grep", true, false, None),
        ];
        for (word, begins, alone, expected) in rows {
            assert_eq!(meant(word, begins, alone), expected, "{word} {begins}");
        }
    }

    #[test]
    fn commands_that_are_none_are_guessed() {
        let rows = [
            ("gone.pcap", "streamline run 'pcap gone.pcap | ...'"),
            ("http", "streamline run 'pcap FILE | http'"),
            ("explian", "did you mean `streamline explain`?"),
            ("sharrer", "lists the commands"),
            ("extcap2", "lists the commands"),
        ];
        for (word, expected) in rows {
            let CommandError::Wrong(text) = no_command(word) else { panic!("{word}") };
            assert!(text.contains(expected), "{text}");
        }
    }
}
