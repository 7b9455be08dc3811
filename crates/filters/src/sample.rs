//! Passes every Nth block, or all blocks of one flow in N.

use crate::parts::select::{Links, are_streams};
use filter::prelude::*;
use packet::flow::{Flow, FlowHasher};
use packet::frame;

/// The kind `sample`.
pub static KIND: Kind = Kind::new("sample", "passes one block in N, or one flow in N", make)
    .help(
        "`sample 100` passes the first of each hundred blocks: the 1st, the 101st and so on. `sample 100 by=flow` \
         passes every packet of about one flow in a hundred, both directions of it; which flows these are depends on \
         addresses, ports and protocol alone, so that it is the same on every run and every host. Fragments count as \
         flows without ports; frames without an IP packet have no flow and do not pass. Of streams and messages, to \
         take single blocks out of which would damage them, it always passes one flow in N, whole. Both ways are as \
         even as the traffic is: what is passed is 1/N of the blocks, or of the flows, not of the bytes. Behind a live \
         device packets are counted where they are captured, and what is left out is never copied: the first of each N \
         is then the first by that count, over all processors. By flow they are chosen in the application.",
    )
    .params(&[
        Param::new("every", ParamType::Number, "N: pass one in N").required().main(),
        Param::new("by", ParamType::Choice(&["block", "flow"]), "unit to count: flow for streams, else block"),
    ])
    .mode(Mode::Serial)
    .reads_fields(|_| Vec::new())
    .lowers(Lower::OneIn(one_in))
    .examples(&[Example {
        request: "pcap browse.pcap | sample 10 | count",
        output: "{\"blocks\":5,\"bytes\":4418,\"wire_bytes\":4418}\n",
    }]);

/// The number N as `u32`.
fn one_in(params: &Params) -> Result<u32, String> {
    if params.text("by") == Some("flow") {
        return Err("which flows pass is decided by more than a program there can tell".into());
    }
    let every = params.number("every").filter(|every| *every > 0).and_then(|every| u32::try_from(every).ok());
    every.ok_or_else(|| "it counts up to 4,294,967,295 there".into())
}

/// Fixed, so that every run picks the same flows. There is no table here that an attacker could flood.
const SEED: u64 = 1;

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let every = params.number("every").unwrap_or_default();
    if every == 0 {
        return Err(ParamError::new("every", "one in 0 is not possible").with_help("1 passes everything"));
    }
    let by = params.text("by");
    if are_streams(env)? {
        return match by {
            Some("block") => Err(ParamError::new("by", format!("single blocks of {} cannot be left out", env.input))
                .with_help("by=flow passes whole streams")),
            _ => Ok(Instance::filter(Streams { flows: Flows::new(every) })),
        };
    }
    let of_packets = env.input.has(Type::Frame) || env.input.has(Type::Packet);
    match by {
        Some("flow") if env.input.has(Type::Record) || !of_packets => {
            Err(ParamError::new("by", format!("{} have no flow to look at", env.input)))
        }
        Some("flow") => Ok(Instance::filter(Packets { flows: Flows::new(every) })),
        _ => Ok(Instance::filter(Blocks { every, until_next: 0 })),
    }
}

/// Picks flows by their hash.
struct Flows {
    every: u64,
    hasher: FlowHasher,
}

impl Flows {
    fn new(every: u64) -> Flows {
        Flows { every, hasher: FlowHasher::new(SEED) }
    }

    #[inline]
    fn wants(&self, flow: &Flow) -> bool {
        self.hasher.hash(flow).is_multiple_of(self.every)
    }
}

struct Blocks {
    every: u64,
    /// Blocks to skip before the next that passes.
    until_next: u64,
}

impl Filter for Blocks {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        batch.keep_if(|_| {
            let passes = self.until_next == 0;
            self.until_next = if passes { self.every - 1 } else { self.until_next - 1 };
            passes
        });
        Ok(Status::Done)
    }
}

struct Packets {
    flows: Flows,
}

impl Filter for Packets {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (rings, counters) = (&*cx.rings, &mut *cx.counters);
        let mut links = Links::default();
        batch.keep_if_read(rings, |block, bytes| {
            let parsed = links.of(rings, block).and_then(|link| frame::parse(link, bytes, block.wire()).ok());
            let Some(frame) = parsed else {
                counters.events.add("no flow", 1);
                return false;
            };
            let flow = Flow::of(&frame, bytes);
            // Later fragments have no ports; hash the first without ports too, so that all get the same answer.
            self.flows.wants(&match frame.fragment {
                Some(_) => Flow { source_port: 0, target_port: 0, ..flow },
                None => flow,
            })
        });
        Ok(Status::Done)
    }
}

struct Streams {
    flows: Flows,
}

impl Filter for Streams {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (streams, counters) = (&*cx.streams, &mut *cx.counters);
        batch.keep_if(|block| match streams.get(block.class) {
            Some(facts) => self.flows.wants(&facts.flow),
            None => {
                counters.events.add("no flow", 1);
                false
            }
        });
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};
    use testkit::Chain;
    use testkit::packets::{SERVER, tcp};

    #[test]
    fn by_block_it_is_the_first_of_each_n() {
        let check = |blocks: u64, every: &str, expected: &[u64]| {
            let frames: Vec<_> = (0..blocks).map(|number| (number, vec![])).collect();
            let outcome = Chain::frames(1, &frames).then(&KIND, &[("every", every)]).run();
            assert!(outcome.blocks.iter().map(|block| block.descriptor.time).eq(expected.iter().copied()), "{every}");
        };
        check(0, "3", &[]);
        check(5, "1", &[0, 1, 2, 3, 4]);
        check(7, "3", &[0, 3, 6]);
        check(200, "100", &[0, 100]);
        check(70, "64", &[0, 64]);
        check(9, "18446744073709551615", &[0]);
    }

    fn client(number: u16) -> (Ipv4Addr, u16) {
        (Ipv4Addr::new(10, 1, (number >> 8) as u8, number as u8), 40_000 + number)
    }

    #[test]
    fn by_flow_it_is_both_directions_or_neither() {
        let there_and_back = |number| {
            let client = client(number);
            [(0, tcp(client, SERVER, 1, 1, 16, b"ask")), (0, tcp(SERVER, client, 1, 1, 16, b"told"))]
        };
        let frames: Vec<_> = (0..1000).flat_map(there_and_back).chain([(0, vec![0; 20])]).collect();
        let outcome = Chain::frames(1, &frames).then(&KIND, &[("every", "10"), ("by", "flow")]).run();
        let mut directions = BTreeMap::<u16, u8>::new();
        for block in &outcome.blocks {
            let ports = [34, 36].map(|at| u16::from_be_bytes([block.bytes[at], block.bytes[at + 1]]));
            *directions.entry(ports[0].max(ports[1])).or_default() += 1;
        }
        assert!(directions.values().all(|count| *count == 2));
        assert!((70..130).contains(&directions.len()), "{} of 1000 flows", directions.len());
        assert_eq!(outcome.counters("sample").events.get("no flow"), 1);
    }

    #[test]
    fn fragments_of_a_packet_stay_together() {
        for number in 0..200 {
            let mut first = tcp(client(number), SERVER, 1, 1, 16, &[7; 32]);
            first[20] = 0x20;
            let mut second = first.clone();
            second[21] = 4;
            second[34..38].copy_from_slice(&[9, 9, 9, 9]);
            let frames = [(0, first), (0, second)];
            let outcome = Chain::frames(1, &frames).then(&KIND, &[("every", "3"), ("by", "flow")]).run();
            assert!(matches!(outcome.blocks.len(), 0 | 2));
        }
    }

    #[test]
    fn streams_pass_whole_or_not_at_all() {
        let facts = |number| {
            let ((source, source_port), target) = (client(number), IpAddr::V4(SERVER.0));
            let source = IpAddr::V4(source);
            let flow = Flow { source, target, source_port, target_port: SERVER.1, protocol: 6 };
            StreamFacts::new(flow, 0, StreamState::Established)
        };
        let facts: Vec<_> = (0..100).map(facts).collect();
        let piece = |class| (Descriptor { class: Class(class), ..Descriptor::default() }, vec![1]);
        let chain = Chain::pieces(Type::Bytes, None, (0..200).map(piece).collect()).streams(&facts);
        let outcome = chain.then(&KIND, &[("every", "4")]).run();
        let classes: Vec<_> = outcome.blocks.iter().map(|block| block.descriptor.class.0).collect();
        assert!(classes.chunks(2).all(|pair| pair[0] + 1 == pair[1]), "{classes:?}");
        assert!((30..80).contains(&classes.len()), "{}", classes.len());
    }

    #[test]
    fn refusals() {
        let check = |of: Type, given: &[(&str, &str)], key: &str| {
            let error = Chain::pieces(of, Some(1), Vec::new()).then(&KIND, given).refusal().unwrap();
            assert_eq!(error.key, Some(key));
        };
        check(Type::Frame, &[("every", "0")], "every");
        check(Type::Bytes, &[("every", "2"), ("by", "block")], "by");
        check(Type::Record, &[("every", "2"), ("by", "flow")], "by");
    }
}
