//! Rules for every kind of ring and every contract. A new kind is one more element of `RingKind::ALL`.

use buffer::Descriptor;
use buffer::ring::layout::Layout;
use buffer::ring::memory::Geometry;
use buffer::ring::{
    ActiveWindow, From, Hold, NotWritten, Nothing, OnFull, Patience, Reader, Ring, RingKind, Signalling, Writer,
};
use buffer::shared::segment::Pages;
use std::time::{Duration, Instant};

const BYTES: u64 = 4096;
const SLOTS: u64 = 16;

fn ring(kind: RingKind, signalling: Signalling) -> (Ring, Writer) {
    Ring::create(Geometry::new(kind, BYTES, SLOTS), Pages::Normal, signalling).expect("a small ring can be made")
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(10))
}

fn block(n: u64) -> Vec<u8> {
    let len = 1 + (n * 37 % 200) as usize;
    (0..len).map(|at| (n as usize * 7 + at) as u8).collect()
}

fn read(reader: &mut Reader, want: usize) -> Result<Vec<u8>, Nothing> {
    loop {
        let seen = reader.peek()?;
        let seen = reader.first(seen, want as u32);
        let bytes = reader.bytes(&seen).copy_to_vec();
        if reader.take(&seen).is_ok() {
            return Ok(bytes);
        }
    }
}

#[test]
fn what_is_written_is_read_in_order_many_laps_long() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        for n in 0..5000 {
            let bytes = block(n);
            writer.try_write(Descriptor { time: n, ..Default::default() }, &bytes).unwrap();
            let seen = reader.peek().unwrap();
            assert_eq!(reader.peek().unwrap(), seen, "{kind:?}: peeking changes nothing");
            if kind != RingKind::C {
                assert_eq!(seen.block.time, n, "{kind:?}");
            }
            assert!(read(&mut reader, bytes.len()).unwrap() == bytes, "{kind:?}: block {n}");
            assert_eq!(reader.peek(), Err(Nothing::Yet), "{kind:?}");
        }
        assert_eq!(reader.counters().lost, 0);
        writer.close();
        assert_eq!(reader.peek(), Err(Nothing::Ended));
    }
}

#[test]
fn a_wait_reader_holds_the_ring_and_loses_nothing() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        let mut written = 0;
        while writer.try_write(Descriptor::default(), &block(written)).is_ok() {
            written += 1;
            assert!(written < 1000, "{kind:?}: a full ring refuses");
        }
        assert_eq!(writer.try_write(Descriptor::default(), &block(written)), Err(NotWritten::WouldBlock), "{kind:?}");
        for n in 0..written {
            assert!(read(&mut reader, block(n).len()).unwrap() == block(n), "{kind:?}: block {n} of {written}");
        }
        reader.tell();
        writer.try_write(Descriptor::default(), &block(0)).unwrap();
    }
}

#[test]
fn a_drop_newest_reader_makes_the_newest_be_dropped_for_all() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let mut slow = ring.attach(OnFull::DropNewest, None, From::Next).unwrap();
        let mut other = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
        let mut kept = Vec::new();
        for n in 0..100 {
            match writer.try_write(Descriptor::default(), &block(n)) {
                Ok(()) => kept.push(n),
                Err(refused) => assert_eq!(refused, NotWritten::Dropped),
            }
        }
        let counters = writer.counters();
        if kind != RingKind::C {
            assert_eq!(counters.dropped + kept.len() as u64, 100, "{kind:?}");
        }
        assert!(counters.dropped > 0);
        for reader in [&mut slow, &mut other] {
            for n in &kept {
                assert!(read(reader, block(*n).len()).unwrap() == block(*n), "{kind:?}: block {n}");
            }
            assert_eq!(reader.peek(), Err(Nothing::Yet));
            assert_eq!(reader.counters().lost, 0);
        }
    }
}

#[test]
fn who_holds_nothing_is_overtaken_and_knows_exactly_how_much_it_lost() {
    for kind in RingKind::ALL {
        for contract in [OnFull::Overwrite, OnFull::Shared] {
            let (mut ring, mut writer) = ring(kind, Signalling::default());
            let mut reader = ring.attach(contract, None, From::Next).unwrap();
            assert_eq!(reader.peek(), Err(Nothing::Yet));
            let (mut written, mut bytes, mut got, mut got_bytes) = (0, 0, 0, 0);
            for round in 0..200 {
                for _ in 0..round % 50 {
                    writer.try_write(Descriptor { time: written, ..Default::default() }, &block(written)).unwrap();
                    bytes += block(written).len() as u64;
                    written += 1;
                }
                for _ in 0..round % 7 {
                    let Ok(seen) = reader.peek() else { break };
                    let seen = reader.first(seen, 50);
                    let copy = reader.bytes(&seen).copy_to_vec();
                    reader.take(&seen).unwrap();
                    if kind != RingKind::C {
                        assert!(copy == block(seen.block.time), "{kind:?} {contract:?}: block {}", seen.block.time);
                        assert_eq!(got + reader.counters().lost, seen.block.time, "{kind:?} {contract:?}");
                    }
                    got += 1;
                    got_bytes += copy.len() as u64;
                }
            }
            while let Ok(copy) = read(&mut reader, 4096) {
                got += 1;
                got_bytes += copy.len() as u64;
            }
            let lost = reader.counters().lost;
            assert!(lost > 0);
            match kind {
                RingKind::C => assert_eq!(got_bytes + lost, bytes),
                _ => assert_eq!(got + lost, written, "{kind:?} {contract:?}"),
            }
        }
    }
}

#[test]
fn who_holds_too_long_is_demoted_and_told() {
    for kind in RingKind::ALL {
        for contract in [OnFull::Wait, OnFull::DropNewest] {
            let (mut ring, mut writer) = ring(kind, Signalling::default());
            let hold: Hold = Some(Duration::from_millis(20));
            let mut stopped = ring.attach(contract, hold, From::Next).unwrap();
            let mut fast = ring.attach(OnFull::Wait, hold, From::Next).unwrap();
            let began = Instant::now();
            let mut written = 0;
            while began.elapsed() < Duration::from_millis(200) {
                if writer.write(Descriptor::default(), &block(written), soon()).is_ok() {
                    assert!(read(&mut fast, block(written).len()).unwrap() == block(written), "{kind:?}");
                    fast.tell();
                    written += 1;
                }
            }
            assert_eq!(writer.counters().demoted, 1, "{kind:?} {contract:?}");
            assert_eq!((stopped.is_started(), stopped.contract()), (true, OnFull::Overwrite));
            assert_eq!(fast.contract(), OnFull::Wait);
            let mut got = 0;
            while read(&mut stopped, 1).is_ok() {
                got += 1;
            }
            assert!(got > 0 && stopped.counters().lost > 0, "{kind:?} {contract:?}: it goes on as an Overwrite reader");
        }
    }
}

/// Otherwise it would keep the ring for as long as it lives, by taking one block within each limit.
#[test]
fn who_takes_a_block_now_and_then_is_demoted_too() {
    for kind in RingKind::ALL {
        for contract in [OnFull::Wait, OnFull::DropNewest] {
            let (mut ring, mut writer) = ring(kind, Signalling::default());
            let mut drips = ring.attach(contract, Some(Duration::from_millis(50)), From::Next).unwrap();
            let (mut written, mut looked) = (0, Instant::now());
            let until = Some(Instant::now() + Duration::from_secs(5));
            while writer.counters().demoted == 0 {
                assert!(Some(Instant::now()) < until, "{kind:?} {contract:?}: it holds the ring for ever");
                let shortly = Some(Instant::now() + Duration::from_millis(1));
                if writer.write(Descriptor::default(), &block(written), shortly).is_ok() {
                    written += 1;
                }
                if looked.elapsed() >= Duration::from_millis(30) {
                    let _ = read(&mut drips, 100);
                    drips.tell();
                    looked = Instant::now();
                }
            }
            assert_eq!(drips.contract(), OnFull::Overwrite);
        }
    }
}

#[test]
fn the_oldest_that_is_there_can_be_read_by_who_comes_late() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        for n in 0..100 {
            writer.try_write(Descriptor { time: n, ..Default::default() }, &block(n)).unwrap();
        }
        let mut late = ring.attach(OnFull::Overwrite, None, From::Oldest).unwrap();
        let mut next = None;
        while let Ok(seen) = late.peek() {
            let bytes = late.bytes(&seen).copy_to_vec();
            late.take(&seen).unwrap();
            if kind != RingKind::C {
                assert!(next.is_none_or(|next| next == seen.block.time) && bytes == block(seen.block.time), "{kind:?}");
                next = Some(seen.block.time + 1);
            } else {
                assert!(bytes.ends_with(&block(99)));
                next = Some(100);
            }
        }
        assert_eq!(next, Some(100), "{kind:?}");
    }
}

#[test]
fn between_threads_nothing_is_lost_whatever_the_signalling() {
    for kind in RingKind::ALL {
        for signalling in [Signalling::Every, Signalling::Batched(8), Signalling::Never] {
            for patience in [Patience::NONE, Patience::default()] {
                let (mut ring, mut writer) = ring(kind, signalling);
                let mut readers: Vec<Reader> =
                    (0..2).map(|_| ring.attach(OnFull::Wait, None, From::Next).unwrap()).collect();
                readers.iter_mut().for_each(|reader| reader.set_patience(patience));
                writer.set_patience(patience);
                const BLOCKS: u64 = 3000;
                std::thread::scope(|scope| {
                    for reader in &mut readers {
                        scope.spawn(move || {
                            for n in 0..BLOCKS {
                                let expected = block(n);
                                let mut got = Vec::new();
                                while got.len() < expected.len() {
                                    reader.wait(soon()).unwrap();
                                    got.extend(read(reader, expected.len() - got.len()).unwrap());
                                }
                                assert!(got == expected, "{kind:?} {signalling:?}: block {n}");
                            }
                            assert_eq!(reader.wait(soon()), Err(Nothing::Ended));
                        });
                    }
                    scope.spawn(move || {
                        for n in 0..BLOCKS {
                            writer.write(Descriptor::default(), &block(n), soon()).unwrap();
                        }
                    });
                });
            }
        }
    }
}

#[test]
fn who_leaves_holds_nothing_and_its_place_is_used_again() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        for _ in 0..200 {
            let reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
            for n in 0..3 {
                writer.try_write(Descriptor::default(), &block(n)).unwrap();
            }
            drop(reader);
        }
        assert_eq!(writer.readers(), 0);
        let held: Vec<Reader> = (0..64).map(|_| ring.attach(OnFull::Overwrite, None, From::Next).unwrap()).collect();
        assert!(
            ring.attach(OnFull::Overwrite, None, From::Next).is_err(),
            "{} readers are all there can be",
            held.len()
        );
    }
}

#[test]
fn a_sleeping_writer_is_woken_by_a_reader_that_leaves() {
    let (mut ring, mut writer) = ring(RingKind::D, Signalling::default());
    let reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    writer.set_patience(Patience::NONE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..1000 {
                writer.write(Descriptor::default(), &block(n), soon()).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(reader);
    });
}

#[test]
fn a_block_may_be_filled_in_place_and_given_up() {
    for kind in [RingKind::P, RingKind::V, RingKind::D] {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        for n in 0..200u64 {
            let _given_up = writer.fill(100).unwrap();
            let filling = writer.fill(100).unwrap();
            filling.copy_in(0, &[1; 50]);
            filling.copy_in(50, &[2; 1000]);
            filling.publish(Descriptor { time: n, ..Default::default() }, 60);
            let bytes = read(&mut reader, 0).unwrap();
            assert!(bytes[..50] == [1; 50] && bytes[50..] == [2; 10], "{kind:?}");
        }
    }
}

#[test]
fn blocks_longer_than_the_ring_are_refused() {
    for kind in RingKind::ALL {
        let (_ring, mut writer) = ring(kind, Signalling::default());
        assert_eq!(writer.try_write(Descriptor::default(), &[0; 5000]), Err(NotWritten::TooLong), "{kind:?}");
        assert_eq!(writer.head(), 0);
    }
}

#[test]
fn what_a_ring_cannot_name_is_refused_before_anything_is_written() {
    use base::id::{Generation, RingId};
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::Every);
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        let elsewhere = Descriptor { ring: RingId(1), len: 9, ..Default::default() };
        let own = Descriptor { len: 9, ..Default::default() };
        let outcomes = [writer.try_forward(&own), writer.forward_batch(&[elsewhere, own]).map(drop)];
        assert_eq!(outcomes, [Err(NotWritten::CannotName); 2], "{kind:?}: a ring does not forward its own blocks");
        if kind != RingKind::D {
            assert_eq!(writer.try_forward(&elsewhere), Err(NotWritten::CannotName), "{kind:?}");
        }
        assert_eq!((writer.head(), writer.counters().blocks, reader.peek()), (0, 0, Err(Nothing::Yet)), "{kind:?}");
        // A block that is copied here counts as this ring's, whatever ring its descriptor named before.
        let about = Descriptor { ring: RingId(7), generation: Generation(3), ..Default::default() };
        writer.try_write(about, b"here").unwrap();
        let seen = reader.peek().unwrap();
        assert!(!seen.elsewhere, "{kind:?}");
        assert_eq!(reader.bytes(&seen).copy_to_vec(), b"here", "{kind:?}");
        reader.take(&seen).unwrap();
        let filling = writer.fill(2).unwrap();
        filling.copy_in(0, b"in");
        filling.publish(about, 2);
        let seen = reader.peek().unwrap();
        assert!(!seen.elsewhere, "{kind:?}");
        assert_eq!(reader.bytes(&seen).copy_to_vec(), b"in", "{kind:?}");
    }
}

#[test]
fn a_stream_takes_what_there_is_room_for() {
    let (mut ring, mut writer) = ring(RingKind::C, Signalling::default());
    let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    assert_eq!(writer.try_write_some(&[1; 3000]), Ok(3000));
    assert_eq!(writer.try_write_some(&[2; 3000]), Ok(1096));
    assert_eq!(writer.try_write_some(&[3; 3000]), Err(NotWritten::WouldBlock));
    assert_eq!(read(&mut reader, 4096).unwrap().len(), 4096);
    assert_eq!(writer.try_write_some(&[3; 9000]), Ok(4096));
}

/// For units and for bytes, whichever run out first. Otherwise both sides would take turns at a whole ring.
#[test]
fn an_eighth_of_a_ring_that_was_taken_is_room() {
    for kind in RingKind::ALL {
        // Far more descriptors than blocks that fit.
        let slots = if kind == RingKind::D { 16 * SLOTS } else { SLOTS };
        let geometry = Geometry::new(kind, BYTES, slots);
        let (mut ring, mut writer) = Ring::create(geometry, Pages::Normal, Signalling::default()).unwrap();
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        let bytes = [7; 256];
        let mut written = 0;
        while writer.try_write(Descriptor::default(), &bytes).is_ok() {
            written += 1;
        }
        assert!(written >= 8, "{kind:?}");
        for _ in 0..written / 8 + 1 {
            assert_eq!(read(&mut reader, 256).unwrap().len(), 256, "{kind:?}");
        }
        assert_eq!(writer.try_write(Descriptor::default(), &bytes), Ok(()), "{kind:?}");
    }
}

#[test]
fn a_cut_window_uses_less_memory_and_loses_nothing() {
    let (mut ring, mut writer) = ring(RingKind::D, Signalling::default());
    let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    assert!(writer.set_window(ActiveWindow::Bytes(1024)));
    for n in 0..2000 {
        writer.try_write(Descriptor::default(), &block(n)).unwrap();
        let seen = reader.peek().unwrap();
        assert!(seen.block.pos % BYTES + u64::from(seen.block.len) <= 1024);
        assert!(read(&mut reader, 0).unwrap() == block(n));
    }
}

#[test]
fn a_window_that_is_found_is_small_while_readers_keep_up_and_whole_where_one_is_not_waited_for() {
    let (mut ring, mut writer) = ring(RingKind::D, Signalling::default());
    assert!(writer.set_window(ActiveWindow::Auto { least: 512 }));
    let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    let window = |writer: &buffer::ring::Writer| writer.layout().window().unwrap();
    let keep_up = |writer: &mut buffer::ring::Writer, reader: &mut buffer::ring::Reader| {
        for n in 0..4000 {
            writer.try_write(Descriptor::default(), &block(n)).unwrap();
            assert!(read(reader, 0).unwrap() == block(n));
        }
    };
    keep_up(&mut writer, &mut reader);
    assert_eq!(window(&writer), (512, BYTES));
    // A reader that can be overtaken would lose more in a small window.
    let over = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
    keep_up(&mut writer, &mut reader);
    assert_eq!(window(&writer), (BYTES, BYTES));
    drop(over);
    keep_up(&mut writer, &mut reader);
    assert_eq!(window(&writer), (512, BYTES));
    // For a reader that falls behind the window doubles, once.
    let mut written = 0;
    while writer.try_write(Descriptor::default(), &block(written)).is_ok() {
        written += 1;
    }
    (0..written).for_each(|n| assert!(read(&mut reader, 0).unwrap() == block(n)));
    for n in 0..100 {
        writer.try_write(Descriptor::default(), &block(n)).unwrap();
        read(&mut reader, 0).unwrap();
    }
    assert_eq!(window(&writer), (1024, BYTES));
    let (_, mut stream) = self::ring(RingKind::C, Signalling::default());
    assert!(stream.set_window(ActiveWindow::Whole) && !stream.set_window(ActiveWindow::AUTO));
}

/// Regression: the reader looked again and again without an end.
#[test]
fn what_a_dead_writer_was_about_to_overwrite_is_lost_and_no_more_is_waited_for() {
    for kind in RingKind::ALL {
        for contract in [OnFull::Overwrite, OnFull::Shared] {
            let (mut ring, mut writer) = ring(kind, Signalling::default());
            let mut reader = ring.attach(contract, None, From::Next).unwrap();
            for n in 0..12 {
                writer.try_write(Descriptor::default(), &block(n)).unwrap();
            }
            reader.peek().unwrap();
            // It dies in the middle of a block as long as the ring.
            let longest = writer.layout().block_bytes() as u32;
            let _half_done = writer.fill(longest).unwrap();
            ring.retire();
            let mut got = 0;
            while reader.wait(soon()).is_ok() {
                got += u64::from(read(&mut reader, 4096).is_ok());
                assert!(got <= 12);
            }
            assert_eq!(reader.peek(), Err(Nothing::Retired), "{kind:?} {contract:?}");
            // A p-ring loses at most one slot; other rings lose everything.
            assert_eq!(got > 0, kind == RingKind::P, "{kind:?} {contract:?}");
        }
    }
}

#[test]
fn where_bytes_run_out_before_descriptors_do_what_is_left_is_read() {
    let (mut ring, mut writer) = ring(RingKind::D, Signalling::default());
    let mut reader = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
    let mut forwarded = ring.attach(OnFull::Overwrite, None, From::Next).unwrap();
    for n in 0..8 {
        writer.try_write(Descriptor { time: n, ..Default::default() }, &[n as u8; 1500]).unwrap();
    }
    for n in [6, 7] {
        assert_eq!(reader.peek().unwrap().block.time, n);
        assert_eq!(read(&mut reader, 0).unwrap(), [n as u8; 1500]);
    }
    assert_eq!((reader.peek(), reader.counters().lost), (Err(Nothing::Yet), 6));
    assert_eq!(forwarded.peek().unwrap().block.time, 6);
}

#[test]
fn a_reader_that_was_told_of_the_end_is_told_nothing_else() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        writer.try_write(Descriptor::default(), &block(1)).unwrap();
        ring.retire();
        read(&mut reader, 4096).unwrap();
        assert_eq!(reader.peek(), Err(Nothing::Retired));
        // The writer was only stopped.
        writer.try_write(Descriptor::default(), &block(2)).unwrap();
        assert_eq!(reader.peek(), Err(Nothing::Retired), "{kind:?}");
        assert_eq!(reader.wait(soon()), Err(Nothing::Retired), "{kind:?}");
    }
}

/// Regression: with room for a part only, the write looked for room again and again.
#[test]
fn a_write_to_a_stream_with_room_for_a_part_ends_at_its_deadline() {
    for kind in RingKind::ALL {
        let (mut ring, mut writer) = ring(kind, Signalling::default());
        let reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
        while writer.try_write(Descriptor::default(), &[1; 200]).is_ok() {}
        let deadline = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(writer.write(Descriptor::default(), &[2; 200], deadline), Err(NotWritten::WouldBlock), "{kind:?}");
        assert!(writer.counters().waits > 0, "{kind:?}: it sleeps");
        drop(reader);
    }
}

#[test]
fn more_of_a_ring_than_there_is_is_all_of_it() {
    let (mut ring, mut writer) = ring(RingKind::D, Signalling::default());
    let mut reader = ring.attach(OnFull::Wait, None, From::Next).unwrap();
    for bytes in [BYTES + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
        assert!(writer.set_window(ActiveWindow::Bytes(bytes)));
        assert_eq!(writer.layout().window(), Some((BYTES, BYTES)), "{bytes}");
        assert!(writer.set_window(ActiveWindow::Auto { least: bytes }));
        for _ in 0..4 * BYTES / 16 {
            writer.try_write(Descriptor::default(), &[7; 16]).unwrap();
            assert_eq!(read(&mut reader, 16).unwrap(), [7; 16]);
        }
        assert_eq!(writer.layout().window(), Some((BYTES, BYTES)), "{bytes}");
    }
}
