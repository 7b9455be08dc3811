//! Completion scripts, run by each shell that is installed.

use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// Runs a shell in a folder with a capture and a script; the shell finds the program. `None`: the shell is not installed.
fn shell(name: &str, arguments: &[&str], text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = Command::new(PROGRAM).args(["completions", name]).output().unwrap();
    assert!(script.status.success());
    std::fs::write(folder.path().join("script"), script.stdout).unwrap();
    std::fs::write(folder.path().join("trace.pcap"), "").unwrap();
    std::fs::write(folder.path().join("test"), text).unwrap();
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(name);
    command.args(arguments).arg("test").current_dir(folder.path()).env("PATH", path).env("HOME", folder.path());
    match command.stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.is_empty(), "{name}: {said}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            eprintln!("skipped: {name}: {error}");
            None
        }
    }
}

/// (typed text, suggestions as whole words)
const ROWS: [(&str, &[&str]); 4] = [
    ("pcap tr", &["pcap trace.pcap"]),
    ("pcap trace.pcap | ht", &["pcap trace.pcap | http", "pcap trace.pcap | http2"]),
    ("pcap trace.pcap | files hash=", &["pcap trace.pcap | files hash=no", "pcap trace.pcap | files hash=yes"]),
    ("ethernet lo mode=t", &["ethernet lo mode=tap"]),
];

#[test]
fn bash_completes_requests_and_commands() {
    // As readline calls it: the word includes its opening quote.
    let ask = "source ./script\nask() {\n  COMP_WORDS=(streamline \"$@\"); COMP_CWORD=$#; COMPREPLY=()\n\
               _streamline_request streamline \"${!#}\" \"${COMP_WORDS[COMP_CWORD-1]}\"\n\
               printf '%s\\n' \"${COMPREPLY[@]}\" | sort -u; echo .\n}\n";
    let mut text = ask.to_string();
    for (typed, _) in ROWS {
        text += &format!("ask run \"'{typed}\"\n");
    }
    text += "ask run --st\nask expl\n";
    let Some(said) = shell("bash", &["--norc"], &text) else { return };
    let answers: Vec<Vec<&str>> = said.split(".\n").map(|answer| answer.lines().collect()).collect();
    for ((typed, expected), answer) in ROWS.iter().zip(&answers) {
        // With several suggestions, readline closes no quote.
        let mut answer: Vec<&str> = answer.iter().map(|word| word.trim_end()).collect();
        answer.dedup();
        assert_eq!(answer, *expected, "{typed}");
    }
    assert_eq!(answers[ROWS.len()..][..2], [vec!["--stats", "--stats-file", "--strict"], vec!["explain"]]);
}

#[test]
fn fish_completes_requests_and_commands() {
    let mut text = "source ./script\n".to_string();
    for (typed, _) in ROWS {
        text += &format!("complete -C \"streamline run '{typed}\"\necho .\n");
    }
    text += "complete -C 'streamline expl'\n";
    let Some(said) = shell("fish", &["--no-config"], &text) else { return };
    let word = |line: &str| line.split('\t').next().unwrap_or_default().to_string();
    let answers: Vec<Vec<String>> = said.split(".\n").map(|answer| answer.lines().map(word).collect()).collect();
    for ((typed, expected), answer) in ROWS.iter().zip(&answers) {
        let mut answer: Vec<&str> = answer.iter().map(String::as_str).collect();
        answer.sort_unstable();
        assert_eq!(answer, *expected, "{typed}");
    }
    assert_eq!(answers[ROWS.len()], ["explain"]);
}

/// zsh completes only on a terminal. Without one, check that it accepts the script and that the script replaces the words.
#[test]
fn zsh_reads_its_script() {
    shell("zsh", &["-f"], "zsh -n ./script && grep -q ':_streamline_request' script\n");
}
