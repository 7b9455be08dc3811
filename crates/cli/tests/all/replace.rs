//! `streamline replace` on requests that follow a file: the parts that go on, the parts that are finished, and the
//! messages. On devices: `live/replacing.rs`.

use rustix::process::{Resource, Rlimit};
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

fn ends(mut watcher: Child) {
    until("who watches comes to the end", || watcher.try_wait().unwrap().is_some());
    assert!(watcher.wait().unwrap().success());
}

/// A request that follows a file. A bundled capture is written to the file in two parts.
struct Followed {
    folder: tempfile::TempDir,
    capture: Vec<u8>,
    run: Option<Child>,
}

/// Bytes of the first part, which ends within a record.
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
        let id = format!("{}", self.run.as_ref().unwrap().id());
        Command::new(PROGRAM).arg(command).arg(id).args(arguments).current_dir("/").output().unwrap()
    }

    fn replace(&self, request: &str) -> Output {
        self.ask("replace", &[&request.replace('F', "pcap f.pcap follow=yes")])
    }

    /// Watches; it has begun when this returns.
    fn watch(&self, edge: &str, options: &[&str]) -> Child {
        let id = format!("{}.{edge}", self.run.as_ref().unwrap().id());
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

    /// Writes the rest of the packets, and returns when they have passed this edge.
    fn grow(&self, edge: &str, blocks: u64) {
        let watcher = self.watch(edge, &["--format", "raw", "--count", &blocks.to_string()]);
        let mut file = std::fs::File::options().append(true).open(self.folder.path().join("f.pcap")).unwrap();
        file.write_all(&self.capture[FIRST..]).unwrap();
        ends(watcher);
    }

    fn stop(&mut self) -> (serde_json::Value, String) {
        let (stats, printed, notes) = self.stop_noting();
        assert_eq!(notes, "");
        (stats, printed)
    }

    /// The same, with the messages.
    fn stop_noting(&mut self) -> (serde_json::Value, String, String) {
        let run = self.run.take().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT).unwrap();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        let (notes, stats) = said.split_at(said.find("{\n").or(said.find('{')).unwrap());
        (serde_json::from_str(stats).unwrap(), text(&output.stdout), notes.to_string())
    }

    /// The bodies in a folder's index, without the names, which depend on the time of the first write.
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

fn first_records(capture: &[u8]) -> u64 {
    first_records_of(capture, FIRST)
}

fn first_records_of(capture: &[u8], bytes: usize) -> u64 {
    let (mut at, mut count) = (24, 0);
    while at + 16 <= bytes {
        at += 16 + u32::from_le_bytes(capture[at + 8..at + 12].try_into().unwrap()) as usize;
        count += u64::from(at <= bytes);
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
    assert_eq!(listed.lines().count(), 6, "one edge more: {listed}");
    followed.grow("pcap", 207 - first);
    let (stats, printed) = followed.stop();
    let tcp = |report: &serde_json::Value| {
        let mut nodes = report.as_array().unwrap().iter();
        nodes.find(|node| node["filter"] == "tcp").unwrap()["blocks_in"].clone()
    };
    assert_eq!(stats["filters"][0]["blocks_made"], 207, "it read on where it was");
    assert_eq!((tcp(&stats["before"][0]), tcp(&stats["filters"])), (first.into(), 207.into()));
    assert!(printed.starts_with(&format!("{{\"blocks\":{}", 207 - first)), "{printed}");
    // The part that went on ends as if nothing had been replaced.
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
fn files_go_on_in_the_same_folder_behind_other_filters() {
    let mut followed = Followed::new("F | port 80 | http | { files dir=out + json file=all.json }");
    let first = first_records(&followed.capture);
    let index = followed.folder.path().join("out/index.jsonl");
    let lines = || std::fs::read_to_string(&index).unwrap_or_default();
    until("the first part is through", || !lines().is_empty());
    let replaced = followed.replace("F | net 0.0.0.0/0 | http | { files dir=out + json file=all.json }");
    assert_eq!((replaced.status.code(), text(&replaced.stderr)), (Some(0), String::new()));
    let before = lines();
    assert!(before.contains(r#""state":"truncated""#), "a body was under way: {before}");
    followed.grow("pcap", 207 - first);
    let (stats, _) = followed.stop();
    assert_eq!(stats["before"].as_array().unwrap().len(), 1);
    assert!(lines().starts_with(&before) && lines().len() > before.len());
    let names: Vec<String> = lines().lines().map(|line| line.split('"').nth(3).unwrap().to_string()).collect();
    let mut numbers: Vec<u64> = names.iter().map(|name| name.split('-').nth(1).unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=names.len() as u64).collect::<Vec<_>>(), "no number twice, and none left out");
    followed.bodies("out");
    let count = followed.folder.path().join("out").read_dir().unwrap().count();
    assert_eq!(count, names.len() + 1, "all files are listed");
    let json = std::fs::read_to_string(followed.folder.path().join("all.json")).unwrap();
    let bodies = json.lines().filter(|line| !line.contains(r#""length":0,"#)).count();
    assert_eq!(bodies, names.len(), "a line for each body: {json}");
}

#[test]
fn a_capture_goes_on_behind_other_filters() {
    let mut followed = Followed::new("F | port | save all.pcap");
    let first = first_records(&followed.capture);
    until("the first part is through", || followed.folder.path().join("all.pcap.part").exists());
    for request in ["F | save all.pcap", "F | vlan 9 | save all.pcap", "F | net 0.0.0.0/0 | save all.pcap"] {
        let replaced = followed.replace(request);
        assert_eq!((replaced.status.code(), text(&replaced.stderr)), (Some(0), String::new()), "{request}");
    }
    let refused = followed.replace("F | save all.pcap precision=us");
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("`all.pcap` is written by the request that runs, and `save` has other parameters"), "{said}");
    let refused =
        text(&followed.replace("F | { save all.pcap precision=us + match regex=\"(\" | count | json }").stderr);
    assert!(!refused.contains("all.pcap` is written") && refused.contains('^'), "{refused}");
    followed.grow("pcap", 207 - first);
    // Frames of another link type cannot be in the same classic file: they are left out, and the earlier ones stay.
    let mut raw = followed.capture.clone();
    raw[20..24].copy_from_slice(&101_u32.to_le_bytes());
    std::fs::write(followed.folder.path().join("raw.pcap"), raw).unwrap();
    let replaced = followed.replace("pcap raw.pcap follow=yes | save all.pcap");
    assert!(replaced.status.success(), "{}", text(&replaced.stderr));
    let watcher = followed.watch("pcap", &["--format", "raw"]);
    let (stats, _, notes) = followed.stop_noting();
    ends(watcher);
    assert!(
        notes.contains("frames since the request was replaced are left out: a classic pcap file has one"),
        "{notes}"
    );
    assert_eq!(stats["filters"][1]["dropped"]["another link type than the file's"], 207, "{stats}");
    let saved = std::fs::read(followed.folder.path().join("all.pcap")).unwrap();
    assert_eq!(first_records_of(&saved, saved.len()), 207);
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
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown.stderr));
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
    let id = format!("{}", followed.run.as_ref().unwrap().id());
    let mut asking = Command::new(PROGRAM);
    let mut asking = asking.args(["replace", &id, "pcap f.pcap follow=yes | count | json"]).spawn().unwrap();
    // It has asked once it waits in the kernel for the answer's packet.
    let channel = format!("/proc/{}/wchan", asking.id());
    until("it waits", || std::fs::read_to_string(&channel).unwrap_or_default().contains("skb"));
    asking.kill().unwrap();
    asking.wait().unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // Later questions are answered later or in parallel. The request goes on as before.
    until("it answers", || followed.ask("watch", &[]).status.success());
    std::fs::write(followed.folder.path().join("f.pcap"), &followed.capture).unwrap();
    let (stats, _) = followed.stop();
    assert!(stats["before"].is_null(), "{stats}");
}

/// Runs this request, replaces it by each of the others in turn, and ends it. Returns its output and messages.
fn replaced_while_it_runs(requests: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--stats", "json", requests[0]]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let capture = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures/web.pcap")).unwrap();
    let mut run = Followed { folder, capture, run: Some(command.spawn().unwrap()) };
    until("it can be asked", || run.ask("watch", &[]).status.success());
    for request in &requests[1..] {
        let output = run.replace(request);
        assert!(output.status.success(), "{request}: {}", text(&output.stderr));
    }
    let (_, printed, notes) = run.stop_noting();
    (printed, notes)
}

/// One of these records counts every frame, and each record begins where the previous one ended.
fn frames_follow(printed: &str, what: &str) {
    let mut next = 0;
    for line in printed.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| record[key].as_u64().unwrap();
        for key in ["lost", "gaps", "repeated", "late", "unnumbered"] {
            assert_eq!(number(key), 0, "{what}: {line}");
        }
        if number("frames") > 0 {
            assert_eq!(number("first"), next, "{what}: {printed}");
            next = number("last") + 1;
            assert_eq!(number("frames"), next - number("first"), "{what}: {line}");
        }
    }
    assert!(next > 0, "{what}: {printed}");
}

#[test]
fn no_frame_is_lost_where_requests_in_stages_are_replaced() {
    const ALONE: &str = "generate sequence=yes | sequence | json";
    const TWO: &str = "generate sequence=yes || sequence | json";
    const THREE: &str = "generate sequence=yes || sequence || json";
    const SLOW: &str = "generate sequence=yes || work 20us | sequence || json";
    const SLOW_END: &str = "generate sequence=yes || head 1000M || sequence || work 3us | json";
    let rows: [&[&str]; 5] = [
        &[ALONE, THREE, ALONE, TWO, ALONE],
        &[TWO, THREE, TWO, SLOW, THREE, SLOW_END, TWO],
        &[SLOW, ALONE, SLOW, ALONE, SLOW_END, ALONE, SLOW],
        &[THREE, SLOW_END, SLOW, SLOW_END, SLOW, SLOW_END, THREE],
        &[THREE, ALONE, THREE, ALONE, THREE, ALONE, THREE, ALONE],
    ];
    for requests in rows {
        let (printed, notes) = replaced_while_it_runs(requests);
        frames_follow(&printed, &format!("{requests:?} {notes}"));
    }
}

#[test]
fn a_stage_goes_on_with_its_state_where_others_are_replaced() {
    let requests = [
        "generate sequence=yes || sequence || json",
        "generate sequence=yes || { sequence || json + work 5us || drop }",
    ];
    let (printed, _) = replaced_while_it_runs(&[requests[0], requests[1], requests[0], requests[1]]);
    assert_eq!(printed.lines().count(), 1, "one `sequence` saw them all: {printed}");
    frames_follow(&printed, "a branch comes and goes");
}

/// The index and the bodies of a capture in two parts, with the request replaced in between.
fn bodies_of(first: &str, others: &[&str]) -> Vec<String> {
    let mut run = Followed::new(first);
    for other in others {
        let output = run.replace(other);
        assert!(output.status.success(), "{other}: {}", text(&output.stderr));
    }
    run.grow("pcap", 100);
    std::thread::sleep(Duration::from_millis(300));
    run.stop_noting();
    run.bodies("out")
}

#[test]
fn bodies_are_the_same_whatever_stages_they_went_through() {
    let whole = bodies_of("F || tcp | http | files dir=out", &[]);
    assert!(whole.len() > 3);
    let rows: [&[&str]; 2] = [
        &["F || tcp | http | files dir=out", "F || { tcp | http | files dir=out + count || drop }"],
        &["set workers=2; F | tcp | http | files dir=out", "set workers=2; F | { tcp | http | files dir=out + drop }"],
    ];
    for requests in rows {
        assert_eq!(bodies_of(requests[0], &requests[1..]), whole, "{requests:?}");
    }
    // If `files` moves to another stage, it ends open files, and writes on in the same folder.
    let bytes = |bodies: &[String]| bodies.iter().map(|body| body.split_once("} ").unwrap().1.len()).sum::<usize>();
    let rows: [&[&str]; 3] = [
        &["F || tcp | http || files dir=out", "F || tcp | http | files dir=out", "F || tcp | http || files dir=out"],
        &["F || tcp | http | files dir=out", "F || tcp | http || files dir=out"],
        &["set workers=2; F | tcp | http || files dir=out", "F | tcp | http || files dir=out"],
    ];
    for requests in rows {
        assert_eq!(bytes(&bodies_of(requests[0], &requests[1..])), bytes(&whole), "{requests:?}");
    }
    // Other workers start with empty state: the old ones end an open connection.
    for other in ["set workers=3; F | http | files dir=out", "F | http | files dir=out", "F || http | files dir=out"] {
        assert!(!bodies_of("set workers=2; F | http | files dir=out", &[other]).is_empty(), "{other}");
        assert!(!bodies_of(other, &["set workers=2; F | http | files dir=out"]).is_empty(), "{other}");
    }
}

#[test]
fn a_failed_replacement_leaves_all_stages_running() {
    let mut run = Followed::new("F || tcp | http || files dir=out");
    for (wrong, says) in [
        ("F || nosuch", "nosuch"),
        ("F || tcp || save /nowhere/x.pcap", "nowhere"),
        ("set workers=2000; F | http | files dir=out", "workers"),
    ] {
        let output = run.replace(wrong);
        assert!(!output.status.success() && text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    run.grow("pcap", 100);
    std::thread::sleep(Duration::from_millis(300));
    run.stop_noting();
    assert_eq!(run.bodies("out"), bodies_of("F || tcp | http | files dir=out", &[]));
}

/// The channels of the new stages need more file descriptors than the process may have.
#[test]
fn a_replacement_that_gets_no_channels_leaves_what_ran_untouched() {
    let mut followed = Followed::new("F || tcp | count | json");
    let process = rustix::process::Pid::from_child(followed.run.as_ref().unwrap());
    let limited = |files: Option<u64>| {
        let limit = Rlimit { current: files, ..rustix::process::getrlimit(Resource::Nofile) };
        rustix::process::prlimit(Some(process), Resource::Nofile, limit).unwrap();
    };
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).unwrap().count();
    // The process takes the connection of the one that asks, and not all of the 20 channels.
    limited(Some(open as u64 + 8));
    let next = format!("F {} || count | json", "|| ip ".repeat(19));
    let refused = followed.replace(&next);
    let said = text(&refused.stderr);
    assert!(said.contains("no channel between threads can be made"), "{said}");
    assert_eq!(refused.status.code(), Some(1), "{said}");
    limited(rustix::process::getrlimit(Resource::Nofile).current);
    let first = first_records(&followed.capture);
    followed.grow("pcap", 207 - first);
    let (_, printed) = followed.stop();
    assert!(printed.contains("\"blocks\":"), "the count of the first request: {printed}");
}

#[test]
fn a_request_of_which_a_stage_has_ended_is_not_replaced_and_goes_on() {
    let mut run = Followed::new("{ F || tcp | http | files dir=out }; { generate count=1 || drop }");
    // The small request has ended once its threads have.
    std::thread::sleep(Duration::from_millis(300));
    let output = run.replace("F || tcp | http | files dir=out");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("a part of it that runs on a thread of its own"), "{said}");
    run.grow("pcap", 100);
    std::thread::sleep(Duration::from_millis(300));
    run.stop_noting();
    assert_eq!(run.bodies("out"), bodies_of("F || tcp | http | files dir=out", &[]));
}
