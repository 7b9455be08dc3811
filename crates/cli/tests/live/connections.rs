//! TCP over flows: `socket::net` in the test's process, and the commands `net serve`, `get` and `perf`, against the
//! kernel's `std::net` on the far side of a pair.
//!
//! A process that ends while it has connections is this test program, started again: see [`child`].

use crate::flows::{command, interface_of, interface_with};
use crate::net::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::Value;
use socket::net::{Options, TcpListener, TcpStream};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{self as kernel, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};
use testkit::link::{Conditions, Link, Side};
use testkit::network::{Pair, may_make_networks, quiet_namespace};
use testkit::random::Random;

/// Marks this process as a child. Holds the daemon's socket, the peer, the bytes to write, and `exits` or `stays`.
const CHILD: &str = "STREAMLINE_TEST_CHILD";

const MIB: usize = 1 << 20;

/// A stream of either TCP, with timeouts.
trait Stream: Sync + Sized
where
    for<'a> &'a Self: Read + Write,
{
    fn finish(&self);
    fn limited(self) -> Self;
}

impl Stream for TcpStream {
    fn finish(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn limited(self) -> TcpStream {
        self.set_read_timeout(Some(LONG)).unwrap();
        self.set_write_timeout(Some(LONG)).unwrap();
        self
    }
}

impl Stream for kernel::TcpStream {
    fn finish(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }

    fn limited(self) -> kernel::TcpStream {
        self.set_read_timeout(Some(LONG)).unwrap();
        self.set_write_timeout(Some(LONG)).unwrap();
        self
    }
}

fn options(net: &Net) -> Options {
    Options { daemon: net.socket(), ..Options::default() }
}

fn connect(net: &Net, peer: &str) -> io::Result<TcpStream> {
    TcpStream::connect_with(&options(net), peer).map(Stream::limited)
}

fn listen(net: &Net, local: &str) -> TcpListener {
    TcpListener::bind_with(&options(net), local).unwrap()
}

fn far_connect(net: &Net, peer: &str) -> kernel::TcpStream {
    net.pair.far.namespace.enter(|| kernel::TcpStream::connect(peer)).unwrap().unwrap().limited()
}

fn far_listen(net: &Net, local: &str) -> kernel::TcpListener {
    net.pair.far.namespace.enter(|| kernel::TcpListener::bind(local)).unwrap().unwrap()
}

fn far_accept(listener: &kernel::TcpListener) -> kernel::TcpStream {
    listener.accept().unwrap().0.limited()
}

/// A connection from a flow to the kernel's side.
fn connected(net: &Net) -> (TcpStream, kernel::TcpStream) {
    let listener = far_listen(net, "10.0.0.1:0");
    let stream = connect(net, &listener.local_addr().unwrap().to_string()).unwrap();
    (stream, far_accept(&listener))
}

/// Random-looking bytes: missing or repeated parts show.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let words = std::iter::repeat_with(|| random.number().to_ne_bytes());
    words.take(count.div_ceil(8)).flatten().take(count).collect()
}

/// Sends bytes, and reads to the end at the same time.
fn exchange<S: Stream>(stream: &S, sent: &[u8]) -> Vec<u8>
where
    for<'a> &'a S: Read + Write,
{
    scope(|scope| {
        scope.spawn(|| {
            let mut writer = stream;
            writer.write_all(sent).unwrap();
            stream.finish();
        });
        let (mut reader, mut got) = (stream, Vec::new());
        reader.read_to_end(&mut got).unwrap();
        got
    })
}

fn cross(net: &Net, count: usize) {
    let [there, back] = [5, 9].map(|seed| bytes(seed, count));
    let (near, far) = connected(net);
    scope(|scope| {
        let far = scope.spawn(|| exchange(&far, &back) == there);
        assert!(exchange(&near, &there) == back, "from the kernel");
        assert!(far.join().unwrap(), "to the kernel");
    });
}

/// A pair of devices connected by a link with these conditions in each direction.
fn with_link(conditions: [Conditions; 2]) -> Option<(Net, Link)> {
    if !may_make_networks() {
        return None;
    }
    let middle = quiet_namespace();
    let pairs = [[&quiet_namespace(), &middle], [&middle, &quiet_namespace()]];
    let [left, right] = pairs.map(|[one, other]| Pair::between(one, other, 1).unwrap());
    let link = Link::between(Side::of_end(&left.far), Side::of_end(&right.near), conditions);
    let net = interface_of(Pair { near: left.near, far: right.far }, &[])?;
    Some((net, link))
}

/// The work of a child process that a test starts, and whose end it sees.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return eprintln!("skipped: other tests start it") };
    let words: Vec<&str> = orders.split(' ').collect();
    let [daemon, peer, count, then] = words[..] else { panic!("{orders}") };
    let options = Options { daemon: daemon.into(), ..Options::default() };
    let mut stream = TcpStream::connect_with(&options, peer).unwrap();
    stream.write_all(&bytes(5, count.parse().unwrap())).unwrap();
    match then {
        "exits" => std::process::exit(7),
        _ => std::thread::sleep(LONG),
    }
}

fn start_child(net: &Net, peer: SocketAddr, count: usize, then: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "connections::child"])
        .env(CHILD, format!("{} {peer} {count} {then}", net.socket().display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    Running::start(command)
}

#[test]
fn many_bytes_go_both_ways_at_once() {
    let Some(net) = interface_with(&[]) else { return };
    cross(&net, 32 * MIB);
}

/// Has the test of links run all rows, with this number of MiB each way on rows without another limit.
const LINKS: &str = "STREAMLINE_LINKS";

/// Links by round-trip time in ms and losses per million, and the MiB to carry without and with [`LINKS`]. Without
/// selective acknowledgements, TCP reaches about 100 kB/s if both are large: those rows carry less.
const LINK_ROWS: &[(u64, u32, usize, usize)] = &[
    (0, 0, 0, 1024),
    (0, 1_000, 8, 1024),
    (0, 10_000, 0, 1024),
    (0, 30_000, 0, 1024),
    (10, 0, 0, 256),
    (10, 1_000, 0, 64),
    (10, 10_000, 4, 32),
    (10, 30_000, 0, 16),
    (100, 0, 4, 64),
    (100, 1_000, 0, 16),
    (100, 10_000, 0, 4),
    (100, 30_000, 0, 2),
];

/// The link loses frames in both directions, duplicates as many, and reorders as many.
#[test]
fn a_link_that_loses_doubles_and_reorders_changes_no_byte() {
    let most = std::env::var(LINKS).ok().map(|most| most.parse::<usize>().expect("a number of MiB"));
    for &(round_trip, lost, mib, all) in LINK_ROWS {
        let mib = most.map_or(mib, |most| most.min(all));
        if mib == 0 {
            continue;
        }
        let there = Conditions {
            delay: Duration::from_millis(round_trip) / 2,
            lost,
            doubled: lost,
            reordered: lost,
            reordered_by: Duration::from_millis(2),
            ..Conditions::default()
        };
        let Some((net, link)) = with_link([there, Conditions { seed: 2, ..there }]) else { return };
        let begun = Instant::now();
        cross(&net, mib * MIB);
        let counts = link.stop();
        let is_as_told = |way: &testkit::link::Counts| [way.lost, way.doubled, way.reordered].map(|count| count > 0);
        assert!(counts.iter().all(|way| is_as_told(way) == [lost > 0; 3]), "{counts:?}");
        if most.is_some() {
            eprintln!("{round_trip} ms, {lost} lost a million, {mib} MiB each way: {:.1?}", begun.elapsed());
        }
    }
}

#[test]
fn what_a_process_wrote_before_its_exit_arrives_over_a_link_that_loses() {
    let there = Conditions { lost: 10_000, ..Conditions::default() };
    let Some((net, link)) = with_link([there, Conditions { seed: 2, ..there }]) else { return };
    let listener = far_listen(&net, "10.0.0.1:0");
    let child = start_child(&net, listener.local_addr().unwrap(), 8 * MIB, "exits");
    let mut stream = far_accept(&listener);
    let mut got = vec![0; 7 * MIB];
    stream.read_exact(&mut got).unwrap();
    // Read the last mebibyte after the process has ended: the windows hold less than that.
    std::thread::sleep(Duration::from_millis(100));
    stream.read_to_end(&mut got).unwrap();
    assert!(got == bytes(5, 8 * MIB));
    assert_eq!(child.end().status.code(), Some(7));
    let counts = link.stop();
    assert!(counts.iter().all(|way| way.lost > 0), "{counts:?}");
}

fn echo_at_once<S: Stream>(count: usize, connect: impl Fn() -> S + Sync)
where
    for<'a> &'a S: Read + Write,
{
    let start = Barrier::new(count);
    scope(|scope| {
        for number in 0..count {
            let (start, connect) = (&start, &connect);
            scope.spawn(move || {
                let sent = bytes(number as u64 + 1, 10_000);
                start.wait();
                assert!(exchange(&connect(), &sent) == sent, "{number}");
            });
        }
    });
}

fn echo<S: Stream + Send + 'static>(accept: impl Fn() -> io::Result<S> + Send + 'static)
where
    for<'a> &'a S: Read + Write,
{
    std::thread::spawn(move || {
        while let Ok(stream) = accept() {
            std::thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
}

#[test]
fn two_hundred_connections_at_once_echo_in_both_directions() {
    let Some(net) = interface_with(&[]) else { return };
    let (far, near) = (far_listen(&net, "10.0.0.1:7000"), listen(&net, "10.0.0.2:7000"));
    echo(move || far.accept().map(|(stream, _)| stream));
    echo(move || near.accept().map(|(stream, _)| stream));
    echo_at_once(200, || connect(&net, "10.0.0.1:7000").unwrap());
    // More than the listener's queue holds: some retry.
    echo_at_once(200, || far_connect(&net, "10.0.0.2:7000"));
}

#[test]
fn each_half_closes_by_itself() {
    let Some(net) = interface_with(&[]) else { return };
    let text = |stream: &mut dyn Read| {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    let (mut near, mut far) = connected(&net);
    near.write_all(b"a question").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(near.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(text(&mut far).unwrap(), "a question");
    far.write_all(b"an answer").unwrap();
    drop(far);
    assert_eq!(text(&mut near).unwrap(), "an answer");

    let (mut near, mut far) = connected(&net);
    far.write_all(b"a question").unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    assert_eq!(text(&mut near).unwrap(), "a question");
    near.write_all(b"an answer").unwrap();
    drop(near);
    assert_eq!(text(&mut far).unwrap(), "an answer");
}

#[test]
fn connections_that_do_not_come_about_say_why() {
    let Some(net) = interface_with(&[]) else { return };
    assert_eq!(connect(&net, "10.0.0.1:4444").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let timeout = Duration::from_millis(500);
    let options = Options { connect_timeout: Some(timeout), ..options(&net) };
    let began = Instant::now();
    let error = TcpStream::connect_with(&options, "10.0.0.77:4444").unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!((timeout..timeout * 3).contains(&took), "{took:?}");
}

#[test]
fn a_program_that_polls_waits_for_connections_and_bytes() {
    let Some(net) = interface_with(&[]) else { return };
    let is_ready = |fd: &dyn AsFd, wait: Duration| {
        let fd = fd.as_fd();
        let timeout = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    let listener = listen(&net, "10.0.0.2:0");
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!is_ready(&listener, Duration::ZERO));
    let mut far = far_connect(&net, &listener.local_addr().unwrap().to_string());
    assert!(is_ready(&listener, LONG));
    let (mut near, peer) = listener.accept().unwrap();
    assert_eq!(peer, far.local_addr().unwrap());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!is_ready(&listener, Duration::ZERO));

    near.set_nonblocking(true).unwrap();
    let mut got = [0; 10];
    for said in [&b"some"[..], b"more"] {
        assert_eq!(near.read(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!is_ready(&near, Duration::ZERO));
        far.write_all(said).unwrap();
        assert!(is_ready(&near, LONG));
        assert_eq!(near.read(&mut got).unwrap(), said.len());
        assert_eq!(&got[..said.len()], said);
    }
    // Fill the buffers of both sides. Then wait until the other side has read.
    let piece = bytes(5, 100_000);
    let mut written = 0;
    let began = Instant::now();
    let full = loop {
        assert!(began.elapsed() < LONG);
        match near.write(&piece) {
            Ok(count) => written += count,
            Err(error) if is_ready(&near.writable_fd(), Duration::from_millis(300)) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    far.read_exact(&mut vec![0; written]).unwrap();
    assert!(is_ready(&near.writable_fd(), LONG));
    drop(far);
    assert!(is_ready(&near, LONG));
    assert_eq!(near.read(&mut got).unwrap(), 0);
}

#[test]
fn resets_are_errors_on_both_sides() {
    let Some(net) = interface_with(&[]) else { return };
    let (mut near, far) = connected(&net);
    near.write_all(b"unread").unwrap();
    assert_eq!(far.peek(&mut [0; 1]).unwrap(), 1);
    // The kernel sends a reset because data was not read (RFC 2525, section 2.17).
    drop(far);
    assert_eq!(near.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(near.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);

    for unread in [false, true] {
        let (near, mut far) = connected(&net);
        if unread {
            far.write_all(b"unread").unwrap();
            assert_eq!(near.peek(&mut [0; 1]).unwrap(), 1);
        } else {
            near.set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(near);
        assert_eq!(far.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset, "unread: {unread}");
    }
}

#[test]
fn the_other_side_of_a_killed_process_is_reset_soon() {
    let Some(net) = interface_with(&[]) else { return };
    let listener = far_listen(&net, "10.0.0.1:0");
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let child = start_child(&net, listener.local_addr().unwrap(), 1, "stays");
            let mut stream = far_accept(&listener);
            stream.read_exact(&mut [0]).unwrap();
            let killed = Instant::now();
            child.signal(Signal::KILL);
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
            killed.elapsed()
        })
        .collect();
    took.sort_unstable();
    assert!(took[2] < Duration::from_millis(100), "{took:?}");
}

/// `net up` for both devices of a second pair: 10.0.1.1 and 10.0.1.2.
fn two_more(net: &Net) {
    let there = &net.pair.near.namespace;
    Pair::named([(there, "one"), (there, "two")], 1).unwrap();
    for (device, address) in [("one", "10.0.1.1/24"), ("two", "10.0.1.2/24")] {
        let output = command(net, 0, &["up", device, "--addr", address, "--via", "af_packet"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn done(net: &Net, words: &[&str]) -> Vec<u8> {
    let output = command(net, NOBODY, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Starts a `net` server as a user without rights, and waits until it listens.
fn start_server(net: &Net, words: &[&str]) -> Running {
    let server = Running::start(command(net, NOBODY, words));
    let process = server.0.as_ref().unwrap().id();
    until("it listens", || {
        let shown: Value = serde_json::from_slice(&done(net, &["flows", "--json"])).unwrap();
        shown["listeners"].as_array().unwrap().iter().any(|listener| listener["process"] == process)
    });
    server
}

/// Runs a program over the kernel's sockets on the far side. `None`: it is not installed.
fn far_run(net: &Net, words: &[&str]) -> Option<Vec<u8>> {
    let run = || Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    match net.pair.far.namespace.enter(run).unwrap() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped (tools): there is no `{}`", words[0]);
            None
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            Some(output.stdout)
        }
    }
}

#[test]
fn serve_and_get_and_perf_work_together_and_with_the_kernels_programs() {
    let Some(net) = interface_with(&[]) else { return };
    two_more(&net);
    let folder = net.path("files");
    std::fs::create_dir(&folder).unwrap();
    let file = bytes(5, 3 * MIB);
    std::fs::write(folder.join("file"), &file).unwrap();
    let serve = |address, port| start_server(&net, &["serve", "files", "--addr", address, "--port", port]);
    let servers = [serve("10.0.1.1", "8080"), serve("10.0.0.2", "8081")];
    assert!(done(&net, &["get", "http://10.0.1.1:8080/file", "--device", "two"]) == file);
    let last = ["get", "http://10.0.1.1:8080/file", "--device", "two", "--range", "-1000"];
    assert!(done(&net, &last) == file[file.len() - 1000..]);
    if let Some(got) = far_run(&net, &["curl", "-sS", "http://10.0.0.2:8081/file"]) {
        assert!(got == file);
    }
    for server in servers {
        let output = server.interrupt();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    let listener = far_listen(&net, "10.0.0.1:8082");
    scope(|scope| {
        let served = &file;
        scope.spawn(move || {
            let stream = far_accept(&listener);
            let head = BufReader::new(&stream).lines().map(Result::unwrap).find(|line| line.starts_with("GET"));
            assert_eq!(head.unwrap(), "GET /file HTTP/1.1");
            let mut writer = &stream;
            write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", served.len()).unwrap();
            writer.write_all(served).unwrap();
        });
        assert!(done(&net, &["get", "http://10.0.0.1:8082/file"]) == file);
    });

    let perfs = [
        start_server(&net, &["perf", "-s", "--addr", "10.0.1.1"]),
        start_server(&net, &["perf", "-s", "--addr", "10.0.0.2"]),
    ];
    let tested = done(&net, &["perf", "10.0.1.1", "--device", "two", "-t", "1", "--json"]);
    let tested: Value = serde_json::from_slice(&tested).unwrap();
    assert!(tested["received_bytes"].as_u64() > Some(MIB as u64), "{tested}");
    for options in [&["-P", "3"][..], &["-R"]] {
        let words = [&["iperf3", "-J", "-t", "1", "-c", "10.0.0.2"], options].concat();
        let Some(said) = far_run(&net, &words) else { break };
        let result: Value = serde_json::from_slice(&said).unwrap();
        let moved = result["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
        assert!(moved > MIB as u64, "{options:?}: {result}");
    }
    let signals = [rustix::process::Signal::INT, rustix::process::Signal::TERM];
    for (server, signal) in perfs.into_iter().zip(signals) {
        server.signal(signal);
        assert!(server.end().status.success(), "{signal:?}");
    }
}

#[test]
fn cat_and_echo_speak_tcp() {
    let Some(net) = interface_with(&[]) else { return };
    let sent = bytes(6, 3 * MIB);
    let echo = start_server(&net, &["echo", "tcp", "4007"]);
    let others = [far_connect(&net, "10.0.0.2:4007"), far_connect(&net, "10.0.0.2:4007")];
    others.iter().for_each(|stream| assert!(exchange(stream, &sent[..MIB]) == sent[..MIB]));
    assert!(echo.interrupt().status.success());

    // Connects. The end of its input ends its sending side.
    std::fs::write(net.path("input"), &sent).unwrap();
    let listener = far_listen(&net, "10.0.0.1:5000");
    let mut cat = command(&net, NOBODY, &["cat", "tcp", "--to", "10.0.0.1:5000"]);
    let cat = Running::start({
        cat.stdin(std::fs::File::open(net.path("input")).unwrap());
        cat
    });
    assert!(exchange(&far_accept(&listener), b"an answer\n") == sent);
    let output = cat.end();
    assert!(output.status.success() && output.stdout == b"an answer\n", "{output:?}");

    // Accepts one connection. The end of its input does not end its output, which fits into a pipe.
    let cat = start_server(&net, &["cat", "tcp", "4000"]);
    let stream = far_connect(&net, "10.0.0.2:4000");
    (&stream).write_all(&sent[..50_000]).unwrap();
    stream.finish();
    assert!(cat.end().stdout == sent[..50_000]);

    let refused = command(&net, NOBODY, &["cat", "tcp", "--to", "10.0.0.1:4444"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("Connection refused"), "{said}");
    let listening = start_server(&net, &["cat", "tcp", "4001"]);
    assert!(listening.interrupt().status.success());
}
