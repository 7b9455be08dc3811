//! What others put where this user looks: sockets that nobody answers at, folders that are somebody else's, texts that
//! terminals obey.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

/// A folder of this user's keepers, for programs that have [`at`] as their place for temporary files.
fn folder_of_this_user(at: &Path) -> PathBuf {
    let folder = at.join(format!("streamline-{}", rustix::process::geteuid().as_raw()));
    std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    folder
}

/// Root looks into such folders, too.
fn streamline(at: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", at).current_dir(at);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn socket(flags: SocketFlags) -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None).unwrap()
}

/// A socket at which nobody can be reached for as long as this lives: all who may wait there are there.
fn full(path: &Path) -> Vec<OwnedFd> {
    let address = SocketAddrUnix::new(path).unwrap();
    let listener = socket(SocketFlags::empty());
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut all = vec![listener];
    loop {
        let waiting = socket(SocketFlags::NONBLOCK);
        match rustix::net::connect(&waiting, &address) {
            Ok(()) => all.push(waiting),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                return all;
            }
        }
    }
}

/// A request that waits for its input, found by `ps`.
fn waiting_request(at: &Path, request: &str) -> Child {
    let child = streamline(at).args(["run", request]).spawn().unwrap();
    let began = Instant::now();
    let id = format!("p{}", child.id());
    while !String::from_utf8_lossy(&ps(at).stdout).contains(&id) {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not listed");
    }
    child
}

fn ps(at: &Path) -> Output {
    let mut command = streamline(at);
    command.args(["ps", "--daemon", "/nowhere"]).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn who_does_not_answer_makes_nobody_wait_for_one_after_the_other() {
    let at = tempfile::tempdir().unwrap();
    let requests = folder_of_this_user(at.path()).join("requests");
    std::fs::DirBuilder::new().mode(0o700).create(&requests).unwrap();
    let mut request = waiting_request(at.path(), "pcap - | count");
    let silent: Vec<_> = (1..60).map(|number| full(&requests.join(format!("{}.sock", 1 << 30 | number)))).collect();
    let began = Instant::now();
    let listed = ps(at.path());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("pcap - | count"), "{listed}");
    drop(silent);
    request.kill().unwrap();
    request.wait().unwrap();
}

#[test]
fn what_others_say_of_their_requests_is_not_for_the_terminal_to_obey() {
    let at = tempfile::tempdir().unwrap();
    let text = "pcap - | tcp | match \"\u{1b}[2J\" | count # \u{1b}]0;owned\u{7}\u{9b}2J";
    let mut request = waiting_request(at.path(), text);
    let listed = String::from_utf8(ps(at.path()).stdout).unwrap();
    let nowhere = format!("p{}.nowhere", request.id());
    let told = String::from_utf8(streamline(at.path()).args(["watch", &nowhere]).output().unwrap().stderr).unwrap();
    assert!(listed.contains("| count #") && told.contains("given by"), "{listed}{told}");
    for shown in [listed, told] {
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }
    request.kill().unwrap();
    request.wait().unwrap();
}
