//! Polling both ends: when the descriptors of a reader and a writer are ready, also while the ring changes its size.

use super::*;

fn writable_in(writer: &mut PipeWriter, room: usize, wait: Duration) -> bool {
    let fd = writer.poll_fd(room).unwrap();
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&timeout)).unwrap() > 0
}

const LONG: Duration = Duration::from_secs(5);

#[test]
fn the_descriptor_is_writable_as_long_as_there_is_room() {
    for kind in RingKind::ALL {
        for signalling in [Signalling::Every, Signalling::Batched(32), Signalling::Never] {
            let (_local, mut writer, mut reader) = Local::pair(Geometry::new(kind, 4096, 16), signalling).unwrap();
            writer.set_non_blocking(true);
            reader.set_non_blocking(true);
            for round in 0..20 {
                let mut full = 0;
                // A slot of a p-ring has 256 bytes; a stream takes a part if there is no room for all.
                while writable_in(&mut writer, 200, Duration::ZERO) {
                    assert_eq!(writer.write(&[7; 200]).unwrap(), 200, "{kind:?} {signalling:?} {round}");
                    full += 200;
                    assert!(full <= 4096);
                }
                assert!(full >= 16 * 200 || kind != RingKind::P, "{kind:?}");
                if kind != RingKind::C {
                    assert_eq!(kind_of(writer.write(&[7; 200])), Err(libc::EAGAIN), "{kind:?}");
                }
                assert!(!writable_in(&mut writer, 200, Duration::from_millis(2)), "{kind:?}");
                assert!(writable_in(&mut writer, 5000, Duration::ZERO), "{kind:?}: what can never fit fails at once");
                assert!(!writable_in(&mut writer, 200, Duration::ZERO), "{kind:?}");
                let mut rest = vec![0; full];
                reader.read_exact(&mut rest).unwrap();
                // The look for more tells the writer what was taken.
                assert!(reader.peek().is_err());
                assert!(writable_in(&mut writer, 200, LONG), "{kind:?} {signalling:?}");
            }
        }
    }
}

#[test]
fn room_for_much_takes_longer_than_room_for_little() {
    for kind in [RingKind::C, RingKind::V, RingKind::D] {
        let (_local, mut writer, mut reader) = Local::pair(Geometry::new(kind, 4096, 64), Signalling::Every).unwrap();
        writer.set_non_blocking(true);
        reader.set_non_blocking(true);
        for _ in 0..4 {
            writer.write_all(&[1; 900]).unwrap();
        }
        reader.read_exact(&mut [0; 3600]).unwrap();
        assert!(reader.peek().is_err(), "all was read, and said");
        assert!(writable_in(&mut writer, 3000, LONG), "{kind:?}");
        writer.write_all(&[2; 2000]).unwrap();
        assert!(!writable_in(&mut writer, 3000, Duration::ZERO), "{kind:?}");
        assert!(writable_in(&mut writer, 1000, Duration::ZERO), "{kind:?}");
    }
}

#[test]
fn who_polls_for_room_writes_everything_whoever_is_faster() {
    for kind in RingKind::ALL {
        let (_local, mut writer, mut reader) =
            Local::pair(Geometry::new(kind, 4096, 16), Signalling::default()).unwrap();
        writer.set_non_blocking(true);
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            got
        });
        let mut expected = Vec::new();
        for n in 0..3000 {
            let bytes = block(n);
            let mut done = 0;
            while done < bytes.len() {
                assert!(writable_in(&mut writer, 1, LONG), "{kind:?}: block {n}");
                match writer.write(&bytes[done..]) {
                    Ok(len) => done += len,
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{kind:?}");
                        assert!(writable_in(&mut writer, bytes.len() - done, LONG), "{kind:?}: block {n}");
                    }
                }
            }
            expected.extend(bytes);
        }
        drop(writer);
        assert!(reading.join().unwrap() == expected, "{kind:?}");
    }
}

#[test]
fn a_first_reader_and_the_last_ones_leaving_make_it_writable() {
    for kind in RingKind::ALL {
        let kept = Kept::new(kind, false);
        let mut writer = kept.writer();
        writer.set_non_blocking(true);
        assert!(!writable_in(&mut writer, 1, Duration::from_millis(20)), "{kind:?}: nobody reads");
        let name = kept.name.clone();
        let coming = std::thread::spawn(move || OpenOptions::new().read(&name).unwrap());
        assert!(writable_in(&mut writer, 1, LONG), "{kind:?}");
        writer.write_all(b"x").unwrap();
        let reader = coming.join().unwrap();
        while writable_in(&mut writer, 100, Duration::ZERO) {
            let _ = writer.write(&[1; 100]).unwrap();
        }
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            drop(reader);
        });
        assert!(writable_in(&mut writer, 100, LONG), "{kind:?}: a write would fail");
        leaving.join().unwrap();
        assert_eq!(kind_of(writer.write(b"y")), Err(libc::EPIPE), "{kind:?}");
        assert!(writable_in(&mut writer, 100, Duration::ZERO), "{kind:?}");

        let unread = Kept::new(kind, false);
        let mut writer = unread.writer();
        writer.set_non_blocking(true);
        assert!(!writable_in(&mut writer, 1, Duration::ZERO));
        drop(unread);
        assert!(writable_in(&mut writer, 1, LONG), "{kind:?}: nobody will ever read");
        assert_eq!(kind_of(writer.write(b"y")), Err(libc::EPIPE), "{kind:?}");
    }
}

#[test]
fn who_holds_for_too_long_or_drops_is_not_waited_for() {
    for kind in RingKind::ALL {
        let (local, mut writer, first) = Local::pair(Geometry::new(kind, 4096, 16), Signalling::Every).unwrap();
        let _slow = local.reader(OnFull::Wait, Some(Duration::from_millis(30)), From::Next).unwrap();
        writer.set_non_blocking(true);
        drop(first);
        while writable_in(&mut writer, 100, Duration::ZERO) {
            let _ = writer.write(&[1; 100]).unwrap();
        }
        assert!(writable_in(&mut writer, 100, LONG), "{kind:?}: it is demoted");
        let _dropping = local.reader(OnFull::DropNewest, None, From::Next).unwrap();
        for _ in 0..100 {
            assert!(writable_in(&mut writer, 100, Duration::ZERO), "{kind:?}");
            assert_eq!(writer.write(&[1; 100]).unwrap(), 100, "{kind:?}");
        }
        let dropped = writer.stat().ring;
        assert!(dropped.dropped > 0 && dropped.demoted == 1, "{kind:?}: {dropped:?}");
    }
}

#[test]
fn both_ends_may_be_polled_while_a_ring_changes_its_size() {
    let kept = Kept::new(RingKind::D, false);
    let mut writer = kept.writer();
    writer.set_non_blocking(true);
    let mut reader = kept.reader();
    reader.set_non_blocking(true);
    let many = Geometry::new(RingKind::D, 4096, 256);
    let (_to, mut forwarded, mut end) = Local::pair(many, Signalling::default()).unwrap();
    let reading = std::thread::spawn(move || {
        let mut got = Vec::new();
        end.read_to_end(&mut got).unwrap();
        got
    });
    let forwarding = std::thread::spawn(move || {
        loop {
            assert!(becomes_readable(&mut reader));
            match reader.peek() {
                Ok(None) => break,
                Ok(Some(block)) => drop(reader.forward(&block, &mut forwarded).unwrap()),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    });
    let mut expected = Vec::new();
    for n in 0..2000 {
        let bytes = block(n);
        assert!(writable_in(&mut writer, bytes.len(), LONG), "block {n}");
        writer.write_all(&bytes).unwrap();
        expected.extend(bytes);
        if n % 300 == 299 {
            writer.resize(4096 << (n / 300 % 3), 16 << (n / 300 % 3)).unwrap();
        }
    }
    let stat = writer.stat();
    assert_eq!((stat.ring.blocks, stat.ring.bytes), (2000, expected.len() as u64), "sizes do not begin a new count");
    drop(writer);
    forwarding.join().unwrap();
    assert!(reading.join().unwrap() == expected);
}

#[test]
fn a_forwarder_that_polls_goes_on_when_the_ring_it_forwarded_to_changes_its_size() {
    let from = Kept::new(RingKind::D, false);
    let (mut writer, mut forwarder) = (from.writer(), from.reader());
    forwarder.set_non_blocking(true);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&forwarder.poll_fd().unwrap());
    let to = Kept::new(RingKind::D, false);
    let mut forwarded = to.writer();
    let mut end = to.reader();
    for round in 0..20 {
        writer.write_all(b"bytes").unwrap();
        assert!(becomes_readable(&mut forwarder), "round {round}");
        let block = forwarder.peek().unwrap().unwrap();
        forwarder.forward(&block, &mut forwarded).unwrap();
        assert_eq!(forwarder.stat().outstanding, 1);
        // Nothing to read: the poller's thread watches the readers of the forwarded block.
        assert!(!readable(&mut forwarder), "round {round}");
        let reading = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            end.read_exact(&mut [0; 5]).unwrap();
            end.set_non_blocking(true);
            while end.peek().is_ok() {}
            end.set_non_blocking(false);
            end
        });
        std::thread::sleep(Duration::from_millis(2));
        forwarded.resize(4096 << (round % 3), 16).unwrap();
        end = reading.join().unwrap();
        // The poller wakes when forwarded blocks were passed, and the reader finds nothing to read.
        while forwarder.stat().outstanding > 0 {
            let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one element, as its length says.
            assert_eq!(unsafe { libc::poll(&mut polled, 1, 5000) }, 1, "round {round}");
            assert!(forwarder.peek().is_err());
        }
    }
}

#[test]
fn who_polls_follows_a_ring_that_changes_its_size_at_any_time() {
    let kept = Kept::new(RingKind::D, false);
    let mut writer = kept.writer();
    let mut reader = kept.reader();
    reader.set_non_blocking(true);
    let writing = std::thread::spawn(move || {
        for n in 0..2000u64 {
            writer.write_all(&n.to_le_bytes()).unwrap();
            // At about the time at which the reader finds the ring empty.
            let until = Instant::now() + Duration::from_micros(n % 40);
            while Instant::now() < until {}
            // The keeper refuses a new size while a reader is many sizes behind.
            while let Err(error) = writer.resize(4096, 16) {
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0u64;
    loop {
        assert!(becomes_readable(&mut reader), "after {next}");
        match reader.read(&mut [0; 8]) {
            Ok(0) => break,
            Ok(_) => next += 1,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(next, 2000);
    writing.join().unwrap();
}

#[test]
fn a_descriptor_is_right_also_after_a_wait_in_vain() {
    let kept = Kept::new(RingKind::D, true);
    let mut writer = kept.writer();
    let mut reader = kept.reader();
    reader.set_non_blocking(true);
    writer.write_all(b"one").unwrap();
    drop(writer);
    assert!(becomes_readable(&mut reader));
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 3);
    assert!(!reader.wait(Duration::from_millis(1)).unwrap(), "the keeper is asked for the next writer");
    let until = Instant::now() + LONG;
    let mut writer = loop {
        match OpenOptions::new().write(&kept.name) {
            Ok(writer) => break writer,
            Err(error) => assert!(error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until),
        }
    };
    // Takes the answer, and finds that nothing was written yet.
    while reader.stat().generation == 1 {
        assert!(!reader.wait(Duration::ZERO).unwrap() && Instant::now() < until);
    }
    writer.write_all(b"two").unwrap();
    let fd = reader.poll_fd().unwrap();
    let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap(), 1);
    assert!(reader.wait(Duration::MAX).unwrap(), "a time that no clock comes to is no limit");
}
