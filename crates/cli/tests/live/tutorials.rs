//! The tutorials of the guide: a shell is given the commands of each page, one after the other, and prints what the page shows.
//!
//! `...` on a page stands for any text; in a line of its own for any lines. Where a page has root's prompt (`# `), its shell has
//! namespaces of its own: for the network, for processes, and for mounts, with an empty `/run`. Elsewhere it is a plain shell.

use crate::net::PROGRAM;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::library;
use testkit::network::may_make_networks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command of a page, and the lines that the page shows of what it prints.
struct Step<'a> {
    command: String,
    expected: Vec<&'a str>,
}

/// The steps of a page's console blocks. A command goes on in the next line after a backslash, or up to the end of its
/// here-document.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let mut goes_on = false;
        let mut ending = None;
        for line in block.split_once("```").expect("a block ends").0.lines() {
            let begins = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
            match (begins, steps.last_mut()) {
                (_, Some(step)) if goes_on || ending.is_some() => {
                    step.command += &format!("\n{line}");
                    ending = ending.filter(|ending| *ending != line);
                }
                (Some(command), _) => {
                    ending = command.split_once("<<").map(|(_, ending)| ending);
                    steps.push(Step { command: command.to_string(), expected: Vec::new() });
                }
                (None, Some(step)) => step.expected.push(line),
                (None, None) => panic!("{line} is printed by no command"),
            }
            goes_on = line.ends_with('\\');
        }
    }
    steps
}

/// Written between what two commands print.
const MARK: &str = "\u{1}";

/// Waits until what was put into the background waits for something: it sleeps, and takes no processor time meanwhile.
const SETTLED: &str = r#"
settled() {
    local before= now quiet=0 turn
    for turn in $(seq 200); do
        [ $quiet -lt 6 ] || return
        now=$(sed 's/.*) //' "/proc/$!/stat" 2>/dev/null | cut -d ' ' -f 1,12,13)
        case "$now" in
        "") return ;;
        R*) quiet=0 ;;
        "$before") quiet=$((quiet + 1)) ;;
        *) quiet=0 ;;
        esac
        before=$now
        sleep 0.05
    done
}
"#;

/// What a shell is to do before the first command of root's.
const FRESH: &str = "mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys && ip link set lo up || exit 125\n";

fn script(steps: &[Step<'_>], fresh: bool) -> String {
    let mut script = String::from(SETTLED);
    script += if fresh { FRESH } else { "" };
    script += "exec 2>&1\n";
    for step in steps {
        // A program in the background is ready when the next command comes.
        let settled = if step.command.trim_end().ends_with('&') { "settled" } else { "" };
        script += &format!("printf '{MARK}'\n{}\n{settled}\n", step.command);
    }
    script + &format!("printf '{MARK}'; kill $(jobs -p) 2>/dev/null; exit 0\n")
}

/// Whether lines are as expected.
fn is_like(said: &[&str], expected: &[&str]) -> bool {
    match (said.split_first(), expected.split_first()) {
        (_, Some((&"...", rest))) => (0..=said.len()).any(|skipped| is_like(&said[skipped..], rest)),
        (Some((line, said)), Some((pattern, expected))) => fits(line, pattern) && is_like(said, expected),
        (said, expected) => said.is_none() && expected.is_none(),
    }
}

/// Whether a line fits a pattern. Runs of spaces are as one: columns are as wide as their widest value.
fn fits(line: &str, pattern: &str) -> bool {
    let single = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, pattern) = (single(line), single(pattern));
    let mut parts = pattern.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty()
}

fn is_for_root(page: &str) -> bool {
    page.contains("```console\n# ")
}

/// Runs a page; says what is not as it shows.
fn differences(page: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, programs.path().join("streamline")).unwrap();
    std::os::unix::fs::symlink(root().join("captures").canonicalize().unwrap(), folder.path().join("captures"))
        .unwrap();
    let fresh = is_for_root(page);
    let steps = steps(page);
    let mut command = match fresh {
        true => {
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-s"]);
            unshare
        }
        false => {
            let mut bash = Command::new("bash");
            bash.arg("-s");
            bash
        }
    };
    let path = format!("{}:{}:/usr/sbin:/sbin", programs.path().display(), std::env::var("PATH").unwrap_or_default());
    // Others must be able to enter: some commands run as another user.
    let _ = Command::new("chmod").arg("755").arg(folder.path()).arg(programs.path()).status();
    let file = programs.path().join("script");
    std::fs::write(&file, script(&steps, fresh)).unwrap();
    command.env("STREAMLINE_SOCKETS_LIBRARY", library::sockets()).env("STREAMLINE_PCAP_LIBRARY", library::pcap());
    command.current_dir(folder.path()).env("PATH", path).env("LC_ALL", "C").env("TZ", "UTC");
    let output = command.stdin(std::fs::File::open(&file).unwrap()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{failed}");
    let mut said = said.split(MARK).skip(1);
    let mut wrong = Vec::new();
    for step in &steps {
        let said: Vec<&str> = said.next().unwrap_or_default().lines().collect();
        if !is_like(&said, &step.expected) {
            let (expected, said) = (step.expected.join("\n"), said.join("\n"));
            wrong.push(format!("$ {}\nexpected:\n{expected}\nfound:\n{said}\n", step.command));
        }
    }
    wrong
}

/// Programs that a page uses and a host may lack: the page's line `Needs: a, b.` names them, or has commands that succeed
/// where they are.
fn lacks(page: &str) -> Option<String> {
    let needs = page.lines().find_map(|line| line.strip_prefix("Needs: "))?;
    let needs = needs.trim_end_matches('.').split(", ").map(|need| need.trim_matches('`'));
    let is_there = |need: &&str| {
        let command = if need.contains(' ') { need.to_string() } else { format!("command -v {need}") };
        Command::new("sh").args(["-c", &command]).output().is_ok_and(|output| output.status.success())
    };
    needs.into_iter().find(|need| !is_there(need)).map(String::from)
}

/// Pages whose commands write gigabytes. They are run where `STREAMLINE_LONG` is set.
const LONG: [&str; 1] = ["large-file.md"];

fn runs(name: &str) {
    let page = std::fs::read_to_string(root().join("docs/guide/tutorials").join(name)).unwrap();
    if LONG.contains(&name) && std::env::var_os("STREAMLINE_LONG").is_none() {
        return eprintln!("skipped (long): STREAMLINE_LONG is not set");
    }
    if let Some(need) = lacks(&page) {
        return eprintln!("skipped (tools): this fails here: {need}");
    }
    if is_for_root(&page) && !may_make_networks() {
        return;
    }
    let wrong = differences(&page);
    assert!(wrong.is_empty(), "{name}: {} commands:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! tutorials {
    ($($test:ident $file:literal)*) => {
        $(
            #[test]
            fn $test() {
                runs($file);
            }
        )*

        #[test]
        fn every_tutorial_is_run() {
            let mut files: Vec<_> = std::fs::read_dir(root().join("docs/guide/tutorials"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "README.md")
                .collect();
            files.sort();
            let mut run = vec![$($file),*];
            run.sort();
            assert_eq!(files, run);
        }
    };
}

tutorials! {
    the_analyst "analyst.md"
    the_network_engineer "network-engineer.md"
    jq_and_duckdb "jq-and-duckdb.md"
    a_large_file "large-file.md"
    the_developer "developer.md"
    rotation "rotation.md"
    without_root "without-root.md"
    between_two_devices "between-two-devices.md"
    curl_over_flows "curl-over-flows.md"
}

#[test]
fn dots_stand_for_any_text() {
    for (said, expected, is) in [
        (&["a  b"][..], &["a b"][..], true),
        (&["a b c"], &["a ... c"], true),
        (&["a b c"], &["a ... d"], false),
        (&["a", "b", "c"], &["a", "...", "c"], true),
        (&["a", "b"], &["a"], false),
        (&["a"], &["a", "..."], true),
        (&[], &["a"], false),
    ] {
        assert_eq!(is_like(said, expected), is, "{said:?} {expected:?}");
    }
}
