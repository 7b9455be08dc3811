//! Live rings: a reader gets every packet as it was written, whole and in order, or counts it as passed over.

use buffer::live::words::Slot;
use buffer::live::{Areas, Facts, Geometry, LiveMemory, LiveReader, LiveWriter, Look, SlotFlags};
use buffer::shared::segment::{Access, Mapping, Segment};
use buffer::shared::words::SharedArray;
use std::sync::atomic::{AtomicBool, Ordering};

fn ring(bytes: u64) -> (Areas<Segment>, Geometry, LiveWriter) {
    let geometry = Geometry::new(bytes, 2);
    let areas = Areas::create("live-test", geometry).unwrap();
    let writer = LiveWriter::new(LiveMemory::map(areas.fds(), geometry, Access::Write).unwrap());
    areas.seal_for_readers().unwrap();
    (areas, geometry, writer)
}

fn reader(areas: &Areas<Segment>, geometry: Geometry, bits: u64) -> LiveReader {
    LiveReader::new(LiveMemory::map(areas.fds(), geometry, Access::Read).unwrap(), bits)
}

/// Packet `number`: its bytes, and so its length, follow from the number.
fn packet(number: u64) -> Vec<u8> {
    let len = match number % 13 {
        0 => 0,
        1 => 65_549,
        n => 14 + (n * 131 + number % 1500) as usize,
    };
    (0..len).map(|at| (number.wrapping_mul(31) as usize + at * 7) as u8).collect()
}

fn publish(writer: &mut LiveWriter, number: u64, wanted: u64) {
    let bytes = packet(number);
    let (front, back) = bytes.split_at(bytes.len().min(12));
    let facts = Facts {
        time: number * 1000,
        len: 0,
        wire: bytes.len() as u32,
        wanted,
        interface: 7,
        hash: number as u32,
        ..Facts::default()
    };
    writer.publish(facts, &[front, back]);
}

fn take_all(reader: &mut LiveReader, to: &mut [u8], mut see: impl FnMut(u64, &Facts, &[u8])) {
    loop {
        match reader.look() {
            Look::Nothing => return,
            Look::More => {}
            Look::Packet(packet) => {
                if let Some(len) = reader.copy_out(&packet, to) {
                    see(packet.number, &packet.facts, &to[..len]);
                    reader.advance();
                }
            }
        }
    }
}

#[test]
fn each_reader_gets_what_its_expressions_want() {
    let (areas, geometry, mut writer) = ring(4 << 20);
    let mut readers = [reader(&areas, geometry, 1), reader(&areas, geometry, 2), reader(&areas, geometry, 3)];
    for number in 0..150 {
        publish(&mut writer, number, [0b01, 0b10, 0b11, 0b100, 0][number as usize % 5]);
    }
    let mut to = vec![0; 70_000];
    for (reader, want) in readers.iter_mut().zip([&[0, 2][..], &[1, 2], &[0, 1, 2]]) {
        let mut got = Vec::new();
        take_all(reader, &mut to, |_, facts, bytes| {
            assert_eq!(bytes, packet(u64::from(facts.hash)));
            assert_eq!((facts.wire as usize, facts.interface), (bytes.len(), 7));
            assert!(!facts.flags.has(SlotFlags::TRUNCATED));
            got.push(u64::from(facts.hash));
        });
        let wanted: Vec<u64> = (0..150).filter(|number| want.contains(&(number % 5))).collect();
        assert_eq!(got, wanted);
        assert_eq!(reader.overtaken(), 0);
    }
    let memory = readers[0].memory();
    assert_eq!((memory.seen().packets, memory.wanted_and_lost()), (150, (120, 0)));
    assert_eq!([0, 1, 2, 3].map(|bit| memory.matched(bit).packets), [60, 60, 30, 0]);
    assert_eq!(memory.next(), 120, "what nobody wants takes no slot");
}

#[test]
fn what_is_too_long_is_cut_and_says_so() {
    let (areas, geometry, mut writer) = ring(1 << 20);
    let mut reader = reader(&areas, geometry, 1);
    let facts = Facts { wire: 100_000, wanted: 1, ..Facts::default() };
    writer.publish(facts, &[&[5; 100_000]]);
    let mut to = vec![0; 100_000];
    let mut seen = 0;
    take_all(&mut reader, &mut to, |_, facts, bytes| {
        assert!(facts.flags.has(SlotFlags::TRUNCATED) && bytes.iter().all(|byte| *byte == 5));
        assert_eq!((facts.wire, facts.len as usize), (100_000, bytes.len()));
        seen += 1;
    });
    assert_eq!(seen, 1);
}

#[test]
fn a_reader_may_begin_with_what_is_still_there() {
    let (areas, geometry, mut writer) = ring(1 << 18);
    for number in 0..500 {
        publish(&mut writer, number, 1);
    }
    let mut to = vec![0; 70_000];
    let mut oldest = reader(&areas, geometry, 1);
    oldest.seek(0, 0);
    let mut first = None;
    let mut count = 0;
    take_all(&mut oldest, &mut to, |number, facts, bytes| {
        assert_eq!((number, bytes), (u64::from(facts.hash), &packet(number)[..]));
        first.get_or_insert(number);
        count += 1;
    });
    let first = first.unwrap();
    assert!(first > 400 && first + count == 500, "{first}");
    assert_eq!(oldest.overtaken(), 0, "what was gone before it came is no loss of its");
    let mut later = reader(&areas, geometry, 1);
    later.seek_time(480_000, 0);
    assert_eq!(later.position(), 480);
    later.seek_time(0, 490);
    assert_eq!(later.position(), 490, "never from before its right began");
    later.seek(u64::MAX, 0);
    assert_eq!(later.position(), 500);
}

#[test]
fn a_packet_that_is_being_written_is_not_gone() {
    let geometry = Geometry::new(1 << 18, 2);
    let areas = Areas::create("live-test", geometry).unwrap();
    let mut writer = LiveWriter::new(LiveMemory::map(areas.fds(), geometry, Access::Write).unwrap());
    let slots = Mapping::of(areas.slots.fd(), geometry.slots_bytes(), Access::Write).unwrap();
    let slots = SharedArray::<Slot>::in_mapping(&slots, 0, geometry.slots as usize).unwrap();
    for number in 1..=3 {
        publish(&mut writer, number, 1);
    }
    let mut to = vec![0; 70_000];
    // Another processor still writes the first of three packets: a reader that owns all three begins with that one.
    let stamp = slots.at(0).stamp.swap(0, Ordering::SeqCst);
    let mut early = reader(&areas, geometry, 1);
    early.begin_at(0);
    take_all(&mut early, &mut to, |number, _, _| panic!("{number} was not written"));
    slots.at(0).stamp.store(stamp, Ordering::SeqCst);
    let mut got = Vec::new();
    take_all(&mut early, &mut to, |number, _, _| got.push(number));
    assert_eq!((got, early.overtaken()), (vec![0, 1, 2], 0));
    // Packets that are really gone count as overtaken.
    (0..500).for_each(|number| publish(&mut writer, number, 1));
    let mut late = reader(&areas, geometry, 1);
    late.begin_at(0);
    assert!(late.position() > 400 && late.overtaken() == late.position(), "{late:?}");
}

#[test]
fn a_slow_reader_gets_whole_packets_and_counts_the_rest() {
    let (areas, geometry, mut writer) = ring(1 << 18);
    let mut slow = reader(&areas, geometry, 1);
    let done = AtomicBool::new(false);
    const PACKETS: u64 = 60_000;
    let (mut taken, mut last) = (0u64, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PACKETS {
                publish(&mut writer, number, 1);
            }
            done.store(true, Ordering::Release);
        });
        let mut to = vec![0; 70_000];
        loop {
            let ended = done.load(Ordering::Acquire);
            take_all(&mut slow, &mut to, |number, facts, bytes| {
                assert_eq!(u64::from(facts.hash), number);
                assert!(bytes == packet(number), "packet {number} is torn");
                assert!(last.is_none_or(|last| last < number));
                last = Some(number);
                taken += 1;
                if number % 64 == 0 {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            if ended {
                break;
            }
        }
    });
    assert_eq!(taken + slow.overtaken(), PACKETS);
    assert!(slow.overtaken() > 0 && taken > 0, "{taken} taken");
    assert_eq!(slow.memory().matched(0).packets, PACKETS);
}

#[test]
fn nothing_a_writer_says_leads_outside() {
    let geometry = Geometry::new(1 << 18, 1);
    let areas = Areas::create("live-test", geometry).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let words = buffer::shared::segment::Mapping::of(areas.fds().words, geometry.words_bytes(), Access::Write).unwrap();
    let slots = buffer::shared::segment::Mapping::of(areas.fds().slots, geometry.slots_bytes(), Access::Write).unwrap();
    let memory = LiveMemory::map(areas.fds(), geometry, Access::Write).unwrap();
    let mut reader = LiveReader::new(memory, u64::MAX);
    let mut to = vec![0; 70_000];
    for round in 0..20_000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        let value = if round % 3 == 0 { random >> 40 } else { random };
        let (map, len) = if round % 2 == 0 { (&slots, geometry.slots_bytes() / 64) } else { (&words, 24) };
        // SAFETY: inside the map, 8 bytes, aligned; only this thread reads it, through atomics.
        unsafe { map.first().cast::<u64>().add((random >> 8) as usize % len).write(value) };
        for _ in 0..4 {
            if let Look::Packet(packet) = reader.look() {
                let _ = reader.copy_out(&packet, &mut to);
                reader.advance();
            }
        }
        if round % 50 == 0 {
            reader.seek(random, 0);
            reader.seek_time(random, 0);
            assert!(reader.lag() <= 256);
        }
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let geometry = Geometry::new(1 << 18, 1);
    let areas = Areas::create("live-test", geometry).unwrap();
    LiveMemory::map(areas.fds(), geometry, Access::Write).unwrap();
    for wrong in [
        Geometry { slots: 0, ..geometry },
        Geometry { slots: 1 << 31, ..geometry },
        Geometry { ring_bytes: 1 << 40, ..geometry },
        Geometry { ring_bytes: (1 << 18) + 1, ..geometry },
        Geometry { cpus: 0, ..geometry },
        Geometry { slots: geometry.slots / 2, ..geometry },
    ] {
        assert!(LiveMemory::map(areas.fds(), wrong, Access::Read).is_err(), "{wrong:?}");
    }
}
