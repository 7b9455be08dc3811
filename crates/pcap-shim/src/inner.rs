//! A handle's settings, and its source once it is active.

use crate::abi::{PacketHeader, SNAPLEN_MAX, status};
use crate::live::Live;
use crate::meter::Meter;
use crate::names::Target;
use crate::settings::Settings;
use std::ffi::c_int;

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
