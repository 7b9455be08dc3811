//! Counts blocks and bytes, and says how many there were when the input ends.

use crate::parts::{landing, live};
use capture::Tap;
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
    .help(
        "Gives one record when the input ends: `blocks`, `bytes` (those present) and `wire_bytes` (those that were on the \
         wire; of a stream: with the missing ones). Metadata blocks of messages are not counted. Behind a live device, and \
         selectors that run there, packets are counted where they are captured and never copied: then it counts also what \
         it would have lost by being slow.",
    )
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
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
            let counts = u64::from(!block.has(Flags::META));
            self.blocks += counts;
            self.bytes += counts * u64::from(block.len);
            self.wire_bytes += counts * u64::from(block.wire());
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.give(cx, cx.now);
        Ok(Status::Done)
    }
}

impl Count {
    fn give(&self, cx: &mut Context<'_>, time: u64) {
        let mut row = RowWriter::new(&SCHEMA);
        row.number("blocks", self.blocks).number("bytes", self.bytes).number("wire_bytes", self.wire_bytes);
        if let Some(mut block) = cx.rings.append_copy(cx.own, &[row.row()]) {
            block.time = time;
            cx.emit(block);
        }
    }
}

/// A source of the record alone, where packets are counted by whoever captures them. Several taps are counted together.
pub fn source(taps: Vec<Tap>) -> Instance {
    let notices = taps.iter().filter_map(live::note).collect();
    Instance::source(Elsewhere { taps, notices, stopped: None })
}

/// What whoever captures has counted.
struct Elsewhere {
    taps: Vec<Tap>,
    /// What has to be said when it begins.
    notices: Vec<String>,
    /// What it was when the run was to end, and how many packets had been seen.
    stopped: Option<(Count, u64)>,
}

impl Elsewhere {
    fn now(&self) -> (Count, u64) {
        let mut sum = (Count::default(), 0);
        for tap in &self.taps {
            let counted = tap.counted();
            sum.0.blocks += counted.packets;
            sum.0.bytes += counted.kept_bytes;
            sum.0.wire_bytes += counted.wire_bytes;
            sum.1 += tap.ledger().seen;
        }
        sum
    }
}

impl Source for Elsewhere {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.notices.drain(..).for_each(|notice| cx.notice(notice));
        if self.stopped.is_some() {
            return Ok(Pull::End);
        }
        // None finds anything: it says so on its line, and hears there when its device is gone.
        for tap in &mut self.taps {
            tap.announce();
        }
        match self.taps.iter().find(|tap| tap.is_hung_up()) {
            Some(tap) => Err(live::has_ended(tap)),
            None => Ok(Pull::Idle(Duration::MAX)),
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.taps.first().filter(|tap| tap.announced()).map(Tap::line)
    }

    fn clock(&self) -> Option<u64> {
        Some(landing::clock())
    }

    fn stop(&mut self) -> bool {
        self.stopped = Some(self.now());
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        let (count, seen) = self.stopped.take().unwrap_or_else(|| self.now());
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
