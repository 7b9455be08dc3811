//! TCP connections that ended recently. The peer may not know that yet, and segments may be in flight. Until those are
//! gone (RFC 9293 3.4.3), no other user gets their addresses and ports, and the driver answers for the application.

use crate::limits::{QUARANTINE, QUARANTINE_TIME, QUARANTINE_USER};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Addresses and ports of both sides, this side's first.
type Names = [SocketAddr; 2];

/// A connection that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its user. This user may reuse its name at once.
    pub(crate) user: u32,
    /// Its next sequence number, and its last acknowledgement.
    pub(crate) sequence: u32,
    pub(crate) acknowledged: Option<u32>,
    /// Whether both sides have finished.
    pub(crate) in_order: bool,
}

/// All recent connections. Expired ones are removed when they are looked up.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// With the time of the end, and a number that distinguishes it from an earlier one with the same name.
    ended: HashMap<Names, (Ended, u64, u64)>,
    /// By user, the oldest first. Some were removed.
    by_user: HashMap<u32, VecDeque<(Names, u64)>>,
    /// Entries in these queues.
    places: usize,
    numbers: u64,
}

impl Quarantine {
    /// Adds an ended connection. If there is no room, the oldest one goes: of the same user, or of the user with the most.
    pub(crate) fn put(&mut self, names: Names, ended: Ended, now: u64) {
        while self.by_user.get(&ended.user).is_some_and(|queue| {
            queue.len() >= QUARANTINE_USER
                || queue.front().is_some_and(|(names, number)| {
                    self.ended.get(names).is_none_or(|(_, until, known)| known != number || *until <= now)
                })
        }) {
            self.forget_oldest(ended.user);
        }
        while self.places >= QUARANTINE
            && let Some(user) = self.by_user.iter().max_by_key(|(_, queue)| queue.len()).map(|(user, _)| *user)
        {
            self.forget_oldest(user);
        }
        self.numbers += 1;
        self.ended.insert(names, (ended, now + QUARANTINE_TIME, self.numbers));
        self.by_user.entry(ended.user).or_default().push_back((names, self.numbers));
        self.places += 1;
    }

    fn forget_oldest(&mut self, user: u32) {
        let Some(queue) = self.by_user.get_mut(&user) else { return };
        if let Some((names, number)) = queue.pop_front() {
            self.places -= 1;
            if self.ended.get(&names).is_some_and(|(.., known)| *known == number) {
                self.ended.remove(&names);
            }
        }
        if queue.is_empty() {
            self.by_user.remove(&user);
        }
    }

    /// The connection of this name, if it ended recently.
    pub(crate) fn get(&self, names: Names, now: u64) -> Option<Ended> {
        self.ended.get(&names).filter(|(_, until, _)| *until > now).map(|(ended, ..)| *ended)
    }

    /// Removes a name, which its user reuses.
    pub(crate) fn take(&mut self, names: Names) {
        self.ended.remove(&names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Every other name is of IPv6.
    fn names(number: usize) -> Names {
        let high = (number >> 16) as u32;
        let ip: [IpAddr; 2] = [Ipv4Addr::from_bits(high).into(), Ipv6Addr::from_bits(high.into()).into()];
        [number, 80].map(|port| SocketAddr::new(ip[number % 2], port as u16))
    }

    fn ended(user: u32) -> Ended {
        Ended { user, sequence: 0, acknowledged: None, in_order: false }
    }

    #[test]
    fn a_name_is_there_for_its_time_or_until_it_is_used_again() {
        let mut quarantine = Quarantine::default();
        quarantine.put(names(1), ended(5), 10);
        assert!(quarantine.get(names(1), 9 + QUARANTINE_TIME).is_some());
        assert!(quarantine.get(names(1), 10 + QUARANTINE_TIME).is_none() && quarantine.get(names(2), 10).is_none());
        quarantine.take(names(1));
        assert!(quarantine.get(names(1), 10).is_none());
        // The first end of a name expires; the second one stays.
        quarantine.put(names(1), ended(5), 20);
        quarantine.put(names(2), ended(5), 30);
        assert_eq!(quarantine.places, 2);
        assert!(quarantine.get(names(1), 15 + QUARANTINE_TIME).is_some());
    }

    #[test]
    fn a_user_forgets_its_own_and_all_together_are_bounded() {
        let mut quarantine = Quarantine::default();
        quarantine.put(names(0), ended(1), 0);
        for number in 1..=2 * QUARANTINE_USER {
            quarantine.put(names(number), ended(2), 0);
        }
        assert!(quarantine.get(names(0), 1).is_some() && quarantine.get(names(QUARANTINE_USER), 1).is_none());
        assert!(quarantine.get(names(2 * QUARANTINE_USER), 1).is_some());
        assert_eq!(quarantine.places, 1 + QUARANTINE_USER);
        for number in 0..2 * QUARANTINE {
            quarantine.put(names(1 << 20 | number), ended(10 + number as u32 % 64), 0);
        }
        assert!(quarantine.places == QUARANTINE && quarantine.ended.len() == QUARANTINE);
        assert!(quarantine.get(names(0), 1).is_some(), "a user with one keeps it");
        // Time makes room.
        quarantine.put(names(7), ended(10), 2 * QUARANTINE_TIME);
        assert_eq!(quarantine.by_user[&10].len(), 1);
    }
}
