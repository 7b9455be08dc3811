//! The write path: held blocks go out by vectored writes of about 1 MiB, a file that is small and whole costs one open,
//! one write and one close, and few files are open between two writes.
//!
//! Tiers: a block is held and noted (no system call); a file's blocks are written when they are many, when it ends, or
//! when all files together hold too much; a file is opened when it is written to and is not among those kept open.

use super::folder::{Folder, failure};
use super::outgoing::{Outgoing, Piece};
use super::title::Title;
use crate::parts::json_text;
use base::limits::{FILE_PENDING_BLOCKS, FILES_OPEN, FILES_PENDING_BLOCKS, FILES_PENDING_BYTES};
use buffer::Rings;
use filter::prelude::*;
use sha2::Digest;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};

/// Names tried for a file before the folder is taken for unusable.
const NAME_TRIES: usize = 100;

/// Lists of pieces kept for files to come.
const SPARES: usize = 256;

/// Linux: the process (24) or the system (23) has too many files open.
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

type Outcome = Result<(), Box<Failure>>;

/// What becomes of an open file after a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is written to often: kept open, in place of another if need be.
    Keep,
    /// Kept open if there is room.
    KeepIfRoom,
    /// It is whole.
    Close,
}

/// Writes files into a folder.
#[derive(Debug)]
pub(super) struct Disk {
    folder: Folder,
    hashes: bool,
    /// No room is left for anything but the index.
    full: bool,
    /// The number that the file made last has or might have had.
    number: u64,
    /// Open files by [`Outgoing::id`], the one used longest ago first.
    open: VecDeque<(u64, File)>,
    /// Blocks and bytes held for all files.
    pending_blocks: usize,
    pending_bytes: u64,
    spare_pending: Vec<Vec<Piece>>,
}

impl Disk {
    pub(super) fn new(folder: Folder, hashes: bool) -> Disk {
        Disk {
            folder,
            hashes,
            full: false,
            number: 0,
            open: VecDeque::with_capacity(FILES_OPEN),
            pending_blocks: 0,
            pending_bytes: 0,
            spare_pending: Vec::new(),
        }
    }

    /// Holds a block for its file, and writes the file's blocks where they have become many.
    pub(super) fn add(&mut self, file: &mut Outgoing, block: &Descriptor, rings: &mut Rings) -> Outcome {
        file.note(block);
        if block.len == 0 || file.broken {
            return Ok(());
        }
        let Some(held) = rings.hold(block) else {
            // Its bytes are gone, which must not happen; the file is not what it should be.
            file.truncate();
            return Ok(());
        };
        self.push(file, &held);
        if file.holds_enough() { self.write(file, Then::Keep, file.pending.len(), rings) } else { Ok(()) }
    }

    fn push(&mut self, file: &mut Outgoing, block: &Descriptor) {
        if file.pending.capacity() == 0 {
            file.pending = self.spare_pending.pop().unwrap_or_default();
        }
        file.pending.push(Piece::new(block));
        file.pending_bytes += u64::from(block.len);
        self.pending_blocks += 1;
        self.pending_bytes += u64::from(block.len);
    }

    /// Adds the last block, which need not be held, and ends the file.
    pub(super) fn end_with(&mut self, mut file: Outgoing, block: &Descriptor, rings: &Rings) -> Outcome {
        file.note(block);
        let held = file.pending.len();
        if block.len > 0 && !file.broken {
            self.push(&mut file, block);
        }
        self.write_last(file, held, rings)
    }

    /// Ends a file.
    pub(super) fn end(&mut self, file: Outgoing, rings: &Rings) -> Outcome {
        let held = file.pending.len();
        self.write_last(file, held, rings)
    }

    fn write_last(&mut self, mut file: Outgoing, held: usize, rings: &Rings) -> Outcome {
        let written = if file.pending.is_empty() {
            if file.id != 0 {
                self.open.retain(|(id, _)| *id != file.id);
            }
            Ok(())
        } else {
            self.write(&mut file, Then::Close, held, rings)
        };
        let listed = if file.written > 0 { self.list(&mut file) } else { Ok(()) };
        written.and(listed)
    }

    /// Do all files together hold so much that it should be written?
    pub(super) fn holds_enough(&self) -> bool {
        self.pending_blocks >= FILES_PENDING_BLOCKS || self.pending_bytes >= FILES_PENDING_BYTES
    }

    /// Writes what is held for any file.
    pub(super) fn write_all<'a>(&mut self, files: impl Iterator<Item = &'a mut Outgoing>, rings: &Rings) -> Outcome {
        if self.pending_blocks == 0 {
            return Ok(());
        }
        for file in files.filter(|file| !file.pending.is_empty()) {
            self.write(file, Then::KeepIfRoom, file.pending.len(), rings)?;
        }
        Ok(())
    }

    /// A file that is one run of bytes.
    pub(super) fn write_whole(&mut self, title: Title, bytes: &[u8], truncated: bool) -> Outcome {
        self.folder.begin()?;
        if bytes.is_empty() || self.folder.has_failed() || self.full {
            return Ok(());
        }
        let mut file = Outgoing::new(title);
        if truncated {
            file.truncate();
        }
        let mut handle = self.open_file(&mut file)?;
        file.hash = self.hashes.then(Box::default);
        let (written, outcome) = write_slices(&mut handle, &mut [IoSlice::new(bytes)]);
        let written = if let Err(error) = &outcome { self.give_back(&handle, &file, written, error) } else { written };
        self.note_written(&mut file, written, [&bytes[..written as usize]].into_iter());
        let outcome = outcome.map_err(|error| self.broke(&mut file, &error));
        let listed = if file.written > 0 { self.list(&mut file) } else { Ok(()) };
        outcome.and(listed)
    }

    /// Writes what a file holds; of its blocks the first `held` are held and let go of, also where writing fails.
    fn write(&mut self, file: &mut Outgoing, then: Then, held: usize, rings: &Rings) -> Outcome {
        let outcome = self.write_pending(file, then, rings);
        self.pending_blocks -= file.pending.len();
        self.pending_bytes -= file.pending_bytes;
        file.release(held, rings);
        let pending = std::mem::take(&mut file.pending);
        if self.spare_pending.len() < SPARES {
            self.spare_pending.push(pending);
        }
        outcome
    }

    fn write_pending(&mut self, file: &mut Outgoing, then: Then, rings: &Rings) -> Outcome {
        self.folder.begin()?;
        if self.folder.has_failed() || self.full {
            file.broken = true;
            return Ok(());
        }
        let open = if file.id == 0 { None } else { self.open.iter().position(|(id, _)| *id == file.id) };
        let mut handle = match open.and_then(|place| self.open.remove(place)) {
            Some((_, handle)) => handle,
            None => self.open_file(file)?,
        };
        if self.hashes && file.hash.is_none() {
            file.hash = Some(Box::default());
        }
        let pending = std::mem::take(&mut file.pending);
        let mut outcome = Ok(());
        for pieces in pending.chunks(FILE_PENDING_BLOCKS) {
            // Preparing a thousand slices for a stream of three blocks costs more than its bytes.
            let (written, result) = if pieces.len() <= FEW_SLICES {
                write_pieces::<FEW_SLICES>(&mut handle, pieces, rings)
            } else {
                write_pieces::<FILE_PENDING_BLOCKS>(&mut handle, pieces, rings)
            };
            let written =
                if let Err(error) = &result { self.give_back(&handle, file, written, error) } else { written };
            self.note_written(file, written, pieces.iter().map(|piece| rings.bytes(&piece.descriptor())));
            if let Err(error) = result {
                outcome = Err(self.broke(file, &error));
                break;
            }
        }
        file.pending = pending;
        if then == Then::Keep && self.open.len() >= FILES_OPEN {
            self.open.pop_front();
        }
        if then != Then::Close && !file.broken && self.open.len() < FILES_OPEN {
            self.open.push_back((file.id, handle));
        }
        outcome
    }

    /// Counts and hashes the first `written` of these bytes.
    fn note_written<'a>(&mut self, file: &mut Outgoing, written: u64, slices: impl Iterator<Item = &'a [u8]>) {
        file.written += written;
        let Some(hash) = &mut file.hash else { return };
        let mut left = written;
        for slice in slices {
            let here = slice.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            hash.update(&slice[..here]);
            left -= here as u64;
        }
    }

    /// A disk is full that took `written` bytes of the last write. They are given back, and from now on only the index
    /// is written, so that it finds room. Gives the bytes that stay.
    fn give_back(&mut self, handle: &File, file: &Outgoing, written: u64, error: &io::Error) -> u64 {
        if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return written;
        }
        self.full = true;
        if handle.set_len(file.written).is_ok() { 0 } else { written }
    }

    /// Notes that a file cannot be written, and says so. One of which nothing was written is not left behind.
    fn broke(&self, file: &mut Outgoing, error: &io::Error) -> Box<Failure> {
        file.broken = true;
        if file.written == 0 {
            // It is empty whether or not it can be removed, and the failure that matters is the first.
            drop(self.folder.remove(&file.name));
        }
        failure("write", &self.folder.path(&file.name), error)
    }

    /// Opens a file to go on at its end, or creates it under a name that is free.
    fn open_file(&mut self, file: &mut Outgoing) -> Result<File, Box<Failure>> {
        let exists = file.id != 0;
        let mut plain = file.title().is_named_by_flow();
        for _ in 0..NAME_TRIES {
            if !exists {
                self.number += 1;
                file.name = file.title().name((!plain).then_some(self.number));
            }
            let opened =
                self.with_room(|folder| if exists { folder.append(&file.name) } else { folder.create(&file.name) });
            match opened {
                Err(error) if !exists && error.kind() == ErrorKind::AlreadyExists => plain = false,
                Err(error) => {
                    file.broken = true;
                    return Err(failure("open", &self.folder.path(&file.name), &error));
                }
                Ok(handle) => {
                    if !exists {
                        file.id = self.number;
                    }
                    return Ok(handle);
                }
            }
        }
        file.broken = true;
        let error = io::Error::new(ErrorKind::AlreadyExists, "so are all similar names");
        Err(failure("create", &self.folder.path(&file.name), &error))
    }

    /// Opens a file, closing others where there are too many.
    fn with_room(&mut self, open: impl Fn(&Folder) -> io::Result<File>) -> io::Result<File> {
        loop {
            match open(&self.folder) {
                Err(error) if error.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number)) => {
                    self.open.pop_front().ok_or(error)?;
                }
                opened => return opened,
            }
        }
    }

    /// Adds a file to the index.
    fn list(&mut self, file: &mut Outgoing) -> Outcome {
        let digest = file.hash.take().map(|hash| hash.finalize());
        let listed = self.folder.list(|line| {
            file.title().append_head(line, &file.name);
            json_text::key(line, "size");
            json_text::number(line, file.written);
            if let Some(digest) = digest {
                json_text::key(line, "sha256");
                line.push(b'"');
                json_text::hex(line, &digest);
                line.push(b'"');
            }
            json_text::key(line, "state");
            json_text::text(line, file.state().as_bytes());
            json_text::key(line, "gaps");
            line.push(b'[');
            for (offset, missing) in file.gaps() {
                json_text::comma(line);
                line.push(b'[');
                json_text::number(line, *offset);
                json_text::comma(line);
                json_text::number(line, *missing);
                line.push(b']');
            }
            line.push(b']');
            file.title().append_tail(line);
        });
        // What is on the disk is worth little without the index: it goes first.
        self.full |= listed.is_err();
        listed
    }

    /// Writes out what the index has.
    pub(super) fn flush_index(&mut self) -> Made {
        self.folder.write_index()?;
        Ok(Status::Done)
    }

    /// The run is over: leaves an index even where there is nothing to list.
    pub(super) fn finish(&mut self) -> Outcome {
        self.open.clear();
        self.folder.begin()?;
        self.folder.write_index()
    }
}

/// Slices of a small write.
const FEW_SLICES: usize = 16;

/// Writes at most `N` pieces by one system call, or by more where it takes less. Gives the bytes written.
fn write_pieces<const N: usize>(file: &mut File, pieces: &[Piece], rings: &Rings) -> (u64, io::Result<()>) {
    let mut slices = [IoSlice::new(&[]); N];
    let count = pieces.len().min(N);
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(rings.bytes(&piece.descriptor()));
    }
    write_slices(file, &mut slices[..count])
}

fn write_slices(file: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> (u64, io::Result<()>) {
    let mut written = 0;
    while slices.iter().any(|slice| !slice.is_empty()) {
        match file.write_vectored(slices) {
            Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
            Ok(bytes) => {
                written += bytes as u64;
                IoSlice::advance_slices(&mut slices, bytes);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
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
            let mut slices = [&b"one "[..], b"", b"two three ", b"four", b""].map(IoSlice::new);
            let (written, outcome) = write_slices(&mut file, &mut slices);
            assert_eq!((&file.bytes[..], written), (expected, expected.len() as u64));
            assert_eq!(outcome.map_err(|error| error.kind()), if full { Err(ErrorKind::StorageFull) } else { Ok(()) });
        };
        check(100, b"one two three four", false);
        check(18, b"one two three four", false);
        check(11, b"one two thr", true);
        check(0, b"", true);
    }

    fn held(rings: &mut Rings, view: buffer::ViewId, bytes: &[u8]) -> Descriptor {
        rings.append_copy(view, &[bytes]).expect("it fits")
    }

    #[test]
    fn few_files_stay_open_and_nothing_stays_held() {
        const FILES: usize = 2 * FILES_OPEN;
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(Folder::check(folder.path().to_str().unwrap(), false).unwrap(), true);
        let mut rings = Rings::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, buffer::Interface::default()).unwrap();
        let mut files: Vec<_> =
            (0..FILES).map(|_| Outgoing::new(Title::of_block("frame", "", &Descriptor::default()))).collect();
        for _ in 0..3 {
            for file in &mut files {
                let block = held(&mut rings, view, b"abc");
                disk.add(file, &block, &mut rings).unwrap();
            }
            assert_eq!((disk.pending_blocks, disk.pending_bytes), (FILES, 3 * FILES as u64));
            disk.write_all(files.iter_mut(), &rings).unwrap();
            assert_eq!((disk.pending_blocks, disk.pending_bytes, disk.open.len()), (0, 0, FILES_OPEN));
        }
        for file in files {
            let block = held(&mut rings, view, b"d");
            disk.end_with(file, &block, &rings).unwrap();
        }
        assert_eq!(disk.open.len(), 0);
        disk.finish().unwrap();
        rings.recycle(segment);
        assert_eq!(rings.traffic().faults, 0);
        for number in 1..=FILES {
            assert_eq!(std::fs::read(folder.path().join(format!("frame-{number:08}"))).unwrap(), b"abcabcabcd");
        }
    }

    /// The folder goes away under a run: the file that cannot be written is named, the rest goes on.
    #[test]
    fn a_failure_names_its_file_and_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("out");
        let mut disk = Disk::new(Folder::check(dir.to_str().unwrap(), false).unwrap(), true);
        let title = || Title::of_block("frame", "", &Descriptor::default());
        disk.write_whole(title(), b"one", false).unwrap();
        std::fs::rename(&dir, folder.path().join("moved")).unwrap();
        let failure = disk.write_whole(title(), b"two", false).unwrap_err().to_string();
        let path = dir.join("frame-00000002");
        assert_eq!(failure, format!("cannot open `{}`: No such file or directory", path.display()));
        std::fs::rename(folder.path().join("moved"), &dir).unwrap();
        disk.write_whole(title(), b"three", false).unwrap();
        disk.finish().unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("index.jsonl")).unwrap().lines().count(), 2);
    }
}
