//! The writer overwrites nothing under a holding reader. A reader that holds for too long is demoted, and sees that.

use super::{check, read_to_the_end, reader, ring, take, try_write, write};
use buffer::Descriptor;
use buffer::ring::{From, NotWritten, Nothing, OnFull, Patience, RingKind, Signalling};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_wait_reader_gets_every_block_whole() {
    for kind in RingKind::ALL {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 2, Signalling::Every);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
            let thread = thread::spawn(move || {
                for n in 1..=3 {
                    while let Err(refused) = try_write(&mut writer, n) {
                        assert_eq!(refused, NotWritten::WouldBlock);
                        thread::yield_now();
                    }
                }
            });
            let mut got = Vec::new();
            while got.len() < 3 {
                match take(&mut reader) {
                    Ok(bytes) => got.extend(bytes.expect("nobody overwrites what is held")),
                    Err(nothing) => {
                        assert_eq!(nothing, Nothing::Yet);
                        thread::yield_now();
                    }
                }
            }
            assert_eq!(got, [1, 2, 3]);
            thread.join().unwrap();
        });
    }
}

#[test]
fn a_drop_newest_reader_gets_every_block_that_was_not_dropped() {
    for kind in [RingKind::C, RingKind::P, RingKind::D] {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 1, Signalling::Every);
            let mut reader = reader(&mut ring, &mut writer, OnFull::DropNewest);
            let thread = thread::spawn(move || {
                let mut written = 0;
                for _ in 0..3 {
                    match try_write(&mut writer, written + 1) {
                        Ok(()) => written += 1,
                        Err(refused) => assert_eq!(refused, NotWritten::Dropped),
                    }
                }
                assert_eq!(u64::from(written) + writer.counters().dropped, 3);
                written
            });
            let (got, nothing) = read_to_the_end(&mut reader);
            let written = thread.join().unwrap();
            assert_eq!((got, nothing), ((1..=written).collect(), Nothing::Ended));
        });
    }
}

/// Memory beside the ring that blocks stand for: accesses to it are checked, unlike those to the model's bytes.
struct Beside(Vec<UnsafeCell<u8>>);

// SAFETY: tested instead of proven: the checker's cells report every access that is not ordered after the one before.
unsafe impl Sync for Beside {}

#[test]
fn a_unit_is_free_after_it_was_taken() {
    for (contract, tells_late) in [(OnFull::Wait, false), (OnFull::DropNewest, false), (OnFull::Wait, true)] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
            let mut reader = reader(&mut ring, &mut writer, contract);
            let beside = Arc::new(Beside(vec![UnsafeCell::new(0)]));
            let thread = thread::spawn({
                let beside = Arc::clone(&beside);
                move || {
                    let mut written = 0;
                    while written < 2 {
                        if tells_late && writer.passed() < u64::from(written) {
                            // For a forwarder, units that all readers have passed are free as well.
                            thread::yield_now();
                            continue;
                        }
                        let Ok(filling) = writer.fill(1) else {
                            thread::yield_now();
                            continue;
                        };
                        written += 1;
                        // SAFETY: the checker's cells find out whether the reader reads meanwhile.
                        beside.0[0].with_mut(|cell| unsafe { *cell = written });
                        filling.copy_in(0, &[written]);
                        filling.publish(Descriptor::default(), 1);
                    }
                }
            });
            for n in 1..=2 {
                let seen = loop {
                    match reader.peek() {
                        Ok(seen) => break seen,
                        Err(_) => thread::yield_now(),
                    }
                };
                // SAFETY: as above.
                assert_eq!(beside.0[0].with(|cell| unsafe { *cell }), n);
                reader.take(&seen).unwrap();
            }
            thread.join().unwrap();
        });
    }
}

#[test]
fn a_demoted_reader_finds_out() {
    for (kind, contract) in [
        (RingKind::C, OnFull::Wait),
        (RingKind::P, OnFull::Wait),
        (RingKind::P, OnFull::DropNewest),
        (RingKind::V, OnFull::Wait),
        (RingKind::D, OnFull::Wait),
    ] {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 1, Signalling::Every);
            // A limit of zero: the writer demotes it when it finds it in the way for the second time.
            let mut reader = ring.attach(contract, Some(Duration::ZERO), From::Next).unwrap();
            reader.set_patience(Patience::NONE);
            assert_eq!(writer.readers(), 1);
            write(&mut writer, 1);
            let thread = thread::spawn(move || {
                // Each call looks once; a dropped block counts as a look.
                while try_write(&mut writer, 2).is_err() {
                    thread::yield_now();
                }
                writer
            });
            let mut got = Vec::new();
            if let Ok(bytes) = take(&mut reader) {
                got.extend(bytes.unwrap_or_default());
            }
            let mut writer = thread.join().unwrap();
            while try_write(&mut writer, 3).is_err() {}
            let demoted = writer.counters().demoted;
            drop(writer);
            let (rest, nothing) = read_to_the_end(&mut reader);
            got.extend(rest);
            assert_eq!(nothing, Nothing::Ended);
            assert_eq!(got.len() as u64 + reader.counters().lost, 3, "{kind:?}: {got:?}");
            assert!(demoted <= 1 && (demoted == 0) == (reader.contract() == contract));
            assert!(got.is_sorted());
        });
    }
}

#[test]
fn the_slowest_of_two_is_waited_for() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let mut first = reader(&mut ring, &mut writer, OnFull::Wait);
        let mut second = reader(&mut ring, &mut writer, OnFull::Wait);
        write(&mut writer, 1);
        let thread = thread::spawn(move || write(&mut writer, 2));
        for n in 1..=2 {
            for reader in [&mut first, &mut second] {
                reader.wait(None).unwrap();
                assert_eq!(take(reader), Ok(Some(vec![n])));
            }
        }
        thread.join().unwrap();
    });
}
