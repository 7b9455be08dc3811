//! Readers that do not hold the ring never take overwritten blocks as whole, and count those they did not get.

use super::{about, check, newcomer, reader, ring, take, try_write};
use buffer::ring::{From, Nothing, OnFull, Reader, RingKind, Signalling};
use loom::thread;

/// Takes all blocks; gives the number of intact ones (in a stream: bytes).
fn take_all(reader: &mut Reader) -> u64 {
    let mut got = 0;
    loop {
        match take(reader) {
            Ok(bytes) => got += bytes.map_or(0, |bytes| bytes.len() as u64),
            Err(_) => return got,
        }
    }
}

#[test]
fn what_was_overwritten_is_never_taken_for_whole() {
    for kind in RingKind::ALL {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 1, Signalling::Never);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
            try_write(&mut writer, 1).unwrap();
            let thread = thread::spawn(move || {
                try_write(&mut writer, 2).unwrap();
                writer
            });
            let mut got = take(&mut reader).map_or(0, |bytes| u64::from(bytes.is_some()));
            let mut writer = thread.join().unwrap();
            // In a ring without an array, the next block says how many there were before.
            try_write(&mut writer, 3).unwrap();
            got += take_all(&mut reader);
            assert_eq!(got + reader.counters().lost, 3, "{kind:?}");
        });
    }
}

#[test]
fn who_is_overtaken_twice_counts_both() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Never);
        let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
        try_write(&mut writer, 1).unwrap();
        let thread = thread::spawn(move || {
            for n in 2..=3 {
                try_write(&mut writer, n).unwrap();
            }
        });
        let mut got = take(&mut reader).map_or(0, |bytes| u64::from(bytes.is_some()));
        thread.join().unwrap();
        got += take_all(&mut reader);
        assert_eq!(got + reader.counters().lost, 3);
    });
}

#[test]
fn what_was_begun_and_given_up_counts_as_overwritten() {
    for kind in [RingKind::P, RingKind::V] {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 1, Signalling::Never);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
            try_write(&mut writer, 1).unwrap();
            let thread = thread::spawn(move || {
                let filling = writer.fill(1).unwrap();
                filling.copy_in(0, &[9]);
            });
            let _ = take(&mut reader);
            thread.join().unwrap();
        });
    }
}

#[test]
fn shared_readers_hold_nothing_and_count_exactly() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Never);
        let mut reader_ = reader(&mut ring, &mut writer, OnFull::Shared);
        let _stopped = reader(&mut ring, &mut writer, OnFull::Shared);
        let thread = thread::spawn(move || {
            for n in 1..=3 {
                try_write(&mut writer, n).unwrap();
            }
        });
        let mut got = take(&mut reader_).map_or(0, |bytes| u64::from(bytes.is_some()));
        thread.join().unwrap();
        got += take_all(&mut reader_);
        assert_eq!(got + reader_.counters().lost, 3);
    });
}

/// A reader that begins at the oldest safe block finds whole blocks, even if that place moves meanwhile, and also if it
/// was asked before its first look whether it has begun.
#[test]
fn who_begins_at_the_oldest_finds_whole_blocks() {
    for (kind, is_asked) in [(RingKind::C, false), (RingKind::P, true), (RingKind::D, false)] {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 2, Signalling::Never);
            let mut reader = ring.attach(OnFull::Overwrite, None, From::Oldest).unwrap();
            let thread = thread::spawn(move || {
                for n in 1..=3 {
                    try_write(&mut writer, n).unwrap();
                }
            });
            if is_asked {
                assert!(reader.is_started());
            }
            let _ = take(&mut reader);
            thread.join().unwrap();
            take_all(&mut reader);
            assert_eq!((reader.position(), reader.peek()), (3, Err(Nothing::Ended)));
        });
    }
}

/// In a v-ring only the writer can tell where blocks begin: at its mark, or at the head.
#[test]
fn who_is_overtaken_in_a_v_ring_goes_on_where_a_block_begins() {
    check(|| {
        // Two blocks fit, and the writer makes a mark with each.
        let (mut ring, mut writer) = ring(RingKind::V, 2, Signalling::Never);
        let mut reader = newcomer(&mut ring, OnFull::Overwrite);
        for n in 1..=2 {
            writer.try_write(about(n), &[n]).unwrap();
        }
        let thread = thread::spawn(move || {
            for n in 3..=4 {
                try_write(&mut writer, n).unwrap();
            }
            writer
        });
        let mut got = take(&mut reader).map_or(0, |bytes| u64::from(bytes.is_some()));
        let mut writer = thread.join().unwrap();
        try_write(&mut writer, 5).unwrap();
        got += take_all(&mut reader);
        assert_eq!(got + reader.counters().lost, 5);
    });
}
