//! The transactions of one flow: those that are open, and those that rules are still to be shown.

use base::limits::{RULES_BODY_BYTES, RULES_FILES, RULES_TRANSACTIONS};
use rules::Transaction;
use rules::names::{App, Buffer};

/// Transactions of one flow.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: Vec<Transaction>,
    next: u64,
    /// What has gone on: transaction and side.
    pub changed: Vec<(u64, bool)>,
    /// Some were forgotten to make room.
    pub forgotten: u64,
    /// One was forgotten before rules were shown what had come of it, or a file was taken for more of the one before it.
    pub unseen: bool,
}

impl Transactions {
    /// Begins one. Where too many are open, the oldest is forgotten.
    pub fn begin(&mut self, app: App) -> &mut Transaction {
        if self.open.len() >= RULES_TRANSACTIONS {
            let oldest = self.open.remove(0).id;
            self.forgotten += 1;
            let before = self.changed.len();
            self.changed.retain(|(id, _)| *id != oldest);
            self.unseen |= self.changed.len() < before;
        }
        let id = self.next;
        self.next += 1;
        self.open.push(Transaction::new(app, id));
        let last = self.open.len() - 1;
        &mut self.open[last]
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
        if self.open.is_empty() {
            self.begin(app);
        }
        &mut self.open[0]
    }

    /// Says that a side has gone on.
    pub fn change(&mut self, id: u64, to_server: bool) {
        if !self.changed.contains(&(id, to_server)) {
            self.changed.push((id, to_server));
        }
    }

    /// Says that a side is complete.
    pub fn complete(&mut self, id: u64, to_server: bool) {
        if let Some(one) = self.get(id) {
            one.complete[usize::from(!to_server)] = true;
            one.growing[usize::from(!to_server)] = false;
            one.file_growing[usize::from(!to_server)] = false;
        }
        self.change(id, to_server);
    }

    /// Bytes that they keep.
    pub fn kept_bytes(&self) -> usize {
        self.open.iter().map(Transaction::kept_bytes).sum()
    }

    /// Forgets what is complete and was shown.
    pub fn sweep(&mut self) {
        let changed = &self.changed;
        self.open.retain(|one| one.complete != [true; 2] || changed.iter().any(|(id, _)| *id == one.id));
    }

    /// A file begins. Where rules were shown the one before, it stands in its place.
    pub fn begin_file(&mut self, id: u64, to_server: bool, name: Option<&[u8]>) {
        let is_shown = !self.changed.contains(&(id, to_server));
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

    /// The file under way is over.
    pub fn end_file(&mut self, id: u64, to_server: bool) {
        if let Some(one) = self.get(id) {
            one.file_growing[usize::from(!to_server)] = false;
        }
        self.change(id, to_server);
    }

    /// Adds bytes of a body to a buffer, up to the bound, and shows them now and then while it grows.
    pub fn append_body(&mut self, id: u64, buffer: Buffer, to_server: bool, bytes: &[u8]) {
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
        }
    }
}
