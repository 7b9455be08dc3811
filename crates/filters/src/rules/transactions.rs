//! The transactions of one flow: those that are open, and those that rules are still to be shown.

use base::limits::{RULES_BODY_BYTES, RULES_COMPLETE, RULES_FILES, RULES_TRANSACTIONS};
use md5::{Digest, Md5};
use rules::Transaction;
use rules::names::{App, Buffer};
use sha1::Sha1;
use sha2::Sha256;

/// Transactions of one flow.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Vec<Transaction>,
    next: u64,
    /// What has gone on: transaction and side.
    pub changed: Vec<(u64, bool)>,
    /// Where nothing but a body has gone on, and not by much: the same.
    pub grown: Vec<(u64, bool)>,
    /// Some were forgotten to make room.
    pub forgotten: u64,
    /// A rule looks at frames of protocols.
    pub frames: bool,
    /// A rule looks at files as a whole.
    pub whole_files: bool,
    files: Vec<WholeFile>,
    /// Sides of a connection, and messages, that a reader gave up: bytes are missing, or a bound was met.
    pub given_up: u64,
    /// Bytes that the reader of the flow keeps besides.
    pub reader_bytes: usize,
    /// One was forgotten before rules were shown what had come of it, or a file was taken for more of the one before it.
    pub unseen: bool,
}

/// What is known of a file under way, all of its bytes.
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
    /// Begins one. Where too many are open, the oldest of them is forgotten.
    pub fn begin(&mut self, app: App) -> &mut Transaction {
        if self.open.len() >= RULES_TRANSACTIONS
            && let Some(oldest) = self.too_many()
        {
            let oldest = self.open.remove(oldest).id;
            self.forgotten += 1;
            let before = self.changed.len() + self.grown.len();
            self.changed.retain(|(id, _)| *id != oldest);
            self.grown.retain(|(id, _)| *id != oldest);
            self.unseen |= self.changed.len() + self.grown.len() < before;
        }
        let id = self.next;
        self.next += 1;
        self.open.push(Transaction::new(app, id));
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Which one makes room, where one has to.
    fn too_many(&self) -> Option<usize> {
        let is_open = |one: &Transaction| one.complete != [true; 2];
        let open = self.open.iter().filter(|one| is_open(one)).count();
        match open >= RULES_TRANSACTIONS {
            true => self.open.iter().position(is_open),
            false => (self.open.len() >= RULES_COMPLETE).then_some(0),
        }
    }

    /// The transaction with this number.
    pub fn get(&mut self, id: u64) -> Option<&mut Transaction> {
        self.open.iter_mut().find(|one| one.id == id)
    }

    /// The same, to be read.
    pub fn find(&self, id: u64) -> Option<&Transaction> {
        self.open.iter().find(|one| one.id == id)
    }

    /// The one that began last.
    pub fn last(&self) -> Option<&Transaction> {
        self.open.last()
    }

    /// The transaction of flows that have one; begun where it is not there.
    pub fn only(&mut self, app: App) -> &mut Transaction {
        // Others are of what the connection was before.
        match self.open.iter().position(|one| one.app == app) {
            Some(at) => &mut self.open[at],
            None => self.begin(app),
        }
    }

    /// Says that a side has gone on.
    pub fn change(&mut self, id: u64, to_server: bool) {
        if !self.changed.contains(&(id, to_server)) {
            self.changed.push((id, to_server));
        }
    }

    /// Says that a side is complete.
    pub fn complete(&mut self, id: u64, to_server: bool) {
        self.end_file(id, to_server);
        if let Some(one) = self.get(id) {
            one.complete[usize::from(!to_server)] = true;
            one.growing[usize::from(!to_server)] = false;
            one.file_growing[usize::from(!to_server)] = false;
        }
        self.change(id, to_server);
    }

    /// The file of a side is over: puts what rules ask of it as a whole. There may be others behind it.
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

    /// Bytes that they keep.
    pub fn kept_bytes(&self) -> usize {
        self.reader_bytes
            + self.files.len() * size_of::<WholeFile>()
            + self.open.iter().map(Transaction::kept_bytes).sum::<usize>()
    }

    /// Forgets what is complete and was shown.
    pub fn sweep(&mut self) {
        let changed = &self.changed;
        self.open.retain(|one| one.complete != [true; 2] || changed.iter().any(|(id, _)| *id == one.id));
        let Transactions { open, files, .. } = self;
        files.retain(|file| open.iter().any(|one| one.id == file.id));
    }

    /// A file begins. Where rules were shown the one before, it stands in its place.
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

    /// Adds bytes of a body to a buffer, up to the bound. A look at all of it is asked for now and then while it grows.
    pub fn append_body(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        self.append(id, buffer, to_server, bytes, buffer == Buffer::FILE_DATA);
    }

    /// Does the same with a body that is a file as a whole.
    pub fn append_file(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8]) {
        self.append(id, buffer, to_server, bytes, true);
        if let Some(one) = self.get(id) {
            one.alias(Buffer::FILE_DATA, to_server, buffer);
            let side = usize::from(!to_server);
            one.file_growing[side] = one.growing[side];
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
        // Each look takes as long as the body is: so it is when it has become four times as long.
        let stage = |bytes: usize| bytes.max(1024).ilog2() / 2;
        if full || stage(had) != stage(had + take) {
            self.change(id, to_server);
        } else if !self.grown.contains(&(id, to_server)) {
            self.grown.push((id, to_server));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a frame brings is shown, however much that is; what is never complete makes room.
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
