//! The same with a keeper: a separate process, which learns of deaths by its sockets and does what the parent does in
//! the other tests.

use crate::blocks::{self, Seeing};
use crate::process::{Child, Scoreboard, Status, alone, soon};
use buffer::keeper::client::Named;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::pipe::OpenOptions;
use buffer::ring::memory::Geometry;
use buffer::ring::{From, NotWritten, Nothing, OnFull, RingKind, Signalling};
use std::io::{self, Read};
use std::time::{Duration, Instant};

const BEGUN: usize = 0;
const PUBLISHED: usize = 1;
const READY: usize = 2;

fn keep(kind: RingKind, folder: &tempfile::TempDir, board: Scoreboard) -> (Child, Named) {
    board.clear();
    let path = folder.path().join(kind.name());
    let keeper = Child::fork(|| {
        let options =
            RingOptions { keep_open: true, ..RingOptions::new(Geometry::new(kind, blocks::BYTES, blocks::SLOTS)) };
        let mut keeper = Keeper::create(&path, options).unwrap();
        board.set(READY, 1);
        keeper.run().unwrap();
    });
    board.await_set(READY);
    board.set(READY, 0);
    (keeper, Named::at(path.to_str().expect("a path of ours is text")).unwrap())
}

#[test]
fn readers_of_a_named_ring_learn_that_its_writer_died() {
    let _alone = alone();
    let board = Scoreboard::new();
    let folder = tempfile::tempdir().unwrap();
    for kind in RingKind::ALL {
        let (_keeper, named) = keep(kind, &folder, board);
        let mut after_us = 0;
        for contract in OnFull::ALL {
            board.clear();
            after_us += 400;
            let mut child = Child::fork(|| {
                let mut writer = named.open_writer(Signalling::Batched(4)).unwrap();
                assert!(writer.wait_for_reader(Some(soon())).unwrap());
                for n in 0.. {
                    let writer = writer.writer();
                    let after = if kind == RingKind::C { writer.head() + blocks::len(kind, n) as u64 } else { n + 1 };
                    board.set(BEGUN, after);
                    while blocks::write(writer, n, soon()) == Err(NotWritten::Dropped) {
                        std::thread::yield_now();
                    }
                    board.set(PUBLISHED, after);
                }
            });
            let mut reader = named.open_reader(contract, From::Next, Some(soon())).unwrap();
            let mut seeing = Seeing::new(kind, Some(0));
            let killer = std::thread::spawn(move || {
                board.await_set(PUBLISHED);
                std::thread::sleep(Duration::from_micros(after_us));
                child.kill()
            });
            assert_eq!(seeing.read_to_the_end(reader.reader(), soon()), Nothing::Retired, "{kind:?} {contract:?}");
            assert_eq!(killer.join().unwrap(), Status::Killed(libc::SIGKILL));
            assert!(seeing.next <= board.get(BEGUN));
            if contract.holds() {
                assert!(
                    seeing.next >= board.get(PUBLISHED) && reader.reader().counters().lost == 0,
                    "{kind:?} {contract:?}"
                );
            }
        }
    }
}

#[test]
fn the_writer_of_a_named_ring_is_not_held_by_a_reader_that_died() {
    let _alone = alone();
    let board = Scoreboard::new();
    let folder = tempfile::tempdir().unwrap();
    for kind in RingKind::ALL {
        let (_keeper, named) = keep(kind, &folder, board);
        let mut writer = named.open_writer(Signalling::Batched(4)).unwrap();
        for after_us in [0, 300, 1000, 3000] {
            board.clear();
            let mut child = Child::fork(|| {
                let mut reader = named.open_reader(OnFull::Wait, From::Next, Some(soon())).unwrap();
                board.set(READY, 1);
                // Blocks written before it came are not meant for it.
                Seeing::new(kind, None).read_to_the_end(reader.reader(), soon());
            });
            board.await_set(READY);
            assert!(writer.wait_for_reader(Some(soon())).unwrap());
            let kill_at = Instant::now() + Duration::from_micros(after_us);
            let killer = std::thread::spawn(move || {
                std::thread::sleep(kill_at.saturating_duration_since(Instant::now()));
                child.kill()
            });
            let (mut n, deadline) = (0, soon());
            while writer.writer().readers() > 0 {
                assert!(Instant::now() < deadline, "{kind:?}: its keeper says that it is gone");
                // Without its own deadline it would wait for as long as the reader lives.
                blocks::write(writer.writer(), n, deadline).unwrap();
                n += 1;
            }
            assert_eq!(killer.join().unwrap(), Status::Killed(libc::SIGKILL));
            assert!(kill_at.elapsed() < Duration::from_secs(5), "{kind:?}: it is woken when its keeper has told it");
        }
    }
}

/// How long a side may take to find out that the other died, if their keeper is dead as well.
const FOUND_OUT: Duration = Duration::from_secs(5);

#[test]
fn readers_whose_keeper_died_before_their_writer_read_on_and_are_told_of_its_death() {
    let _alone = alone();
    let board = Scoreboard::new();
    let folder = tempfile::tempdir().unwrap();
    for kind in [RingKind::C, RingKind::D] {
        let (mut keeper, named) = keep(kind, &folder, board);
        let mut child = Child::fork(|| {
            let mut writer = named.open_writer(Signalling::Batched(4)).unwrap();
            while writer.writer().readers() < 4 {
                std::thread::yield_now();
            }
            board.set(READY, 1);
            let mut written = 0;
            loop {
                let wanted = board.get(BEGUN);
                while written < wanted {
                    writer.writer().write(Default::default(), &[written as u8; 8], Some(soon())).unwrap();
                    written += 1;
                }
                writer.writer().flush();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let name = named.path().to_str().expect("a path of ours is text");
        let blocking = OpenOptions::new().read(name).unwrap();
        let mut polling = OpenOptions::new().read(name).unwrap();
        polling.set_non_blocking(true);
        polling.poll_fd().unwrap();
        let mut plain = named.open_reader(OnFull::Wait, From::Next, Some(soon())).unwrap();
        let mut retried = OpenOptions::new().read(name).unwrap();
        retried.set_non_blocking(true);
        board.await_set(READY);
        assert_eq!(keeper.kill(), Status::Killed(libc::SIGKILL));
        // A living writer's ring is read on, with or without a keeper.
        board.set(BEGUN, 3);
        let mut eight = [0; 8];
        let until = soon();
        let mut read_eight = |reader: &mut dyn Read, waits: &mut dyn FnMut()| {
            let mut got = 0;
            while got < 24 {
                assert!(Instant::now() < until);
                match reader.read(&mut eight) {
                    Ok(len) => got += len,
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{kind:?}");
                        waits();
                    }
                }
            }
        };
        let mut blocking = blocking;
        read_eight(&mut blocking, &mut || ());
        read_eight(&mut polling, &mut || std::thread::yield_now());
        read_eight(&mut retried, &mut || std::thread::yield_now());
        let mut got = 0;
        while got < 24 {
            plain.reader().wait(Some(soon())).unwrap();
            let seen = plain.reader().peek().unwrap();
            got += seen.block.len;
            plain.reader().take(&seen).unwrap();
        }
        // All of them sleep, for longer than the interval at which they check by themselves.
        std::thread::scope(|scope| {
            let waiting = [
                scope.spawn(|| blocking.read(&mut [0; 9]).unwrap_err().kind()),
                scope.spawn(|| match plain.reader().wait(None) {
                    Err(Nothing::Retired) => io::ErrorKind::NotConnected,
                    other => panic!("{other:?}"),
                }),
                scope.spawn(|| {
                    loop {
                        let fd = polling.poll_fd().unwrap();
                        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
                        rustix::event::poll(&mut polled, None).unwrap();
                        match polling.read(&mut [0; 9]).unwrap_err().kind() {
                            io::ErrorKind::WouldBlock => {}
                            kind => break kind,
                        }
                    }
                }),
                scope.spawn(|| {
                    loop {
                        match retried.read(&mut [0; 9]).unwrap_err().kind() {
                            io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                            kind => break kind,
                        }
                    }
                }),
            ];
            std::thread::sleep(Duration::from_millis(1200));
            let began = Instant::now();
            assert_eq!(child.kill(), Status::Killed(libc::SIGKILL));
            for waiting in waiting {
                assert_eq!(waiting.join().unwrap(), io::ErrorKind::NotConnected, "{kind:?}");
            }
            assert!(began.elapsed() < FOUND_OUT, "{kind:?}");
        });
        let error = blocking.read(&mut [0; 9]).unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains("keeper died")), (io::ErrorKind::NotConnected, true));
    }
}

#[test]
fn a_writer_whose_keeper_died_before_its_reader_is_held_no_longer() {
    let _alone = alone();
    let board = Scoreboard::new();
    let folder = tempfile::tempdir().unwrap();
    for kind in [RingKind::C, RingKind::D] {
        let (mut keeper, named) = keep(kind, &folder, board);
        let mut writer = named.open_writer(Signalling::Batched(4)).unwrap();
        let mut child = Child::fork(|| {
            let _reader = named.open_reader(OnFull::Wait, From::Next, Some(soon())).unwrap();
            board.set(READY, 1);
            std::thread::sleep(Duration::from_secs(100));
        });
        board.await_set(READY);
        assert!(writer.wait_for_reader(Some(soon())).unwrap());
        assert_eq!(keeper.kill(), Status::Killed(libc::SIGKILL));
        let began = Instant::now();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            child.kill()
        });
        for n in 0..1000 {
            writer.writer().write(Default::default(), &[n as u8; 64], None).unwrap();
        }
        assert_eq!(killer.join().unwrap(), Status::Killed(libc::SIGKILL));
        assert!(began.elapsed() < FOUND_OUT, "{kind:?}");
        assert_eq!(writer.writer().readers(), 0, "{kind:?}");
    }
}

#[test]
fn who_waits_for_the_next_writer_is_told_that_the_keeper_died() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, named) = keep(RingKind::D, &folder, Scoreboard::new());
    let name = named.path().to_str().expect("a path of ours is text");
    let mut writer = OpenOptions::new().write(name).unwrap();
    let mut readers = [(); 2].map(|()| OpenOptions::new().read(name).unwrap());
    io::Write::write_all(&mut writer, b"x").unwrap();
    drop(writer);
    readers[1].set_non_blocking(true);
    for reader in &mut readers {
        assert_eq!(reader.read(&mut [0; 9]).unwrap(), 1);
    }
    let waiting = readers.map(|mut reader| {
        std::thread::spawn(move || {
            loop {
                match reader.read(&mut [0; 9]).unwrap_err().kind() {
                    io::ErrorKind::WouldBlock => drop(reader.wait(Duration::from_secs(1))),
                    kind => break kind,
                }
            }
        })
    });
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(keeper.kill(), Status::Killed(libc::SIGKILL));
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap(), io::ErrorKind::NotConnected);
    }
}
