//! Progress on a terminal, and how it makes way for other output. Skipped where there are no pseudo-terminals.

use rustix::fd::OwnedFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(30);

const COLUMNS: usize = 90;

struct Terminal {
    screen: File,
    child: Child,
    /// The output to the terminal so far.
    seen: Vec<u8>,
}

/// Which of a program's outputs are the terminal.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Errors,
    /// Both outputs.
    All,
    /// The input, too.
    Keys,
}

impl Terminal {
    /// `None`: there are no pseudo-terminals.
    fn start(at: At, term: Option<&str>, folder: &Path, arguments: &[&str]) -> Option<Terminal> {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).and_then(|screen| {
            grantpt(&screen)?;
            unlockpt(&screen)?;
            Ok(screen)
        });
        let screen: OwnedFd = match screen {
            Ok(screen) => screen,
            Err(error) => {
                eprintln!("skipped: no pseudo-terminal can be made: {error}");
                return None;
            }
        };
        let size = Winsize { ws_row: 40, ws_col: COLUMNS as u16, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let user = File::options().read(true).write(true).open(PathBuf::from(name.to_str().unwrap())).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(folder).env_remove("TERM").env("NO_COLOR", "1").process_group(0);
        if let Some(term) = term {
            command.env("TERM", term);
        }
        let same = || Stdio::from(user.try_clone().unwrap());
        command.stdin(if at == At::Keys { same() } else { Stdio::piped() }).stderr(same());
        command.stdout(if at == At::Errors { Stdio::null() } else { same() });
        let child = command.spawn().unwrap();
        drop((user, command));
        Some(Terminal { screen: screen.into(), child, seen: Vec::new() })
    }

    fn until(&mut self, expected: &str) {
        let began = Instant::now();
        while !self.text().contains(expected) {
            assert!(began.elapsed() < LONG, "no {expected:?} in {:?}", self.text());
            assert!(self.read(), "it ended without {expected:?}: {:?}", self.text());
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads the output that comes within a moment. `false`: the program has closed the terminal.
    fn read(&mut self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&self.screen, rustix::event::PollFlags::IN)];
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if rustix::event::poll(&mut polled, Some(&moment)).unwrap() == 0 {
            return true;
        }
        let mut bytes = [0; 4096];
        // Reading a terminal that no process has open gives an error.
        let read = self.screen.read(&mut bytes).unwrap_or(0);
        self.seen.extend(&bytes[..read]);
        read > 0
    }

    /// The whole output, and the exit status.
    fn end(mut self) -> (String, Option<i32>) {
        drop(self.child.stdin.take());
        let began = Instant::now();
        while self.read() {
            assert!(began.elapsed() < LONG, "it does not end: {:?}", self.text());
        }
        let status = self.child.wait().unwrap();
        (self.text(), status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The screen at the end, line by line. The only known escape sequence is the one that clears a line.
fn screen(seen: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let mut column = 0;
    let mut rest = seen.chars();
    while let Some(character) = rest.next() {
        let line = lines.last_mut().unwrap();
        match character {
            '\r' => column = 0,
            '\n' => {
                lines.push(Vec::new());
                column = 0;
            }
            '\x1b' => {
                let escape: String = rest.by_ref().take(2).collect();
                assert_eq!(escape, "[K", "an escape that no line of progress needs");
                line.truncate(column);
            }
            character => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_string()).collect()
}

fn capture() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap")).unwrap()
}

/// The percentages shown, in order.
fn percents(seen: &str) -> Vec<u32> {
    seen.split(['\r', '\n', 'K']).filter_map(|line| line.split_once("% of ")?.0.trim().parse().ok()).collect()
}

/// A folder with files large enough for progress to show.
fn long_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut file = capture();
    let records = file.split_off(24);
    for _ in 0..700 {
        file.extend(&records);
    }
    for name in ["a.pcap", "b.pcap", "c.pcap"] {
        std::fs::write(folder.path().join(name), &file).unwrap();
    }
    folder
}

#[test]
fn progress_goes_forward_says_how_fast_and_leaves_nothing_behind() {
    let folder = long_files();
    let request = "pcap a.pcap b.pcap c.pcap | inspect file=/dev/null";
    for (term, escapes) in [(Some("xterm"), true), (Some("dumb"), false), (None, false)] {
        let Some(terminal) = Terminal::start(At::Errors, term, folder.path(), &["run", request]) else { return };
        let (seen, status) = terminal.end();
        assert_eq!((status, seen.contains('\x1b')), (Some(0), escapes), "{seen:?}");
        let percents = percents(&seen);
        assert!(percents.len() > 1 && percents.is_sorted(), "{percents:?} in {seen:?}");
        assert!(seen.contains("MiB/s, ") && seen.contains(" left, ") && seen.contains(" frames"), "{seen:?}");
        let left = screen(&seen);
        assert!(left.iter().all(|line| !line.contains('%')), "{left:?}");
        assert!(left[0].starts_with("filter ") && left[1].starts_with("pcap a.pcap"), "{left:?}");
    }
}

/// `by` gives its records at the end, and a person waits for them.
#[test]
fn progress_shows_until_data_come_on_the_same_terminal() {
    let folder = long_files();
    let arguments = ["run", "pcap a.pcap b.pcap c.pcap | packets | by proto"];
    let Some(terminal) = Terminal::start(At::All, Some("xterm"), folder.path(), &arguments) else { return };
    let (seen, status) = terminal.end();
    let left = screen(&seen);
    assert!(percents(&seen).len() > 1 && status == Some(0), "{seen:?}");
    assert_eq!(left[..2], ["proto   count", "TCP    434700"], "{left:?}");
}

/// The line would stand among the data.
#[test]
fn there_is_none_beside_data_on_the_same_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for (request, shown) in [("pcap - | inspect", false), ("pcap - | count | json file=x.json overwrite=yes", true)] {
        let Some(mut terminal) = Terminal::start(At::All, Some("xterm"), folder.path(), &["run", request]) else {
            return;
        };
        let mut input = terminal.child.stdin.take().unwrap();
        input.write_all(&capture()).unwrap();
        terminal.until(if shown { "207 frames" } else { "192.0.2.42:24682" });
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            terminal.read();
        }
        drop(input);
        let (seen, status) = terminal.end();
        assert_eq!((status, seen.contains("B/s, ")), (Some(0), shown), "{seen:?}");
    }
}

#[test]
fn every_other_line_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut cut = capture();
    cut.truncate(cut.len() - 5);
    std::fs::write(folder.path().join("cut.pcap"), &cut).unwrap();
    let request = "pcap cut.pcap - | count | json file=x.json";
    let Some(mut terminal) = Terminal::start(At::Errors, Some("xterm"), folder.path(), &["run", request]) else {
        return;
    };
    let mut input = terminal.child.stdin.take().unwrap();
    // A pipe has no known length, but bytes that were read. A record cut at its end is a warning, too.
    terminal.until("206 frames");
    input.write_all(&cut).unwrap();
    terminal.until("412 frames");
    drop(input);
    let (seen, status) = terminal.end();
    assert_eq!(status, Some(0), "{seen:?}");
    let left = screen(&seen);
    let warnings =
        left.iter().filter(|line| line.starts_with("warning: ") && line.ends_with("what precedes it was read"));
    assert_eq!(warnings.count(), 2, "{left:?}");
    assert!(left.iter().all(|line| !line.contains(" frames")), "{left:?}");
}

#[test]
fn tables_are_cut_to_the_terminal_and_not_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let request = format!("pcap - | match \"{}\" | count", "long ".repeat(40));
    let mut run = Command::new(PROGRAM);
    let mut run = run.args(["run", &request]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let ps = || {
        let mut command = Command::new(PROGRAM);
        String::from_utf8(command.args(["ps", "--daemon", "/nowhere"]).output().unwrap().stdout).unwrap()
    };
    let id = format!(" {} ", run.id());
    let began = Instant::now();
    while !format!(" {}", ps()).contains(&id) {
        assert!(began.elapsed() < LONG, "it is not listed: {}", ps());
    }
    let all = ps();
    let line = all.lines().find(|line| line.contains("long long")).unwrap();
    assert!(line.contains(request.trim_end()), "{line}");
    let at_terminal = Terminal::start(At::All, Some("xterm"), folder.path(), &["ps", "--daemon", "/nowhere"]);
    let shown = at_terminal.map(|terminal| terminal.end().0);
    run.kill().unwrap();
    run.wait().unwrap();
    let Some(shown) = shown else { return };
    let line = shown.lines().find(|line| line.contains("pcap - | ")).unwrap();
    assert!(line.ends_with('…') && line.chars().count() == COLUMNS, "{shown}");
}

#[test]
fn records_are_columns_on_a_terminal_and_json_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("web.pcap"), capture()).unwrap();
    let request = "pcap web.pcap | { packets | head 2 + flows | head 1 }";
    let shown = |arguments: &[&str]| {
        let arguments = [&["run", "-q"], arguments].concat();
        let terminal = Terminal::start(At::All, Some("xterm"), folder.path(), &arguments)?;
        Some(screen(&terminal.end().0))
    };
    let Some(lines) = shown(&["pcap web.pcap | packets | head 2"]) else { return };
    assert!(lines[0].starts_with("    time  src_ip:port") && lines[0].ends_with("proto  len  info"), "{lines:?}");
    assert!(
        lines[1].starts_with("0.000000  192.0.2.42:24682  192.88.99.42:80  TCP     74  SYN seq") && lines.len() == 4,
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:?}");
    for alone in [&["-r", "web.pcap"][..], &["pcap web.pcap"], &["pcap web.pcap | port 80"]] {
        let lines = shown(alone).unwrap();
        assert!(lines[0].contains("time  src_ip:port") && lines[1].contains("  SYN seq"), "{alone:?}: {lines:?}");
    }
    let [lines, datagrams] = ["tcp", "udp"].map(|filter| shown(&[&format!("pcap web.pcap | {filter}")]).unwrap());
    assert!(lines[0].contains(" c>s ") && datagrams == [""], "streams have lines: {lines:?} {datagrams:?}");
    // Several kinds of records share one table.
    let lines = shown(&[request]).unwrap();
    assert!(lines.iter().filter(|line| line.contains("src_ip:port")).count() == 1 && lines.len() == 5, "{lines:?}");
    // Of messages the heads are shown, and their bodies not.
    let lines = shown(&["pcap web.pcap | http"]).unwrap();
    assert!(lines[0].contains("hostname") && lines.len() == 25, "{lines:?}");
    let piped = Command::new(PROGRAM).args(["run", "-q", "pcap web.pcap | http"]).current_dir(folder.path()).output();
    assert!(String::from_utf8_lossy(&piped.unwrap().stdout).lines().all(|line| line.starts_with('{')));
    for json in [&["--json", request][..], &["pcap web.pcap | packets | head 3 | json"]] {
        let lines = shown(json).unwrap();
        assert!(lines[..3].iter().all(|line| line.starts_with('{')), "{lines:?}");
    }
    let piped = Command::new(PROGRAM).args(["run", "-q", request]).current_dir(folder.path()).output().unwrap();
    assert!(piped.stdout.starts_with(b"{"), "{}", String::from_utf8_lossy(&piped.stdout));
}

#[test]
fn q_ends_top() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["top", "--interval", "0.05", "--daemon", "/nowhere"];
    let Some(mut terminal) = Terminal::start(At::Keys, None, folder.path(), &arguments) else { return };
    terminal.until("\n");
    terminal.screen.write_all(b"xq").unwrap();
    let (seen, status) = terminal.end();
    assert_eq!(status, Some(0), "{seen:?}");
    assert!(!seen.contains("xq"), "keys are not echoed: {seen:?}");
}

#[test]
fn colours_are_used_where_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("web.pcap"), capture()).unwrap();
    let colours = |arguments: &[&str], variable: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(folder.path()).env("NO_COLOR", variable);
        let output = command.output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let wrong = ["run", "pcap web.pcap | nix"];
    let [_, told] = colours(&wrong, "");
    assert!(told.starts_with("error: ") && !told.contains('\x1b'), "a pipe has none: {told}");
    let [_, told] = colours(&[&wrong[..], &["--color", "always"]].concat(), "1");
    assert!(told.starts_with("\x1b[1;31merror:\x1b[0m ") && told.contains("|\x1b[31m"), "{told:?}");
    let table = ["run", "-q", "--color=always", "pcap web.pcap | count | inspect format=table"];
    let [shown, _] = colours(&table, "1");
    assert!(shown.starts_with("\x1b[1mblocks  bytes  wire_bytes\x1b[0m\n"), "{shown:?}");
    let terminal = |term: Option<&str>, arguments: &[&str]| {
        let arguments = [&["run", "-q", "pcap web.pcap | count"], arguments].concat();
        Some(Terminal::start(At::All, term, folder.path(), &arguments)?.end().0)
    };
    // The variable NO_COLOR is set on this terminal.
    let Some(seen) = terminal(Some("xterm"), &[]) else { return };
    assert!(seen.starts_with("blocks  bytes"), "{seen:?}");
    assert!(terminal(Some("xterm"), &["--color", "always"]).unwrap().starts_with("\x1b[1mblocks"));
    assert!(terminal(Some("xterm"), &["--color", "never"]).unwrap().starts_with("blocks"));
}

#[test]
fn lists_and_descriptions_are_folded_to_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        [&["filters"][..], &["filters", "http"], &["explain", "pcap - | http | files dir=out"], &["doctor"]]
    {
        let Some(terminal) = Terminal::start(At::All, Some("xterm"), folder.path(), arguments) else { return };
        let lines = screen(&terminal.end().0);
        let is_request = |line: &&String| line.trim_start().starts_with("streamline run");
        let long: Vec<_> = lines.iter().filter(|line| !is_request(line) && line.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "{arguments:?}: {long:#?}");
    }
}
