//! Encodes frames and interfaces as bytes of a capture, classic or pcapng, appended to a buffer. Does no I/O.

use buffer::{Descriptor, Flags, Interface};
use filter::{Counters, Failure};
use packet::LinkType;
use packet::capture::INTERFACE_LIMIT;
use packet::pcap_file::{Resolution, write_header, write_record_header};
use packet::pcapng::{
    Description, Direction, PACKET_LIMIT, PacketBlock, Section, Statistics, write_interface, write_packet,
    write_section, write_statistics,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Offset of the snap length in the header of a classic capture.
pub(super) const SNAP_LEN_OFFSET: u64 = 16;

/// Most bytes added for one frame of classic pcap: file header and record header.
const CLASSIC_MOST_BYTES: usize = 24 + 16;

/// Most bytes added for one frame of pcapng, apart from the texts of its interface: section header, interface
/// description and the frame's block.
const PCAPNG_MOST_BYTES: usize = 512;

/// Bytes of the statistics block of one interface.
const STATISTICS_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Classic pcap. `Some`: the request gives the resolution of times. `None`: that of the first frame's capture.
    Classic(Option<Resolution>),
    Pcapng,
}

/// Encodes captures, one after the other.
#[derive(Debug)]
pub(super) enum Encoder {
    Classic(Classic),
    Pcapng(Pcapng),
}

impl Encoder {
    pub(super) fn new(format: Format) -> Encoder {
        match format {
            Format::Classic(resolution) => Encoder::Classic(Classic {
                resolution,
                lowered: Lowered::No,
                link: None,
                snap_len: 0,
                may_be_longer: false,
                longer_snap_len: None,
            }),
            Format::Pcapng => Encoder::Pcapng(Pcapng::default()),
        }
    }

    /// Begins a new capture. `patched`: the caller will write what
    /// [`take_longer_snap_len`](Encoder::take_longer_snap_len) returns into the header.
    pub(super) fn begin(&mut self, patched: bool) {
        match self {
            Encoder::Classic(classic) => {
                (classic.link, classic.snap_len) = (None, 0);
                (classic.may_be_longer, classic.longer_snap_len) = (patched, None);
            }
            Encoder::Pcapng(pcapng) => *pcapng = Pcapng::default(),
        }
    }

    /// Appends a copy of a frame, preceded by the description of its interface if that is new.
    #[inline]
    pub(super) fn copy_frame(
        &mut self,
        out: &mut Vec<u8>,
        block: &Descriptor,
        bytes: &[u8],
        interface: &Arc<Interface>,
        counters: &mut Counters,
    ) -> Result<(), Box<Failure>> {
        match self {
            Encoder::Classic(classic) => classic.copy_frame(out, block, bytes, interface, counters),
            Encoder::Pcapng(pcapng) => {
                pcapng.copy_frame(out, block, bytes, interface, counters);
                Ok(())
            }
        }
    }

    /// The new snap length for the header, if a frame was longer than the written one.
    #[inline]
    pub(super) fn take_longer_snap_len(&mut self) -> Option<[u8; 4]> {
        match self {
            Encoder::Classic(classic) => classic.longer_snap_len.take().map(u32::to_le_bytes),
            Encoder::Pcapng(_) => None,
        }
    }

    /// Most bytes that a frame of this length adds to a capture, including the headers before it and the capture's end.
    pub(super) fn most_bytes(&self, len: usize, interface: &Interface) -> usize {
        match self {
            Encoder::Classic(_) => CLASSIC_MOST_BYTES + len,
            Encoder::Pcapng(pcapng) => {
                let texts = [&interface.name, &interface.description];
                let texts: usize = texts.into_iter().flatten().map(String::len).sum();
                PCAPNG_MOST_BYTES + STATISTICS_BYTES * (pcapng.frames.len() + 1) + texts + len
            }
        }
    }

    /// Whether times are less precise than they were in the input. Returns true once.
    pub(super) fn take_lowered(&mut self) -> bool {
        match self {
            Encoder::Classic(Classic { lowered: lowered @ Lowered::Yes, .. }) => {
                *lowered = Lowered::Said;
                true
            }
            _ => false,
        }
    }

    /// Appends the end of the capture.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        match self {
            Encoder::Classic(classic) if classic.link.is_none() => {
                // Without frames any link type will do.
                let link = LinkType::ETHERNET;
                let resolution = classic.resolution.unwrap_or(Resolution::Microseconds);
                write_header(out, link, link.maximum_snap_len(), resolution);
            }
            Encoder::Classic(_) => {}
            Encoder::Pcapng(pcapng) => pcapng.end(out),
        }
    }
}

/// Whether times are less precise than they were in the input.
#[derive(Debug, PartialEq, Eq)]
enum Lowered {
    No,
    Yes,
    /// Yes, and it was reported.
    Said,
}

#[derive(Debug)]
pub(super) struct Classic {
    /// `None` before the first frame, if that frame decides.
    resolution: Option<Resolution>,
    lowered: Lowered,
    /// The link type of the first frame, which all frames must have.
    link: Option<LinkType>,
    /// The snap length in the header. Readers may cut longer frames to it.
    snap_len: u32,
    /// The caller can change the header later.
    may_be_longer: bool,
    longer_snap_len: Option<u32>,
}

impl Classic {
    #[inline]
    fn copy_frame(
        &mut self,
        out: &mut Vec<u8>,
        block: &Descriptor,
        bytes: &[u8],
        interface: &Interface,
        counters: &mut Counters,
    ) -> Result<(), Box<Failure>> {
        let link = link_of(interface);
        let limit = link.maximum_snap_len();
        let as_it_came = || if interface.nanoseconds { Resolution::Nanoseconds } else { Resolution::Microseconds };
        let resolution = *self.resolution.get_or_insert_with(as_it_came);
        if interface.nanoseconds && resolution == Resolution::Microseconds && self.lowered == Lowered::No {
            self.lowered = Lowered::Yes;
        }
        match self.link {
            Some(first) if first == link => {}
            Some(first) => return Err(Box::new(two_link_types(first, link))),
            None => {
                self.link = Some(link);
                let given = interface.snap_len.min(limit);
                self.snap_len = if self.may_be_longer && given > 0 { given } else { limit };
                write_header(out, link, self.snap_len, resolution);
            }
        }
        let bytes = cut(bytes, limit as usize, counters);
        let len = bytes.len() as u32;
        if len > self.snap_len {
            self.snap_len = limit;
            self.longer_snap_len = Some(limit);
        }
        write_record_header(out, block.time, len, block.wire(), resolution);
        out.extend_from_slice(bytes);
        Ok(())
    }
}

#[cold]
fn two_link_types(first: LinkType, second: LinkType) -> Failure {
    Failure::Request(format!(
        "a classic pcap file has one link type, but frames of {first} and of {second} came; use format=pcapng"
    ))
}

#[derive(Debug, Default)]
pub(super) struct Pcapng {
    begun: bool,
    /// The number of each interface in this section, by its description.
    numbers: HashMap<(u16, u32, Option<String>, Option<String>), u32>,
    /// A cache by the descriptors' ring number. Valid only if the interface is still the same.
    by_ring: Vec<Option<(Arc<Interface>, u32)>>,
    /// Number of frames of each interface.
    frames: Vec<u64>,
    newest: u64,
}

impl Pcapng {
    #[inline]
    fn copy_frame(
        &mut self,
        out: &mut Vec<u8>,
        block: &Descriptor,
        bytes: &[u8],
        interface: &Arc<Interface>,
        counters: &mut Counters,
    ) {
        let number = match self.by_ring.get(usize::from(block.ring.0)) {
            Some(Some((known, number))) if Arc::ptr_eq(known, interface) => *number,
            _ => self.describe(out, block, interface),
        };
        self.newest = self.newest.max(block.time);
        self.frames[number as usize] += 1;
        let packet = PacketBlock {
            interface: number,
            time_ns: block.time,
            wire_len: block.wire(),
            data: cut(bytes, PACKET_LIMIT, counters),
            direction: block.has(Flags::OUTBOUND).then_some(Direction::Outbound),
            ..PacketBlock::default()
        };
        write_packet(out, &packet);
    }

    /// The number of an interface. Describes it in the file if it is new.
    #[cold]
    fn describe(&mut self, out: &mut Vec<u8>, block: &Descriptor, interface: &Arc<Interface>) -> u32 {
        if self.frames.len() >= INTERFACE_LIMIT {
            self.end(out);
            *self = Pcapng::default();
        }
        self.begin(out);
        let Interface { name, description, snap_len, .. } = &**interface;
        let link = link_of(interface);
        let key = (link.0, *snap_len, name.clone(), description.clone());
        let next = self.frames.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.frames.push(0);
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (name, description) = (text(name), text(description));
            let described =
                Description { link, snap_len: *snap_len, name: &name, description: &description, filter: "" };
            write_interface(out, &described);
        }
        let place = usize::from(block.ring.0);
        if self.by_ring.len() <= place {
            self.by_ring.resize(place + 1, None);
        }
        self.by_ring[place] = Some((Arc::clone(interface), number));
        number
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.begun = true;
            let section = Section {
                hardware: std::env::consts::ARCH,
                system: std::env::consts::OS,
                application: concat!("streamline ", env!("CARGO_PKG_VERSION")),
            };
            write_section(out, &section);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        for (interface, frames) in self.frames.iter().enumerate() {
            let interface = interface as u32;
            let delivered = Some(*frames);
            write_statistics(out, &Statistics { interface, time_ns: self.newest, delivered, ..Statistics::default() });
        }
    }
}

fn link_of(interface: &Interface) -> LinkType {
    // Callers have checked that there is a link type.
    interface.link_type.map_or(LinkType::RAW, LinkType)
}

/// The part of a frame that readers of the format accept.
#[inline]
fn cut<'a>(bytes: &'a [u8], limit: usize, counters: &mut Counters) -> &'a [u8] {
    if bytes.len() <= limit {
        return bytes;
    }
    counters.events.add("frames cut to the format's maximum", 1);
    &bytes[..limit]
}
