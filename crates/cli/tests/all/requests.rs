//! What a user can see, as text files a user could have written: `tests/requests/*.srltest`.
//!
//! A file holds cases. `%run ARGUMENTS` begins one: the arguments of `streamline`, in shell quotes. Then, as far as they
//! matter: `%input` the text of standard input, `%stdout` and `%stderr` exactly what is printed (a line `...` stands for
//! any number of lines, `...` at a line's end for the rest of it), `%file NAME` what the file NAME holds afterwards, `%no-file NAME` that it does not exist,
//! `%status N` (0 unless said). Lines between `%` lines are the text. Each case runs in a fresh folder
//! that holds the bundled captures. `%needs-libpcap` skips the case where no libpcap can be loaded.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

#[derive(Default)]
struct Case {
    name: String,
    arguments: String,
    input: String,
    stdout: Option<String>,
    stderr: Option<String>,
    files: Vec<(String, String)>,
    no_files: Vec<String>,
    status: i32,
    needs_libpcap: bool,
}

fn read_cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(directive) = line.strip_prefix('%') {
            let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
            if word == "run" {
                let name = format!("{}:{}", path.file_name().unwrap().to_string_lossy(), number + 1);
                cases.push(Case { name, arguments: rest.to_string(), ..Case::default() });
            } else {
                let case = cases.last_mut().expect("%run comes first");
                match word {
                    "stdout" => case.stdout = Some(String::new()),
                    "stderr" => case.stderr = Some(String::new()),
                    "file" => case.files.push((rest.to_string(), String::new())),
                    "no-file" => case.no_files.push(rest.to_string()),
                    "status" => case.status = rest.parse().unwrap(),
                    "needs-libpcap" => case.needs_libpcap = true,
                    "input" => {}
                    _ => panic!("{}: unknown directive %{word}", case.name),
                }
            }
            section = word.to_string();
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        let target = match section.as_str() {
            "stdout" => case.stdout.as_mut(),
            "stderr" => case.stderr.as_mut(),
            "file" => case.files.last_mut().map(|(_, text)| text),
            "input" => Some(&mut case.input),
            _ => None,
        };
        match target {
            Some(target) => _ = writeln!(target, "{line}"),
            None => assert!(line.is_empty() || line.starts_with('#'), "{}: stray text: {line}", case.name),
        }
    }
    cases
}

/// Shell words: quotes keep blanks, nothing is expanded.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Whether `text` looks as `pattern` says, where a line `...` stands for any number of lines.
pub(crate) fn matches(pattern: &[&str], text: &[&str]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((&"...", rest)) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        Some((line, rest)) => {
            let same = |found: &&str| match line.strip_suffix("...") {
                Some(start) => found.starts_with(start),
                None => found == line,
            };
            text.first().is_some_and(same) && matches(rest, &text[1..])
        }
    }
}

fn compare(what: &str, expected: &str, found: &str, complaints: &mut String) {
    // Blank lines at the end of a section are there for the reader.
    let (pattern, text): (Vec<_>, Vec<_>) = (expected.trim_end().lines().collect(), found.trim_end().lines().collect());
    if !matches(&pattern, &text) {
        _ = writeln!(complaints, "{what} expected:\n{}\n{what} found:\n{}", expected.trim_end(), found.trim_end());
    }
}

fn run_case(case: &Case) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    for entry in std::fs::read_dir(captures).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let mut child = Command::new(PROGRAM)
        .args(words(&case.arguments))
        .current_dir(folder.path())
        // What this user measured is no part of a test.
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that reads no input closes its end: no harm.
    _ = child.stdin.take().unwrap().write_all(case.input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let mut complaints = String::new();
    if output.status.code() != Some(case.status) {
        _ = writeln!(complaints, "status {:?}, expected {}\n{stderr}", output.status.code(), case.status);
    }
    if let Some(expected) = &case.stdout {
        compare("stdout", expected, &stdout, &mut complaints);
    }
    if let Some(expected) = &case.stderr {
        compare("stderr", expected, &stderr, &mut complaints);
    }
    for (name, expected) in &case.files {
        match std::fs::read(folder.path().join(name)) {
            Ok(bytes) => compare(name, expected, &text(&bytes), &mut complaints),
            Err(error) => _ = writeln!(complaints, "{name}: {error}"),
        }
    }
    for name in &case.no_files {
        if folder.path().join(name).exists() {
            _ = writeln!(complaints, "{name} was made");
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(format!("{}: {}\n{complaints}", case.name, case.arguments)) }
}

#[test]
fn what_a_user_sees() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requests");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let cases: Vec<Case> = paths.iter().flat_map(|path| read_cases(path)).collect();
    assert!(cases.len() > 20, "{} cases were found", cases.len());
    let has_libpcap = libpcap_is_there();
    let mut failures = Vec::new();
    for case in &cases {
        if case.needs_libpcap && !has_libpcap {
            eprintln!("skipped, no libpcap here: {}", case.name);
            continue;
        }
        failures.extend(run_case(case).err());
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn libpcap_is_there() -> bool {
    let request = "pcap x | bpf tcp | count";
    let output = Command::new(PROGRAM).args(["run", request]).output().unwrap();
    !String::from_utf8_lossy(&output.stderr).contains("libpcap")
}
