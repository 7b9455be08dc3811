//! Frames of all devices in one form, as libpcap gives them for `any`: LINKTYPE_LINUX_SLL2
//! (<https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html>). A header of 20 bytes takes the place of the link layer's:
//! protocol, index and type of the device, direction, and the sender's address.

use driver::link;
use packet::LinkType;

/// What a program sees of a request's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The frames as they come; all have one link type.
    AsTheyCome,
    /// Frames of any link type, behind a header of their device.
    Cooked,
}

impl Form {
    /// The LINKTYPE number of all frames. `None`: that of the first one.
    pub fn link_type(self) -> Option<u16> {
        (self == Form::Cooked).then_some(LinkType::LINUX_SLL2.0)
    }
}

/// Bytes of the header.
const HEADER_BYTES: usize = 20;

/// Most bytes by which a cooked frame is longer.
pub const LONGER_MAX: u64 = HEADER_BYTES as u64;

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;

/// Numbers of Linux for where a frame goes (`sll2_pkttype`).
mod goes {
    pub(super) const TO_US: u8 = 0;
    pub(super) const TO_ALL: u8 = 1;
    pub(super) const TO_A_GROUP: u8 = 2;
    pub(super) const OUT: u8 = 4;
}

/// ARPHRD_VOID: a device of which nothing is known.
const UNKNOWN_HARDWARE: u16 = 0xffff;

/// LINUX_SLL_P_802_2: a length and LLC in the place of a type.
const LLC: u16 = 4;

/// The first number that is a type and no length (IEEE 802.3).
const FIRST_TYPE: u16 = 0x600;

/// The device that a frame came by.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    index: u32,
    hardware: u16,
    link: LinkType,
}

impl Origin {
    /// The device with this name, whose frames have this link type.
    pub fn new(name: Option<&str>, link: LinkType) -> Origin {
        let found = name.and_then(|name| link::find(name).ok().flatten());
        let (index, hardware) = found.map_or((0, UNKNOWN_HARDWARE), |found| (found.index, found.hardware));
        Origin { index, hardware, link }
    }

    /// Writes the frame in the cooked form. Gives the bytes by which it is longer on the wire than it was.
    pub fn cook(&self, frame: &[u8], outbound: bool, into: &mut Vec<u8>) -> i32 {
        let (protocol, address, target, payload) = match frame.split_at_checked(ETHERNET_BYTES) {
            Some((head, rest)) if self.link == LinkType::ETHERNET => {
                let word = u16::from_be_bytes([head[12], head[13]]);
                (if word < FIRST_TYPE { LLC } else { word }, &head[6..12], &head[..6], rest)
            }
            _ => match frame.first().map(|byte| byte >> 4) {
                Some(4) if self.link == LinkType::RAW => (0x0800, &[][..], &[][..], frame),
                Some(6) if self.link == LinkType::RAW => (0x86dd, &[][..], &[][..], frame),
                _ => (0, &[][..], &[][..], frame),
            },
        };
        let goes = match target {
            _ if outbound => goes::OUT,
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => goes::TO_ALL,
            [first, ..] if first & 1 == 1 => goes::TO_A_GROUP,
            _ => goes::TO_US,
        };
        into.clear();
        into.extend_from_slice(&protocol.to_be_bytes());
        into.extend_from_slice(&[0, 0]);
        into.extend_from_slice(&self.index.to_be_bytes());
        into.extend_from_slice(&self.hardware.to_be_bytes());
        into.extend_from_slice(&[goes, address.len() as u8]);
        into.extend_from_slice(address);
        into.resize(HEADER_BYTES, 0);
        into.extend_from_slice(payload);
        into.len() as i32 - frame.len() as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cooked(link: LinkType, frame: &[u8], outbound: bool) -> (Vec<u8>, i32) {
        let mut into = vec![9; 3];
        let longer = Origin { index: 7, hardware: 1, link }.cook(frame, outbound, &mut into);
        (into, longer)
    }

    #[test]
    fn frames_of_any_link_get_a_header() {
        let head = |protocol: [u8; 2], goes: u8, address: &[u8]| {
            let mut head = [&protocol[..], &[0, 0, 0, 0, 0, 7, 0, 1, goes, address.len() as u8], address].concat();
            head.resize(HEADER_BYTES, 0);
            head
        };
        let from = [2, 0, 0, 0, 0, 5];
        let ethernet = |to: [u8; 6], kind: [u8; 2]| [&to[..], &from, &kind, b"data"].concat();
        let rows = [
            (LinkType::ETHERNET, ethernet([2; 6], [8, 0]), false, head([8, 0], goes::TO_US, &from), "data", 6),
            (LinkType::ETHERNET, ethernet([2; 6], [0x86, 0xdd]), true, head([0x86, 0xdd], goes::OUT, &from), "data", 6),
            (LinkType::ETHERNET, ethernet([255; 6], [8, 6]), false, head([8, 6], goes::TO_ALL, &from), "data", 6),
            (LinkType::ETHERNET, ethernet([1; 6], [0, 4]), false, head([0, 4], goes::TO_A_GROUP, &from), "data", 6),
            (LinkType::RAW, b"E...".to_vec(), true, head([8, 0], goes::OUT, &[]), "E...", 20),
            (LinkType::RAW, b"`...".to_vec(), false, head([0x86, 0xdd], goes::TO_US, &[]), "`...", 20),
            (LinkType::ETHERNET, b"short".to_vec(), false, head([0, 0], goes::TO_US, &[]), "short", 20),
            (LinkType::RAW, Vec::new(), false, head([0, 0], goes::TO_US, &[]), "", 20),
        ];
        for (link, frame, outbound, head, payload, longer) in rows {
            assert_eq!(cooked(link, &frame, outbound), ([&head, payload.as_bytes()].concat(), longer), "{frame:?}");
        }
    }
}
