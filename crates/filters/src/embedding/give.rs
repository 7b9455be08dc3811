//! Gives blocks to the program that embeds the request. It stands at the open ends, where other sessions have `json` or
//! `inspect`.

use super::{Exchange, Given};
use base::limits::{GIVEN_BLOCKS, GIVEN_BYTES};
use filter::prelude::*;

/// What `give` is.
pub static KIND: Kind = Kind::new("give", "gives blocks to the program that embeds the request", make)
    .help("A session that embeds puts it at every end of a request without a sink; a request may write it out.")
    .sink();

fn make(_params: &Params, env: &Env) -> Result<Instance, ParamError> {
    // The session replaces this instance by one with its own exchange.
    Ok(instance(Exchange::default(), 0, env.input))
}

/// The instance at open end `end`, whose blocks have the types `input`.
pub fn instance(exchange: Exchange, end: u32, input: Types) -> Instance {
    Instance::filter(Give { exchange, end, of_streams: Types::of(&[Type::Bytes, Type::Message]).has_all(input) })
}

struct Give {
    exchange: Exchange,
    end: u32,
    /// Blocks carry a stream as their class.
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
            let facts = if self.of_streams { cx.streams.get(block.class).cloned() } else { None };
            // An empty block may have no bytes in any ring.
            let held = if block.len == 0 { Some(*block) } else { cx.rings.hold(block) };
            match held {
                Some(block) => sides.given.push(Given { block, facts, end: self.end }),
                None => cx.drop(1, "the block is gone"),
            }
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::{BlockTable, Interface};
    use filter::{Counters, Marks};

    /// Runs the sink over one block of three bytes, and compares the status and how many blocks wait.
    fn check(before: impl FnOnce(&Exchange), expected: Result<Status, &str>, waiting: usize) {
        let exchange = Exchange::default();
        before(&exchange);
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let own = rings.add_view(segment, Interface::default()).unwrap();
        let mut blocks = [rings.append_copy(own, &[b"abc"]).unwrap()];
        let Instance::Filter(mut give) = instance(exchange.clone(), 0, Types::of(&[Type::Bytes])) else { panic!() };
        let mut cx = Context {
            rings: &mut rings,
            streams: &mut StreamTable::new(),
            out: &mut Vec::new(),
            counters: &mut Counters::default(),
            marks: &mut Marks::default(),
            own,
            now: 0,
            exclusive: true,
            wanted: filter::Wanted::ALL,
            wake: &mut 0,
            notices: &mut Vec::new(),
            order: &mut filter::Order::default(),
            stop: &base::atomic::StopFlag::new(),
        };
        let status = give.run(&mut Batch::new(&mut blocks), &mut cx);
        match expected {
            Ok(expected) => assert_eq!(status, Ok(expected)),
            Err(text) => assert!(status.unwrap_err().to_string().contains(text)),
        }
        assert_eq!(exchange.sides().given.len(), waiting);
        cx.rings.recycle(segment);
        for given in &exchange.sides().given {
            assert_eq!(cx.rings.bytes(&given.block), b"abc", "it is held");
            given.release(cx.rings);
        }
    }

    #[test]
    fn what_waits_is_held_and_bounded() {
        check(|_| (), Ok(Status::Done), 1);
        check(|exchange| exchange.sides().is_closed = true, Ok(Status::Finished), 0);
        check(|exchange| exchange.sides().given_bytes = GIVEN_BYTES - 2, Err("more than 512 MiB"), 0);
    }
}
