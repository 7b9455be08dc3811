//! An exiting process does not cut its connections off. It is this test program again, directed by its environment.

use crate::wire::Wire;
use crate::{listen, pattern};
use socket::net::TcpStream;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
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

fn check(how: &str) {
    let wire = Wire::new();
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "exits::process_that_writes_and_exits", "--nocapture"]);
    command.env(CHILD, format!("{address} {how}")).env(socket::net::DAEMON, wire.socket());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = vec![0; BYTES - (300 << 10)];
    stream.read_exact(&mut got).unwrap();
    // The rest is in buffers: the process exits and its pipes close before the peer reads it.
    let began = Instant::now();
    let status = child.wait().unwrap();
    child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert!(status.success() && began.elapsed() < Duration::from_secs(20), "{status}");
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
