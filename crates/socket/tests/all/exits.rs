//! An exiting process does not cut its connections off, also while it listens. It is this test program again, directed by its environment.

use crate::wire::Wire;
use crate::{listen, options, pattern};
use socket::net::TcpListener;
use socket::net::TcpStream;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "STREAMLINE_TEST_EXIT";
const BYTES: usize = 4 << 20;

/// The child's work; does nothing in the test itself.
#[test]
fn process_that_writes_and_exits() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (address, how) = told.split_once(' ').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&pattern(BYTES)).unwrap();
    match how {
        "dropped" => drop(stream),
        // Keep it open until the process exits.
        _ => std::mem::forget(stream),
    }
    std::process::exit(0);
}

/// As above, with a listener that is open until the end.
#[test]
fn process_that_listens_and_exits() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    println!("listens at {}", listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&pattern(BYTES)).unwrap();
    std::mem::forget((stream, listener));
    match told.as_str() {
        // Its thread-local values are dropped before the process ends.
        "thread" => std::thread::spawn(|| std::process::exit(0)).join().unwrap(),
        _ => std::process::exit(0),
    }
}

fn start(wire: &Wire, test: &str, told: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(CHILD, told).env(socket::net::DAEMON, wire.socket());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn check(how: &str) {
    let wire = Wire::new();
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    let child = start(&wire, "exits::process_that_writes_and_exits", &format!("{address} {how}"));
    let (stream, _) = listener.accept().unwrap();
    check_rest(&wire, child, stream);
}

fn check_listening(how: &str) {
    let wire = Wire::new();
    let mut child = start(&wire, "exits::process_that_listens_and_exits", how);
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.rsplit_once("listens at ").map(|(_, address)| address.to_string()));
    let stream = TcpStream::connect_with(&options(&wire), address.unwrap()).unwrap();
    check_rest(&wire, child, stream);
}

/// Reads what the child writes. The child exits with a part of it in buffers.
fn check_rest(wire: &Wire, mut child: Child, mut stream: TcpStream) {
    let mut got = vec![0; BYTES - (300 << 10)];
    stream.read_exact(&mut got).unwrap();
    // The rest is in buffers: the process exits and its pipes close before the peer reads it.
    let began = Instant::now();
    let status = child.wait().unwrap();
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success() && began.elapsed() < Duration::from_secs(20), "{status}");
    assert_eq!(said, "", "no handler of the exit panics");
    std::thread::sleep(Duration::from_millis(300));
    stream.read_to_end(&mut got).unwrap();
    assert!(got == pattern(BYTES), "{} bytes", got.len());
    drop(stream);
    let began = Instant::now();
    while wire.clients() > 1 {
        assert!(began.elapsed() < Duration::from_secs(30), "the child that lingers ends with the last connection");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn bytes_of_a_dropped_stream_arrive_after_the_exit() {
    check("dropped");
}

#[test]
fn bytes_of_an_open_stream_arrive_after_the_exit() {
    check("open");
}

#[test]
fn bytes_of_an_accepted_stream_arrive_after_the_exit_of_a_process_that_listens() {
    check_listening("main");
}

#[test]
fn bytes_of_an_accepted_stream_arrive_after_an_exit_in_another_thread() {
    check_listening("thread");
}
