//! Abilities of a device's driver for XDP programs, from the kernel (`genetlink`, family `netdev`, since Linux 6.3).

use crate::netlink::{Message, Netlink, attributes};
use std::io;

// `linux/genetlink.h`
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;
// `linux/netdev.h`
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;

/// Abilities of a driver for XDP programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// Programs run in the driver, and can redirect received frames.
    pub fn redirects(self) -> bool {
        self.0 & 0b10 != 0
    }

    /// It sends frames that programs of other devices redirect to it.
    pub fn takes_redirected(self) -> bool {
        self.0 & 0b100 != 0
    }
}

const HEADER_BYTES: usize = 4;

fn asking(kind: u16, command: u8) -> Message {
    let mut message = Message::new(kind, 0);
    // Command, version, and two reserved bytes.
    message.put(&u32::from_ne_bytes([command, 1, 0, 0]));
    message
}

fn find(body: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(body.get(HEADER_BYTES..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The abilities of the driver of a device in this thread's network namespace; `None` where the kernel does not say.
pub fn xdp(index: u32) -> io::Result<Option<XdpFeatures>> {
    let mut netlink = Netlink::generic()?;
    let family = netlink.dump(
        &asking(CONTROL, GET_FAMILY),
        |found: &mut Option<u16>, _, body| {
            if find(body, FAMILY_NAME) == Some(b"netdev\0") {
                *found = find(body, FAMILY_NUMBER).and_then(|number| number.try_into().ok()).map(u16::from_ne_bytes);
            }
        },
        || None,
    )?;
    let Some(family) = family else { return Ok(None) };
    netlink.dump(
        &asking(family, GET_DEVICE),
        |found: &mut Option<XdpFeatures>, _, body| {
            if find(body, DEVICE_INDEX) == Some(&index.to_ne_bytes()) {
                let features = find(body, DEVICE_FEATURES).and_then(|features| features.try_into().ok());
                *found = features.map(u64::from_ne_bytes).map(XdpFeatures);
            }
        },
        || None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_does_nothing_for_programs() {
        let index = crate::link::find("lo").unwrap().expect("there is one everywhere").index;
        // An old kernel says nothing.
        let features = xdp(index).unwrap().unwrap_or_default();
        assert!(!features.redirects() && !features.takes_redirected());
        assert_eq!(xdp(u32::MAX).unwrap(), None);
    }
}
