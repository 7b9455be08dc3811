//! How many clients and readers a ring has places for, and how many of them one user may take.
//!
//! - Clients without any right on the ring (strangers) leave places to guests.
//! - One guest's user leaves places to other guests.
//! - All guests together leave places to the ring's owner and root.

use crate::ring::words::READERS;

const CLIENTS: usize = 256;

/// A client's standing with the ring. Lower ones leave places to higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has no rights on the ring.
    Stranger,
    /// It may read or write the ring.
    Guest,
    /// It is the owner's, or root's.
    Own,
}

pub(super) struct Places {
    /// Name of the clients with these places, for messages.
    what: &'static str,
    all: usize,
    of_guests: usize,
    of_one_guest: usize,
    of_strangers: usize,
}

pub(super) const OF_CLIENTS: Places = Places {
    what: "clients",
    all: CLIENTS,
    of_guests: CLIENTS - CLIENTS / 4,
    of_one_guest: CLIENTS / 2,
    of_strangers: CLIENTS / 8,
};

pub(super) const OF_READERS: Places = Places {
    what: "readers",
    all: READERS,
    of_guests: READERS - READERS / 8,
    of_one_guest: READERS - READERS / 4,
    of_strangers: 0,
};

impl Places {
    /// Whether a place is left for another guest if strangers and one user have all theirs, and for the owner if all guests do.
    const fn leave_room(&self) -> bool {
        self.of_one_guest + self.of_strangers < self.of_guests && self.of_guests < self.all
    }

    /// Whether there is a place for one more client of this user. The error names the limit and what would help.
    pub(super) fn admit(
        &self,
        held: impl Iterator<Item = (Standing, u32)> + Clone,
        standing: Standing,
        user: u32,
    ) -> Result<(), String> {
        let (most, whose) = match standing {
            Standing::Own => (self.all, "as many as there can be"),
            Standing::Guest => (self.of_guests, "as many as its user leaves to others"),
            Standing::Stranger => (self.of_strangers, "as many as users without a right to the ring may have"),
        };
        // Clients of higher standing do not count: they take no places of those below.
        let held_so_low = held.clone().filter(|(other, _)| *other <= standing).count();
        let held_by_user = held.filter(|(_, other)| *other == user).count();
        let what = self.what;
        let told = if held_so_low >= most {
            format!("the ring has {most} {what} already, {whose}")
        } else if standing == Standing::Guest && held_by_user >= self.of_one_guest {
            format!("user {user} has {held_by_user} {what} of the ring already, as many as one user may have")
        } else {
            return Ok(());
        };
        Err(format!("{told}: a place is free when one of them ends"))
    }
}

// Loom's rings are too small to be shared out.
const _: () = assert!(cfg!(loom) || (OF_CLIENTS.leave_room() && OF_READERS.leave_room()));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Standing::{Guest, Own, Stranger};

    /// Adds clients of this user until one is refused; returns how many got in.
    fn fill(places: &Places, held: &mut Vec<(Standing, u32)>, standing: Standing, user: u32) -> usize {
        let before = held.len();
        while places.admit(held.iter().copied(), standing, user).is_ok() {
            held.push((standing, user));
        }
        held.len() - before
    }

    #[test]
    fn each_leaves_places_to_others_and_all_to_the_owner() {
        for (places, expected) in [(OF_CLIENTS, [32, 128, 32, 0, 64]), (OF_READERS, [0, 48, 8, 0, 8])] {
            let mut held = Vec::new();
            let [one, other, third, owner] = [7, 8, 9, 1000];
            let found = [(Stranger, 5), (Guest, one), (Guest, other), (Guest, third), (Own, owner)]
                .map(|(standing, user)| fill(&places, &mut held, standing, user));
            assert_eq!(found, expected, "{}", places.what);
        }
    }

    #[test]
    fn who_is_refused_hears_which_limit_and_what_helps() {
        let told = |held: usize, standing, user| {
            OF_READERS.admit(std::iter::repeat_n((standing, 7), held), standing, user).unwrap_err()
        };
        for (text, parts) in [
            (told(48, Guest, 7), ["user 7 has 48 readers", "one user may have: a place is free when"]),
            (told(56, Guest, 8), ["the ring has 56 readers already", "leaves to others: a place is free when"]),
            (told(64, Own, 7), ["the ring has 64 readers already", "there can be: a place is free when"]),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
