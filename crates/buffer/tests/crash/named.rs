//! The same with a keeper: a process of its own, which learns of deaths by its sockets and does what a parent does in the
//! other tests.

use crate::blocks::{self, Seeing};
use crate::process::{Child, Scoreboard, Status, alone, soon};
use buffer::keeper::client::Named;
use buffer::keeper::policy::Policy;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, NotWritten, Nothing, OnFull, RingKind, Signalling};
use buffer::shared::segment::Pages;
use std::time::{Duration, Instant};

/// Words of the scoreboard.
const BEGUN: usize = 0;
const PUBLISHED: usize = 1;
const READY: usize = 2;

/// A keeper in a child, and the ring it keeps.
fn keep(kind: RingKind, folder: &tempfile::TempDir, board: Scoreboard) -> (Child, Named) {
    board.clear();
    let path = folder.path().join(kind.name());
    let keeper = Child::fork(|| {
        let options = RingOptions {
            geometry: Geometry::new(kind, blocks::BYTES, blocks::SLOTS),
            pages: Pages::Normal,
            policy: Policy::default(),
            hold: None,
            keep_open: true,
        };
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
                // What was written before it came is not for it.
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
                // Without a deadline of its own it would wait for as long as the reader lives.
                blocks::write(writer.writer(), n, deadline).unwrap();
                n += 1;
            }
            assert_eq!(killer.join().unwrap(), Status::Killed(libc::SIGKILL));
            assert!(kill_at.elapsed() < Duration::from_secs(5), "{kind:?}: it is woken when its keeper has told it");
        }
    }
}
