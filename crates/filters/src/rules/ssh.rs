//! SSH for rules: the banners, and fingerprints of what both sides offer (HASSH). One transaction for each connection.

use super::transactions::Transactions;
use crate::parts::fingerprint::append_md5;
use rules::Transaction;
use rules::names::{App, Buffer};

/// Bytes of one side that are kept until its offer is there.
const KEPT_BYTES: usize = 64 << 10;

/// Bytes of a banner at most (RFC 4253, 4.2).
const BANNER_BYTES: usize = 255;

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    bytes: Vec<u8>,
    /// Records behind the banner that are not encrypted, where rules look at them; `None` behind the last.
    records: Option<Vec<u8>>,
    greeted: bool,
    done: bool,
}

impl Stream {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = &mut self.sides[usize::from(!to_server)];
        let looks_at_frames = to.frames && !gap;
        if side.done && side.records.is_none() {
            return;
        }
        let one = to.only(App::Ssh);
        let id = one.id;
        let mut changed = looks_at_frames && side.put_records(bytes, to_server, one);
        if side.done {
            if changed {
                to.change(id, to_server);
            }
            return;
        }
        side.bytes.extend_from_slice(bytes);
        if !side.greeted
            && let Some(end) = memchr::memchr(b'\n', &side.bytes)
        {
            if end > BANNER_BYTES {
                one.events.push(("ssh.long_banner", to_server));
                changed = true;
            }
            let line = side.bytes[..end].strip_suffix(b"\r").unwrap_or(&side.bytes[..end]);
            let mut parts = line.splitn(3, |byte| *byte == b'-');
            if let (Some(b"SSH"), Some(version), Some(software)) = (parts.next(), parts.next(), parts.next()) {
                let software = software.split(|byte| *byte == b' ').next().unwrap_or_default();
                one.put_copy(Buffer::SSH_PROTO, to_server, version);
                one.put_copy(Buffer::SSH_SOFTWARE, to_server, software);
                changed = true;
                side.greeted = true;
                side.bytes.drain(..=end);
                if looks_at_frames {
                    side.records = Some(Vec::new());
                    let behind = side.bytes.clone();
                    side.put_records(&behind, to_server, one);
                }
            } else {
                if line.starts_with(b"SSH-") {
                    one.events.push(("ssh.invalid_banner", to_server));
                    changed = true;
                }
                // Lines may stand before the banner (RFC 4253, 4.2).
                side.bytes.drain(..=end);
            }
        }
        if side.greeted && side.bytes.len() >= 6 {
            let length = u32::from_be_bytes([side.bytes[0], side.bytes[1], side.bytes[2], side.bytes[3]]) as usize;
            if side.bytes[5] != 20 || length > KEPT_BYTES {
                one.events.push(("ssh.invalid_record", to_server));
                changed = true;
                side.done = true;
            } else if let Some(offer) = side.bytes.get(6..4 + length) {
                let text = offered(offer, to_server);
                side.done = true;
                if let Some(text) = text {
                    let mut hash = Vec::new();
                    append_md5(&mut hash, text.as_bytes());
                    let (string, digest) = if to_server {
                        (Buffer::SSH_HASSH_STRING, Buffer::SSH_HASSH)
                    } else {
                        (Buffer::SSH_HASSH_SERVER_STRING, Buffer::SSH_HASSH_SERVER)
                    };
                    one.put_copy(string, to_server, text.as_bytes());
                    one.put_copy(digest, to_server, &hash);
                    changed = true;
                }
            }
        }
        side.done |= gap || side.bytes.len() > KEPT_BYTES;
        if side.done {
            side.bytes = Vec::new();
        }
        if changed {
            to.change(id, to_server);
        }
    }
}

impl Side {
    /// Puts records that these bytes complete; says whether there are any.
    fn put_records(&mut self, bytes: &[u8], to_server: bool, one: &mut Transaction) -> bool {
        let Some(waiting) = &mut self.records else { return false };
        waiting.extend_from_slice(bytes);
        let (mut used, mut is_last) = (0, false);
        // A record has its length, how much fills it up, and what it is (RFC 4253, 6).
        while let Some(&[a, b, c, d, _, kind]) = waiting[used..].first_chunk()
            && !is_last
        {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            is_last = length > KEPT_BYTES;
            let Some(record) = waiting.get(used..used + 4 + length).filter(|record| record.len() >= 6) else { break };
            one.put_copy(Buffer::FRAME_SSH_HDR, to_server, &record[..6]);
            one.put_copy(Buffer::FRAME_SSH_DATA, to_server, &record[6..]);
            one.put_copy(Buffer::FRAME_SSH_PDU, to_server, record);
            used += record.len();
            // Behind new keys records are encrypted.
            is_last |= kind == 21;
        }
        waiting.drain(..used);
        is_last |= waiting.len() > 2 * KEPT_BYTES;
        if is_last {
            self.records = None;
        }
        used > 0
    }
}

/// Key exchange, ciphers, MACs and compressions of one direction, as HASSH joins them.
fn offered(body: &[u8], to_server: bool) -> Option<String> {
    let mut rest = body.get(16..)?;
    let mut lists = Vec::new();
    for _ in 0..8 {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let list = behind.get(..length)?;
        lists.push(String::from_utf8_lossy(list).into_owned());
        rest = &behind[length..];
    }
    let own = usize::from(!to_server);
    Some([&lists[0], &lists[2 + own], &lists[4 + own], &lists[6 + own]].map(String::as_str).join(";"))
}
