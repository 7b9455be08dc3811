//! What rules see of a mail or form.

pub(super) use protocols::mime::{Mime, parameter};

use super::transactions::Transactions;
use protocols::mime::Found;
use rules::names::Buffer;

/// Adds results to the transaction `id`.
pub(super) fn put(found: &Found<'_>, id: u64, to: &mut Transactions) {
    match found {
        Found::More => {
            to.given_up += 1;
            to.unseen = true;
        }
        Found::File { name, .. } => to.begin_file(id, true, *name),
        Found::Data(bytes) => to.append_body(id, Buffer::FILE_DATA, true, bytes),
        Found::End(_) => to.end_file(id, true),
        // The head of a mail is told as facts.
        Found::Field(..) | Found::Head(_) | Found::Missing(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that are not reported count.
    #[test]
    fn more_fields_than_are_seen_count() {
        let mut to = Transactions::default();
        put(&Found::More, 0, &mut to);
        assert_eq!((to.given_up, to.unseen), (1, true));
    }
}
