//! Protection from blind attackers, who forge segments without seeing the connection (RFC 5961). smoltcp accepts a
//! reset anywhere in the window, does not answer a bare SYN, and drops data that comes with an old acknowledgement.
//! This module judges segments of an open connection before smoltcp gets them.
//!
//! smoltcp sends each challenge ACK, and limits their rate: the block passes in a probe that smoltcp must answer.

use packet::ipv4;
use packet::tcp::{Flags, Packet};

const IP_BYTES: usize = ipv4::Packet::HEADER_BYTES;

/// Sequence numbers of a connection, in the terms of RFC 9293, section 3.3.1.
pub(super) struct Numbers {
    /// RCV.NXT.
    pub(super) receive_next: u32,
    /// RCV.WND, in bytes.
    pub(super) receive_window: u32,
    /// SND.UNA.
    pub(super) acknowledged: u32,
    /// Most bytes that may be unacknowledged. It stands for MAX.SND.WND.
    pub(super) send_window: u32,
}

/// Verdict on a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass it to smoltcp unchanged.
    Take,
    /// Pass it to smoltcp with this acknowledgement number.
    Acknowledges(u32),
    /// Drop it and send a challenge ACK.
    Challenge,
}

/// Judges a segment of a connection whose handshake is over.
pub(super) fn judge(read: &Packet<'_>, numbers: &Numbers) -> Verdict {
    let flags = read.flags();
    let ahead = read.sequence_number().wrapping_sub(numbers.receive_next);
    if flags.rst() {
        // Section 3.2: only the exact sequence number resets. smoltcp drops resets outside the window.
        return match (1..numbers.receive_window).contains(&ahead) {
            true => Verdict::Challenge,
            false => Verdict::Take,
        };
    }
    // Section 4.2.
    if flags.syn() {
        return Verdict::Challenge;
    }
    // Section 5.2. RFC 9293, section 3.10.7.4: an old acknowledgement in the window is ignored, but its data counts.
    let age = numbers.acknowledged.wrapping_sub(read.acknowledgment_number());
    match age {
        _ if !flags.ack() || age == 0 || age > i32::MAX as u32 => Verdict::Take,
        _ if age > numbers.send_window => Verdict::Challenge,
        _ if read.payload().is_empty() && !flags.fin() => Verdict::Take,
        _ => Verdict::Acknowledges(numbers.acknowledged),
    }
}

/// Overwrites the acknowledgement number of a packet's segment. The checksum may be wrong: smoltcp does not check it.
pub(super) fn acknowledge(packet: &mut [u8], number: u32) {
    if let Some(field) = packet.get_mut(IP_BYTES + 8..IP_BYTES + 12) {
        field.copy_from_slice(&number.to_be_bytes());
    }
}

/// A packet without options and data.
pub(super) type Bare = [u8; IP_BYTES + Packet::HEADER_BYTES];

/// Most bytes that a window loses when smoltcp rounds it down to its scale (RFC 7323, section 2.2).
const ROUNDED: u32 = 1 << 14;

/// Whether the segment is just beyond a shut window, with an acknowledgement that counts. smoltcp announces windows rounded
/// down, so the other side may have sent a few bytes beyond the last announcement. Its acknowledgements then carry the
/// number behind those bytes, and smoltcp drops them. RFC 9293, section 3.10.7.4, counts them; without them, two sides
/// with full buffers would wait for ever.
pub(super) fn is_beyond_shut_window(read: &Packet<'_>, receive_next: u32) -> bool {
    let flags = read.flags();
    let ahead = read.sequence_number().wrapping_sub(receive_next);
    let is_bare = read.payload().is_empty() && !flags.fin();
    flags.ack() && !flags.rst() && !flags.syn() && ahead < ROUNDED && (ahead > 0 || !is_bare)
}

/// An empty packet from the sender of `packet`, with these numbers and the window of `packet`.
pub(super) fn bare(packet: &[u8], sequence: u32, acknowledged: u32) -> Bare {
    let mut bare = [0; IP_BYTES + Packet::HEADER_BYTES];
    let len = packet.len().min(bare.len());
    bare[..len].copy_from_slice(&packet[..len]);
    bare[2..4].copy_from_slice(&(IP_BYTES as u16 + Packet::HEADER_BYTES as u16).to_be_bytes());
    let segment = &mut bare[IP_BYTES..];
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    segment[12..14].copy_from_slice(&[5 << 4, Flags::ACK.0]);
    bare
}

/// The window field of a packet.
pub(super) fn window(packet: &Bare) -> u16 {
    u16::from_be_bytes([packet[IP_BYTES + 14], packet[IP_BYTES + 15]])
}

/// Overwrites the window field of a packet.
pub(super) fn set_window(packet: &mut Bare, window: u16) {
    packet[IP_BYTES + 14..IP_BYTES + 16].copy_from_slice(&window.to_be_bytes());
}

/// Splits a packet that has a FIN into one without it, and the FIN with this sequence number.
pub(super) fn split_fin(packet: &[u8], sequence: u32) -> (Vec<u8>, Bare) {
    let mut data = packet.to_vec();
    let mut fin = bare(packet, sequence, 0);
    if let (Some(number), Some(flags)) = (packet.get(IP_BYTES + 8..IP_BYTES + 12), data.get_mut(IP_BYTES + 13)) {
        *flags &= !Flags::FIN.0;
        fin[IP_BYTES + 8..IP_BYTES + 12].copy_from_slice(number);
        fin[IP_BYTES + 13] |= Flags::FIN.0;
    }
    (data, fin)
}

/// An empty packet from the sender of `packet`, with a number before the window: smoltcp must acknowledge it.
pub(super) fn probe(packet: &[u8], receive_next: u32, acknowledged: u32) -> Bare {
    bare(packet, receive_next.wrapping_sub(1), acknowledged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_syns_and_old_acknowledgements_are_judged_by_their_numbers() {
        let numbers =
            Numbers { receive_next: 5, receive_window: 1_000, acknowledged: 0xffff_fff0, send_window: 10_000 };
        let old = |age: u32| 0xffff_fff0_u32.wrapping_sub(age);
        let check = |flags: u8, sequence: u32, acknowledged: u32, data: &[u8], expected: Verdict| {
            let mut segment = [0, 1, 0, 2].to_vec();
            segment.extend(sequence.to_be_bytes());
            segment.extend(acknowledged.to_be_bytes());
            segment.extend([5 << 4, flags, 0, 9, 0, 0, 0, 0]);
            segment.extend(data);
            let read = Packet::new_checked(&segment, segment.len() as u32).unwrap();
            assert_eq!(judge(&read, &numbers), expected, "{flags:#x} {sequence} {acknowledged}");
        };
        check(0x04, 5, 0, b"", Verdict::Take);
        check(0x14, 6, 0, b"", Verdict::Challenge);
        check(0x04, 1_004, 0, b"", Verdict::Challenge);
        check(0x04, 1_005, 0, b"", Verdict::Take);
        check(0x04, 4, 0, b"", Verdict::Take);
        check(0x02, 5, 0, b"", Verdict::Challenge);
        check(0x12, 70_000, old(0), b"", Verdict::Challenge);
        check(0x10, 5, old(0), b"data", Verdict::Take);
        check(0x10, 5, old(10_001), b"data", Verdict::Challenge);
        check(0x10, 5, old(10_001), b"", Verdict::Challenge);
        check(0x10, 5, old(10_000), b"", Verdict::Take);
        check(0x10, 5, old(10_000), b"data", Verdict::Acknowledges(old(0)));
        check(0x11, 5, old(1), b"", Verdict::Acknowledges(old(0)));
        // Acknowledges bytes that were not sent: smoltcp challenges it.
        check(0x10, 5, 3, b"data", Verdict::Take);
    }

    #[test]
    fn short_packets_do_no_harm() {
        for len in 0..60 {
            let mut packet = vec![7; len];
            acknowledge(&mut packet, 1);
            assert_eq!(probe(&packet, 1, 2)[24..32], [0, 0, 0, 0, 0, 0, 0, 2]);
        }
    }
}
