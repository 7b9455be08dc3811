//! SSH for rules: the banners, and fingerprints of what both sides offer (HASSH). One transaction for each connection.

use super::transactions::Transactions;
use crate::parts::fingerprint::append_md5;
use packet::ssh::{IDENTIFICATION_LIMIT, PACKET_LIMIT, Stop, identification, opening};
use rules::names::{App, Buffer};

/// Bytes of one side that are kept until its offer is there.
const KEPT_BYTES: usize = IDENTIFICATION_LIMIT + PACKET_LIMIT + 4;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Bytes of them that are needed at least to read on.
    need: usize,
    greeted: bool,
    done: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        if !side.done && !gap {
            let room = KEPT_BYTES - side.bytes.len();
            side.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
            side.read(to_server, to);
        }
        side.done |= gap || side.bytes.len() == KEPT_BYTES;
        if side.done {
            side.bytes = Vec::new();
        }
    }

    /// Bytes that it keeps.
    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(|side| side.bytes.capacity()).sum()
    }
}

impl Side {
    fn read(&mut self, to_server: bool, to: &mut Transactions) {
        // Any number of lines may stand before the banner (RFC 4253, 4.2).
        while !self.greeted
            && !self.bytes.starts_with(b"SSH-")
            && let Some(end) = memchr::memchr(b'\n', &self.bytes)
        {
            self.bytes.drain(..=end);
            self.need = 0;
        }
        if self.bytes.len() < self.need {
            return;
        }
        let one = to.only(App::Ssh);
        let id = one.id;
        if !self.greeted
            && let Ok((said, _)) = identification(&self.bytes)
        {
            one.put_copy(Buffer::SSH_PROTO, to_server, said.protocol);
            one.put_copy(Buffer::SSH_SOFTWARE, to_server, said.software);
            self.greeted = true;
            to.change(id, to_server);
        }
        let offer = match opening(&self.bytes) {
            Ok(opening) => opening.offer,
            Err(Stop::Incomplete { need }) => {
                self.need = need;
                return;
            }
            Err(Stop::NotSsh) => None,
        };
        self.done = true;
        if let (Some(offer), Some(one)) = (offer, to.get(id)) {
            let (mut text, mut hash) = (Vec::new(), Vec::new());
            let (string, digest) = if to_server {
                offer.append_hassh(&mut text);
                (Buffer::SSH_HASSH_STRING, Buffer::SSH_HASSH)
            } else {
                offer.append_hassh_server(&mut text);
                (Buffer::SSH_HASSH_SERVER_STRING, Buffer::SSH_HASSH_SERVER)
            };
            append_md5(&mut hash, &text);
            one.put_copy(string, to_server, &text);
            one.put_copy(digest, to_server, &hash);
            to.change(id, to_server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_banner_behind_lines_is_read_in_any_pieces() {
        let banner = [&b"Welcome\r\n"[..], b"SSH-2.0-", &b"x".repeat(300), b" a comment\r\n\0\0\0\x02\0\0"].concat();
        for size in [1, 100, banner.len()] {
            let (mut stream, mut to) = (Stream::default(), Transactions::default());
            banner.chunks(size).for_each(|piece| stream.feed(piece, false, false, &mut to));
            let one = to.find(0).unwrap();
            assert_eq!(one.first(Buffer::SSH_PROTO, false), Some(&b"2.0"[..]));
            assert_eq!(one.first(Buffer::SSH_SOFTWARE, false), Some(&b"x".repeat(300)[..]));
            assert_eq!(stream.kept_bytes(), 0, "there is nothing more to be read");
        }
    }
}
