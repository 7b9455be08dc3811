//! The errors of live capture for a user without rights, and of a daemon without rights: one line that says what would
//! help. Needs root, to become such a user; else skipped.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// The output for a user without rights. `None`: this test is not root.
fn as_nobody(folder: &Path, arguments: &[&str]) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped (rights): not root, and cannot become anybody else");
        return None;
    }
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = Command::new(PROGRAM);
    Some(command.args(arguments).current_dir(folder).uid(65534).gid(65534).output().unwrap())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn who_may_not_capture_hears_what_that_takes_and_where_no_daemon_is() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = as_nobody(folder.path(), &["run", "--local", "ethernet lo | count"]) else { return };
    let text = said(&output);
    assert!(!output.status.success());
    assert!(text.starts_with("error: this process may not capture `lo` ("), "{text}");
    assert!(text.contains("that takes root or a daemon, and it was not to use one"), "{text}");
    assert!(!text.contains("run as root, or through"), "{text}");
    let place = capture::protocol::SOCKET;
    if !Path::new(place).exists() {
        let text = said(&as_nobody(folder.path(), &["run", "ethernet lo | count"]).unwrap());
        assert!(text.contains(&format!("root or a daemon, and no daemon answers at {place}")), "{text}");
    }
}

#[test]
fn check_says_what_a_user_lacks_and_that_the_request_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let locked = folder.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o755)).unwrap();
    let request = "ethernet lo | http | files dir=locked/out";
    let Some(output) = as_nobody(folder.path(), &["check", "--local", request]) else { return };
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"ok\n"[..]), "{}", said(&output));
    let text = said(&output);
    let missing: Vec<&str> = text.lines().collect();
    assert!(
        matches!(missing[..], [right, place]
        if right.starts_with("missing: the right to open `lo`: root has it, or a daemon")
        && place.starts_with("missing: a folder to write locked/out in: locked: Permission denied")),
        "{text}"
    );
}

#[test]
fn a_daemon_that_could_open_no_device_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = as_nobody(folder.path(), &["daemon", "--socket", "control"]) else { return };
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("CAP_")).count(), 1, "{text}");
    assert!(text.starts_with("error: the daemon could open no device: that takes CAP_NET_RAW"), "{text}");
    assert!(!folder.path().join("control").exists());
}

#[test]
fn doctor_knows_a_daemon_that_lets_nobody_in_and_one_that_died() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let listening = daemon::Listening::at(&socket, daemon::MayConnect::Root).unwrap();
    let Some(output) = as_nobody(folder.path(), &["doctor", "--daemon", "control"]) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("this user may not connect to control: Permission denied"), "{text}");
    assert!(text.contains("lets in root and the group `streamline`"), "{text}");
    assert!(!text.contains("as root, starts one"), "{text}");
    std::fs::hard_link(&socket, folder.path().join("left")).unwrap();
    drop(listening);
    let output = Command::new(PROGRAM).args(["doctor", "--daemon"]).arg(folder.path().join("left")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("but the socket of one that has died"), "{text}");
}

#[test]
fn a_daemon_that_only_root_can_reach_says_so() {
    let folder = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped (rights): not root");
    }
    let mut command = Command::new(PROGRAM);
    command.args(["daemon", "--socket", "control"]).current_dir(folder.path()).stderr(Stdio::piped());
    let mut daemon = command.spawn().unwrap();
    let lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map_while(Result::ok);
    // To its end, if it refuses to start.
    let begun: Vec<String> = lines.take_while(|line| !line.starts_with("listening at")).collect();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let text = begun.join("\n");
    if text.contains("could open no device") {
        return eprintln!("skipped (rights): {text}");
    }
    let warns = text.contains("warning: there is no group `streamline`: only root can connect");
    assert_eq!(warns, daemon::policy::group().is_none(), "{text}");
}

#[test]
fn the_variable_for_the_daemon_held_for_programs_only() {
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_streamline"));
        let output = command.args(arguments).env("STREAMLINE_DAEMON", "/var/empty/none").output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let commands: [&[&str]; 3] = [&["run", "ethernet lo | count"], &["ps"], &["net", "ls"]];
    for command in commands {
        let text = said(command);
        assert!(text.contains("/var/empty/none"), "{command:?}: {text}");
    }
    let check: &[&str] = &["check", "flow udp 4000 | count"];
    let send: &[&str] = &["check", "generate count=1 | udp | flow udp to=10.0.0.3:4000"];
    for command in [check, send, &["check", "ethernet lo | count"]] {
        let text = said(command);
        assert!(text.contains("missing: ") && text.contains("/var/empty/none"), "{command:?}: {text}");
    }
    let text = said(&["run", "--local", "--stats", "none", "generate count=1 | count"]);
    assert!(text.starts_with("{\"blocks\":1,"), "--local needs no daemon: {text}");
}

#[test]
fn an_empty_variable_names_no_daemon() {
    let commands: [&[&str]; 4] = [&["ps"], &["doctor"], &["net", "ls"], &["stop", "1"]];
    for command in commands {
        let mut program = Command::new(env!("CARGO_BIN_EXE_streamline"));
        let output = program.args(command).env("STREAMLINE_DAEMON", "").output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!text.contains("a value is required"), "{command:?}: {text}");
    }
}
