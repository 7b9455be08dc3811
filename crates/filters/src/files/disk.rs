//! The write path: vectored writes of about 1 MiB from held blocks.
//!
//! A small and whole file costs one open, one write and one close. Few files stay open between writes. Tiers:
//! - A block is held and noted, without a system call.
//! - A file's blocks are written when they are many, when the file ends, or when all files together hold too much.
//! - A file is opened when it is written to and is not among those kept open.

use super::folder::{Folder, failure};
use super::outgoing::{Outgoing, Piece};
use super::round::{Job, write_and_hash};
use super::store;
use super::title::Title;
use crate::parts::json_row::append_state;
use crate::parts::json_text;
use crate::parts::system::is_full;
use base::limits::{FILE_PENDING_BLOCKS, FILES_OPEN, FILES_PENDING_BLOCKS, FILES_PENDING_BYTES};
use buffer::BlockTable;
use filter::Counters;
use filter::counter::{FILE_BYTES, FILES};
use filter::prelude::*;
use sha2::Digest;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};

/// Names tried for a file before the folder counts as unusable.
const NAME_TRIES: usize = 100;

/// Lists of pieces kept for new files.
const SPARES: usize = 256;

/// Ready files are written when together they hold this much: enough work for two threads, little memory.
const ROUND_BYTES: u64 = 8 << 20;
const ROUND_BLOCKS: usize = 8 * FILE_PENDING_BLOCKS;

/// A file that ends with at least this much held waits for a round with other files.
const LONG_BYTES: u64 = 64 << 10;

/// Bytes that tell a media type. The mark of a tar archive stands last, at 257.
const MAGIC_BYTES: usize = 512;

/// Linux: this process (24) or the system (23) has too many open files.
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

pub(super) type Outcome = Result<(), Box<Failure>>;

/// What happens to an open file after a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Keep it open, in place of another if need be: it is written to often.
    Keep,
    /// Keep it open if there is room.
    KeepIfRoom,
    /// Close it: the file is whole.
    Close,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    blocks: usize,
    bytes: u64,
}

impl Held {
    fn add(&mut self, blocks: usize, bytes: u64) {
        self.blocks += blocks;
        self.bytes += bytes;
    }

    fn take(&mut self, blocks: usize, bytes: u64) {
        self.blocks -= blocks;
        self.bytes -= bytes;
    }
}

/// Files that are written together.
struct Round<'f, 'r> {
    rings: &'r BlockTable,
    files: Vec<(&'f mut Outgoing, Then)>,
    jobs: Vec<Job<'r>>,
    bytes: u64,
    /// The first failure.
    outcome: Outcome,
}

impl<'r> Round<'_, 'r> {
    fn new(rings: &'r BlockTable) -> Self {
        Round { rings, files: Vec::new(), jobs: Vec::new(), bytes: 0, outcome: Ok(()) }
    }

    fn note(&mut self, outcome: Outcome) {
        if self.outcome.is_ok() {
            self.outcome = outcome;
        }
    }
}

/// Why no more files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// There is room.
    No,
    /// The disk is full. Only the index is still written.
    Disk,
    /// The limit of the request was reached.
    Limit,
}

fn hex_of(digest: &[u8]) -> String {
    let mut hex = Vec::with_capacity(2 * digest.len());
    packet::text::append_hex(&mut hex, digest);
    hex.into_iter().map(char::from).collect()
}

/// The media type by the first bytes of the slices.
fn magic_of(slices: &[IoSlice<'_>]) -> Option<&'static str> {
    let mut first = Vec::with_capacity(MAGIC_BYTES);
    for slice in slices {
        let room = MAGIC_BYTES - first.len();
        first.extend_from_slice(&slice[..slice.len().min(room)]);
        if first.len() == MAGIC_BYTES {
            break;
        }
    }
    infer::get(&first).map(|kind| kind.mime_type())
}

/// Writes files into a folder.
#[derive(Debug)]
pub(super) struct Disk {
    folder: Folder,
    hashes: bool,
    /// Number of files in the index, and their bytes.
    listed: (u64, u64),
    /// Files among them whose content was in the store already.
    stored_already: u64,
    full: Full,
    /// The notice of the limit was given.
    told: bool,
    /// The last number given to a file. The file may never have been created.
    number: u64,
    /// Open files by [`Outgoing::number`], the one used longest ago first.
    open: VecDeque<(u64, File)>,
    /// Held for all files.
    pending: Held,
    /// Held for ready files.
    ready: Held,
    /// Files that ended and wait for the next round.
    ended: Vec<Outgoing>,
    spare_pending: Vec<Vec<Piece>>,
}

impl Disk {
    pub(super) fn new(folder: Folder, hashes: bool) -> Disk {
        Disk {
            folder,
            hashes,
            listed: (0, 0),
            stored_already: 0,
            full: Full::No,
            told: false,
            number: 0,
            open: VecDeque::with_capacity(FILES_OPEN),
            pending: Held::default(),
            ready: Held::default(),
            ended: Vec::new(),
            spare_pending: Vec::new(),
        }
    }

    /// Holds a block for its file. `true`: the block made the file [`ready`](Outgoing::ready).
    pub(super) fn add(&mut self, file: &mut Outgoing, block: &Descriptor, rings: &mut BlockTable) -> bool {
        file.note(block);
        if block.len == 0 || file.broken {
            return false;
        }
        let Some(held) = rings.hold(block) else {
            // The bytes are gone, which must not happen: the file is incomplete.
            file.truncate();
            return false;
        };
        if file.pending.capacity() == 0 {
            file.pending = self.spare_pending.pop().unwrap_or_default();
        }
        if file.number == 0 {
            // Number files when bytes come, not when they are written: the order of writes depends on other files.
            self.number += 1;
            file.number = self.number;
        }
        file.pending.push(Piece::new(&held));
        file.pending_bytes += u64::from(held.len);
        self.pending.add(1, u64::from(held.len));
        if file.ready {
            self.ready.add(1, u64::from(held.len));
            return false;
        }
        if file.holds_enough() {
            self.make_ready(file);
        }
        file.ready
    }

    fn make_ready(&mut self, file: &mut Outgoing) {
        file.ready = true;
        self.ready.add(file.pending.len(), file.pending_bytes);
    }

    /// Ends a file. A long file waits for the next round, and so do files that end after it: the index is in order.
    pub(super) fn end(&mut self, mut file: Outgoing, rings: &BlockTable) -> Outcome {
        if file.exists && file.pending.is_empty() {
            self.open.retain(|(number, _)| *number != file.number);
        }
        if self.ended.is_empty() && file.pending_bytes < LONG_BYTES {
            let written = self.write([(&mut file, Then::Close)].into_iter(), rings);
            return written.and(self.list(file));
        }
        if !file.ready {
            self.make_ready(&mut file);
        }
        self.ended.push(file);
        Ok(())
    }

    /// Whether the ready files hold enough for a round.
    pub(super) fn is_round(&self) -> bool {
        self.ready.bytes >= ROUND_BYTES || self.ready.blocks >= ROUND_BLOCKS || self.ended.len() >= FILES_OPEN
    }

    /// Whether all files hold enough for a write. Bytes count only if they take memory of this process.
    pub(super) fn holds_enough(&self, rings: &BlockTable) -> bool {
        self.pending.blocks >= FILES_PENDING_BLOCKS
            || (self.pending.bytes >= FILES_PENDING_BYTES && rings.memory_bytes() as u64 >= FILES_PENDING_BYTES)
    }

    /// Writes the ready files: those of `files`, which are under way, and those that ended.
    pub(super) fn write_ready<'f>(
        &mut self,
        files: impl Iterator<Item = &'f mut Outgoing>,
        rings: &BlockTable,
    ) -> Outcome {
        let mut ended = std::mem::take(&mut self.ended);
        let files = files.map(|file| (file, Then::Keep));
        let mut outcome = self.write(files.chain(ended.iter_mut().map(|file| (file, Then::Close))), rings);
        for file in ended.drain(..) {
            outcome = outcome.and(self.list(file));
        }
        self.ended = ended;
        outcome
    }

    /// Writes all files: `files`, which are under way, and those that ended.
    pub(super) fn write_all<'f>(
        &mut self,
        files: impl Iterator<Item = &'f mut Outgoing>,
        rings: &BlockTable,
    ) -> Outcome {
        if self.pending.blocks == 0 && self.ended.is_empty() {
            return Ok(());
        }
        let outcome = self.write(files.map(|file| (file, Then::KeepIfRoom)), rings);
        outcome.and(self.write_ready(std::iter::empty(), rings))
    }

    /// Writes a file that is one run of bytes.
    pub(super) fn write_whole(&mut self, title: Title, bytes: &[u8], truncated: bool, rings: &BlockTable) -> Outcome {
        let mut file = Outgoing::new(title);
        if truncated {
            file.truncate();
        }
        let mut round = Round::new(rings);
        if !self.begin(&mut file)? || bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() as u64 > self.folder.room_left() {
            self.full = Full::Limit;
            return Ok(());
        }
        self.take_room(&mut file, bytes.len() as u64, 0)?;
        let handle = self.open_file(&mut file, &mut round)?;
        let slices = vec![IoSlice::new(bytes)];
        if self.folder.is_store() {
            file.magic = magic_of(&slices);
        }
        let mut jobs = [Job::new(handle, slices, self.hashes.then(Box::default))];
        write_and_hash(&mut jobs, 0);
        let [job] = jobs;
        let written = self.settle(&mut file, Then::Close, job);
        written.and(self.list(file))
    }

    /// Writes what these files hold and ends the holds, even if a write fails. Returns the first failure. The other files
    /// and the index should be whole.
    fn write<'f>(&mut self, files: impl Iterator<Item = (&'f mut Outgoing, Then)>, rings: &BlockTable) -> Outcome {
        let mut round = Round::new(rings);
        for (file, then) in files.filter(|(file, _)| !file.pending.is_empty()) {
            match self.job(file, &mut round) {
                Ok(Some(job)) => {
                    round.bytes += file.pending_bytes;
                    round.files.push((file, then));
                    round.jobs.push(job);
                }
                Ok(None) => self.let_go(file, rings),
                Err(failure) => {
                    self.let_go(file, rings);
                    self.run(&mut round);
                    round.note(Err(failure));
                }
            }
            if round.bytes >= 2 * ROUND_BYTES || round.jobs.len() >= FILES_OPEN {
                self.run(&mut round);
            }
        }
        self.run(&mut round);
        round.outcome
    }

    /// Begins the index. `false`: the file cannot be written, and is marked as broken.
    fn begin(&mut self, file: &mut Outgoing) -> Result<bool, Box<Failure>> {
        self.folder.begin()?;
        file.broken |= self.folder.has_failed() || self.full != Full::No;
        file.limited |= self.full == Full::Limit;
        Ok(!file.broken)
    }

    /// The notice of the request's limit, once it was reached. Given once.
    pub(super) fn take_limit_notice(&mut self) -> Option<String> {
        (self.full == Full::Limit && !std::mem::replace(&mut self.told, true)).then(|| self.folder.room_notice())
    }

    /// Takes room for `bytes` of a file, beside `beside` bytes about to be written. An error marks the disk as full.
    fn take_room(&mut self, file: &mut Outgoing, bytes: u64, beside: u64) -> Outcome {
        let taken = self.folder.take_room(bytes, beside);
        if taken.is_err() {
            (self.full, file.broken) = (Full::Disk, true);
        }
        taken
    }

    /// Drops what a file holds beyond the limit of the request.
    fn crop(&mut self, file: &mut Outgoing, rings: &BlockTable) {
        let left = self.folder.room_left();
        if file.pending_bytes <= left {
            return;
        }
        self.full = Full::Limit;
        let (blocks, bytes) = file.crop(left, rings);
        self.pending.take(blocks, bytes);
        if file.ready {
            self.ready.take(blocks, bytes);
        }
    }

    /// The job that writes a file. `None`: no bytes wait, or the file cannot be written.
    fn job<'r>(&mut self, file: &mut Outgoing, round: &mut Round<'_, 'r>) -> Result<Option<Job<'r>>, Box<Failure>> {
        if !self.begin(file)? {
            return Ok(None);
        }
        self.crop(file, round.rings);
        if file.pending.is_empty() {
            return Ok(None);
        }
        self.take_room(file, file.pending_bytes, round.bytes)?;
        let open = if file.exists { self.open.iter().position(|(number, _)| *number == file.number) } else { None };
        let handle = match open.and_then(|place| self.open.remove(place)) {
            Some((_, handle)) => handle,
            None => self.open_file(file, round)?,
        };
        if self.hashes && file.hash.is_none() {
            file.hash = Some(Box::default());
        }
        let rings = round.rings;
        let slices: Vec<_> = file.pending.iter().map(|piece| IoSlice::new(rings.bytes(&piece.descriptor()))).collect();
        if self.folder.is_store() && file.written == 0 {
            file.magic = magic_of(&slices);
        }
        Ok(Some(Job::new(handle, slices, file.hash.take())))
    }

    /// Runs the jobs of a round, and empties it.
    fn run(&mut self, round: &mut Round<'_, '_>) {
        write_and_hash(&mut round.jobs, round.bytes);
        round.bytes = 0;
        for job in round.jobs.drain(..).zip(round.files.drain(..)) {
            let (job, (file, then)) = job;
            let outcome = self.settle(file, then, job);
            self.let_go(file, round.rings);
            if round.outcome.is_ok() {
                round.outcome = outcome;
            }
        }
    }

    /// Records the result of a job.
    fn settle(&mut self, file: &mut Outgoing, then: Then, job: Job<'_>) -> Outcome {
        let (mut written, mut outcome) = (job.written, Ok(()));
        if let Err(error) = &job.outcome {
            written = self.give_back(&job.handle, file, written, error);
            file.written += written;
            outcome = Err(self.broke(file, error));
        } else {
            file.written += written;
        }
        let (handle, hash) = job.end(written);
        file.hash = hash;
        if then == Then::Keep && self.open.len() >= FILES_OPEN {
            self.open.pop_front();
        }
        if then != Then::Close && !file.broken && self.open.len() < FILES_OPEN {
            self.open.push_back((file.number, handle));
        }
        outcome
    }

    /// Ends the holds of a file.
    fn let_go(&mut self, file: &mut Outgoing, rings: &BlockTable) {
        let (blocks, bytes) = (file.pending.len(), file.pending_bytes);
        self.pending.take(blocks, bytes);
        if file.ready {
            self.ready.take(blocks, bytes);
            file.ready = false;
        }
        let pending = file.release(rings);
        if self.spare_pending.len() < SPARES {
            self.spare_pending.push(pending);
        }
    }

    /// After a failed write: returns how many of its `written` bytes stay. If the disk is full or the file as long as it may
    /// be, cuts them all off. From then on only the index is written, so that it finds room.
    fn give_back(&mut self, handle: &File, file: &Outgoing, written: u64, error: &io::Error) -> u64 {
        if !is_full(error) {
            return written;
        }
        self.full = Full::Disk;
        if handle.set_len(file.written).is_ok() { 0 } else { written }
    }

    /// Marks a file as broken, and returns the failure. Removes the file if it is empty.
    fn broke(&self, file: &mut Outgoing, error: &io::Error) -> Box<Failure> {
        file.broken = true;
        if file.written == 0 {
            // Ignore an error here: the file is empty anyway, and the first failure matters.
            drop(self.folder.remove(&file.name));
        }
        failure("write", &self.folder.path(&file.name), error)
    }

    /// Opens a file to append to it, or creates it under a free name.
    fn open_file(&mut self, file: &mut Outgoing, round: &mut Round<'_, '_>) -> Result<File, Box<Failure>> {
        let mut plain = file.title().is_named_by_flow();
        for _ in 0..NAME_TRIES {
            if !file.exists {
                if file.number == 0 {
                    self.number += 1;
                    file.number = self.number;
                }
                file.name = if self.folder.is_store() {
                    store::part_name(file.number)
                } else {
                    file.title().name((!plain).then_some(file.number))
                };
            }
            match self.open_with_room(file, round) {
                Err(error) if !file.exists && error.kind() == ErrorKind::AlreadyExists => {
                    (plain, file.number) = (false, 0);
                }
                Err(error) => {
                    file.broken = true;
                    return Err(failure("open", &self.folder.path(&file.name), &error));
                }
                Ok(handle) => {
                    file.exists = true;
                    return Ok(handle);
                }
            }
        }
        file.broken = true;
        let error = io::Error::new(ErrorKind::AlreadyExists, "so are all similar names");
        Err(failure("create", &self.folder.path(&file.name), &error))
    }

    /// Opens a file. Closes others if too many are open.
    fn open_with_room(&mut self, file: &Outgoing, round: &mut Round<'_, '_>) -> io::Result<File> {
        while self.open.len() + round.jobs.len() >= FILES_OPEN && self.open.pop_front().is_some() {}
        loop {
            let opened = if file.exists { self.folder.append(&file.name) } else { self.folder.create(&file.name) };
            match opened {
                Err(error) if error.raw_os_error().is_some_and(|number| TOO_MANY_OPEN.contains(&number)) => {
                    if self.open.pop_front().is_none() {
                        if round.jobs.is_empty() {
                            return Err(error);
                        }
                        self.run(round);
                    }
                }
                opened => return opened,
            }
        }
    }

    /// Adds a file to the index, or to the store.
    fn list(&mut self, mut file: Outgoing) -> Outcome {
        if file.written == 0 {
            return Ok(());
        }
        self.listed = (self.listed.0 + 1, self.listed.1 + file.written);
        let digest = file.hash.take().map(|hash| hex_of(&hash.finalize()));
        let fill = |line: &mut Vec<u8>, name: &str| {
            file.title().append_head(line, name);
            json_text::key(line, "size");
            json_text::number(line, file.written);
            if let Some(digest) = &digest {
                json_text::key(line, "sha256");
                json_text::text(line, digest.as_bytes());
            }
            if let Some(magic) = file.magic {
                json_text::key(line, "magic");
                json_text::text(line, magic.as_bytes());
            }
            append_state(line, file.state(), file.limited);
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
        };
        let listed = match &digest {
            Some(digest) if self.folder.is_store() => {
                let seen = (file.title().seconds(), file.number);
                self.folder.store(&file.name, digest, seen, fill).map(|new| self.stored_already += u64::from(!new))
            }
            _ => self.folder.list(|line| fill(line, &file.name)),
        };
        // Files are worth little without the index, so the index takes the room that is left.
        if listed.is_err() {
            self.full = Full::Disk;
        }
        listed
    }

    /// Writes the index lines that wait.
    pub(super) fn flush_index(&mut self) -> Made {
        self.folder.write_index()?;
        Ok(Status::Done)
    }

    /// Ends the run. Leaves an index even without files.
    pub(super) fn finish(&mut self, counters: &mut Counters) -> Outcome {
        let (files, bytes) = std::mem::take(&mut self.listed);
        counters.events.add(FILES, files);
        counters.events.add(FILE_BYTES, bytes);
        counters.events.add("files stored already", std::mem::take(&mut self.stored_already));
        self.open.clear();
        self.folder.begin()?;
        self.folder.end_index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_in(dir: &std::path::Path) -> Disk {
        let room = crate::parts::room::Room::new(&Params::new());
        Disk::new(Folder::open(dir.to_str().unwrap(), false, room).unwrap(), true)
    }

    fn held(rings: &mut BlockTable, view: buffer::ViewId, bytes: &[u8]) -> Descriptor {
        rings.append_copy(view, &[bytes]).expect("it fits")
    }

    #[test]
    fn few_files_stay_open_and_nothing_stays_held() {
        const FILES: usize = 2 * FILES_OPEN;
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk_in(folder.path());
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, buffer::Interface::default()).unwrap();
        let mut files: Vec<_> =
            (0..FILES).map(|_| Outgoing::new(Title::of_block("frame", "", &Descriptor::default()))).collect();
        for _ in 0..3 {
            for file in &mut files {
                let block = held(&mut rings, view, b"abc");
                assert!(!disk.add(file, &block, &mut rings));
            }
            assert_eq!(disk.pending, Held { blocks: FILES, bytes: 3 * FILES as u64 });
            disk.write_all(files.iter_mut(), &rings).unwrap();
            assert_eq!((disk.pending, disk.open.len()), (Held::default(), FILES_OPEN));
        }
        for mut file in files {
            let block = held(&mut rings, view, b"d");
            disk.add(&mut file, &block, &mut rings);
            disk.end(file, &rings).unwrap();
        }
        assert_eq!(disk.open.len(), 0);
        disk.finish(&mut Counters::default()).unwrap();
        rings.recycle(segment);
        assert_eq!(rings.traffic().faults, 0);
        for number in 1..=FILES {
            assert_eq!(std::fs::read(folder.path().join(format!("frame-{number:08}"))).unwrap(), b"abcabcabcd");
        }
    }

    /// Two threads write long files together. Each file has its bytes, its hash and its place in the index.
    #[test]
    fn what_is_written_in_rounds_is_whole() {
        const FILES: usize = 5;
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk_in(folder.path());
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, buffer::Interface::default()).unwrap();
        let title = || Title::of_block("frame", "", &Descriptor::default());
        let mut files: Vec<_> = (0..FILES).map(|_| (Outgoing::new(title()), Vec::new())).collect();
        let mut rounds = 0;
        for step in 0..20_u8 {
            for (number, (file, whole)) in files.iter_mut().enumerate() {
                let bytes = vec![step * 5 + number as u8; 200_000 + 1000 * usize::from(step)];
                let block = held(&mut rings, view, &bytes);
                disk.add(file, &block, &mut rings);
                whole.extend(bytes);
            }
            if disk.is_round() {
                rounds += 1;
                disk.write_ready(files.iter_mut().map(|(file, _)| file).filter(|file| file.ready), &rings).unwrap();
            }
        }
        assert!(rounds > 1, "{rounds}");
        let mut expected = Vec::new();
        for (file, whole) in files {
            disk.end(file, &rings).unwrap();
            expected.push(whole);
        }
        disk.write_ready(std::iter::empty(), &rings).unwrap();
        assert_eq!((disk.pending, disk.ready, disk.open.len()), (Held::default(), Held::default(), 0));
        disk.finish(&mut Counters::default()).unwrap();
        let index = std::fs::read_to_string(folder.path().join("index.jsonl")).unwrap();
        let names: Vec<_> = (1..=FILES).map(|number| format!("frame-{number:08}")).collect();
        for ((name, whole), line) in names.iter().zip(expected).zip(index.lines()) {
            assert!(std::fs::read(folder.path().join(name)).unwrap() == whole, "{name}");
            let digest: String = sha2::Sha256::digest(&whole).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(line.contains(&format!("\"file\":\"{name}\"")) && line.contains(&digest), "{name}: {line}");
        }
    }

    /// One of three files in a round takes only a part of its bytes. The index lists that part, and the other files whole.
    #[test]
    fn a_write_that_fails_in_the_middle_of_a_round() {
        const FILES: usize = 3;
        const BYTES: usize = 2 << 20;
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk_in(folder.path());
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, buffer::Interface::default()).unwrap();
        let title = || Title::of_block("frame", "", &Descriptor::default());
        let mut files: Vec<_> = (0..FILES).map(|_| Outgoing::new(title())).collect();
        for file in &mut files {
            let block = held(&mut rings, view, b"begin ");
            disk.add(file, &block, &mut rings);
        }
        disk.write_all(files.iter_mut(), &rings).unwrap();
        // A socket without a reader takes a part and refuses the rest, as a full disk does.
        let (mut reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        writer.set_nonblocking(true).unwrap();
        disk.open[1].1 = File::from(std::os::fd::OwnedFd::from(writer));
        for file in &mut files {
            for number in 0..BYTES >> 16 {
                let block = held(&mut rings, view, &vec![number as u8; 1 << 16]);
                disk.add(file, &block, &mut rings);
            }
        }
        let failure = disk.write_ready(files.iter_mut(), &rings).unwrap_err().to_string();
        assert!(failure.starts_with(&format!("cannot write `{}`", folder.path().join("frame-00000002").display())));
        for mut file in files {
            // Further bytes of the broken file are not written.
            let block = held(&mut rings, view, b"end");
            disk.add(&mut file, &block, &mut rings);
            disk.end(file, &rings).unwrap();
        }
        disk.write_ready(std::iter::empty(), &rings).unwrap();
        assert_eq!((disk.pending, disk.ready), (Held::default(), Held::default()));
        disk.finish(&mut Counters::default()).unwrap();
        let mut taken = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut taken).unwrap();
        assert!(!taken.is_empty() && taken.len() < BYTES, "{}", taken.len());
        let whole: Vec<u8> = (0..BYTES).map(|at| (at >> 16) as u8).collect();
        assert!(whole.starts_with(&taken));
        let index = std::fs::read_to_string(folder.path().join("index.jsonl")).unwrap();
        assert_eq!(index.lines().count(), FILES);
        for (number, line) in index.lines().enumerate() {
            let bytes = match number {
                1 => [b"begin ", &taken[..]].concat(),
                _ => [b"begin ", &whole[..], b"end"].concat(),
            };
            let state = if number == 1 { "truncated" } else { "complete" };
            let digest: String = sha2::Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let expected = format!("\"size\":{},\"sha256\":\"{digest}\",\"state\":\"{state}\"", bytes.len());
            assert!(line.contains(&expected), "{line}, not {expected}");
            let found = std::fs::read(folder.path().join(format!("frame-{:08}", number + 1))).unwrap();
            assert!(if number == 1 { found == b"begin " } else { found == bytes });
        }
    }

    /// A failure to create a file names the file, and the rest goes on. A folder that replaces the folder in use gets no
    /// file.
    #[test]
    fn a_failure_names_its_file_and_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("out");
        let mut disk = disk_in(&dir);
        let title = || Title::of_block("frame", "", &Descriptor::default());
        let rings = BlockTable::new();
        disk.write_whole(title(), b"one", false, &rings).unwrap();
        let moved = folder.path().join("moved");
        std::fs::rename(&dir, &moved).unwrap();
        std::fs::create_dir(&dir).unwrap();
        let title_of_long_name = || Title::of_block("frame", &["x"; 300].concat().leak()[..], &Descriptor::default());
        let failure = disk.write_whole(title_of_long_name(), b"two", false, &rings).unwrap_err().to_string();
        assert!(failure.ends_with("x`: File name too long"), "{failure}");
        disk.write_whole(title(), b"three", false, &rings).unwrap();
        disk.finish(&mut Counters::default()).unwrap();
        assert_eq!(std::fs::read_to_string(moved.join("index.jsonl")).unwrap().lines().count(), 2);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }
}
