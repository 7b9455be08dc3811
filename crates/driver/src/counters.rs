//! The kernel's counts of a device, each with its name: they show where packets were lost before this program saw them.
//!
//! For the counts of a receiver or sender see [`ReceiveStatistics`](crate::ReceiveStatistics) and
//! [`TransmitStatistics`](crate::TransmitStatistics).

use self::Meaning::{Lost, PerhapsLost, Traffic};
use crate::sys::read_plain;
use std::io;

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its owner and what it counts: `link.rx_missed_errors`.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Its meaning for losses.
    pub meaning: Meaning,
}

/// Whether a counter counts lost packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// No.
    Traffic,
    /// Perhaps: the kernel also counts packets that packet sockets saw and no protocol of the host wanted.
    PerhapsLost,
    /// Yes.
    Lost,
}

/// Names in the order of `struct rtnl_link_stats64`.
const LINK: [(&str, Meaning); 25] = [
    ("link.rx_packets", Traffic),
    ("link.tx_packets", Traffic),
    ("link.rx_bytes", Traffic),
    ("link.tx_bytes", Traffic),
    ("link.rx_errors", Lost),
    ("link.tx_errors", Lost),
    ("link.rx_dropped", PerhapsLost),
    ("link.tx_dropped", Lost),
    ("link.multicast", Traffic),
    ("link.collisions", Traffic),
    ("link.rx_length_errors", Lost),
    ("link.rx_over_errors", Lost),
    ("link.rx_crc_errors", Lost),
    ("link.rx_frame_errors", Lost),
    ("link.rx_fifo_errors", Lost),
    ("link.rx_missed_errors", Lost),
    ("link.tx_aborted_errors", Lost),
    ("link.tx_carrier_errors", Lost),
    ("link.tx_fifo_errors", Lost),
    ("link.tx_heartbeat_errors", Lost),
    ("link.tx_window_errors", Lost),
    ("link.rx_compressed", Traffic),
    ("link.tx_compressed", Traffic),
    ("link.rx_nohandler", PerhapsLost),
    ("link.rx_otherhost_dropped", PerhapsLost),
];

/// A device's counters, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters([u64; LINK.len()]);

impl LinkCounters {
    /// From the attribute IFLA_STATS64; counters that an older kernel does not have are zero.
    pub(crate) fn parse(bytes: &[u8]) -> LinkCounters {
        LinkCounters(std::array::from_fn(|at| bytes.get(8 * at..).and_then(read_plain::<u64>).unwrap_or(0)))
    }

    /// All counters with their names.
    pub fn all(&self) -> impl Iterator<Item = Counter> {
        LINK.iter().zip(self.0).map(|(&(name, meaning), value)| Counter { name, value, meaning })
    }

    /// The counter with this name (`rx_dropped`).
    pub fn get(&self, name: &str) -> Option<u64> {
        self.all().find(|counter| counter.name.strip_prefix("link.") == Some(name)).map(|counter| counter.value)
    }

    /// The difference from `before`. A counter that went back started again from 0 (the device's driver was reloaded).
    #[must_use]
    pub fn since(&self, before: &LinkCounters) -> LinkCounters {
        LinkCounters(std::array::from_fn(|at| self.0[at].checked_sub(before.0[at]).unwrap_or(self.0[at])))
    }
}

/// The kernel's counts of packets between devices and the stack, summed over devices and processors
/// (`/proc/net/softnet_stat`). Devices without a queue of their own, such as veth, lose packets here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftnetCounters {
    /// Packets handled.
    pub processed: u64,
    /// Packets that found a processor's backlog full.
    pub dropped: u64,
    /// Rounds that ended with work left.
    pub squeezed: u64,
}

impl SoftnetCounters {
    /// Reads the counters.
    pub fn read() -> io::Result<SoftnetCounters> {
        Ok(SoftnetCounters::parse(&std::fs::read_to_string("/proc/net/softnet_stat")?))
    }

    /// A line for each processor, with hexadecimal numbers.
    fn parse(text: &str) -> SoftnetCounters {
        let mut sum = SoftnetCounters::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap_or(0));
            for counter in [&mut sum.processed, &mut sum.dropped, &mut sum.squeezed] {
                *counter = counter.wrapping_add(words.next().unwrap_or(0));
            }
        }
        sum
    }

    /// The difference from `before`.
    #[must_use]
    pub fn since(&self, before: &SoftnetCounters) -> SoftnetCounters {
        // The kernel's counters are 32 bits wide, one for each processor.
        SoftnetCounters {
            processed: self.processed.saturating_sub(before.processed),
            dropped: self.dropped.saturating_sub(before.dropped),
            squeezed: self.squeezed.saturating_sub(before.squeezed),
        }
    }

    /// All counters with their names.
    pub fn all(&self) -> [Counter; 3] {
        [
            Counter { name: "softnet.processed", value: self.processed, meaning: Traffic },
            Counter { name: "softnet.dropped", value: self.dropped, meaning: Lost },
            Counter { name: "softnet.squeezed", value: self.squeezed, meaning: Traffic },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_names() {
        let bytes: Vec<u8> = (0..24_u64).flat_map(u64::to_ne_bytes).collect();
        let counters = LinkCounters::parse(&bytes);
        assert_eq!([counters.get("rx_packets"), counters.get("rx_missed_errors")], [Some(0), Some(15)]);
        // An older kernel has fewer.
        assert_eq!([counters.get("rx_nohandler"), counters.get("rx_otherhost_dropped")], [Some(23), Some(0)]);
        assert_eq!(counters.get("no such counter"), None);
        assert_eq!(counters.since(&counters), LinkCounters::default());
        let mut later = counters;
        (later.0[0], later.0[15]) = (5, 3);
        assert_eq!(later.since(&counters).get("rx_packets"), Some(5));
        assert_eq!(later.since(&counters).get("rx_missed_errors"), Some(3), "it began anew");
    }

    #[test]
    fn processors_are_added_up() {
        let counters = SoftnetCounters::parse("0000000a 00000001 00000002 0\n00000010 00000000 00000001 0\n\nx\n");
        assert_eq!(counters, SoftnetCounters { processed: 26, dropped: 1, squeezed: 3 });
        assert!(SoftnetCounters::read().is_ok());
    }
}
