//! Filters with `isolate=yes`: their process gives the same results as without one. Its death, a request to stop and
//! the death of the request end everything, with a message and without remains.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

const LONG: Duration = Duration::from_secs(60);

const ENDLESS: &str = "generate file=CAPTURES/web.pcap loop=0 rate=5k | tcp";

fn command(folder: &Path, request: &str) -> Command {
    let captures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../captures");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--local", &request.replace("CAPTURES", captures)]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn written(request: &str) -> (String, Vec<(PathBuf, Vec<u8>)>) {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), request).output().unwrap();
    assert!(output.status.success(), "{request}: {}", text(&output.stderr));
    let found = files(folder.path()).into_iter();
    let relative = found.map(|(path, bytes)| (path.strip_prefix(folder.path()).unwrap().to_owned(), bytes)).collect();
    (text(&output.stdout), relative)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Running {
    child: Option<Child>,
    _folder: tempfile::TempDir,
}

impl Running {
    fn new(request: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let child = command(folder.path(), request).spawn().unwrap();
        let running = Running { child: Some(child), _folder: folder };
        running.isolated(None);
        running
    }

    fn number(&self) -> i32 {
        self.child.as_ref().unwrap().id() as i32
    }

    /// The isolated process, if it is another than `not`.
    fn isolated(&self, not: Option<i32>) -> i32 {
        let is_it = |child: &i32| Some(*child) != not && is_confined(*child) && names(self.number()).is_empty();
        let found = || children(self.number()).into_iter().find(is_it);
        let began = Instant::now();
        loop {
            if let Some(child) = found() {
                return child;
            }
            assert!(began.elapsed() < LONG, "there is no process");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        send(self.number(), signal);
    }

    /// Waits for the end. The request must leave no name behind.
    fn ended(mut self) -> Output {
        let number = self.number();
        let child = self.child.take().unwrap();
        let (says, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || says.send(child.wait_with_output().unwrap()));
        let output = said.recv_timeout(LONG).unwrap_or_else(|_| {
            send(number, rustix::process::Signal::KILL);
            panic!("it does not end");
        });
        assert_eq!(names(number), Vec::<String>::new());
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn send(process: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(process).unwrap(), signal).unwrap();
}

/// The fields of a process's `stat` behind its name: state, parent.
fn stat(process: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_string(), fields.next()?.parse().ok()?))
}

fn children(of: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| stat(*number).is_some_and(|(_, parent)| parent == of)).collect()
}

/// Whether it runs with filtered system calls.
fn is_confined(process: i32) -> bool {
    status(process, "Seccomp:").as_deref() == Some("2")
}

fn status(process: i32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_string())
}

/// The names of a request's rings. Once its processes have opened them, there are none.
fn names(of: i32) -> Vec<String> {
    let folder = buffer::keeper::place::folder().join("isolated");
    let names = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("{of}."))).collect()
}

fn gone(process: i32) {
    let began = Instant::now();
    while stat(process).is_some_and(|(state, _)| state != "Z") {
        assert!(began.elapsed() < LONG, "process {process} goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_process_gives_is_what_its_filters_give() {
    for request in [
        "pcap CAPTURES/browse.pcap | tcp | http ISOLATE | files dir=out",
        "pcap CAPTURES/browse.pcap | http ISOLATE | files dir=out",
        "pcap CAPTURES/browse.pcap | tcp ISOLATE | http | files dir=out",
        "pcap CAPTURES/browse.pcap | http ISOLATE | match \"[a-z]+\" ISOLATE | files dir=out",
        "pcap CAPTURES/browse.pcap | http | match \"[a-z]+\" ISOLATE | files dir=out",
        "pcap CAPTURES/browse.pcap | port |80 tcp ISOLATE | http | files dir=out",
        "pcap CAPTURES/browse.pcap | bpf tcp ISOLATE | http ISOLATE | files dir=out",
        "pcap CAPTURES/browse.pcap | port ISOLATE | { |80 count + |443 count } | json",
        "pcap CAPTURES/dns.pcap | dns ISOLATE | json",
        "pcap CAPTURES/tls.pcap | tls ISOLATE restart=yes | json",
        "pcap CAPTURES/web.pcap | tcp ISOLATE || http ISOLATE | count | json",
    ] {
        let plain = request.replace(" ISOLATE", "").replace(" restart=yes", "");
        let isolated = request.replace("ISOLATE", "isolate=yes");
        assert_eq!(written(&isolated), written(&plain), "{request}");
    }
}

#[test]
fn a_process_can_do_nothing_but_read_and_write_its_rings() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes | drop"));
    let process = running.isolated(None);
    for set in ["CapEff:", "CapPrm:", "CapInh:"] {
        assert_eq!(status(process, set).as_deref(), Some("0000000000000000"), "{set}");
    }
    assert_eq!(status(process, "NoNewPrivs:").as_deref(), Some("1"));
    for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
        let Ok(target) = std::fs::read_link(entry.unwrap().path()) else { continue };
        let target = target.display().to_string();
        let known = ["pipe:", "socket:", "/memfd:", "anon_inode:", "/dev/null"];
        assert!(known.iter().any(|known| target.starts_with(known)), "{target}");
    }
    running.signal(rustix::process::Signal::INT);
    assert!(running.ended().status.success());
}

#[test]
fn the_death_of_a_process_ends_the_request_with_a_word() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes | drop"));
    send(running.isolated(None), rustix::process::Signal::KILL);
    let output = running.ended();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("error: the process of `http` was killed by signal 9 (SIGKILL)"), "{said}");
}

#[test]
fn another_process_goes_on_and_what_was_in_flight_is_counted() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes restart=yes | drop"));
    let first = running.isolated(None);
    // While it is stopped, blocks arrive that it has not taken.
    send(first, rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    send(first, rustix::process::Signal::KILL);
    let second = running.isolated(Some(first));
    assert_eq!(stat(first), None, "a dead process is waited for");
    std::thread::sleep(Duration::from_millis(300));
    running.signal(rustix::process::Signal::INT);
    let output = running.ended();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("was killed by signal 9 (SIGKILL); another one goes on"), "{said}");
    assert!(said.contains("in the process that died"), "{said}");
    assert!(said.contains("from `http`: messages: "), "the second process counted something: {said}");
    gone(second);
}

#[test]
fn processes_that_die_one_after_the_other_end_the_request() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes restart=yes | drop"));
    let mut last = None;
    for _ in 0..6 {
        let process = running.isolated(last);
        send(process, rustix::process::Signal::KILL);
        last = Some(process);
    }
    let output = running.ended();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("that makes 6 within 10 s"), "{said}");
}

#[test]
fn a_request_to_stop_ends_a_process_that_hangs() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes | drop"));
    let process = running.isolated(None);
    send(process, rustix::process::Signal::STOP);
    running.signal(rustix::process::Signal::INT);
    let began = Instant::now();
    let output = running.ended();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("it was killed, and what it had is lost"), "{said}");
    assert!(began.elapsed() < LONG / 2);
    gone(process);
}

#[test]
fn a_process_ends_with_its_request() {
    let running = Running::new(&format!("{ENDLESS} | http isolate=yes | drop"));
    let process = running.isolated(None);
    running.signal(rustix::process::Signal::KILL);
    running.ended();
    gone(process);
}
