//! Puts TCP segments in order: frames in, byte streams out. It is passive: it sends nothing and may have missed
//! segments. Earlier filters reassemble fragments and open tunnels; later ones read the streams.
//!
//! No payload is copied. Data in order leaves as a crop of its frame, with its time. Early data is held in place, by
//! descriptor.
//!
//! - `tcp/segment.rs` — a segment in its frame; `tcp/settings.rs` — what an assembler is told.
//! - `tcp/assembler.rs` — what a segment means for its connection. Start reading there; `tcp/order.rs` puts its data
//!   in order, `tcp/lifetime.rs` begins and ends connections, `tcp/syn_data.rs` handles the data of SYNs.
//! - `tcp/refusal.rs` — segments that the receiver would drop; `tcp/doubt.rs` — what becomes of their data.
//! - `tcp/connection.rs`, `tcp/direction.rs` — the state of a connection and of each of its directions.
//! - `tcp/held.rs` — early data; `tcp/given.rs` — the latest data given; `tcp/piece.rs` — the pieces of both.
//! - `tcp/urgent.rs` — bytes that the receiver's program reads apart from the others.
//! - `tcp/turns.rs` — the order of the two directions; `tcp/waiting.rs` — which of them wait.
//! - `tcp/conflict.rs` — different bytes for one place, which the filter `conflicts` reports.

pub mod assembler;
pub(crate) mod conflict;
mod connection;
mod direction;
mod doubt;
mod given;
mod held;
mod lifetime;
mod order;
mod piece;
mod refusal;
pub mod segment;
pub mod settings;
mod syn_data;
#[cfg(test)]
mod tests;
mod turns;
mod urgent;
mod waiting;

use crate::parts::origin::{self, Origins};
use crate::parts::policy::{self, Policies};
use crate::parts::transport::Refusal;
use assembler::Assembler;
use base::limits::{STREAMS, TCP_CONNECTIONS, TCP_HELD_BLOCKS, TCP_HELD_BLOCKS_PER_DIRECTION};
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use packet::frame::protocol;
use packet::malformed::Malformed;
use program::Predicate;
use segment::Segment;
use settings::{CHECKSUMS, Checksums, Settings, Urgent};

/// What `tcp` is.
pub static KIND: Kind = Kind::new("tcp", "puts TCP segments in order: gives byte streams", make)
    .help(
        "Takes frames or packets and gives the bytes of each direction of each TCP connection, in order and without \
         repetitions; no byte is copied. class = connection * 2 + direction, where direction 0 is from the client (who \
         sent the SYN, or else the first segment seen) to the server.\n\n\
         Bytes that were given do not change any more. Where segments overlap that both wait for what is missing before them, `policy` \
         says whose bytes count, and `policy.NETWORK` for targets in a network: each is what a system does. Different bytes for one place are counted \
         as conflicting bytes; with `recall`, those that were given are compared, too. `conflicts` gives a record of each, with both versions.\n\n\
         What the receiver would not take does not count: segments with a wrong checksum, with an old timestamp (RFC 7323), without \
         ACK or beyond the window, and resets that do not stand where the receiver is (RFC 5961). But where the receiver acknowledges such \
         bytes and nothing better came, they count: then the capture is at fault. A checksum is wrong only if its sender has shown a right one, and \
         not if a device was to finish it; `checksum=yes` drops those, too, and `checksum=no` looks at none. `check=no` takes all the \
         others. Data of a SYN counts if the answer acknowledges it. `urgent=oob` leaves urgent bytes out, \
         as Linux does for a program that reads at once and does not ask for them.\n\n\
         Data waits for the bytes of the other direction that it acknowledges, so that an answer comes after its question in whatever \
         order the capture has both: at most for `gap-wait`, and only within `memory` and `segments`.\n\n\
         Bytes that the capture lacks \
         become a gap: the next block says how many are missing. They are given up on when their receiver has \
         acknowledged them and `gap-wait` has passed, when the connection ends, and when more is held than `memory` \
         allows or more than `segments` in one direction; where `memory` is short, the \
         directions that hold most make room. Where the receiver is still waiting for the missing bytes, \
         too, it is the held segments farthest ahead that are dropped instead.\n\n\
         A connection ends when both sides have sent FIN and each was acknowledged; 5 s after a RST or a FIN without \
         answer, if nothing contradicts it by then; after `timeout` without a segment, 130 s if it has not got beyond \
         SYNs; or to make room when there are more than `connections`. Then each direction gets a last block, which is flagged \
         as truncated if its end was not seen. A new SYN between the ports of a connection that is over begins another; \
         on one that is not over it does so when it is answered or its sender goes on from it. Connections without a \
         SYN begin with the first data seen.\n\n\
         Frames without TCP are rejected; fragments, \
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
        Param::new("connections", ParamType::Number, "know at most this many connections at a time").default("524288"),
        Param::new("segments", ParamType::Number, "hold at most this many segments of one direction").default("16384"),
        policy::POLICY,
        policy::OF_NETWORK,
        CHECKSUM,
        CHECK,
        URGENT.default("inline"),
        Param::new("recall", ParamType::Size, "compare what is sent again with this many bytes that were given")
            .default("0"),
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

const _: () = assert!(TCP_CONNECTIONS == 524_288 && TCP_HELD_BLOCKS_PER_DIRECTION == 16_384, "the defaults say so");

/// Number of blocks given at which a call stops.
const ENOUGH: usize = 1000;

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let default = Settings::default();
    let bounded = |key, default: usize, most: usize| {
        let given = params.number(key).map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX));
        if (1..=most).contains(&given) { Ok(given) } else { Err(ParamError::new(key, format!("it is 1 to {most}"))) }
    };
    let settings = Settings {
        connections: bounded("connections", default.connections, STREAMS)?,
        held_per_direction: bounded("segments", default.held_per_direction, TCP_HELD_BLOCKS)?,
        idle: params.number("timeout").unwrap_or(default.idle),
        gap_wait: params.number("gap-wait").unwrap_or(default.gap_wait),
        memory: params.number("memory").unwrap_or(default.memory),
        urgent: Urgent::of(params.text(URGENT.key), false),
        ..settings(params)?
    };
    Ok(with(settings, Origins::new(params)))
}

/// The settings of the parameters that `tcp` shares with other filters.
pub(crate) fn settings(params: &Params) -> Result<Settings, ParamError> {
    Ok(Settings {
        policies: Policies::new(params)?,
        checksums: Checksums::of(params.text(CHECKSUM.key)),
        check: params.flag(CHECK.key),
        keep_given: params.number("recall").unwrap_or(0),
        ..Settings::default()
    })
}

/// Whether urgent bytes are part of the stream. Each filter has its default.
pub const URGENT: Param =
    Param::new("urgent", ParamType::Choice(&["inline", "oob"]), "keep urgent bytes in the stream, or leave them out");

/// How wrong checksums are handled.
pub(crate) const CHECKSUM: Param =
    Param::new("checksum", ParamType::Choice(&CHECKSUMS), "leave out segments with a wrong checksum").default("auto");

/// Whether segments are left out that the receiver would drop for other reasons.
pub(crate) const CHECK: Param =
    Param::new("check", ParamType::Flag, "leave out what the receiver would, for other reasons than checksums")
        .default("yes");

fn with(settings: Settings, origins: Origins) -> Instance {
    Instance::filter(Tcp { assembler: Assembler::new(settings), origins, dealt_with: 0 })
}

struct Tcp {
    assembler: Assembler,
    origins: Origins,
    /// Blocks of the current batch that are finished, one bit each.
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
            let bytes = cx.rings.bytes(frame);
            // By reference: a segment is large and stays where it was read.
            match &mut Segment::read(&self.origins, origin, bytes, frame.wire()) {
                Ok(segment) => {
                    self.assembler.check(segment, frame, bytes);
                    if let Err(reason) = self.assembler.segment(segment, frame, cx) {
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
