//! SSH for rules: banners, and fingerprints of the offered algorithms (HASSH). One transaction per connection.

use super::transactions::Transactions;
use crate::parts::fingerprint::append_md5;
use protocols::ssh::{IDENTIFICATION_LIMIT, Offer, PACKET_LIMIT, Stop, identification, opening};
use rules::Transaction;
use rules::names::{App, Buffer};

/// Most bytes kept of a side until its offer is complete.
const KEPT_BYTES: usize = IDENTIFICATION_LIMIT + PACKET_LIMIT + 4;

/// Longest banner without an event (RFC 4253, 4.2).
const BANNER_BYTES: usize = 255;

/// Longest record that rules inspect.
const RECORD_BYTES: usize = 64 << 10;

const FRAMES: [Buffer; 3] = [Buffer::FRAME_SSH_HDR, Buffer::FRAME_SSH_DATA, Buffer::FRAME_SSH_PDU];

/// Message numbers (RFC 4250, 4.1.2).
const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Bytes needed before parsing can continue.
    need: usize,
    /// The offset behind the banner, once the banner was read.
    greeted: Option<usize>,
    done: bool,
    /// Bytes of an incomplete record, if rules inspect records. `None`: the next record is encrypted, or rules do not
    /// inspect them.
    records: Option<Vec<u8>>,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        let frames = to.frames;
        side.done |= gap;
        if gap || !frames {
            side.records = None;
        }
        if !side.done || side.records.is_some() {
            let id = to.only(App::Ssh).id;
            // The transaction never ends, and a peer may send records without end.
            to.forget_shown(id, to_server, &FRAMES);
            let one = to.only(App::Ssh);
            let mut changed = side.put_records(bytes, to_server, one);
            if !side.done {
                changed |= side.read(bytes, to_server, frames, one);
            }
            if changed {
                to.change(id, to_server);
            }
        }
        side.done |= side.bytes.len() == KEPT_BYTES;
        if side.done {
            side.bytes = Vec::new();
        }
    }

    pub fn kept_bytes(&self) -> usize {
        let side = |side: &Side| side.bytes.capacity() + side.records.as_ref().map_or(0, Vec::capacity);
        self.sides.iter().map(side).sum()
    }
}

impl Side {
    /// Takes a piece and continues parsing; returns whether there is news.
    fn read(&mut self, piece: &[u8], to_server: bool, frames: bool, one: &mut Transaction) -> bool {
        let had = self.bytes.len();
        self.bytes.extend_from_slice(&piece[..piece.len().min(KEPT_BYTES - had)]);
        let mut changed = false;
        if self.greeted.is_none() {
            let all = self.bytes.len();
            changed = self.read_banner(to_server, one);
            if frames && let Some(at) = self.greeted {
                // The banner ends in this piece. `self.bytes` may have kept only part of the piece.
                let end = all - self.bytes.len() + at - had;
                self.records = Some(Vec::new());
                self.put_records(&piece[end..], to_server, one);
            }
        }
        if self.bytes.len() < self.need {
            return changed;
        }
        self.read_offer(to_server, one) || changed
    }

    /// Reads the banner and drops the lines before it; returns whether there is news.
    fn read_banner(&mut self, to_server: bool, one: &mut Transaction) -> bool {
        let (mut from, mut changed) = (0, false);
        // Any number of lines may precede the banner (RFC 4253, 4.2).
        while let Some(end) = memchr::memchr(b'\n', &self.bytes[from..]) {
            let rest = &self.bytes[from..];
            if end > BANNER_BYTES {
                one.put_event("ssh.long_banner", to_server);
                changed = true;
            }
            if rest.starts_with(b"SSH-") {
                changed = true;
                if let Ok((said, at)) = identification(rest) {
                    one.put_copy(Buffer::SSH_PROTO, to_server, said.protocol);
                    one.put_copy(Buffer::SSH_SOFTWARE, to_server, said.software);
                    self.greeted = Some(at);
                    break;
                }
                one.put_event("ssh.invalid_banner", to_server);
            }
            from += end + 1;
        }
        if from > 0 {
            self.bytes.drain(..from);
            self.need = 0;
        }
        changed
    }

    /// Reads the offer of a side; returns whether there is news.
    fn read_offer(&mut self, to_server: bool, one: &mut Transaction) -> bool {
        let kind_at = self.greeted.map(|at| at + 5);
        match opening(&self.bytes) {
            Err(Stop::Incomplete { need }) => match kind_at.map(|at| (at, self.bytes.get(at))) {
                // The message number decides before the rest arrives.
                Some((_, Some(kind))) if *kind != KEXINIT => {}
                Some((at, None)) => {
                    self.need = need.min(at + 1);
                    return false;
                }
                _ => {
                    self.need = need;
                    return false;
                }
            },
            Err(Stop::NotSsh) => {
                self.done = true;
                let is_endless = self.greeted.is_none() && self.bytes.starts_with(b"SSH-");
                if is_endless {
                    one.put_event("ssh.long_banner", to_server);
                    one.put_event("ssh.invalid_banner", to_server);
                }
                return is_endless;
            }
            Ok(opening) => {
                let protocol = opening.identification.protocol;
                if let Some(offer) = opening.offer {
                    put_offer(&offer, to_server, one);
                    self.done = true;
                    return true;
                }
                // Other versions use other records.
                if !protocol.starts_with(b"2") && protocol != b"1.99" {
                    self.done = true;
                    return false;
                }
            }
        }
        self.done = true;
        one.put_event("ssh.invalid_record", to_server);
        true
    }

    /// Adds completed records; returns whether there are any.
    fn put_records(&mut self, bytes: &[u8], to_server: bool, one: &mut Transaction) -> bool {
        let Some(waiting) = &mut self.records else { return false };
        waiting.extend_from_slice(bytes);
        let (mut used, mut is_last) = (0, false);
        // A record begins with its length, padding length, and message number (RFC 4253, 6).
        while let Some(&[a, b, c, d, _, kind]) = waiting[used..].first_chunk()
            && !is_last
        {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            is_last = !(2..=RECORD_BYTES).contains(&length);
            let Some(record) = waiting.get(used..used + 4 + length).filter(|record| record.len() >= 6) else { break };
            one.put_copy(Buffer::FRAME_SSH_HDR, to_server, &record[..6]);
            one.put_copy(Buffer::FRAME_SSH_DATA, to_server, &record[6..]);
            one.put_copy(Buffer::FRAME_SSH_PDU, to_server, record);
            used += record.len();
            // Records behind NEWKEYS are encrypted.
            is_last |= kind == NEWKEYS;
        }
        waiting.drain(..used);
        is_last |= waiting.len() > 2 * RECORD_BYTES;
        if is_last {
            self.records = None;
        }
        used > 0
    }
}

fn put_offer(offer: &Offer<'_>, to_server: bool, one: &mut Transaction) {
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
    fn events(stream: &[u8]) -> Vec<&'static str> {
        let of = |size: usize| {
            let (mut ssh, mut to) = (Stream::default(), Transactions::default());
            stream.chunks(size).for_each(|piece| ssh.feed(piece, true, false, &mut to));
            to.only(App::Ssh).events.iter().map(|(event, _)| *event).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(stream.len()), "byte by byte");
        of(1)
    }

    #[test]
    fn odd_banners_and_records() {
        let check = |stream: &[u8], expected: &[&str]| assert_eq!(events(stream), expected, "{stream:?}");
        let long = [b'x'; 300];
        check(b"SSH-2.0-a\r\n\0\0\x01\0\x04\x14", &[]);
        check(b"SSH-2.0-a\r\n\0\0\x01\0\x04\x15", &["ssh.invalid_record"]);
        check(b"SSH-2.0-a\r\n\xff\0\0\0\x04\x14", &["ssh.invalid_record"]);
        check(b"SSH-2.0-a\r\n\0\0\0\x02\0\x14", &["ssh.invalid_record"]);
        check(b"SSH-1.5-a\r\n\0\0\x01\0\x04\x15", &[]);
        check(b"SSH-broken\r\nSSH-also\r\nSSH-2.0-a\r\n", &["ssh.invalid_banner"]);
        check(&[b"SSH-2.0-", &long[..], b"\r\n"].concat(), &["ssh.long_banner"]);
        check(&[&long[..], b"\r\nSSH-2.0-a\r\n"].concat(), &["ssh.long_banner"]);
        check(&[&b"SSH-2.0-"[..], &[b'x'; IDENTIFICATION_LIMIT]].concat(), &["ssh.long_banner", "ssh.invalid_banner"]);
        check(&[b'\n'; 2 * KEPT_BYTES], &[]);
    }

    fn with_frames() -> (Stream, Transactions) {
        let mut to = Transactions::default();
        to.frames = true;
        (Stream::default(), to)
    }

    #[test]
    fn records_until_they_are_encrypted() {
        // The first record is longer than the bytes kept for an offer.
        let long = [&(KEPT_BYTES as u32 + 2).to_be_bytes()[..], b"\0\x1e", &vec![b'x'; KEPT_BYTES]].concat();
        let stream = [b"Hi\r\nSSH-2.0-a\r\n", &long[..], b"\0\0\0\x02\0\x15\0\0\0\x04\0\x15ab"].concat();
        for size in [1, 1000, stream.len()] {
            let (mut ssh, mut to) = with_frames();
            let mut most = 0;
            for piece in stream.chunks(size) {
                ssh.feed(piece, false, false, &mut to);
                most = most.max(ssh.kept_bytes());
            }
            let all: Vec<&[u8]> = to.find(0).unwrap().all(Buffer::FRAME_SSH_PDU, false).collect();
            assert_eq!(all, [&long[..], b"\0\0\0\x02\0\x15"], "{size}");
            assert_eq!((ssh.kept_bytes(), most >= KEPT_BYTES), (0, size < stream.len()), "{size}");
        }
    }

    #[test]
    fn records_without_end_are_forgotten_once_seen() {
        let (mut ssh, mut to) = with_frames();
        ssh.feed(b"SSH-2.0-a\r\n", true, false, &mut to);
        let record = b"\0\0\0\x02\0\x1e";
        for _ in 0..100 {
            ssh.feed(&record.repeat(233), true, false, &mut to);
            let one = to.find(0).unwrap();
            assert_eq!(one.all(Buffer::FRAME_SSH_PDU, true).count(), 233, "only the new ones");
            assert_eq!(one.first(Buffer::SSH_SOFTWARE, true), Some(&b"a"[..]));
            assert!(to.kept_bytes() < 64 << 10);
            to.changed.clear();
        }
    }

    #[test]
    fn records_end_at_a_gap() {
        let (mut ssh, mut to) = with_frames();
        ssh.feed(b"SSH-2.0-a\r\n\0\0\0\x04\0", true, false, &mut to);
        assert!(ssh.kept_bytes() > 0);
        ssh.feed(b"\x1eab", true, true, &mut to);
        assert_eq!((ssh.kept_bytes(), to.find(0).unwrap().first(Buffer::FRAME_SSH_PDU, true)), (0, None));
    }
}
