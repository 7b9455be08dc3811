//! Replaces addresses in frames by others, and removes payload.
//!
//! - `anonymize/kept.rs` — how much of a frame stays; `anonymize/keyed.rs` — maps an address to another.
//! - `parts/edit.rs` — where addresses stand, and the checksums.
//!
//! The filter passes no bytes that it does not understand: behind the last header that it understands, all bytes are zero.
//! It crops a frame to the bytes that stay before it writes to the frame, so it never copies the payload.

mod kept;
mod keyed;
#[cfg(test)]
mod tests;

use crate::parts::edit::{self, Change, End};
use crate::parts::select::Links;
use crate::parts::system::reason;
use buffer::{EditError, Room};
use filter::prelude::*;
use kept::{Kept, What, Zeroed, extensions};
use keyed::Keyed;
use packet::checksum::{Sum, mended};
use packet::frame::{Frame, protocol};
use packet::link::LinkType;
use packet::{ipv4, ipv6, tcp};
use std::net::IpAddr;

/// What `anonymize` is.
pub static KIND: Kind = Kind::new("anonymize", "replaces addresses, and removes payload", make)
    .help(
        "Other IP addresses take their places and keep prefixes: two that had their first n bits in common have n in common afterwards \
         (Crypto-PAn, Xu et al., 2002). Ethernet addresses become others, which stay group or locally administered addresses \
         if they were; all ones and all zeroes stay. The same key gives the same in every capture. Without it there is no way back, but \
         a reader who knew some hosts' traffic recognises it, and with it prefixes.\n\
         \n\
         The key is a text of 16 letters or more, or 64 hexadecimal digits, which other tools of this construction take as \
         well; better in a file (`head -c 32 /dev/urandom > key`, `key-file=key`) than in a command that other users see.\n\
         \n\
         payload=zero writes zeroes over payload, payload=cut leaves it out (lengths on the wire stay), payload=keep keeps it, with \
         all names and addresses that are in it. Addresses in ARP, in neighbour discovery and in packets inside ICMP errors are \
         replaced as well.\n\
         \n\
         What stays: times, lengths, ether types, VLAN and MPLS labels, PPPoE sessions, the fixed headers of IP, TCP, UDP, UDP-Lite, \
         DCCP and ICMP except addresses, so ports, sequence numbers and identifications, and TCP's common options (segment size, \
         window scale, selective acknowledgement, timestamps). Other options become padding. Everything else counts as payload \
         and is zeroed, or cut, even with payload=keep: protocols that are not named here, routing headers, frames without IP. \
         Frames of links other than Ethernet, raw IP, BSD loopback and Linux cooked captures are dropped. Names of interfaces in \
         pcapng stay.\n\
         \n\
         Checksums are mended. That of a transport header in fragments, or of a frame that was cut before, is not right for what \
         is left.",
    )
    .params(&[
        Param::new("key", ParamType::Text, "secret from which the new values are computed"),
        Param::new("key-file", ParamType::Path, "a file with the key: 32 bytes, or a text"),
        Param::new("payload", ParamType::Choice(&["zero", "cut", "keep"]), "what becomes of payload").default("zero"),
    ])
    .takes(&[Type::Frame, Type::Packet])
    .touches(Parts::DATA, Parts::DATA.with(Parts::METADATA))
    .parses_payload()
    .examples(&[Example {
        request: "pcap browse.pcap | anonymize key=\"sixteen letters or more\" payload=cut | count",
        output: "{\"blocks\":43,\"bytes\":2314,\"wire_bytes\":25091}",
    }]);

/// A shorter key can be guessed.
const KEY_LETTERS: usize = 16;

/// The parameter `payload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Zero,
    Cut,
    Keep,
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let keyed = match (params.text("key"), params.text("key-file")) {
        (Some(key), None) => of_text("key", key)?,
        (None, Some(path)) => of_file(path)?,
        (Some(_), Some(_)) => return Err(ParamError::new("key-file", "`key` is given, too: one of them decides")),
        (None, None) => {
            return Err(ParamError::of_request("there is no key")
                .with_help("`head -c 32 /dev/urandom > key` makes one for key-file=key"));
        }
    };
    let payload = match params.text("payload") {
        Some("cut") => Payload::Cut,
        Some("keep") => Payload::Keep,
        _ => Payload::Zero,
    };
    Ok(Instance::filter(Anonymize { keyed, payload }))
}

fn of_text(key: &'static str, text: &str) -> Result<Keyed, ParamError> {
    match text.chars().count() >= KEY_LETTERS {
        true => Ok(Keyed::of_text(text)),
        false => Err(ParamError::new(key, format!("a key of fewer than {KEY_LETTERS} letters can be guessed"))),
    }
}

fn of_file(path: &str) -> Result<Keyed, ParamError> {
    let bytes = std::fs::read(path)
        .map_err(|error| ParamError::system(format!("cannot read the key in {path}: {}", reason(&error))))?;
    if let Ok(key) = <[u8; 32]>::try_from(bytes.as_slice()) {
        return Ok(Keyed::new(key));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => of_text("key-file", text.trim_end_matches(['\r', '\n'])),
        Err(_) => Err(ParamError::new("key-file", format!("{path} has {} bytes, which are no text", bytes.len()))
            .with_help("a key of bytes has 32 of them")),
    }
}

struct Anonymize {
    keyed: Keyed,
    payload: Payload,
}

impl Change for Anonymize {
    fn address(&mut self, address: IpAddr, _end: End) -> IpAddr {
        self.keyed.address(address)
    }

    fn mac(&mut self, mac: [u8; 6], _end: End) -> [u8; 6] {
        self.keyed.mac(mac)
    }
}

impl Anonymize {
    /// Replaces addresses in a copy of the kept bytes, turns options into padding, and mends checksums.
    fn write(&mut self, link: LinkType, kept: &Kept, bytes: &mut [u8], zeroed: Option<Zeroed>) {
        self.write_link(link, kept, bytes);
        match &kept.what {
            What::Other => {}
            What::Arp(at) => {
                if !edit::change_arp(&mut bytes[*at..], self) {
                    bytes[*at..].fill(0);
                }
            }
            What::Ip(read) => {
                edit::change_ip(bytes, read, self);
                if read.version == 4 {
                    pad_ip_options(bytes, read);
                } else {
                    let options: Vec<_> = extensions(bytes, read).filter(|(kind, _)| *kind != ipv6::FRAGMENT).collect();
                    // Zeroes are Pad1 (RFC 8200, section 4.2).
                    options
                        .into_iter()
                        .for_each(|(_, range)| bytes[range].iter_mut().skip(2).for_each(|byte| *byte = 0));
                }
                if read.protocol == protocol::TCP && !read.is_later_fragment() {
                    pad_tcp_options(bytes, read, kept.bytes);
                }
                if let Some(zeroed) = zeroed {
                    zeroed.mend(bytes, read);
                }
            }
        }
    }

    fn write_link(&mut self, link: LinkType, kept: &Kept, bytes: &mut [u8]) {
        let mut change = |at: usize| {
            if let Some(mac) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<6>) {
                *mac = self.keyed.mac(*mac);
            }
        };
        match link.canonical() {
            LinkType::ETHERNET => [0, 6].into_iter().for_each(&mut change),
            LinkType::LINUX_SLL => change(6),
            LinkType::LINUX_SLL2 => change(12),
            _ => {}
        }
        // Cooked headers have room for eight address bytes.
        let rest = match link.canonical() {
            LinkType::LINUX_SLL => 12..14,
            LinkType::LINUX_SLL2 => 18..20,
            _ => return,
        };
        if kept.bytes >= rest.end {
            bytes[rest].fill(0);
        }
    }
}

/// Turns all options of an IPv4 header into padding.
fn pad_ip_options(bytes: &mut [u8], read: &Frame) {
    const NO_OPERATION: u8 = 1;
    let at = read.network_offset as usize;
    let options = at + ipv4::Packet::HEADER_BYTES..at + usize::from(bytes[at] & 0xf) * 4;
    let Some(field) = bytes.get_mut(options).filter(|options| !options.is_empty()) else { return };
    let old = Sum::of(field);
    field.fill(NO_OPERATION);
    let new = Sum::of(field);
    let check = u16::from_be_bytes([bytes[at + 10], bytes[at + 11]]);
    bytes[at + 10..at + 12].copy_from_slice(&mended(check, old, new).to_be_bytes());
}

/// Turns uncommon options of a TCP header into padding. The header's bytes end at `end` at the latest.
fn pad_tcp_options(bytes: &mut [u8], read: &Frame, end: usize) {
    const NO_OPERATION: u8 = 1;
    let start = read.transport_offset as usize + tcp::Packet::HEADER_BYTES;
    let Some(options) = bytes.get_mut(start..end) else { return };
    let old = Sum::of(options);
    let mut at = 0;
    while at < options.len() {
        let kind = options[at];
        let length = match kind {
            0 => {
                // An end-of-options byte: zero all behind it.
                options[at..].fill(0);
                break;
            }
            NO_OPERATION => 1,
            _ => options.get(at + 1).map_or(0, |length| usize::from(*length)),
        };
        if length == 0 || at + length > options.len() || length < 2 && kind != NO_OPERATION {
            options[at..].fill(NO_OPERATION);
            break;
        }
        // RFC 9293: segment size; RFC 7323: window scale, timestamps; RFC 2018: selective acknowledgement.
        if !matches!((kind, length), (NO_OPERATION, _) | (2, 4) | (3, 3) | (4, 2) | (5, 10 | 18 | 26 | 34) | (8, 10)) {
            options[at..at + length].fill(NO_OPERATION);
        }
        at += length;
    }
    let new = Sum::of(options);
    edit::mend_payload(bytes, read, old, new);
}

impl Filter for Anonymize {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut links = Links::default();
        for place in filter::batch::places(batch.live()) {
            let block = *batch.block(place);
            let bytes = cx.rings.bytes(&block);
            let link = links.of(cx.rings, &block);
            let Some((link, kept)) = link.and_then(|link| Some((link, Kept::of(link, bytes, block.wire())?))) else {
                cx.drop_of(batch, 1 << place, "addresses of this link are not known");
                continue;
            };
            let keeps = kept.has_payload && self.payload == Payload::Keep;
            let zeroed = match &kept.what {
                What::Ip(read) if self.payload == Payload::Zero => Zeroed::of(bytes, read, kept.bytes),
                _ => None,
            };
            let (zeroes, events) =
                (block.len - kept.bytes as u32, u64::from(!kept.has_payload && matches!(kept.what, What::Other)));
            if events > 0 {
                cx.count("frames of which only the link header stays", events);
            }
            let mut edited = block;
            if !keeps {
                edited.len = kept.bytes as u32;
            }
            let back = if keeps || self.payload == Payload::Cut { 0 } else { zeroes };
            match cx.edit(&mut edited, Room { front: 0, back }) {
                Ok(bytes) => {
                    let end = if keeps { bytes.len() } else { kept.bytes };
                    self.write(link, &kept, &mut bytes[..end], zeroed);
                    edited.set_wire(block.wire());
                    if edited.len < edited.wire() {
                        edited.add_flags(Flags::TRUNCATED);
                    }
                    *batch.block_mut(place) = edited;
                }
                Err(EditError::Gone | EditError::TooLong) => cx.drop_of(batch, 1 << place, "bytes are gone"),
            }
        }
        Ok(Status::Done)
    }
}
