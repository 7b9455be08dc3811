//! Our side: the same work over rings.

use super::payload::fill;
use super::pipes::Use;
use super::processes::{Part, Ran, run};
use base::id::RingId;
use buffer::Descriptor;
use buffer::ring::layout::{AnyLayout, Described, Inline, Layout, Slots, Stream};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, NotWritten, Nothing, OnFull, Patience, Reader, Ring, RingKind, Seen, Signalling, Writer};
use buffer::shared::segment::Pages;
use std::time::{Duration, Instant};

/// A ring to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Its kind.
    pub kind: RingKind,
    /// Bytes of payload.
    pub bytes: u64,
    /// Slots, if the kind has any; 0 = the default.
    pub slots: u64,
    /// How its writer signals.
    pub signalling: Signalling,
    /// How both sides wait.
    pub patience: Patience,
}

/// A layout known at compile time, as in a path that is built for one request.
pub trait Known: Layout + TryFrom<AnyLayout> + 'static {}

impl<L: Layout + TryFrom<AnyLayout> + 'static> Known for L {}

/// Sleeps at once, as a pipe does.
pub const ASLEEP: Patience = Patience::NONE;

impl Plan {
    /// As large as a pipe, with batched signals and both sides asleep at once.
    pub const fn new(kind: RingKind) -> Plan {
        let signalling = Signalling::Batched(buffer::ring::contract::BATCH);
        Plan { kind, bytes: super::pipes::PIPE_BYTES as u64, slots: 0, signalling, patience: ASLEEP }
    }

    fn make<L: Known>(self, readers: usize, contract: OnFull) -> Result<(Writer<L>, Vec<Reader<L>>), String> {
        let geometry = Geometry::new(self.kind, self.bytes, self.slots);
        let (mut ring, mut writer) =
            Ring::<L>::create_known(geometry, Pages::HugeIfThere, self.signalling).map_err(text)?;
        writer.set_patience(self.patience);
        let mut made = Vec::new();
        for _ in 0..readers {
            let mut reader = ring.attach(contract, None, From::Next).map_err(text)?;
            reader.set_patience(self.patience);
            made.push(reader);
        }
        Ok((writer, made))
    }

    fn make_one<L: Known>(self) -> Result<(Writer<L>, Reader<L>), String> {
        let (writer, mut readers) = self.make(1, OnFull::Wait)?;
        Ok((writer, readers.remove(0)))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    format!("ring: {error}")
}

fn ended(nothing: Nothing) -> String {
    format!("ring: {nothing:?} where a block should be")
}

/// Waits for the next block.
#[inline(always)]
fn next<L: Layout>(reader: &mut Reader<L>) -> Result<Seen, String> {
    loop {
        match reader.peek() {
            Ok(seen) => return Ok(seen),
            Err(Nothing::Yet) => reader.wait(None).map_err(ended)?,
            Err(other) => return Err(ended(other)),
        }
    }
}

#[inline]
fn take<L: Layout>(reader: &mut Reader<L>, seen: &Seen) -> Result<(), String> {
    reader.take(seen).map_err(|_| "ring: overtaken".to_owned())
}

/// The bytes of a block in place.
#[inline]
fn peeked<'a, L: Layout>(reader: &'a Reader<L>, seen: &Seen) -> &'a [u8] {
    // SAFETY: the reader's contract is Wait without a limit, and it has not taken the block. The writer is a process of
    // this program that keeps to the protocol. So these bytes are not written before `take`, which ends the borrow.
    unsafe { reader.bytes(seen).as_slice() }
}

fn producing<const BYTES: usize>(writer: &mut Writer<impl Layout>, blocks: u64) -> Part<'_> {
    Part::new(0, move || {
        let mut block = [0; BYTES];
        for number in 0..blocks {
            fill(&mut block, number);
            writer.write(Descriptor::default(), &block, None).map_err(text)?;
        }
        writer.flush();
        Ok(0.0)
    })
}

fn copying<const BYTES: usize>(reader: &mut Reader<impl Layout>, blocks: u64) -> Part<'_> {
    Part::new(1, move || {
        let mut block = [0; BYTES];
        for number in 0..blocks {
            let mut filled = 0;
            // A stream shows the bytes that are there, not blocks.
            while filled < BYTES {
                let seen = next(reader)?;
                let seen = reader.first(seen, (BYTES - filled) as u32);
                filled += reader.bytes(&seen).copy_to(&mut block[filled..]);
                take(reader, &seen)?;
            }
            Use::Copy.of(&block, number)?;
        }
        Ok(0.0)
    })
}

fn peeking(reader: &mut Reader<impl Layout>, blocks: u64, what: Use) -> Part<'_> {
    Part::new(1, move || {
        for number in 0..blocks {
            let seen = next(reader)?;
            what.of(peeked(reader, &seen), number)?;
            take(reader, &seen)?;
        }
        Ok(0.0)
    })
}

/// Writes blocks, and reads them by copying them out.
pub fn copied<const BYTES: usize>(plan: Plan, blocks: u64) -> Result<Ran, String> {
    match plan.kind {
        RingKind::C => copied_known::<Stream, BYTES>(plan, blocks),
        RingKind::P => copied_known::<Slots, BYTES>(plan, blocks),
        RingKind::V => copied_known::<Inline, BYTES>(plan, blocks),
        RingKind::D => copied_known::<Described, BYTES>(plan, blocks),
    }
}

fn copied_known<L: Known, const BYTES: usize>(plan: Plan, blocks: u64) -> Result<Ran, String> {
    let (mut writer, mut reader) = plan.make_one::<L>()?;
    run(&mut [producing::<BYTES>(&mut writer, blocks), copying::<BYTES>(&mut reader, blocks)])
}

/// Writes blocks to a d-ring, and reads them in place.
pub fn peeked_at<const BYTES: usize>(plan: Plan, blocks: u64, what: Use) -> Result<Ran, String> {
    let (mut writer, mut reader) = plan.make_one::<Described>()?;
    run(&mut [producing::<BYTES>(&mut writer, blocks), peeking(&mut reader, blocks, what)])
}

/// Fills blocks of a d-ring in place, and reads them in place.
pub fn filled_in_place<const BYTES: usize>(plan: Plan, blocks: u64, what: Use) -> Result<Ran, String> {
    let (mut writer, mut reader) = plan.make_one::<Described>()?;
    let filling = Part::new(0, || {
        for number in 0..blocks {
            let mut block = loop {
                match writer.fill(BYTES as u32) {
                    Ok(block) => break block,
                    Err(NotWritten::WouldBlock) => {}
                    Err(other) => return Err(text(other)),
                }
                writer.wait_for_room(BYTES as u64, None).map_err(text)?;
            };
            // SAFETY: no reader is in this process.
            fill(unsafe { block.as_mut_slice() }, number);
            block.publish(Descriptor::default(), BYTES as u32);
        }
        writer.flush();
        Ok(0.0)
    });
    run(&mut [filling, peeking(&mut reader, blocks, what)])
}

/// 64 bytes there and back, again and again, between these processors.
pub fn round_trips(plan: Plan, trips: u64, processors: [usize; 2]) -> Result<Ran, String> {
    let (mut out, mut there) = plan.make_one::<Slots>()?;
    let (mut back, mut home) = plan.make_one::<Slots>()?;
    let receive = |reader: &mut Reader<Slots>, block: &mut [u8; 64]| {
        let seen = next(reader)?;
        reader.bytes(&seen).copy_to(block);
        take(reader, &seen)
    };
    run(&mut [
        Part::new(processors[0], || {
            let mut block = [0; 64];
            for number in 0..trips {
                fill(&mut block, number);
                out.write(Descriptor::default(), &block, None).map_err(text)?;
                receive(&mut home, &mut block)?;
                Use::Copy.of(&block, number)?;
            }
            Ok(0.0)
        }),
        Part::new(processors[1], || {
            let mut block = [0; 64];
            for _ in 0..trips {
                receive(&mut there, &mut block)?;
                back.write(Descriptor::default(), &block, None).map_err(text)?;
            }
            Ok(0.0)
        }),
    ])
}

/// Sends numbers through `hops` processes. Each process reads the block of a number, and passes the number on.
pub fn relay(plan: Plan, hops: usize, blocks: u64, look: &dyn Fn(u64) -> u64) -> Result<Ran, String> {
    let rings = (0..=hops).map(|_| plan.make_one::<Slots>()).collect::<Result<Vec<_>, _>>()?;
    let (mut writers, mut readers): (Vec<_>, Vec<_>) = rings.into_iter().unzip();
    let receive = |reader: &mut Reader<Slots>, expected: u64| {
        let seen = next(reader)?;
        let mut number = [0; 8];
        reader.bytes(&seen).copy_to(&mut number);
        take(reader, &seen)?;
        if u64::from_le_bytes(number) == expected {
            Ok(())
        } else {
            Err(format!("{number:?} in the place of {expected}"))
        }
    };
    let (Some((first, writers)), Some((last, readers))) = (writers.split_first_mut(), readers.split_last_mut()) else {
        return Err("there is no ring".to_owned());
    };
    let mut parts = vec![Part::new(0, || {
        for number in 0..blocks {
            first.write(Descriptor::default(), &number.to_le_bytes(), None).map_err(text)?;
        }
        first.flush();
        Ok(0.0)
    })];
    for (at, (reader, writer)) in readers.iter_mut().zip(writers).enumerate() {
        parts.push(Part::new((at + 1) % 2, move || {
            let mut sum = 0u64;
            for number in 0..blocks {
                receive(reader, number)?;
                sum = sum.wrapping_add(look(number));
                writer.write(Descriptor::default(), &number.to_le_bytes(), None).map_err(text)?;
            }
            writer.flush();
            std::hint::black_box(sum);
            Ok(0.0)
        }));
    }
    parts.push(Part::new((hops + 1) % 2, || (0..blocks).try_for_each(|number| receive(last, number)).map(|()| 0.0)));
    run(&mut parts)
}

/// Each block is written once, and each reader sums it in place.
pub fn broadcast<const BYTES: usize>(plan: Plan, readers: usize, blocks: u64) -> Result<Ran, String> {
    let (mut writer, mut readers) = plan.make::<Described>(readers, OnFull::Wait)?;
    let mut parts = vec![producing::<BYTES>(&mut writer, blocks)];
    parts.extend(readers.iter_mut().map(|reader| peeking(reader, blocks, Use::Sum)));
    run(&mut parts)
}

/// Like [`broadcast`], for readers that may be overtaken. They get correct blocks, and count the lost ones. All of them
/// end with the ring.
pub fn overwriting<const BYTES: usize>(plan: Plan, readers: usize, blocks: u64) -> Result<Ran, String> {
    let (writer, mut readers) = plan.make::<Described>(readers, OnFull::Overwrite)?;
    let mut writer = Some(writer);
    let mut parts = vec![Part::new(0, || {
        let mut writer = writer.take().ok_or("a part runs once")?;
        let mut block = [0; BYTES];
        for number in 0..blocks {
            fill(&mut block, number);
            writer.write(Descriptor::default(), &block, None).map_err(text)?;
        }
        writer.close();
        Ok(0.0)
    })];
    parts.extend(readers.iter_mut().map(|reader| Part::new(1, move || overtaken::<BYTES>(reader, blocks))));
    run(&mut parts)
}

fn overtaken<const BYTES: usize>(reader: &mut Reader<Described>, blocks: u64) -> Result<f64, String> {
    let mut block = [0; BYTES];
    loop {
        match reader.peek() {
            Ok(seen) => {
                reader.bytes(&seen).copy_to(&mut block);
                let number = seen.position;
                if reader.take(&seen).is_ok() {
                    Use::Copy.of(&block, number)?;
                }
            }
            Err(Nothing::Yet) => match reader.wait(None) {
                Ok(()) | Err(Nothing::Yet | Nothing::Ended) => {}
                Err(other) => return Err(ended(other)),
            },
            Err(Nothing::Ended) => break,
            Err(other) => return Err(ended(other)),
        }
    }
    let counters = reader.counters();
    if counters.blocks + counters.lost == blocks { Ok(0.0) } else { Err(format!("{counters:?} of {blocks} blocks")) }
}

/// A third process passes blocks on from ring to ring, 32 descriptors at a time. Works on one full ring after the
/// other, so that only passing on is timed: `given` by part 1.
pub fn forward<const BYTES: usize>(rounds: u64) -> Result<Ran, String> {
    const BATCH: usize = 32;
    let plan = Plan::new(RingKind::D);
    let source = Plan { bytes: (BYTES * BATCH) as u64, slots: BATCH as u64, ..plan };
    let (mut writer, mut source_readers) = source.make::<Described>(2, OnFull::Wait)?;
    let (mut output, mut reader) = Plan { slots: 2 * BATCH as u64, ..plan }.make_one::<Described>()?;
    let mut bytes_of = source_readers.pop().ok_or("no reader")?;
    let mut input = source_readers.pop().ok_or("no reader")?;
    let (mut filled, mut fill_done) = std::io::pipe().map_err(text)?;
    run(&mut [
        Part::new(0, || {
            let mut block = [0; BYTES];
            for round in 0..rounds {
                let numbers = round * BATCH as u64..(round + 1) * BATCH as u64;
                for number in numbers.clone() {
                    fill(&mut block, number);
                    writer.write(Descriptor::default(), &block, None).map_err(text)?;
                }
                std::io::Write::write_all(&mut fill_done, &[1]).map_err(text)?;
                for number in numbers {
                    let seen = next(&mut reader)?;
                    // The bytes are in the first ring, which this process also reads.
                    let mut head = [0; 64];
                    bytes_of.payload().at(seen.block.pos, 64).copy_to(&mut head);
                    Use::Header.of(&head, number)?;
                    take(&mut reader, &seen)?;
                    let original = next(&mut bytes_of)?;
                    take(&mut bytes_of, &original)?;
                }
                reader.tell();
                bytes_of.tell();
            }
            Ok(0.0)
        }),
        Part::new(1, || {
            let mut seconds = 0.0;
            let mut batch = Vec::with_capacity(BATCH);
            for _ in 0..rounds {
                std::io::Read::read_exact(&mut filled, &mut [0]).map_err(text)?;
                let start = Instant::now();
                batch.clear();
                let mut last = None;
                while batch.len() < BATCH {
                    let seen = input.next_block().map_err(ended)?;
                    batch.push(Descriptor { ring: RingId(1), ..seen.block });
                    last = Some(seen);
                }
                if output.forward_batch(&batch).map_err(text)? != BATCH {
                    return Err("ring: no room".to_owned());
                }
                if let Some(seen) = last {
                    take(&mut input, &seen)?;
                }
                input.tell();
                output.flush();
                seconds += start.elapsed().as_secs_f64();
            }
            Ok(seconds)
        }),
    ])
}

/// Two processes that wait for each other in vain.
pub fn idle(plan: Plan, time: Duration) -> Result<Ran, String> {
    let (_out, mut there) = plan.make_one::<Described>()?;
    let (_back, mut home) = plan.make_one::<Described>()?;
    let wait = |reader: &mut Reader<Described>| match reader.wait(Some(Instant::now() + time)) {
        Err(Nothing::Yet) => Ok(0.0),
        other => Err(format!("ring: {other:?} where nothing should be")),
    };
    run(&mut [Part::new(0, || wait(&mut home)), Part::new(1, move || wait(&mut there))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ring_carries_everything() {
        for kind in RingKind::ALL {
            let plan = Plan { slots: 256, ..Plan::new(kind) };
            copied::<4096>(plan, 600).unwrap();
        }
        let plan = Plan::new(RingKind::D);
        peeked_at::<65536>(plan, 100, Use::Sum).unwrap();
        filled_in_place::<65536>(plan, 100, Use::Sum).unwrap();
        round_trips(Plan::new(RingKind::P), 50, [0, 1]).unwrap();
        broadcast::<4096>(plan, 4, 600).unwrap();
        overwriting::<64>(plan, 8, 50_000).unwrap();
        assert!(forward::<65536>(3).unwrap().given_by(1).wall_s > 0.0);
        relay(Plan { slots: 64, signalling: Signalling::Every, ..Plan::new(RingKind::P) }, 3, 500, &|number| number)
            .unwrap();
        idle(plan, Duration::from_millis(5)).unwrap();
    }
}
