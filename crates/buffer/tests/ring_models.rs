//! The protocols of a ring under a model checker, as they ship. `RUSTFLAGS="--cfg loom"`; `cargo xtask model` runs them.

#![cfg(loom)]

use buffer::Descriptor;
use buffer::ring::{From, NotWritten, Nothing, OnFull, Patience, Ring, RingKind, Signalling};
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(model);
}

/// What is read was written, in order, and nothing is overwritten under a reader that holds the ring.
#[test]
fn positions_keep_a_wait_readers_blocks_whole() {
    for kind in [RingKind::P, RingKind::D] {
        check(move || {
            let (mut ring, mut writer) = Ring::model(kind, 4, 2, Signalling::Every);
            let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
            assert_eq!(writer.readers(), 1);
            let thread = thread::spawn(move || {
                for n in 1..=3u8 {
                    while let Err(refused) = writer.try_write(Descriptor::default(), &[n, n]) {
                        assert_eq!(refused, NotWritten::WouldBlock);
                        thread::yield_now();
                    }
                }
            });
            let mut next = 1;
            while next <= 3 {
                match reader.peek() {
                    Ok(seen) => {
                        let bytes = reader.bytes(&seen).copy_to_vec();
                        assert_eq!(reader.take(&seen), Ok(()));
                        assert_eq!(bytes, [next, next]);
                        next += 1;
                    }
                    Err(nothing) => {
                        assert_eq!(nothing, Nothing::Yet);
                        thread::yield_now();
                    }
                }
            }
            thread.join().unwrap();
        });
    }
}

/// A reader that sleeps is woken by what comes, and by the end.
#[test]
fn no_wake_up_of_a_reader_is_lost() {
    for signalling in [Signalling::Every, Signalling::Batched(8)] {
        check(move || {
            let (mut ring, mut writer) = Ring::model(RingKind::D, 8, 2, signalling);
            let mut reader = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
            assert_eq!(writer.readers(), 1);
            reader.set_patience(Patience::NONE);
            let thread = thread::spawn(move || {
                writer.try_write(Descriptor::default(), &[7]).unwrap();
            });
            reader.wait(None).unwrap();
            let seen = reader.next_block().unwrap();
            assert_eq!(reader.bytes(&seen).copy_to_vec(), [7]);
            assert_eq!(reader.wait(None), Err(Nothing::Ended));
            thread.join().unwrap();
        });
    }
}

/// A writer that sleeps for want of room is woken by what a reader takes.
#[test]
fn no_wake_up_of_a_writer_is_lost() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 2, 1, Signalling::Every);
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        assert_eq!(writer.readers(), 1);
        writer.set_patience(Patience::NONE);
        writer.try_write(Descriptor::default(), &[1]).unwrap();
        let seen = reader.peek().unwrap();
        let thread = thread::spawn(move || {
            writer.write(Descriptor::default(), &[2], None).unwrap();
        });
        reader.take(&seen).unwrap();
        thread.join().unwrap();
        let seen = reader.peek().unwrap();
        assert_eq!(reader.bytes(&seen).copy_to_vec(), [2]);
    });
}

/// The same by a reader that leaves without having taken anything.
#[test]
fn a_writer_that_sleeps_is_woken_by_who_leaves() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 2, 1, Signalling::Every);
        let reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        assert_eq!(writer.readers(), 1);
        writer.set_patience(Patience::NONE);
        writer.try_write(Descriptor::default(), &[1]).unwrap();
        let thread = thread::spawn(move || {
            writer.write(Descriptor::default(), &[2], None).unwrap();
        });
        drop(reader);
        thread.join().unwrap();
    });
}

/// Whatever an Overwrite reader takes is what was written, and what it did not get it counts.
#[test]
fn what_was_overwritten_is_never_taken_for_whole() {
    for kind in [RingKind::P, RingKind::D] {
        check(move || {
            let (mut ring, mut writer) = Ring::model(kind, 1, 1, Signalling::Never);
            let mut reader = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
            assert_eq!(writer.readers(), 1);
            writer.try_write(Descriptor { time: 1, ..Default::default() }, &[1]).unwrap();
            let thread = thread::spawn(move || {
                for n in 2..=3u8 {
                    writer.try_write(Descriptor { time: n.into(), ..Default::default() }, &[n]).unwrap();
                }
            });
            let mut got = 0;
            let mut take = |reader: &mut buffer::ring::Reader| {
                let Ok(seen) = reader.peek() else { return false };
                let bytes = reader.bytes(&seen).copy_to_vec();
                if reader.take(&seen).is_ok() {
                    assert_eq!(bytes, [seen.block.time as u8]);
                    got += 1;
                }
                true
            };
            take(&mut reader);
            thread.join().unwrap();
            while take(&mut reader) {}
            assert_eq!(got + reader.counters().lost, 3, "{kind:?}");
        });
    }
}

/// A block that was begun and given up may have overwritten what a reader looks at; that reader finds out.
#[test]
fn what_was_begun_and_given_up_counts_as_overwritten() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 1, 1, Signalling::Never);
        let mut reader = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
        assert_eq!(writer.readers(), 1);
        writer.try_write(Descriptor::default(), &[1]).unwrap();
        let thread = thread::spawn(move || {
            let filling = writer.fill(1).unwrap();
            filling.copy_in(0, &[9]);
        });
        if let Ok(seen) = reader.peek() {
            let bytes = reader.bytes(&seen).copy_to_vec();
            if reader.take(&seen).is_ok() {
                assert_eq!(bytes, [1]);
            }
        }
        thread.join().unwrap();
    });
}

/// Who comes while the writer writes begins at some block and gets every later one.
#[test]
fn who_comes_gets_everything_from_its_first_block_on() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 4, 4, Signalling::Every);
        let thread = thread::spawn(move || {
            for n in 1..=3u8 {
                writer.try_write(Descriptor::default(), &[n]).unwrap();
            }
        });
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        reader.set_patience(Patience::NONE);
        let mut got = Vec::new();
        while reader.wait(None).is_ok() {
            let seen = reader.peek().unwrap();
            got.extend(reader.bytes(&seen).copy_to_vec());
            reader.take(&seen).unwrap();
        }
        thread.join().unwrap();
        assert!([&[1, 2, 3][..], &[2, 3], &[3], &[]].contains(&&got[..]), "{got:?}");
    });
}

/// A ring that is retired wakes who sleeps, and shows what was published.
#[test]
fn a_retired_ring_wakes_who_sleeps() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 2, 2, Signalling::Never);
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        assert_eq!(writer.readers(), 1);
        reader.set_patience(Patience::NONE);
        let thread = thread::spawn(move || {
            let _ = writer.try_write(Descriptor::default(), &[1]);
            // It dies: nothing of it is dropped in order.
            std::mem::forget(writer);
            ring.retire();
        });
        let mut got = 0;
        while reader.wait(None).is_ok() {
            let seen = reader.next_block().unwrap();
            reader.take(&seen).unwrap();
            got += 1;
        }
        assert_eq!((got, reader.peek()), (1, Err(Nothing::Retired)));
        thread.join().unwrap();
    });
}

/// Shared readers are overtaken one by one; a position that moves backwards or beyond the head is nobody's.
#[test]
fn shared_readers_hold_nothing_and_count_exactly() {
    check(|| {
        let (mut ring, mut writer) = Ring::model(RingKind::P, 2, 2, Signalling::Never);
        let mut reader = ring.attach(OnFull::Shared, None, From::Next).unwrap();
        let _stopped = ring.attach(OnFull::Shared, None, From::Next).unwrap();
        assert_eq!(writer.readers(), 2);
        let thread = thread::spawn(move || {
            for n in 1..=3u8 {
                writer.try_write(Descriptor { time: n.into(), ..Default::default() }, &[n]).unwrap();
            }
        });
        let mut got = 0;
        let mut take = |reader: &mut buffer::ring::Reader| {
            let Ok(seen) = reader.peek() else { return false };
            let bytes = reader.bytes(&seen).copy_to_vec();
            if reader.take(&seen).is_ok() {
                assert_eq!(bytes, [seen.block.time as u8]);
                got += 1;
            }
            true
        };
        take(&mut reader);
        thread.join().unwrap();
        while take(&mut reader) {}
        assert_eq!(got + reader.counters().lost, 3);
    });
}
