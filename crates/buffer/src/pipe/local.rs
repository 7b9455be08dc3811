//! A ring within this process that is read and written like a pipe, without a keeper's socket and without a policy.

use super::origin::Origin;
use super::{PipeReader, PipeWriter};
use crate::keeper::server::FOREIGN_RINGS;
use crate::ring::memory::Geometry;
use crate::ring::{From, Hold, OnFull, Ring, Signalling};
use crate::shared::segment::Pages;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps a ring of this process; readers come from here.
#[derive(Clone, Debug)]
pub struct Local(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    ring: Arc<Mutex<Ring>>,
    /// Rings that descriptors may name; a ring's number is its index plus 1.
    foreign: Mutex<Vec<Origin>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Local {
    /// Makes a ring, its writer, and its first reader, which has contract Wait. Calls wait unless told otherwise.
    pub fn pair(geometry: Geometry, signalling: Signalling) -> io::Result<(Local, PipeWriter, PipeReader)> {
        let (ring, writer) = Ring::create(geometry, Pages::Normal, signalling)?;
        let local = Local(Arc::new(Kept { ring: Arc::new(Mutex::new(ring)), foreign: Mutex::default() }));
        let reader = local.reader(OnFull::Wait, None, From::Next)?;
        Ok((local.clone(), PipeWriter::of_local(writer, local), reader))
    }

    /// Another reader.
    pub fn reader(&self, contract: OnFull, hold: Hold, from: From) -> io::Result<PipeReader> {
        let reader = locked(&self.0.ring).attach(contract, hold, from)?;
        Ok(PipeReader::of_local(self.clone(), reader))
    }

    /// As other rings name it.
    pub(super) fn origin(&self) -> Origin {
        Origin::local(Arc::clone(&self.0.ring))
    }

    pub(super) fn register(&self, origin: &Origin) -> io::Result<u16> {
        let mut foreign = locked(&self.0.foreign);
        let index = match foreign.iter().position(|known| known == origin) {
            Some(index) => index,
            None if foreign.len() < FOREIGN_RINGS => {
                foreign.push(origin.clone());
                foreign.len() - 1
            }
            None => return Err(io::ErrorKind::QuotaExceeded.into()),
        };
        Ok(index as u16 + 1)
    }

    pub(super) fn whereabouts(&self, ring: u16) -> io::Result<Origin> {
        let index = usize::from(ring).checked_sub(1);
        let found = index.and_then(|index| locked(&self.0.foreign).get(index).cloned());
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no block of this ring can lie there"))
    }
}
