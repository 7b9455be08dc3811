//! A ring that descriptors of other rings may name.

use crate::keeper::client::Named;
use crate::ring::Ring;
use crate::ring::map::RingMap;
use base::id::Generation;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long another ring's keeper may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// A ring that descriptors of other rings may name.
#[derive(Clone, Debug)]
pub struct Origin(Arc<RingHandle>);

#[derive(Debug)]
enum RingHandle {
    Named(Named, u32),
    Local(Arc<Mutex<Ring>>),
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || match (&*self.0, &*other.0) {
                (RingHandle::Named(one, generation), RingHandle::Named(other, same)) => {
                    generation == same && one.path() == other.path()
                }
                (RingHandle::Local(one), RingHandle::Local(other)) => Arc::ptr_eq(one, other),
                _ => false,
            }
    }
}

impl Origin {
    pub(super) fn named(named: Named, generation: u32) -> Origin {
        Origin(Arc::new(RingHandle::Named(named, generation)))
    }

    pub(super) fn local(ring: Arc<Mutex<Ring>>) -> Origin {
        Origin(Arc::new(RingHandle::Local(ring)))
    }

    /// The keeper's socket and the generation; `None` for a ring that other processes cannot find.
    pub(super) fn named_place(&self) -> Option<(&Named, u32)> {
        match &*self.0 {
            RingHandle::Named(named, generation) => Some((named, *generation)),
            RingHandle::Local(_) => None,
        }
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.named_place().map_or(0, |(_, generation)| generation as u16))
    }

    pub(super) fn map(&self) -> io::Result<RingMap> {
        match &*self.0 {
            RingHandle::Named(named, generation) => named.map(*generation, Some(Instant::now() + PATIENCE)),
            RingHandle::Local(ring) => ring.lock().unwrap_or_else(PoisonError::into_inner).view(),
        }
    }
}
