//! The protocols of a ring under a model checker, as they ship. It runs two or three threads in every order that C11
//! allows, up to some preemptions. `cargo xtask model` runs them.
//!
//! A model has a few units, and its threads do a few things each, because each step multiplies the cases. The checker
//! differs from a machine:
//!
//! - It has no time: a timed wait lets other threads run and looks again.
//! - No load sees a store that was not made yet. So `holding` watches memory beside the ring.
//! - Light fences are full ones. `cargo xtask model --mutations` shows which memory orderings are needed.
//!
//! - `holding` — the writer overwrites nothing under a holding reader, until it demotes the reader.
//! - `overwriting` — readers never take overwritten blocks as whole, and count them.
//! - `joining` — readers join and leave while the writer writes or waits.
//! - `sleeping` — no wake-up is lost.
//! - `ending` — the end, the move to another ring, the writer's death.
//! - `forwarding` — blocks whose bytes lie in another ring.
//! - `watching` — sleeping in a reader's place, and readiness of a pollable descriptor.

mod ending;
mod forwarding;
mod holding;
mod joining;
mod overwriting;
mod sleeping;
mod watching;

use buffer::Descriptor;
use buffer::ring::{NotWritten, Nothing, OnFull, Patience, Reader, Ring, RingKind, Seen, Signalling, Writer};

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(model);
}

fn ring(kind: RingKind, blocks: usize, signalling: Signalling) -> (Ring, Writer) {
    // With its header, a block of a v-ring takes 24 bytes.
    let bytes = if kind == RingKind::V { 32 * blocks } else { blocks };
    let (ring, mut writer) = Ring::model(kind, bytes, blocks, signalling);
    writer.set_patience(Patience::NONE);
    (ring, writer)
}

/// Signalling modes in which the writer wakes sleepers by itself.
const SIGNALLINGS: [Signalling; 2] = [Signalling::Every, Signalling::Batched(8)];

/// Tries every order of a writer and an Overwrite reader in a ring of two blocks: with each way of signalling, and with
/// and without the writer having met the reader.
fn check_meetings(kind: RingKind, model: impl Fn(Ring, Writer, Reader) + Copy + Sync + Send + 'static) {
    for (signalling, is_met) in SIGNALLINGS.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        check(move || {
            let (mut ring, mut writer) = ring(kind, 2, signalling);
            let reader = newcomer(&mut ring, OnFull::Overwrite);
            if is_met {
                assert_eq!(writer.readers(), 1);
            }
            model(ring, writer, reader);
        });
    }
}

fn reader(ring: &mut Ring, writer: &mut Writer, contract: OnFull) -> Reader {
    let before = writer.readers();
    let reader = newcomer(ring, contract);
    assert_eq!(writer.readers(), before + 1);
    reader
}

fn newcomer(ring: &mut Ring, contract: OnFull) -> Reader {
    let mut reader = ring.attach(contract, None, buffer::ring::From::Next).unwrap();
    reader.set_patience(Patience::NONE);
    reader
}

fn about(n: u8) -> Descriptor {
    Descriptor { time: n.into(), ..Descriptor::default() }
}

fn try_write(writer: &mut Writer, n: u8) -> Result<(), NotWritten> {
    writer.try_write(about(n), &[n])
}

fn write(writer: &mut Writer, n: u8) {
    writer.write(about(n), &[n], None).unwrap();
}

/// The number of the block (in a stream: byte) that this must be; they are numbered from 1.
fn first_of(reader: &Reader, seen: &Seen) -> u8 {
    use buffer::ring::layout::Layout;
    match reader.layout().kind() {
        RingKind::V => seen.number as u8 + 1,
        RingKind::C | RingKind::P | RingKind::D => seen.position as u8 + 1,
    }
}

/// Reads the next block and takes it: gives its bytes if they were intact to the end.
///
/// Checks that an intact block is the one written there, with its header.
fn take(reader: &mut Reader) -> Result<Option<Vec<u8>>, Nothing> {
    use buffer::ring::layout::Layout;
    let seen = reader.peek()?;
    let bytes = reader.bytes(&seen).copy_to_vec();
    if reader.take(&seen).is_err() {
        return Ok(None);
    }
    let first = first_of(reader, &seen);
    let expected: Vec<u8> = (first..).take(bytes.len()).collect();
    assert_eq!(bytes, expected, "{seen:?}");
    if reader.layout().kind() != RingKind::C {
        assert_eq!((bytes.len(), seen.block.time), (1, u64::from(first)), "{seen:?}");
    }
    Ok(Some(bytes))
}

/// Waits for blocks and takes them until none will come: gives the blocks, and why there are no more.
fn read_to_the_end(reader: &mut Reader) -> (Vec<u8>, Nothing) {
    let mut got = Vec::new();
    loop {
        if let Err(nothing) = reader.wait(None) {
            return (got, nothing);
        }
        match take(reader) {
            Ok(bytes) => got.extend(bytes.unwrap_or_default()),
            // The block was overwritten meanwhile.
            Err(nothing) => assert_eq!(nothing, Nothing::Yet),
        }
    }
}
