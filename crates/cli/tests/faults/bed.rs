//! A test bed: a device, its daemon, readers that account for every packet, and an inventory of the daemon's resources.

use capture::client::Client;
use capture::reader::Found;
use capture::{CaptureReader, CaptureRequest, Ledger};
use kernel::inventory::{self, Object};
use kernel::sys::Hook;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};
use testkit::packets::to_port;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_streamline");

pub const LONG: Duration = Duration::from_secs(60);

#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How often to repeat a step: the value of this variable, or `few`.
pub fn times(variable: &str, few: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// A process that ends with the test.
pub struct Running(Option<Child>);

impl Running {
    pub fn spawn(command: &mut Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(command.spawn().expect("the program was built")))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("not waited for yet"))
    }

    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("it is ours, and not waited for");
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.as_mut().expect("not waited for yet").try_wait().expect("it is ours").is_some()
    }

    pub fn end(mut self) -> Output {
        self.0.take().expect("not waited for yet").wait_with_output().expect("it is ours")
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

pub struct Bed {
    pub pair: Pair,
    folder: tempfile::TempDir,
    policy: Option<PathBuf>,
    pub daemon: Running,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// File descriptors, by kind.
    pub files: BTreeMap<String, usize>,
    pub maps: usize,
    pub threads: BTreeMap<String, usize>,
}

impl Bed {
    /// `None`, with a message, if networks cannot be made.
    pub fn new(policy: Option<&str>) -> Option<Bed> {
        if !may_make_networks() {
            return None;
        }
        let folder = tempfile::tempdir().expect("there is room");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
        let pair = Pair::new();
        let policy = policy.map(|text| {
            let path = folder.path().join("policy.toml");
            std::fs::write(&path, text).expect("there is room");
            path
        });
        let daemon = start(&pair, &folder, policy.as_ref(), Command::new(PROGRAM));
        Some(Bed { pair, folder, policy, daemon })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("control")
    }

    pub fn restart(&mut self) {
        self.daemon = start(&self.pair, &self.folder, self.policy.as_ref(), Command::new(PROGRAM));
    }

    /// Starts another daemon by a command that executes its last arguments.
    pub fn restart_by(&mut self, mut command: Command) {
        command.arg(PROGRAM);
        self.daemon = start(&self.pair, &self.folder, self.policy.as_ref(), command);
    }

    /// Starts another daemon in its own PID namespace. `false`: such a namespace cannot be made.
    pub fn restart_in_pid_namespace(&mut self) -> bool {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        let can =
            Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|status| status.success());
        if can {
            self.restart_by(command);
        }
        can
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket(), "a test").expect("the daemon listens")
    }

    pub fn capture_request(&self) -> CaptureRequest {
        CaptureRequest { device: self.pair.near.name.clone(), sample: 1, ..CaptureRequest::default() }
    }

    pub fn run(&self, request: &str) -> Running {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--stats", "json", "--daemon"]).arg(self.socket());
        Running::spawn(command.arg(request.replace('D', &self.pair.near.name)).current_dir(self.folder.path()))
    }

    pub fn readers(&self) -> usize {
        let state = self.client().state().expect("the daemon answers");
        state.rings.iter().map(|ring| ring.readers.len()).sum()
    }

    /// Limits the daemon's file descriptors. Returns the previous limit.
    pub fn limit_files(&self, files: u64) -> Rlimit {
        let process = self.daemon.pid();
        let limit = Rlimit { current: Some(files), ..rustix::process::getrlimit(Resource::Nofile) };
        set_limit(process, Resource::Nofile, limit)
    }

    /// The daemon's resources while these `clients` are connected, once all short-lived clients are gone.
    pub fn held(&self, clients: usize) -> Held {
        let mut found = held(self.daemon.pid());
        // The thread that accepts clients may keep a socket for a moment after its client has gone.
        let mut alike = 0;
        until("those who asked are gone", || {
            let before = std::mem::replace(&mut found, held(self.daemon.pid()));
            let threads = |name| found.threads.get(name).copied().unwrap_or(0);
            // A new thread has its creator's name at first.
            let are_gone = threads(CLIENT_THREAD) == clients && threads("streamline") == 1;
            alike = if are_gone && found == before { alike + 1 } else { 0 };
            alike == 5
        });
        found
    }

    #[track_caller]
    pub fn await_held(&self, expected: &Held) {
        let (began, mut found) = (Instant::now(), held(self.daemon.pid()));
        while found != *expected {
            assert!(began.elapsed() < LONG, "the daemon held {expected:#?}\nand holds {found:#?}");
            std::thread::sleep(Duration::from_millis(2));
            found = held(self.daemon.pid());
        }
    }

    /// The programs, maps and links the daemon holds.
    pub fn objects(&self) -> BTreeSet<(Object, u32)> {
        objects(self.daemon.pid())
    }

    /// Waits until all of these objects are gone from the kernel.
    pub fn await_gone(&self, objects: &BTreeSet<(Object, u32)>) {
        until("the kernel has nothing of it", || {
            objects.iter().all(|(object, id)| !inventory::exists(*object, *id).expect("root may ask"))
        });
    }

    /// Waits until this daemon has left nothing on the device or in the kernel. `objects` are those that it held.
    pub fn await_nothing_left(&self, objects: &BTreeSet<(Object, u32)>) {
        let near = &self.pair.near;
        until("nothing is attached", || {
            let hooks = || [Hook::TcxIngress, Hook::TcxEgress].map(|hook| inventory::on_hook(near.index, hook));
            let hooks = near.namespace.enter(hooks).expect("its namespace is there");
            hooks.into_iter().all(|ids| ids.expect("root may ask").is_empty())
        });
        self.await_gone(objects);
        until("the device is as it was", || {
            let link = near.link();
            (link.promiscuity, link.xdp) == (0, None)
        });
    }
}

fn start(pair: &Pair, folder: &tempfile::TempDir, policy: Option<&PathBuf>, mut command: Command) -> Running {
    let socket = folder.path().join("control");
    command.arg("daemon").arg("--socket").arg(&socket);
    if let Some(policy) = policy {
        command.arg("--config").arg(policy);
    }
    let daemon = pair.near.namespace.enter(|| Running::spawn(&mut command)).expect("its namespace is there");
    until("the daemon listens", || Client::connect(&socket, "a test").is_ok());
    daemon
}

/// Sets a limit of a process, as that process's user: for another user's process, root may lack the capability. Returns
/// the previous limit.
pub fn set_limit(process: Pid, resource: Resource, limit: Rlimit) -> Rlimit {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).expect("it is alive");
    let id = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|ids| ids.split_whitespace().next()?.parse().ok()).expect("every process has some")
    };
    as_user_of(id("Uid:"), id("Gid:"), || rustix::process::prlimit(Some(process), resource, limit))
        .expect("its user may")
}

/// Does `work` as this user and group. The system need not know the user.
pub fn as_user_of<T: Send>(user: u32, group: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{Gid, Uid, set_thread_res_gid, set_thread_res_uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Changes only this thread, which ends with the work.
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            set_thread_res_gid(group, group, group).expect("root may");
            set_thread_res_uid(user, user, user).expect("root may");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The names of the daemon's threads that serve clients, without their numbers.
const CLIENT_THREAD: &str = "client-";

fn held(process: Pid) -> Held {
    let folder = format!("/proc/{}", process.as_raw_nonzero());
    let mut held = Held { files: BTreeMap::new(), maps: 0, threads: BTreeMap::new() };
    // Threads first: a thread that is gone has closed its files.
    for entry in std::fs::read_dir(format!("{folder}/task")).expect("it is alive").flatten() {
        let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
        let name = name.trim().trim_end_matches(|letter: char| letter.is_ascii_digit());
        *held.threads.entry(name.to_string()).or_default() += 1;
    }
    for entry in std::fs::read_dir(format!("{folder}/fd")).expect("it is alive").flatten() {
        // A descriptor that was closed meanwhile is skipped.
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy();
        let kind = match target.split_once(":[") {
            Some((kind, _)) => kind.to_string(),
            None => target.into_owned(),
        };
        *held.files.entry(kind).or_default() += 1;
    }
    let maps = std::fs::read_to_string(format!("{folder}/maps")).expect("it is alive");
    let is_ring = |line: &&str| ["bpf", "memfd:", "socket:"].iter().any(|what| line.contains(what));
    held.maps = maps.lines().filter(is_ring).count();
    held
}

/// The programs, maps and links a process holds.
fn objects(process: Pid) -> BTreeSet<(Object, u32)> {
    let mut objects = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fdinfo", process.as_raw_nonzero())).expect("it is alive").flatten()
    {
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        for line in text.lines() {
            let known = [("prog_id:", Object::Program), ("map_id:", Object::Map), ("link_id:", Object::Link)];
            for (key, object) in known {
                if let Some(id) = line.strip_prefix(key).and_then(|id| id.trim().parse().ok()) {
                    objects.insert((object, id));
                }
            }
        }
    }
    objects
}

pub fn memory(process: Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).expect("it is alive");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.expect("every process has some") << 10
}

/// A UDP datagram in IPv4 in Ethernet. Its first payload bytes are its number, which also selects its port.
pub fn frame(number: u64) -> Vec<u8> {
    let mut frame = vec![0u8; 60 + (number as usize * 37) % 150];
    frame[..6].fill(0xff);
    frame[6] = 2;
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[36..38].copy_from_slice(&port(number).to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn port(number: u64) -> u16 {
    [53, 80, 443, 8080][number as usize % 4]
}

/// A reader in its own thread. It takes every packet, and checks that exactly the expected ones come.
pub struct Steady {
    position: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Ledger>,
}

impl Steady {
    /// Reads from packet 0 on, which is not sent yet. With `port`, only packets to this port are expected.
    pub fn new(bed: &Bed, port: Option<u16>) -> Steady {
        let client = bed.client();
        let asked = CaptureRequest { program: port.map(to_port).unwrap_or_default(), ..bed.capture_request() };
        let mut reader =
            CaptureReader::new(client.open(&asked).expect("there is room"), None, None).expect("it can be mapped");
        // The daemon's answer shows that it has closed its copies of the descriptors, which must not be counted.
        client.state().expect("it answers");
        reader.keep(Arc::new(client));
        let (position, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (theirs, theirs_ends) = (Arc::clone(&position), Arc::clone(&ends));
        let read = move || {
            let mut next = 0;
            let mut bytes = vec![0; 2048];
            loop {
                // Read the flag before looking: packets sent before the end are then still taken.
                let ends = theirs_ends.load(Ordering::SeqCst);
                while let Found::Packet(packet) = reader.look() {
                    let Some(len) = reader.take_copy(&packet, &mut bytes) else { continue };
                    let number = u64::from_be_bytes(bytes[42..50].try_into().expect("eight bytes"));
                    assert!(number >= next, "packet {number} again, or too late");
                    assert!(port.is_none_or(|port| self::port(number) == port), "packet {number} is not wanted");
                    next = number + 1;
                    assert!(bytes[..len] == frame(number), "packet {number} has other bytes");
                }
                theirs.store(reader.position(), Ordering::SeqCst);
                if ends && reader.position() == reader.memory().next() {
                    return reader.ledger();
                }
                reader.wait(Some(Instant::now() + Duration::from_millis(20)));
            }
        };
        let thread = std::thread::Builder::new().name("steady".into()).spawn(read).expect("there is room");
        Steady { position, ends, thread }
    }

    /// The ledger, once the reader has read all packets.
    pub fn end(self) -> Ledger {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Traffic that runs all the time.
pub struct Traffic {
    sent: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Traffic {
    /// Sends from packet 0 on. It never gets further ahead of these readers than a part of a ring; they must see all packets.
    pub fn new(bed: &Bed, readers: &[&Steady]) -> Traffic {
        let positions: Vec<_> = readers.iter().map(|reader| Arc::clone(&reader.position)).collect();
        let (sent, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (theirs, theirs_end) = (Arc::clone(&sent), Arc::clone(&ends));
        let mut sender = bed.pair.far.sender();
        let send = move || {
            let mut number = 0;
            while !theirs_end.load(Ordering::SeqCst) {
                let behind = positions.iter().map(|position| position.load(Ordering::SeqCst)).min().unwrap_or(number);
                if number - behind.min(number) < 30_000 {
                    for _ in 0..64 {
                        sender.send(&frame(number)).expect("the device is there");
                        number += 1;
                    }
                    theirs.store(number, Ordering::SeqCst);
                }
                // Leave room for other readers, and for packets between sender and device.
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let thread = std::thread::Builder::new().name("traffic".into()).spawn(send).expect("there is room");
        Traffic { sent, ends, thread }
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Waits until `packets` more were sent.
    pub fn more(&self, packets: u64) {
        let aim = self.sent() + packets;
        until("packets are sent", || self.sent() >= aim);
    }

    pub fn end(self) -> u64 {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.sent.load(Ordering::SeqCst)
    }
}

/// Packets that were lost between the two devices, where no reader could see them.
fn dropped_on_the_way(bed: &Bed) -> u64 {
    bed.pair.far.link().counters.get("tx_dropped").expect("every kernel counts them")
}

pub struct Witnesses {
    all: Steady,
    some: Steady,
    none: Steady,
    pub traffic: Traffic,
}

impl Witnesses {
    pub const COUNT: usize = 3;

    /// Starts the readers and the traffic.
    pub fn new(bed: &Bed) -> Witnesses {
        Witnesses::beside(bed, || ()).0
    }

    /// The same. `first` runs after the readers have started and before the first packet is sent.
    pub fn beside<T>(bed: &Bed, first: impl FnOnce() -> T) -> (Witnesses, T) {
        let (all, some, none) = (Steady::new(bed, None), Steady::new(bed, Some(53)), Steady::new(bed, Some(1)));
        let first = first();
        let traffic = Traffic::new(bed, &[&all, &some]);
        (Witnesses { all, some, none, traffic }, first)
    }

    /// Stops the traffic and the readers, and accounts for every packet. Returns the number of packets sent.
    pub fn end(self, bed: &Bed) -> u64 {
        let Witnesses { all, some, none, traffic } = self;
        let client = bed.client();
        let sent = traffic.end();
        until("all that was sent is seen", || {
            let seen = client.state().expect("the daemon answers").rings.iter().map(|ring| ring.seen.0).max();
            seen.is_some_and(|seen| seen + dropped_on_the_way(bed) == sent)
        });
        let dropped = dropped_on_the_way(bed);
        let sent = sent - dropped;
        for (reader, one_in) in [(all, 1), (some, 4), (none, 0)] {
            let ledger = reader.end();
            let Ledger { seen, matched, filtered, delivered, others, lost, waiting, elsewhere, past } = ledger;
            assert_eq!(sent, delivered + lost + filtered, "{ledger:?}");
            assert_eq!((seen, matched + filtered), (sent, sent), "{ledger:?}");
            assert_eq!((others, lost, waiting, elsewhere, past), (0, 0, 0, 0, 0), "{ledger:?}");
            if dropped == 0 {
                assert_eq!(delivered, sent.checked_div(one_in).unwrap_or(0), "{ledger:?}");
            }
        }
        sent
    }
}
