//! Cuts an answer that is longer than a packet of the interface into fragments (RFC 791 3.2, RFC 8200 4.5). Only replies to
//! echo requests, which came in fragments themselves, are so long; stacks of flows send no fragments.

use crate::whole::ETHERNET;
use packet::checksum::Sum;
use packet::{ipv4, ipv6};

/// "More fragments" in the word of the fragment's offset, of IPv4 and of IPv6.
const MORE: u16 = 0x2000;
const MORE_V6: u16 = 1;

/// The frames of a packet for an interface of this MTU. `frame`: from its Ethernet header on, without options and extension
/// headers.
pub(crate) fn fragments(frame: &[u8], mtu: usize, identification: u32) -> Vec<Vec<u8>> {
    let is_ipv4 = frame.get(ETHERNET).is_some_and(|byte| byte >> 4 == 4);
    let (header, added) = if is_ipv4 { (ipv4::Packet::HEADER_BYTES, 0) } else { (ipv6::Packet::HEADER_BYTES, 8) };
    let Some((head, payload)) = frame.split_at_checked(ETHERNET + header) else { return Vec::new() };
    // Offsets count units of 8 bytes.
    let step = mtu.saturating_sub(header + added) / 8 * 8;
    if step == 0 {
        return Vec::new();
    }
    let last = payload.len().div_ceil(step).saturating_sub(1);
    let pieces = payload.chunks(step).enumerate();
    let cut = |(index, piece): (usize, &[u8])| {
        let (offset, is_last) = ((index * step) as u16, index == last);
        match is_ipv4 {
            true => of_ipv4(head, piece, offset, is_last, identification),
            false => of_ipv6(head, piece, offset, is_last, identification),
        }
    };
    pieces.map(cut).collect()
}

fn of_ipv4(head: &[u8], piece: &[u8], offset: u16, is_last: bool, identification: u32) -> Vec<u8> {
    let mut frame = [head, piece].concat();
    let total = (frame.len() - ETHERNET) as u16;
    let header = &mut frame[ETHERNET..ETHERNET + ipv4::Packet::HEADER_BYTES];
    let word = (offset / 8) | if is_last { 0 } else { MORE };
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
    header[6..8].copy_from_slice(&word.to_be_bytes());
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn of_ipv6(head: &[u8], piece: &[u8], offset: u16, is_last: bool, identification: u32) -> Vec<u8> {
    let word = offset | if is_last { 0 } else { MORE_V6 };
    let ([o0, o1], [i0, i1, i2, i3]) = (word.to_be_bytes(), identification.to_be_bytes());
    let mut frame = [head, &[head[ETHERNET + 6], 0, o0, o1, i0, i1, i2, i3], piece].concat();
    let length = (piece.len() + 8) as u16;
    frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&length.to_be_bytes());
    frame[ETHERNET + 6] = ipv6::FRAGMENT;
    frame
}
