//! An outlet, a ring and an inlet, in one thread. Blocks may be lost between them. The output is still the input with marked
//! gaps, and the counters add up.

use super::inlet::{Keeper, inlet};
use super::outlet::{Slot, outlet};
use super::{Continuity, WITH_HEADERS};
use buffer::keeper::client::Named;
use buffer::keeper::server::{Keeper as RingKeeper, RingOptions};
use buffer::pipe::OpenOptions;
use buffer::ring::memory::Geometry;
use buffer::ring::{OnFull, RingKind, Signalling};
use buffer::{BlockTable, Interface, SegmentId, ViewId};
use filter::Counters;
use filter::prelude::*;
use packet::flow::Flow;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The context of a filter.
pub(crate) struct Side {
    rings: BlockTable,
    memory: (SegmentId, ViewId),
    streams: StreamTable,
    out: Vec<Descriptor>,
    counters: Counters,
    marks: filter::Marks,
    wake: u64,
    notices: Vec<String>,
    order: filter::Order,
    stop: base::atomic::StopFlag,
}

impl Side {
    pub(crate) fn new() -> Side {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        Side {
            rings,
            memory: (segment, view),
            streams: StreamTable::new(),
            out: Vec::new(),
            counters: Counters::default(),
            marks: filter::Marks::default(),
            wake: u64::MAX,
            notices: Vec::new(),
            order: filter::Order::default(),
            stop: base::atomic::StopFlag::new(),
        }
    }

    pub(crate) fn context(&mut self) -> Context<'_> {
        Context {
            rings: &mut self.rings,
            streams: &mut self.streams,
            out: &mut self.out,
            counters: &mut self.counters,
            marks: &mut self.marks,
            own: self.memory.1,
            now: 0,
            exclusive: true,
            wanted: filter::Wanted::ALL,
            wake: &mut self.wake,
            notices: &mut self.notices,
            order: &mut self.order,
            stop: &self.stop,
        }
    }
}

/// A keeper without a last word.
struct Silent;

impl Keeper for Silent {
    fn last_word(&mut self) -> Option<String> {
        None
    }
}

/// A ring between two sides, so small that it loses blocks.
struct Between {
    slot: Arc<Slot>,
    there: Side,
    outlet: Box<dyn Filter>,
    here: Side,
    inlet: Box<dyn Source>,
    _folder: tempfile::TempDir,
    _asks: std::io::PipeWriter,
}

impl Between {
    fn new(continuity: Continuity) -> Between {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.ring");
        let options = RingOptions::new(Geometry::new(RingKind::D, 4096, 16));
        let mut keeper = RingKeeper::create(&path, options).unwrap();
        let (asked, asks) = std::io::pipe().unwrap();
        std::thread::spawn(move || keeper.run_until(asked.as_fd()).unwrap());
        let name = path.to_str().unwrap();
        let slot = Slot::new();
        slot.open(Named::at(name).unwrap().open_writer_of(WITH_HEADERS, Signalling::default()).unwrap());
        let ring = OpenOptions::new().contract(OnFull::Overwrite).read(name).unwrap();
        let Instance::Filter(outlet) = outlet(Arc::clone(&slot), continuity) else { panic!("a filter") };
        let Instance::Source(inlet) = inlet(ring, continuity, "x".into(), Box::new(Silent)) else { panic!("a source") };
        Between { slot, there: Side::new(), outlet, here: Side::new(), inlet, _folder: folder, _asks: asks }
    }

    /// Gives a block to the outlet.
    fn give(&mut self, about: Descriptor, bytes: &[u8]) {
        let view = self.there.memory.1;
        let mut block = self.there.rings.append_copy(view, &[bytes]).unwrap();
        (block.class, block.time) = (about.class, about.time);
        block.set_wire(about.wire().max(bytes.len() as u32));
        block.set_flags(about.flags());
        let mut blocks = [block];
        let made = self.outlet.run(&mut Batch::new(&mut blocks), &mut self.there.context());
        assert_eq!(made, Ok(Status::Done));
        self.there.rings.recycle(self.there.memory.0);
    }

    /// Takes everything that comes out now.
    fn take(&mut self, mut see: impl FnMut(&Descriptor, &[u8], &StreamTable)) {
        loop {
            let pulled = self.inlet.pull(&mut self.here.context()).unwrap();
            let out = std::mem::take(&mut self.here.out);
            for block in &out {
                see(block, self.here.rings.bytes(block), &self.here.streams);
            }
            self.here.streams.sweep();
            if pulled != Pull::Ready {
                return;
            }
        }
    }

    /// Ends the run, which ends everything under way.
    fn finish(&mut self, mut see: impl FnMut(&Descriptor, &[u8], &StreamTable)) {
        self.inlet.stop();
        while self.inlet.pull(&mut self.here.context()).unwrap() != Pull::End {}
        self.inlet.finish(&mut self.here.context());
        let out = std::mem::take(&mut self.here.out);
        for block in &out {
            see(block, self.here.rings.bytes(block), &self.here.streams);
        }
        self.here.streams.sweep();
        assert!(self.here.streams.is_empty(), "others may have its numbers");
    }
}

fn facts(number: u64) -> StreamFacts {
    let [source, target] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    let flow = Flow { source, target, source_port: number as u16, target_port: 80, protocol: 6 };
    StreamFacts::new(flow, number, StreamState::Established)
}

/// The byte at position `at` of a stream.
fn byte(stream: u64, direction: u8, at: u64) -> u8 {
    (stream.wrapping_mul(31) ^ u64::from(direction) << 7 ^ at.wrapping_mul(7) ^ at >> 8) as u8
}

/// A step: one of a few streams, a direction, a length, and a number that decides on an end, a gap or a read.
type Step = (usize, u8, u32, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec((0usize..3, 0u8..2, 0u32..400, 0u8..40), 1..300)
}

/// The reader's view of a stream's direction.
#[derive(Default)]
struct Read {
    at: Option<u64>,
    ended: bool,
}

/// Checks a piece of a byte stream: FIRST once, the right position, no piece behind LAST.
fn check_piece(read: &mut BTreeMap<(u64, u8), Read>, block: &Descriptor, bytes: &[u8], streams: &StreamTable) {
    let facts = streams.get(block.class).expect("a block's stream is known");
    let direction = block.class.direction();
    let side = read.entry((facts.start, direction)).or_default();
    assert!(!side.ended, "nothing comes behind the end");
    let is_first = side.at.is_none();
    assert_eq!(block.has(Flags::FIRST), is_first);
    let from = side.at.unwrap_or(0) + u64::from(block.gap());
    // A block's time is its position. A stream that was met in its middle begins there.
    let start = if is_first && facts.state != StreamState::Established { block.time } else { from };
    for (at, found) in (start..).zip(bytes) {
        assert_eq!((block.time, *found), (start, byte(facts.start, direction, at)));
    }
    side.at = Some(start + bytes.len() as u64);
    side.ended = block.has(Flags::LAST);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_of_byte_streams_is_what_went_in_with_holes_that_are_told(steps in steps()) {
        let mut between = Between::new(Continuity::Bytes);
        // By place: the stream's name, its number, and the position of each direction.
        let mut open: Vec<Option<(u64, u32, [u64; 2])>> = vec![None; 3];
        let (mut named, mut given) = (0, 0);
        let mut read = BTreeMap::new();
        for (which, direction, len, what) in steps {
            let (name, number, at) = open[which].get_or_insert_with(|| {
                named += 1;
                (named, between.there.streams.open(facts(named)).unwrap(), [0; 2])
            });
            let class = Class::of_stream(*number, direction);
            let side = &mut at[usize::from(direction)];
            let mut about = Descriptor { class, ..Descriptor::default() };
            if *side == 0 {
                about.add_flags(Flags::FIRST);
            }
            // Some bytes are missing before the outlet.
            let gap = if what == 7 && *side > 0 { 50 } else { 0 };
            let bytes: Vec<u8> = (0..u64::from(len) + 1).map(|place| byte(*name, direction, *side + gap + place)).collect();
            about.time = *side + gap;
            *side += gap + bytes.len() as u64;
            about.set_wire(bytes.len() as u32 + gap as u32);
            if gap > 0 {
                about.add_flags(Flags::GAP_BEFORE);
            }
            given += 1;
            let ends = (what < 2).then_some((*number, *at));
            between.give(about, &bytes);
            if let Some((number, at)) = ends {
                open[which] = None;
                if let Some(facts) = between.there.streams.get_mut(Class::of_stream(number, 0)) {
                    facts.state = StreamState::Closed;
                }
                for direction in (0..2u8).filter(|direction| at[usize::from(*direction)] > 0) {
                    let mut last = Descriptor { class: Class::of_stream(number, direction), ..Descriptor::default() };
                    last.add_flags(Flags::LAST);
                    given += 1;
                    between.give(last, &[]);
                }
                between.there.streams.close(number);
                between.there.streams.sweep();
            }
            if what % 8 == 3 {
                between.take(|block, bytes, streams| check_piece(&mut read, block, bytes, streams));
            }
        }
        between.take(|block, bytes, streams| check_piece(&mut read, block, bytes, streams));
        between.finish(|block, bytes, streams| check_piece(&mut read, block, bytes, streams));
        let counters = &between.here.counters;
        prop_assert!(counters.adds_up(), "{:?}", counters);
        prop_assert_eq!(counters.blocks_in, given);
        prop_assert_eq!(between.slot.written().0, given);
        prop_assert_eq!(counters.blocks_taken + counters.blocks_rejected + counters.drops.total(), given);
        prop_assert!(read.values().all(|side| side.ended), "what is under way ends with the run");
    }

    #[test]
    fn messages_come_whole_or_say_that_they_do_not(steps in steps()) {
        let mut between = Between::new(Continuity::Messages);
        let numbers: Vec<u32> = (1..4).map(|name| between.there.streams.open(facts(name)).unwrap()).collect();
        // By class: parts of the current message that were given, and that came.
        let mut begun: BTreeMap<u32, u8> = BTreeMap::new();
        let mut came: BTreeMap<Class, Vec<u8>> = BTreeMap::new();
        let mut given = 0;
        let mut see = |block: &Descriptor, bytes: &[u8], _: &StreamTable| {
            let is_open = came.contains_key(&block.class);
            assert_eq!(block.has(Flags::FIRST), !is_open, "a message begins where none is");
            let parts = came.entry(block.class).or_default();
            parts.extend_from_slice(bytes);
            if block.has(Flags::LAST) {
                // No part is missing before the end, which may have come too early.
                assert!(parts.iter().copied().eq(0..parts.len() as u8), "{parts:?}");
                let is_cut = block.has(Flags::TRUNCATED);
                assert!(is_cut || bytes.len() == 1, "the end that was given, or one that says that it is none");
                came.remove(&block.class);
            }
        };
        for (which, direction, _, what) in steps {
            let class = Class::of_stream(numbers[which], direction);
            let part = begun.entry(class.0).or_default();
            let mut about = Descriptor { class, ..Descriptor::default() };
            if *part == 0 {
                about.add_flags(Flags::FIRST);
            }
            let bytes = [*part];
            *part += 1;
            if what < 12 || *part == 200 {
                about.add_flags(Flags::LAST);
                *part = 0;
            }
            given += 1;
            between.give(about, &bytes);
            if what % 8 == 3 {
                between.take(&mut see);
            }
        }
        between.take(&mut see);
        between.finish(&mut see);
        prop_assert!(came.is_empty(), "no message is left open");
        let counters = &between.here.counters;
        prop_assert!(counters.adds_up(), "{:?}", counters);
        prop_assert_eq!(counters.blocks_in, given);
    }
}

#[test]
fn whoever_joins_late_meets_streams_in_their_middle_and_no_half_messages() {
    for continuity in [Continuity::Bytes, Continuity::Messages] {
        let mut before = Between::new(continuity);
        let number = before.there.streams.open(facts(1)).unwrap();
        let class = Class::of_stream(number, 0);
        let give = |between: &mut Between, flags: Flags, bytes: &[u8]| {
            let mut about = Descriptor { class, ..Descriptor::default() };
            about.set_flags(flags);
            between.give(about, bytes);
        };
        give(&mut before, Flags::FIRST, b"ab");
        let name = before._folder.path().join("x.ring");
        let ring = OpenOptions::new().contract(OnFull::Overwrite).read(name.to_str().unwrap()).unwrap();
        let Instance::Source(late) = inlet(ring, continuity, "x".into(), Box::new(Silent)) else { panic!("a source") };
        (before.inlet, before.here) = (late, Side::new());
        give(&mut before, Flags::NONE, b"cd");
        give(&mut before, Flags::LAST, b"ef");
        give(&mut before, Flags::FIRST.with(Flags::LAST), b"gh");
        let mut came = Vec::new();
        before.take(|block, bytes, streams| {
            let state = streams.get(block.class).map(|facts| facts.state);
            came.push((bytes.to_vec(), block.has(Flags::FIRST), block.gap(), state));
        });
        let expected: Vec<(&[u8], bool, StreamState)> = match continuity {
            Continuity::Bytes => vec![
                (b"cd", true, StreamState::Midstream),
                (b"ef", false, StreamState::Midstream),
                (b"gh", true, StreamState::Midstream),
            ],
            _ => vec![(b"gh", true, StreamState::Established)],
        };
        let expected: Vec<_> =
            expected.into_iter().map(|(bytes, first, state)| (bytes.to_vec(), first, 0, Some(state))).collect();
        assert_eq!(came, expected);
        assert!(before.here.counters.adds_up());
    }
}
