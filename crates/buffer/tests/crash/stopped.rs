//! Processes that are stopped, not dead: their memory stays mapped, and they go on when another process lets them.

use crate::blocks::{self, Checker};
use crate::process::{Child, Scoreboard, Status, alone, some_day, soon};
use buffer::ring::{NotWritten, Nothing, OnFull, RingKind, Signalling};
use std::time::{Duration, Instant};

const WRITTEN: usize = 0;
const READY: usize = 1;
const LOST: usize = 2;
const GOT: usize = 3;
const ENOUGH: usize = 4;

#[test]
fn a_stopped_writer_that_wakes_late_alters_nothing_live() {
    let _alone = alone();
    let board = Scoreboard::new();
    for kind in RingKind::ALL {
        board.clear();
        let (mut old, mut writer) = blocks::ring(kind, Signalling::Every);
        let mut before = Checker::attach(&mut old, kind, OnFull::Overwrite, None);
        let mut child = Child::fork(|| {
            let mut n = 0;
            // The parent says when it is enough.
            while board.get(ENOUGH) == 0 {
                blocks::try_write(&mut writer, n).unwrap();
                n += 1;
                board.set(WRITTEN, n);
            }
        });
        board.await_set(WRITTEN);
        assert_eq!(child.stop(), Status::Stopped);
        old.retire();
        assert_eq!(before.drain(), Nothing::Retired);

        let (mut new, mut writer) = blocks::ring(kind, Signalling::Every);
        let mut after = Checker::attach(&mut new, kind, OnFull::Wait, None);
        // The child writes some laps of its old ring while this process writes the new one, however long that takes on
        // a busy machine. Only a child that has ended will never get there; the far deadline is for one that hangs.
        let laps_later = board.get(WRITTEN) + 500;
        child.go_on();
        let mut n = 0;
        let deadline = some_day();
        while board.get(WRITTEN) < laps_later {
            assert_eq!(child.ended(), None, "it goes on");
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::yield_now();
            blocks::try_write(&mut writer, n).unwrap();
            n += 1;
            assert_eq!(after.drain(), Nothing::Yet);
            after.reader.tell();
            assert_eq!(before.step(), Err(Nothing::Retired), "a writer that wakes late is not believed");
        }
        board.set(ENOUGH, 1);
        assert_eq!(child.wait(), Status::Exited(0));
        writer.close();
        assert_eq!((after.drain(), after.lost()), (Nothing::Ended, 0));
    }
}

fn one_mix(kind: RingKind, stopped: OnFull, other: OnFull, board: Scoreboard) {
    board.clear();
    let (mut ring, mut writer) = blocks::ring(kind, Signalling::Every);
    let hold = Duration::from_millis(3);
    let mut slow = Checker::attach(&mut ring, kind, stopped, Some(hold));
    let mut fast = Checker::attach(&mut ring, kind, other, None);
    assert_eq!(writer.readers(), 2);
    let mut stopped_child = Child::fork(|| {
        board.set(READY, 1);
        assert_eq!(slow.read_to_the_end(soon()), Nothing::Ended);
        let unseen = if kind == RingKind::C { slow.reader.position() - slow.seeing.got - slow.lost() } else { 0 };
        assert_eq!(unseen, 0, "of a stream each byte is seen or lost");
        if stopped.holds() {
            assert_eq!(slow.reader.contract(), OnFull::Overwrite, "it is told that it was demoted");
        }
    });
    let mut other_child = Child::fork(|| {
        assert_eq!(fast.read_to_the_end(soon()), Nothing::Ended);
        assert_eq!(fast.reader.contract(), other, "who reads is not demoted");
        board.set(LOST, fast.lost());
        board.set(GOT, fast.seeing.got);
    });
    board.await_set(READY);
    assert_eq!(stopped_child.stop(), Status::Stopped);
    let (mut n, mut dropped, mut began) = (0, 0, None);
    let deadline = soon();
    while n < 200 {
        assert!(Instant::now() < deadline, "{kind:?}: {stopped:?} stops {other:?}");
        let soon = Instant::now() + Duration::from_millis(1);
        match blocks::write(&mut writer, n, soon) {
            Ok(()) => n += 1,
            Err(refused) => {
                began.get_or_insert_with(Instant::now);
                dropped += u64::from(refused == NotWritten::Dropped);
            }
        }
    }
    assert_eq!(writer.counters().demoted, u64::from(stopped.holds()), "{kind:?}: {stopped:?} stops {other:?}");
    assert!(dropped == 0 || stopped == OnFull::DropNewest || other == OnFull::DropNewest);
    let all = if kind == RingKind::C { writer.head() } else { n };
    stopped_child.go_on();
    writer.close();
    assert_eq!(stopped_child.wait(), Status::Exited(0));
    assert_eq!(other_child.wait(), Status::Exited(0), "{kind:?}: {stopped:?} stops {other:?}");
    if other.holds() {
        assert_eq!((board.get(LOST), board.get(GOT)), (0, all), "{kind:?}: {stopped:?} stops {other:?}");
    } else {
        assert!(board.get(LOST) + board.get(GOT) <= all);
    }
}

#[test]
fn a_stopped_reader_holds_the_ring_for_its_time_and_costs_others_nothing() {
    let _alone = alone();
    let board = Scoreboard::new();
    for kind in RingKind::ALL {
        for stopped in OnFull::ALL {
            for other in OnFull::ALL {
                one_mix(kind, stopped, other, board);
            }
        }
    }
}
