//! How connections end, orderly and otherwise.

use crate::wire::{ADDRESSES, Wire};
use crate::{listen, options, pair};
use socket::net::{Options, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_written_arrives_after_the_drop_and_the_flows_go() {
    let wire = Wire::new();
    let (near, far) = pair(&wire);
    let sent = vec![9; 200_000];
    (&near).write_all(&sent).unwrap();
    drop(near);
    let mut got = Vec::new();
    (&far).read_to_end(&mut got).unwrap();
    assert!(got == sent);
    assert_eq!(wire.flows(), 2, "the other side has not finished");
    drop(far);
    until("both are closed at the daemon", || wire.flows() == 0);
}

#[test]
fn unread_bytes_and_a_linger_of_0_reset() {
    let wire = Wire::new();
    let (near, far) = pair(&wire);
    (&near).write_all(b"unread").unwrap();
    assert_eq!(far.peek(&mut [0; 6]).unwrap(), 6);
    drop(far);
    assert_eq!((&near).read(&mut [0; 6]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // As in the kernel, the error is reported once.
    assert_eq!((&near).read(&mut [0; 6]).unwrap(), 0);
    assert_eq!((&near).write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    drop(near);

    let (near, far) = pair(&wire);
    near.set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    assert_eq!((&far).read(&mut [0; 6]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(far);
    until("none is left", || wire.flows() == 0);
}

#[test]
fn nobody_listens_and_nobody_answers() {
    let wire = Wire::new();
    for (own, any) in ADDRESSES.into_iter().zip(["0.0.0.0:0", "[::]:0"]) {
        let refused = TcpStream::connect_with(&options(&wire), (own, 9)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let (_listener, address) = listen(&wire, any);
        wire.lose(1);
        let began = Instant::now();
        let hurried = Options { connect_timeout: Some(Duration::from_millis(100)), ..options(&wire) };
        let silent = TcpStream::connect_with(&hurried, address).unwrap_err();
        assert!(silent.kind() == ErrorKind::TimedOut && began.elapsed() < Duration::from_secs(5), "{silent:?}");
        wire.lose(0);
    }
    until("attempts leave no flow", || wire.flows() == 0);
}

#[test]
fn a_listener_that_goes_resets_what_it_did_not_accept() {
    let wire = Wire::new();
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    let streams: Vec<_> = (0..3).map(|_| TcpStream::connect_with(&options(&wire), address).unwrap()).collect();
    // The listener or the daemon still has the other connections.
    let accepted = listener.accept().unwrap();
    drop(listener);
    let mut resets = 0;
    for stream in &streams {
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        resets += u32::from((&*stream).read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
    assert_eq!(resets, 2);
    drop(accepted);
}

#[test]
fn calls_learn_that_the_interface_went() {
    let wire = Wire::new();
    let (near, far) = pair(&wire);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (&near).read(&mut [0]));
        std::thread::sleep(Duration::from_millis(50));
        wire.down();
        assert_eq!(waiting.join().unwrap().unwrap_err().raw_os_error(), Some(100));
    });
    assert_eq!((&far).write(b"x").unwrap_err().raw_os_error(), Some(100));
    assert_eq!((&far).read(&mut [0]).unwrap_err().raw_os_error(), Some(100), "for ever");
}

#[test]
fn there_is_no_daemon() {
    let nowhere = Options { daemon: "/nonexistent/control".into(), ..Options::default() };
    let error = TcpStream::connect_with(&nowhere, "10.0.0.1:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("/nonexistent/control"), "{error}");
}
