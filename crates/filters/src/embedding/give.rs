//! Gives blocks to the program that embeds the request: what stands at its open ends, where other sessions have `json` or
//! `inspect`.

use super::{Exchange, Given};
use base::limits::{GIVEN_BLOCKS, GIVEN_BYTES};
use filter::prelude::*;

/// What `give` is.
pub static KIND: Kind = Kind::new("give", "gives blocks to the program that embeds the request", make)
    .help("A session that embeds puts it at every end of a request without a sink; a request may write it out.")
    .sink();

fn make(_params: &Params, env: &Env) -> Result<Instance, ParamError> {
    // Whoever prepares the request puts an instance in its place that knows the exchange.
    Ok(instance(Exchange::default(), 0, env.input))
}

/// The open end of this number, where blocks of these types come.
pub fn instance(exchange: Exchange, end: u32, input: Types) -> Instance {
    Instance::filter(Give { exchange, end, of_streams: Types::of(&[Type::Bytes, Type::Message]).has_all(input) })
}

struct Give {
    exchange: Exchange,
    end: u32,
    /// The class of its blocks is a stream's.
    of_streams: bool,
}

impl Filter for Give {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut sides = self.exchange.sides();
        if sides.is_closed {
            return Ok(Status::Finished);
        }
        sides.given_bytes += batch.bytes();
        if sides.given_bytes > GIVEN_BYTES || sides.given.len() >= GIVEN_BLOCKS {
            let text = format!(
                "the request gives the program more than {} MiB, or {GIVEN_BLOCKS} blocks, at a time",
                GIVEN_BYTES >> 20
            );
            return Err(Box::new(Failure::System(text)));
        }
        for (_, block) in batch.iter() {
            let facts = if self.of_streams { cx.streams.get(block.class).copied() } else { None };
            // An empty one may lie nowhere.
            let held = if block.len == 0 { Some(*block) } else { cx.rings.hold(block) };
            match held {
                Some(block) => sides.given.push(Given { block, facts, end: self.end }),
                None => cx.drop(1, "the block is gone"),
            }
        }
        Ok(Status::Done)
    }
}
