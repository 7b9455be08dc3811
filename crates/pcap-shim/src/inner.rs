//! A handle's settings, and its source once it is active.

use crate::abi::{MICROSECONDS, NANOSECONDS, PacketHeader, SNAPLEN_MAX, TIMES_OF_HOST, status};
use crate::live::Live;
use crate::meter::Meter;
use crate::names::Target;
use std::ffi::c_int;

/// Settings that can be made before a handle is active. Numbers are libpcap's.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most bytes of each packet.
    pub snaplen: c_int,
    /// Also packets for other hosts.
    pub promiscuous: bool,
    /// How long packets may wait to be delivered together, and how long a read waits, in ms; 0: without limit.
    pub timeout_ms: c_int,
    /// The requested bytes of the ring; 0: the default.
    pub buffer_bytes: c_int,
    /// Deliver each packet at once.
    pub immediate: bool,
    /// Monitor mode.
    pub monitor: bool,
    /// The source of timestamps.
    pub times: c_int,
    /// The unit of timestamps.
    pub precision: c_int,
    /// Only packets of this Ethernet protocol; 0: all.
    pub protocol: c_int,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            snaplen: 0,
            promiscuous: false,
            timeout_ms: 0,
            buffer_bytes: 0,
            immediate: false,
            monitor: false,
            times: TIMES_OF_HOST,
            precision: MICROSECONDS,
            protocol: 0,
        }
    }
}

impl Settings {
    /// The requested bytes of each packet. Invalid values mean all.
    pub fn snap_bytes(&self) -> usize {
        let sound = (1..=SNAPLEN_MAX).contains(&self.snaplen);
        (if sound { self.snaplen } else { SNAPLEN_MAX }) as usize
    }

    /// Whether timestamps are in nanoseconds.
    pub fn is_precise(&self) -> bool {
        self.precision == NANOSECONDS
    }
}

/// The part of a handle that one thread at a time may use.
pub struct Inner {
    /// The target that it was created for.
    pub target: Target,
    /// The name that it was created with.
    pub name: String,
    /// Its settings.
    pub settings: Settings,
    /// Reads do not block.
    pub nonblocking: bool,
    /// The source of its packets, once it is active.
    pub live: Option<Live>,
    /// The header to which pcap_next_ex() points.
    pub header: PacketHeader,
}

impl Inner {
    /// A handle that is not active yet.
    pub fn new(name: String, target: Target) -> Inner {
        Inner {
            target,
            name,
            settings: Settings::default(),
            nonblocking: false,
            live: None,
            header: PacketHeader::default(),
        }
    }

    /// Bytes of the buffer in which packets are handed over.
    pub fn buffer_bytes(&self) -> usize {
        SNAPLEN_MAX as usize
    }

    /// Opens its target. The error is a status and a text, which may be empty.
    pub fn activate(&mut self, meter: &Meter) -> Result<(), (c_int, String)> {
        if self.settings.monitor {
            return Err((status::NO_MONITOR_MODE, String::new()));
        }
        if self.settings.protocol != 0 && self.settings.protocol != c_int::from(libc::ETH_P_ALL as u16) {
            let text = "a protocol cannot be chosen on this device; use a filter (`ether proto N`)";
            return Err((status::ERROR, text.into()));
        }
        self.live = Some(Live::open(&self.target, &self.settings, meter)?);
        Ok(())
    }
}
