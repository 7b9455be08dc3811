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
