//! What rules see of a mail or form.

pub(super) use protocols::mime::{Mime, parameter};

use super::transactions::Transactions;
use protocols::mime::Found;
use rules::names::Buffer;

/// Adds results to the transaction `id`.
pub(super) fn put(found: &Found<'_>, id: u64, to: &mut Transactions) {
    match found {
        Found::Field(name, value) => {
            let buffer = match *name {
                b"from" => Buffer::EMAIL_FROM,
                b"to" => Buffer::EMAIL_TO,
                b"cc" => Buffer::EMAIL_CC,
                b"subject" => Buffer::EMAIL_SUBJECT,
                b"date" => Buffer::EMAIL_DATE,
                b"message-id" => Buffer::EMAIL_MESSAGE_ID,
                b"x-mailer" => Buffer::EMAIL_X_MAILER,
                _ => return,
            };
            if let Some(one) = to.get(id) {
                one.put_copy(buffer, true, value);
            }
        }
        Found::More => {
            to.given_up += 1;
            to.unseen = true;
        }
        Found::File(name) => to.begin_file(id, true, *name),
        Found::Data(bytes) => to.append_body(id, Buffer::FILE_DATA, true, bytes),
        Found::Head => to.change(id, true),
        Found::End => to.end_file(id, true),
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
