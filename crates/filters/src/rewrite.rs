//! Changes addresses, ports, VLAN tags and hop limits, and updates checksums: for address translation and replay.
//!
//! - `rewrite/rules.rs`: what an address or a port changes to.
//! - `parts/edit.rs`: where the fields are in a frame, and the checksums.
//!
//! A frame that needs no change is not copied.

mod rules;
#[cfg(test)]
mod tests;

use crate::parts::edit::{self, Change, End};
use crate::parts::select::{Links, refused};
use buffer::{EditError, Room};
use filter::prelude::*;
use packet::frame::{self, Frame};
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::{encapsulation, ethernet};
use rules::{Ends, Macs, Networks, Ports};
use std::net::IpAddr;

/// The kind `rewrite`.
pub static KIND: Kind = Kind::new("rewrite", "changes addresses, ports, VLAN tags and hops of frames", make)
    .help(
        "`src=192.0.2.1` sets every source address of that version; `src=10.0.0.0/8->192.0.2.0/24` moves those of one network \
         into another and keeps the bits behind the second prefix. `dst` is for targets, `net` for both; \
         `net=\"10.1.0.0/16->192.0.2.0/24,10.0.0.0/8->198.18.0.0/15\"` has several, of which the longest prefix decides. `=` may \
         stand for `->`. Ports (`dst-port=80->8080`, TCP, UDP, UDP-Lite and DCCP) and Ethernet addresses are changed alike. \
         What `src` or `dst` does not change, `net` may.\n\
         \n\
         vlan=7 sets the identifier of the outermost tag, where there is one; vlan=push:7 puts a tag in front; vlan=strip takes \
         the outermost off. ttl=64 sets the time to live, or hop limit; ttl=-1 takes one off, and drops what has none left.\n\
         \n\
         Checksums of IPv4, TCP, UDP and ICMP are mended by what changed (RFC 1624): one that was wrong stays wrong, one of a \
         frame that was cut is right for the whole frame, and UDP without one stays without. fix=yes computes again those of \
         whole packets, for frames that were captured before the device had summed them up. ARP, and the packet inside an ICMP \
         error, are changed as well; what tunnels carry is not.\n\
         \n\
         In place where the filter is alone with the frames and they lie in memory of the request's own; else the frame is copied.",
    )
    .params(&[
        Param::new("src", ParamType::Text, "source addresses: one, or maps as a/8->b/8"),
        Param::new("dst", ParamType::Text, "target addresses"),
        Param::new("net", ParamType::Text, "both: maps as a/8->b/8"),
        Param::new("src-port", ParamType::Text, "source ports: one, or maps as 80->8080"),
        Param::new("dst-port", ParamType::Text, "target ports"),
        Param::new("port", ParamType::Text, "both: maps as 80->8080"),
        Param::new("src-mac", ParamType::Text, "Ethernet source addresses: one, or maps"),
        Param::new("dst-mac", ParamType::Text, "Ethernet target addresses"),
        Param::new("mac", ParamType::Text, "both: maps"),
        Param::new("vlan", ParamType::Text, "7, push:7 or strip"),
        Param::new("ttl", ParamType::Text, "64, or -1 for one less"),
        Param::new("fix", ParamType::Flag, "compute checksums again").default("no"),
    ])
    .takes(&[Type::Frame, Type::Packet])
    .touches(Parts::DATA, Parts::DATA.with(Parts::METADATA))
    .examples(&[
        Example {
            request: "generate count=3 | rewrite dst-port=9->53 ttl=-1 vlan=push:7 | vlan |7 port 53 | count",
            output: "{\"blocks\":3,\"bytes\":204,\"wire_bytes\":204}",
        },
        Example {
            request: "pcap browse.pcap | rewrite net=145.254.160.0/24->192.0.2.0/24 | host 192.0.2.237 | count",
            output: "{\"blocks\":43,\"bytes\":25091,\"wire_bytes\":25091}",
        },
    ]);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let rewrite = Rewrite {
        networks: Ends::of_params(params, ["src", "dst", "net"], Networks::parse)?,
        ports: Ends::of_params(params, ["src-port", "dst-port", "port"], Ports::parse)?,
        macs: Ends::of_params(params, ["src-mac", "dst-mac", "mac"], Macs::parse)?,
        vlan: params.text("vlan").map(vlan).transpose()?.unwrap_or(Vlan::Keep),
        hops: params.text("ttl").map(hops).transpose()?.unwrap_or(Hops::Keep),
        fix: params.flag("fix"),
    };
    if rewrite.does_nothing() {
        return Err(ParamError::of_request("there is nothing to change").with_help("as in: rewrite dst=192.0.2.1"));
    }
    Ok(Instance::filter(rewrite))
}

/// The change to VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vlan {
    Keep,
    Set(u16),
    Push(u16),
    Strip,
}

/// The change to the time to live (IPv6: hop limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hops {
    Keep,
    Set(u8),
    Less(u8),
}

fn vlan(text: &str) -> Result<Vlan, ParamError> {
    let number = |text: &str| {
        text.parse().ok().filter(|id| *id < 4096 && !text.starts_with('+')).ok_or_else(|| {
            ParamError::new("vlan", format!("`{text}` is not a VLAN")).with_help("0 to 4095, push:7 or strip")
        })
    };
    match text.strip_prefix("push:") {
        Some(id) => number(id).map(Vlan::Push),
        None if text == "strip" => Ok(Vlan::Strip),
        None => number(text).map(Vlan::Set),
    }
}

fn hops(text: &str) -> Result<Hops, ParamError> {
    let (number, of): (&str, fn(u8) -> Hops) = match text.strip_prefix('-') {
        Some(less) => (less, Hops::Less),
        None => (text, Hops::Set),
    };
    match number.parse::<u8>() {
        Ok(hops) if hops > 0 && !number.starts_with('+') => Ok(of(hops)),
        _ => {
            Err(ParamError::new("ttl", format!("`{text}` is no time to live"))
                .with_help("1 to 255, or -1 for one less"))
        }
    }
}

struct Rewrite {
    networks: Ends<Networks>,
    ports: Ends<Ports>,
    macs: Ends<Macs>,
    vlan: Vlan,
    hops: Hops,
    fix: bool,
}

/// The changes that one frame needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Todo {
    /// Change this IP packet.
    ip: Option<Frame>,
    /// Change the ARP packet at this offset.
    arp: Option<usize>,
    macs: bool,
    vlan: Vlan,
}

/// Drop reason.
const NO_HOPS_LEFT: &str = "its time to live is over";

impl Change for Rewrite {
    #[inline]
    fn address(&mut self, address: IpAddr, end: End) -> IpAddr {
        self.networks.changed(address, end)
    }

    #[inline]
    fn port(&mut self, port: u16, end: End) -> u16 {
        self.ports.changed(port, end)
    }

    #[inline]
    fn hops(&mut self, hops: u8) -> u8 {
        match self.hops {
            Hops::Keep => hops,
            Hops::Set(hops) => hops,
            Hops::Less(less) => hops.saturating_sub(less),
        }
    }

    #[inline]
    fn mac(&mut self, mac: [u8; 6], end: End) -> [u8; 6] {
        self.macs.changed(mac, end)
    }
}

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;
/// Bytes of both MAC addresses.
const ADDRESS_BYTES: usize = 12;

impl Rewrite {
    fn does_nothing(&self) -> bool {
        let keeps = self.vlan == Vlan::Keep && self.hops == Hops::Keep && !self.fix;
        keeps && self.networks.is_empty() && self.ports.is_empty() && self.macs.is_empty()
    }

    /// Returns the changes that a frame needs; `None`: no change. Error: the reason for which the frame is dropped.
    fn look(
        &mut self,
        link: LinkType,
        bytes: &[u8],
        wire_len: u32,
        counters: &mut filter::Counters,
    ) -> Result<Option<Todo>, &'static str> {
        let mut todo = Todo { ip: None, arp: None, macs: false, vlan: Vlan::Keep };
        if link == LinkType::ETHERNET && bytes.len() >= ETHERNET_BYTES {
            todo.macs = self.changes_macs(bytes);
            let is_tagged =
                bytes.len() >= ETHERNET_BYTES + TAG_BYTES && edit::is_tag(u16::from_be_bytes([bytes[12], bytes[13]]));
            todo.vlan = match self.vlan {
                Vlan::Set(_) | Vlan::Strip if !is_tagged => Vlan::Keep,
                vlan => vlan,
            };
        }
        match frame::parse(link, bytes, wire_len) {
            Ok(read) => {
                let hops = bytes[read.network_offset as usize + if read.version == 4 { 8 } else { 7 }];
                if matches!(self.hops, Hops::Less(less) if hops <= less) {
                    return Err(NO_HOPS_LEFT);
                }
                todo.ip = self.changes_ip(bytes, &read, hops).then_some(read);
            }
            Err(Malformed::NotIp) => todo.arp = self.arp_in(link, bytes),
            Err(why) => drop(refused(counters, why)),
        }
        let keeps = todo == Todo { ip: None, arp: None, macs: false, vlan: Vlan::Keep };
        Ok((!keeps).then_some(todo))
    }

    fn changes_macs(&mut self, bytes: &[u8]) -> bool {
        let [target, new_target, source, new_source] = self.macs_of(bytes);
        target != new_target || source != new_source
    }

    fn macs_of(&mut self, bytes: &[u8]) -> [[u8; 6]; 4] {
        let at = |at: usize| bytes[at..].first_chunk::<6>().copied().unwrap_or_default();
        let (target, source) = (at(0), at(6));
        [target, self.mac(target, End::Target), source, self.mac(source, End::Source)]
    }

    fn changes_ip(&mut self, bytes: &[u8], read: &Frame, hops: u8) -> bool {
        let ends = [(read.source, End::Source), (read.target, End::Target)];
        if self.fix || self.hops(hops) != hops || ends.iter().any(|(old, end)| self.address(*old, *end) != *old) {
            return true;
        }
        let transport = read.payload_of(bytes);
        let has_rules = !self.networks.is_empty() || !self.ports.is_empty();
        match read.protocol {
            _ if read.is_later_fragment() => false,
            frame::protocol::ICMP | frame::protocol::ICMPV6 => {
                let inside = transport.first().map(|kind| edit::inside_icmp(read.protocol, *kind));
                has_rules && inside.is_some_and(|inside| inside.address.is_some() || inside.packet.is_some())
            }
            protocol if edit::has_ports(protocol) => transport.first_chunk::<4>().is_some_and(|[a, b, c, d]| {
                let (source, target) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                self.port(source, End::Source) != source || self.port(target, End::Target) != target
            }),
            _ => false,
        }
    }

    /// Offset of the ARP packet in the frame, if the rules concern ARP.
    fn arp_in(&self, link: LinkType, bytes: &[u8]) -> Option<usize> {
        let below = encapsulation::parse(link, bytes).ok()?;
        let has_rules = !self.networks.is_empty() || !self.macs.is_empty();
        (has_rules && edit::is_arp(below.ether_type)).then_some(below.network_offset as usize)
    }

    /// Writes the changes into `bytes`, which has spare room in front for a new tag.
    fn write(&mut self, todo: &Todo, bytes: &mut [u8]) {
        let room = if matches!(todo.vlan, Vlan::Push(_)) { TAG_BYTES } else { 0 };
        let frame = &mut bytes[room..];
        if let Some(read) = &todo.ip {
            edit::change_ip(frame, read, self);
            if self.fix {
                edit::sum_up(frame, read);
            }
        }
        if let Some(packet) = todo.arp.and_then(|at| frame.get_mut(at..)) {
            edit::change_arp(packet, self);
        }
        if todo.macs {
            let [_, target, _, source] = self.macs_of(frame);
            frame[..6].copy_from_slice(&target);
            frame[6..ADDRESS_BYTES].copy_from_slice(&source);
        }
        match todo.vlan {
            Vlan::Keep => {}
            Vlan::Set(id) => {
                let control = u16::from_be_bytes([frame[ETHERNET_BYTES], frame[ETHERNET_BYTES + 1]]) & 0xf000 | id;
                frame[ETHERNET_BYTES..ETHERNET_BYTES + 2].copy_from_slice(&control.to_be_bytes());
            }
            // Move the addresses over the tag; their old place is cropped.
            Vlan::Strip => frame.copy_within(..ADDRESS_BYTES, TAG_BYTES),
            Vlan::Push(id) => {
                bytes.copy_within(TAG_BYTES..TAG_BYTES + ADDRESS_BYTES, 0);
                let tag = [ethernet::VLAN, id].map(u16::to_be_bytes);
                bytes[ADDRESS_BYTES..ADDRESS_BYTES + TAG_BYTES].copy_from_slice(tag.as_flattened());
            }
        }
    }
}

impl Filter for Rewrite {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut links = Links::default();
        for place in filter::batch::places(batch.live()) {
            let mut block = *batch.block(place);
            let Some(link) = links.of(cx.rings, &block) else {
                refused(cx.counters, Malformed::UnsupportedLink);
                continue;
            };
            let todo = match self.look(link, cx.rings.bytes(&block), block.wire(), cx.counters) {
                Ok(Some(todo)) => todo,
                Ok(None) => continue,
                Err(why) => {
                    cx.drop_of(batch, 1 << place, why);
                    continue;
                }
            };
            let room = Room { front: if matches!(todo.vlan, Vlan::Push(_)) { TAG_BYTES as u32 } else { 0 }, back: 0 };
            match cx.edit(&mut block, room) {
                Ok(bytes) => {
                    self.write(&todo, bytes);
                    *batch.block_mut(place) =
                        if todo.vlan == Vlan::Strip { block.crop_front(TAG_BYTES as u32) } else { block };
                }
                Err(EditError::Gone) => cx.drop_of(batch, 1 << place, "bytes are gone"),
                Err(EditError::TooLong) => cx.drop_of(batch, 1 << place, "too long with another tag"),
            }
        }
        Ok(Status::Done)
    }
}
