//! The end of a ring: in order, by a move to another ring, or by the writer's death. Readers get what was published,
//! and learn which end it was.

use super::{check, newcomer, read_to_the_end, reader, ring, take, write};
use buffer::ring::{Nothing, OnFull, RingKind, Signalling};
use loom::thread;

/// The thread that ends a ring need not be the one that wrote to it.
#[test]
fn what_was_published_before_the_end_is_read() {
    for signalling in [Signalling::Every, Signalling::Never] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 2, signalling);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
            let writing = thread::spawn(move || {
                write(&mut writer, 1);
                writer
            });
            let reading = thread::spawn(move || read_to_the_end(&mut reader));
            writing.join().unwrap().close();
            assert_eq!(reading.join().unwrap(), (vec![1], Nothing::Ended));
        });
    }
}

/// A writer goes on in a ring of another size: a holding reader of the first ring gets all blocks of both, in order.
/// Its keeper has given it a place in the second ring before the writer starts there.
#[test]
fn who_follows_a_writer_to_another_ring_misses_nothing() {
    for kind in [RingKind::C, RingKind::P, RingKind::V] {
        check(move || {
            let (mut small, mut writer) = ring(kind, 1, Signalling::Every);
            let mut reader = reader(&mut small, &mut writer, OnFull::Wait);
            let (mut large, mut next_writer) = ring(kind, 2, Signalling::Every);
            let mut next_reader = newcomer(&mut large, OnFull::Wait);
            let thread = thread::spawn(move || {
                write(&mut writer, 1);
                writer.close_moved();
                // Block numbers start again.
                write(&mut next_writer, 1);
                next_writer
            });
            assert_eq!(read_to_the_end(&mut reader), (vec![1], Nothing::Moved));
            drop(reader);
            next_reader.wait(None).unwrap();
            assert_eq!(take(&mut next_reader), Ok(Some(vec![1])));
            drop(thread.join().unwrap());
        });
    }
}

#[test]
fn a_retired_ring_wakes_who_sleeps() {
    for (signalling, is_met) in [(Signalling::Every, true), (Signalling::Never, true), (Signalling::Never, false)] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 2, signalling);
            let mut reader = newcomer(&mut ring, OnFull::Wait);
            if is_met {
                assert_eq!(writer.readers(), 1);
            }
            let writing = thread::spawn(move || {
                if is_met {
                    write(&mut writer, 1);
                }
                // It dies: no destructor runs.
                std::mem::forget(writer);
            });
            let reading = thread::spawn(move || read_to_the_end(&mut reader));
            writing.join().unwrap();
            ring.retire();
            let published = if is_met { vec![1] } else { vec![] };
            assert_eq!(reading.join().unwrap(), (published, Nothing::Retired));
        });
    }
}

#[test]
fn what_a_writer_writes_after_it_was_retired_is_not_read_for_ever() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Every);
        let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
        let late = thread::spawn(move || {
            write(&mut writer, 1);
            std::mem::forget(writer);
        });
        ring.retire();
        let (got, nothing) = read_to_the_end(&mut reader);
        assert_eq!(nothing, Nothing::Retired);
        assert!(got.is_empty() || got == [1]);
        late.join().unwrap();
        assert_eq!(reader.peek(), Err(Nothing::Retired));
    });
}
