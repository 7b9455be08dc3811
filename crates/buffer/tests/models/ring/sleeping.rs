//! No wake-up is lost. The waking side stays alive, because the end of a ring wakes all sleepers and would hide a loss.

use super::{SIGNALLINGS, check, check_meetings, reader, ring, take, write};
use buffer::ring::{Nothing, OnFull, Patience, RingKind, Signalling};
use loom::thread;
use std::time::Duration;

#[test]
fn no_wake_up_of_a_reader_is_lost() {
    check_meetings(RingKind::D, |_ring, mut writer, mut reader| {
        let thread = thread::spawn(move || {
            write(&mut writer, 1);
            writer
        });
        reader.wait(None).unwrap();
        assert_eq!(take(&mut reader), Ok(Some(vec![1])));
        let writer = thread.join().unwrap();
        drop(writer);
        assert_eq!(reader.wait(None), Err(Nothing::Ended));
    });
}

/// A writer that signals each block with full fences also wakes a reader that sleeps for its latency bound. Here the
/// bound never ends.
#[test]
fn no_wake_up_of_a_timed_sleeper_is_lost() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Batched(1));
        let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
        reader.set_patience(Patience { spins: 0, latency: Duration::MAX });
        let thread = thread::spawn(move || {
            write(&mut writer, 1);
            writer
        });
        reader.wait(None).unwrap();
        assert_eq!(take(&mut reader), Ok(Some(vec![1])));
        drop(thread.join().unwrap());
    });
}

#[test]
fn no_end_is_slept_through() {
    check_meetings(RingKind::D, |_ring, writer, mut reader| {
        let thread = thread::spawn(move || writer.close());
        assert_eq!(reader.wait(None), Err(Nothing::Ended));
        thread.join().unwrap();
    });
}

#[test]
fn no_wake_up_of_a_writer_is_lost() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
        write(&mut writer, 1);
        let thread = thread::spawn(move || {
            write(&mut writer, 2);
            writer
        });
        assert_eq!(take(&mut reader), Ok(Some(vec![1])));
        let _writer = thread.join().unwrap();
        assert_eq!(take(&mut reader), Ok(Some(vec![2])));
    });
}

#[test]
fn a_writer_that_sleeps_is_woken_by_who_leaves() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let reader = reader(&mut ring, &mut writer, OnFull::Wait);
        write(&mut writer, 1);
        let thread = thread::spawn(move || write(&mut writer, 2));
        drop(reader);
        thread.join().unwrap();
    });
}

#[test]
fn nobody_sleeps_for_ever_in_a_ring_of_one_block() {
    for signalling in SIGNALLINGS {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 1, signalling);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
            let thread = thread::spawn(move || {
                for n in 1..=3 {
                    write(&mut writer, n);
                }
                writer
            });
            for n in 1..=3 {
                reader.wait(None).unwrap();
                assert_eq!(take(&mut reader), Ok(Some(vec![n])));
            }
            drop(thread.join().unwrap());
        });
    }
}
