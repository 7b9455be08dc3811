//! Passes the first blocks, then accepts no more: a source without other readers stops.

use filter::prelude::*;

/// What `head` is.
pub static KIND: Kind = Kind::new("head", "passes the first blocks and stops", make)
    .also(&["first", "limit", "take"])
    .help(
        "Passes the first `count` blocks in the order they come, whatever they are: frames, pieces of streams, \
         records. Then it wants no more, and a source whose blocks go nowhere else is not read any further. Streams \
         and messages that are under way then end where they are, as they do when a capture ends.",
    )
    .params(&[Param::new("count", ParamType::Number, "how many blocks").default("10").main()])
    .mode(Mode::Serial)
    .touches(Parts::NONE, Parts::NONE)
    .examples(&[Example {
        request: "pcap browse.pcap | head 1 | count",
        output: "{\"blocks\":1,\"bytes\":62,\"wire_bytes\":62}\n",
    }]);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Head { left: params.number("count").unwrap_or_default() }))
}

struct Head {
    left: u64,
}

impl Filter for Head {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        let left = &mut self.left;
        batch.keep_if(|_| {
            let passes = *left > 0;
            *left = left.saturating_sub(1);
            passes
        });
        Ok(if self.left == 0 { Status::Finished } else { Status::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    fn check(blocks: u64, given: &[(&str, &str)], passed: u64, read: u64) {
        let frames: Vec<_> = (0..blocks).map(|number| (number, vec![1, 2])).collect();
        let outcome = Chain::frames(1, &frames).then(&KIND, given).run();
        assert!(outcome.blocks.iter().map(|block| block.descriptor.time).eq(0..passed));
        let head = outcome.counters("head");
        assert_eq!((head.blocks_in, head.blocks_passed, head.blocks_rejected), (read, passed, read - passed));
    }

    #[test]
    fn passes_the_first_and_stops_the_source() {
        check(0, &[], 0, 0);
        check(9, &[], 9, 9);
        check(1000, &[], 10, 64);
        check(1000, &[("count", "1")], 1, 64);
        check(1000, &[("count", "64")], 64, 64);
        check(1000, &[("count", "65")], 65, 128);
        check(100, &[("count", "1k")], 100, 100);
        check(1000, &[("count", "0")], 0, 64);
    }
}
