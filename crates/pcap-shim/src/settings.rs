//! What a program has set for a handle.

use crate::abi::{MICROSECONDS, NANOSECONDS, SNAPLEN_MAX, TIMES_OF_HOST};
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
