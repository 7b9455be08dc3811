//! Decrypts the records of a TLS connection with secrets that one of its ends has written down (SSLKEYLOGFILE): TLS 1.3
//! and 1.2, with AES-GCM and ChaCha20-Poly1305.
//!
//! - here — the records of both directions, and which keys they have
//! - `keys` — suites, derivation of keys, decryption of a record
//! - `handshake` — messages out of the contents of records
//!
//! A connection is found by its hello, where a piece of the stream begins. Records that come before their secret wait for
//! it: a program may write it down later than its packets are captured.

mod handshake;
mod keys;

use super::{ALERT, APPLICATION_DATA, HANDSHAKE, Hello, RECORD_BODY_LIMIT, RECORD_HEADER_BYTES, message};
use crate::carry::Carried;
use crate::conversation::Side;
use base::limits::TLS_PREAMBLE_BYTES;
use handshake::{FINISHED, Handshake, KEY_UPDATE, Message};
use keys::{Keys, Suite};

const CHANGE_CIPHER_SPEC: u8 = 20;

const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// A server hello with this random value asks the client to try again (RFC 8446, 4.1.3).
const TRY_AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Records in a row that are not of the keys, until a direction is given up.
const FAILURES: u32 = 16;

/// Bytes of one direction that wait for a secret.
const WAITING_BYTES: usize = 64 << 10;

const UNDECRYPTED: &str = "tls records not decrypted";
const UNREAD: &str = "bytes of tls not decrypted";
const WITHOUT_SECRET: &str = "tls connections without a secret in the key log";
const UNKNOWN: &str = "tls directions of other versions or ciphers";
const BROKEN: &str = "tls directions given up behind missing bytes";
const MALFORMED: &str = "malformed tls records";
const NO_ROOM: &str = "tls directions given up for want of memory";

/// Names of secrets, as a key log has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// The master secret of TLS 1.2.
    Master,
    /// Of TLS 1.3, of a side's handshake.
    Handshake(Side),
    /// Of TLS 1.3, of a side's first contents.
    Application(Side),
}

impl Label {
    /// The label with this name. `None`: no secret of records, or of no version that is read.
    pub fn of(name: &str) -> Option<Label> {
        Some(match name {
            "CLIENT_RANDOM" => Label::Master,
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Label::Handshake(Side::Client),
            "SERVER_HANDSHAKE_TRAFFIC_SECRET" => Label::Handshake(Side::Server),
            "CLIENT_TRAFFIC_SECRET_0" => Label::Application(Side::Client),
            "SERVER_TRAFFIC_SECRET_0" => Label::Application(Side::Server),
            _ => return None,
        })
    }
}

/// A secret: 32 or 48 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; 48],
    len: u8,
}

impl Secret {
    /// A secret of these bytes. `None`: no suite has secrets of this length.
    pub fn new(from: &[u8]) -> Option<Secret> {
        let mut bytes = [0; 48];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        matches!(from.len(), 32 | 48).then_some(Secret { bytes, len: from.len() as u8 })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a secret of {} bytes", self.len)
    }
}

/// Where secrets are found, and contents go.
pub trait Ends {
    /// The secret of the connection whose client hello has this random value. `None`: there is none now.
    fn secret(&mut self, random: &[u8; 32], label: Label) -> Option<Secret>;

    /// Takes contents. `gap`: bytes that are missing before them.
    fn contents(&mut self, side: Side, bytes: &[u8], gap: u32);

    /// Counts something.
    fn count(&mut self, event: &'static str, count: u64);
}

/// How far a direction is.
#[derive(Debug, Default)]
enum Phase {
    /// No hello came: the bytes are no TLS, or not yet.
    #[default]
    Looking,
    /// Records without encryption.
    Plain,
    /// Records wait for keys of this secret.
    Wanting(Label),
    Keyed(Keys),
    /// Nothing more is read.
    Over,
}

/// One direction.
#[derive(Debug, Default)]
struct Half {
    phase: Phase,
    /// Bytes before a hello.
    passed: u64,
    /// The beginning of a record, or records that wait.
    part: Vec<u8>,
    /// Bytes to pass over: the rest of a record whose beginning, or middle, is missing.
    skip: usize,
    handshake: Handshake,
    /// The traffic secret of its keys, and whether it is that of the handshake. Of TLS 1.3.
    traffic: Option<(Secret, bool)>,
    failures: u32,
    /// Bytes of contents that are missing before the next ones.
    missing: u32,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    halves: [Half; 2],
    client_random: Option<[u8; 32]>,
    server_random: Option<[u8; 32]>,
    suite: Option<Suite>,
    /// It was counted that there is no secret.
    is_told: bool,
}

/// What a record did.
enum Step {
    On,
    /// It waits for a secret.
    Waits,
    /// Nothing more of this direction can be read.
    Over(&'static str),
}

impl Connection {
    /// Whether these bytes are of TLS, or may be: else they are left to others. A direction is of TLS from a piece that
    /// begins with a hello.
    pub fn takes(&mut self, side: Side, bytes: &[u8]) -> bool {
        let half = &mut self.halves[side.index()];
        if !matches!(half.phase, Phase::Looking) {
            return true;
        }
        let is_early = half.passed <= TLS_PREAMBLE_BYTES;
        half.passed = half.passed.saturating_add(bytes.len() as u64);
        if is_early && begins_with_hello(bytes, side) {
            half.phase = Phase::Plain;
        }
        matches!(half.phase, Phase::Plain)
    }

    /// Reads the next bytes of a direction that [takes](Self::takes) them. `gap`: bytes that are missing before them.
    /// `scratch` is for contents. Without bytes, tries again to find secrets.
    pub fn feed(
        &mut self,
        side: Side,
        bytes: &[u8],
        gap: u32,
        carried: &Carried,
        scratch: &mut Vec<u8>,
        ends: &mut dyn Ends,
    ) {
        if matches!(self.halves[side.index()].phase, Phase::Over) {
            return ends.count(UNREAD, bytes.len() as u64);
        }
        if gap > 0 && !self.gap(side, gap as usize, carried) {
            ends.count(UNREAD, bytes.len() as u64);
            return self.give_up(side, BROKEN, carried, ends);
        }
        let half = &mut self.halves[side.index()];
        let skipped = half.skip.min(bytes.len());
        half.skip -= skipped;
        let mut rest = &bytes[skipped..];
        // Records are read where they lie, unless one began in an earlier block.
        if !half.part.is_empty() {
            if !carried.keep(&mut half.part, rest) {
                ends.count(UNREAD, rest.len() as u64);
                return self.give_up(side, NO_ROOM, carried, ends);
            }
            let part = std::mem::take(&mut half.part);
            let used = self.records(side, &part, scratch, carried, ends);
            let half = &mut self.halves[side.index()];
            half.part = part;
            match used {
                Some(used) => carried.pass(&mut half.part, used),
                None => {
                    ends.count(UNREAD, half.part.len() as u64);
                    carried.clear(&mut half.part);
                }
            }
            rest = &[];
        }
        if !rest.is_empty() {
            let Some(used) = self.records(side, rest, scratch, carried, ends) else {
                return ends.count(UNREAD, rest.len() as u64);
            };
            let half = &mut self.halves[side.index()];
            if !carried.keep(&mut half.part, &rest[used..]) {
                ends.count(UNREAD, (rest.len() - used) as u64);
                return self.give_up(side, NO_ROOM, carried, ends);
            }
        }
        let half = &self.halves[side.index()];
        if matches!(half.phase, Phase::Wanting(_)) && half.part.len() > WAITING_BYTES {
            self.give_up_waiting(side, carried, ends);
        }
    }

    /// Tries again to find secrets that records wait for: of the client first, as it speaks first.
    pub fn retry(&mut self, carried: &Carried, scratch: &mut Vec<u8>, ends: &mut dyn Ends) {
        for side in [Side::Client, Side::Server] {
            let half = &self.halves[side.index()];
            if matches!(half.phase, Phase::Wanting(_)) && !half.part.is_empty() {
                self.feed(side, &[], 0, carried, scratch, ends);
            }
        }
    }

    /// The direction is over: what waits is tried for the last time. Gives whether contents are missing at the end.
    pub fn end(&mut self, side: Side, carried: &Carried, scratch: &mut Vec<u8>, ends: &mut dyn Ends) -> bool {
        self.feed(side, &[], 0, carried, scratch, ends);
        let half = &mut self.halves[side.index()];
        let is_cut = !half.part.is_empty() || half.skip > 0 || half.missing > 0;
        if matches!(half.phase, Phase::Wanting(_)) && !half.part.is_empty() {
            self.give_up_waiting(side, carried, ends);
        }
        let half = &mut self.halves[side.index()];
        carried.clear(&mut half.part);
        half.phase = Phase::Over;
        is_cut
    }

    /// Gives up what waits for a secret.
    fn give_up_waiting(&mut self, side: Side, carried: &Carried, ends: &mut dyn Ends) {
        let half = &mut self.halves[side.index()];
        ends.count(UNREAD, half.part.len() as u64);
        carried.clear(&mut half.part);
        (half.phase, half.missing) = (Phase::Over, 1);
        if !std::mem::replace(&mut self.is_told, true) {
            ends.count(WITHOUT_SECRET, 1);
        }
    }

    fn give_up(&mut self, side: Side, why: &'static str, carried: &Carried, ends: &mut dyn Ends) {
        let half = &mut self.halves[side.index()];
        carried.clear(&mut half.part);
        half.phase = Phase::Over;
        half.missing = half.missing.max(1);
        ends.count(why, 1);
    }

    /// Bytes are missing. Within one record they cost that record; else no one knows where the next one begins: `false`.
    fn gap(&mut self, side: Side, mut gap: usize, carried: &Carried) -> bool {
        let half = &mut self.halves[side.index()];
        let skipped = half.skip.min(gap);
        (half.skip, gap) = (half.skip - skipped, gap - skipped);
        if gap == 0 {
            return true;
        }
        let Phase::Keyed(keys) = &mut half.phase else { return false };
        let Some(&[_, _, _, high, low]) = half.part.first_chunk() else { return false };
        let body = usize::from(u16::from_be_bytes([high, low]));
        let left = RECORD_HEADER_BYTES + body - half.part.len();
        if gap > left {
            return false;
        }
        keys.pass();
        half.missing = half.missing.saturating_add(body.saturating_sub(keys.suite().overhead()) as u32);
        half.skip = left - gap;
        carried.clear(&mut half.part);
        true
    }

    /// Reads whole records from the start of `bytes`, and gives how many bytes they have. `None`: the direction is over.
    fn records(
        &mut self,
        side: Side,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        carried: &Carried,
        ends: &mut dyn Ends,
    ) -> Option<usize> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let Some(header) = rest.first_chunk::<RECORD_HEADER_BYTES>() else { return Some(used) };
            let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if !(20..=24).contains(&header[0]) || header[1] != 3 || body > RECORD_BODY_LIMIT {
                self.give_up(side, MALFORMED, carried, ends);
                return None;
            }
            let Some(body) = rest.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body) else { return Some(used) };
            match self.record(side, *header, body, scratch, ends) {
                Step::On => used += RECORD_HEADER_BYTES + body.len(),
                Step::Waits => return Some(used),
                Step::Over(why) => {
                    self.give_up(side, why, carried, ends);
                    return None;
                }
            }
        }
    }

    fn record(
        &mut self,
        side: Side,
        header: [u8; RECORD_HEADER_BYTES],
        body: &[u8],
        scratch: &mut Vec<u8>,
        ends: &mut dyn Ends,
    ) -> Step {
        let is_new = self.suite.is_some_and(Suite::is_new);
        let half = &mut self.halves[side.index()];
        match (header[0], &half.phase) {
            (CHANGE_CIPHER_SPEC, Phase::Plain) if !is_new => {
                if self.suite.is_none() && self.server_random.is_some() {
                    return Step::Over(UNKNOWN);
                }
                half.phase = Phase::Wanting(Label::Master);
                return Step::On;
            }
            // RFC 8446, D.4: it means nothing there. Alerts may be plain before the keys are known.
            (CHANGE_CIPHER_SPEC | ALERT, _) if is_new => return Step::On,
            (HANDSHAKE, Phase::Plain) => return self.messages(side, body, ends),
            (ALERT, Phase::Plain) => return Step::On,
            // Early data, which have a secret of their own.
            (APPLICATION_DATA, Phase::Plain) => {
                ends.count(UNDECRYPTED, 1);
                return Step::On;
            }
            (HANDSHAKE, Phase::Wanting(Label::Handshake(_))) if is_new => return self.messages(side, body, ends),
            _ => {}
        }
        if let Phase::Wanting(label) = half.phase {
            match self.keys(side, label, ends) {
                Some(keys) => self.halves[side.index()].phase = Phase::Keyed(keys),
                None => return Step::Waits,
            }
        }
        self.encrypted(side, header, body, scratch, ends)
    }

    /// The keys of a secret, if it is there by now.
    fn keys(&mut self, side: Side, label: Label, ends: &mut dyn Ends) -> Option<Keys> {
        let (random, suite) = (self.client_random?, self.suite?);
        let secret = ends.secret(&random, label)?;
        if label == Label::Master {
            return Keys::of_master(suite, &secret, &random, &self.server_random?, side);
        }
        self.halves[side.index()].traffic = Some((secret, matches!(label, Label::Handshake(_))));
        Keys::of_traffic(suite, &secret)
    }

    fn encrypted(
        &mut self,
        side: Side,
        header: [u8; RECORD_HEADER_BYTES],
        body: &[u8],
        scratch: &mut Vec<u8>,
        ends: &mut dyn Ends,
    ) -> Step {
        let half = &mut self.halves[side.index()];
        let Phase::Keyed(keys) = &mut half.phase else { return Step::Over(MALFORMED) };
        if !keys.decrypt(header, body, scratch) {
            ends.count(UNDECRYPTED, 1);
            half.failures += 1;
            // Early data that the server refused stand before the client's first record with these keys.
            let is_early = keys.is_unused() && half.traffic.is_some_and(|(_, is_handshake)| is_handshake);
            if !is_early {
                keys.pass();
                half.missing = half.missing.saturating_add(body.len().saturating_sub(keys.suite().overhead()) as u32);
            }
            return if half.failures >= FAILURES && !is_early { Step::Over(MALFORMED) } else { Step::On };
        }
        half.failures = 0;
        let kind = if keys.suite().is_new() { inner(scratch) } else { Some(header[0]) };
        match kind {
            Some(APPLICATION_DATA) => {
                let gap = std::mem::take(&mut half.missing);
                if !scratch.is_empty() {
                    ends.contents(side, scratch, gap);
                }
                Step::On
            }
            Some(HANDSHAKE) => self.messages(side, scratch, ends),
            // Of a renegotiation.
            Some(CHANGE_CIPHER_SPEC) => {
                half.phase = Phase::Wanting(Label::Master);
                Step::On
            }
            Some(_) => Step::On,
            None => Step::Over(MALFORMED),
        }
    }

    /// Reads handshake messages, which decide on keys.
    fn messages(&mut self, side: Side, mut bytes: &[u8], ends: &mut dyn Ends) -> Step {
        while !bytes.is_empty() {
            match self.halves[side.index()].handshake.next(&mut bytes) {
                Message::Unfinished => {}
                Message::TooLong => return Step::Over(MALFORMED),
                Message::Hello => {
                    let hello = std::mem::take(&mut self.halves[side.index()].handshake);
                    let known = self.hello(&hello);
                    self.halves[side.index()].handshake = hello;
                    if !known {
                        return Step::Over(UNKNOWN);
                    }
                }
                Message::Other(kind) => {
                    if let Some(step) = self.other(side, kind, ends) {
                        return step;
                    }
                }
            }
        }
        Step::On
    }

    /// `false`: the version or the suite is not read.
    fn hello(&mut self, hello: &Handshake) -> bool {
        match message(hello.hello()) {
            Ok(Hello::Client(client)) => {
                self.client_random = Some(*client.random);
                true
            }
            Ok(Hello::Server(server)) => {
                let version = server.version();
                self.server_random = Some(*server.random);
                self.suite = match version {
                    TLS_1_2 | TLS_1_3 => Suite::of(server.cipher_suite, version == TLS_1_3),
                    _ => None,
                };
                if version == TLS_1_3 && *server.random != TRY_AGAIN {
                    for side in [Side::Client, Side::Server] {
                        let phase = &mut self.halves[side.index()].phase;
                        // A client may change its cipher in form only before it hears the server's hello.
                        if matches!(phase, Phase::Plain | Phase::Wanting(Label::Master)) {
                            *phase = Phase::Wanting(Label::Handshake(side));
                        }
                    }
                }
                self.suite.is_some()
            }
            Err(_) => false,
        }
    }

    /// A message of a type that changes keys of TLS 1.3. `None`: it changes none.
    fn other(&mut self, side: Side, kind: u8, ends: &mut dyn Ends) -> Option<Step> {
        let suite = self.suite.filter(|suite| suite.is_new())?;
        let half = &mut self.halves[side.index()];
        match (kind, half.traffic) {
            (FINISHED, Some((_, true))) => {
                half.phase = Phase::Wanting(Label::Application(side));
                half.traffic = None;
                None
            }
            (KEY_UPDATE, Some((secret, false))) => {
                let next = keys::updated(suite, &secret);
                match next.and_then(|next| Keys::of_traffic(suite, &next)) {
                    Some(keys) => {
                        half.phase = Phase::Keyed(keys);
                        half.traffic = next.map(|next| (next, false));
                        None
                    }
                    None => {
                        ends.count(UNDECRYPTED, 1);
                        Some(Step::Over(MALFORMED))
                    }
                }
            }
            _ => None,
        }
    }
}

/// Whether a piece of a stream begins with a record of a hello of this side.
fn begins_with_hello(bytes: &[u8], side: Side) -> bool {
    let kind = if side.is_client() { handshake::CLIENT_HELLO } else { handshake::SERVER_HELLO };
    matches!(bytes, [HANDSHAKE, 3, 0..=4, _, _, first, ..] if *first == kind)
}

/// Takes the type and the padding off the contents of a record of TLS 1.3 (RFC 8446, 5.2).
fn inner(contents: &mut Vec<u8>) -> Option<u8> {
    let at = contents.iter().rposition(|byte| *byte != 0)?;
    let kind = contents[at];
    contents.truncate(at);
    Some(kind)
}
