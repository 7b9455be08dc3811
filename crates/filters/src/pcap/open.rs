//! Finds out what a file is before any of it is given: from its first bytes, never from its name.

use crate::parts::system::reason;
use base::terminal;
use packet::capture::{Damage, Stop};
use packet::capture_file::Reader;
use packet::pcap_file::Header;
use packet::sniff::{FileKind, SNIFF_BYTES, sniff};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes to look at: enough to check the header of either format.
const LOOK_BYTES: usize = Header::BYTES;

const _: () = assert!(LOOK_BYTES >= SNIFF_BYTES);

/// The formats that can be read, for messages.
const ACCEPTED: &str = "pcap, pcapng, or these compressed";

/// The kind of an opened file.
#[derive(Debug)]
pub(super) enum Opened {
    Capture(File),
    /// A compressed file, which may hold a capture.
    Compressed(File),
    /// Not a regular file. Its kind is known only after reading it, which may wait for ever.
    Pipe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// One line for the user.
    pub(super) text: String,
    /// A suggestion for the user.
    pub(super) help: Option<String>,
    /// The file is something else than a capture. In a folder this is not an error.
    pub(super) foreign: bool,
}

impl Refusal {
    pub(super) fn new(text: String) -> Refusal {
        Refusal { text, help: None, foreign: false }
    }

    /// Refuses a file that cannot be opened or read.
    pub(super) fn system(name: impl AsRef<OsStr>, error: &io::Error) -> Refusal {
        Refusal::new(format!("cannot open {}: {}", terminal::name(name), reason(error)))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        self.help.iter().try_for_each(|help| write!(f, " ({help})"))
    }
}

/// Opens a file and checks its first bytes. `may_grow` accepts a file that is still too short for them.
pub(super) fn open(path: &Path, may_grow: bool) -> Result<Opened, Refusal> {
    let name = terminal::name(path);
    let system = |error: io::Error| Refusal::system(path, &error);
    if !fs::metadata(path).map_err(system)?.is_file() {
        return Ok(Opened::Pipe);
    }
    let file = File::open(path).map_err(system)?;
    let mut first = [0; LOOK_BYTES];
    let first = look(&file, &mut first).map_err(system)?;
    match Reader::open(first) {
        Ok(_) => Ok(Opened::Capture(file)),
        Err(Stop::More { .. }) if may_grow => Ok(Opened::Capture(file)),
        Err(_) if sniff(first).is_some_and(FileKind::is_compressed) => Ok(Opened::Compressed(file)),
        Err(stop) => Err(refuse(&name, first, stop)),
    }
}

/// Reads the first bytes of a file, as many as it has.
fn look<'a>(file: &File, space: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut len = 0;
    while len < space.len() {
        match file.read_at(&mut space[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&space[..len])
}

/// Explains why a file with these first bytes is not read as a capture.
pub(super) fn refuse(name: &str, first: &[u8], stop: Stop) -> Refusal {
    let (kind, foreign) = (sniff(first), !matches!(sniff(first), Some(FileKind::Pcap | FileKind::Pcapng)));
    if first.is_empty() {
        return Refusal { text: format!("{name} is empty: not a capture"), help: None, foreign };
    }
    if !foreign {
        let text = match stop {
            Stop::More { .. } => format!("{name} is cut: it ends inside its header"),
            Stop::Damaged(Damage { cause, .. }) => format!("{name} cannot be read: {cause}"),
        };
        return Refusal::new(text);
    }
    let begins = first.iter().take(8).map(|byte| format!(" {byte:02x}")).collect::<String>();
    let looks = match kind {
        Some(kind) => format!(", looks like {}", kind.name()),
        None if first.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~')) => {
            ", looks like text".into()
        }
        None => String::new(),
    };
    Refusal {
        text: format!("{name} is not a capture ({ACCEPTED}): begins with{begins}{looks}"),
        help: (kind == Some(FileKind::Zip))
            .then(|| format!("`unzip -p {name} | streamline run 'pcap - | ...'` reads it")),
        foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_a_file_looks_like() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let check = |bytes: &[u8], expected: Result<&str, &str>| {
            fs::write(&path, bytes).unwrap();
            let opened = open(&path, false).map(|opened| match opened {
                Opened::Capture(_) => "capture",
                Opened::Compressed(_) => "compressed",
                Opened::Pipe => "pipe",
            });
            let text = |refusal: Refusal| refusal.text.split_once("/x ").unwrap().1.to_string();
            assert_eq!(opened.map_err(text), expected.map_err(str::to_string));
        };
        let foreign = |rest: &str| format!("is not a capture ({ACCEPTED}): begins with {rest}");
        let mut header = Vec::new();
        let link = packet::LinkType::ETHERNET;
        packet::pcap_file::write_header(&mut header, link, 100, packet::pcap_file::Resolution::Nanoseconds);
        check(&header, Ok("capture"));
        check(&header[..23], Err("is cut: it ends inside its header"));
        header[4] = 1;
        check(&header, Err("cannot be read: archaic pcap format, before version 2"));
        check(b"", Err("is empty: not a capture"));
        for magic in
            [&b"\x1f\x8b\x08\0"[..], b"\x28\xb5\x2f\xfd\0\0\0\0\0", b"\xfd7zXZ\0\0", b"BZh91AY", b"\x04\x22\x4d\x18"]
        {
            check(magic, Ok("compressed"));
        }
        check(b"PK\x03\x04\x14\0", Err(&foreign("50 4b 03 04 14 00, looks like zip")));
        check(b"hello\n", Err(&foreign("68 65 6c 6c 6f 0a, looks like text")));
        check(b"\x7fELF", Err(&foreign("7f 45 4c 46")));
        assert!(matches!(open(Path::new("/dev/null"), false), Ok(Opened::Pipe)));
        let missing = open(&folder.path().join("y"), false).unwrap_err();
        assert!(missing.text.ends_with("/y: No such file or directory"), "{}", missing.text);
    }
}
