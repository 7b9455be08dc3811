//! Every request that README and the guide show is one that `streamline check` takes, or fails with the error they show, and
//! every policy is one that the daemon reads. Console blocks are run and print what they show, but for those
//! marked `unchecked`: what these print was copied from a terminal. The requests of `display-filters.md` are run, too.

use crate::requests::matches;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `check` takes of the options of `run`, and whether an argument follows.
const OPTIONS: &[(&str, bool)] =
    &[("-r", true), ("-i", true), ("-c", true), ("-D", true), ("-f", true), ("--share", false), ("--workers", true)];

/// Options of other commands that take an argument.
const OTHER_OPTIONS: &[&str] = &["--metrics", "--stats", "--plain"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<(String, String)> {
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    // Tutorials are a folder; they are run as a whole, by `tests/live/tutorials.rs`.
    let mut paths: Vec<PathBuf> = guide.filter(|path| path.is_file()).chain([root().join("README.md")]).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

fn code(page: &str) -> Vec<&str> {
    let mut inside = false;
    let fenced = |line: &&str| {
        let is_fence = line.starts_with("```");
        inside ^= is_fence;
        inside && !is_fence
    };
    page.lines().filter(fenced).collect()
}

/// The commands of a line in words, as a shell has them: quotes are gone, and comments.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '>' | '<') => {
                commands.last_mut().unwrap().extend(word.take());
                if c != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands
}

/// The arguments of `check` for the request of a command; none where it has none.
fn to_check(command: &[String]) -> Option<Vec<&str>> {
    let from = command.iter().position(|word| word == "streamline")?;
    let mut words = command[from + 1..].iter().map(String::as_str);
    let name = words.next()?;
    let mut arguments = vec!["check", "--local"];
    match name {
        "run" | "explain" | "check" => {}
        "replace" => drop(words.next()),
        // A device's name may be a request.
        "pcap" => {
            let request = words.find_map(|word| word.strip_prefix("sl:")).filter(|name| name.contains('|'))?;
            return Some([arguments, vec![request]].concat());
        }
        _ => return None,
    }
    while let Some(word) = words.next() {
        match OPTIONS.iter().find(|(option, _)| *option == word) {
            Some((_, takes)) => {
                arguments.push(word);
                if *takes {
                    arguments.extend(words.next());
                }
            }
            None if OTHER_OPTIONS.contains(&word) => drop(words.next()),
            None if word.starts_with('-') => {}
            None => arguments.push(word),
        }
    }
    Some(arguments)
}

#[test]
fn requests_of_the_guide_are_right_or_fail_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let captures = folder.path().join("captures");
    std::fs::create_dir(&captures).unwrap();
    for entry in std::fs::read_dir(root().join("captures")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, captures.join(path.file_name().unwrap())).unwrap();
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, page) in pages() {
        if let Some((_, rest)) = page.split_once("```\n# Web and DNS") {
            std::fs::write(
                folder.path().join("day.srl"),
                rest.split_once("\n```").unwrap().0.split_once('\n').unwrap().1,
            )
            .unwrap();
        }
        let lines = code(&page);
        for (at, line) in lines.iter().enumerate() {
            for (place, command) in commands(line.trim_start_matches("$ ")).iter().enumerate() {
                let Some(mut arguments) = to_check(command) else { continue };
                // A command behind another one may read its output.
                let names_source = |text: &&str| ["-r", "-i", "-f"].contains(text) || text.contains("pcap ");
                if place > 0 && !arguments.iter().any(names_source) {
                    arguments.extend(["-r", "-"]);
                }
                count += 1;
                let output = Command::new(env!("CARGO_BIN_EXE_streamline"))
                    .args(&arguments)
                    .current_dir(folder.path())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let shown = lines.get(at + 1).filter(|next| next.starts_with("error: "));
                // Filters of `--features arrow` are tried where they are built.
                let is_left_out = said.contains("in this program");
                if !output.status.success() && !is_left_out && said.lines().next() != shown.copied() {
                    wrong.push(format!("{name}: {line}\n{arguments:?}\n{said}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} requests:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 50, "{count} requests");
}

/// The commands of a page's console blocks, and what the page shows of what each prints.
fn shown(page: &str) -> Vec<(&str, String)> {
    let mut shown: Vec<(&str, String)> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split_once("```").unwrap().0.lines() {
            match (line.strip_prefix("$ "), shown.last_mut()) {
                (Some(command), _) => shown.push((command, String::new())),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => panic!("{line} is printed by no command"),
            }
        }
    }
    shown
}

/// Runs the commands of a page's console blocks one after the other, in a folder with the captures, and gives those that
/// print something else than the page shows. A line `...` stands for any number of lines, `...` at a line's end for the rest
/// of it.
fn untrue(page: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        folder.path().join(name)
    };
    let (captures, programs) = (make("captures"), make("programs"));
    for entry in std::fs::read_dir(root().join("captures")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, captures.join(path.file_name().unwrap())).unwrap();
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_streamline"), programs.join("streamline")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut wrong = Vec::new();
    for (command, expected) in shown(page) {
        let mut run = Command::new("sh");
        run.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(folder.path()).stdin(Stdio::null());
        let output = run.env("PATH", &path).env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let (pattern, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), said.lines().collect());
        if !matches(&pattern, &found) {
            wrong.push(format!("$ {command}\nexpected:\n{expected}found:\n{said}"));
        }
    }
    wrong
}

#[test]
fn questions_have_the_answers_that_the_page_shows() {
    let page = std::fs::read_to_string(root().join("docs/guide/questions.md")).unwrap();
    let questions = page.lines().filter(|line| line.starts_with("### ")).count();
    assert!(questions >= 50, "{questions} questions");
    let wrong = untrue(&page);
    assert!(wrong.is_empty(), "{} commands:\n{}", wrong.len(), wrong.join("\n"));
}

/// Blocks that need a device, a daemon or another program are marked: ```` ```console unchecked ````.
#[test]
fn commands_of_the_guide_print_what_it_shows() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, page) in pages().into_iter().filter(|(name, _)| name != "questions.md") {
        count += shown(&page).len();
        wrong.extend(untrue(&page).into_iter().map(|one| format!("{name}: {one}")));
    }
    assert!(wrong.is_empty(), "{} of {count} commands:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 12, "{count} commands");
}

/// What passes a request: packets are counted, of records and messages each is a line.
fn passes(capture: &str, request: &str) -> String {
    let records = ["dhcp", "dns", "ftp", "http", "packets", "sip", "tls"];
    let gives_records = request.split(" | ").any(|part| records.contains(&part));
    let end = if gives_records { "fields timestamp header=no" } else { "count" };
    let mut run = Command::new(env!("CARGO_BIN_EXE_streamline"));
    run.args(["run", "-q", "-r", capture, &format!("{request} | {end}")]).current_dir(root().join("captures"));
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    match gives_records {
        _ if !output.status.success() => String::from_utf8_lossy(&output.stderr).into_owned(),
        true => said.lines().count().to_string(),
        false => said.split([':', ',']).nth(1).unwrap_or_default().to_string(),
    }
}

#[test]
fn requests_pass_as_many_as_the_filters_of_other_tools_beside_them() {
    let page = std::fs::read_to_string(root().join("docs/guide/display-filters.md")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        // A bar within a cell is escaped.
        let line = line.replace("\\|", "\0");
        let cells: Vec<String> = line.split(" | ").map(|cell| cell.replace('\0', "|")).collect();
        let [_, request, expected] = &cells[..] else { panic!("{line} has three cells") };
        let (expected, capture) = expected.trim_end_matches(" |").split_once(" of ").unwrap();
        let found = passes(capture, request.trim_matches('`'));
        if found != expected {
            wrong.push(format!("{request}: expected {expected}, found {found}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{} of {count} requests:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 40, "{count} rows");
}

#[test]
fn policies_of_the_guide_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (name, page) in pages() {
        for block in page.split("```toml\n").skip(1) {
            let (policy, _) = block.split_once("```\n").unwrap();
            let policy = policy.replace("\"carl\"", "\"root\"").replace("\"streamline\"", "\"root\"");
            let path = folder.path().join("policy.toml");
            std::fs::write(&path, &policy).unwrap();
            match daemon::Policy::read(&path) {
                Err(error) if error.contains("libpcap") => eprintln!("skipped, no libpcap here: {name}"),
                read => drop(read.unwrap_or_else(|error| panic!("{name}: {error}\n{policy}"))),
            }
            count += 1;
        }
    }
    assert_eq!(count, 4);
}
