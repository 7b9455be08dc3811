//! Numbers by which a ring's descriptors may name rings of other keepers. Whatever they name is for readers to fetch, and
//! for those rings' keepers to allow.

use std::collections::VecDeque;

/// Rings of other keepers that a ring's descriptors may name at a time.
pub const FOREIGN_RINGS: usize = 1024;

/// Longest path of another keeper's socket: what a socket's address takes.
pub const FOREIGN_PATH_BYTES: usize = 108;

/// A ring of another keeper that descriptors of this one may name.
pub(super) struct Foreign {
    number: u16,
    pub generation: u32,
    /// Its keeper's socket.
    pub path: String,
}

/// What descriptors may name, whoever wrote them and whatever the size of the ring then.
#[derive(Default)]
pub(super) struct ForeignRings {
    /// Latest asked for last.
    rings: VecDeque<Foreign>,
    last: u16,
}

impl ForeignRings {
    /// A number for another keeper's ring. There is always one: who was not asked for longest loses its own, and a number
    /// comes back only after all others.
    pub fn number_of(&mut self, generation: u32, path: String) -> u16 {
        let known = self.rings.iter().position(|one| one.generation == generation && one.path == path);
        let foreign = match known.and_then(|index| self.rings.remove(index)) {
            Some(known) => known,
            None => {
                if self.rings.len() >= FOREIGN_RINGS {
                    self.rings.pop_front();
                }
                let mut number = self.last.wrapping_add(1).max(1);
                while self.rings.iter().any(|one| one.number == number) {
                    number = number.wrapping_add(1).max(1);
                }
                self.last = number;
                Foreign { number, generation, path }
            }
        };
        let number = foreign.number;
        self.rings.push_back(foreign);
        number
    }

    /// Which ring this number means.
    pub fn find(&self, number: u16) -> Option<&Foreign> {
        self.rings.iter().find(|foreign| foreign.number == number)
    }
}
