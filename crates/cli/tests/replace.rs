//! `streamline replace` on requests that follow a file: what goes on, what is finished, what is said. On devices:
//! `live/replacing.rs`.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// It comes to its end by itself.
fn ends(mut watcher: Child) {
    until("who watches comes to the end", || watcher.try_wait().unwrap().is_some());
    assert!(watcher.wait().unwrap().success());
}

/// A request that follows a file, to which a bundled capture comes in two parts.
struct Followed {
    folder: tempfile::TempDir,
    capture: Vec<u8>,
    run: Option<Child>,
}

/// Bytes of the first part: it ends within a record.
const FIRST: usize = 9_000;

impl Followed {
    /// `F` stands for the source.
    fn new(request: &str) -> Followed {
        let folder = tempfile::tempdir().unwrap();
        let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap");
        let capture = std::fs::read(bundled).unwrap();
        std::fs::write(folder.path().join("f.pcap"), &capture[..FIRST]).unwrap();
        std::fs::write(folder.path().join("whole.pcap"), &capture).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", &request.replace('F', "pcap f.pcap follow=yes")]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let followed = Followed { folder, capture, run: Some(command.spawn().unwrap()) };
        until("it can be asked", || followed.ask("watch", &[]).status.success());
        followed
    }

    fn ask(&self, command: &str, arguments: &[&str]) -> Output {
        let id = format!("p{}", self.run.as_ref().unwrap().id());
        Command::new(PROGRAM).arg(command).arg(id).args(arguments).current_dir("/").output().unwrap()
    }

    fn replace(&self, request: &str) -> Output {
        self.ask("replace", &[&request.replace('F', "pcap f.pcap follow=yes")])
    }

    /// Watches, once this returns.
    fn watch(&self, edge: &str, options: &[&str]) -> Child {
        let id = format!("p{}.{edge}", self.run.as_ref().unwrap().id());
        let (mut said, theirs) = std::io::pipe().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["watch", &id]).args(options).stdout(Stdio::null()).stderr(theirs);
        let watcher = command.spawn().unwrap();
        drop(command);
        let (mut line, mut byte) = (Vec::new(), [0]);
        while std::io::Read::read(&mut said, &mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.extend(byte);
        }
        assert!(line.starts_with(b"watching "), "{}", text(&line));
        watcher
    }

    /// The rest of the packets comes, and has gone along this edge when this returns.
    fn grow(&self, edge: &str, blocks: u64) {
        let watcher = self.watch(edge, &["--format", "raw", "--count", &blocks.to_string()]);
        let mut file = std::fs::File::options().append(true).open(self.folder.path().join("f.pcap")).unwrap();
        file.write_all(&self.capture[FIRST..]).unwrap();
        ends(watcher);
    }

    fn stop(&mut self) -> (serde_json::Value, String) {
        let run = self.run.take().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT).unwrap();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (serde_json::from_slice(&output.stderr).unwrap(), text(&output.stdout))
    }

    /// What a folder's index says of its bodies, but for the names, which say when each was first written.
    fn bodies(&self, folder: &str) -> Vec<String> {
        let index = std::fs::read_to_string(self.folder.path().join(folder).join("index.jsonl")).unwrap();
        let mut bodies: Vec<String> = index
            .lines()
            .map(|line| {
                let mut body: serde_json::Value = serde_json::from_str(line).unwrap();
                let file = body.as_object_mut().unwrap().remove("file").unwrap();
                let bytes = std::fs::read(self.folder.path().join(folder).join(file.as_str().unwrap())).unwrap();
                format!("{body} {}", text(&bytes))
            })
            .collect();
        bodies.sort();
        bodies
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(run) = &mut self.run {
            let _ = run.kill();
            let _ = run.wait();
        }
    }
}

/// Records of the file that are whole in its first part.
fn first_records(capture: &[u8]) -> u64 {
    let (mut at, mut count) = (24, 0);
    while at + 16 <= FIRST {
        at += 16 + u32::from_le_bytes(capture[at + 8..at + 12].try_into().unwrap()) as usize;
        count += u64::from(at <= FIRST);
    }
    count
}

#[test]
fn connections_and_bodies_go_on_where_both_requests_begin_alike() {
    let mut followed = Followed::new("F | http | files dir=out");
    let first = first_records(&followed.capture);
    until("the first part is through", || followed.folder.path().join("out").exists());
    let replaced = followed.replace("F | { http | files dir=out + count | json }");
    assert_eq!((replaced.status.code(), text(&replaced.stderr)), (Some(0), String::new()));
    let listed = text(&followed.ask("watch", &[]).stdout);
    assert_eq!(listed.lines().count(), 5, "one edge more: {listed}");
    followed.grow("pcap", 207 - first);
    let (stats, printed) = followed.stop();
    let tcp = |report: &serde_json::Value| {
        let mut nodes = report.as_array().unwrap().iter();
        nodes.find(|node| node["filter"] == "tcp").unwrap()["blocks_in"].clone()
    };
    assert_eq!(stats["filters"][0]["blocks_made"], 207, "it read on where it was");
    assert_eq!((tcp(&stats["before"][0]), tcp(&stats["filters"])), (first.into(), 207.into()));
    assert!(printed.starts_with(&format!("{{\"blocks\":{}", 207 - first)), "{printed}");
    // What went on ends as if nothing had been replaced.
    let mut whole = Command::new(PROGRAM);
    whole.args(["run", "-q", "pcap whole.pcap | http | files dir=whole"]).current_dir(followed.folder.path());
    assert!(whole.status().unwrap().success());
    assert_eq!(followed.bodies("out"), followed.bodies("whole"));
}

#[test]
fn what_is_retired_is_finished_and_what_is_new_begins() {
    let mut followed = Followed::new("F | tcp | files dir=old");
    until("the first part is through", || followed.folder.path().join("old").exists());
    let watched = followed.watch("tcp", &[]);
    let first = first_records(&followed.capture);
    let replaced = followed.replace("F | save new.pcap");
    assert!(replaced.status.success(), "{}", text(&replaced.stderr));
    let index = std::fs::read_to_string(followed.folder.path().join("old/index.jsonl")).unwrap();
    assert!(index.lines().count() > 3 && index.contains("\"state\":"), "{index}");
    ends(watched);
    followed.grow("pcap", 207 - first);
    followed.stop();
    let saved = std::fs::read(followed.folder.path().join("new.pcap")).unwrap();
    let mut at = 24;
    let mut count = 0;
    while at < saved.len() {
        at += 16 + u32::from_le_bytes(saved[at + 8..at + 12].try_into().unwrap()) as usize;
        count += 1;
    }
    assert_eq!(count, 207 - first, "from there on, and nothing twice");
}

#[test]
fn what_is_wrong_is_said_to_who_asked_and_the_request_goes_on() {
    let mut followed = Followed::new("F | http | files dir=out");
    let first = first_records(&followed.capture);
    std::fs::write(followed.folder.path().join("there.pcap"), "x").unwrap();
    std::fs::create_dir(followed.folder.path().join("used")).unwrap();
    std::fs::write(followed.folder.path().join("used/index.jsonl"), "").unwrap();
    let rows: [(&str, i32, &str); 6] = [
        (
            "F | nix",
            2,
            "request:1:26\n   |\n 1 | pcap f.pcap follow=yes | nix\n   |                          ^^^ unknown filter",
        ),
        ("F | http | files", 2, "^"),
        ("F | count bytes=x | json", 2, "^"),
        ("pcap none.pcap follow=yes | json", 2, "^"),
        ("F | save there.pcap", 1, "there.pcap exists"),
        ("F | tcp | files dir=used", 1, "holds the index of an earlier run"),
    ];
    for (request, status, expected) in rows {
        let refused = followed.replace(request);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(status) && said.contains(expected), "{request}: {said}");
    }
    let unknown = Command::new(PROGRAM).args(["replace", "p1", "pcap x | count"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
    followed.grow("pcap", 207 - first);
    let (stats, _) = followed.stop();
    assert!(stats["before"].is_null());
    assert_eq!(stats["filters"][1]["blocks_in"], 207);
}

#[test]
fn who_gives_up_on_a_request_that_is_stopped_has_not_replaced_it() {
    let mut followed = Followed::new("F | http | files dir=out");
    let pid = rustix::process::Pid::from_child(followed.run.as_ref().unwrap());
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let id = format!("p{}", followed.run.as_ref().unwrap().id());
    let mut asking = Command::new(PROGRAM);
    let mut asking = asking.args(["replace", &id, "pcap f.pcap follow=yes | count | json"]).spawn().unwrap();
    // It has asked when it waits in the kernel for the answer's packet.
    let channel = format!("/proc/{}/wchan", asking.id());
    until("it waits", || std::fs::read_to_string(&channel).unwrap_or_default().contains("skb"));
    asking.kill().unwrap();
    asking.wait().unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // What is asked after it is answered after it, or beside it: the request goes on as it was.
    until("it answers", || followed.ask("watch", &[]).status.success());
    std::fs::write(followed.folder.path().join("f.pcap"), &followed.capture).unwrap();
    let (stats, _) = followed.stop();
    assert!(stats["before"].is_null(), "{stats}");
}
