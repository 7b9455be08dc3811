//! Named rings in requests: two requests joined by a ring give the same results as one, and every process ends.

use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(60);

/// A folder with rings that vanish with their users.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command whose words may contain `RING` and `CAPTURES`.
    fn command(&self, words: &[&str]) -> Command {
        let ring = self.path("x.ring").display().to_string();
        let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures");
        let mut command = Command::new(PROGRAM);
        command.args(words.iter().map(|word| word.replace("RING", &ring).replace("CAPTURES", captures)));
        command.current_dir(self.0.path()).env("XDG_RUNTIME_DIR", self.0.path()).env("TMPDIR", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, words: &[&str]) -> Running {
        Running(Some(self.command(words).spawn().unwrap()))
    }

    fn request(&self, request: &str) -> Running {
        self.start(&["run", "--local", request])
    }

    fn run(&self, request: &str) -> Output {
        self.request(request).ended()
    }

    /// The state that the ring's keeper reports. `None`: there is no ring.
    fn state(&self) -> Option<Value> {
        let output = self.command(&["pipe", "ls", "--json", "RING"]).output().unwrap();
        let state = serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take();
        state["error"].is_null().then_some(state)
    }

    /// Waits until the ring has such a user.
    fn await_user(&self, what: &str, is_there: impl Fn(&Value) -> bool) {
        until(what, || self.state().is_some_and(|state| is_there(&state)));
    }

    fn await_ring(&self) {
        self.await_user("a ring", |_| true);
    }

    /// Runs a writer and a reader, each in its own process. The writer starts first.
    fn joined(&self, writer: &str, reader: &str) -> Output {
        let writing = self.request(writer);
        self.await_user("a writer", |state| state["writing"] == true);
        let read = self.run(reader);
        succeeded(&writing.ended());
        succeeded(&read);
        read
    }
}

struct Running(Option<Child>);

impl Running {
    fn kill(&mut self) {
        self.0.as_mut().unwrap().kill().unwrap();
    }

    fn ended(mut self) -> Output {
        let child = self.0.take().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        let (says, said) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || says.send(child.wait_with_output().unwrap()));
        let output = said.recv_timeout(LONG).unwrap_or_else(|_| {
            // The test has not waited for the child yet, so its process id is still valid.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            panic!("it does not end");
        });
        waits.join().unwrap().unwrap();
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

fn failed(output: &Output, status: i32, expected: &str) {
    assert_eq!(output.status.code(), Some(status), "{}", said(output));
    assert!(said(output).contains(expected), "{}", said(output));
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let file = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap_or_default())
    };
    entries.map(file).collect()
}

#[test]
fn two_requests_write_the_files_that_one_writes() {
    for capture in ["browse", "web"] {
        let folder = Folder::new();
        let source = format!("pcap CAPTURES/{capture}.pcap | tcp");
        succeeded(&folder.run(&format!("{source} | http | files dir=one")));
        // Small enough for the writer to wait, and to cut blocks.
        folder.joined(&format!("{source} | ring RING size=4k"), "ring RING | http | files dir=two");
        let one = files(&folder.path("one"));
        assert!(one.len() > 2, "{capture}: there is something to compare");
        assert_eq!(one, files(&folder.path("two")), "{capture}");
        until("the ring goes with its last user", || !folder.path("x.ring").exists());
    }
}

#[test]
fn whatever_goes_between_comes_out_as_it_was() {
    let rows = [
        ("frame", "pcap CAPTURES/browse.pcap", "save -"),
        ("frame", "pcap CAPTURES/browse.pcap | head 20", "tcp | http | json"),
        ("bytes", "pcap CAPTURES/browse.pcap | tcp", "http | json"),
        ("message", "pcap CAPTURES/web.pcap | tcp | http", "json"),
        ("message", "pcap CAPTURES/dns.pcap | udp", "dns | json"),
        ("record", "pcap CAPTURES/dns.pcap | dns", "json"),
        ("record", "pcap CAPTURES/dns.pcap | histogram", "json"),
    ];
    for (of, before, behind) in rows {
        for kind in ["d", "p", "v"] {
            let folder = Folder::new();
            let one = folder.run(&format!("{before} | {behind}"));
            succeeded(&one);
            let slots = if kind == "p" { "slots=16" } else { "slots=0" };
            succeeded(&folder.start(&["pipe", "create", "RING", &format!("kind={kind}"), "size=64k", slots]).ended());
            let two = folder.joined(&format!("{before} | ring RING type={of}"), &format!("ring RING | {behind}"));
            assert!(!one.stdout.is_empty());
            assert_eq!(one.stdout, two.stdout, "{before} | {behind} by a {kind}-ring");
            succeeded(&folder.start(&["pipe", "rm", "RING"]).ended());
        }
    }
}

/// One UDP datagram, then only ARP for ten minutes.
fn quiet_capture() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    let mut add = |second: u32, frame: &[u8]| {
        for word in [second, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    };
    let mut datagram = vec![2; 12];
    datagram.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    datagram.extend([0x10, 0, 0x20, 0, 0, 12, 0, 0, 1, 2, 3, 4]);
    add(1000, &datagram);
    let mut other = vec![2; 12];
    other.extend([8, 6]);
    other.resize(60, 0);
    (1..30_000).for_each(|second| add(1000 + second / 50, &other));
    file
}

#[test]
fn time_goes_on_behind_a_ring_that_is_idle() {
    let folder = Folder::new();
    std::fs::write(folder.path("quiet.pcap"), quiet_capture()).unwrap();
    let idle = |output: &Output| {
        succeeded(output);
        said(output).lines().find(|line| line.contains("flows idle")).map(str::trim).map(String::from)
    };
    let alone = idle(&folder.run("pcap quiet.pcap | bpf udp | udp | drop"));
    assert!(alone.is_some(), "one process ends the flow after its timeout");
    let joined = folder.joined("pcap quiet.pcap | bpf udp | ring RING", "ring RING type=frame | udp | drop");
    assert_eq!(idle(&joined), alone);
}

#[test]
fn a_reader_may_come_first_where_it_says_what_it_reads() {
    let folder = Folder::new();
    failed(&folder.run("ring RING | count"), 2, "nobody has said yet what the ring");
    failed(&folder.start(&["check", "ring RING | count"]).ended(), 2, "type=frame");
    succeeded(&folder.start(&["check", "ring RING type=frame | count"]).ended());
    let reading = folder.request("ring RING type=frame | count | json");
    folder.await_ring();
    succeeded(&folder.run("generate count=1000 | ring RING"));
    let output = reading.ended();
    succeeded(&output);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"blocks\":1000"), "{output:?}");
}

#[test]
fn the_second_user_is_told_of_another_type() {
    let folder = Folder::new();
    let mut reading = folder.request("ring RING type=frame | count");
    folder.await_user("a reader", |state| state["carries"] == "frame");
    failed(&folder.run("pcap CAPTURES/browse.pcap | tcp | ring RING"), 2, "carries `frame`, not `bytes`");
    failed(&folder.start(&["pipe", "write", "RING"]).ended(), 2, "carries `frame`, not `bytes`");
    failed(&folder.run("ring RING type=record | json"), 2, "carries frame, not record");
    reading.kill();
    reading.ended();
    // A writer can also be the first user.
    failed(&folder.run("pcap CAPTURES/browse.pcap | ring RING type=record"), 2, "gets frame, but `type=` says record");
}

#[test]
fn who_asks_for_another_size_than_the_ring_has_is_told() {
    let folder = Folder::new();
    let reading = folder.request("ring RING type=frame size=64K | count");
    folder.await_user("a reader", |state| state["carries"] == "frame");
    let output = folder.run("generate count=10 | ring RING size=4M");
    succeeded(&output);
    assert!(said(&output).contains("was there already, with 65536 bytes: size= changes nothing"), "{}", said(&output));
    let output = reading.ended();
    succeeded(&output);
    assert!(!said(&output).contains("size= changes"), "it made the ring: {}", said(&output));
}

#[test]
fn what_programs_write_is_one_stream_of_bytes() {
    for kind in ["c", "d", "v"] {
        let folder = Folder::new();
        succeeded(&folder.start(&["pipe", "create", "RING", &format!("kind={kind}"), "size=16k"]).ended());
        let text: String = (0..20_000).map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path("in"), &text).unwrap();
        let second = folder.path("y.ring").display().to_string();
        let to_second = folder.request(&format!("ring RING type=bytes | ring {second}"));
        until("the second ring", || folder.path("y.ring").exists());
        let reading = folder.start(&["pipe", "read", &second]);
        let written = std::fs::File::open(folder.path("in")).unwrap();
        let output = folder.command(&["pipe", "write", "RING"]).stdin(written).output().unwrap();
        succeeded(&output);
        succeeded(&to_second.ended());
        let read = reading.ended();
        succeeded(&read);
        assert!(read.stdout == text.as_bytes(), "{kind}: {} bytes of {}", read.stdout.len(), text.len());
        succeeded(&folder.start(&["pipe", "rm", "RING"]).ended());
    }
}

#[test]
fn a_stream_without_blocks_carries_bytes_only() {
    let folder = Folder::new();
    succeeded(&folder.start(&["pipe", "create", "RING", "kind=c"]).ended());
    failed(&folder.run("generate count=1 | ring RING"), 2, "cannot carry frame");
    succeeded(&folder.start(&["pipe", "rm", "RING"]).ended());
}

/// Whether the writer has met a reader. If the reader died before, the writer did not wait for it.
fn met(state: &Value) -> bool {
    state["readers"].as_array().unwrap().iter().any(|reader| !reader["in_force"].is_null())
}

#[test]
fn the_death_of_one_side_ends_the_other() {
    let folder = Folder::new();
    let mut writing = folder.request("generate rate=1k | ring RING");
    folder.await_user("a writer", |state| state["writing"] == true);
    let reading = folder.request("ring RING | count | json");
    folder.await_user("a reader", met);
    writing.kill();
    let output = reading.ended();
    failed(&output, 1, "the writer died");
    assert!(said(&output).contains("writers that died: 1"), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("blocks"), "what came is counted");

    let folder = Folder::new();
    let writing = folder.request("generate rate=1k | ring RING");
    folder.await_user("a writer", |state| state["writing"] == true);
    let mut reading = folder.request("ring RING | count | json");
    folder.await_user("a reader", met);
    reading.kill();
    succeeded(&writing.ended());
}

#[test]
fn what_a_dead_reader_leaves_behind_is_dropped_and_not_rejected() {
    // On one thread, with a filter before the ring, and across a channel.
    for before in ["", "| head 1M", "||"] {
        let folder = Folder::new();
        let pipe = if before == "||" { "" } else { "|" };
        let writing = folder.request(&format!("generate {before} {pipe} ring RING"));
        folder.await_user("a writer", |state| state["writing"] == true);
        let mut reading = folder.request("ring RING | work 1ms | drop");
        folder.await_user("a reader", met);
        reading.kill();
        let output = writing.ended();
        succeeded(&output);
        let said = said(&output);
        let row = said.lines().find(|line| line.starts_with("ring ")).unwrap();
        let [.., rejected, dropped] = row.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{row}") };
        assert!(rejected == "-" && dropped != "-", "{before}: {said}");
    }
}

#[test]
fn who_waits_for_others_can_be_stopped() {
    let folder = Folder::new();
    for request in ["generate | ring RING", "ring RING type=frame | count"] {
        let running = folder.request(request);
        folder.await_ring();
        let process = rustix::process::Pid::from_raw(running.0.as_ref().unwrap().id() as i32).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let output = running.ended();
        assert!(output.status.code().is_some(), "{request}: {}", said(&output));
        until("the ring goes", || !folder.path("x.ring").exists());
    }
}

#[test]
fn a_writer_that_drops_waits_for_nobody_and_counts() {
    let folder = Folder::new();
    succeeded(&folder.run("generate count=100000 | ring RING on-full=drop-newest size=4k"));
    failed(&folder.run("generate count=1 | ring RING on-full=overwrite"), 2, "on-full=wait or on-full=drop-newest");
}

#[test]
fn a_request_does_not_wait_for_itself() {
    let folder = Folder::new();
    for request in [
        "generate count=1 | ring RING + ring RING type=frame | count",
        "ring RING type=frame | head 3 | ring RING",
        "ring RING type=frame | ring y + ring y type=frame | ring RING",
    ] {
        failed(&folder.run(request), 2, "in a circle");
    }
    failed(&folder.run("generate count=1 | { ring RING + ring RING }"), 2, "two writers");
}

#[test]
fn a_rings_policy_holds_for_requests() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to be another user");
        return;
    }
    let folder = Folder::new();
    std::fs::set_permissions(folder.0.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    succeeded(&folder.start(&["pipe", "create", "RING", "read=other", "hold=user", "write=user"]).ended());
    let as_nobody = |request: &str| {
        let mut command = folder.command(&["run", "--local", request]);
        command.uid(65534).gid(65534).output()
    };
    match as_nobody("generate count=1 | ring RING") {
        Err(error) => eprintln!("skipped: another user cannot run this program: {error}"),
        Ok(output) => {
            failed(&output, 1, "only its user may write this ring");
            failed(&as_nobody("ring RING type=frame | count").unwrap(), 1, "only its user may hold this ring");
        }
    }
    succeeded(&folder.start(&["pipe", "rm", "RING"]).ended());
}

#[test]
fn completions_know_rings_and_their_parameters() {
    let folder = Folder::new();
    let complete = |text: &str| {
        let output = folder.start(&["complete", text]).ended();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(complete("ri").contains("ring"), "it begins a chain");
    assert!(complete("pcap x | ri").contains("ring"), "and ends one");
    assert!(complete("ring web type=re").contains("type=record"));
    let ring = folder.path("x.ring").display().to_string();
    succeeded(&folder.start(&["pipe", "create", "RING"]).ended());
    assert!(complete(&format!("ring {}", &ring[..ring.len() - 2])).contains("x.ring"));
    succeeded(&folder.start(&["pipe", "rm", "RING"]).ended());
}

#[test]
fn explain_and_ps_show_it() {
    let folder = Folder::new();
    let explained = folder.start(&["explain", "--local", "ring RING type=frame | tcp | http | ring y"]).ended();
    succeeded(&explained);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("type=frame") && text.contains("ring y"), "{text}");
    assert!(!folder.path("x.ring").exists(), "nothing is made for it");
    let _running = folder.request("ring RING type=frame | count");
    folder.await_ring();
    let mut listed = String::new();
    until("it is listed", || {
        let output = folder.start(&["ps", "--daemon", "/nowhere"]).ended();
        listed = String::from_utf8_lossy(&output.stdout).into_owned();
        listed.contains("type=frame | count")
    });
}
