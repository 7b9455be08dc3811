//! Objects that other users put where this user's commands look: sockets without an answer, folders of other users,
//! texts with escape sequences.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

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

/// A socket whose queue is full while this value lives: no client can connect.
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

fn waiting_request(at: &Path, request: &str) -> Child {
    let child = streamline(at).args(["run", request]).spawn().unwrap();
    let began = Instant::now();
    let id = format!("{}", child.id());
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
    let nowhere = format!("{}.nowhere", request.id());
    let told = String::from_utf8(streamline(at.path()).args(["watch", &nowhere]).output().unwrap().stderr).unwrap();
    assert!(listed.contains("| count #") && told.contains("given by"), "{listed}{told}");
    for shown in [listed, told] {
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }
    request.kill().unwrap();
    request.wait().unwrap();
}

/// Processor time of a process so far, in ticks (a hundredth of a second).
fn ticks(process: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Connects, once a process listens there.
fn connected(path: &Path) -> OwnedFd {
    let began = Instant::now();
    loop {
        let socket = socket(SocketFlags::empty());
        match rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()) {
            Ok(()) => return socket,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
        }
    }
}

/// More clients connect than the process has files for. That costs it hardly any time, and it answers once they are gone.
fn crowd(path: &Path) {
    let first = connected(path);
    let process = rustix::net::sockopt::socket_peercred(&first).unwrap().pid.as_raw_nonzero().get();
    let crowd: Vec<OwnedFd> = (0..60).map(|_| connected(path)).collect();
    let limit = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let files = || std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let began = Instant::now();
    while files() < 32 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} files, {limit}", files());
    }
    let before = ticks(process);
    std::thread::sleep(Duration::from_secs(1));
    let taken = ticks(process) - before;
    assert!(taken < 25, "{taken} hundredths of a second in one");
    drop((first, crowd));
}

fn with_few_files(at: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 32 && exec \"$0\" \"$@\"", PROGRAM]).args(arguments);
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", at).current_dir(at);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn end_within(command: &mut Command, time: Duration) -> Output {
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() && began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Two users without rights, and a place where both may make folders. `None`: this test may not try.
fn victim_and_stranger() -> Option<([u32; 2], tempfile::TempDir)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped (rights): only root can be several users");
        return None;
    }
    let at = tempfile::tempdir().unwrap();
    std::fs::set_permissions(at.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    Some(([65534, 65533], at))
}

#[test]
fn a_folder_that_somebody_else_made_in_ones_name_is_not_believed() {
    let Some(([victim, stranger], at)) = victim_and_stranger() else { return };
    let folder = at.path().join(format!("streamline-{victim}"));
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(stranger), Some(stranger)).unwrap();
    let as_user = |user: u32| {
        let mut command = streamline(at.path());
        command.uid(user).gid(user);
        command
    };
    let ring = folder.join("diary.sock");
    let mut create = as_user(stranger);
    create.args(["pipe", "create"]).arg(&ring).args(["read=other", "write=other"]);
    let created = create.output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let is_refused = |mut command: Command| {
        let output = end_within(&mut command, Duration::from_secs(10));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("belongs to somebody else"), "{told}");
    };
    for arguments in [&["write", "diary"][..], &["read", "diary"], &["ls"]] {
        let mut command = as_user(victim);
        command.arg("pipe").args(arguments);
        is_refused(command);
    }
    // The process that serves the prefixes of this user's requests must be this user's, wherever it listens.
    let why = streamline::parser::client::Client::connect(&ring, "a test").err().unwrap();
    assert_eq!(why.kind(), std::io::ErrorKind::PermissionDenied, "{why}");
    // Its own user, and another user who knows its path, may use it.
    let removed = as_user(stranger).args(["pipe", "rm"]).arg(&ring).output().unwrap();
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
}

#[test]
fn who_shares_does_not_wait_for_ever_to_be_let_in() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("control");
    let _silent = full(&path);
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(streamline::parser::client::Client::connect(&path, "a test").err()));
    let error = has_ended.recv_timeout(Duration::from_secs(20)).expect("it gives up").expect("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn nobody_waits_for_ever_for_the_keeper_of_a_ring_to_let_it_in() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("ring.sock");
    let _silent = full(&path);
    let (ended, has_ended) = std::sync::mpsc::channel();
    let named = buffer::keeper::client::Named::at(path.to_str().unwrap()).unwrap();
    std::thread::spawn(move || ended.send(named.state().err()));
    let error = has_ended.recv_timeout(Duration::from_secs(20)).expect("it gives up").expect("nobody answers");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn a_keeper_without_files_for_those_who_come_rests() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("ring.sock");
    let path_text = path.to_str().unwrap();
    assert!(with_few_files(at.path(), &["pipe", "create", path_text]).status().unwrap().success());
    crowd(&path);
    let named = buffer::keeper::client::Named::at(path_text).unwrap();
    named.state().unwrap();
    named.remove().unwrap();
}

/// The process that runs shared prefixes, for a daemon that does not exist, and its socket.
struct ParserProcess(Child, PathBuf);

impl ParserProcess {
    fn start(at: &Path, command: impl FnOnce(&[&str]) -> Command) -> ParserProcess {
        let daemon = at.join("no-daemon");
        let path = streamline::parser::socket(&daemon).unwrap();
        let user = rustix::process::geteuid();
        // Root's socket is in another folder, under a name that only this daemon has.
        let path = match user.is_root() {
            true => path,
            false => at.join(format!("streamline-{}/shared", user.as_raw())).join(path.file_name().unwrap()),
        };
        let child = command(&["parser-process", daemon.to_str().unwrap()]).spawn().unwrap();
        let began = Instant::now();
        while !path.exists() {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not listen");
        }
        ParserProcess(child, path)
    }
}

impl Drop for ParserProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        for left in [buffer::control::name::lock_path(&self.1), self.1.clone()] {
            let _ = std::fs::remove_file(left);
        }
    }
}

#[test]
fn who_runs_what_several_share_rests_without_files_for_those_who_come() {
    let at = tempfile::tempdir().unwrap();
    let parser = ParserProcess::start(at.path(), |arguments| with_few_files(at.path(), arguments));
    crowd(&parser.1);
    streamline::parser::client::Client::connect(&parser.1, "a test").unwrap().state().unwrap();
}

#[test]
fn who_is_not_let_in_hears_why() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("ring.sock");
    let created = streamline(at.path()).args(["pipe", "create"]).arg(&path).status().unwrap();
    assert!(created.success());
    let parser = ParserProcess::start(at.path(), |arguments| {
        let mut command = streamline(at.path());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    });
    let crowds: Vec<OwnedFd> = (0..512).map(|at| connected([&path, &parser.1][at % 2])).collect();
    let named = buffer::keeper::client::Named::at(path.to_str().unwrap()).unwrap();
    for _ in 0..20 {
        let told = [
            named.state().err().map(|error| error.to_string()),
            streamline::parser::client::Client::connect(&parser.1, "a test").err().map(|error| error.to_string()),
        ];
        for told in told {
            assert!(told.as_ref().is_some_and(|told| told.contains("256 clients already")), "{told:?}");
        }
    }
    drop(crowds);
    named.remove().unwrap();
}

fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{Gid, Uid, set_thread_res_gid, set_thread_res_uid};
    let work = || {
        // Changes only this thread, which ends with the work.
        let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
        set_thread_res_gid(group, group, group).expect("root may");
        set_thread_res_uid(user, user, user).expect("root may");
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

#[test]
fn strangers_do_not_shut_a_user_out_of_its_own_ring() {
    let Some(([user, stranger], at)) = victim_and_stranger() else { return };
    let path = at.path().join("ring.sock");
    let mut create = streamline(at.path());
    create.args(["pipe", "create"]).arg(&path).args(["read=other"]).uid(user).gid(user);
    let created = create.output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let crowd: Vec<OwnedFd> = as_user(stranger, || (0..300).map(|_| connected(&path)).collect());
    let named = buffer::keeper::client::Named::at(path.to_str().unwrap()).unwrap();
    let told = as_user(user, || named.state().map_err(|error| error.to_string()));
    drop(crowd);
    let removed = as_user(user, || named.remove().map_err(|error| error.to_string()));
    assert_eq!((told.map(drop), removed), (Ok(()), Ok(())));
}

#[test]
fn a_daemon_makes_no_folder_that_others_may_write() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped (rights): a daemon without capabilities does not start");
    }
    let at = tempfile::tempdir().unwrap();
    let folder = at.path().join("new");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0 && exec \"$0\" \"$@\"", PROGRAM, "daemon", "--socket"]).arg(folder.join("control"));
    let mut daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !folder.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "it makes none");
    }
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(mode & 0o022, 0, "{mode:o}");
}

/// A daemon of root that sees this file as `/etc/passwd`. It ends with the test.
struct RootsDaemon<'a> {
    daemon: Child,
    folder: &'a Path,
}

impl RootsDaemon<'_> {
    fn start<'a>(folder: &'a Path, passwd: &str) -> RootsDaemon<'a> {
        let users = folder.join("passwd");
        std::fs::write(&users, passwd).unwrap();
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc/passwd && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script]).arg(&users).args([PROGRAM, "daemon", "--socket"]);
        command.arg(folder.join("control")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let daemon = RootsDaemon { daemon: command.spawn().unwrap(), folder };
        drop(connected(&daemon.socket()));
        // If it answers, it has already become its final user.
        capture::client::Client::connect(&daemon.socket(), "a test").unwrap();
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// All processes whose command line names its socket.
    fn processes(&self) -> Vec<i32> {
        let socket = self.socket();
        let names = |process: &i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == socket.as_os_str().as_encoded_bytes())
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(names).collect()
    }

    /// Ends it, and returns its messages. No process of it is left, and in its folder only the files `left`.
    fn end(mut self, signal: rustix::process::Signal, left: &[&str]) -> String {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.daemon), signal).unwrap();
        self.daemon.wait().unwrap();
        let began = Instant::now();
        while !self.processes().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "something of it runs on: {:?}", self.processes());
        }
        let mut found: Vec<_> =
            std::fs::read_dir(self.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        assert_eq!(found, left);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.daemon.stderr.take().unwrap(), &mut said).unwrap();
        said
    }
}

impl Drop for RootsDaemon<'_> {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn roots_daemon_is_another_users_and_can_do_nothing_that_takes_root() {
    use rustix::process::Signal;
    use rustix::thread::{CapabilitySet, CapabilitySets};
    if victim_and_stranger().is_none() {
        return;
    }
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped (rights): no mount namespace can be made");
    }
    let root = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n";
    let own = format!("{root}streamline:x:54321:54322::/:/bin/sh\n");
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (passwd, name, user, group) in [(own.as_str(), "streamline", 54_321, 54_322), (root, "nobody", 65_534, 65_534)]
    {
        let daemon = RootsDaemon::start(folder.path(), passwd);
        let process = daemon.daemon.id();
        for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
            let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
            for expected in [
                format!("Uid:\t{user}\t{user}\t{user}\t{user}\n"),
                format!("Gid:\t{group}\t{group}\t{group}\t{group}\n"),
                "Groups:\t \n".into(),
            ] {
                assert!(status.contains(&expected), "{status}");
            }
        }
        // The possible actions of such a thread where neither seccomp nor Landlock stops it.
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let victim = rustix::process::Pid::from_child(&sleeper);
        let others = daemon.processes();
        assert_eq!(others.len(), 2, "the daemon, and who removes its socket: {others:?}");
        let remover = others.into_iter().find(|other| *other != process as i32).unwrap();
        let (socket, within) = (daemon.socket(), daemon.folder.join("new"));
        let tried = std::thread::spawn(move || {
            // Changes only this thread, which ends after its tries.
            rustix::thread::set_keep_capabilities(true).unwrap();
            let (uid, gid) = (rustix::thread::Uid::from_raw(user), rustix::thread::Gid::from_raw(group));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            let kept = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
            let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
            rustix::thread::set_capabilities(None, sets).unwrap();
            let kind = |error: std::io::Error| error.kind();
            let remover = rustix::process::Pid::from_raw(remover).unwrap();
            [
                std::fs::read("/etc/shadow").map(drop).map_err(kind),
                std::fs::remove_file(socket).map_err(kind),
                std::fs::write(within, "x").map_err(kind),
                std::fs::write("/proc/sys/kernel/core_pattern", "|/x").map_err(kind),
                std::fs::File::open(format!("/proc/{}/mem", victim.as_raw_nonzero())).map(drop).map_err(kind),
                rustix::process::kill_process(victim, Signal::KILL).map_err(|errno| errno.kind()),
                rustix::process::kill_process(remover, Signal::KILL).map_err(|errno| errno.kind()),
            ]
        });
        let tried = tried.join().unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(tried, [Err(std::io::ErrorKind::PermissionDenied); 7]);
        // A killed daemon leaves its socket, and the next one replaces it. A daemon that is asked to end removes it.
        daemon.end(Signal::KILL, &["control", "control.lock", "passwd"]);
        let said = RootsDaemon::start(folder.path(), passwd).end(Signal::TERM, &["passwd"]);
        assert!(said.contains(&format!("confined to: user {name}, three capabilities")), "{said}");
        assert_eq!(said.contains("there is no user `streamline`"), name == "nobody", "{said}");
    }
}

fn listener(path: &Path, flags: SocketFlags) -> OwnedFd {
    let listener = socket(flags);
    rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    rustix::net::listen(&listener, 16).unwrap();
    listener
}

/// A request of a hostile user, in the folder where other users look for requests. It names any socket as its ring. Root looks.
#[test]
fn a_request_has_nobody_connect_to_anything_but_its_users_own_sockets() {
    use buffer::control;
    use streamline::running::protocol::{Answer, Asked, Question, RingPlace};
    let Some(([stranger, victim], at)) = victim_and_stranger() else { return };
    let folder = |user: u32| {
        let folder = at.path().join(format!("streamline-{user}/requests"));
        as_user(user, || std::fs::DirBuilder::new().mode(0o755).recursive(true).create(&folder)).unwrap();
        folder
    };
    let (strangers, victims) = (folder(stranger), folder(victim));
    // Sockets of another user, and one of root: no client may be sent there.
    let secret = at.path().join("secret.sock");
    let secrets = [
        (secret.clone(), listener(&secret, SocketFlags::NONBLOCK)),
        as_user(victim, || (victims.join("ring.sock"), listener(&victims.join("ring.sock"), SocketFlags::NONBLOCK))),
    ];
    let connected = || secrets.iter().filter(|(_, listens)| rustix::net::accept(listens).is_ok()).count();
    let here = std::process::id() as i32;
    let request = strangers.join(format!("{here}.sock"));
    let (links_out, link_to_folder) = (strangers.join("out.sock"), strangers.join("victims"));
    as_user(stranger, || {
        std::os::unix::fs::symlink(&secret, &links_out).unwrap();
        std::os::unix::fs::symlink(&victims, &link_to_folder).unwrap();
    });
    let watch = || {
        let mut command = streamline(at.path());
        end_within(command.args(["watch", &format!("p{here}.pcap"), "--daemon", "/nowhere"]), Duration::from_secs(20))
    };
    // The request's own socket is a link to another socket of this process, which listens as the searched request.
    as_user(stranger, || std::os::unix::fs::symlink(&secret, &request)).unwrap();
    assert!(String::from_utf8_lossy(&watch().stderr).contains("no request of yours has the number"));
    let listed = String::from_utf8_lossy(&ps(at.path()).stdout).into_owned();
    assert!(!listed.lines().any(|line| line.trim_start().starts_with(&format!("{here} "))), "{listed}");
    assert_eq!(connected(), 0);
    std::fs::remove_file(&request).unwrap();
    let listens = as_user(stranger, || listener(&request, SocketFlags::empty()));
    let elsewhere = strangers.join("../../secret.sock");
    for named in [
        &secret,
        &secrets[1].0,
        &links_out,
        &link_to_folder.join("ring.sock"),
        &elsewhere,
        &strangers.join("."),
        Path::new("ring.sock"),
        Path::new(""),
    ] {
        let done = std::sync::atomic::AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                // A client first checks whether the request is there.
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    let soon = Instant::now() + Duration::from_millis(20);
                    if !control::packets::is_readable(&listens, soon).unwrap() {
                        continue;
                    }
                    let asker = rustix::net::accept(&listens).unwrap();
                    let Ok(Some((asked, _))) = control::receive::<Asked>(&asker) else { continue };
                    assert_eq!(asked, Asked::Question(Question::Watch("pcap".into(), false)));
                    let path = named.display().to_string();
                    let types = filter::Types::of(&[filter::Type::Frame]);
                    let ring = RingPlace { path, types, number: "0".into(), label: "pcap".into() };
                    control::send(&asker, &Answer::Ring(ring), &[]).unwrap();
                }
            });
            let output = watch();
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            output
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = said.contains("elsewhere than in its user's folder") || said.contains("is no socket of user");
        assert!(output.status.code() == Some(1) && is_refused, "{}: {said}", named.display());
        assert_eq!(connected(), 0, "{}: somebody was sent there", named.display());
    }
}
