//! Puts TCP segments in order: frames in, byte streams out. Passive: it sees what passed, sends nothing and may have
//! missed some. Not defragmentation and not tunnels, which belong above it; not what the streams say.
//!
//! No payload is copied. Data that comes in order leaves as a crop of its frame; data that comes early is held where it
//! lies, by descriptor.
//!
//! - `tcp/segment.rs` — a segment in its frame.
//! - `tcp/assembler.rs` — what a segment means for its connection. Start reading there; `tcp/order.rs` puts its data in
//!   order, `tcp/lifetime.rs` begins and ends connections.
//! - `tcp/connection.rs`, `tcp/direction.rs` — what is kept of one connection and of each of its directions.
//! - `tcp/held.rs` — what came before its turn.

pub(crate) mod assembler;
mod connection;
mod direction;
mod held;
mod lifetime;
mod order;
pub(crate) mod segment;
#[cfg(test)]
mod tests;

use crate::parts::origin::{self, Origins};
use crate::parts::transport::Refusal;
use assembler::{Assembler, Settings};
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use packet::frame::protocol;
use packet::malformed::Malformed;
use program::Predicate;
use segment::Segment;

/// What `tcp` is.
pub static KIND: Kind = Kind::new("tcp", "puts TCP segments in order: gives byte streams", make)
    .help(
        "Takes frames or packets and gives the bytes of each direction of each TCP connection, in order and without \
         repetitions; no byte is copied. class = connection * 2 + direction, where direction 0 is from the client (who \
         sent the SYN, or else the first segment seen) to the server.\n\n\
         Of bytes that were sent twice the first copy counts, whatever the second says. Bytes that the capture lacks \
         become a gap: the next block says how many are missing. They are given up on when their receiver has \
         acknowledged them and `gap-wait` has passed, when the connection ends, and when more is held than `memory` \
         allows or more than 16384 segments in one direction; where `memory` is short, the \
         directions that hold most make room. Where the receiver is still waiting for the missing bytes, \
         too, it is the held segments farthest ahead that are dropped instead.\n\n\
         A connection ends when both sides have sent FIN and each was acknowledged; 5 s after a RST or a FIN without \
         answer, if nothing contradicts it by then; after `timeout` without a segment, 130 s if it has not got beyond \
         SYNs; or to make room when there are more than 524288. Then each direction gets a last block, which is flagged \
         as truncated if its end was not seen. A new SYN between the ports of a connection that is over begins another; \
         on one that is not over it does so when it is answered or its sender goes on from it. Connections without a \
         SYN begin with the first data seen.\n\n\
         Checksums are not looked at. VLAN tags do not keep connections apart. Frames without TCP are rejected; fragments, \
         malformed headers and data more than 1 GiB away from what is expected are dropped and counted by reason. To \
         select TCP packets and keep them as they are, use `proto tcp`.",
    )
    .params(&[
        Param::new("timeout", ParamType::Duration, "end a connection after this long without a segment")
            .default("10min"),
        Param::new("memory", ParamType::Size, "hold at most this many bytes of segments that came early")
            .default("256M"),
        Param::new("gap-wait", ParamType::Duration, "wait this long for missing bytes that were acknowledged")
            .default("1s"),
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .rejects()
    .gives(Type::Bytes)
    .class(ClassUse::Sets("connection * 2 + direction, 0 = from the client"))
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .behind("decap")
    .pre_filter(|_| Some(Predicate::Protocol(Some(vec![(protocol::TCP, protocol::TCP)]))))
    .examples(&[
        // A question, an answer, and the end of each.
        Example {
            request: "pcap dns.pcap | tcp | count",
            output: "{\"blocks\":4,\"bytes\":112,\"wire_bytes\":112}\n",
        },
        Example {
            request: "pcap browse.pcap | tcp | count",
            output: "{\"blocks\":22,\"bytes\":21154,\"wire_bytes\":21154}\n",
        },
    ]);

/// Blocks given before they are sent on.
const ENOUGH: usize = 1000;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let default = Settings::default();
    let settings = Settings {
        idle: params.number("timeout").unwrap_or(default.idle),
        gap_wait: params.number("gap-wait").unwrap_or(default.gap_wait),
        memory: params.number("memory").unwrap_or(default.memory),
        ..default
    };
    Ok(with(settings, Origins::new(params)))
}

fn with(settings: Settings, origins: Origins) -> Instance {
    Instance::filter(Tcp { assembler: Assembler::new(settings), origins, dealt_with: 0 })
}

struct Tcp {
    assembler: Assembler,
    origins: Origins,
    /// Blocks of the batch under way that are done with, one bit each.
    dealt_with: u64,
}

impl Filter for Tcp {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.origins.begin_batch();
        for place in places(batch.live() & !self.dealt_with) {
            if cx.out.len() >= ENOUGH {
                return Ok(Status::More);
            }
            self.dealt_with |= 1 << place;
            let frame = batch.block(place);
            let Some(origin) = self.origins.of(cx.rings, frame) else {
                cx.drop(1, Malformed::UnsupportedLink.reason());
                continue;
            };
            match Segment::read(&self.origins, origin, cx.rings.bytes(frame), frame.wire()) {
                Ok(segment) => {
                    if let Err(reason) = self.assembler.segment(&segment, frame, cx) {
                        cx.drop(1, reason);
                    }
                }
                Err(Refusal::Other) => cx.reject(place),
                Err(Refusal::Tunnel(reason)) => cx.reject_unread(place, reason),
                Err(Refusal::Dropped(reason)) => cx.drop(1, reason),
            }
        }
        self.dealt_with = 0;
        cx.wake_at(self.assembler.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let status = self.assembler.expire(ENOUGH, cx);
        cx.wake_at(self.assembler.next_due());
        Ok(status)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        Ok(self.assembler.finish(ENOUGH, cx))
    }
}
