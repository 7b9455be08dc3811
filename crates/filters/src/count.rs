//! Counts blocks and bytes, and says how many there were when the input ends.

use filter::prelude::*;

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
         wire; of a stream: with the missing ones). Metadata blocks of messages are not counted.",
    )
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
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
        let mut row = RowWriter::new(&SCHEMA);
        row.number("blocks", self.blocks).number("bytes", self.bytes).number("wire_bytes", self.wire_bytes);
        if let Some(mut block) = cx.rings.append_copy(cx.own, &[row.row()]) {
            block.time = cx.now;
            cx.emit(block);
        }
        Ok(Status::Done)
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
