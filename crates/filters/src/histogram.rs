//! Counts blocks by size, or by the time since the block before. Gives one record for each bucket at the end.

use filter::prelude::*;

static SCHEMA: Schema = Schema::new(
    "histogram",
    &[
        Field::new("of", FieldType::Text),
        Field::new("unit", FieldType::Text),
        Field::new("low", FieldType::Number),
        Field::new("high", FieldType::Number),
        Field::new("count", FieldType::Number),
        Field::new("fraction_ppm", FieldType::Number),
    ],
);

/// What `histogram` is.
pub static KIND: Kind = Kind::new("histogram", "counts blocks by size or by time between them", make)
    .also(&["hist", "uniq", "top"])
    .help(
        "`of=size` counts blocks by their length on the wire in bytes, `of=gap` by the time since the block before \
         in nanoseconds. Buckets are powers of two (0, 1, 2 to 3, 4 to 7 and so on) or, with `width`, equally wide. \
         When the input ends there comes one record for each bucket that something fell into: `low` and `high`, both \
         inclusive, `count`, and `fraction_ppm`, its share of all in millionths. There are at most 4096 buckets of \
         one width: what lies beyond is in a last one without `high`. A block that is older than the one before it \
         counts as a gap of 0, and as the event `time ran backwards`. Metadata blocks of messages are not counted.",
    )
    .params(&[
        Param::new("of", ParamType::Choice(&["size", "gap"]), "the measure").default("size").main(),
        Param::new("width", ParamType::Text, "width of a bucket: a size as 100, or with of=gap a duration as 1ms"),
    ])
    .gives_records(&SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::METADATA, Parts::NONE)
    .examples(&[Example { request: "pcap browse.pcap | histogram width=1000", output: BROWSE_SIZES }]);

const BROWSE_SIZES: &str = "\
{\"of\":\"size\",\"unit\":\"bytes\",\"low\":0,\"high\":999,\"count\":28,\"fraction_ppm\":651162}
{\"of\":\"size\",\"unit\":\"bytes\",\"low\":1000,\"high\":1999,\"count\":15,\"fraction_ppm\":348837}
";

/// Buckets of equal width. The last bucket has no upper end.
const EQUAL_BUCKETS: usize = 4096;
/// Buckets of powers of two: one for each bit length of a number, and one for 0.
const POWER_BUCKETS: usize = u64::BITS as usize + 1;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let gaps = params.text("of") == Some("gap");
    let kind = if gaps { ParamType::Duration } else { ParamType::Size };
    let width = params.text("width").map(|text| match kind.parse(text) {
        Ok(filter::param::Value::Number(0)) => Err("a bucket cannot be 0 wide".to_string()),
        Ok(filter::param::Value::Number(width)) => Ok(width),
        Ok(_) => Err(format!("`{text}` is not a {kind}")),
        Err(message) => Err(message),
    });
    let width = width.transpose().map_err(|message| ParamError::new("width", message))?;
    let buckets = if width.is_some() { EQUAL_BUCKETS } else { POWER_BUCKETS };
    Ok(Instance::filter(Histogram { gaps, width, counts: vec![0; buckets], last_time: None }))
}

struct Histogram {
    /// Counts the times between blocks. `false`: their sizes.
    gaps: bool,
    /// `None`: powers of two.
    width: Option<u64>,
    counts: Vec<u64>,
    last_time: Option<u64>,
}

impl Histogram {
    #[inline]
    fn add(&mut self, value: u64) {
        let bucket = match self.width {
            None => (u64::BITS - value.leading_zeros()) as usize,
            Some(width) => usize::try_from(value / width).unwrap_or(usize::MAX).min(EQUAL_BUCKETS - 1),
        };
        self.counts[bucket] += 1;
    }

    /// First and last value of a bucket. `None`: the bucket has no upper end.
    fn bounds(&self, bucket: usize) -> (u64, Option<u64>) {
        let number = bucket as u64;
        match self.width {
            None if bucket == 0 => (0, Some(0)),
            None => (1 << (number - 1), Some(u64::MAX >> (u64::from(u64::BITS) - number))),
            Some(width) => {
                let low = width.saturating_mul(number);
                (low, (bucket + 1 < EQUAL_BUCKETS).then_some(low.saturating_add(width - 1)))
            }
        }
    }
}

impl Filter for Histogram {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter().filter(|(_, block)| !block.has(Flags::META)) {
            if !self.gaps {
                self.add(block.wire().into());
                continue;
            }
            if let Some(last) = self.last_time.replace(block.time) {
                cx.counters.events.add("time ran backwards", u64::from(block.time < last));
                self.add(block.time.saturating_sub(last));
            }
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let total: u64 = self.counts.iter().sum();
        let (of, unit) = if self.gaps { ("gap", "ns") } else { ("size", "bytes") };
        let mut row = RowWriter::new(&SCHEMA);
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (low, high) = self.bounds(bucket);
            row.begin();
            row.text("of", of).text("unit", unit).number("low", low);
            if let Some(high) = high {
                row.number("high", high);
            }
            let fraction_ppm = u128::from(count) * 1_000_000 / u128::from(total);
            row.number("count", count).number("fraction_ppm", fraction_ppm as u64);
            if let Some(mut block) = cx.rings.append_copy(cx.own, &[row.row()]) {
                block.time = cx.now;
                cx.emit(block);
            }
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    /// Blocks as (time, bytes on the wire, flags), and rows as (low, high, count, millionths).
    fn check(blocks: &[(u64, u32, Flags)], given: &[(&str, &str)], expected: &[(u64, Option<u64>, u64, u64)]) {
        let pieces = blocks.iter().map(|(time, wire, flags)| {
            let mut block = Descriptor { time: *time, ..Descriptor::default() };
            block.set_wire(*wire);
            block.set_flags(*flags);
            (block, Vec::new())
        });
        let outcome = Chain::pieces(Type::Message, None, pieces.collect()).then(&KIND, given).run();
        let rows = outcome.blocks.iter().map(|record| {
            let row = Row::new(&SCHEMA, &record.bytes).unwrap();
            let number = |name| row.number(name);
            (number("low").unwrap(), number("high"), number("count").unwrap(), number("fraction_ppm").unwrap())
        });
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{given:?}");
    }

    fn sizes(wires: &[u32]) -> Vec<(u64, u32, Flags)> {
        wires.iter().map(|wire| (0, *wire, Flags::NONE)).collect()
    }

    fn times(times: &[u64]) -> Vec<(u64, u32, Flags)> {
        times.iter().map(|time| (*time, 60, Flags::NONE)).collect()
    }

    #[test]
    fn sizes_by_powers_of_two() {
        check(&[], &[], &[]);
        check(&sizes(&[0]), &[], &[(0, Some(0), 1, 1_000_000)]);
        check(
            &sizes(&[0, 1, 2, 3, 4, 63, 64, 64, 1514, (1 << 24) - 1]),
            &[],
            &[
                (0, Some(0), 1, 100_000),
                (1, Some(1), 1, 100_000),
                (2, Some(3), 2, 200_000),
                (4, Some(7), 1, 100_000),
                (32, Some(63), 1, 100_000),
                (64, Some(127), 2, 200_000),
                (1024, Some(2047), 1, 100_000),
                (1 << 23, Some((1 << 24) - 1), 1, 100_000),
            ],
        );
        check(&[(0, 9, Flags::META), (0, 1, Flags::NONE)], &[], &[(1, Some(1), 1, 1_000_000)]);
    }

    #[test]
    fn sizes_by_width() {
        check(
            &sizes(&[0, 99, 100, 1514]),
            &[("width", "100")],
            &[(0, Some(99), 2, 500_000), (100, Some(199), 1, 250_000), (1500, Some(1599), 1, 250_000)],
        );
        check(
            &sizes(&[4095, 4094, 5000]),
            &[("width", "1")],
            &[(4094, Some(4094), 1, 333_333), (4095, None, 2, 666_666)],
        );
    }

    #[test]
    fn gaps() {
        check(&times(&[5]), &[("of", "gap")], &[]);
        check(
            &times(&[5, 5, 6, 1_000_006, 3, u64::MAX]),
            &[("of", "gap")],
            &[
                (0, Some(0), 2, 400_000),
                (1, Some(1), 1, 200_000),
                (524_288, Some(1_048_575), 1, 200_000),
                (1 << 63, Some(u64::MAX), 1, 200_000),
            ],
        );
        check(
            &times(&[0, 999_999, 2_000_000]),
            &[("of", "gap"), ("width", "1ms")],
            &[(0, Some(999_999), 1, 500_000), (1_000_000, Some(1_999_999), 1, 500_000)],
        );
        check(
            &times(&[0, u64::MAX]),
            &[("of", "gap"), ("width", "5000000h")],
            &[(18_000_000_000_000_000_000, Some(u64::MAX), 1, 1_000_000)],
        );
        let outcome = Chain::frames(1, &[(9, vec![]), (5, vec![])]).then(&KIND, &[("of", "gap")]).run();
        assert_eq!(outcome.counters("histogram").events.get("time ran backwards"), 1);
    }

    #[test]
    fn refusals() {
        let check = |of: &str, width: &str, message: &str| {
            let error = Chain::frames(1, &[]).then(&KIND, &[("of", of), ("width", width)]).refusal().unwrap();
            assert_eq!((error.key, error.message.as_str()), (Some("width"), message));
        };
        check("size", "0", "a bucket cannot be 0 wide");
        check("size", "1ms", "`1ms` is not a size such as 64k, 10M or 1G");
        check("gap", "100", "`100` is not a duration such as 10ms, 2s or 5min");
    }
}
