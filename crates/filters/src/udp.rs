//! Groups UDP datagrams by flow. Each datagram becomes one message, a crop of its frame, without a copy.
//!
//! Does not read protocols on top of UDP. Fragments of datagrams are dropped and counted.
//!
//! Tiers: a datagram of a known flow costs one parse, one lookup and one descriptor. The first datagram of a flow adds
//! an entry and takes a stream number. A timer closes flows that are silent for too long.

use crate::parts::flow_table::{FlowTable, Slot, Way};
use crate::parts::origin::{self, Origin, Origins, facts_of};
use crate::parts::transport::{Refusal, locate};
use base::limits::{UDP_FLOWS, UDP_IDLE_NS};
use filter::kind::Example;
use filter::prelude::*;
use packet::encapsulation::Vlans;
use packet::flow::Flow;
use packet::frame::protocol;
use packet::malformed::Malformed;
use packet::udp;
use program::Predicate;

/// The kind `udp`.
pub static KIND: Kind = Kind::new("udp", "gives each UDP datagram as a message, by flow", make)
    .help(
        "Takes frames or packets and gives one message for each UDP datagram: its payload, not copied. Datagrams between \
         the same two addresses and ports, in either direction, make a flow; class = flow * 2 + direction, where 0 is the \
         direction of the flow's first datagram. A flow ends when no datagram came for `timeout` of packet time, or when \
         there are more than 524288 and it is the longest silent. A datagram that the capture cut is flagged as truncated. \
         Frames without UDP are rejected; fragments and malformed headers are dropped and counted by reason. To select \
         UDP packets and keep them as they are, use `proto udp`.",
    )
    .params(&[
        Param::new("timeout", ParamType::Duration, "end a flow after this long without a datagram").default("60s"),
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .rejects()
    .gives(Type::Message)
    .class(ClassUse::Sets("flow * 2 + direction"))
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .behind("decap")
    .pre_filter(|_| Some(Predicate::Protocol(Some(vec![(protocol::UDP, protocol::UDP)]))))
    .examples(&[Example {
        request: "pcap browse.pcap | udp | count",
        output: "{\"blocks\":2,\"bytes\":193,\"wire_bytes\":193}\n",
    }]);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let idle = params.number("timeout").unwrap_or(UDP_IDLE_NS);
    Ok(Instance::filter(Udp { table: FlowTable::default(), idle, origins: Origins::new(params) }))
}

struct Entry {
    /// The flow's stream number.
    number: u32,
    /// Time of the latest datagram.
    last: u64,
    /// The same by the clock.
    last_seen: u64,
}

struct Udp {
    table: FlowTable<Entry, 1>,
    idle: u64,
    origins: Origins,
}

struct Datagram {
    flow: Flow,
    scope: u64,
    vlans: Vlans,
    offset: u32,
    len: u32,
    wire: u32,
}

#[inline]
fn read(origins: &Origins, origin: Origin, bytes: &[u8], frame_wire: u32) -> Result<Datagram, Refusal> {
    let located = locate(origin.link, bytes, frame_wire, protocol::UDP)?;
    let packet = udp::Packet::new_checked(located.bytes(bytes), located.wire_len)?;
    let offset = located.offset + HEADER_BYTES;
    let len = packet.payload().len() as u32;
    Ok(Datagram {
        flow: Flow {
            source: located.source,
            target: located.target,
            source_port: packet.source_port(),
            target_port: packet.target_port(),
            protocol: protocol::UDP,
        },
        scope: origins.scope(origin, located.vlans),
        vlans: located.vlans,
        offset,
        len,
        // At most what the frame had on the wire, whatever the IP header claims.
        wire: packet.payload_wire_len().min(frame_wire.saturating_sub(offset)).max(len),
    })
}

const HEADER_BYTES: u32 = udp::Packet::HEADER_BYTES as u32;

impl Udp {
    /// The class of a datagram. `None`: the flow is new and no stream number is free.
    #[inline]
    fn class_of(&mut self, datagram: &Datagram, block: &Descriptor, cx: &mut Context<'_>) -> Option<Class> {
        if let Some((slot, way)) = self.table.find(&datagram.flow, datagram.scope) {
            self.table.touch(slot);
            let entry = self.table.get_mut(slot)?;
            let silent = block.time.saturating_sub(entry.last);
            (entry.last, entry.last_seen) = (block.time.max(entry.last), cx.now);
            if silent <= self.idle {
                return Some(Class::of_stream(entry.number, u8::from(way == Way::Back)));
            }
            // The clock is behind a leap in the packets' times. `flows` tells flows apart by these, too.
            cx.count("flows idle", 1);
            self.end(slot, cx);
        }
        self.begin(datagram, block, cx)
    }

    #[cold]
    fn begin(&mut self, datagram: &Datagram, block: &Descriptor, cx: &mut Context<'_>) -> Option<Class> {
        if self.table.count() >= UDP_FLOWS
            && let Some(oldest) = self.table.oldest(0)
        {
            cx.count("flows evicted", 1);
            self.end(oldest, cx);
        }
        let Datagram { flow, scope, vlans, .. } = *datagram;
        let (vlans, tunnels) = facts_of(cx.rings, block, vlans);
        let facts = StreamFacts { vlans, tunnels, ..StreamFacts::new(flow, block.time, StreamState::Established) };
        let number = cx.streams.open(facts)?;
        self.table.insert(flow, scope, 0, Entry { number, last: block.time, last_seen: cx.now });
        Some(Class::of_stream(number, 0))
    }

    fn end(&mut self, slot: Slot, cx: &mut Context<'_>) {
        if let Some(entry) = self.table.remove(slot) {
            cx.streams.close(entry.number);
        }
    }

    /// When the flow that has been silent longest must be checked.
    fn next_due(&self) -> u64 {
        let oldest = self.table.oldest(0).and_then(|slot| self.table.get(slot));
        oldest.map_or(u64::MAX, |entry| entry.last_seen.saturating_add(self.idle).saturating_add(1))
    }
}

impl Filter for Udp {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.origins.begin_batch();
        for (place, block) in batch.iter() {
            let Some(origin) = self.origins.of(cx.rings, block) else {
                cx.drop(1, Malformed::UnsupportedLink.reason());
                continue;
            };
            let datagram = match read(&self.origins, origin, cx.rings.bytes(block), block.wire()) {
                Ok(datagram) => datagram,
                Err(Refusal::Other) => {
                    cx.reject(place);
                    continue;
                }
                Err(Refusal::Tunnel(reason)) => {
                    cx.reject_unread(place, reason);
                    continue;
                }
                Err(Refusal::Dropped(reason)) => {
                    cx.drop(1, reason);
                    continue;
                }
            };
            let Some(class) = self.class_of(&datagram, block, cx) else {
                cx.drop(1, "no stream number free");
                continue;
            };
            let mut message = block.part(datagram.offset, datagram.len);
            message.class = class;
            message.set_wire(datagram.wire);
            let cut = if datagram.len < datagram.wire { Flags::TRUNCATED } else { Flags::NONE };
            message.set_flags(Flags::FIRST.with(Flags::LAST).with(cut));
            cx.emit(message);
        }
        cx.wake_at(self.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        while self.next_due() <= cx.now
            && let Some(oldest) = self.table.oldest(0)
        {
            cx.count("flows idle", 1);
            self.end(oldest, cx);
        }
        cx.wake_at(self.next_due());
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        while let Some(oldest) = self.table.oldest(0) {
            self.end(oldest, cx);
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::packets::{CLIENT, SERVER, ipv4, tcp, udp};
    use testkit::{Chain, Outcome};

    const SECOND: u64 = 1_000_000_000;

    fn run(frames: &[(u64, Vec<u8>)]) -> Outcome {
        Chain::frames(1, frames).then(&KIND, &[]).run()
    }

    /// Checks the class and the bytes of each block.
    fn check(frames: &[(u64, Vec<u8>)], expected: &[(u32, &[u8])]) -> Outcome {
        let outcome = run(frames);
        let found: Vec<_> =
            outcome.blocks.iter().map(|block| (block.descriptor.class.0, block.bytes.as_slice())).collect();
        assert_eq!(found, expected);
        for block in &outcome.blocks {
            assert!(block.from_source, "copied");
            assert!(block.descriptor.has(Flags::FIRST.with(Flags::LAST)));
            assert_eq!(block.stream.as_ref().unwrap().flow.protocol, protocol::UDP);
        }
        outcome
    }

    #[test]
    fn datagrams_are_messages_of_their_flow() {
        let other = (CLIENT.0, CLIENT.1 + 1);
        let outcome = check(
            &[
                (1, udp(CLIENT, SERVER, b"question")),
                (2, udp(other, SERVER, b"another")),
                (3, udp(SERVER, CLIENT, b"answer")),
                (4, udp(SERVER, other, b"")),
                (5, udp(CLIENT, SERVER, b"again")),
            ],
            &[(0, b"question"), (2, b"another"), (1, b"answer"), (3, b""), (0, b"again")],
        );
        let facts = outcome.blocks[2].stream.as_ref().unwrap();
        assert_eq!((facts.start, facts.flow.source_port, facts.state), (1, CLIENT.1, StreamState::Established));
    }

    #[test]
    fn what_is_not_a_whole_datagram_is_counted() {
        let mut fragment = udp(CLIENT, SERVER, b"part");
        fragment[20] = 0x20;
        let mut short = udp(CLIENT, SERVER, b"");
        short[39] = 7;
        let outcome = check(
            &[
                (1, fragment),
                (2, short),
                (3, tcp(CLIENT, SERVER, 1, 1, 16, b"no")),
                (4, ipv4(CLIENT.0, SERVER.0, 1, b"ping....")),
                (5, [&[0; 12][..], &[8, 6], &[0; 28]].concat()),
                (6, vec![0; 5]),
            ],
            &[],
        );
        let counters = outcome.counters("udp");
        assert_eq!(counters.blocks_rejected, 3);
        let drops: Vec<_> = counters.drops.iter().collect();
        assert_eq!(drops, [("fragment", 1), ("truncated link header", 1), ("udp length below 8", 1)]);
    }

    #[test]
    fn a_cut_datagram_says_so() {
        let mut frame = udp(CLIENT, SERVER, b"0123456789");
        let wire = frame.len() as u32;
        frame.truncate(frame.len() - 4);
        let mut block = Descriptor::default();
        block.set_wire(wire);
        let outcome = Chain::pieces(Type::Frame, Some(1), vec![(block, frame)]).then(&KIND, &[]).run();
        let [block] = &outcome.blocks[..] else { panic!("one block") };
        assert_eq!((block.bytes.as_slice(), block.descriptor.wire()), (&b"012345"[..], 10));
        assert!(block.descriptor.has(Flags::TRUNCATED));
    }

    #[test]
    fn a_silent_flow_ends() {
        // A batch of other traffic each second moves the clock.
        let ping = |n: u64| ((1 + n / 64) * SECOND, ipv4(CLIENT.0, SERVER.0, 1, b"ping"));
        let check = |seconds: u64, expected: &[u32]| {
            let mut frames = vec![(SECOND, udp(CLIENT, SERVER, b"a"))];
            frames.extend((0..seconds * 64).map(ping));
            frames.push(((1 + seconds) * SECOND, udp(SERVER, CLIENT, b"b")));
            let outcome = run(&frames);
            assert_eq!(outcome.counters("udp").events.get("flows idle"), u64::from(expected[1] > 1));
            assert_eq!(outcome.by_class().into_keys().collect::<Vec<_>>(), expected);
        };
        check(59, &[0, 1]);
        check(63, &[0, 2]);
    }
}
