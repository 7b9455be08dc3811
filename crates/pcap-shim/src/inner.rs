//! What a handle is set to, and what it reads from once it is active.

use crate::abi::{MICROSECONDS, NANOSECONDS, PacketHeader, SNAPLEN_MAX, TIMES_OF_HOST, status};
use crate::live::Live;
use crate::meter::Meter;
use crate::names::Target;
use std::ffi::c_int;

/// What may be set before a handle is active. Numbers are libpcap's.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of each packet at most.
    pub snaplen: c_int,
    /// Packets for others, too.
    pub promiscuous: bool,
    /// How long packets may wait for company, and how long a read waits for any, in ms; 0 for ever.
    pub timeout_ms: c_int,
    /// Bytes of ring it would like, 0 if it does not matter.
    pub buffer_bytes: c_int,
    /// Packets do not wait for company.
    pub immediate: bool,
    /// Monitor mode.
    pub monitor: bool,
    /// Type of times.
    pub times: c_int,
    /// Precision of times.
    pub precision: c_int,
    /// Only packets of this Ethernet protocol, 0 for all.
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
    /// Bytes of each packet that are asked for; what makes no sense asks for all.
    pub fn snap_bytes(&self) -> usize {
        let sound = (1..=SNAPLEN_MAX).contains(&self.snaplen);
        (if sound { self.snaplen } else { SNAPLEN_MAX }) as usize
    }

    /// Are times in nanoseconds?
    pub fn is_precise(&self) -> bool {
        self.precision == NANOSECONDS
    }
}

/// The part of a handle that one thread at a time looks at.
pub struct Inner {
    /// What it was created for.
    pub target: Target,
    /// The name it was created by.
    pub name: String,
    /// What it was set to.
    pub settings: Settings,
    /// Reads do not wait.
    pub nonblocking: bool,
    /// What it reads from, once active.
    pub live: Option<Live>,
    /// Where pcap_next_ex() points to.
    pub header: PacketHeader,
}

impl Inner {
    /// Not active yet.
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

    /// Bytes of the buffer that packets are handed over in.
    pub fn buffer_bytes(&self) -> usize {
        SNAPLEN_MAX as usize
    }

    /// Opens what it was created for. The error is a status and a text, which may be empty.
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
