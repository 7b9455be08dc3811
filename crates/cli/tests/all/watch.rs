//! `streamline watch` on requests that follow a file: the watched blocks, and no remains. On devices: `live/watching.rs`.

use std::io::{PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Process {
    child: Option<Child>,
    /// Where to read its standard error, if a part was read before.
    said: Option<PipeReader>,
}

impl Process {
    fn start(command: &mut Command) -> Process {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process { child: Some(command.spawn().unwrap()), said: None }
    }

    fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    fn end(mut self) -> Output {
        let mut child = self.child.take().unwrap();
        let began = Instant::now();
        while began.elapsed() < LONG && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that has ended takes no harm.
        let _ = child.kill();
        let mut output = child.wait_with_output().unwrap();
        if let Some(said) = &mut self.said {
            said.read_to_end(&mut output.stderr).unwrap();
        }
        assert!(output.status.code().is_some(), "it did not end by itself: {}", text(&output.stderr));
        output
    }
}

impl Process {
    /// The same for a process whose output was not read.
    fn end_unread(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A request that follows a file. At first the file has only a capture's head, without packets.
struct Followed {
    folder: tempfile::TempDir,
    capture: Vec<u8>,
    run: Option<Process>,
    user: u32,
}

const HEAD: usize = 24;

impl Followed {
    /// `F` stands for the file.
    fn new(request: &str) -> Followed {
        Followed::by(request, rustix::process::geteuid().as_raw())
    }

    fn by(request: &str, user: u32) -> Followed {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
        let capture = std::fs::read(bundled).unwrap();
        std::fs::write(folder.path().join("followed.pcap"), &capture[..HEAD]).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", &request.replace('F', "pcap followed.pcap follow=yes")]);
        command.current_dir(folder.path()).uid(user).gid(user).env_remove("XDG_RUNTIME_DIR");
        let run = Process::start(&mut command);
        let followed = Followed { folder, capture, run: Some(run), user };
        until("it can be asked", || followed.watch("").output().unwrap().status.success());
        followed
    }

    fn process(&self) -> u32 {
        self.run.as_ref().unwrap().id()
    }

    fn watch(&self, edge: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        let dot = if edge.is_empty() { "" } else { "." };
        command.args(["watch", &format!("{}{dot}{edge}", self.process())]).env_remove("XDG_RUNTIME_DIR");
        command
    }

    fn sockets(&self) -> PathBuf {
        match self.user {
            0 => "/run/streamline/requests".into(),
            user => std::env::temp_dir().join(format!("streamline-{user}/requests")),
        }
    }

    /// The number of this process's entries in that folder.
    fn names(&self, process: u32) -> usize {
        let entries = std::fs::read_dir(self.sockets()).into_iter().flatten().flatten();
        let mine = |name: &str| name.split('.').next() == Some(&process.to_string());
        entries.filter(|entry| entry.file_name().to_str().is_some_and(mine)).count()
    }

    fn watching(&self, edge: &str, options: &[&str]) -> Process {
        let (mut said, theirs) = std::io::pipe().unwrap();
        let mut command = self.watch(edge);
        command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(theirs);
        let mut process = Process { child: Some(command.spawn().unwrap()), said: None };
        // The command would keep the writing end open.
        drop(command);
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            assert_eq!(said.read(&mut byte).unwrap(), 1, "{}", text(&line));
            line.push(byte[0]);
        }
        assert!(line.starts_with(b"watching "), "{}", text(&line));
        process.said = Some(said);
        process
    }

    fn grow(&self) {
        let mut file = std::fs::File::options().append(true).open(self.folder.path().join("followed.pcap")).unwrap();
        file.write_all(&self.capture[HEAD..]).unwrap();
    }

    fn stop(&mut self) -> serde_json::Value {
        let run = self.run.take().unwrap();
        run.signal(rustix::process::Signal::INT);
        let output = run.end();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stderr).unwrap()
    }
}

fn dumped(capture: &[u8]) -> Option<String> {
    let tcpdump = Path::new("/usr/bin/tcpdump");
    if !tcpdump.exists() {
        eprintln!("skipped: tcpdump is not installed");
        return None;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let mut command = Command::new(tcpdump);
    command.args(["--time-stamp-precision=nano", "-nn", "-tttt", "-XX", "-r", "-"]);
    let output = command.stdin(std::fs::File::open(file.path()).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn frames_come_out_as_a_capture_that_tcpdump_reads_while_it_runs() {
    let mut followed = Followed::new("F | http | files dir=out");
    let (pcapng, pcap) = (followed.watching("pcap", &[]), followed.watching("0", &["--format", "pcap"]));
    let five = followed.watching("pcap", &["--count", "5", "--format", "lines"]);
    let one = followed.watching("pcap", &["--count", "1", "--format", "lines"]);
    let all = followed.watching("pcap", &["--count", "207"]);
    followed.grow();
    assert_eq!(text(&one.end().stderr), "1 block was seen, none was lost\n");
    let five = five.end();
    assert_eq!((five.status.code(), text(&five.stdout).lines().count()), (Some(0), 5));
    assert_eq!(text(&five.stderr), "5 blocks were seen, none was lost\n");
    assert_eq!(all.end().status.code(), Some(0));
    let counted = followed.stop();
    assert_eq!(counted["filters"][0]["blocks_made"], 207);
    for watched in [pcapng, pcap] {
        let output = watched.end();
        assert!(output.status.success());
        assert_eq!(text(&output.stderr), "207 blocks were seen, none was lost\n", "it ends with the request");
        let Some(seen) = dumped(&output.stdout) else { return };
        assert!(seen == dumped(&followed.capture).unwrap(), "tcpdump sees something else");
    }
}

#[test]
fn what_is_no_frame_is_lines_json_bytes_or_a_capture() {
    let mut followed = Followed::new("F | http | files dir=out");
    let lines = followed.watching("tcp", &["--format", "lines"]);
    let raw = followed.watching("2", &["--format", "raw"]);
    let capture = followed.watching("tcp", &[]);
    let json = followed.watching("http", &["--format", "json"]);
    let all = followed.watching("pcap", &["--count", "207"]);
    followed.grow();
    assert_eq!(all.end().status.code(), Some(0));
    let counted = followed.stop();
    let [lines, raw, capture, json] = [lines, raw, capture, json].map(Process::end);
    let blocks = counted["filters"][2]["blocks_made"].as_u64().unwrap();
    assert_eq!(text(&lines.stdout).lines().count() as u64, blocks);
    assert!(text(&lines.stdout).contains("#0 c>s 192.0.2.42:"), "{}", text(&lines.stdout));
    assert_eq!(raw.stdout.len() as u64, counted["filters"][2]["bytes_out"].as_u64().unwrap());
    let first: serde_json::Value = serde_json::from_str(text(&json.stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&first["event_type"], &first["dest_port"]), (&"http".into(), &80.into()));
    // Classic tools know only that USER0 has one packet per block.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&capture.stdout).unwrap();
    if Path::new("/usr/bin/tcpdump").exists() {
        let copied = Command::new("/usr/bin/tcpdump")
            .args(["-w", "-", "-r", "-"])
            .stdin(std::fs::File::open(file.path()).unwrap())
            .output()
            .unwrap();
        assert!(copied.status.success() && copied.stdout[20] == 147, "{}", text(&copied.stderr));
    }
    for (edge, format) in [("pcap", "json"), ("tcp", "json")] {
        let followed = Followed::new("F | http | files dir=out");
        let output = followed.watch(edge).args(["--format", format]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}

#[test]
fn of_messages_whole_documents_are_counted_and_are_what_a_pipe_gets() {
    let mut followed = Followed::new("F | http | files dir=out");
    let counts = [0, 1, 2, 5];
    let watching = counts.map(|count| followed.watching("http", &["--count", &count.to_string()]));
    let rest = followed.watching("http", &[]);
    followed.grow();
    let seen = watching.map(Process::end);
    followed.stop();
    let all = text(&rest.end().stdout);
    let all: Vec<&str> = all.lines().collect();
    assert!(all.len() > 5);
    for (output, count) in seen.iter().zip(counts) {
        let shown = text(&output.stdout);
        assert_eq!(shown.lines().collect::<Vec<_>>(), all[..count]);
        assert!(output.status.success() && !shown.contains("truncated"), "{shown}");
    }
}

#[test]
fn an_unknown_edge_or_request_says_what_there_is() {
    let followed = Followed::new("F | tcp | http | files dir=out");
    let listed = text(&followed.watch("").output().unwrap().stdout);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let id = followed.process().to_string();
    let [pcap, decap, tcp, http] = ["pcap", "decap", "tcp", "http"].map(|name| format!("{id}.{name}"));
    assert_eq!(
        rows[1..],
        [[&*pcap, "0", "frame"], [&*decap, "1", "frame"], [&*tcp, "2", "bytes"], [&*http, "3", "message"]]
    );
    let unknown = followed.watch("udp").output().unwrap();
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
    let said = text(&unknown.stderr);
    assert!(
        said.contains("has no edge `udp`") && [pcap, decap, tcp, http].iter().all(|name| said.contains(name)),
        "{said}"
    );
    for (id, status, expected) in
        [("1", 1, "no request of yours has the number 1"), ("x", 2, "is no number of a request")]
    {
        let unknown = Command::new(PROGRAM).args(["watch", &format!("{id}.tcp")]).output().unwrap();
        assert_eq!(unknown.status.code(), Some(status));
        assert!(text(&unknown.stderr).contains(expected), "{}", text(&unknown.stderr));
    }
    let shown = Command::new(PROGRAM).args(["ps", "--json"]).env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let mine = shown["requests"].as_array().unwrap().iter().find(|one| one["process"] == followed.process()).unwrap();
    assert_eq!((&mine["id"], mine["edges"].as_array().unwrap().len()), (&id.into(), 4));
}

#[test]
fn it_ends_quietly_when_nobody_reads_and_with_ctrl_c() {
    let followed = Followed::new("F | http | files dir=out");
    let mut closed = followed.watching("tcp", &["--format", "lines"]);
    let interrupted = followed.watching("tcp", &["--format", "lines"]);
    // No blocks come; the command must notice the closed output anyway.
    drop(closed.child.as_mut().unwrap().stdout.take());
    let output = closed.end();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), "0 blocks were seen, none was lost\n"));
    interrupted.signal(rustix::process::Signal::INT);
    let output = interrupted.end();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), "0 blocks were seen, none was lost\n"));
}

#[test]
fn a_request_without_a_daemon_is_stopped_by_its_process_and_by_nobody_else() {
    let mut followed = Followed::new("F | tcp | http | files dir=out");
    let id = followed.process().to_string();
    let stop = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("stop").args(arguments).env_remove("XDG_RUNTIME_DIR");
        command
    };
    for (arguments, status, expected) in [
        (&["abc"][..], 2, "is no number of a request"),
        (&["1"], 1, "no request of yours has the number 1"),
        // The earlier form of the command line.
        (&["p1"], 1, "no request of yours has the number 1"),
        (&[], 2, "--kept <DEVICE>"),
        (&["1", "--kept", "eth0"], 2, "cannot be used with"),
        (&["1", "--client", "5"], 2, "cannot be used with"),
    ] {
        let output = stop(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    if rustix::process::geteuid().is_root() {
        let refused = stop(&[&id]).uid(65534).gid(65534).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    }
    assert!(followed.watch("").output().unwrap().status.success(), "it runs");
    let output = stop(&[&id]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", text(&output.stderr));
    let output = followed.run.take().unwrap().end();
    let counted: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((output.status.code(), &counted["end"]), (Some(0), &"stopped".into()));
}

#[test]
fn killed_watchers_leave_nothing_and_a_killed_request_a_name_that_the_next_takes_away() {
    let mut followed = Followed::new("F | http | files dir=out");
    let process = followed.process();
    let files = || std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let own = (followed.names(process), files());
    for _ in 0..2 {
        let watchers: Vec<Process> = (0..3).map(|_| followed.watching("tcp", &["--format", "raw"])).collect();
        watchers.iter().for_each(|watcher| watcher.signal(rustix::process::Signal::KILL));
        drop(watchers);
        until("their ring goes", || followed.names(process) == own.0);
    }
    let threads = || std::fs::read_dir(format!("/proc/{process}/task")).unwrap().count();
    until("nothing of them is left", || files() <= own.1 && threads() == 3);
    let watcher = followed.watching("tcp", &["--format", "raw"]);
    followed.run.as_ref().unwrap().signal(rustix::process::Signal::KILL);
    drop(followed.run.take());
    let output = watcher.end();
    assert!(text(&output.stderr).contains("the process that ran the request died"), "{}", text(&output.stderr));
    // The next command removes the files that a killed request left: this command, or another test's.
    let _next = Followed::new("F | http | files dir=out");
    assert_eq!(followed.names(process), 0);
}

#[test]
fn only_its_user_and_root_may_watch() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped (rights): only root can be several users");
        return;
    }
    let (nobody, other) = (65534, 65533);
    let followed = Followed::by("F | http | files dir=out", nobody);
    let list = |user: u32| {
        let mut command = followed.watch("");
        command.uid(user).gid(user).output().unwrap()
    };
    assert!(list(nobody).status.success() && list(0).status.success());
    let refused = list(other);
    assert!(text(&refused.stderr).contains("no request of yours"), "{}", text(&refused.stderr));
    // A client that bypasses the folder meets the socket's mode, whatever mode a library sets.
    let socket = followed.sockets().join(format!("{}.sock", followed.process()));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&socket).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let roots = Followed::new("F | http | files dir=out");
    let refused = roots.watch("").uid(nobody).gid(nobody).output().unwrap();
    assert!(text(&refused.stderr).contains("no request of yours"), "{}", text(&refused.stderr));
}

#[test]
fn who_wants_everything_gets_it_and_is_overtaken_where_it_stands_still() {
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--local", "--stats", "json", "generate | count"]).env_remove("XDG_RUNTIME_DIR");
    let run = Process::start(&mut command);
    let watch = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["watch", &format!("{}.generate", run.id()), "--format", "raw", "--lossless"]);
        command.args(options).env_remove("XDG_RUNTIME_DIR");
        command
    };
    until("it can be watched", || watch(&["--count", "1"]).output().unwrap().status.success());
    // Far faster than it can be read: without back-pressure most blocks are lost.
    let output = watch(&["--count", "200000"]).output().unwrap();
    assert_eq!(output.stdout.len(), 200_000 * 64);
    assert!(text(&output.stderr).contains("200000 blocks were seen, none was lost"), "{}", text(&output.stderr));
    // The output is not read: the watcher stands still, and the request goes on.
    let still = Process::start(&mut watch(&[]));
    std::thread::sleep(Duration::from_secs(3));
    run.signal(rustix::process::Signal::INT);
    assert!(run.end().status.success(), "the request waits for nobody for ever");
    let said = text(&still.end_unread().stderr);
    assert!(said.contains("kept the request waiting for longer than a second") && said.contains("were lost"), "{said}");
}
