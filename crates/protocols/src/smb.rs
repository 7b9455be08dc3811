//! Messages of SMB, versions 1 (MS-CIFS, MS-SMB) and 2 (MS-SMB2): their headers, and the bodies that name shares,
//! pipes and files or carry their data. Session messages and encrypted or compressed ones are not read.

mod conversation;
mod names;
mod pipes;

pub use conversation::{ASKED, Conversation, KEPT, KEPT_BYTES, UNSEEN};
pub use pipes::Hears;

use crate::conversation::{About, Kind};
use crate::fit::Fit;
use std::ops::Range;

/// A fact about a command, or about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The version of the protocol, 1 or 2.
    Version,
    /// The version that the server chose.
    Dialect,
    /// The command's name.
    Command,
    /// The name of the result,
    Status,
    /// and its number.
    StatusCode,
    /// The numbers of session
    Session,
    /// and share.
    Tree,
    /// The file to open.
    Name,
    /// The file that is written or read.
    File,
    /// The share to connect to.
    Share,
    /// The share, if it has pipes.
    Pipe,
}

impl crate::conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("", "smb.version", Kind::Number),
        About { field: ["", "smb.dialect"], buffer: [""; 2], kind: Kind::Text },
        About { field: ["smb.command", ""], buffer: [""; 2], kind: Kind::Text },
        About { field: ["", "smb.status"], buffer: [""; 2], kind: Kind::Text },
        About { field: ["", "smb.status_code"], buffer: [""; 2], kind: Kind::Text },
        About { field: ["smb.session_id", ""], buffer: [""; 2], kind: Kind::Number },
        About { field: ["smb.tree_id", ""], buffer: [""; 2], kind: Kind::Number },
        About { field: ["smb.filename", ""], buffer: [""; 2], kind: Kind::Text },
        About { field: ["smb.filename"; 2], buffer: [""; 2], kind: Kind::Text },
        About { field: ["smb.share", ""], buffer: ["smb.share", ""], kind: Kind::Text },
        About { field: ["smb.named_pipe", ""], buffer: ["smb.named_pipe", ""], kind: Kind::Text },
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// The prefix of each message on a connection (RFC 1002, 4.3): its type and length.
pub const PREFIX_BYTES: usize = 4;

/// The length of the message behind a prefix, and whether it is SMB.
pub fn prefix(bytes: &[u8; PREFIX_BYTES]) -> (usize, bool) {
    let [kind, high, middle, low] = *bytes;
    (u32::from_be_bytes([0, high, middle, low]) as usize, kind == 0)
}

/// An open file or pipe: an identifier of version 2, or one of version 1 with zeros behind it.
pub type File = [u8; 16];

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// 1 or 2.
    pub version: u8,
    /// The command's number in that version.
    pub command: u16,
    /// 0, or the reason why a command failed.
    pub status: u32,
    /// The server sent it.
    pub is_response: bool,
    /// The share's number.
    pub tree: u32,
    /// The session's number.
    pub session: u64,
    /// The number of a request, which its response repeats.
    pub message: u64,
    /// Texts are UTF-16.
    pub is_unicode: bool,
    /// Offset of the next message of the chain from the start of this one; 0 for the last.
    pub next: usize,
}

/// The status of a preliminary response.
pub const PENDING: u32 = 0x0000_0103;

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The client's versions.
    Negotiate,
    /// The client connects to a share.
    TreeConnect {
        /// Its name.
        path: &'a [u8],
    },
    /// The share is connected.
    TreeConnected {
        /// The share has pipes to other programs instead of files.
        is_pipe: bool,
    },
    /// The client opens or creates a file.
    Create {
        /// Its name.
        name: &'a [u8],
    },
    /// The file is open.
    Created {
        /// Its number from now on.
        file: File,
    },
    /// The client writes to a file.
    Write {
        /// The file.
        file: File,
        /// Offset in the file.
        offset: u64,
        /// Bytes, as far as the message has them.
        data: &'a [u8],
    },
    /// The client reads from a file.
    Read {
        /// The file.
        file: File,
        /// Offset in the file.
        offset: u64,
    },
    /// Bytes read from a file or pipe.
    Data {
        /// Bytes, as far as the message has them.
        data: &'a [u8],
    },
    /// The client writes to a pipe; the response carries the answer.
    Transact {
        /// The pipe.
        file: File,
        /// The bytes.
        data: &'a [u8],
    },
    /// The client closes a file.
    Close {
        /// The file.
        file: File,
    },
    /// The server chose a version.
    Negotiated {
        /// Its number in version 2; `None`: version 1.
        dialect: Option<u16>,
    },
    /// Another message.
    Other,
    /// The message is shorter than its fields say.
    Damaged,
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn wide(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// At most `length` bytes from `at` on, as far as the message has them.
fn part(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    Some(&rest[..rest.len().min(length)])
}

/// Length of a header of version 1.
const HEADER_1: usize = 32;
/// Length of a header of version 2.
const HEADER_2: usize = 64;
/// Most commands of a chain in version 1.
const CHAIN: usize = 16;

impl Header {
    /// Reads the header of a message; `None` if it is truncated or not SMB.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        match bytes.first_chunk()? {
            b"\xffSMB" => {
                let header = bytes.get(..HEADER_1)?;
                Some(Header {
                    version: 1,
                    command: u16::from(header[4]),
                    status: long(header, 5)?,
                    is_response: header[9] & 0x80 != 0,
                    tree: u32::from(short(header, 24)?),
                    session: u64::from(short(header, 28)?),
                    message: u64::from(short(header, 30)?) | u64::from(short(header, 26)?) << 16,
                    is_unicode: short(header, 10)? & 0x8000 != 0,
                    next: 0,
                })
            }
            b"\xfeSMB" => {
                let header = bytes.get(..HEADER_2)?;
                Some(Header {
                    version: 2,
                    command: short(header, 12)?,
                    status: long(header, 8)?,
                    is_response: header[16] & 1 != 0,
                    tree: long(header, 36)?,
                    session: wide(header, 40)?,
                    message: wide(header, 24)?,
                    is_unicode: true,
                    next: long(header, 20)? as usize,
                })
            }
            _ => None,
        }
    }

    /// Reads a message from its header on. Version 1 may chain commands: `each` gets them. Returns `false` if it did not
    /// get all: the chain has more than 16 commands, or its commands have more data than the message, because several
    /// refer to the same bytes.
    pub fn bodies<'a>(&self, message: &'a [u8], mut each: impl FnMut(Body<'a>)) -> bool {
        if self.version == 2 {
            each(self.body_2(message).unwrap_or(Body::Damaged));
            return true;
        }
        let (mut command, mut at) = (self.command as u8, HEADER_1);
        let mut data_left = message.len();
        for _ in 0..CHAIN {
            let Some(words) = message.get(at).and_then(|count| part(message, at + 1, 2 * usize::from(*count))) else {
                each(Body::Damaged);
                return true;
            };
            let behind = at + 1 + words.len();
            let body = match words.len() {
                // A failed command has no contents.
                0 if self.is_response => Some(Body::Other),
                _ => self.body_1(command, message, words, behind + 2),
            };
            let body = body.unwrap_or(Body::Damaged);
            if let Body::Write { data, .. } | Body::Transact { data, .. } | Body::Data { data } = body {
                let Some(left) = data_left.checked_sub(data.len()) else { return false };
                data_left = left;
            }
            each(body);
            let is_chained = matches!(command, 0x24 | 0x2d | 0x2e | 0x2f | 0x73 | 0x74 | 0x75 | 0xa2);
            let next = short(words, 2).map(usize::from).filter(|next| is_chained && *next > at && words[0] != 0xff);
            let Some(next) = next else { return true };
            (command, at) = (words[0], next);
        }
        false
    }

    /// The start of a message that may have bytes of a file: with it, [`transfer`](Self::transfer) finds them.
    pub fn transfer_bytes(&self) -> Option<usize> {
        match (self.version, self.command, self.is_response) {
            (2, 9, false) => Some(HEADER_2 + 48),
            (2, 8, true) => Some(HEADER_2 + 16),
            (1, 0x2f, false) => Some(HEADER_1 + 1 + 28),
            (1, 0x2e, true) => Some(HEADER_1 + 1 + 24),
            _ => None,
        }
    }

    /// Where a message that is not chained has bytes of a file; `start` has [`transfer_bytes`](Self::transfer_bytes).
    pub fn transfer(&self, start: &[u8]) -> Option<Transfer> {
        self.transfer_bytes()?;
        if self.version == 2 {
            let failed = self.is_response && (self.status & 0xc000_0000 == 0xc000_0000 || self.status == PENDING);
            return transfer_2(self.command, start.get(HEADER_2..)?).filter(|_| !failed);
        }
        let words = part(start, HEADER_1 + 1, 2 * usize::from(*start.get(HEADER_1)?))?;
        transfer_1(self.command as u8, words).filter(|_| words[0] == 0xff)
    }

    /// A command of version 1: its words, and where its bytes begin.
    fn body_1<'a>(&self, command: u8, message: &'a [u8], words: &'a [u8], bytes_at: usize) -> Option<Body<'a>> {
        let file = |at: usize| short(words, at).map(file_of_number);
        Some(match (command, self.is_response) {
            (0x72, false) => Body::Negotiate,
            (0x72, true) => Body::Negotiated { dialect: None },
            (0x75, false) => {
                let mut at = bytes_at + usize::from(short(words, 6)?);
                at += usize::from(self.is_unicode) & at & 1;
                Body::TreeConnect { path: self.text(message.get(at..)?) }
            }
            (0x75, true) => Body::TreeConnected { is_pipe: message.get(bytes_at..)?.starts_with(b"IPC\0") },
            (0xa2, false) => {
                let at = bytes_at + (usize::from(self.is_unicode) & bytes_at & 1);
                Body::Create { name: self.text(part(message, at, usize::from(short(words, 5)?))?) }
            }
            (0xa2, true) => Body::Created { file: file(5)? },
            (0x2f, false) => write(message, transfer_1(command, words)?)?,
            (0x2e, false) => {
                let offset = u64::from(long(words, 6)?) | u64::from(long(words, 20).unwrap_or(0)) << 32;
                Body::Read { file: file(4)?, offset }
            }
            (0x2e, true) => Body::Data { data: transfer_1(command, words)?.of(message)? },
            // Only transactions with a pipe have two words of their own: the first is the operation.
            (0x25, false) if words.get(26) == Some(&2) && short(words, 28) == Some(0x26) => {
                let data = part(message, usize::from(short(words, 24)?), usize::from(short(words, 22)?))?;
                Body::Transact { file: file(30)?, data }
            }
            (0x25, true) => {
                Body::Data { data: part(message, usize::from(short(words, 14)?), usize::from(short(words, 12)?))? }
            }
            (0x04, false) => Body::Close { file: file(0)? },
            _ => Body::Other,
        })
    }

    /// A text up to its terminating zero.
    fn text<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let end = match self.is_unicode {
            true => bytes.chunks_exact(2).position(|pair| pair == [0, 0]).map(|pairs| 2 * pairs),
            false => bytes.iter().position(|byte| *byte == 0),
        };
        &bytes[..end.unwrap_or(bytes.len())]
    }

    fn body_2<'a>(&self, message: &'a [u8]) -> Option<Body<'a>> {
        let body = message.get(HEADER_2..)?;
        let file = |at: usize| body.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let data = |at: usize, length: usize| part(message, at, length);
        let failed = self.is_response && self.status & 0xc000_0000 == 0xc000_0000;
        Some(match (self.command, self.is_response) {
            (0, false) => Body::Negotiate,
            (0, true) if !failed => Body::Negotiated { dialect: Some(short(body, 4)?) },
            _ if failed || self.is_response && self.status == PENDING => Body::Other,
            (3, false) => Body::TreeConnect { path: data(usize::from(short(body, 4)?), usize::from(short(body, 6)?))? },
            (3, true) => Body::TreeConnected { is_pipe: *body.get(2)? == 2 },
            (5, false) => Body::Create { name: data(usize::from(short(body, 44)?), usize::from(short(body, 46)?))? },
            (5, true) => Body::Created { file: file(64)? },
            (6, false) => Body::Close { file: file(8)? },
            (8, false) => Body::Read { file: file(16)?, offset: wide(body, 8)? },
            (8, true) => Body::Data { data: transfer_2(8, body)?.of(message)? },
            (9, false) => write(message, transfer_2(9, body)?)?,
            // FSCTL_PIPE_TRANSCEIVE.
            (11, false) if long(body, 4)? == 0x0011_c017 => {
                Body::Transact { file: file(8)?, data: data(long(body, 24)? as usize, long(body, 28)? as usize)? }
            }
            (11, true) if long(body, 4)? == 0x0011_c017 => {
                Body::Data { data: data(long(body, 32)? as usize, long(body, 36)? as usize)? }
            }
            _ => Body::Other,
        })
    }
}

/// Where a message has bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The file to write, and the offset in it; `None`: the response to a read.
    pub file: Option<(File, u64)>,
    /// The bytes' place in the message, which may be shorter.
    pub data: Range<usize>,
}

impl Transfer {
    fn of<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        part(message, self.data.start, self.data.len())
    }
}

fn write(message: &[u8], transfer: Transfer) -> Option<Body<'_>> {
    let (file, offset) = transfer.file?;
    Some(Body::Write { file, offset, data: transfer.of(message)? })
}

/// A write (0x2f) of version 1, or the response to a read.
fn transfer_1(command: u8, words: &[u8]) -> Option<Transfer> {
    let number =
        |low: usize, high: usize| Some(usize::from(short(words, low)?) | usize::from(short(words, high)?) << 16);
    let (start, length, file) = match command {
        0x2f => {
            let offset = u64::from(long(words, 6)?) | u64::from(long(words, 24).unwrap_or(0)) << 32;
            (short(words, 22)?, number(20, 18)?, Some((file_of_number(short(words, 4)?), offset)))
        }
        _ => (short(words, 12)?, number(10, 14)?, None),
    };
    let start = usize::from(start);
    Some(Transfer { file, data: start..start + length })
}

/// A write (9) of version 2, or the response to a read, behind the header.
fn transfer_2(command: u16, body: &[u8]) -> Option<Transfer> {
    let length = long(body, 4)? as usize;
    let (start, file) = match command {
        9 => (short(body, 2)?, Some((*body.get(16..)?.first_chunk()?, wide(body, 8)?))),
        _ => (u16::from(*body.get(2)?), None),
    };
    let start = usize::from(start);
    Some(Transfer { file, data: start..start.saturating_add(length) })
}

/// A number of version 1 as an identifier of version 2.
fn file_of_number(number: u16) -> File {
    let mut file = File::default();
    file[..2].copy_from_slice(&number.to_le_bytes());
    file
}

/// Whether a stream begins with an SMB message. `has_names`: clients may send a NetBIOS session request first (RFC 1002,
/// 4.3.2).
pub fn probe(bytes: &[u8], has_names: bool) -> Fit {
    if has_names && bytes.first() == Some(&0x81) {
        return Fit::Is;
    }
    let begins = |word: &[u8]| {
        let same = bytes.len().min(4 + word.len());
        bytes.first().is_none_or(|kind| *kind == 0)
            && bytes.get(4..same).unwrap_or_default() == &word[..same.max(4) - 4]
    };
    match begins(b"\xffSMB") || begins(b"\xfeSMB") {
        true if bytes.len() < 8 => Fit::More,
        begins => Fit::of(begins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(command: u8, is_response: bool, words: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut header = [&b"\xffSMB"[..], &[command], &[0; 27]].concat();
        header[9] = if is_response { 0x80 } else { 0 };
        let count = [(words.len() / 2) as u8];
        [&header[..], &count, words, &(bytes.len() as u16).to_le_bytes(), bytes].concat()
    }

    fn second(command: u8, is_response: bool, body: &[u8]) -> Vec<u8> {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16]) = (command, u8::from(is_response));
        [&header[..], body].concat()
    }

    fn check(message: &[u8], expected: &[Body<'_>]) {
        let mut found = Vec::new();
        Header::parse(message).unwrap().bodies(message, |body| found.push(body));
        assert_eq!(found, expected);
    }

    #[test]
    fn version_1() {
        let tree = first(0x75, false, &[0xff, 0, 0, 0, 0, 0, 1, 0], b"\0\\\\a\\IPC$\0?????\0");
        check(&tree, &[Body::TreeConnect { path: b"\\\\a\\IPC$" }]);
        check(&first(0x75, true, &[0xff, 0, 0, 0, 0, 0], b"IPC\0"), &[Body::TreeConnected { is_pipe: true }]);
        let write = [&[0xff, 0, 0, 0, 7, 0, 9, 0, 0, 0][..], &[0; 10], &[2, 0, 59, 0]].concat();
        let data = Body::Write { file: file_of_number(7), offset: 9, data: b"ab" };
        check(&first(0x2f, false, &write, b"ab"), &[data]);
        // A chain: a session, then a share.
        let mut chain = first(0x73, false, &[0x75, 0, 37, 0], b"");
        chain.truncate(37);
        chain.extend_from_slice(&tree[32..]);
        check(&chain, &[Body::Other, Body::TreeConnect { path: b"\\\\a\\IPC$" }]);
        check(&first(0x2f, false, &[0xff, 0, 0, 0], b""), &[Body::Damaged]);
        // The length of a name counts its terminating zero.
        let create = [&[0xff, 0, 0, 0, 0, 6, 0][..], &[0; 41]].concat();
        check(&first(0xa2, false, &create, b"\\a.b\0x"), &[Body::Create { name: b"\\a.b" }]);
    }

    /// A chain of `count` writes that all refer to the same `length` bytes.
    fn check_chain(count: usize, length: usize, expected: usize) {
        const BLOCK: usize = 27;
        let mut message = first(0x2f, false, &[], b"")[..HEADER_1].to_vec();
        let data_at = (HEADER_1 + count * BLOCK) as u16;
        for number in 1..=count {
            let next = ((HEADER_1 + number * BLOCK) as u16).to_le_bytes();
            let command = if number < count { 0x2f } else { 0xff };
            let (length, data_at) = ((length as u16).to_le_bytes(), data_at.to_le_bytes());
            message.extend_from_slice(&[12, command, 0, next[0], next[1], 7, 0]);
            message.extend_from_slice(&[&[0; 14][..], &length, &data_at, &[0, 0]].concat());
        }
        message.resize(message.len() + length, b'x');
        let mut found = 0;
        let is_whole = Header::parse(&message).unwrap().bodies(&message, |body| {
            assert!(matches!(body, Body::Write { data, .. } if data.len() == length), "{body:?}");
            found += 1;
        });
        assert_eq!((found, is_whole), (expected, expected == count));
    }

    #[test]
    fn chains_are_bounded() {
        check_chain(3, 10, 3);
        check_chain(CHAIN, 10, CHAIN);
        check_chain(1100, 10, CHAIN);
        check_chain(8, 1000, 1);
    }

    #[test]
    fn version_2() {
        let tree = second(3, false, &[9, 0, 0, 0, 72, 0, 4, 0, b'a', 0, b'b', 0]);
        check(&tree, &[Body::TreeConnect { path: b"a\0b\0" }]);
        check(&second(3, true, &[16, 0, 2, 0]), &[Body::TreeConnected { is_pipe: true }]);
        let write = [&[49, 0, 112, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0][..], &[7; 16], &[0; 16], b"xyz"].concat();
        check(&second(9, false, &write), &[Body::Write { file: [7; 16], offset: 5, data: b"xyz" }]);
        check(
            &second(8, true, &[17, 0, 80, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'o', b'k']),
            &[Body::Data { data: b"ok" }],
        );
        let mut failed = second(5, true, &[9, 0]);
        failed[11] = 0xc0;
        check(&failed, &[Body::Other]);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), version: bool, command in 0u8..0xff) {
            let message = match version {
                true => second(command % 20, bytes.len() % 2 == 0, &bytes),
                false => first(command, bytes.len() % 2 == 0, &bytes[..bytes.len() / 2], &bytes),
            };
            let mut count = 0;
            Header::parse(&message).unwrap().bodies(&message, |_| count += 1);
            prop_assert!(count >= 1 && count <= message.len());
            if let Some(header) = Header::parse(&bytes) {
                header.bodies(&bytes, |_| {});
            }
        }
    }
}
