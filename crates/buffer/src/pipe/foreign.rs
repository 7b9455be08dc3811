//! The buffer fault: a reader wants the bytes of a block that lies in another ring.
//!
//! It happens once per ring. This ring's keeper says which ring a number means, and that ring's keeper decides by its
//! own policy whether this process may read it. From then on the number is an index into a table. The rights of the
//! process that forwarded the block do not count: a reader without the right to the bytes' ring does not get them.
//!
//! Numbers come from a ring's writer, and paths from the process that registered them. Neither is trusted:
//!
//! - Refusals are remembered. After [`FAILURES_MAX`] of them this module asks for no more unknown numbers.
//! - A keeper that does not answer costs [`PATIENCE`](super::origin::PATIENCE) once.
//! - At most [`MAPS_MAX`] rings stay mapped.

use super::origin::Origin;
use crate::descriptor::Descriptor;
use crate::ring::map::RingMap;
use std::io;
use std::sync::Arc;

/// After this number of refusals only known rings are read, until the next generation.
pub const FAILURES_MAX: u32 = 64;

/// Most rings mapped at a time; beyond it, the one that was not used for longest is unmapped.
pub const MAPS_MAX: usize = 64;

#[derive(Debug, Default)]
struct Known {
    origin: Option<Origin>,
    map: Option<Arc<RingMap>>,
    /// The errors of earlier attempts: to learn which ring it is, and to map it.
    nowhere: Option<io::ErrorKind>,
    refused: Option<io::ErrorKind>,
    /// When it was last used, as a value of `looks`.
    used: u64,
}

#[derive(Debug, Default)]
pub(super) struct Foreign {
    known: Vec<Known>,
    mapped: usize,
    failures: u32,
    looks: u64,
    /// Rings fetched so far.
    pub faults: u64,
}

fn remembered(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "the ring that the bytes lie in was refused before")
}

impl Foreign {
    /// The ring in which this block lies. `ask` asks the keeper; it is called once for each number.
    pub fn origin(&mut self, block: &Descriptor, ask: impl FnOnce(u16) -> io::Result<Origin>) -> io::Result<Origin> {
        let number = usize::from(block.ring.0);
        if self.known.len() <= number {
            self.known.resize_with(number + 1, Known::default);
        }
        let known = &mut self.known[number];
        if known.origin.is_none() {
            if let Some(kind) = known.nowhere {
                return Err(remembered(kind));
            }
            if self.failures >= FAILURES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "too many rings were refused to ask for more",
                ));
            }
            match ask(block.ring.0) {
                Ok(origin) => known.origin = Some(origin),
                Err(error) => {
                    self.failures += 1;
                    known.nowhere = Some(error.kind());
                    return Err(error);
                }
            }
        }
        match &known.origin {
            Some(origin) if origin.generation() == block.generation => Ok(origin.clone()),
            _ => Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, "the block's ring is gone")),
        }
    }

    /// Maps the ring in which this block lies.
    pub fn map(&mut self, block: &Descriptor, ask: impl FnOnce(u16) -> io::Result<Origin>) -> io::Result<&RingMap> {
        let origin = self.origin(block, ask)?;
        let number = usize::from(block.ring.0);
        self.looks += 1;
        let known = &mut self.known[number];
        known.used = self.looks;
        if known.map.is_none() {
            if let Some(kind) = known.refused {
                return Err(remembered(kind));
            }
            if self.failures >= FAILURES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "too many rings were refused to ask for more",
                ));
            }
            match origin.map() {
                Ok(map) => {
                    known.map = Some(Arc::new(map));
                    self.faults += 1;
                    self.mapped += 1;
                }
                Err(error) => {
                    self.failures += 1;
                    known.refused = Some(error.kind());
                    return Err(error);
                }
            }
            self.keep_few();
        }
        self.mapped(block).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The same if it is mapped already, else `None`.
    pub fn mapped(&self, block: &Descriptor) -> Option<&RingMap> {
        let known = self.known.get(usize::from(block.ring.0))?;
        let same = known.origin.as_ref().is_some_and(|origin| origin.generation() == block.generation);
        known.map.as_deref().filter(|_| same)
    }

    /// Unmaps the ring that was not used for longest, so that rings long gone do not stay in memory.
    fn keep_few(&mut self) {
        if self.mapped > MAPS_MAX
            && let Some(oldest) =
                self.known.iter_mut().filter(|known| known.map.is_some()).min_by_key(|known| known.used)
        {
            oldest.map = None;
            self.mapped -= 1;
        }
    }

    /// Forgets refusals: a new generation may bring what the last one refused.
    pub fn forgive(&mut self) {
        self.failures = 0;
        for known in &mut self.known {
            (known.nowhere, known.refused) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::client::Named;
    use base::id::{Generation, RingId};

    fn block(ring: u16, generation: u16) -> Descriptor {
        Descriptor { ring: RingId(ring), generation: Generation(generation), len: 1, ..Descriptor::default() }
    }

    #[test]
    fn bad_numbers_are_asked_for_once_and_after_many_not_at_all() {
        let mut foreign = Foreign::default();
        let mut asked = 0;
        for _ in 0..3 {
            for number in 1..=u16::MAX {
                let outcome = foreign.origin(&block(number, 0), |_| {
                    asked += 1;
                    Err(io::ErrorKind::NotFound.into())
                });
                assert!(outcome.is_err());
            }
        }
        assert_eq!(asked, FAILURES_MAX);
        foreign.forgive();
        assert!(foreign.origin(&block(1, 0), |_| Err(io::ErrorKind::PermissionDenied.into())).is_err());
        let again = foreign.origin(&block(1, 0), |_| panic!("it is remembered")).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn another_generation_is_another_ring() {
        let mut foreign = Foreign::default();
        let named = Named::at("/nowhere/ring.sock").unwrap();
        let origin = |generation| foreign_origin(&named, generation);
        assert!(foreign.origin(&block(1, 7), |_| Ok(origin(7))).is_ok());
        // 65,543 is 7 in the 16 bits of a descriptor; 8 is not.
        assert!(foreign.origin(&block(1, 8), |_| panic!("it is known")).is_err());
        assert!(foreign.origin(&block(2, 7), |_| Ok(origin(65_543))).is_ok());
    }

    fn foreign_origin(named: &Named, generation: u32) -> Origin {
        Origin::named(named.clone(), generation)
    }
}
