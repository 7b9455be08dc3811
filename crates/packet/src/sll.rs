//! Linux cooked capture, versions 1 and 2: the format of packet sockets for the device `any` and for devices without a
//! link header. Skips the address and the packet type.
//!
//! <https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html> and `..._SLL2.html`.

use crate::layer::Layer;

pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const HEADER_BYTES_2: usize = 20;

/// Version 1: packet type, device type, address length, 8 bytes of address, protocol.
pub(crate) fn next(header: [u8; HEADER_BYTES]) -> Layer {
    let [_, _, device_high, device_low, .., high, low] = header;
    layer(u16::from_be_bytes([device_high, device_low]), u16::from_be_bytes([high, low]))
}

/// Version 2: protocol, reserved, interface index, device type, packet type, address length, 8 bytes of address.
pub(crate) fn next_2(header: [u8; HEADER_BYTES_2]) -> Layer {
    let [high, low, _, _, _, _, _, _, device_high, device_low, ..] = header;
    layer(u16::from_be_bytes([device_high, device_low]), u16::from_be_bytes([high, low]))
}

/// On these devices (`ARPHRD_*` of if_arp.h) the protocol field is no ether type: netlink, 802.11 with radiotap.
const OTHER_NUMBERING: [u16; 2] = [824, 803];

fn layer(device: u16, protocol: u16) -> Layer {
    if OTHER_NUMBERING.contains(&device) {
        return Layer::Other;
    }
    match protocol {
        // ETH_P_802_2.
        0x0004 => Layer::Llc,
        // Novell's raw 802.3, CAN and other numbers below the ether types.
        0..=0x05ff => Layer::Other,
        ether_type => Layer::EtherType(ether_type),
    }
}
