//! The transactions of one flow: open ones, and those that rules have not seen yet.

use base::limits::{RULES_BODY_BYTES, RULES_COMPLETE, RULES_FILES, RULES_TRANSACTIONS};
use md5::{Digest, Md5};
use rules::Transaction;
use rules::names::{App, Buffer};
use sha1::Sha1;
use sha2::Sha256;

#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// By number.
    open: Vec<Transaction>,
    /// Most of them that are incomplete.
    unfinished: usize,
    next: u64,
    /// Changed transactions, with the side that changed.
    pub changed: Vec<(u64, bool)>,
    /// Transactions of which only a body grew, and too little for a full inspection, with the side.
    pub grown: Vec<(u64, bool)>,
    /// Number of transactions evicted.
    pub forgotten: u64,
    /// Some rule inspects protocol frames.
    pub frames: bool,
    /// Some rule inspects whole files.
    pub whole_files: bool,
    files: Vec<WholeFile>,
    /// Sides and messages that a parser gave up: bytes were missing, or a limit was reached.
    pub given_up: u64,
    /// Memory of the flow's parser, in bytes.
    pub reader_bytes: usize,
    /// Rules did not see some bytes: a transaction was evicted, a file was merged with the one before it, or a parser
    /// reached a limit. Or a parser no longer keeps what a message is about.
    pub unseen: bool,
}

/// Running totals of a whole file.
#[derive(Debug)]
struct WholeFile {
    id: u64,
    to_server: bool,
    bytes: u64,
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
}

impl Transactions {
    /// Begins a transaction. If there are too many, evicts the oldest.
    pub fn begin(&mut self, app: App) -> &mut Transaction {
        self.make_room();
        let id = self.next;
        self.next += 1;
        self.unfinished += 1;
        self.open.push(Transaction::new(app, id));
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Evicts an incomplete transaction if there are too many. Evicts complete ones several at a time, because
    /// one frame may bring thousands.
    fn make_room(&mut self) {
        let is_open = |one: &Transaction| one.complete != [true; 2];
        if self.unfinished >= RULES_TRANSACTIONS {
            self.unfinished = self.open.iter().filter(|one| is_open(one)).count();
        }
        let evicted: Vec<u64> = match self.unfinished >= RULES_TRANSACTIONS {
            true => {
                // Of one that waits for its answer, less is lost.
                let waits = |one: &&Transaction| one.complete == [true, false];
                let oldest = self.open.iter().find(waits).or_else(|| self.open.iter().find(|one| is_open(one)));
                oldest.map(|one| one.id).into_iter().collect()
            }
            false if self.open.len() >= RULES_COMPLETE => {
                let complete = self.open.iter().filter(|one| !is_open(one));
                complete.take(RULES_COMPLETE / 8).map(|one| one.id).collect()
            }
            false => return,
        };
        self.open.retain(|one| evicted.binary_search(&one.id).is_err());
        self.forgotten += evicted.len() as u64;
        let before = self.changed.len() + self.grown.len();
        self.changed.retain(|(id, _)| evicted.binary_search(id).is_err());
        self.grown.retain(|(id, _)| evicted.binary_search(id).is_err());
        self.unseen |= self.changed.len() + self.grown.len() < before;
    }

    pub fn get(&mut self, id: u64) -> Option<&mut Transaction> {
        self.open.iter_mut().find(|one| one.id == id)
    }

    pub fn find(&self, id: u64) -> Option<&Transaction> {
        self.open.iter().find(|one| one.id == id)
    }

    pub fn last(&self) -> Option<&Transaction> {
        self.open.last()
    }

    /// The only transaction of its application; begins it if it is missing.
    pub fn only(&mut self, app: App) -> &mut Transaction {
        // Others belong to an earlier protocol of the connection.
        match self.open.iter().position(|one| one.app == app) {
            Some(at) => &mut self.open[at],
            None => self.begin(app),
        }
    }

    /// Removes buffers of a side that would grow without end. Returns `false` if rules have not seen them yet.
    pub fn forget_shown(&mut self, id: u64, to_server: bool, names: &[Buffer]) -> bool {
        let is_shown = !self.changed.contains(&(id, to_server));
        if is_shown && let Some(one) = self.get(id) {
            one.forget(names, to_server);
        }
        is_shown
    }

    /// Marks a side as changed.
    pub fn change(&mut self, id: u64, to_server: bool) {
        if !self.changed.contains(&(id, to_server)) {
            self.changed.push((id, to_server));
        }
    }

    /// Marks a side as complete.
    pub fn complete(&mut self, id: u64, to_server: bool) {
        self.end_file(id, to_server);
        if let Some(one) = self.get(id) {
            one.complete[usize::from(!to_server)] = true;
            one.growing[usize::from(!to_server)] = false;
        }
    }

    /// Ends the current file of a side, and adds its digests and size. Other files may follow.
    pub fn end_file(&mut self, id: u64, to_server: bool) {
        self.change(id, to_server);
        if let Some(one) = self.get(id) {
            one.file_growing[usize::from(!to_server)] = false;
        }
        let Some(at) = self.files.iter().position(|file| (file.id, file.to_server) == (id, to_server)) else { return };
        let file = self.files.swap_remove(at);
        let Some(one) = self.get(id) else { return };
        one.put_copy(Buffer::FILE_MD5, to_server, &file.md5.finalize());
        one.put_copy(Buffer::FILE_SHA1, to_server, &file.sha1.finalize());
        one.put_copy(Buffer::FILE_SHA256, to_server, &file.sha256.finalize());
        one.put_copy(Buffer::FILE_SIZE, to_server, &file.bytes.to_be_bytes());
    }

    fn add_to_file(&mut self, id: u64, to_server: bool, bytes: &[u8]) {
        let same = |file: &WholeFile| (file.id, file.to_server) == (id, to_server);
        let at = self.files.iter().position(same).unwrap_or_else(|| {
            let (md5, sha1, sha256) = Default::default();
            self.files.push(WholeFile { id, to_server, bytes: 0, md5, sha1, sha256 });
            self.files.len() - 1
        });
        let file = &mut self.files[at];
        file.bytes += bytes.len() as u64;
        file.md5.update(bytes);
        file.sha1.update(bytes);
        file.sha256.update(bytes);
    }

    pub fn kept_bytes(&self) -> usize {
        self.reader_bytes
            + self.files.len() * size_of::<WholeFile>()
            + self.open.iter().map(Transaction::kept_bytes).sum::<usize>()
    }

    /// Drops transactions that are complete and were shown.
    pub fn sweep(&mut self) {
        let changed = &self.changed;
        self.open.retain(|one| one.complete != [true; 2] || changed.iter().any(|(id, _)| *id == one.id));
        let Transactions { open, files, .. } = self;
        files.retain(|file| open.iter().any(|one| one.id == file.id));
    }

    /// Begins a file. It replaces the previous files if rules have seen them.
    pub fn begin_file(&mut self, id: u64, to_server: bool, name: Option<&[u8]>) {
        let is_shown = !self.changed.contains(&(id, to_server)) && !self.grown.contains(&(id, to_server));
        let Some(one) = self.get(id) else { return };
        if is_shown {
            one.forget_files(to_server);
        } else if one.files(to_server) >= RULES_FILES {
            self.unseen = true;
            return;
        }
        if let Some(name) = name {
            one.put_copy(Buffer::FILE_NAME, to_server, name);
        }
        one.put_copy(Buffer::FILE_DATA, to_server, b"");
    }

    /// Adds bytes of a body to a buffer, up to the limit. Requests a full inspection now and then as the body grows.
    pub fn append_body(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        self.append(id, buffer, to_server, bytes, buffer == Buffer::FILE_DATA);
    }

    /// Adds bytes of a body that is also a file.
    pub fn append_file(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        self.append(id, buffer, to_server, bytes, true);
        if let Some(one) = self.get(id) {
            one.alias(Buffer::FILE_DATA, to_server, buffer);
            let side = usize::from(!to_server);
            one.file_growing[side] = one.growing[side];
        }
    }

    /// Adds bytes of another reading of a body. Requests a full inspection as [`append_body`](Self::append_body) does.
    pub fn append_reading(&mut self, id: u64, number: usize, to_server: bool, bytes: &[u8]) {
        let Some(one) = self.get(id) else { return };
        let (had, has) = one.append_reading_copy(number, to_server, bytes, RULES_BODY_BYTES);
        if has > had {
            self.grew(id, to_server, had, has, has >= RULES_BODY_BYTES);
        }
    }

    fn append(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8], is_file: bool) {
        if is_file && self.whole_files && self.find(id).is_some() {
            self.add_to_file(id, to_server, bytes);
        }
        let Some(one) = self.get(id) else { return };
        if buffer != Buffer::FILE_DATA {
            one.body_bytes[usize::from(!to_server)] += bytes.len() as u64;
        }
        let had = one.all(buffer, to_server).last().map_or(0, <[u8]>::len);
        let take = bytes.len().min(RULES_BODY_BYTES.saturating_sub(had));
        if take == 0 {
            return;
        }
        one.append_copy(buffer, to_server, &bytes[..take]);
        let full = had + take >= RULES_BODY_BYTES;
        let growing = if buffer == Buffer::FILE_DATA { &mut one.file_growing } else { &mut one.growing };
        growing[usize::from(!to_server)] = !full;
        self.grew(id, to_server, had, had + take, full);
    }

    /// Bytes of a body grew. A full inspection costs time in proportion to the body, so it is due when the body's length
    /// has quadrupled. The first bytes get one too: rules on the name of a file match with them.
    fn grew(&mut self, id: u64, to_server: bool, had: usize, has: usize, full: bool) {
        let stage = |bytes: usize| bytes.max(1024).ilog2() / 2;
        if had == 0 || full || stage(had) != stage(has) {
            self.change(id, to_server);
        } else if !self.grown.contains(&(id, to_server)) {
            self.grown.push((id, to_server));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a frame completes is shown, however much; transactions that never complete are evicted.
    #[test]
    fn what_is_complete_waits_to_be_shown() {
        let mut transactions = Transactions::default();
        for _ in 0..300 {
            let one = transactions.begin(App::WebSocket);
            one.complete = [true; 2];
            let id = one.id;
            transactions.change(id, true);
        }
        assert_eq!((transactions.forgotten, transactions.unseen), (0, false));
        for _ in 0..RULES_TRANSACTIONS + 10 {
            transactions.begin(App::Http1);
        }
        assert_eq!((transactions.forgotten, transactions.unseen, transactions.changed.len()), (10, false, 300));
        (0..RULES_COMPLETE).for_each(|_| transactions.begin(App::WebSocket).complete = [true; 2]);
        assert!(transactions.open.len() <= RULES_COMPLETE && transactions.unseen);
    }

    /// Thousands of messages in one frame do not move all others for each of them.
    #[test]
    fn complete_transactions_are_evicted_several_at_a_time() {
        let mut transactions = Transactions::default();
        let mut begin = |number: usize| {
            for _ in 0..number {
                let one = transactions.begin(App::WebSocket);
                one.complete = [true; 2];
                let id = one.id;
                transactions.change(id, false);
            }
            (transactions.forgotten as usize, transactions.open.len(), transactions.changed.len())
        };
        assert_eq!(begin(RULES_COMPLETE), (0, RULES_COMPLETE, RULES_COMPLETE));
        let (most, left) = (RULES_COMPLETE / 8, RULES_COMPLETE - RULES_COMPLETE / 8);
        assert_eq!(begin(1), (most, left + 1, left + 1));
        assert_eq!(begin(most - 1), (most, RULES_COMPLETE, RULES_COMPLETE));
        assert_eq!(begin(10 * most), (11 * most, RULES_COMPLETE, RULES_COMPLETE));
        assert!(transactions.unseen);
    }

    #[test]
    fn a_whole_file_is_longer_than_what_is_kept() {
        let mut transactions = Transactions { whole_files: true, ..Transactions::default() };
        let id = transactions.begin(App::Http1).id;
        let bytes = vec![b'x'; RULES_BODY_BYTES];
        for _ in 0..3 {
            transactions.append_file(id, Buffer::HTTP_RESPONSE_BODY, false, &bytes);
        }
        transactions.complete(id, false);
        let one = transactions.find(id).unwrap();
        let size = one.first(Buffer::FILE_SIZE, false).unwrap();
        assert_eq!(size, (3 * RULES_BODY_BYTES as u64).to_be_bytes());
        assert_eq!(one.first(Buffer::FILE_MD5, false), Some(&Md5::digest(bytes.repeat(3))[..]));
        assert_eq!(one.first(Buffer::FILE_DATA, false).map(<[u8]>::len), Some(RULES_BODY_BYTES));
    }
}
