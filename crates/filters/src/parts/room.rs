//! Limits how much a sink writes: at most `max-bytes` in all, and `min-free` of the file system stays free for others.
//! Does not write itself.

use base::terminal;
use filter::{Failure, Param, ParamError, ParamType, Params};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The free space is read again after half of the spare space was written, after `LOOK_BYTES`, or after `LOOK_TIME`,
/// whichever comes first. Spare is what is free beyond `min-free`.
const LOOK_BYTES: u64 = 16 << 20;
const LOOK_TIME: Duration = Duration::from_millis(500);

/// Default of `min-free`: 1 GiB, or 5 % of the file system if that is less.
const FREE_BYTES: u64 = 1 << 30;
const FREE_PERCENT: u64 = 5;

/// How much a sink may write and has written.
#[derive(Debug)]
pub struct Room {
    max_bytes: u64,
    min_free: Option<u64>,
    written: u64,
    /// Bytes written since the free space was read, and the number after which it is read again.
    unseen: u64,
    look_bytes: u64,
    looked: Instant,
}

impl Room {
    /// The parameter `max-bytes`.
    pub const MAX_BYTES: Param =
        Param::new("max-bytes", ParamType::Size, "write this many bytes in all, then stop; no limit if not given");
    /// The parameter `min-free`.
    pub const MIN_FREE: Param = Param::new(
        "min-free",
        ParamType::Size,
        "stop where the file system would have less free than this; 5 % of it, at most 1 GiB, if not given",
    );

    /// The limits that the parameters give.
    pub fn new(params: &Params) -> Room {
        Room {
            max_bytes: params.number(Room::MAX_BYTES.key).unwrap_or(u64::MAX),
            min_free: params.number(Room::MIN_FREE.key),
            written: 0,
            unseen: 0,
            look_bytes: 0,
            looked: Instant::now(),
        }
    }

    /// Whether `max-bytes` is given.
    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.max_bytes < u64::MAX
    }

    /// Bytes that `max-bytes` still allows.
    #[inline]
    pub fn left(&self) -> u64 {
        self.max_bytes - self.written.min(self.max_bytes)
    }

    /// The notice when `max-bytes` is reached.
    pub fn notice(&self, what: &Path) -> String {
        format!("max-bytes is reached: nothing more is written to `{}`", terminal::name(what))
    }

    /// Refuses the request before the run if too little space is free already.
    pub fn check(&self, key: &'static str, folder: BorrowedFd<'_>, what: &Path) -> Result<(), ParamError> {
        let full = self.free(folder).and_then(|free| free.too_little(what));
        full.map_or(Ok(()), |text| Err(ParamError { key: Some(key), ..ParamError::system(text) }))
    }

    /// Counts `bytes` that are about to be, or were, written to this folder. Error: too little space would stay free.
    /// `beside`: bytes taken before and not written yet. Now and then makes a system call to read the free space.
    #[inline]
    pub fn take(&mut self, bytes: u64, beside: u64, folder: BorrowedFd<'_>, what: &Path) -> Result<(), Box<Failure>> {
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

    /// Counts bytes without a check: for bytes that must be written, or that go where nothing fills up.
    pub fn add(&mut self, bytes: u64) {
        self.written += bytes;
        self.unseen += bytes;
    }

    fn free(&self, folder: BorrowedFd<'_>) -> Option<Free> {
        let system = rustix::fs::fstatvfs(folder).ok()?;
        let all = system.f_blocks.saturating_mul(system.f_frsize);
        // A file system without blocks reports no free space.
        (all > 0).then(|| Free {
            bytes: system.f_bavail.saturating_mul(system.f_frsize),
            least: self.min_free.unwrap_or_else(|| FREE_BYTES.min(all / 100 * FREE_PERCENT)),
        })
    }
}

/// Free bytes of a file system, and the least that must stay free.
struct Free {
    bytes: u64,
    least: u64,
}

impl Free {
    /// The error text if less than `least` would be free.
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
