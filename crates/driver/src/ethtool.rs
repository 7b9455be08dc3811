//! Facts from a device's driver, and its offloads: `ioctl(SIOCETHTOOL)`.
//!
//! Offloads decide what a capture sees: packets already joined (GRO, LRO) or not cut yet (TSO, GSO), checksums that are
//! not filled in, VLAN tags beside the frame.

use crate::sys::{ioctl, name_bytes, socket};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

// `linux/ethtool.h`; the first of each pair asks, the second sets.
const GDRVINFO: u32 = 0x03;
const GCHANNELS: u32 = 0x3c;
const RXCSUM: (u32, u32) = (0x14, 0x15);
const TXCSUM: (u32, u32) = (0x16, 0x17);
const SG: (u32, u32) = (0x18, 0x19);
const TSO: (u32, u32) = (0x1e, 0x1f);
const GSO: (u32, u32) = (0x23, 0x24);
const FLAGS: (u32, u32) = (0x25, 0x26);
const GRO: (u32, u32) = (0x2b, 0x2c);
const FLAG_TXVLAN: u32 = 1 << 7;
const FLAG_RXVLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;
const FLAG_RXHASH: u32 = 1 << 28;

/// Work that a device does for the kernel, or that the kernel does in larger pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The device checks checksums.
    pub receive_checksum: bool,
    /// The device fills in checksums: a capture sees those of outgoing frames open.
    pub transmit_checksum: bool,
    /// A frame may be in several pieces.
    pub scatter_gather: bool,
    /// The device cuts TCP into segments: a capture sees outgoing data uncut.
    pub tso: bool,
    /// The same, done by the kernel right before the device.
    pub gso: bool,
    /// Segments are joined on receipt.
    pub gro: bool,
    /// The same, done by the device, so that it cannot be undone.
    pub lro: bool,
    /// A received frame's VLAN tag is taken out and kept beside it.
    pub receive_vlan: bool,
    /// A frame's VLAN tag may be beside it, and the device puts it in.
    pub transmit_vlan: bool,
    /// The device computes a hash of each flow.
    pub receive_hash: bool,
}

impl Offloads {
    /// All offloads off: then frames look as on the wire.
    pub const NONE: Offloads = Offloads {
        receive_checksum: false,
        transmit_checksum: false,
        scatter_gather: false,
        tso: false,
        gso: false,
        gro: false,
        lro: false,
        receive_vlan: false,
        transmit_vlan: false,
        receive_hash: false,
    };
}

/// Numbers of a device's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues in use: for receiving, for sending, and for both.
    pub in_use: [u32; 3],
    /// Most queues there could be, in the same order.
    pub at_most: [u32; 3],
}

#[repr(C)]
struct Request {
    name: [libc::c_char; libc::IFNAMSIZ],
    data: *mut u8,
    _rest: [u64; 2],
}

/// Asks the drivers of devices in the network namespace in which it was made.
#[derive(Debug)]
pub struct Ethtool {
    fd: OwnedFd,
}

impl Ethtool {
    /// Opens a socket for asking; any kind serves.
    pub fn new() -> io::Result<Ethtool> {
        Ok(Ethtool { fd: socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)? })
    }

    /// The driver's name.
    pub fn driver(&self, device: &str) -> io::Result<String> {
        // struct ethtool_drvinfo: command, then names of 32 bytes each.
        let mut info = [0_u8; 196];
        self.command(device, GDRVINFO, &mut info)?;
        let name = CStr::from_bytes_until_nul(&info[4..36]).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// The device's queues.
    pub fn channels(&self, device: &str) -> io::Result<Channels> {
        // struct ethtool_channels: command; most receive, transmit, other, combined queues; the same in use.
        let mut bytes = [0_u8; 36];
        self.command(device, GCHANNELS, &mut bytes)?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[4 * at + byte]));
        Ok(Channels { at_most: [1, 2, 4].map(word), in_use: [5, 6, 8].map(word) })
    }

    /// The device's offloads. One that it does not have is off.
    pub fn offloads(&self, device: &str) -> Offloads {
        let value = |(get, _): (u32, u32)| self.value(device, get).unwrap_or(0);
        let (is_on, flags) = (|pair| value(pair) != 0, value(FLAGS));
        Offloads {
            receive_checksum: is_on(RXCSUM),
            transmit_checksum: is_on(TXCSUM),
            scatter_gather: is_on(SG),
            tso: is_on(TSO),
            gso: is_on(GSO),
            gro: is_on(GRO),
            lro: flags & FLAG_LRO != 0,
            receive_vlan: flags & FLAG_RXVLAN != 0,
            transmit_vlan: flags & FLAG_TXVLAN != 0,
            receive_hash: flags & FLAG_RXHASH != 0,
        }
    }

    /// Sets offloads as far as the device allows, and returns their new state.
    pub fn set_offloads(&self, device: &str, wanted: Offloads) -> io::Result<Offloads> {
        let before = self.offloads(device);
        let (mut flags, flags_before) = (0, self.value(device, FLAGS.0).unwrap_or(0));
        for (flag, is_wanted) in [
            (FLAG_LRO, wanted.lro),
            (FLAG_RXVLAN, wanted.receive_vlan),
            (FLAG_TXVLAN, wanted.transmit_vlan),
            (FLAG_RXHASH, wanted.receive_hash),
        ] {
            flags |= if is_wanted { flag } else { 0 };
        }
        let others = flags_before & !(FLAG_LRO | FLAG_RXVLAN | FLAG_TXVLAN | FLAG_RXHASH);
        let changes = [
            (RXCSUM, before.receive_checksum, wanted.receive_checksum),
            (TXCSUM, before.transmit_checksum, wanted.transmit_checksum),
            (SG, before.scatter_gather, wanted.scatter_gather),
            (TSO, before.tso, wanted.tso),
            (GSO, before.gso, wanted.gso),
            (GRO, before.gro, wanted.gro),
        ];
        for ((_, set), before, wanted) in changes {
            if before != wanted {
                tolerate(self.set_value(device, set, u32::from(wanted)))?;
            }
        }
        if flags | others != flags_before {
            tolerate(self.set_value(device, FLAGS.1, flags | others))?;
        }
        Ok(self.offloads(device))
    }

    fn value(&self, device: &str, command: u32) -> io::Result<u32> {
        let mut bytes = [0_u8; 8];
        self.command(device, command, &mut bytes)?;
        Ok(u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
    }

    fn set_value(&self, device: &str, command: u32, value: u32) -> io::Result<()> {
        let mut bytes = [0_u8; 8];
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        self.command(device, command, &mut bytes)
    }

    /// `argument` is the whole structure of this command, all of fixed size; its first four bytes are filled in here.
    fn command<const BYTES: usize>(&self, device: &str, command: u32, argument: &mut [u8; BYTES]) -> io::Result<()> {
        let name = name_bytes(device).ok_or(io::ErrorKind::InvalidInput)?;
        argument[..4].copy_from_slice(&command.to_ne_bytes());
        let mut request = Request { name, data: argument.as_mut_ptr(), _rest: [0; 2] };
        // SAFETY: the shape of an ifreq; the data have the length of the command's structure, and live for the call.
        unsafe { ioctl(self.fd.as_fd(), libc::SIOCETHTOOL, &mut request) }
    }
}

/// Ignores errors of settings that a device cannot change: the new state shows them.
fn tolerate(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_such_device_is_told() {
        let ethtool = Ethtool::new().expect("anybody may have a socket");
        assert!(ethtool.driver("no-such-device").is_err());
        assert!(ethtool.driver("a name that is too long for one").is_err());
        assert_eq!(ethtool.offloads("no-such-device"), Offloads::NONE);
        // The loopback device sends uncut data to itself.
        assert!(ethtool.offloads("lo").scatter_gather);
    }
}
