//! A bridge between two devices. At the beginning of a chain it receives from both; behind other filters it sends each
//! frame by the other device.
//!
//! - `parts/received.rs` — receiving; `parts/on_wire.rs` — open checksums and super-frames; `parts/sending.rs` — sending.
//!
//! A bridge learns no addresses: each frame has one way to go. A frame's view names the interface that it came by, so
//! filters between may set classes. Control puts the sink at open ends behind the source ([`Kind::returns`]).

use crate::parts::on_wire::OnWire;
use crate::parts::received::{self, Port};
use crate::parts::select::{Links, ViewKey};
use crate::parts::sending::{self, Patience};
use base::limits::BATCH_BLOCKS;
use buffer::BlockTable;
use driver::af_packet::options::{BLOCK_BYTES_MIN, Options};
use driver::af_packet::{Direction, Receiver, Sender, SenderOptions};
use driver::link::Link;
use driver::{Receive, Transmit};
use filter::prelude::*;
use packet::link::LinkType;
use std::time::Duration;

/// What `bridge` is behind other filters.
pub static KIND: Kind = Kind::new("bridge", "sends each frame by the other of two devices; begins a chain: reads both", make)
    .also(&["inline"])
    .help(
        "`bridge a b` forwards what `a` receives by `b`, and what `b` receives by `a`. Filters between decide what passes: \
         `bridge a b | not port 23` forwards all but port 23. Where a path behind the source ends with frames, the sink is put \
         there, of the same two devices; `bridge` without devices means the same sink. Frames that no sink gets are not \
         forwarded: to look at all of them beside, write `bridge a b | { bridge + tcp | http | json }`. \
         `|0` selects what came by the first device, `|1` what came by the second.\n\
         \n\
         Frames of every sort pass: ARP, IPv6, VLAN tags, spanning tree. Their bytes and the order within each direction stay. Both \
         devices are promiscuous while the request runs. Checksums that a virtual peer left open are finished. \
         Super-frames of such a peer, and segments that the kernel put together (GRO), are cut into the segments of the wire. \
         Frames for which a device has no room for 20 ms, and frames longer than its MTU, are dropped and counted.\n\
         \n\
         The host sees a copy of what both devices receive. Give them no addresses, and do not make them ports of another bridge: the \
         host would answer and forward as well. LRO must be off (`ethtool -K DEVICE lro off`). Two requests that bridge the same \
         devices send each frame twice. Needs CAP_NET_RAW.",
    )
    .params(&[Param::new("devices", ParamType::List, "the two devices; those of the source if not given").main()])
    .takes(&[Type::Frame])
    .sink()
    .first(&SOURCE);

/// What `bridge` is at the beginning of a chain.
static SOURCE: Kind = Kind::new("bridge", "what two devices receive, to be sent by the other one", source)
    .params(&[
        Param::new("devices", ParamType::List, "the two devices").required().main(),
        Param::new("buffer", ParamType::Size, "bytes of ring for each device").default("8M"),
    ])
    .source(Type::Frame)
    .class(ClassUse::Sets("0 for the first device, 1 for the second"))
    .runs_in(Spaces::APP)
    .returns("bridge");

/// How long a frame, and with it the other direction, waits for room in a device. Then the frame is dropped.
const PATIENCE: Duration = Duration::from_millis(20);

fn names(params: &Params) -> Result<[&str; 2], ParamError> {
    match params.list("devices") {
        [] => Err(ParamError::new("devices", "it is not clear which two devices it bridges")
            .with_help("name them, or put it behind the source: bridge A B | ... | bridge")),
        [one, other] if one == other => Err(ParamError::new("devices", "a frame would go back where it came from")),
        [one, other] => Ok([one, other]),
        _ => Err(ParamError::new("devices", "a bridge has two devices").with_help("bridge A B")),
    }
}

fn source(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let bytes = usize::try_from(params.number("buffer").unwrap_or_default()).unwrap_or(usize::MAX);
    let block_bytes = Options::default().block_bytes.min((bytes / 2).next_multiple_of(4096)).max(BLOCK_BYTES_MIN);
    let options = Options {
        direction: Direction::In,
        promiscuous: true,
        segment_sizes: true,
        at_once: true,
        block_bytes,
        block_count: (bytes / block_bytes).max(2),
        ..Options::default()
    };
    let namespace = received::namespace()?;
    let mut ports = Vec::new();
    for name in names(params)? {
        let receiver = Receiver::open(&namespace, name, &options).map_err(received::refusal)?;
        let link = receiver.device().clone();
        check(&link)?;
        ports.push(Port::new(&link, vec![Box::new(receiver) as Box<dyn Receive>], 0)?);
    }
    received::source_of(ports, Some(OnWire::default()), None)
}

/// Bridges take Ethernet devices only.
fn check(link: &Link) -> Result<(), ParamError> {
    let is_ethernet = link.link_type() == Some(LinkType::ETHERNET.0) && !link.is_loopback();
    let wrong = || ParamError::new("devices", format!("`{}` is no Ethernet device", link.name));
    is_ethernet.then_some(()).ok_or_else(wrong)
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let namespace = received::namespace()?;
    let open = |name: &str| -> Result<Way, ParamError> {
        let link = driver::device::find(&namespace, name).map_err(received::refusal)?.link;
        check(&link)?;
        let sender = Sender::open(&namespace, name, SenderOptions::default()).map_err(received::refusal)?;
        Ok(Way { name: name.into(), sender: Box::new(sender) })
    };
    let [one, other] = names(params)?;
    Ok(Instance::filter(Bridge { ways: [open(one)?, open(other)?], known: Vec::new() }))
}

struct Way {
    name: String,
    sender: Box<dyn Transmit>,
}

struct Bridge {
    ways: [Way; 2],
    /// Per view: the index of the device that sends its frames. `None`: the frames came by neither device.
    known: Vec<(ViewKey, Option<usize>)>,
}

/// Views that are remembered. Each device has one, and each filter that edits frames may add two.
const VIEWS: usize = 64;

impl Bridge {
    /// The device that sends a frame.
    #[inline]
    fn way_of(&mut self, rings: &BlockTable, block: &Descriptor) -> Option<usize> {
        let key = Links::key_of(block);
        match self.known.iter().find(|(known, _)| *known == key) {
            Some((_, way)) => *way,
            None => self.find_way(rings, block, key),
        }
    }

    #[cold]
    fn find_way(&mut self, rings: &BlockTable, block: &Descriptor, key: ViewKey) -> Option<usize> {
        // A packet out of a tunnel never came by the device itself.
        let interface = rings.interface(block).filter(|interface| interface.tunnels.is_none());
        let came_by = interface.and_then(|interface| interface.name.as_deref());
        let side = self.ways.iter().position(|way| came_by == Some(way.name.as_str()));
        let way = side.map(|side| 1 - side);
        if self.known.len() >= VIEWS {
            self.known.clear();
        }
        self.known.push((key, way));
        way
    }
}

impl Filter for Bridge {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let rings = &*cx.rings;
        let mut frames = [[&[][..]; BATCH_BLOCKS]; 2];
        let mut counts = [0; 2];
        let (mut cut, mut strange) = (0, 0);
        for (_, block) in batch.iter() {
            match self.way_of(rings, block) {
                _ if block.len < block.wire() => cut += 1,
                None => strange += 1,
                Some(way) => {
                    frames[way][counts[way]] = rings.bytes(block);
                    counts[way] += 1;
                }
            }
        }
        let patience = Patience { room: Duration::from_millis(1), all: PATIENCE };
        let mut refused = [None; 2];
        for ((way, frames), (count, refused)) in self.ways.iter_mut().zip(&frames).zip(counts.iter().zip(&mut refused))
        {
            *refused = sending::send(way.sender.as_mut(), &frames[..*count], patience)?;
        }
        let others =
            [Some(("cut when they were captured", cut)), Some(("came by neither device of the bridge", strange))];
        for (why, count) in refused.into_iter().chain(others).flatten().filter(|(_, count)| *count > 0) {
            cx.counters.drops.add(why, count as u64);
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        for way in &mut self.ways {
            sending::account(way.sender.as_mut(), PATIENCE, cx)?;
        }
        Ok(Status::Done)
    }
}
