//! Interfaces without a device, in a daemon without rights: flows of different users reach each other, and nothing outside.

use crate::net::{LONG, NOBODY, PROGRAM, Running, until};
use capture::client::Client;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const STRANGER: u32 = 54_321;

/// A daemon of [`NOBODY`], whose policy lets every user open flows.
struct Bed {
    folder: tempfile::TempDir,
    daemon: Option<Running>,
}

impl Bed {
    /// `None`: this test cannot become other users.
    fn new() -> Option<Bed> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped (rights): not root");
            return None;
        }
        let mut bed = Bed { folder: tempfile::tempdir().unwrap(), daemon: None };
        std::fs::set_permissions(bed.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let policy = "[[allow]]\neverybody = true\ndevices = [\"test*\"]\nmodes = [\"flow\"]\n";
        std::fs::write(bed.folder.path().join("policy.toml"), policy).unwrap();
        let mut daemon = bed.user(NOBODY, &["daemon", "--loopback", "--config", "policy.toml", "--socket", "control"]);
        daemon.stderr(Stdio::null());
        bed.daemon = Some(Running::start(daemon));
        until("the daemon listens", || Client::connect(&bed.socket(), "a test").is_ok());
        Some(bed)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    fn user(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.folder.path()).uid(user).gid(user);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `streamline net`, run by a user.
    fn net(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = self.user(user, &["net"]);
        command.args(arguments).arg("--daemon").arg(self.socket());
        command
    }

    fn fed(&self, user: u32, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = self.net(user, arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    fn listed(&self) -> String {
        let output = self.net(NOBODY, &["flows"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn flows_of_two_users_reach_each_other_without_a_device() {
    let Some(bed) = Bed::new() else { return };
    let up = ["up", "test0", "--via", "loopback", "--addr", "10.9.0.1/24"];
    let refused = bed.net(STRANGER, &up).output().unwrap();
    assert!(refused.status.code() == Some(1) && said(&refused).contains("only root"), "{}", said(&refused));
    let output = bed.net(NOBODY, &up).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no device"));

    let echoes = ["tcp", "udp"].map(|protocol| Running::start(bed.net(NOBODY, &["echo", protocol, "7000"])));
    until("both listen", || bed.listed().matches("10.9.0.1:7000").count() == 2);
    let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let output = bed.fed(STRANGER, &["cat", "tcp", "--to", "10.9.0.1:7000"], &sent);
    assert!(output.status.success() && output.stdout == sent, "{} bytes; {}", output.stdout.len(), said(&output));
    let output = bed.fed(STRANGER, &["cat", "udp", "--to", "10.9.0.1:7000", "--wait", "2"], b"a datagram\n");
    assert!(output.status.success() && output.stdout == b"a datagram\n", "{output:?}");
    // Other addresses fail: a port without a listener, a neighbour, another network.
    for (to, expected) in [
        ("10.9.0.1:7001", "Connection refused"),
        ("10.9.0.7:7000", "No route to host"),
        ("10.10.0.1:7000", "no interface routes to 10.10.0.1"),
    ] {
        let output = bed.fed(STRANGER, &["cat", "tcp", "--to", to], b"x");
        assert!(!output.status.success() && said(&output).contains(expected), "{to}: {}", said(&output));
    }
    for echo in echoes {
        drop(echo.interrupt());
    }
}

#[test]
fn a_rate_holds_between_flows_of_one_interface() {
    let Some(bed) = Bed::new() else { return };
    let output =
        bed.net(NOBODY, &["up", "test0", "--via", "loopback", "--addr", "10.9.0.1/24", "--rate", "8M"]).output();
    assert!(output.unwrap().status.success());
    let sink = Running::start(bed.net(NOBODY, &["cat", "tcp", "7000"]));
    until("it listens", || bed.listed().contains("10.9.0.1:7000"));
    // 1 byte a microsecond: half a second. The driver may be 10 ms ahead.
    let (sent, begun) = (vec![7; 500_000], Instant::now());
    let output = bed.fed(STRANGER, &["cat", "tcp", "--to", "10.9.0.1:7000", "--slice", "fair"], &sent);
    assert!(output.status.success(), "{}", said(&output));
    let received = sink.end().stdout;
    let took = begun.elapsed();
    assert!(received == sent, "{} bytes", received.len());
    assert!(took > Duration::from_millis(480) && took < LONG, "{took:?}");
}

#[test]
fn an_interface_without_a_device_has_a_name_that_no_device_has() {
    let Some(bed) = Bed::new() else { return };
    for (name, expected) in [
        ("lo", "`lo` is a device of the host"),
        ("a b", "1 to 15 characters"),
        ("", "1 to 15 characters"),
        ("a-name-of-16-bytes", "1 to 15 characters"),
        ("a/b", "1 to 15 characters"),
        ("\u{e9}t\u{e9}", "1 to 15 characters"),
    ] {
        let output = bed.net(NOBODY, &["up", name, "--via", "loopback", "--addr", "10.9.0.1/24"]).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(expected), "{name}: {}", said(&output));
    }
}
