//! Named rings in a shell: the bytes that each reader gets, and how each process ends.

use buffer::pipe::OpenOptions;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::process::sleeps;

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

/// A ring of this test, in its own folder. Both vanish with it, however the test ends.
struct Ring {
    folder: tempfile::TempDir,
    name: String,
}

impl Ring {
    fn create(options: &[&str]) -> Ring {
        let folder = tempfile::tempdir().unwrap();
        let ring = Ring { name: folder.path().join("ring.sock").display().to_string(), folder };
        let output = ring.run("create", options);
        assert_eq!(outcome(&output), (Some(0), String::new()));
        ring
    }

    fn command(&self, action: &str, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["pipe", action, &self.name]).args(options).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, action: &str, options: &[&str]) -> Output {
        self.command(action, options).output().unwrap()
    }

    /// A reader whose standard output is a file.
    fn reader(&self, file: &str, options: &[&str]) -> Running {
        let out = File::create(self.path(file)).unwrap();
        Running::start(self.command("read", options).stdout(out))
    }

    fn writer(&self, options: &[&str]) -> (Running, ChildStdin) {
        let mut writer = Running::start(self.command("write", options).stdin(Stdio::piped()));
        let stdin = writer.child().stdin.take().unwrap();
        (writer, stdin)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn bytes(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).unwrap()
    }

    fn state(&self) -> Value {
        let output = Command::new(PROGRAM).args(["pipe", "ls", "--json", &self.name]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take()
    }

    fn await_readers(&self, count: usize) {
        until("readers", || {
            let state = self.state();
            let readers = state["readers"].as_array().unwrap();
            readers.len() == count && readers.iter().all(|reader| !reader["in_force"].is_null())
        });
    }

    fn keeper(&self) -> u32 {
        let is_keeper = |words: &[&[u8]]| words.contains(&b"keep".as_slice()) && words.contains(&self.name.as_bytes());
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .find(|process: &u32| {
                let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                is_keeper(&line.split(|byte| *byte == 0).collect::<Vec<_>>())
            })
            .unwrap()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = self.run("rm", &[]);
    }
}

struct Running(Option<Child>);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn signal(&mut self, name: &str) {
        signal(self.child().id(), name);
    }

    fn ends(mut self) -> Output {
        until("its end", || self.child().try_wait().unwrap().is_some());
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn check(output: &Output, code: i32, says: &str) {
    let (found, text) = outcome(output);
    assert_eq!(found, Some(code), "{text}");
    match says {
        "" => assert_eq!(text, ""),
        says => assert!(text.contains(says), "`{says}` is not in: {text}"),
    }
}

fn lines(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(|n| format!("{n:099}\n").into_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    assert_eq!(bytes.len() % 100, 0, "a line is torn");
    let numbers: Vec<u64> =
        bytes.chunks(100).map(|line| std::str::from_utf8(&line[..99]).unwrap().parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b));
    numbers
}

#[track_caller]
fn number_before(text: &str, words: &str) -> u64 {
    let at = text.find(words).unwrap_or_else(|| panic!("`{words}` is not in: {text}"));
    text[..at].trim_end().rsplit(' ').next().unwrap().parse().unwrap()
}

const LINES: u64 = 20_000;

#[test]
fn one_writer_and_three_readers_of_which_one_is_stopped_and_one_killed() {
    let mut fastest = LONG;
    // The time depends on the machine's other load: one of several tries must be good.
    for _ in 0..5 {
        let ring = Ring::create(&["size=64k"]);
        let (writer, mut stdin) = ring.writer(&["lines=yes"]);
        let all = ring.reader("all", &[]);
        let mut killed = ring.reader("killed", &["on-full=drop-newest"]);
        let mut stopped = ring.reader("stopped", &["on-full=overwrite"]);
        ring.await_readers(3);
        stopped.signal("-STOP");
        drop(killed);
        // A second reader that holds the ring, so that the writer waits until it is gone.
        killed = ring.reader("killed", &[]);
        ring.await_readers(3);
        killed.signal("-STOP");
        let writing = std::thread::spawn(move || stdin.write_all(&lines(0..LINES)).unwrap());
        let head = || ring.state()["head"].as_u64().unwrap();
        until("the ring is full", || {
            let before = head();
            std::thread::sleep(Duration::from_millis(50));
            before > 0 && head() == before
        });
        let (before, size) = (head(), || std::fs::metadata(ring.path("all")).unwrap().len());
        until("what is there is read", || size() == before * 100);
        assert!(before < LINES);
        killed.signal("-KILL");
        fastest = fastest.min(until("the writer goes on", || size() > before * 100));
        writing.join().unwrap();
        check(&writer.ends(), 0, "");
        check(&all.ends(), 0, "");
        assert!(ring.bytes("all") == lines(0..LINES), "it holds the ring, so it gets everything");
        stopped.signal("-CONT");
        let output = stopped.ends();
        check(&output, 0, "was overtaken");
        check(&output, 0, "the reader in process ");
        let (got, text) = (numbers(&ring.bytes("stopped")).len() as u64, outcome(&output).1);
        assert_eq!(got + number_before(&text, "blocks were lost"), LINES, "{text}");
        assert_eq!(number_before(&text, "were read"), got);
        if fastest < Duration::from_millis(100) {
            return;
        }
    }
    panic!("the place of a killed reader is free after {fastest:?}");
}

#[test]
fn what_is_made_is_said_where_it_is_not_what_was_asked() {
    for (options, expected) in [
        (&["size=1"][..], "the ring has 4.0 KiB"),
        (&["size=5000"], "the ring has 8.0 KiB"),
        (&["size=64k", "slots=1000"], "the ring has 1024 slots"),
        (&["kind=p", "size=64k", "slots=1024"], ""),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ring = Ring { name: folder.path().join("ring.sock").display().to_string(), folder };
        let (status, said) = outcome(&ring.run("create", options));
        let notes = usize::from(!expected.is_empty());
        assert!(status == Some(0) && said.contains(expected) && said.lines().count() == notes, "{said}");
    }
}

#[test]
fn a_stopped_reader_is_demoted_after_the_hold_limit_and_told() {
    for kind in ["kind=d", "kind=v"] {
        let ring = Ring::create(&["size=64k", "hold-limit=100ms", kind]);
        let (writer, mut stdin) = ring.writer(&["lines=yes"]);
        let all = ring.reader("all", &[]);
        let mut stopped = ring.reader("stopped", &[]);
        ring.await_readers(2);
        stopped.signal("-STOP");
        stdin.write_all(&lines(0..LINES)).unwrap();
        drop(stdin);
        check(&writer.ends(), 0, "1 reader held the full ring for longer than its hold-limit, and was overtaken");
        check(&all.ends(), 0, "");
        assert!(ring.bytes("all") == lines(0..LINES), "{kind}");
        stopped.signal("-CONT");
        let output = stopped.ends();
        check(&output, 0, "goes on with on-full=overwrite");
        let got = numbers(&ring.bytes("stopped")).len() as u64;
        assert_eq!(got + number_before(&outcome(&output).1, "blocks were lost"), LINES, "{kind}");
    }
}

#[test]
fn a_stopped_reader_that_drops_the_newest_drops_it_for_everybody() {
    let ring = Ring::create(&["size=64k"]);
    let (writer, mut stdin) = ring.writer(&["lines=yes"]);
    let (other, mut stopped) = (ring.reader("other", &[]), ring.reader("stopped", &["on-full=drop-newest"]));
    ring.await_readers(2);
    stopped.signal("-STOP");
    stdin.write_all(&lines(0..LINES)).unwrap();
    drop(stdin);
    let output = writer.ends();
    check(&output, 0, "a reader with on-full=drop-newest was behind");
    check(&other.ends(), 0, "");
    stopped.signal("-CONT");
    check(&stopped.ends(), 0, "");
    assert_eq!(ring.bytes("other"), ring.bytes("stopped"));
    let got = numbers(&ring.bytes("other")).len() as u64;
    assert_eq!(got + number_before(&outcome(&output).1, "blocks were dropped"), LINES);
}

#[test]
fn every_kind_carries_every_byte() {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for options in [&["kind=c"][..], &["kind=v"], &["kind=d", "size=4k"], &["kind=p", "size=64k", "slots=16"]] {
        let ring = Ring::create(options);
        let (writer, mut stdin) = ring.writer(&[]);
        let readers = [ring.reader("a", &[]), ring.reader("b", &[])];
        ring.await_readers(2);
        stdin.write_all(&bytes).unwrap();
        drop(stdin);
        check(&writer.ends(), 0, "");
        for reader in readers {
            check(&reader.ends(), 0, "");
        }
        assert!(ring.bytes("a") == bytes && ring.bytes("b") == bytes, "{options:?}");
    }
}

#[test]
fn readers_that_waited_get_the_first_line_and_a_quiet_input_keeps_nothing_back() {
    let ring = Ring::create(&[]);
    let readers: Vec<Running> = (0..4).map(|n| ring.reader(&n.to_string(), &[])).collect();
    // It cannot be seen that they wait. If they do not yet, the writer waits for the first of them.
    std::thread::sleep(Duration::from_millis(300));
    let (writer, mut stdin) = ring.writer(&["lines=yes", "batch=1000"]);
    stdin.write_all(b"first\n").unwrap();
    for n in 0..4 {
        until("the line", || ring.bytes(&n.to_string()) == b"first\n");
    }
    drop(stdin);
    check(&writer.ends(), 0, "");
    for reader in readers {
        check(&reader.ends(), 0, "");
    }
}

#[test]
fn a_ring_that_stays_open_goes_on_with_the_next_writer_until_ctrl_c() {
    let ring = Ring::create(&["keep-open=yes"]);
    let mut reader = ring.reader("all", &[]);
    for text in ["one\n", "two\n"] {
        let (writer, mut stdin) = ring.writer(&[]);
        ring.await_readers(1);
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        check(&writer.ends(), 0, "");
        until("the text", || ring.bytes("all").ends_with(text.as_bytes()));
    }
    let (mut writer, stdin) = ring.writer(&[]);
    ring.await_readers(1);
    writer.signal("-KILL");
    writer.child().wait().unwrap();
    drop((writer, stdin));
    until("the place is free", || ring.state()["writing"] == false);
    let (writer, mut stdin) = ring.writer(&[]);
    ring.await_readers(1);
    stdin.write_all(b"three\n").unwrap();
    until("the text", || ring.bytes("all") == b"one\ntwo\nthree\n");
    reader.signal("-INT");
    check(&reader.ends(), 0, "the writer died: blocks that it had not published are missing");
    drop(stdin);
    check(&writer.ends(), 0, "");
}

#[test]
fn who_peeks_is_nobodys_reader() {
    let ring = Ring::create(&["size=1M"]);
    check(&ring.run("peek", &[]), 0, "");
    let (mut writer, mut stdin) = ring.writer(&["lines=yes", "no-wait=yes"]);
    stdin.write_all(b"\x1b[31mred\n").unwrap();
    stdin.write_all(&lines(0..1999)).unwrap();
    until("the lines", || ring.state()["head"] == 2000);
    let output = ring.run("peek", &[]);
    check(&output, 0, "");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    // A quarter of the descriptors may be overwritten at any time.
    assert!(shown.lines().count() >= 1500, "{}", shown.lines().count());
    assert!(shown.lines().last().unwrap().contains(" 100 bytes  0000"), "{shown}");
    assert!(!shown.contains('\x1b'));
    assert_eq!(ring.state()["readers"].as_array().unwrap().len(), 0);
    // It also ends if its output is closed.
    let mut follower = Running::start(&mut ring.command("peek", &["follow=yes"]));
    ring.await_readers(1);
    let mut some = [0; 100];
    let mut out = follower.child().stdout.take().unwrap();
    out.read_exact(&mut some).unwrap();
    drop(out);
    check(&follower.ends(), 0, "");
    let full = File::options().write(true).open("/dev/full").unwrap();
    check(&ring.command("peek", &[]).stdout(full).output().unwrap(), 1, "cannot write to standard output");
    writer.signal("-INT");
    check(&writer.ends(), 0, "");
}

#[test]
fn a_writer_ends_quietly_when_its_readers_have_left() {
    let ring = Ring::create(&[]);
    let (writer, mut stdin) = ring.writer(&[]);
    let mut reader = Running::start(&mut ring.command("read", &[]));
    ring.await_readers(1);
    stdin.write_all(&lines(0..10)).unwrap();
    let mut out = reader.child().stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    // Like `| head -1`, even while no blocks come.
    drop(out);
    check(&reader.ends(), 0, "");
    check(&writer.ends(), 0, "");
}

#[test]
fn ctrl_c_is_heard_wherever_one_waits() {
    for name in ["-INT", "-TERM"] {
        let ring = Ring::create(&["size=4k"]);
        let interrupted = |mut running: Running, says: &str| {
            running.signal(name);
            check(&running.ends(), 0, says);
        };
        let pause = || std::thread::sleep(Duration::from_millis(150));
        // They wait for a writer, the other end of a FIFO, a reader, input, blocks, room, or a stuck output.
        let reader = ring.reader("a", &[]);
        let follower = Running::start(&mut ring.command("peek", &["follow=yes"]));
        let fifo = Running::start(&mut ring.command("read", &["fifo=out"]));
        pause();
        interrupted(reader, "");
        interrupted(follower, "");
        interrupted(fifo, "");
        assert!(!ring.path("out").exists(), "who makes a FIFO removes it");
        let (writer, _stdin) = ring.writer(&[]);
        pause();
        interrupted(writer, "");
        let (writer, mut stdin) = ring.writer(&[]);
        let reader = ring.reader("a", &[]);
        ring.await_readers(1);
        pause();
        interrupted(reader, "");
        check(&writer.ends(), 0, "");
        drop(stdin);
        let writer;
        (writer, stdin) = ring.writer(&[]);
        let stuck = Running::start(&mut ring.command("read", &[]));
        ring.await_readers(1);
        let writing = std::thread::spawn(move || {
            let _ = stdin.write_all(&vec![b'x'; 1 << 20]);
        });
        until("everything is full", || {
            let before = ring.state()["head"].clone();
            std::thread::sleep(Duration::from_millis(100));
            before != 0 && ring.state()["head"] == before
        });
        interrupted(writer, "stopped while the ring was full");
        writing.join().unwrap();
        interrupted(stuck, "");
    }
}

#[test]
fn a_killed_keeper_ends_both_sides_with_a_line_and_rm_clears_it_away() {
    let ring = Ring::create(&[]);
    for quiet in [true, false] {
        let (writer, mut stdin) = ring.writer(&["lines=yes"]);
        let reader = ring.reader("all", &[]);
        ring.await_readers(1);
        let writing = std::thread::spawn(move || {
            while !quiet && stdin.write_all(&lines(0..100)).is_ok() {}
            stdin
        });
        std::thread::sleep(Duration::from_millis(100));
        signal(ring.keeper(), "-KILL");
        for running in [reader, writer] {
            let output = running.ends();
            check(&output, 1, "the ring's keeper died");
            assert_eq!(outcome(&output).1.lines().count(), 1, "{}", outcome(&output).1);
        }
        drop(writing.join().unwrap());
        assert_eq!(ring.state()["dead"], true);
        check(&ring.run("read", &[]), 1, "is dead");
        check(&ring.run("rm", &[]), 0, "");
        assert!(!ring.path("ring.sock").exists() && !ring.path("ring.sock.lock").exists());
        check(&ring.run("create", &[]), 0, "");
    }
}

#[test]
fn a_removed_ring_ends_both_sides_with_a_line() {
    let ring = Ring::create(&[]);
    let (writer, mut stdin) = ring.writer(&["lines=yes"]);
    let reader = ring.reader("all", &[]);
    ring.await_readers(1);
    stdin.write_all(&lines(0..10)).unwrap();
    until("the lines", || ring.bytes("all") == lines(0..10));
    check(&ring.run("rm", &[]), 0, "");
    check(&reader.ends(), 1, "the ring was removed");
    check(&writer.ends(), 1, "the ring was removed");
    check(&ring.run("create", &[]), 0, "");
}

#[test]
fn a_keeper_that_is_asked_to_stop_removes_its_ring() {
    for name in ["-TERM", "-INT", "-HUP"] {
        let ring = Ring::create(&[]);
        let (writer, mut stdin) = ring.writer(&["lines=yes"]);
        let reader = ring.reader("all", &[]);
        ring.await_readers(1);
        stdin.write_all(&lines(0..10)).unwrap();
        until("the lines", || ring.bytes("all") == lines(0..10));
        signal(ring.keeper(), name);
        check(&reader.ends(), 1, "the ring was removed");
        check(&writer.ends(), 1, "the ring was removed");
        assert!(!ring.path("ring.sock").exists() && !ring.path("ring.sock.lock").exists());
    }
}

#[test]
fn programs_that_know_nothing_of_rings_take_part_through_fifos() {
    let ring = Ring::create(&[]);
    let mut out = Running::start(&mut ring.command("read", &["fifo=out"]));
    let mut into = Running::start(&mut ring.command("write", &["fifo=in"]));
    until("the FIFOs", || ring.path("in").exists() && ring.path("out").exists());
    let shell = |text: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(ring.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        Running::start(&mut command)
    };
    let first = shell("head -c 4 < out");
    ring.await_readers(1);
    check(&shell("printf one. > in").ends(), 0, "");
    assert_eq!(first.ends().stdout, b"one.");
    // The next reader of the FIFO gets what the first one did not take.
    check(&shell("printf two. > in").ends(), 0, "");
    assert_eq!(shell("head -c 4 < out").ends().stdout, b"two.");
    into.signal("-INT");
    check(&into.ends(), 0, "");
    out.signal("-INT");
    let _ = out.ends();
    assert!(!ring.path("in").exists() && !ring.path("out").exists());
    std::fs::write(ring.path("file"), "mine").unwrap();
    check(&ring.run("write", &["fifo=file"]), 1, "is there and no FIFO");
    assert_eq!(ring.bytes("file"), b"mine");
}

#[test]
fn a_last_line_that_a_program_does_not_end_is_not_the_beginning_of_the_next_ones() {
    let ring = Ring::create(&[]);
    let mut into = Running::start(&mut ring.command("write", &["fifo=in", "lines=yes"]));
    until("the FIFO", || ring.path("in").exists());
    let reader = ring.reader("all", &[]);
    ring.await_readers(1);
    for (said, all) in [("one", "one\n"), ("two\nthree", "one\ntwo\nthree\n"), ("four\n", "one\ntwo\nthree\nfour\n")] {
        std::fs::write(ring.path("in"), said).unwrap();
        until("its lines", || ring.bytes("all") == all.as_bytes());
    }
    assert_eq!(ring.state()["head"], 4, "each line is a block");
    into.signal("-INT");
    check(&into.ends(), 0, "");
    check(&reader.ends(), 0, "");
}

#[test]
fn blocks_that_lie_in_another_ring_are_read_from_there() {
    for kind in ["kind=c", "kind=p", "kind=v", "kind=d"] {
        let (first, second) = (Ring::create(&[kind, "size=64k"]), Ring::create(&["size=4k"]));
        let all = second.reader("all", &[]);
        // It cannot be seen that they wait, and there is no second try.
        std::thread::sleep(Duration::from_millis(300));
        let (from, to) = (first.name.clone(), second.name.clone());
        let forwarding = std::thread::spawn(move || {
            let mut to = OpenOptions::new().write(&to).unwrap();
            let mut from = OpenOptions::new().read(&from).unwrap();
            while let Some(block) = from.peek().unwrap() {
                from.forward(&block, &mut to).unwrap();
            }
            from.drain().unwrap();
            to.stat().copied
        });
        let (writer, mut stdin) = first.writer(&["lines=yes"]);
        first.await_readers(1);
        stdin.write_all(&lines(0..LINES / 2)).unwrap();
        until("half of it", || second.bytes("all") == lines(0..LINES / 2));
        let shown = File::create(second.path("shown")).unwrap();
        let follower = Running::start(second.command("peek", &["follow=yes"]).stdout(shown));
        // The oldest of them are overwritten in the first ring.
        until("what is there is shown", || second.bytes("shown").ends_with(b"...\n"));
        stdin.write_all(&lines(LINES / 2..LINES)).unwrap();
        drop(stdin);
        check(&writer.ends(), 0, "");
        assert_eq!(forwarding.join().unwrap(), 0, "{kind}: nothing but descriptors went through the second ring");
        check(&all.ends(), 0, "");
        assert!(second.bytes("all") == lines(0..LINES), "{kind}: {} bytes", second.bytes("all").len());
        let (shown, text) = (second.bytes("shown"), follower.ends());
        assert_eq!(text.status.code(), Some(0));
        let shown = String::from_utf8(shown).unwrap();
        assert!(!shown.is_empty() && !shown.contains(" ring"), "{kind}: {shown}");
    }
}

#[test]
fn who_waits_is_not_woken_until_there_is_something_to_do() {
    let (written, unwritten, unread, full) =
        (Ring::create(&[]), Ring::create(&[]), Ring::create(&[]), Ring::create(&["size=4k"]));
    let (writer, mut stdin) = written.writer(&[]);
    let reader = written.reader("all", &[]);
    let follower = Running::start(&mut written.command("peek", &["follow=yes"]));
    written.await_readers(2);
    stdin.write_all(b"first").unwrap();
    until("the first", || written.bytes("all") == b"first");
    let without_writer = unwritten.reader("all", &[]);
    let without_program = Running::start(&mut unwritten.command("read", &["fifo=out"]));
    let (without_reader, _input) = unread.writer(&[]);
    let (without_room, mut flood) = full.writer(&[]);
    let mut stopped = full.reader("all", &[]);
    full.await_readers(1);
    stopped.signal("-STOP");
    let flooding = std::thread::spawn(move || {
        let _ = flood.write_all(&[b'x'; 1 << 20]);
    });
    until("it is full", || full.state()["head"] != 0);
    let mut all = [
        ("a reader", reader, 0),
        ("a writer whose input is quiet", writer, 0),
        ("a follower", follower, 0),
        ("a reader without a writer", without_writer, 0),
        ("a reader whose FIFO nobody opens", without_program, 0),
        ("a writer without a reader", without_reader, 0),
        // It checks once a second whether the reader in its way is alive.
        ("a writer without room", without_room, 4),
    ];
    // Until all of them sleep for good.
    std::thread::sleep(Duration::from_millis(1500));
    let before = all.each_mut().map(|(_, running, _)| sleeps(running.child().id()));
    std::thread::sleep(Duration::from_millis(1500));
    for ((who, running, most), before) in all.iter_mut().zip(before) {
        let slept = sleeps(running.child().id()) - before;
        assert!(slept <= *most, "{who}: woken {slept} times");
    }
    // They were asleep, not dead.
    stdin.write_all(b" and last").unwrap();
    until("the last", || written.bytes("all") == b"first and last");
    stopped.signal("-KILL");
    flooding.join().unwrap();
}

#[test]
fn what_makes_no_sense_is_one_line_that_says_what_would() {
    let ring = Ring::create(&["size=64k"]);
    check(&ring.run("create", &[]), 1, "this name is in use already");
    let writer = ring.writer(&[]);
    until("the writer", || ring.state()["writing"] == true);
    check(&ring.run("write", &[]), 1, "has a writer already");
    drop(writer);
    std::fs::write(ring.path("notes.txt"), "mine").unwrap();
    let rows: [(&[&str], i32, &str); 24] = [
        (&["create", "x y"], 2, "is no name for a ring"),
        (&["create", ".hidden"], 2, "is no name for a ring"),
        (&["create", ""], 2, "is no name for a ring"),
        (&["create", "./notes.txt"], 1, "is no socket"),
        (&["create", "nowhere/x.sock"], 1, "No such file"),
        (&["create", "./.."], 2, "is the path of no file"),
        (&["create", "./a", "size=lots"], 2, "size: `lots` is not a size"),
        (&["create", "./a", "size=1000G"], 2, "a ring has at most 256G"),
        (&["create", "./a", "size=256G"], 1, "does not fit into the"),
        (&["create", "./a", "kind=z"], 2, "kind: `z` is not one of c, p, v, d"),
        (&["create", "./a", "kind=c", "slots=4"], 2, "a c-ring has none"),
        (&["create", "./a", "slots=1000G"], 2, "slots: a ring has at most"),
        (&["create", "./a", "hold-limit=0"], 2, "hold-limit: "),
        (&["create", "./a", "keep-open=maybe"], 2, "neither yes nor no"),
        (&["create", "./a", "sise=1M"], 2, "did you mean `size`?"),
        (&["create", "./a", "1M"], 2, "options are key=value"),
        (&["read", "./none"], 1, "no ring at"),
        (
            &["write", "streamline-nobody-made-this"],
            1,
            "`streamline pipe create streamline-nobody-made-this` makes one",
        ),
        (&["rm", "./none"], 1, "no ring at"),
        (&["peek", "./none"], 1, "no ring at"),
        (&["read", "./notes.txt"], 1, "notes.txt"),
        (&["read", "./ring.sock", "on-full=explode"], 2, "on-full: `explode` is not one of"),
        (&["read", "./ring.sock", "from=oldest"], 2, "read with on-full=overwrite or shared"),
        (&["write", "./ring.sock", "batch=-1"], 2, "batch: `-1` is not a number"),
    ];
    for (words, code, says) in rows {
        let mut command = Command::new(PROGRAM);
        let output =
            command.arg("pipe").args(words).current_dir(ring.folder.path()).stdin(Stdio::null()).output().unwrap();
        check(&output, code, says);
        assert_eq!(outcome(&output).1.lines().count(), 1, "{words:?}: {}", outcome(&output).1);
    }
    assert_eq!(ring.bytes("notes.txt"), b"mine");
    let mut left: Vec<_> =
        std::fs::read_dir(ring.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    left.retain(|name| Path::new(name).extension().is_none_or(|extension| extension != "lock"));
    assert_eq!(left, ["notes.txt", "ring.sock"]);
}

#[test]
fn rings_have_names_and_a_relative_path_is_the_callers() {
    let ring = Ring::create(&["kind=v", "size=64k"]);
    let folder = tempfile::tempdir().unwrap();
    // The folder of named rings. For root this is the system's folder, so the name must be unique.
    let name = format!("test-{}-named", std::process::id());
    let run = |words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("pipe").args(words).env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    check(&run(&["create", &name, "size=3000"]), 0, "the ring has 4.0 KiB");
    let listed = run(&["ls"]);
    let removed = run(&["rm", &name]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["ring", "kind", "size", "generation", "writer"], "{text}");
    assert!(rows[1..].contains(&vec![&*name, "d", "4.0", "KiB", "1", "no", "0", "0", "B", "0"]), "{text}");
    check(&removed, 0, "");
    std::fs::create_dir(folder.path().join("passing")).unwrap();
    check(&run(&["create", "./passing/../here"]), 0, "");
    std::fs::remove_dir(folder.path().join("passing")).unwrap();
    let there = folder.path().join("here").exists();
    check(&run(&["rm", "./here"]), 0, "");
    assert!(there && !folder.path().join("here").exists());
    assert_eq!(ring.state()["kind"], "v");
}

#[test]
fn a_keeper_is_confined_in_all_its_threads_and_goes_with_its_socket() {
    let ring = Ring::create(&["keep-open=yes", "size=16M", "pages=huge"]);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", ring.keeper())).unwrap();
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000\n")), "{status}");
        }
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        assert_eq!(status.contains("Seccomp:\t2\n"), known.contains("errno"), "{status}");
    }
    // It still serves writers one after the other, each with its own ring.
    let out = ring.reader("out", &[]);
    for part in [0..1000, 1000..2000] {
        let (writer, mut stdin) = ring.writer(&["lines=yes"]);
        ring.await_readers(1);
        stdin.write_all(&lines(part)).unwrap();
        drop(stdin);
        check(&writer.ends(), 0, "");
    }
    until("all of it", || ring.bytes("out") == lines(0..2000));
    check(&ring.run("rm", &[]), 0, "");
    check(&out.ends(), 1, "the ring was removed");
    let left: Vec<_> = std::fs::read_dir(ring.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out"], "socket and lock are gone");
}

/// The policy's `process` is the parent of the process that runs `create`.
#[test]
fn an_ordinary_users_ring_for_one_process_is_made_and_for_that_process_alone() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM]).current_dir(folder.path()).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    };
    check(&run("\"$0\" pipe create ./mine read=process hold=process size=3000 && \"$0\" pipe rm ./mine"), 0, "4.0 KiB");
    check(
        &run("\"$0\" pipe create ./mine read=process && \"$0\" pipe read ./mine"),
        1,
        "also after exec) may read this ring",
    );
    // exec(2) makes the shell that process.
    let reads = "\"$0\" pipe create ./its read=process && { (seq 3 | \"$0\" pipe write ./its lines=yes) & exec \"$0\" pipe read ./its; }";
    let output = run(reads);
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"1\n2\n3\n".to_vec()));
    for ring in ["./mine", "./its"] {
        check(&run(&format!("\"$0\" pipe rm {ring}")), 0, "");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The keeper has no capabilities, but root, which removes the ring, has.
#[test]
fn roots_ring_in_anothers_folder_leaves_nothing_there() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped (rights): only root can make a ring in somebody else's folder");
    }
    let ring = Ring { folder: tempfile::tempdir().unwrap(), name: "./ring.sock".into() };
    std::os::unix::fs::chown(ring.folder.path(), Some(65534), Some(65534)).unwrap();
    check(&ring.run("create", &[]), 0, "");
    check(&ring.run("rm", &[]), 0, "");
    assert_eq!(std::fs::read_dir(ring.folder.path()).unwrap().count(), 0);
}

#[test]
fn a_writer_without_a_reader_says_that_it_waits() {
    let ring = Ring::create(&[]);
    let (mut writer, _input) = ring.writer(&[]);
    let mut said = String::new();
    BufReader::new(writer.child().stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "note: waiting for a reader of the ring (no-wait=yes writes without one)\n");
}
