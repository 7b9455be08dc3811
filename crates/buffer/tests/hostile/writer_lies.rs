//! A writer that lies: anything, at any time, anywhere in its ring's memory (words, headers, bytes). Readers of every
//! kind and contract get a block with bytes of the ring, an error, or no block, and always in bounded time.

use crate::maps::{self, Dice, Until, Victim};
use buffer::Descriptor;
use buffer::ring::memory::Geometry;
use buffer::ring::{From, Nothing, OnFull, Patience, Reader, Ring, RingKind, Signalling, Writer};
use buffer::shared::segment::{PAGE_BYTES, Pages};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BYTES: u64 = 4096;
const SLOTS: u64 = 16;

struct Scene {
    _ring: Ring,
    writer: Writer,
    readers: Vec<Reader>,
    /// Words and headers; the bytes, mapped twice.
    victims: Vec<Victim>,
}

fn scene(kind: RingKind, signalling: Signalling) -> Scene {
    let (mut ring, mut writer) = Ring::create(Geometry::new(kind, BYTES, SLOTS), Pages::Normal, signalling).unwrap();
    let victims = maps::writable("streamline-ring");
    assert!(victims.iter().map(|it| it.len).sum::<usize>() >= 2 * PAGE_BYTES + 2 * BYTES as usize, "{victims:?}");
    let mut readers: Vec<Reader> =
        OnFull::ALL.map(|contract| ring.attach(contract, None, From::Next).unwrap()).into_iter().collect();
    readers.push(ring.attach(OnFull::Overwrite, None, From::Oldest).unwrap());
    readers
        .iter_mut()
        .for_each(|reader| reader.set_patience(Patience { spins: 3, latency: Duration::from_micros(20) }));
    for n in 0..10 {
        writer.try_write(Descriptor { time: n, ..Descriptor::default() }, &[n as u8; 100]).unwrap();
    }
    Scene { _ring: ring, writer, readers, victims }
}

#[derive(Debug, Default)]
struct Tally {
    good: u64,
    damaged: u64,
}

impl Tally {
    fn count<T>(&mut self, outcome: Result<T, Nothing>) -> Option<T> {
        self.good += u64::from(outcome.is_ok());
        self.damaged += u64::from(matches!(outcome, Err(Nothing::Damaged)));
        outcome.ok()
    }
}

fn use_reader(reader: &mut Reader, scratch: &mut Vec<u8>, tally: &mut Tally) {
    let began = Instant::now();
    for _ in 0..3 {
        if let Some(seen) = tally.count(reader.peek()) {
            let bytes = reader.bytes(&seen);
            assert!(bytes.len() as u64 <= BYTES, "more than the ring: {seen:?}");
            scratch.resize(bytes.len(), 0);
            bytes.copy_to(scratch);
            let mut pieces = 0;
            bytes.pieces(|piece| pieces += piece.len());
            assert_eq!(pieces, bytes.len());
            // The block may be overwritten already: either outcome is right.
            let (_whole, _taken) = (reader.intact(&seen), reader.take(&reader.first(seen, 10)));
        }
        if let Some(seen) = tally.count(reader.next_block()) {
            reader.pass(seen.position);
        }
        reader.tell();
    }
    tally.count(reader.wait(Some(Instant::now() + Duration::from_micros(100))));
    let _ = (reader.is_started(), reader.contract(), reader.counters());
    assert!(began.elapsed() < Duration::from_secs(5), "{reader:?} takes its time");
}

/// A plausible value: near an edge, near the present value, or random.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(u64::MAX / 2),
        0u64..5000,
        (0u32..64, any::<u64>()).prop_map(|(bits, value)| value >> bits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Between any two looks: words of the first page (those that readers look at come first), then bytes anywhere.
    #[test]
    fn a_writer_that_lies_now_and_then_harms_no_reader(
        kind in 0usize..4,
        lies in prop::collection::vec((0usize..56, value()), 1..20),
        garbage in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..64)), 0..20),
    ) {
        let _alone = maps::alone();
        let mut scene = scene(RingKind::ALL[kind], Signalling::Every);
        let (mut scratch, mut tally) = (Vec::new(), Tally::default());
        for (n, (word, value)) in lies.iter().enumerate() {
            scene.victims[0].word(*word).store(*value, Ordering::Release);
            if let Some((at, bytes)) = garbage.get(n) {
                let victim = scene.victims[at.index(scene.victims.len())];
                victim.fill(at.index(victim.len), bytes);
            }
            scene.readers.iter_mut().for_each(|reader| use_reader(reader, &mut scratch, &mut tally));
        }
    }
}

/// Lies until `done`, most often about the words that readers look at most; sometimes tells the truth.
fn lie_on_and_on(dice: &mut Dice, writer: &mut Writer, victims: &[Victim], done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let (which, at, value) = (dice.roll(), dice.roll(), dice.roll());
        match which % 8 {
            // Head, intents, mark, position of the group: near their values, or random.
            0..=2 => {
                let value = if value % 4 > 0 { writer.head().wrapping_add(value % 64) } else { value >> (value % 64) };
                victims[0].word(16 + (at % 5) as usize).store(value, Ordering::Release);
            }
            // Any word. Not too often, because a reader that sees an end is done.
            3 if at % 256 == 0 => victims[0].word((value % 512) as usize).store(at, Ordering::Release),
            4 | 5 => {
                // A refusal is as good: some reader holds the ring.
                let _ = writer.try_write(Descriptor::default(), &[at as u8; 50]);
            }
            _ => {
                let victim = &victims[1 + (which / 8) as usize % (victims.len() - 1)];
                victim.fill(at as usize % victim.len, &value.to_le_bytes());
            }
        }
    }
}

#[test]
fn a_writer_that_lies_all_the_time_harms_no_reader() {
    let _alone = maps::alone();
    let mut dice = Dice(0xbad);
    let mut scratch = Vec::new();
    for kind in RingKind::ALL {
        let mut tally = Tally::default();
        for signalling in [Signalling::Every, Signalling::Batched(8)].repeat(20) {
            let Scene { _ring, mut writer, mut readers, victims } = scene(kind, signalling);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _until = Until(&done);
                scope.spawn(|| lie_on_and_on(&mut dice, &mut writer, &victims, &done));
                let until = Instant::now() + Duration::from_millis(10);
                while Instant::now() < until {
                    readers.iter_mut().for_each(|reader| use_reader(reader, &mut scratch, &mut tally));
                }
            });
        }
        assert!(tally.good > 0 && tally.damaged > 0, "{kind:?}: lies are seen, and so are blocks: {tally:?}");
    }
}
