//! Keepers that give impossible answers. A ring's writer can make a reader connect to any keeper.

use buffer::control;
use buffer::keeper::client::Named;
use buffer::keeper::message::Message;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::time::{Duration, Instant};

#[test]
fn a_keeper_that_talks_without_end_is_not_listened_to_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.sock");
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let talking = std::thread::spawn(move || {
        let client = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
        control::send(&client, &Message::Done, &[]).unwrap();
        let began = Instant::now();
        let talk = || {
            // Until the other side closes.
            while control::send(&client, &Message::Left(7), &[]).is_ok() && began.elapsed() < Duration::from_secs(5) {}
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(talk);
            }
        });
    });
    let named = Named::at(path.to_str().unwrap()).unwrap();
    let began = Instant::now();
    let error = named.map(1, Some(began + Duration::from_millis(200))).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    talking.join().unwrap();
}
