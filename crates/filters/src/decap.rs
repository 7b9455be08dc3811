//! Opens tunnels and reassembles fragments: the output is the inner packet, whole. Other frames pass unchanged.
//! Streams and encrypted tunnels are not opened.
//!
//! A packet out of a tunnel is the same bytes, cropped, in a view that names its tunnels. Only a reassembled packet is
//! copied.
//!
//! Tiers:
//! 1. *plain* — `packet::tunnel::is_plain` sees no tunnel or fragment at a glance: nearly every frame;
//! 2. *opened* — headers are read one tunnel at a time, the descriptor is cropped and the view is looked up;
//! 3. *fragments* — held until the packet is complete.
//!
//! - `decap/fragments.rs` — which fragments form a packet; `decap/pieces.rs` — whose bytes count in overlaps.
//! - `decap/views.rs` — the views of packets out of tunnels.

mod fragments;
mod pieces;
#[cfg(test)]
mod tests;
mod views;

use crate::parts::policy::{self, Policies};
use crate::parts::select::Links;
use base::limits::{DECAP_DEPTH, DECAP_HELD_BYTES, DECAP_TIMEOUT_NS};
use buffer::BlockTable;
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use fragments::{Added, Fragments};
pub use fragments::{DISAGREE, NO_UNIT, TOO_LARGE};
use packet::link::LinkType;
use packet::tunnel::ports::{Ports, Udp};
use packet::tunnel::{self, Carries, is_plain, look, stack};
use program::Predicate;
use std::hash::{BuildHasher, RandomState};
use views::Views;

/// What `decap` is.
pub static KIND: Kind = Kind::new("decap", "opens tunnels and puts fragments together", make)
    .also(&["decapsulate", "defrag", "tunnel", "untunnel", "reassemble"])
    .help(
        "Takes frames or packets. Of one in a tunnel it gives the packet inside: GRE with all its flags (NVGRE, and PPTP's version), \
         ERSPAN I, II and III, IPv4 and IPv6 in either (6in4), EtherIP, MPLS, PPPoE, L2TP, and in UDP VXLAN, Geneve, GTP-U, \
         Teredo, GRE and MPLS, one inside of the other up to `depth`. No byte is copied. A packet in fragments is put together, \
         which copies it once. All else passes as it is, and so does a tunnel that carries something else than IP or Ethernet.\n\n\
         It is put in by itself before `tcp` and `udp`, and so before all parsers; `set decap=no` leaves it out. It is not put in \
         before selectors: `port`, `host`, `bpf` and the like see the outer packet, as tcpdump does, unless `decap` stands \
         before them.\n\n\
         Records of what was in a tunnel say which: `tunnel` lists them, outermost first. Flows with the same addresses and ports \
         in different tunnels are different flows.\n\n\
         Where fragments overlap, `policy` says whose bytes count, and `policy.NETWORK` for targets in a network. Each oddity is \
         counted by name. A packet whose fragments do not all come within `timeout` is given up on, the oldest also where more \
         than 65536 are under way or their fragments take more than `memory`.",
    )
    .params(&[
        Param::new("depth", ParamType::Number, "open this number of nested tunnels; at most 8").default("8"),
        policy::POLICY,
        policy::OF_NETWORK,
        Param::new("timeout", ParamType::Duration, "give up on a packet whose fragments do not come within this time")
            .default("60s"),
        Param::new("memory", ParamType::Size, "hold at most this many bytes of fragments").default("32M"),
        Param::new(Udp::ALL[0].1, ParamType::Text, "UDP ports of VXLAN; none: do not open it").default(Udp::ALL[0].2),
        Param::new(Udp::ALL[1].1, ParamType::Text, "UDP ports of Geneve").default(Udp::ALL[1].2),
        Param::new(Udp::ALL[2].1, ParamType::Text, "UDP ports of GTP-U").default(Udp::ALL[2].2),
        Param::new(Udp::ALL[3].1, ParamType::Text, "UDP ports of Teredo").default(Udp::ALL[3].2),
        Param::new(Udp::ALL[4].1, ParamType::Text, "UDP ports of L2TP").default(Udp::ALL[4].2),
        Param::new(Udp::ALL[5].1, ParamType::Text, "UDP ports of GRE").default(Udp::ALL[5].2),
        Param::new(Udp::ALL[6].1, ParamType::Text, "UDP ports of MPLS").default(Udp::ALL[6].2),
    ])
    .takes(&[Type::Frame, Type::Packet])
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::METADATA)
    .parses_payload()
    .opens(opens)
    .examples(&[Example {
        request: "pcap browse.pcap | decap | port 80 | count",
        output: "{\"blocks\":41,\"bytes\":24814,\"wire_bytes\":24814}\n",
    }]);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Decap::new(params).map(Instance::filter)
}

/// `decap` with default parameters, for another filter.
pub fn usual() -> Result<Decap, ParamError> {
    let mut params = Params::new();
    let lacks = params.fill_defaults(KIND.params).err();
    lacks.map_or_else(|| Decap::new(&params), |param| Err(ParamError::new(param.key, "it has no default")))
}

impl Decap {
    fn new(params: &Params) -> Result<Decap, ParamError> {
        let depth = params.number("depth").unwrap_or(DECAP_DEPTH as u64);
        if depth > DECAP_DEPTH as u64 {
            return Err(ParamError::new(
                "depth",
                format!("{DECAP_DEPTH} tunnels at most are opened one inside of the other"),
            ));
        }
        let timeout = params.number("timeout").unwrap_or(DECAP_TIMEOUT_NS);
        let memory = params.number("memory").unwrap_or(DECAP_HELD_BYTES);
        Ok(Decap {
            shows_outer: false,
            outer: Vec::new(),
            unread: None,
            ports: ports(params)?,
            depth: depth as usize,
            fragments: Fragments::new(Policies::new(params)?, timeout, memory),
            views: Views::default(),
            hasher: RandomState::new(),
            stack: Vec::new(),
            key: Vec::new(),
        })
    }
}

fn ports(params: &Params) -> Result<Ports, ParamError> {
    let mut ports = Vec::new();
    for (udp, key, usual) in Udp::ALL {
        let text = params.text(key).unwrap_or(usual);
        if text == "none" {
            continue;
        }
        for part in text.split(',') {
            let port = part.trim().parse().map_err(|_| {
                ParamError::new(key, format!("`{part}` is not a port"))
                    .with_help("ports such as 4789 or \"4789,8472\", or none")
            })?;
            ports.push((port, udp));
        }
    }
    Ok(Ports::of_each(ports))
}

/// What a frame must match to be opened; `None` where the ports are wrong.
fn opens(params: &Params) -> Option<Vec<Predicate>> {
    let ranges = ports(params).ok()?.iter().map(|(port, _)| (port, port)).collect();
    Some(vec![
        Predicate::Fragment,
        Predicate::Protocol(Some(tunnel::PROTOCOLS.map(|number| (number, number)).to_vec())),
        Predicate::Ports(program::predicate::Ports { source: true, destination: true, ranges }),
    ])
}

/// Looks into tunnels, and puts fragments together.
pub struct Decap {
    ports: Ports,
    /// How many nested tunnels are opened.
    depth: usize,
    fragments: Fragments,
    views: Views,
    /// Hashes tunnel stacks, to keep apart fragments in different tunnels.
    hasher: RandomState,
    /// The tunnels of the current packet, and the key that tells them apart.
    stack: Vec<u8>,
    key: Vec<u8>,
    /// The caller asks for `outer`.
    shows_outer: bool,
    outer: Vec<Outer>,
    /// Why the last frame is not read as a receiver may read it.
    unread: Option<&'static str>,
}

/// A packet that the last frame was or carried, and that carries more: a tunnel over IP, or a fragment.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// The packet.
    pub block: Descriptor,
    /// Whether it is a fragment.
    pub is_fragment: bool,
}

/// Why a frame is dropped.
const NO_VIEW: &str = "no view for a tunnel";

/// Tunnels are not opened to the end.
pub const TOO_DEEP: &str = "tunnels too deep";

/// Some fragments of one packet came in a tunnel, others outside of it or in another.
pub const SPLIT: &str = "fragments of one packet in and out of a tunnel";

/// What becomes of a frame.
pub enum Fate {
    /// The frame passes unchanged.
    Passes,
    /// It is this inner frame, or this packet made of fragments.
    Becomes(Descriptor),
    /// The frame is a fragment and is held.
    Kept,
    /// It ends here, for this reason.
    Dropped(&'static str),
}

impl Decap {
    /// Looks at one frame.
    #[inline]
    pub fn frame(&mut self, link: LinkType, frame: &Descriptor, cx: &mut Context<'_>) -> Fate {
        self.fragments.begin_frame();
        self.outer.clear();
        self.unread = None;
        match is_plain(link, cx.rings.bytes(frame), &self.ports) {
            true => Fate::Passes,
            false => self.open(link, frame, cx),
        }
    }

    /// For callers that pass fragments on at once. When full, drops new fragments instead of giving up older packets.
    /// Remembers complete packets until their timeout, to compare further fragments of them.
    pub fn refuse_newcomers(&mut self) {
        self.fragments.refuses = true;
    }

    /// Why the last frame must not pass, with [`Decap::refuse_newcomers`]: what passed says so.
    pub fn refusal(&self) -> Option<&'static str> {
        self.fragments.refusal
    }

    /// The last frame is dropped, and so are later fragments of the packets that it completed.
    pub fn stop_last(&mut self, rings: &BlockTable) {
        self.fragments.stop_last(rings);
    }

    /// Whether a fragment in the last frame overlapped earlier ones.
    pub fn is_overlapping(&self) -> bool {
        self.fragments.overlaps
    }

    /// For callers that look at each packet of a frame: keeps those of [`Decap::outer`].
    pub fn show_outer(&mut self) {
        self.shows_outer = true;
    }

    /// The packets of the last frame without the innermost one, outermost first; empty without [`Decap::show_outer`]. A
    /// frame that carries its packet below IP is not among them.
    pub fn outer(&self) -> &[Outer] {
        &self.outer
    }

    /// Why the last frame is not read as a receiver may read it: [`TOO_DEEP`] or [`SPLIT`].
    pub fn unread(&self) -> Option<&'static str> {
        self.unread
    }

    /// When [`Decap::expire`] is due next.
    pub fn next_due(&self) -> u64 {
        self.fragments.next_due()
    }

    /// Gives up on packets whose time is over.
    pub fn expire(&mut self, cx: &mut Context<'_>) {
        self.fragments.expire(cx);
    }

    /// The input ends.
    pub fn end(&mut self, cx: &mut Context<'_>) {
        self.fragments.finish(cx);
    }

    /// Opens a frame that may carry another, or be a fragment.
    #[inline(never)]
    fn open(&mut self, mut link: LinkType, frame: &Descriptor, cx: &mut Context<'_>) -> Fate {
        self.stack.clear();
        if let Some(tunnels) = cx.rings.interface(frame).and_then(|interface| interface.tunnels.as_deref()) {
            self.stack.extend(tunnels);
        }
        let (before, mut layers) = (self.stack.len(), stack::Layers::of(&self.stack).count());
        // The descriptor is cropped as tunnels open; it gets its view at the end.
        let mut block = *frame;
        let mut is_whole = false;
        loop {
            let bytes = cx.rings.bytes(&block);
            match look(link, bytes, block.wire(), &self.ports) {
                Err(why) => {
                    cx.count(why.reason(), 1);
                    break;
                }
                Ok(Carries::Nothing) => break,
                Ok(Carries::Inner(_)) if layers >= self.depth => {
                    cx.count(TOO_DEEP, 1);
                    self.unread = Some(TOO_DEEP);
                    break;
                }
                Ok(Carries::Inner(inner)) => {
                    if inner.layer.addresses.is_some() && !self.show(&block, link, before, false, cx) {
                        return Fate::Dropped(NO_VIEW);
                    }
                    inner.layer.append_to(&mut self.stack);
                    layers += 1;
                    let flags = block.flags();
                    block = block.part(inner.offset, inner.len);
                    block.set_wire(inner.wire_len);
                    block.set_flags(flags);
                    link = inner.link;
                    cx.count(opened(inner.layer.kind), 1);
                }
                Ok(Carries::Fragment(fragment)) => {
                    if !self.show(&block, link, before, true, cx) {
                        return Fate::Dropped(NO_VIEW);
                    }
                    let scope = self.scope();
                    let outside = stack::Layers::of(&self.stack).next().map(|layer| layer.vlans.named());
                    let added = self.fragments.add(&block, &fragment, scope, outside, cx);
                    if self.fragments.is_split {
                        self.unread = Some(SPLIT);
                    }
                    match added {
                        Added::Kept => return Fate::Kept,
                        Added::Dropped(reason) => return Fate::Dropped(reason),
                        Added::Whole(packet) => (block, is_whole) = (packet, true),
                    }
                }
            }
        }
        match self.in_its_view(&block, link, before, cx) {
            None => Fate::Dropped(NO_VIEW),
            Some(_) if !is_whole && self.stack.len() == before => Fate::Passes,
            Some(block) => Fate::Becomes(block),
        }
    }

    /// Keeps a packet that carries more, if the caller asks; `false`: there is no view for it.
    fn show(
        &mut self,
        block: &Descriptor,
        link: LinkType,
        before: usize,
        is_fragment: bool,
        cx: &mut Context<'_>,
    ) -> bool {
        let shown = if self.shows_outer { self.in_its_view(block, link, before, cx) } else { return true };
        self.outer.extend(shown.map(|block| Outer { block, is_fragment }));
        shown.is_some()
    }

    /// A packet in the view that names its tunnels; the first `before` bytes of these are those of the frame.
    fn in_its_view(
        &mut self,
        block: &Descriptor,
        link: LinkType,
        before: usize,
        cx: &mut Context<'_>,
    ) -> Option<Descriptor> {
        if self.stack.len() == before {
            return Some(*block);
        }
        let view = self.views.of(block, link, &self.stack, cx)?;
        Some(Descriptor { ring: view.ring, generation: view.generation, ..*block })
    }

    /// A hash of the tunnels, which keeps their fragments apart from others; 0: no tunnel.
    fn scope(&mut self) -> u64 {
        if self.stack.is_empty() {
            return 0;
        }
        self.key.clear();
        stack::append_key(&self.stack, &mut self.key);
        self.hasher.hash_one(&self.key) | 1
    }
}

/// The counter of packets out of this kind of tunnel.
const fn opened(kind: tunnel::Kind) -> &'static str {
    match kind {
        tunnel::Kind::Gre => "packets out of gre",
        tunnel::Kind::Erspan => "packets out of erspan",
        tunnel::Kind::Pptp => "packets out of pptp",
        tunnel::Kind::Ip => "packets out of ip",
        tunnel::Kind::EtherIp => "packets out of etherip",
        tunnel::Kind::Mpls => "packets out of mpls",
        tunnel::Kind::Pppoe => "packets out of pppoe",
        tunnel::Kind::L2tp => "packets out of l2tp",
        tunnel::Kind::Vxlan => "packets out of vxlan",
        tunnel::Kind::Geneve => "packets out of geneve",
        tunnel::Kind::Gtp => "packets out of gtp",
        tunnel::Kind::Teredo => "packets out of teredo",
    }
}

impl Filter for Decap {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut links = Links::default();
        let mut others = 0u64;
        let (rings, ports) = (&*cx.rings, &self.ports);
        batch.read(rings, |place, block, bytes| {
            let plain = links.of(rings, block).is_some_and(|link| is_plain(link, bytes, ports));
            others |= u64::from(!plain) << place;
        });
        if others == 0 {
            return Ok(Status::Done);
        }
        for place in places(others) {
            let frame = *batch.block(place);
            let Some(link) = links.of(cx.rings, &frame) else { continue };
            match self.open(link, &frame, cx) {
                Fate::Passes => {}
                Fate::Becomes(block) => *batch.block_mut(place) = block,
                Fate::Kept => cx.take_of(batch, place),
                Fate::Dropped(reason) => cx.drop_of(batch, 1 << place, reason),
            }
        }
        cx.wake_at(self.fragments.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.expire(cx);
        cx.wake_at(self.next_due());
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.end(cx);
        Ok(Status::Done)
    }
}
