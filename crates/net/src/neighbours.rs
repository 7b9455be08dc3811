//! Hardware addresses of neighbours (RFC 826, RFC 1122 2.3.2; RFC 4861 7): requested when needed, kept, refreshed.
//!
//! A neighbour cannot add itself: a packet may change an existing entry, and never makes a new one.

use crate::counters::Event;
use crate::interface::Core;
use crate::limits::{
    ARP_FRESH, ARP_INTERVAL, ARP_LOCKED, ARP_SILENCE, ARP_TRIES, NEIGHBOUR_WAITERS, NEIGHBOURS, PARKED,
};
use flow::NeighbourState;
use std::collections::HashMap;
use std::net::IpAddr;

/// The knowledge about a packet's next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its hardware address.
    Mac([u8; 6]),
    /// It was asked for. The flow is called once that is decided.
    Asked,
    /// It does not answer.
    Silent,
}

#[derive(Debug)]
struct Entry {
    mac: Option<[u8; 6]>,
    /// When it last announced itself; before that, when it was first asked for.
    said: u64,
    /// Unanswered questions.
    tries: u32,
    /// When the next question or the verdict is due. `None`: no question is open.
    due: Option<u64>,
    /// It is not asked again before this, after silence.
    silent_until: u64,
    /// Numbers of the flows that wait for it.
    waiting: Vec<u64>,
    /// Frames of flows that were closed meanwhile. The neighbour's hardware address is filled in later.
    parked: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// How long an answer is valid. `None`: [`ARP_FRESH`].
    life: Option<u64>,
    entries: HashMap<IpAddr, Entry>,
    /// The earliest time at which something is due.
    due: Option<u64>,
}

/// Everything that waited for a neighbour.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// Numbers of flows.
    pub(crate) flows: Vec<u64>,
    /// Frames of closed flows.
    pub(crate) frames: Vec<Vec<u8>>,
}

/// The steps that are due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Neighbours to ask for.
    pub(crate) ask: Vec<IpAddr>,
    /// Flows that may continue: their neighbour is silent.
    pub(crate) wake: Vec<u64>,
    /// Neighbours that have become silent.
    pub(crate) silent: u64,
}

impl Neighbours {
    /// Neighbours whose answers are valid for `life`, ns.
    pub(crate) fn believed_for(life: u64) -> Neighbours {
        Neighbours { life: Some(life), ..Neighbours::default() }
    }

    /// Looks up a neighbour for a packet of the flow with this number. Calls `ask` if the interface must send a question.
    pub(crate) fn find(&mut self, address: IpAddr, flow: u64, now: u64, ask: &mut dyn FnMut()) -> Known {
        if !self.entries.contains_key(&address) {
            // Flows that send to silent addresses fill at most half of the table. The rest is for neighbours that answer.
            let unanswered = self.entries.len() >= NEIGHBOURS / 2
                && self.entries.values().filter(|entry| entry.mac.is_none()).count() >= NEIGHBOURS / 2;
            if (unanswered || self.entries.len() >= NEIGHBOURS) && !self.forget_oldest(unanswered) {
                return Known::Silent;
            }
        }
        let entry = self.entries.entry(address).or_insert(Entry {
            mac: None,
            said: now,
            tries: 0,
            due: None,
            silent_until: 0,
            waiting: Vec::new(),
            parked: Vec::new(),
        });
        let stale = entry.mac.is_none() || now.saturating_sub(entry.said) >= self.life.unwrap_or(ARP_FRESH);
        if stale && entry.due.is_none() && now >= entry.silent_until {
            (entry.tries, entry.due) = (1, Some(now + ARP_INTERVAL));
            self.due = Some(self.due.map_or(now + ARP_INTERVAL, |due| due.min(now + ARP_INTERVAL)));
            ask();
        }
        match entry.mac {
            Some(mac) => Known::Mac(mac),
            None if entry.due.is_none() => Known::Silent,
            None if entry.waiting.contains(&flow) => Known::Asked,
            None if entry.waiting.len() >= NEIGHBOUR_WAITERS => Known::Silent,
            None => {
                entry.waiting.push(flow);
                Known::Asked
            }
        }
    }

    /// Makes room by forgetting a neighbour that no flow waits for: first the one that has been silent longest, then
    /// those that answered. `silent`: only a silent one.
    fn forget_oldest(&mut self, silent: bool) -> bool {
        let idle =
            self.entries.iter().filter(|(_, entry)| entry.waiting.is_empty() && (!silent || entry.mac.is_none()));
        let oldest = idle.min_by_key(|(_, entry)| (entry.mac.is_some(), entry.said)).map(|(address, _)| *address);
        oldest.is_some_and(|oldest| self.entries.remove(&oldest).is_some())
    }

    /// Forgets a neighbour, since its address is the interface's own now.
    pub(crate) fn forget(&mut self, address: IpAddr) {
        self.entries.remove(&address);
    }

    /// Keeps a frame of a flow that no longer waits for its neighbour. Returns whether there was room.
    pub(crate) fn park(&mut self, address: IpAddr, frame: Vec<u8>) -> bool {
        let entry = self.entries.get_mut(&address).filter(|entry| entry.due.is_some() && entry.parked.len() < PARKED);
        entry.map(|entry| entry.parked.push(frame)).is_some()
    }

    /// The hardware address of a neighbour, if it is known. Sends no question.
    pub(crate) fn known(&self, address: IpAddr) -> Option<[u8; 6]> {
        self.entries.get(&address)?.mac
    }

    /// A neighbour announces itself. Returns whether it was asked for or known. Everything that waited for it goes to `woken`.
    pub(crate) fn learn(&mut self, address: IpAddr, mac: [u8; 6], now: u64, woken: &mut Woken) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else { return false };
        if entry.mac.is_some_and(|known| known != mac) && now.saturating_sub(entry.said) < ARP_LOCKED {
            return false;
        }
        (entry.mac, entry.said, entry.tries, entry.due) = (Some(mac), now, 0, None);
        woken.flows.append(&mut entry.waiting);
        woken.frames.append(&mut entry.parked);
        true
    }

    /// The host tells a neighbour's hardware address, or (`None`) that it does not answer. Unlike a packet, the host is
    /// trusted. Everything that waited for it goes to `woken`.
    pub(crate) fn decide(&mut self, address: IpAddr, mac: Option<[u8; 6]>, now: u64, woken: &mut Woken) {
        let Some(entry) = self.entries.get_mut(&address) else { return };
        (entry.mac, entry.said, entry.tries, entry.due) = (mac, now, 0, None);
        if mac.is_none() {
            entry.silent_until = now + ARP_SILENCE;
        }
        woken.flows.append(&mut entry.waiting);
        woken.frames.append(&mut entry.parked);
    }

    /// When something is due. `None`: no question is open.
    pub(crate) fn next(&self) -> Option<u64> {
        self.due
    }

    /// Finds the questions and verdicts that are due now.
    pub(crate) fn tick(&mut self, now: u64) -> Due {
        let mut found = Due::default();
        if self.due.is_none_or(|due| due > now) {
            return found;
        }
        self.due = None;
        for (address, entry) in &mut self.entries {
            let Some(due) = entry.due else { continue };
            if due <= now && entry.tries < ARP_TRIES {
                entry.tries += 1;
                entry.due = Some(now + ARP_INTERVAL);
                found.ask.push(*address);
            } else if due <= now {
                (entry.mac, entry.due, entry.silent_until) = (None, None, now + ARP_SILENCE);
                found.silent += 1;
                found.wake.append(&mut entry.waiting);
                entry.parked.clear();
            }
            self.due = [self.due, entry.due].into_iter().flatten().min();
        }
        found
    }

    /// All neighbours, by address.
    pub(crate) fn state(&self, now: u64) -> Vec<NeighbourState> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .map(|(address, entry)| NeighbourState {
                address: *address,
                mac: entry.mac,
                state: match (entry.mac, entry.due) {
                    (Some(_), _) => "reachable",
                    (None, Some(_)) => "asked",
                    (None, None) => "silent",
                }
                .into(),
                age_ms: now.saturating_sub(entry.said) / 1_000_000,
            })
            .collect();
        all.sort_by_key(|neighbour| neighbour.address);
        all
    }
}

impl Core {
    /// Asks for the owner of this address.
    pub(crate) fn ask(&mut self, address: IpAddr, now: u64) {
        if self.sharing.is_some() {
            self.counters.event(Event::HostAsked);
            return self.ask_host(address, now);
        }
        match (self.routes.source(address), address) {
            (Some(IpAddr::V4(own)), IpAddr::V4(address)) => {
                self.counters.event(Event::ArpAsked);
                self.ask_by_arp(own, address);
            }
            (Some(IpAddr::V6(own)), IpAddr::V6(address)) => {
                self.counters.event(Event::NdpAsked);
                self.solicit(own, address);
            }
            // No route leads there.
            _ => (),
        }
    }

    /// A neighbour announces itself. Returns whether it was asked for or known.
    pub(crate) fn learn(&mut self, address: IpAddr, mac: [u8; 6], now: u64) -> bool {
        let mut woken = Woken::default();
        let learnt = self.routes.is_on_link(address) && self.neighbours.learn(address, mac, now, &mut woken);
        self.wake(woken, Some(mac), now);
        learnt
    }

    /// Wakes the flows that waited for a neighbour, and sends the frames. `None`: the neighbour did not answer.
    pub(crate) fn wake(&mut self, woken: Woken, mac: Option<[u8; 6]>, now: u64) {
        for number in woken.flows {
            self.activate_number(number, now);
        }
        if let Some(mac) = mac {
            for mut frame in woken.frames {
                frame[..6].copy_from_slice(&mac);
                self.queue(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND;
    use std::net::Ipv4Addr;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn address(last: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + last).into()
    }

    #[test]
    fn three_questions_a_second_apart_then_silence_then_a_new_question() {
        let (mut neighbours, mut asked) = (Neighbours::default(), 0);
        let mut find = |neighbours: &mut Neighbours, flow, now| {
            let known = neighbours.find(address(1), flow, now, &mut || asked += 1);
            (known, asked)
        };
        assert_eq!(find(&mut neighbours, 7, 0), (Known::Asked, 1));
        assert_eq!(find(&mut neighbours, 8, 1), (Known::Asked, 1));
        assert_eq!(neighbours.tick(SECOND - 1).ask.len(), 0);
        assert_eq!(neighbours.tick(SECOND).ask, [address(1)]);
        assert_eq!(neighbours.tick(2 * SECOND).ask, [address(1)]);
        let due = neighbours.tick(3 * SECOND);
        assert_eq!((due.ask.len(), due.wake, due.silent, neighbours.next()), (0, vec![7, 8], 1, None));
        assert_eq!(find(&mut neighbours, 7, 3 * SECOND), (Known::Silent, 1));
        assert_eq!(find(&mut neighbours, 7, 4 * SECOND), (Known::Asked, 2));
        let mut woken = Woken::default();
        assert!(neighbours.learn(address(1), MAC, 4 * SECOND, &mut woken));
        assert_eq!((woken.flows, neighbours.next().is_some()), (vec![7], true));
        assert_eq!(find(&mut neighbours, 7, 5 * SECOND), (Known::Mac(MAC), 2));
        // An old answer is used while the neighbour is asked again.
        assert_eq!(find(&mut neighbours, 7, 40 * SECOND), (Known::Mac(MAC), 3));
    }

    #[test]
    fn what_the_host_decides_is_believed_at_once_and_not_for_long() {
        let mut neighbours = Neighbours::believed_for(SECOND);
        let find = |neighbours: &mut Neighbours, now| {
            let mut asked = false;
            (neighbours.find(address(1), 7, now, &mut || asked = true), asked)
        };
        let decide = |neighbours: &mut Neighbours, mac, now| {
            let mut woken = Woken::default();
            neighbours.decide(address(1), mac, now, &mut woken);
            woken.flows
        };
        assert_eq!(decide(&mut neighbours, Some(MAC), 0), []);
        assert_eq!(neighbours.state(0), []);
        assert_eq!(find(&mut neighbours, 0), (Known::Asked, true));
        assert_eq!(decide(&mut neighbours, Some(MAC), 1), [7]);
        assert_eq!(decide(&mut neighbours, Some([6; 6]), 2), []);
        assert_eq!(find(&mut neighbours, 3), (Known::Mac([6; 6]), false));
        assert_eq!(find(&mut neighbours, 2 + SECOND), (Known::Mac([6; 6]), true));
        assert_eq!(decide(&mut neighbours, None, 3 + SECOND), []);
        assert_eq!(find(&mut neighbours, 4 + SECOND), (Known::Silent, false));
        assert_eq!(find(&mut neighbours, 3 + 2 * SECOND), (Known::Asked, true));
    }

    #[test]
    fn an_answer_to_no_question_makes_no_entry_and_a_late_one_changes_none() {
        let (mut neighbours, mut wake) = (Neighbours::default(), Woken::default());
        assert!(!neighbours.learn(address(1), MAC, 0, &mut wake));
        assert_eq!(neighbours.state(0), []);
        neighbours.find(address(1), 1, 0, &mut || ());
        assert!(neighbours.learn(address(1), MAC, 5, &mut wake));
        assert!(!neighbours.learn(address(1), [6; 6], 6, &mut wake));
        assert!(neighbours.learn(address(1), [6; 6], 5 + SECOND, &mut wake));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_those_that_no_flow_waits_for() {
        let mut neighbours = Neighbours::default();
        for last in 0..2 * NEIGHBOURS as u32 {
            neighbours.find(address(last), 1, 0, &mut || ());
        }
        assert_eq!(neighbours.state(0).len(), NEIGHBOURS / 2, "neighbours that did not answer");
        assert_eq!(neighbours.find(address(1 << 20), 1, 0, &mut || ()), Known::Silent);
        neighbours.learn(address(5), MAC, 0, &mut Woken::default());
        assert_eq!(neighbours.find(address(1 << 20), 1, 0, &mut || ()), Known::Asked);
        assert_eq!(neighbours.find(address(1 << 21), 1, 0, &mut || ()), Known::Silent);
        assert_eq!(neighbours.find(address(5), 1, 0, &mut || ()), Known::Mac(MAC), "it answered, and stays");
        assert_eq!(neighbours.state(0).len(), NEIGHBOURS / 2 + 1);
    }
}
