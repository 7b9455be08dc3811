//! `streamline top` on a daemon: stopped readers, and the end of the command.

use crate::budget::EVERYBODY;
use crate::net::*;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use testkit::network::may_make_networks;

fn top(net: &Net, interval: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["top", "--interval", interval, "--daemon"]).arg(net.socket()).stdin(Stdio::null());
    command
}

fn started(net: &Net, interval: &str) -> (Running, ChildStdout) {
    let mut child = top(net, interval).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    (Running(Some(child)), stdout)
}

#[test]
fn where_nothing_runs_it_says_so() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(Some(EVERYBODY));
    // Root would see the requests of all users, of other tests too; this one sees its own, of which there are none.
    let mut stranger = top(&net, "0.1");
    stranger.args(["--count", "1"]).uid(NOBODY).gid(NOBODY).env("XDG_RUNTIME_DIR", net.path("none"));
    let output = stranger.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && shown.starts_with("nothing runs: "), "{shown}");
    let readers = net.read(&["ethernet D | bpf \"udp\" | drop"]);
    let output = top(&net, "0.1").args(["--count", "1"]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("packets/s") && shown.contains(net.device()) && !shown.contains("nothing"), "{shown}");
    // A stopped reader does not answer; its losses are reported all the same.
    let mut sender = net.pair.far.sender();
    readers[0].signal(rustix::process::Signal::STOP);
    let frame = datagram(0, 53, 1400);
    until("a stopped reader's losses are told", || {
        // More than its ring of 32 MiB holds.
        (0..26_000).for_each(|_| sender.send(&frame).unwrap());
        let output = top(&net, "0.1").args(["--count", "1"]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("stopped"), "{shown}");
        shown.contains("stopped, lost ")
    });
    readers[0].signal(rustix::process::Signal::CONT);
    readers.into_iter().for_each(|reader| {
        reader.interrupt();
    });
}

#[test]
fn it_ends_quietly_when_nobody_reads_also_between_two_views() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let (reads_one, stdout) = started(&net, "0.1");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let (reads_none, stdout) = started(&net, "3600");
    drop(stdout);
    for mut ending in [reads_one, reads_none] {
        until("it ends", || ending.has_ended());
        let ended = ending.end();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), said.as_str()), (Some(0), ""));
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = top(&net, "0.1").stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("No space left"), "{said}");
}

#[test]
fn purposes_are_shown_and_not_obeyed() {
    if !may_make_networks() {
        return;
    }
    let net = Net::new(None);
    let readers = net.read(&["ethernet D | count # \u{1b}[2J\u{9b}2J\u{202e}\u{feff}\u{e0041}\n# forged"]);
    for command in [&["ps"][..], &["top", "--interval", "0.1", "--count", "1"]] {
        for json in [&[][..], &["--json"]] {
            if command[0] == "top" && !json.is_empty() {
                continue;
            }
            let mut ask = Command::new(PROGRAM);
            let output = ask.args(command).args(json).arg("--daemon").arg(net.socket()).output().unwrap();
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success() && shown.contains("| count # "), "{command:?}: {shown}");
            let unfit = shown.chars().find(|one| base::terminal::is_unfit(*one) && *one != '\n');
            assert_eq!(unfit, None, "{command:?}: {shown:?}");
            assert!(!shown.lines().any(|line| line.starts_with("# forged")), "{shown}");
        }
    }
    readers.into_iter().for_each(|reader| {
        reader.interrupt();
    });
}
