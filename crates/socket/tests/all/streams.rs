//! Bytes both ways, many connections, and nonblocking calls.

use crate::wire::Wire;
use crate::{listen, options, pair, pair_at, pattern};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket::net::{Shutdown, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

fn is_readable(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::try_from(time).unwrap())).unwrap() == 1
}

#[test]
fn bytes_arrive_both_ways_at_once_also_where_packets_get_lost() {
    for (at, loses, len) in
        [("0.0.0.0:0", 0, 4 << 20), ("0.0.0.0:0", 50, 1 << 20), ("[::]:0", 0, 4 << 20), ("[::]:0", 50, 1 << 20)]
    {
        let wire = Wire::new();
        let (near, far) = pair_at(&wire, at);
        assert!(near.local_addr().unwrap().is_ipv4() == at.starts_with('0'));
        wire.lose(loses);
        let sent = pattern(len);
        std::thread::scope(|scope| {
            for end in [&near, &far] {
                let sent = &sent;
                scope.spawn(move || {
                    let mut writer = end;
                    writer.write_all(sent).unwrap();
                    end.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(writer.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
                });
                scope.spawn(move || {
                    let mut got = Vec::new();
                    let mut reader = end;
                    reader.read_to_end(&mut got).unwrap();
                    assert!(got == *sent, "{} bytes", got.len());
                });
            }
        });
    }
}

#[test]
fn many_connections_at_once_each_with_its_own_bytes() {
    const CONNECTIONS: usize = 100;
    let wire = Wire::with_channels(64);
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                let (stream, _) = loop {
                    match listener.accept() {
                        Ok(accepted) => break accepted,
                        // The process is out of file descriptors: the connection waits.
                        Err(error) => assert_eq!(error.kind(), ErrorKind::QuotaExceeded),
                    }
                    std::thread::sleep(Duration::from_millis(5));
                };
                scope.spawn(move || {
                    let mut got = Vec::new();
                    (&stream).read_to_end(&mut got).unwrap();
                    (&stream).write_all(&got).unwrap();
                });
            }
        });
        for number in 0..CONNECTIONS {
            let wire = &wire;
            scope.spawn(move || {
                let mut stream = TcpStream::connect_with(&options(wire), address).unwrap();
                let sent = vec![number as u8; 1000 + number];
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert!(got == sent);
            });
        }
    });
    assert!(wire.clients() > 1, "one connection to the daemon has no room for all");
}

#[test]
fn what_is_ready_can_be_polled() {
    let wire = Wire::new();
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    listener.set_nonblocking(true).unwrap();
    use std::os::fd::AsFd;
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!is_readable(listener.as_fd(), Duration::ZERO));
    let near = TcpStream::connect_with(&options(&wire), address).unwrap();
    assert!(is_readable(listener.as_fd(), Duration::from_secs(10)));
    let (far, _) = listener.accept().unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!is_readable(listener.as_fd(), Duration::ZERO));

    far.set_nonblocking(true).unwrap();
    let mut bytes = [0; 100];
    assert_eq!((&far).read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!is_readable(far.as_fd(), Duration::from_millis(20)));
    (&near).write_all(b"hello").unwrap();
    assert!(is_readable(far.as_fd(), Duration::from_secs(10)));
    assert_eq!((far.peek(&mut bytes[..2]).unwrap(), &bytes[..2]), (2, &b"he"[..]));
    assert_eq!(((&far).read(&mut bytes).unwrap(), &bytes[..5]), (5, &b"hello"[..]));
    assert!(!is_readable(far.as_fd(), Duration::ZERO));

    // Write until nothing fits, then until the other side has read.
    near.set_nonblocking(true).unwrap();
    let mut sent = 5;
    assert!(is_readable(near.writable_fd(), Duration::ZERO));
    while is_readable(near.writable_fd(), Duration::from_millis(100)) {
        sent += (&near).write(&[7; 5000]).unwrap();
    }
    assert_eq!((&near).write(&[7; 5000]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut read = 5;
    while read < sent {
        assert!(is_readable(far.as_fd(), Duration::from_secs(10)), "{read} of {sent}");
        read += (&far).read(&mut [0; 70_000]).unwrap();
    }
    assert!(is_readable(near.writable_fd(), Duration::from_secs(10)));
    drop(near);
    assert!(is_readable(far.as_fd(), Duration::from_secs(10)));
    assert_eq!((&far).read(&mut bytes).unwrap(), 0);
}

#[test]
fn calls_wait_as_long_as_they_are_told() {
    let wire = Wire::new();
    let (near, far) = pair(&wire);
    assert_eq!(near.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    let time = Duration::from_millis(50);
    near.set_read_timeout(Some(time)).unwrap();
    near.set_write_timeout(Some(time)).unwrap();
    assert_eq!((near.read_timeout().unwrap(), near.write_timeout().unwrap()), (Some(time), Some(time)));
    let began = Instant::now();
    assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(began.elapsed() >= time && began.elapsed() < time * 20);
    let error = (&near).write_all(&vec![0; 8 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(far);
}

/// Clones share one connection: an action on one wakes a call that waits on the other.
#[test]
fn a_clone_ends_the_wait_of_the_other() {
    let wire = Wire::new();
    let (near, _far) = pair(&wire);
    let clone = near.try_clone().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (&near).read(&mut [0]));
        std::thread::sleep(Duration::from_millis(50));
        clone.shutdown(Shutdown::Read).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    });
}

/// Quiet connections cost nothing: no packet, and no processor time of their thread.
#[test]
fn idle_connections_do_nothing() {
    let wire = Wire::new();
    let pairs: Vec<_> = (0..50).map(|_| pair(&wire)).collect();
    for (near, _) in &pairs {
        (&*near).write_all(b"hello").unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let (packets, turns) = (wire.packets(), wake_ups());
    std::thread::sleep(Duration::from_secs(1));
    let woke = wake_ups() - turns;
    assert!(wire.packets() == packets, "no packets");
    assert!(woke < 20, "{woke} times");
}

/// How often connection threads of this process slept. Other tests share the process, so the smallest count matters.
fn wake_ups() -> u64 {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() == "streamline tcp" {
            let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            all.extend(line.and_then(|count| count.trim().parse::<u64>().ok()));
        }
    }
    all.into_iter().min().unwrap()
}

#[test]
fn a_port_has_one_listener() {
    let wire = Wire::new();
    let (_held, address) = listen(&wire, "0.0.0.0:8080");
    let taken = TcpListener::bind_with(&options(&wire), address).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[test]
fn threads_that_connect_at_once_share_one_connection_to_the_daemon() {
    const THREADS: usize = 50;
    let wire = Wire::new();
    let (listener, address) = listen(&wire, "0.0.0.0:0");
    let gate = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let connect = || {
            gate.wait();
            TcpStream::connect_with(&options(&wire), address).unwrap()
        };
        let streams: Vec<_> = (0..THREADS).map(|_| scope.spawn(connect)).collect();
        for _ in 0..THREADS {
            listener.accept().unwrap();
        }
        let _streams: Vec<_> = streams.into_iter().map(|thread| thread.join().unwrap()).collect();
        // The other client is the listener's.
        assert_eq!(wire.clients(), 2);
    });
}
