//! A round: two threads write and hash the bytes of several files.
//!
//! Both threads read the bytes in place, without a copy, and the second ends before the round does. `disk.rs` opens the
//! files and handles failures. Why two: SHA-256 takes twice as long as a write to the page cache. A round has two
//! independent tasks for each file, and a free thread takes the next task. Without hashes, one thread does it all.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::num::NonZero;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// With fewer bytes to write and hash, a second thread is not worth its start, which takes 20 to 50 us.
const HELPER_BYTES: u64 = 512 << 10;

/// Processors that this process may use. The first look reads files.
static PROCESSORS: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

/// The bytes to write to one file.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) handle: File,
    slices: Vec<IoSlice<'a>>,
    /// Hash of the file before these bytes, and then with them.
    hash: Option<Box<Sha256>>,
    before: Option<Sha256>,
    /// Bytes written, and the error that stopped the rest.
    pub(super) written: u64,
    pub(super) outcome: io::Result<()>,
}

impl<'a> Job<'a> {
    pub(super) fn new(handle: File, slices: Vec<IoSlice<'a>>, hash: Option<Box<Sha256>>) -> Job<'a> {
        let before = hash.as_deref().cloned();
        Job { handle, slices, hash, before, written: 0, outcome: Ok(()) }
    }

    /// The file, and the hash of the bytes before and of the first `stay` bytes.
    pub(super) fn end(self, stay: u64) -> (File, Option<Box<Sha256>>) {
        let Job { handle, slices, mut hash, before, .. } = self;
        let mut left = usize::try_from(stay).unwrap_or(usize::MAX);
        if left < slices.iter().map(|slice| slice.len()).sum()
            && let Some((hash, before)) = hash.as_deref_mut().zip(before)
        {
            *hash = before;
            for slice in &slices {
                let here = slice.len().min(left);
                hash.update(&slice[..here]);
                left -= here;
            }
        }
        (handle, hash)
    }
}

/// A part of a job, independent of all others.
enum Task<'j, 'a> {
    Hash(&'j mut Sha256, &'j [IoSlice<'a>]),
    Write(&'j mut File, &'j [IoSlice<'a>], &'j mut u64, &'j mut io::Result<()>),
}

impl Task<'_, '_> {
    fn run(self) {
        match self {
            Task::Hash(hash, slices) => slices.iter().for_each(|slice| hash.update(&slice[..])),
            Task::Write(file, slices, written, outcome) => (*written, *outcome) = write_slices(file, slices),
        }
    }
}

/// Writes and hashes `jobs`, which have `bytes` bytes in all.
pub(super) fn write_and_hash(jobs: &mut [Job<'_>], bytes: u64) {
    // Writes first: they take turns at the page cache's locks. A thread that finds no write left goes on with hashes.
    let mut tasks = Vec::with_capacity(2 * jobs.len());
    let mut hashes = Vec::with_capacity(jobs.len());
    for job in jobs.iter_mut() {
        let Job { handle, slices, hash, written, outcome, .. } = job;
        tasks.push(Task::Write(handle, slices, written, outcome));
        hashes.extend(hash.as_deref_mut().map(|hash| Task::Hash(hash, slices)));
    }
    // Two threads that only write wait for each other's locks, and take 8 % more processor time.
    let alone = hashes.is_empty() || bytes < HELPER_BYTES || *PROCESSORS < 2;
    tasks.extend(hashes);
    if alone {
        return tasks.into_iter().for_each(Task::run);
    }
    let tasks = Mutex::new(tasks.into_iter());
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(task) = next() {
            task.run();
        }
    };
    thread::scope(|scope| {
        // If the thread cannot start, this one does all tasks.
        let helper = thread::Builder::new().name("files".into());
        drop(helper.spawn_scoped(scope, work));
        work();
    });
}

/// Writes all bytes. Returns how many were written.
fn write_slices(file: &mut impl Write, slices: &[IoSlice<'_>]) -> (u64, io::Result<()>) {
    let (mut written, mut at, mut inside) = (0, 0, 0);
    loop {
        while slices.get(at).is_some_and(|slice| inside >= slice.len()) {
            inside -= slices[at].len();
            at += 1;
        }
        let Some(slice) = slices.get(at) else { return (written, Ok(())) };
        let result = if inside > 0 { file.write(&slice[inside..]) } else { file.write_vectored(&slices[at..]) };
        match result {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(bytes) => {
                written += bytes as u64;
                inside += bytes;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time, is interrupted now and then, and is full in the end.
    struct Slow {
        bytes: Vec<u8>,
        room: usize,
        calls: usize,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(bytes)])
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = all.len().min(self.room - self.bytes.len()).min(5);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&all[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_writes_go_on_and_a_full_disk_is_told() {
        let check = |room: usize, expected: &[u8], full: bool| {
            let mut file = Slow { bytes: Vec::new(), room, calls: 0 };
            let slices = [&b"one "[..], b"", b"two three ", b"four", b""].map(IoSlice::new);
            let (written, outcome) = write_slices(&mut file, &slices);
            assert_eq!((&file.bytes[..], written), (expected, expected.len() as u64));
            assert_eq!(outcome.map_err(|error| error.kind()), if full { Err(ErrorKind::StorageFull) } else { Ok(()) });
        };
        check(100, b"one two three four", false);
        check(18, b"one two three four", false);
        check(11, b"one two thr", true);
        check(0, b"", true);
    }

    #[test]
    fn the_hash_is_that_of_the_bytes_that_stay() {
        let (before, bytes) = (b"before", [&b"one "[..], b"", b"two three ", b"four"]);
        let whole: Vec<u8> = [&before[..]].iter().chain(&bytes).flat_map(|slice| slice.iter().copied()).collect();
        let after: u64 = bytes.iter().map(|slice| slice.len() as u64).sum();
        for stay in 0..=after {
            let hash = Some(Box::new(Sha256::new_with_prefix(before)));
            let mut jobs = [Job::new(tempfile::tempfile().unwrap(), bytes.map(IoSlice::new).to_vec(), hash)];
            write_and_hash(&mut jobs, HELPER_BYTES);
            let [job] = jobs;
            assert_eq!((job.written, job.outcome.is_ok()), (after, true));
            let (_, hash) = job.end(stay);
            let expected = Sha256::digest(&whole[..before.len() + stay as usize]);
            assert!(hash.unwrap().finalize() == expected, "{stay}");
        }
    }
}
