//! How much a sink may write: what the request allows it (`max-bytes`), and what must stay free of the file system for others
//! (`min-free`). Not the writing.

use base::terminal;
use filter::{Failure, Param, ParamError, ParamType, Params};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file system is looked at when half of what was free beyond what must be was written since the last look, this much
/// at most; or that look is so long ago.
const LOOK_BYTES: u64 = 16 << 20;
const LOOK_TIME: Duration = Duration::from_millis(500);

/// At most this much must stay free if the request does not say: 1 GiB, or 5 % of the file system if that is less.
const FREE_BYTES: u64 = 1 << 30;
const FREE_PERCENT: u64 = 5;

/// What a sink may write, and has written.
#[derive(Debug)]
pub(crate) struct Room {
    max_bytes: u64,
    min_free: Option<u64>,
    written: u64,
    /// Written since the file system was looked at, and when to look again.
    unseen: u64,
    look_bytes: u64,
    looked: Instant,
}

impl Room {
    /// The parameter for what is written at most.
    pub(crate) const MAX_BYTES: Param =
        Param::new("max-bytes", ParamType::Size, "write this many bytes in all, then stop; no limit if not given");
    /// The parameter for what stays free.
    pub(crate) const MIN_FREE: Param = Param::new(
        "min-free",
        ParamType::Size,
        "stop where the file system would have less free than this; 5 % of it, at most 1 GiB, if not given",
    );

    /// As the parameters say.
    pub(crate) fn new(params: &Params) -> Room {
        Room {
            max_bytes: params.number(Room::MAX_BYTES.key).unwrap_or(u64::MAX),
            min_free: params.number(Room::MIN_FREE.key),
            written: 0,
            unseen: 0,
            look_bytes: 0,
            looked: Instant::now(),
        }
    }

    /// Does the request say how much may be written?
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.max_bytes < u64::MAX
    }

    /// Bytes that may still be written.
    #[inline]
    pub(crate) fn left(&self) -> u64 {
        self.max_bytes - self.written.min(self.max_bytes)
    }

    /// What people are told when nothing is left.
    pub(crate) fn notice(&self, what: &Path) -> String {
        format!("max-bytes is reached: nothing more is written to `{}`", terminal::name(what))
    }

    /// Says before the run where there is too little room already.
    pub(crate) fn check(&self, key: &'static str, folder: BorrowedFd<'_>, what: &Path) -> Result<(), ParamError> {
        let full = self.free(folder).and_then(|free| free.too_little(what));
        full.map_or(Ok(()), |text| Err(ParamError { key: Some(key), ..ParamError::system(text) }))
    }

    /// So many bytes are about to be written to this folder, or were: an error where too little would stay free. `beside` were
    /// taken before and are not written yet. Looks at the file system now and then, by a system call.
    #[inline]
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        beside: u64,
        folder: BorrowedFd<'_>,
        what: &Path,
    ) -> Result<(), Box<Failure>> {
        self.add(bytes);
        if self.unseen < self.look_bytes && self.looked.elapsed() < LOOK_TIME {
            return Ok(());
        }
        (self.unseen, self.looked) = (0, Instant::now());
        let Some(mut free) = self.free(folder) else { return Ok(()) };
        free.bytes = free.bytes.saturating_sub(bytes + beside);
        self.look_bytes = (free.bytes.saturating_sub(free.least) / 2).min(LOOK_BYTES);
        free.too_little(what).map_or(Ok(()), |text| Err(Box::new(Failure::System(text))))
    }

    /// Counts bytes that are written whatever is left, or to where nothing fills up.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.written += bytes;
        self.unseen += bytes;
    }

    fn free(&self, folder: BorrowedFd<'_>) -> Option<Free> {
        let system = rustix::fs::fstatvfs(folder).ok()?;
        let all = system.f_blocks.saturating_mul(system.f_frsize);
        // One that has no blocks does not know what is free.
        (all > 0).then(|| Free {
            bytes: system.f_bavail.saturating_mul(system.f_frsize),
            least: self.min_free.unwrap_or_else(|| FREE_BYTES.min(all / 100 * FREE_PERCENT)),
        })
    }
}

/// What is free of a file system, and what must be.
struct Free {
    bytes: u64,
    least: u64,
}

impl Free {
    /// What is wrong where less would be free than must be.
    fn too_little(&self, what: &Path) -> Option<String> {
        let Free { bytes: free, least } = *self;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        (free < least).then(|| {
            format!(
                "too little room for `{}`: {:.1} MiB of its file system are free, and {:.1} MiB must stay free; make room, \
                 or set another min-free",
                terminal::name(what),
                mib(free),
                mib(least),
            )
        })
    }
}
