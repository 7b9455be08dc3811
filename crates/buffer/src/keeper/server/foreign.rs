//! Numbers by which a ring's descriptors may name rings of other keepers. Readers fetch those rings themselves, and the
//! rings' keepers decide whether they may.

use std::collections::VecDeque;

/// Most rings of other keepers that a ring's descriptors may name at a time.
pub const FOREIGN_RINGS: usize = 1024;

/// Longest path of another keeper's socket: the length of a socket's address.
pub const FOREIGN_PATH_BYTES: usize = 108;

pub(super) struct Foreign {
    number: u16,
    pub generation: u32,
    /// The path of its keeper's socket.
    pub path: String,
}

/// The numbered rings. They outlast changes of writer and of size.
#[derive(Default)]
pub(super) struct ForeignRings {
    /// The latest question is last.
    rings: VecDeque<Foreign>,
    last: u16,
}

impl ForeignRings {
    /// The number of another keeper's ring. It always succeeds: if all are taken, the ring not asked for longest loses
    /// its number. A number is used again only after all others.
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

    /// The ring with this number.
    pub fn find(&self, number: u16) -> Option<&Foreign> {
        self.rings.iter().find(|foreign| foreign.number == number)
    }
}
