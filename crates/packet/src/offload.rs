//! Does the work that a host leaves to its network device: finishes an open checksum, and cuts a super-frame into the
//! frames of the wire. For Ethernet frames as on the wire, with their tags.
//!
//! In one tunnel (VXLAN, Geneve, GRE, IP in IP) the inner segment is cut, and each piece gets the headers of the
//! tunnel. Segments are not merged here.
//!
//! Read next: `frame.rs` for the places of headers; `checksum.rs`; `tunnel.rs`.

use crate::bytes::u16_at;
use crate::checksum::Sum;
use crate::frame::{self, Frame, protocol};
use crate::ipv6;
use crate::link::LinkType;
use crate::malformed::Malformed;
use crate::tunnel::ports::Ports;
use crate::tunnel::{self, Carries, look};
use crate::{pseudo, tcp, udp};
use std::sync::LazyLock;

/// Finishes a checksum that covers `frame` from `start` on. Its field at `field` holds the sum of the pseudo header.
/// Returns `false` without writing if these places are outside of the frame.
pub fn finish_checksum(frame: &mut [u8], start: usize, field: usize) -> bool {
    let Some(covered) = frame.get_mut(start..) else { return false };
    let sum = Sum::of(covered).checksum();
    let place = field.checked_sub(start).and_then(|at| covered.get_mut(at..)?.first_chunk_mut::<2>());
    let Some(place) = place else { return false };
    *place = not_zero(sum).to_be_bytes();
    true
}

/// In UDP 0 means no checksum; 0xffff is the same number.
fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

// Offsets of header fields that a cut changes.
const IPV4_TOTAL_LENGTH: usize = 2;
const IPV4_IDENTIFICATION: usize = 4;
const IPV4_CHECKSUM: usize = 10;
const IPV6_PAYLOAD_LENGTH: usize = 4;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

/// Flags of the last segment only: FIN and PSH.
const LAST_ONLY: u8 = 0x09;
/// The flag of the first segment only: CWR (RFC 3168, 6.1.2).
const FIRST_ONLY: u8 = 0x80;

/// How to cut a super-frame, from its sender or the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Bytes of payload of each segment but the last.
    pub segment_bytes: u16,
    /// The protocol of the segments: [`protocol::TCP`] or [`protocol::UDP`].
    pub protocol: u8,
    /// Offset of the TCP or UDP header in the frame, if known. It may lie in a tunnel.
    pub transport: Option<u16>,
}

/// A super-frame, and how to cut it.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    /// The packet whose payload is cut, with offsets in the frame.
    read: Frame,
    /// The packet of the tunnel around it.
    outer: Option<Frame>,
    /// Length of all headers.
    header: usize,
    /// Bytes of payload of each segment but the last.
    step: usize,
}

/// The usual ports of tunnels.
static PORTS: LazyLock<Ports> = LazyLock::new(Ports::default);

/// GRE flags of a checksum or a sequence number, which would differ for each segment (RFC 2784, RFC 2890).
const GRE_OF_WHOLE: u8 = 0x90;

/// The packet in a frame's tunnel, with offsets in the frame; `outer` is the frame's own packet. `None` without a
/// tunnel, or if the tunnel's header depends on the whole payload.
fn carried(frame: &[u8], outer: &Frame) -> Option<Frame> {
    let Ok(Carries::Inner(inner)) = look(LinkType::ETHERNET, frame, frame.len() as u32, &PORTS) else { return None };
    let flags = *frame.get(outer.transport_offset as usize)?;
    let is_sound = match inner.layer.kind {
        tunnel::Kind::Vxlan | tunnel::Kind::Geneve | tunnel::Kind::Ip => true,
        tunnel::Kind::Gre => outer.protocol == protocol::GRE && flags & GRE_OF_WHOLE == 0,
        _ => false,
    };
    let bytes = frame.get(inner.offset as usize..)?.get(..inner.len as usize).filter(|_| is_sound)?;
    let mut read = frame::parse(inner.link, bytes, inner.wire_len).ok()?;
    read.network_offset += inner.offset;
    read.transport_offset += inner.offset;
    read.payload_end += inner.offset;
    Some(read)
}

impl<'a> Segments<'a> {
    /// Prepares to cut a frame of TCP or UDP, possibly in a tunnel.
    ///
    /// # Errors
    /// If headers cannot be read, or the frame is no super-frame.
    pub fn new(frame: &'a [u8], cut: Cut) -> Result<Segments<'a>, Malformed> {
        let first = frame::parse(LinkType::ETHERNET, frame, frame.len() as u32)?;
        // UDP may belong to the tunnel or be inside it: the place of the header decides.
        let is_inner = match cut.transport {
            Some(transport) => u32::from(transport) > first.transport_offset,
            None => first.protocol != cut.protocol,
        };
        let (read, outer) = match is_inner {
            true => (carried(frame, &first).ok_or(Malformed::OtherProtocol)?, Some(first)),
            false => (first, None),
        };
        let is_there = read.protocol == cut.protocol
            && cut.transport.is_none_or(|transport| u32::from(transport) == read.transport_offset)
            && outer.is_none_or(|outer| is_cut_so(frame, &outer) && outer.payload_end == read.payload_end);
        if !is_there || !is_cut_so(frame, &read) || cut.segment_bytes == 0 {
            return Err(Malformed::OtherProtocol);
        }
        // Bytes of the tunnel before the packet are not part of its header.
        let segment = frame.get(read.transport_offset as usize..read.payload_end as usize).unwrap_or_default();
        let transport = match read.protocol {
            protocol::TCP => tcp::Packet::new_checked(segment, segment.len() as u32)?.header_len() as usize,
            protocol::UDP => {
                udp::Packet::new_checked(segment, segment.len() as u32).map(|_| udp::Packet::HEADER_BYTES)?
            }
            _ => return Err(Malformed::OtherProtocol),
        };
        let header = read.transport_offset as usize + transport;
        if header > read.payload_end as usize {
            return Err(Malformed::OtherProtocol);
        }
        Ok(Segments { frame, read, outer, header, step: usize::from(cut.segment_bytes) })
    }

    /// The number of segments, at least one.
    pub fn count(&self) -> usize {
        self.payload().len().div_ceil(self.step).max(1)
    }

    /// Length of this segment's frame.
    pub fn len_of(&self, index: usize) -> usize {
        self.header + self.part(index).len()
    }

    fn payload(&self) -> &'a [u8] {
        self.frame.get(self.header..self.read.payload_end as usize).unwrap_or_default()
    }

    fn part(&self, index: usize) -> &'a [u8] {
        let rest = self.payload().get(index.saturating_mul(self.step)..).unwrap_or_default();
        &rest[..rest.len().min(self.step)]
    }

    /// Writes this segment's frame with its lengths, sequence number, flags and checksums. Returns its length; `None`
    /// if `out` is too small.
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<usize> {
        let part = self.part(index);
        let out = out.get_mut(..self.header + part.len())?;
        let (header, payload) = out.split_at_mut(self.header);
        header.copy_from_slice(&self.frame[..self.header]);
        payload.copy_from_slice(part);
        let length = out.len();
        change_network(&self.read, out.get_mut(self.read.network_offset as usize..)?, index)?;
        self.change_transport(out.get_mut(self.read.transport_offset as usize..)?, index)?;
        if let Some(outer) = &self.outer {
            change_network(outer, out.get_mut(outer.network_offset as usize..)?, index)?;
            if outer.protocol == protocol::UDP {
                let datagram = out.get_mut(outer.transport_offset as usize..)?;
                put(datagram, UDP_LENGTH, u16::try_from(datagram.len()).ok()?)?;
                // 0 means no checksum (RFC 7348, 5).
                if u16_at(datagram, UDP_CHECKSUM)? != 0 {
                    sum_up(outer, datagram, UDP_CHECKSUM)?;
                }
            }
        }
        Some(length)
    }

    /// `segment` begins at the TCP or UDP header.
    fn change_transport(&self, segment: &mut [u8], index: usize) -> Option<()> {
        let length = u16::try_from(segment.len()).ok()?;
        let field = if self.read.protocol == protocol::TCP {
            let at = segment.get_mut(TCP_SEQUENCE..)?.first_chunk_mut::<4>()?;
            let before = index.saturating_mul(self.step) as u32;
            *at = u32::from_be_bytes(*at).wrapping_add(before).to_be_bytes();
            let flags = segment.get_mut(TCP_FLAGS)?;
            if index + 1 < self.count() {
                *flags &= !LAST_ONLY;
            }
            if index > 0 {
                *flags &= !FIRST_ONLY;
            }
            TCP_CHECKSUM
        } else {
            put(segment, UDP_LENGTH, length)?;
            UDP_CHECKSUM
        };
        sum_up(&self.read, segment, field)
    }
}

/// Whether a packet can be part of a super-frame.
fn is_cut_so(frame: &[u8], read: &Frame) -> bool {
    // A jumbogram has its length in an extension header, which its segments would lack.
    let is_jumbo = read.version == 6 && u16_at(frame, read.network_offset as usize + IPV6_PAYLOAD_LENGTH) == Some(0);
    !is_jumbo && read.fragment.is_none() && !read.is_cut()
}

/// Writes lengths, identification and checksum of IP. `packet` begins at the IP header that `read` describes.
fn change_network(read: &Frame, packet: &mut [u8], index: usize) -> Option<()> {
    let length = u16::try_from(packet.len()).ok()?;
    if read.version == 6 {
        return put(packet, IPV6_PAYLOAD_LENGTH, length.checked_sub(ipv6::Packet::HEADER_BYTES as u16)?);
    }
    put(packet, IPV4_TOTAL_LENGTH, length)?;
    let identification = u16_at(packet, IPV4_IDENTIFICATION)?.wrapping_add(index as u16);
    put(packet, IPV4_IDENTIFICATION, identification)?;
    put(packet, IPV4_CHECKSUM, 0)?;
    let header = packet.get(..usize::from(packet.first()? & 0xf) * 4)?;
    put(packet, IPV4_CHECKSUM, Sum::of(header).checksum())
}

/// Writes the checksum of TCP or UDP. `segment` begins at that header, behind the IP header that `read` describes.
fn sum_up(read: &Frame, segment: &mut [u8], field: usize) -> Option<()> {
    put(segment, field, 0)?;
    let pseudo = pseudo::sum(read.source, read.target, read.protocol, u16::try_from(segment.len()).ok()?);
    put(segment, field, not_zero(pseudo.and(Sum::of(segment)).checksum()))
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

const _: () = assert!(tcp::Packet::HEADER_BYTES > TCP_CHECKSUM && udp::Packet::HEADER_BYTES > UDP_CHECKSUM);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    /// An Ethernet frame with an optional tag: TCP with 12 bytes of options, or UDP; flags FIN, PSH, ACK and CWR.
    fn super_frame(is_tagged: bool, version: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let transport = match protocol {
            protocol::TCP => {
                let mut header = vec![0, 80, 0, 99, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x80, 0x99, 1, 0, 0, 0, 0, 0];
                header.extend([1; 12]);
                header
            }
            _ => [&[0, 80, 0, 99][..], &(8 + payload.len() as u16).to_be_bytes(), &[0, 0]].concat(),
        };
        let length = (transport.len() + payload.len()) as u16;
        let mut frame = vec![2; 12];
        frame.extend(if is_tagged { &[0x81, 0, 0, 7][..] } else { &[] });
        if version == 4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0xfd; 32]);
        }
        frame.extend(&transport);
        frame.extend(payload);
        frame
    }

    fn cut(segment_bytes: u16, protocol: u8) -> Cut {
        Cut { segment_bytes, protocol, transport: None }
    }

    fn checksum_holds(frame: &[u8], read: &Frame) -> bool {
        let bytes = read.payload_of(frame);
        pseudo::sum(read.source, read.target, read.protocol, bytes.len() as u16).and(Sum::of(bytes)).checksum() == 0
    }

    #[test]
    fn segments_are_what_the_wire_has() {
        let payload: Vec<u8> = (0..2500_u32).map(|byte| byte as u8).collect();
        for (is_tagged, version, protocol) in [(false, 4, 6), (true, 4, 17), (true, 6, 6), (false, 6, 17)] {
            let frame = super_frame(is_tagged, version, protocol, &payload);
            let cut = Segments::new(&frame, cut(1000, protocol)).unwrap();
            assert_eq!(cut.count(), 3);
            let mut whole: Vec<u8> = Vec::new();
            for index in 0..3_usize {
                let mut out = [0; 1600];
                let length = cut.write(index, &mut out).unwrap();
                assert_eq!(length, cut.len_of(index));
                assert_eq!(cut.write(index, &mut [0; 1600][..length - 1]), None, "there is no room");
                let read = frame::parse(LinkType::ETHERNET, &out[..length], length as u32).unwrap();
                assert!(!read.is_cut() && checksum_holds(&out[..length], &read), "{version} {protocol} {index}");
                assert_eq!((read.vlan_count, read.version), (u8::from(is_tagged), version));
                if version == 4 {
                    let header = &out[read.network_offset as usize..][..20];
                    assert_eq!(
                        (Sum::of(header).checksum(), u16_at(header, 4)),
                        (0, Some(0xffff_u16.wrapping_add(index as u16)))
                    );
                }
                if protocol == protocol::TCP {
                    let segment = read.tcp(&out[..length]).unwrap();
                    assert_eq!(segment.sequence_number(), 0xffff_fff0_u32.wrapping_add(1000 * index as u32));
                    assert_eq!(segment.flags().0, [0x90, 0x10, 0x19][index]);
                    whole.extend(segment.payload());
                } else {
                    whole.extend(read.udp(&out[..length]).unwrap().payload());
                }
            }
            assert!(whole == payload);
        }
    }

    /// A super-frame in another packet: VXLAN with or without a checksum, GRE, IP in IP.
    fn in_tunnel(outer_version: u8, tunnel: tunnel::Kind, has_sum: bool, inner: &[u8]) -> Vec<u8> {
        let (protocol, header, inner) = match tunnel {
            tunnel::Kind::Vxlan => (17, &[8, 0, 0, 0, 0, 0, 7, 0][..], inner),
            tunnel::Kind::Gre => (47, &[0, 0, 0x65, 0x58][..], inner),
            _ => (4, &[][..], &inner[14..]),
        };
        let mut frame = super_frame(false, outer_version, 17, &[header, inner].concat());
        let network = if outer_version == 4 { 34 } else { 54 };
        if protocol == 17 {
            frame[network + 2..network + 4].copy_from_slice(&4789_u16.to_be_bytes());
            frame[network + 7] = u8::from(has_sum);
        } else {
            frame.drain(network..network + 8);
            let length = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&length.to_be_bytes());
            frame[23] = protocol;
        }
        frame
    }

    #[test]
    fn segments_in_a_tunnel_have_its_headers() {
        let payload: Vec<u8> = (0..2500_u32).map(|byte| byte as u8).collect();
        for (version, tunnel, has_sum) in [
            (4, tunnel::Kind::Vxlan, false),
            (4, tunnel::Kind::Vxlan, true),
            (6, tunnel::Kind::Vxlan, true),
            (4, tunnel::Kind::Gre, false),
            (4, tunnel::Kind::Ip, false),
        ] {
            for protocol in [protocol::TCP, protocol::UDP] {
                let frame = in_tunnel(version, tunnel, has_sum, &super_frame(false, 4, protocol, &payload));
                let outer = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).unwrap();
                let inner = carried(&frame, &outer).unwrap();
                let transport = Some(inner.transport_offset as u16);
                let segments = Segments::new(&frame, Cut { segment_bytes: 1000, protocol, transport }).unwrap();
                let mut whole: Vec<u8> = Vec::new();
                for index in 0..segments.count() {
                    let mut out = [0; 1600];
                    let length = segments.write(index, &mut out).unwrap();
                    let out = &out[..length];
                    let outer = frame::parse(LinkType::ETHERNET, out, length as u32).unwrap();
                    assert!(!outer.is_cut() && outer.payload_end as usize == length);
                    let sum = u16_at(out, outer.transport_offset as usize + UDP_CHECKSUM);
                    assert!(!has_sum && sum == Some(0) || outer.protocol != 17 || checksum_holds(out, &outer));
                    let network = &out[outer.network_offset as usize..][..20];
                    assert!(version == 6 || Sum::of(network).checksum() == 0);
                    let inner = carried(out, &outer).unwrap();
                    assert!(!inner.is_cut() && checksum_holds(out, &inner), "{tunnel:?} {protocol} {index}");
                    whole.extend(&out[segments.header..]);
                }
                assert!(whole == payload && segments.count() == 3);
            }
        }
        // If both are UDP, only the place tells which one is cut.
        let frame = in_tunnel(4, tunnel::Kind::Vxlan, false, &super_frame(false, 4, 17, &payload));
        let cut_at = |transport| Segments::new(&frame, Cut { segment_bytes: 1000, protocol: 17, transport });
        assert_eq!(cut_at(Some(34)).map(|it| it.header), Ok(42));
        assert_eq!(cut_at(None).map(|it| it.header), Ok(42));
        assert!(cut_at(Some(35)).is_err() && cut_at(Some(33)).is_err());
        // A super-frame that claims to be TCP, and is not.
        assert!(Segments::new(&frame, cut(1000, 6)).is_err());
    }

    #[test]
    fn a_finished_checksum_holds() {
        for payload in [&b"odd"[..], b"even", b""] {
            let mut frame = super_frame(false, 4, 17, payload);
            let length = 8 + payload.len() as u16;
            let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
            frame[40..42].copy_from_slice(&pseudo::sum(one, other, 17, length).folded().to_be_bytes());
            assert!(finish_checksum(&mut frame, 34, 40));
            let read = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).unwrap();
            assert!(checksum_holds(&frame, &read));
        }
        let mut frame = super_frame(false, 4, 17, b"x");
        let before = frame.clone();
        for (start, field) in [(100, 106), (34, 100), (34, 42), (34, 33), (43, 43), (34, usize::MAX)] {
            assert!(!finish_checksum(&mut frame, start, field), "{start} {field}");
        }
        assert_eq!(frame, before);
    }

    proptest! {
        /// For any bytes: cutting ends, and no segment is longer than the headers and a step.
        #[test]
        fn any_frame_is_cut_or_refused(
            change in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            kind in (any::<bool>(), prop::sample::select(vec![4_u8, 6]), prop::sample::select(vec![6_u8, 17])),
            len in 0_usize..3000,
            step in 0_u16..2000,
        ) {
            let mut frame = super_frame(kind.0, kind.1, kind.2, &vec![7; len]);
            for (at, byte) in change {
                let at = at.index(frame.len().min(80));
                frame[at] = byte;
            }
            if let Ok(cut) = Segments::new(&frame, cut(step, kind.2)) {
                let mut out = vec![0; frame.len()];
                for index in 0..cut.count() {
                    let written = cut.write(index, &mut out);
                    prop_assert!(written.is_none_or(|written| written == cut.len_of(index)));
                }
                prop_assert!(cut.part(cut.count()).is_empty());
            }
        }
    }
}
