//! Streams and listeners against each other, over a test daemon (`wire`), without privileges. The live tests of crate
//! `cli` run them against the real daemon and the kernel's TCP.

mod ends;
mod exits;
mod streams;
mod wire;

use socket::net::{Options, TcpListener, TcpStream};
use std::net::SocketAddr;
use wire::Wire;

fn options(wire: &Wire) -> Options {
    Options { daemon: wire.socket(), ..Options::default() }
}

/// A listener, and its address.
fn listen(wire: &Wire, at: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind_with(&options(wire), at).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a connection.
fn pair(wire: &Wire) -> (TcpStream, TcpStream) {
    pair_at(wire, "0.0.0.0:0")
}

/// Both ends of a connection to a listener bound at `at`.
fn pair_at(wire: &Wire, at: &str) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(wire, at);
    let near = TcpStream::connect_with(&options(wire), address).unwrap();
    let (far, from) = listener.accept().unwrap();
    assert_eq!((from, near.peer_addr().unwrap()), (near.local_addr().unwrap(), address));
    (near, far)
}

/// Bytes that vary with their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
