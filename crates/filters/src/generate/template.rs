//! The frames of `generate`: one frame written once, and the fields that vary.
//!
//! A run of frames lies in a row, each with the room of the longest. The next run writes only the varying fields, field
//! after field over all frames, without a decision inside a loop. The checksums' sums are kept beside the frames and written
//! last.
//!
//! Numbered frames carry the header of the kernel's pktgen, so each can read the other's: a magic number, the frame's
//! number, and its time (`net/core/pktgen.c`, `struct pktgen_hdr`).

use super::values::{Meaning, Random, Values};
use base::limits::PULL_BLOCKS;
use filter::prelude::*;
use packet::checksum::Sum;
use packet::{ethernet, frame::protocol};

/// The magic number at the beginning of a numbered frame's header.
pub(crate) const MAGIC: u32 = 0xbe9b_e955;

/// Bytes of a numbered frame's header.
pub(crate) const NUMBER_BYTES: usize = 16;

const ETHERNET_BYTES: usize = 14;
const TAG_BYTES: usize = 4;

/// The largest IP packet.
const PACKET_BYTES: usize = 65_535;

/// The mix of RFC 6985, section 1: 7 frames of 64 bytes on the wire, 4 of 594, 1 of 1,518. Sizes without check sequence.
const IMIX: [u16; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

#[derive(Clone, Debug)]
pub(super) struct Template {
    /// The longest frame, with zeroes in varying fields, lengths and checksums. If all frames are equal: that frame.
    bytes: Vec<u8>,
    six: bool,
    protocol: u8,
    network_at: usize,
    transport_at: usize,
    payload_at: usize,
    /// Sum of the IPv4 header, without its length.
    network_sum: Sum,
    /// Sum of the transport header and the pseudo header, without their lengths.
    transport_sum: Sum,
    /// Sums of the payload, by its length.
    payload_sums: Vec<Sum>,
    fields: Vec<Field>,
    sizes: Sizes,
    /// Number of the next frame. `None`: frames are not numbered.
    number: Option<u32>,
}

/// A varying field.
#[derive(Clone, Debug)]
struct Field {
    at: usize,
    bytes: usize,
    values: Values,
    /// The field counts for the checksum of the IPv4 header, and of the transport header.
    network: bool,
    transport: bool,
}

#[derive(Clone, Debug)]
enum Sizes {
    Values(Values),
    /// These sizes, again and again. The second member: the place of the next size.
    Row(&'static [u16], usize),
}

impl Sizes {
    fn longest(&self) -> usize {
        match self {
            Sizes::Values(values) => values.bounds().1 as usize,
            Sizes::Row(row, _) => row.iter().copied().max().unwrap_or(0).into(),
        }
    }

    fn shortest(&self) -> usize {
        match self {
            Sizes::Values(values) => values.bounds().0 as usize,
            Sizes::Row(row, _) => row.iter().copied().min().unwrap_or(0).into(),
        }
    }

    #[inline]
    fn next(&mut self, random: &mut Random) -> u32 {
        match self {
            Sizes::Values(values) => values.next(random) as u32,
            Sizes::Row(row, at) => {
                let size = row[*at];
                *at = (*at + 1) % row.len();
                size.into()
            }
        }
    }
}

/// Builds a header, and notes its varying fields.
struct Builder {
    bytes: Vec<u8>,
    fields: Vec<Field>,
}

impl Builder {
    /// Adds a field of `bytes` bytes.
    fn field(&mut self, values: Values, bytes: usize, network: bool, transport: bool) {
        let at = self.bytes.len();
        let wide = values.fixed().unwrap_or(0).to_be_bytes();
        self.bytes.extend_from_slice(&wide[wide.len() - bytes..]);
        if values.fixed().is_none() {
            self.fields.push(Field { at, bytes, values, network, transport });
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

impl Template {
    /// The template that the parameters describe.
    pub(super) fn of_params(params: &Params, random: &mut Random) -> Result<Template, ParamError> {
        let values = |key, default: &str, meaning| Values::parse(params.text(key).unwrap_or(default), key, meaning);
        let six = ["src", "dst"].iter().filter_map(|key| params.text(key)).any(is_six);
        let protocol = match params.text("protocol") {
            Some("tcp") => protocol::TCP,
            Some("icmp") if six => protocol::ICMPV6,
            Some("icmp") => protocol::ICMP,
            _ => protocol::UDP,
        };
        let mut build = Builder { bytes: Vec::new(), fields: Vec::new() };
        build.field(values("dst-mac", "02:00:00:00:00:02", Meaning::Mac)?, 6, false, false);
        build.field(values("src-mac", "02:00:00:00:00:01", Meaning::Mac)?, 6, false, false);
        if params.text("vlan").is_some() {
            build.put(&ethernet::VLAN.to_be_bytes());
            build.field(values("vlan", "", Meaning::Number("a VLAN", 4095))?, 2, false, false);
        }
        build.put(&if six { ethernet::IPV6 } else { ethernet::IPV4 }.to_be_bytes());
        let network_at = build.bytes.len();
        let hops = params.number("ttl").unwrap_or(64);
        let hops = u8::try_from(hops).map_err(|_| ParamError::new("ttl", format!("{hops} is more than 255")))?;
        // RFC 2544, C.2.2: addresses for measurements; RFC 5180, section 8: the same for IPv6.
        let (source, target) = if six { ("2001:2::1", "2001:2:0:1::1") } else { ("198.18.0.1", "198.19.0.1") };
        if six {
            build.put(&[0x60, 0, 0, 0, 0, 0, protocol, hops]);
        } else {
            // Do not fragment. Such a packet needs no number of its own (RFC 6864, section 4.1).
            build.put(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, hops, protocol, 0, 0]);
        }
        for (key, default) in [("src", source), ("dst", target)] {
            build.field(
                values(key, default, Meaning::Address(six))?,
                if six { 16 } else { 4 },
                !six,
                protocol != protocol::ICMP,
            );
        }
        let transport_at = build.bytes.len();
        let has_ports = matches!(protocol, protocol::UDP | protocol::TCP);
        for (key, default) in [("src-port", "49152"), ("dst-port", "9")] {
            if has_ports {
                build.field(values(key, default, Meaning::Number("a port", 65_535))?, 2, false, true);
            } else if params.text(key).is_some() {
                return Err(ParamError::new(key, "ICMP has no ports"));
            }
        }
        match protocol {
            protocol::UDP => build.put(&[0; 4]),
            // An acknowledgement without a connection: 5 words of header, ACK.
            protocol::TCP => build.put(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]),
            // Echo requests.
            protocol::ICMPV6 => build.put(&[128, 0, 0, 0, 0, 1, 0, 1]),
            _ => build.put(&[8, 0, 0, 0, 0, 1, 0, 1]),
        }
        let payload_at = build.bytes.len();
        let Builder { bytes, fields } = build;
        let mut template = Template {
            bytes,
            six,
            protocol,
            network_at,
            transport_at,
            payload_at,
            network_sum: Sum::default(),
            transport_sum: Sum::default(),
            payload_sums: Vec::new(),
            fields,
            sizes: sizes(params)?,
            number: params.flag("sequence").then_some(0),
        };
        template.check_sizes(params)?;
        template.fill(params, random);
        if template.is_constant() {
            let (mut frame, size) = (template.image(1), [template.stride() as u32]);
            template.write(&mut frame, &size, 0, random);
            template.bytes = frame;
        }
        Ok(template)
    }

    /// Checks that the shortest frame has room for all headers, and that the longest is a valid packet.
    fn check_sizes(&self, params: &Params) -> Result<(), ParamError> {
        let shortest = self.payload_at + if self.number.is_some() { NUMBER_BYTES } else { 0 };
        let longest = self.network_at + PACKET_BYTES;
        let name = params.text("protocol").unwrap_or_default();
        let wrong = |size: usize, help: String| {
            Err(ParamError::new("size", format!("a frame of {size} bytes cannot be made of this")).with_help(help))
        };
        match (self.sizes.shortest(), self.sizes.longest()) {
            (size, _) if size < self.payload_at => {
                wrong(size, format!("the headers of {name} take {} bytes here", self.payload_at))
            }
            (size, _) if size < shortest => {
                wrong(size, format!("headers and number take {shortest} bytes; sequence=no leaves the number out"))
            }
            (_, size) if size > longest => wrong(size, format!("{longest} bytes are the most that IP can say")),
            _ => Ok(()),
        }
    }

    /// Writes the payload, and computes the sums of the constant parts.
    fn fill(&mut self, params: &Params, random: &mut Random) {
        self.bytes.resize(self.sizes.longest(), 0);
        if params.text("fill") == Some("random") {
            let from = self.payload_at + if self.number.is_some() { NUMBER_BYTES } else { 0 };
            self.bytes[from..].iter_mut().for_each(|byte| *byte = random.number() as u8);
        }
        let (headers, payload) = self.bytes.split_at(self.payload_at);
        let addresses = if self.six { self.network_at + 8 } else { self.network_at + 12 };
        self.network_sum = Sum::of(&headers[self.network_at..self.transport_at]);
        self.transport_sum = Sum::of(&headers[self.transport_at..]);
        if self.protocol != protocol::ICMP {
            let pseudo = Sum::of(&headers[addresses..self.transport_at]).and(Sum::number(self.protocol.into()));
            self.transport_sum = self.transport_sum.and(pseudo);
        }
        let mut sum = Sum::default();
        let last = payload.len();
        self.payload_sums = (0..=last)
            .map(|len| {
                let here = sum;
                if let Some(byte) = payload.get(len) {
                    let word = u32::from(*byte) << if len % 2 == 0 { 8 } else { 0 };
                    sum = sum.and(Sum::number(word));
                }
                here
            })
            .collect();
    }

    /// Bytes from one frame to the next.
    pub(super) fn stride(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_constant(&self) -> bool {
        let same_size = self.sizes.shortest() == self.sizes.longest();
        self.number.is_none() && self.fields.is_empty() && same_size
    }

    /// Returns `frames` copies of the template, before `write` fills the fields that vary.
    pub(super) fn image(&self, frames: usize) -> Vec<u8> {
        self.bytes.repeat(frames)
    }

    #[inline]
    pub(super) fn next_size(&mut self, random: &mut Random) -> u32 {
        self.sizes.next(random)
    }

    /// Writes frames of these `sizes` into an [`image`](Template::image) of at least as many frames. `time`: when they are
    /// made, ns since 1970 UTC. The frames must not all be the same.
    pub(super) fn write(&mut self, image: &mut [u8], sizes: &[u32], time: u64, random: &mut Random) {
        let (stride, count) = (self.stride(), sizes.len());
        let frames = |at: usize| (0..count).map(move |frame| frame * stride + at);
        let (mut network, mut transport) = ([Sum::default(); PULL_BLOCKS], [Sum::default(); PULL_BLOCKS]);
        let (network, transport) = (&mut network[..count], &mut transport[..count]);
        for Field { at, bytes, values, network: in_network, transport: in_transport } in &mut self.fields {
            for (frame, at) in frames(*at).enumerate() {
                let wide = values.next(random).to_be_bytes();
                let field = &wide[wide.len() - *bytes..];
                image[at..at + *bytes].copy_from_slice(field);
                if *in_transport {
                    transport[frame] = transport[frame].and(Sum::of(field));
                }
                if *in_network {
                    network[frame] = network[frame].and(Sum::of(field));
                }
            }
        }
        if let Some(number) = &mut self.number {
            let (seconds, micros) = ((time / 1_000_000_000) as u32, (time % 1_000_000_000 / 1000) as u32);
            let stays = Sum::number(MAGIC).and(Sum::number(seconds)).and(Sum::number(micros));
            for (frame, at) in frames(self.payload_at).enumerate() {
                let words = [MAGIC, *number, seconds, micros].map(u32::to_be_bytes);
                image[at..at + NUMBER_BYTES].copy_from_slice(words.as_flattened());
                transport[frame] = transport[frame].and(stays).and(Sum::number(*number));
                *number = number.wrapping_add(1);
            }
        }
        self.write_lengths(image, sizes, network, transport);
    }

    fn write_lengths(&self, image: &mut [u8], sizes: &[u32], network: &[Sum], transport: &[Sum]) {
        let &Template { network_at, transport_at, payload_at, protocol, .. } = self;
        // The offset of the checksum in the transport header.
        let check_at = transport_at
            + match protocol {
                protocol::UDP => 6,
                protocol::TCP => 16,
                _ => 2,
            };
        // How often a checksum counts the IP payload's length: in the pseudo header, and for UDP in the UDP header, too.
        let lengths = match protocol {
            protocol::UDP => 2,
            protocol::ICMP => 0,
            _ => 1,
        };
        let sums = network.iter().zip(transport);
        for ((frame, size), (network, transport)) in image.chunks_exact_mut(self.stride()).zip(sizes).zip(sums) {
            let carried = size - transport_at as u32;
            let mut put = |at: usize, word: u16| frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
            if self.six {
                put(network_at + 4, carried as u16);
            } else {
                let total = size - network_at as u32;
                put(network_at + 2, total as u16);
                put(network_at + 10, self.network_sum.and(*network).and(Sum::number(total)).checksum());
            }
            if protocol == protocol::UDP {
                put(transport_at + 4, carried as u16);
            }
            let payload = self.payload_sums[*size as usize - payload_at];
            let sum = self.transport_sum.and(*transport).and(payload).and(Sum::number(carried * lengths));
            // In UDP, 0 means that there is no checksum (RFC 768).
            let check = match sum.checksum() {
                0 if protocol == protocol::UDP => 0xffff,
                check => check,
            };
            put(check_at, check);
        }
    }
}

/// Whether the parameter's value is an IPv6 address.
fn is_six(text: &str) -> bool {
    text.strip_prefix("random:").unwrap_or(text).contains(':')
}

fn sizes(params: &Params) -> Result<Sizes, ParamError> {
    match params.text("size").unwrap_or_default() {
        "imix" => Ok(Sizes::Row(&IMIX, 0)),
        text => {
            let most = (ETHERNET_BYTES + TAG_BYTES + PACKET_BYTES) as u32;
            Values::parse(text, "size", Meaning::Number("a size in bytes", most)).map(Sizes::Values)
        }
    }
}
