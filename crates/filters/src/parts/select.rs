//! The loop over a batch, shared by all selectors. A selector's own file holds only the test of one block.
//!
//! Frames are read where they lie. Blocks of streams (`bytes`, `message`) are not read: the stream table has the facts
//! of each stream. Their class does not change, because filters further down find the session by it.
//!
//! - Per instance: whether it gets frames or streams.
//! - Per change of view, hardly ever within a batch: look up the link type.
//! - Per block: one call of the test. Most tests begin with `View::packet`.

use buffer::BlockTable;
use filter::Counters;
use filter::prelude::*;
use packet::flow::Flow;
use packet::ipv6::AUTHENTICATION;
use packet::link::LinkType;
use packet::malformed::Malformed;
use packet::{ethernet, frame};
use std::net::{IpAddr, Ipv4Addr};

#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// Says how to read the first bytes.
    pub link: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Bytes on the wire.
    pub wire_len: u32,
}

/// The parts of an IP packet that selectors test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    /// 4 or 6.
    pub version: u8,
    /// The protocol carried, after extension headers.
    pub protocol: u8,
    /// The protocol field of the IP header itself.
    pub first_protocol: u8,
    /// A later fragment: it does not begin with a transport header.
    pub later_fragment: bool,
    pub source: IpAddr,
    pub target: IpAddr,
    /// The captured part of the payload.
    pub payload: &'a [u8],
}

impl<'a> View<'a> {
    /// The IP packet in the frame. IPv4 directly after Ethernet takes a few compares; other frames take the full walk.
    #[inline(always)]
    pub fn packet(&self) -> Result<Packet<'a>, Malformed> {
        match self.plain_packet() {
            Some(packet) => Ok(packet),
            None => self.any_packet(),
        }
    }

    /// The short way: Ethernet, IPv4 without options, not a fragment, transport header directly after it.
    #[inline(always)]
    fn plain_packet(&self) -> Option<Packet<'a>> {
        const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;
        const HEADER_BYTES: u16 = 20;
        let (header, payload) = self.bytes.split_first_chunk::<{ 14 + HEADER_BYTES as usize }>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let (total, protocol) = (word(16), header[23]);
        let plain = self.link == LinkType::ETHERNET
            && word(12) == ethernet::IPV4
            && header[14] == 0x45
            && total >= HEADER_BYTES
            && word(20) & MORE_FRAGMENTS_AND_OFFSET == 0
            && protocol != AUTHENTICATION;
        plain.then(|| Packet {
            version: 4,
            protocol,
            first_protocol: protocol,
            later_fragment: false,
            source: IpAddr::V4(address(26)),
            target: IpAddr::V4(address(30)),
            payload: payload.get(..usize::from(total - HEADER_BYTES)).unwrap_or(payload),
        })
    }

    #[inline(never)]
    fn any_packet(&self) -> Result<Packet<'a>, Malformed> {
        let frame = frame::parse(self.link, self.bytes, self.wire_len)?;
        let protocol_offset = frame.network_offset as usize + if frame.version == 4 { 9 } else { 6 };
        Ok(Packet {
            version: frame.version,
            protocol: frame.protocol,
            // `frame` was parsed, so the header is there.
            first_protocol: self.bytes.get(protocol_offset).copied().unwrap_or(frame.protocol),
            later_fragment: frame.is_later_fragment(),
            source: frame.source,
            target: frame.target,
            payload: frame.payload_of(self.bytes),
        })
    }
}

pub(crate) trait FrameTest: Send {
    /// Whether the frame passes. May set the class. An unreadable frame does not pass and is counted.
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed>;

    /// See [`Decides::by_ports`].
    fn by_ports(&self, _ports: u32) -> Option<Option<Class>> {
        None
    }
}

/// What a selector asks of a frame or a stream.
pub(crate) trait StreamTest: FrameTest {
    /// Whether the stream with these addresses and ports passes.
    fn stream(&self, flow: &Flow) -> bool;
}

pub(crate) fn of_frames(test: impl FrameTest + 'static) -> Instance {
    Instance::filter(Frames { test })
}

/// A selector that a device's reader applies.
pub(crate) fn on_device(test: impl FrameTest + 'static) -> Box<dyn Decides> {
    Box::new(OnDevice { test })
}

/// A selector of frames or of streams, depending on the input.
pub(crate) fn of_frames_or_streams(test: impl StreamTest + 'static, env: &Env) -> Result<Instance, ParamError> {
    Ok(if are_streams(env)? { Instance::filter(Streams { test }) } else { of_frames(test) })
}

/// Whether the blocks will be pieces of streams. Error: both streams and frames can arrive. A single block does not tell,
/// because a piece of a stream lies in the frame it came in.
pub(crate) fn are_streams(env: &Env) -> Result<bool, ParamError> {
    let streams = env.input.has(Type::Bytes) || env.input.has(Type::Message);
    let frames = env.input.has(Type::Frame) || env.input.has(Type::Packet);
    if streams && frames {
        let message = format!("it gets {} on one input", env.input);
        return Err(ParamError::of_request(message)
            .with_help("use one filter for each branch: frames and streams are looked at in different ways"));
    }
    Ok(streams)
}

struct Frames<T> {
    test: T,
}

impl<T: FrameTest> Filter for Frames<T> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (rings, counters) = (&*cx.rings, &mut *cx.counters);
        let mut links = Links::default();
        batch.keep_if_read(rings, |block, bytes| {
            let Some(link) = links.of(rings, block) else {
                return refused(counters, Malformed::UnsupportedLink);
            };
            let view = View { link, bytes, wire_len: block.wire() };
            match self.test.frame(view, &mut block.class) {
                Ok(passes) => passes,
                Err(why) => refused(counters, why),
            }
        });
        Ok(Status::Done)
    }
}

struct OnDevice<T> {
    test: T,
}

impl<T: FrameTest> Decides for OnDevice<T> {
    #[inline]
    fn by_ports(&self, ports: u32) -> Option<Option<Class>> {
        self.test.by_ports(ports)
    }

    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32, mut class: Class) -> Result<Option<Class>, Malformed> {
        let passes = self.test.frame(View { link: LinkType(link_type), bytes, wire_len }, &mut class)?;
        Ok(passes.then_some(class))
    }
}

struct Streams<T> {
    test: T,
}

impl<T: StreamTest> Filter for Streams<T> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let (streams, counters) = (&*cx.streams, &mut *cx.counters);
        batch.keep_if(|block| match streams.get(block.class) {
            Some(facts) => self.test.stream(&facts.directed(block.class)),
            None => {
                counters.events.add("no facts of the stream", 1);
                false
            }
        });
        Ok(Status::Done)
    }
}

/// Counts why a frame could not be read. A valid frame of another protocol is not counted.
#[cold]
pub(crate) fn refused(counters: &mut Counters, why: Malformed) -> bool {
    if !matches!(why, Malformed::NotIp | Malformed::OtherProtocol) {
        counters.unread.add(why.reason(), 1);
    }
    false
}

/// Link types by view. Remembers the last one.
#[derive(Default)]
pub struct Links {
    last: Option<(ViewKey, LinkType)>,
}

pub(crate) type ViewKey = (base::id::RingId, base::id::Generation);

impl Links {
    /// The link type of this block's view; `None` if the view holds no frames.
    #[inline]
    pub fn of(&mut self, rings: &BlockTable, block: &Descriptor) -> Option<LinkType> {
        let key = Links::key_of(block);
        match self.last {
            Some((known, link)) if known == key => Some(link),
            _ => {
                let link = LinkType(rings.link_type(block)?);
                self.last = Some((key, link));
                Some(link)
            }
        }
    }

    /// The view in which a block lies.
    #[inline]
    pub fn key_of(block: &Descriptor) -> ViewKey {
        (block.ring, block.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The short way agrees with the full walk on every frame that it accepts.
        #[test]
        fn plain_packets_are_as_the_whole_walk_says(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            header in proptest::option::weighted(0.9, (0u16..80, 0u16..3, any::<u8>())),
        ) {
            if let (Some((total, fragment, protocol)), true) = (header, bytes.len() > 24) {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[16..18].copy_from_slice(&total.to_be_bytes());
                bytes[20..22].copy_from_slice(&(fragment << 13).to_be_bytes());
                bytes[23] = protocol;
            }
            let view = View { link: LinkType::ETHERNET, bytes: &bytes, wire_len: 2000 };
            if let Some(plain) = view.plain_packet() {
                prop_assert_eq!(Ok(plain), view.any_packet());
            }
        }
    }
}
