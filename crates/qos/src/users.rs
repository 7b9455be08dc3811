//! Users over flows: users share the time that is left over, and the flows of a user share the user's part. A fair queue
//! of users lies over a fair queue of flows for each user, as in hierarchical start-time fair queueing (Goyal, Vin, Cheng,
//! 1996, section 3).

use crate::fair::{FairQueue, Tag};
use std::collections::{HashMap, VecDeque};

/// The most users without flows that keep their seats in virtual time.
const ABSENT_USERS: usize = 64;

/// The user of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Any number; flows of the same number are one user's.
    pub number: u32,
    /// The user's share, relative to the other users. 0 counts as 1.
    pub weight: u32,
}

impl Default for User {
    /// User 0, with the weight 1.
    fn default() -> User {
        User { number: 0, weight: 1 }
    }
}

/// A flow's seat in the queues: its user, and its number among the flows of that user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    user: u32,
    member: u32,
}

/// The users, their weights, and the seats of their flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    known: HashMap<u32, u32>,
    users: Vec<Members>,
    /// Users without flows, in the order in which they lost their last one.
    absent: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Members {
    user: User,
    /// All seats that the user's flows ever had, and those of them that are free.
    seats: u32,
    free: Vec<u32>,
}

impl Users {
    /// Gives a flow of this user a seat, and the user this weight. Allocates. True: the user is new, maybe where
    /// another user was.
    pub(crate) fn join(&mut self, user: User) -> (Seat, bool) {
        let known = self.known.get(&user.number).copied();
        let slot = known.unwrap_or_else(|| self.add(user));
        self.absent.retain(|absent| *absent != slot);
        let members = &mut self.users[slot as usize];
        members.user = user;
        let member = members.free.pop().unwrap_or_else(|| {
            members.seats += 1;
            // So that no flow allocates when it leaves.
            members.free.reserve(members.seats as usize);
            members.seats - 1
        });
        (Seat { user: slot, member }, known.is_none())
    }

    fn add(&mut self, user: User) -> u32 {
        let oldest = if self.absent.len() >= ABSENT_USERS { self.absent.pop_front() } else { None };
        let slot = match oldest {
            Some(slot) => {
                // The new user has the seats of the old one, as the queues have room for them.
                self.known.remove(&self.users[slot as usize].user.number);
                slot
            }
            None => {
                self.users.push(Members { user, seats: 0, free: Vec::new() });
                // There are at most `most_flows` users with flows, and few others.
                (self.users.len() - 1) as u32
            }
        };
        self.known.insert(user.number, slot);
        slot
    }

    /// Takes a flow's seat back.
    pub(crate) fn part(&mut self, seat: Seat) {
        let members = &mut self.users[seat.user as usize];
        members.free.push(seat.member);
        if members.free.len() == members.seats as usize {
            self.absent.push_back(seat.user);
        }
    }

    /// The user at a seat.
    pub(crate) fn user(&self, seat: Seat) -> User {
        self.users[seat.user as usize].user
    }
}

/// Flows of users that share the time that is left over.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserQueue {
    users: FairQueue,
    /// For each user its seat in virtual time, kept while the user is idle, and its flows.
    each: Vec<(Tag, FairQueue)>,
}

impl UserQueue {
    /// Makes room for a flow at this seat. `is_new`: of a user that was not there. Allocates.
    pub(crate) fn make_room(&mut self, seat: Seat, is_new: bool) {
        let room = |number: u32| (number as usize + 1).next_power_of_two();
        let user = seat.user as usize;
        if user >= self.each.len() {
            self.each.resize_with(user + 1, Default::default);
            self.users.heap.grow(room(seat.user));
        }
        let (tag, flows) = &mut self.each[user];
        flows.heap.grow(room(seat.member));
        if is_new {
            *tag = Tag::default();
        }
    }

    /// Adds the flow of a slot.
    pub(crate) fn enter(&mut self, seat: Seat, slot: u32, tag: &mut Tag) {
        let (of_user, flows) = &mut self.each[seat.user as usize];
        flows.enter(seat.member, slot, tag);
        self.users.enter(seat.user, seat.user, of_user);
    }

    pub(crate) fn leave(&mut self, seat: Seat) {
        let (_, flows) = &mut self.each[seat.user as usize];
        flows.leave(seat.member);
        if flows.heap.first().is_none() {
            self.users.leave(seat.user);
        }
    }

    /// The slot of the flow that is furthest behind among those of the user that is; `None` without flows.
    pub(crate) fn choose(&mut self) -> Option<u32> {
        let user = self.users.choose()?;
        self.each[user as usize].1.choose()
    }

    /// Charges `wire_ns` to the flow of a slot, which may have left meanwhile, and to its user.
    pub(crate) fn charge(&mut self, seat: Seat, slot: u32, tag: &mut Tag, wire_ns: u64, [weight, of_users]: [u32; 2]) {
        let (of_user, flows) = &mut self.each[seat.user as usize];
        flows.charge(seat.member, slot, tag, wire_ns, weight);
        self.users.charge(seat.user, seat.user, of_user, wire_ns, of_users);
    }

    #[cfg(test)]
    pub(crate) fn comparisons(&self) -> u64 {
        self.users.heap.comparisons + self.each.iter().map(|(_, flows)| flows.heap.comparisons).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_used_again_and_a_user_is_remembered_for_a_while() {
        let mut users = Users::default();
        let of = |number: u32| User { number, weight: number + 1 };
        let (first, is_new) = users.join(of(7));
        assert!(is_new);
        let (second, is_new) = users.join(of(7));
        assert_eq!((is_new, first.member, second.member, users.user(second)), (false, 0, 1, of(7)));
        users.part(first);
        users.part(second);
        assert_eq!(users.join(of(7)).0.member, 1);
        users.part(second);
        // User 7 is the one that went first when there are too many.
        for number in 101..100 + ABSENT_USERS as u32 {
            let (seat, is_new) = users.join(of(number));
            assert!(is_new && seat.user != first.user);
            users.part(seat);
        }
        let (seat, is_new) = users.join(of(8));
        assert_eq!((is_new, seat.user, users.user(seat)), (true, first.user, of(8)));
        assert_eq!(users.users.len(), ABSENT_USERS);
        users.part(seat);
        assert!(users.join(of(7)).1, "it was forgotten");
    }
}
