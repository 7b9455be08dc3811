//! Readers that join and leave while the writer writes, or waits for room.

use super::{check, newcomer, read_to_the_end, reader, ring, take, try_write, write};
use buffer::ring::{Nothing, OnFull, RingKind, Signalling};
use loom::thread;

/// A reader that joins while the writer writes begins at some block and gets every later one. The ring has one unit: a
/// reader that began at a unit it does not hold would see other blocks in it.
#[test]
fn who_comes_gets_everything_from_its_first_block_on() {
    for kind in [RingKind::P, RingKind::V] {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 1, Signalling::Every);
            let thread = thread::spawn(move || {
                write(&mut writer, 1);
                while writer.readers() == 0 {
                    thread::yield_now();
                }
                write(&mut writer, 2);
                writer
            });
            let mut reader = newcomer(&mut ring, OnFull::Wait);
            let mut got = Vec::new();
            while got.last() != Some(&2) {
                reader.wait(None).unwrap();
                got.extend(take(&mut reader).unwrap().expect("nobody overwrites what is held"));
            }
            drop(thread.join().unwrap());
            assert!([&[1, 2][..], &[2]].contains(&&got[..]), "{got:?}");
            assert_eq!(reader.counters().lost, 0);
        });
    }
}

/// A reader that the writer has met gets the blocks written then, even if the end follows at once. Others get none.
#[test]
fn who_comes_at_the_end_gets_what_was_written_for_it() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let thread = thread::spawn(move || {
            write(&mut writer, 1);
            writer.readers()
        });
        let mut reader = newcomer(&mut ring, OnFull::Wait);
        let (got, nothing) = read_to_the_end(&mut reader);
        let is_met = thread.join().unwrap() == 1;
        assert_eq!((nothing, reader.is_started()), (Nothing::Ended, is_met));
        // It begins before block 1 or after it, and has taken it by now.
        assert!(got.is_empty() || got == [1]);
        assert_eq!(reader.position(), u64::from(is_met));
    });
}

#[test]
fn who_comes_while_the_ring_is_full_gets_what_is_written_next() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let stays = reader(&mut ring, &mut writer, OnFull::Wait);
        write(&mut writer, 1);
        let thread = thread::spawn(move || {
            write(&mut writer, 2);
            writer
        });
        let mut comes = newcomer(&mut ring, OnFull::Wait);
        drop(stays);
        comes.wait(None).unwrap();
        assert_eq!(take(&mut comes), Ok(Some(vec![2])));
        drop(thread.join().unwrap());
    });
}

#[test]
fn a_place_is_used_again() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let first = reader(&mut ring, &mut writer, OnFull::Overwrite);
        let thread = thread::spawn(move || {
            try_write(&mut writer, 1).unwrap();
            let last = if try_write(&mut writer, 2).is_ok() { 2 } else { 1 };
            (writer, last)
        });
        drop(first);
        let mut second = newcomer(&mut ring, OnFull::Wait);
        let mut got = take(&mut second).map_or(Vec::new(), |bytes| bytes.expect("nobody overwrites what is held"));
        let (writer, last) = thread.join().unwrap();
        drop(writer);
        got.extend(read_to_the_end(&mut second).0);
        assert!((1..=last).collect::<Vec<u8>>().ends_with(&got), "{got:?}");
        assert_eq!(second.counters().lost, 0);
    });
}

#[test]
fn who_leaves_holds_nothing() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let mut leaves = reader(&mut ring, &mut writer, OnFull::DropNewest);
        try_write(&mut writer, 1).unwrap();
        let thread = thread::spawn(move || {
            while try_write(&mut writer, 2).is_err() {
                thread::yield_now();
            }
        });
        let seen = leaves.peek().unwrap();
        assert_eq!(leaves.bytes(&seen).copy_to_vec(), [1]);
        assert!(leaves.intact(&seen));
        drop(leaves);
        thread.join().unwrap();
    });
}
