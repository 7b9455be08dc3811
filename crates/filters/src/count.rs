//! Counts blocks and bytes, and gives one record of the counts when the input ends.

use crate::parts::select::refused;
use crate::parts::{landing, live};
use buffer::live::words::PACKET_BYTES;
use capture::reader::Found;
use capture::{CaptureReader, Ledger};
use filter::Counters;
use filter::prelude::*;
use std::os::fd::BorrowedFd;
use std::time::Duration;

static SCHEMA: Schema = Schema::new(
    "count",
    &[
        Field::new("blocks", FieldType::Number),
        Field::new("bytes", FieldType::Number),
        Field::new("wire_bytes", FieldType::Number),
    ],
);

/// What `count` is.
pub static KIND: Kind = Kind::new("count", "counts blocks and bytes, one record at the end", make)
    .also(&["wc", "sum"])
    .help(
        "Gives one record when the input ends: `blocks`, `bytes` (those present) and `wire_bytes` (those that were on the \
         wire; of a stream: with the missing ones). Metadata blocks of messages are not counted. Behind a live device, and \
         selectors that run there, packets are counted where they are captured and never copied: then it counts also what \
         it would have lost by being slow.",
    )
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::METADATA, Parts::NONE)
    .lowers(Lower::Counts)
    .examples(&[Example { request: "pcap web.pcap | count", output: "{\"blocks\":207,\"bytes\":18287,\"wire_bytes\":18287}" }]);

#[derive(Default)]
struct Count {
    blocks: u64,
    bytes: u64,
    wire_bytes: u64,
}

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Count::default()))
}

impl Filter for Count {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            if !block.has(Flags::META) {
                self.add(block.len.into(), block.wire());
            }
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.give(cx, cx.now);
        Ok(Status::Done)
    }
}

impl Count {
    fn add(&mut self, bytes: u64, wire: u32) {
        self.blocks += 1;
        self.bytes += bytes;
        self.wire_bytes += u64::from(wire);
    }

    fn give(&self, cx: &mut Context<'_>, time: u64) {
        let mut row = RowWriter::new(&SCHEMA);
        row.number("blocks", self.blocks).number("bytes", self.bytes).number("wire_bytes", self.wire_bytes);
        if let Some(mut block) = cx.rings.append_copy(cx.own, &[row.row()]) {
            block.time = time;
            cx.emit(block);
        }
    }
}

/// A source of only the record: the programs that capture the packets count them. It adds up the counts of all readers in
/// `registry`, and the packets that their programs could not decide about (`undecided`).
pub fn source(registry: Vec<CaptureReader>, undecided: Vec<Undecided>) -> Instance {
    let notices = registry.iter().filter_map(live::note).collect();
    Instance::source(Elsewhere { registry, undecided, notices, stopped: None })
}

/// A reader of packets that a program could not decide about: copies them, decides, and counts those that pass.
pub struct Undecided {
    reader: CaptureReader,
    decides: Box<dyn Decides>,
    /// The current packet.
    bytes: Vec<u8>,
    count: Count,
}

/// How long the source waits before it looks for undecided packets again.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Packets that one reader looks at in a turn.
const LOOKS: usize = 256;

impl Undecided {
    /// Counts the packets that `reader` finds and `decides` passes.
    pub fn new(reader: CaptureReader, decides: Box<dyn Decides>) -> Undecided {
        Undecided { reader, decides, bytes: vec![0; PACKET_BYTES], count: Count::default() }
    }

    /// Decides about waiting packets. `true`: there may be more.
    fn look(&mut self, counters: &mut Counters) -> bool {
        for _ in 0..LOOKS {
            let Found::Packet(packet) = self.reader.look() else { return false };
            let Some(len) = self.reader.take_copy(&packet, &mut self.bytes) else { continue };
            let (wire, link_type) = (packet.facts.wire, self.reader.device().link_type);
            match self.decides.read(link_type, &self.bytes[..len], wire, Class(0)) {
                Ok(Some(_)) => self.count.add(len as u64, wire),
                Ok(None) => {}
                Err(why) => _ = refused(counters, why),
            }
        }
        true
    }
}

/// Counts that the capturing programs keep.
struct Elsewhere {
    registry: Vec<CaptureReader>,
    undecided: Vec<Undecided>,
    /// Notices to give with the first pull.
    notices: Vec<String>,
    /// The counts when the run was told to stop, and how many packets the device had seen.
    stopped: Option<(Count, u64)>,
}

impl Elsewhere {
    /// The current counts of the programs, and how many packets the device has seen.
    fn now(&self) -> (Count, u64) {
        let mut sum = (Count::default(), 0);
        for reader in &self.registry {
            let counted = reader.counted();
            sum.0.blocks += counted.packets;
            sum.0.bytes += counted.kept_bytes;
            sum.0.wire_bytes += counted.wire_bytes;
            sum.1 += reader.ledger().seen;
        }
        sum
    }
}

impl Source for Elsewhere {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.notices.drain(..).for_each(|notice| cx.notice(notice));
        let looks = self.undecided.iter_mut().map(|undecided| undecided.look(cx.counters));
        if looks.fold(false, |more, one| more | one) {
            return Ok(Pull::Ready);
        }
        if self.stopped.is_some() {
            return Ok(Pull::End);
        }
        // No reader has packets. Each announces this on its line, where it also hears that its device is gone.
        for reader in &mut self.registry {
            reader.announce();
        }
        match self.registry.iter().find(|reader| reader.is_hung_up()) {
            Some(reader) => Err(live::has_ended(reader)),
            None if self.undecided.is_empty() => Ok(Pull::Idle(Duration::MAX)),
            None => Ok(Pull::Idle(LOOK_AFTER)),
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.registry.first().filter(|reader| reader.announced() && self.undecided.is_empty()).map(CaptureReader::line)
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.undecided.iter_mut().for_each(|undecided| undecided.reader.stop());
        self.stopped = Some(self.now());
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        let (mut count, seen) = self.stopped.take().unwrap_or_else(|| self.now());
        for undecided in &self.undecided {
            let Ledger { delivered, lost, .. } = undecided.reader.ledger();
            cx.counters.blocks_in += delivered - undecided.count.blocks + lost;
            cx.counters.blocks_rejected += delivered - undecided.count.blocks;
            if lost > 0 {
                cx.counters.drops.add("overwritten before they were read", lost);
            }
            count.blocks += undecided.count.blocks;
            count.bytes += undecided.count.bytes;
            count.wire_bytes += undecided.count.wire_bytes;
        }
        cx.counters.blocks_in += count.blocks;
        cx.counters.blocks_taken += count.blocks;
        cx.count("seen on the device", seen);
        count.give(cx, capture::clock::real());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    fn check(pieces: &[(&[u8], u32, Flags)], expected: [u64; 3]) {
        let pieces = pieces.iter().map(|(bytes, wire, flags)| {
            let mut block = Descriptor::default();
            block.set_wire(*wire);
            block.set_flags(*flags);
            (block, bytes.to_vec())
        });
        let outcome = Chain::pieces(Type::Message, None, pieces.collect()).then(&KIND, &[]).run();
        let [record] = &outcome.blocks[..] else { panic!("one record") };
        let row = Row::new(&SCHEMA, &record.bytes).unwrap();
        assert_eq!(["blocks", "bytes", "wire_bytes"].map(|name| row.number(name).unwrap()), expected);
    }

    #[test]
    fn counts_what_is_there_and_what_was_on_the_wire() {
        check(&[], [0, 0, 0]);
        check(&[(b"abc", 3, Flags::FIRST), (b"de", 20, Flags::TRUNCATED)], [2, 5, 23]);
        check(&[(b"row", 3, Flags::META), (b"body", 4, Flags::LAST)], [1, 4, 4]);
    }
}
