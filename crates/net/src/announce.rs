//! Announcements of an interface's addresses (RFC 5227 2.3, RFC 4861 7.2.6). When the interface comes up, neighbours learn
//! its hardware address. A neighbour that has one of the addresses answers; the receive side counts that as a conflict.
//!
//! No neighbour answers an announcement of an IPv6 address. So the first one is a question for its owner (RFC 4862
//! 5.4.2). The interface uses the address meanwhile, as RFC 4429 allows.

use crate::counters::Event;
use crate::interface::Core;
use crate::limits::{ANNOUNCE_INTERVAL, ANNOUNCEMENTS};
use std::net::IpAddr;

/// Announcements still to be sent. The default has none: without a device, or with the host's addresses.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    announces: bool,
    left: u32,
    /// When the next one is due, ns. `None`: all were sent.
    due: Option<u64>,
}

impl Announcements {
    /// An interface that comes up: the first announcement is due at once.
    pub(crate) fn new() -> Announcements {
        Announcements { announces: true, left: ANNOUNCEMENTS, due: Some(0) }
    }

    /// The device is up again: starts from the beginning.
    pub(crate) fn restart(&mut self) {
        if self.announces {
            *self = Announcements::new();
        }
    }

    /// When the next one is due. `None`: all were sent.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due
    }

    /// Whether the next one is the first.
    fn is_first(&self) -> bool {
        self.left == ANNOUNCEMENTS
    }

    /// Whether one is due now.
    fn tick(&mut self, now: u64) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.due = (self.left > 0).then_some(now + ANNOUNCE_INTERVAL);
        true
    }
}

impl Core {
    /// Announces the interface's addresses if that is due.
    pub(crate) fn announce(&mut self, now: u64) {
        let is_first = self.announcements.is_first();
        if !self.announcements.tick(now) {
            return;
        }
        let own: Vec<_> = self.routes.addresses().iter().map(|(own, _)| *own).collect();
        for own in own {
            match own {
                IpAddr::V4(own) => {
                    self.counters.event(Event::ArpAnnounced);
                    self.announce_by_arp(own);
                }
                IpAddr::V6(own) => {
                    self.counters.event(Event::NdpAnnounced);
                    self.announce_by_ndp(own, is_first);
                }
            }
        }
    }
}
