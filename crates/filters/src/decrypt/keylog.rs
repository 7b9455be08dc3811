//! A key log (SSLKEYLOGFILE: draft-ietf-tls-keylogfile), read as it grows.

use base::limits::KEYLOG_SECRETS;
use protocols::tls::decrypt::{Label, Secret};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest line: a label, 32 and 48 bytes in hexadecimal digits, and room.
const LINE_BYTES: usize = 1024;

const READ_BYTES: usize = 64 << 10;

/// The secrets of a key log.
#[derive(Debug)]
pub(super) struct KeyLog {
    file: File,
    /// Bytes read.
    read: u64,
    /// A line under way.
    part: Vec<u8>,
    by_random: HashMap<[u8; 32], Vec<(Label, Secret)>>,
    /// The keys of `by_random`, in the order in which they came.
    order: VecDeque<[u8; 32]>,
    secrets: usize,
    /// Secrets that were left out for want of room, and are not counted yet.
    left_out: u64,
}

impl KeyLog {
    /// Opens a file, or a pipe without waiting for its writer.
    pub(super) fn open(path: &Path) -> io::Result<KeyLog> {
        let without_waiting = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from(ErrorKind::IsADirectory));
        }
        Ok(KeyLog {
            file,
            read: 0,
            part: Vec::new(),
            by_random: HashMap::new(),
            order: VecDeque::new(),
            secrets: 0,
            left_out: 0,
        })
    }

    /// The secret of a connection. Reads what was added to the file if it is not known yet: a system call.
    pub(super) fn find(&mut self, random: &[u8; 32], label: Label) -> Option<Secret> {
        if self.known(random, label).is_none() {
            self.read_on();
        }
        self.known(random, label)
    }

    /// Secrets left out since the last call.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    fn known(&self, random: &[u8; 32], label: Label) -> Option<Secret> {
        let secrets = self.by_random.get(random)?;
        secrets.iter().find(|(known, _)| *known == label).map(|(_, secret)| *secret)
    }

    fn read_on(&mut self) {
        let length = self.file.metadata().ok().filter(|found| found.is_file()).map(|found| found.len());
        if length.is_some_and(|length| length < self.read) && self.file.seek(SeekFrom::Start(0)).is_ok() {
            // Another program has truncated the file.
            self.read = 0;
            self.part.clear();
        }
        let mut piece = vec![0; READ_BYTES];
        // An error, such as a pipe without a writer, is as good as no news.
        while let Ok(read @ 1..) = self.file.read(&mut piece) {
            self.read += read as u64;
            for line in piece[..read].split_inclusive(|byte| *byte == b'\n') {
                self.part.extend_from_slice(&line[..line.len().min(LINE_BYTES)]);
                if line.ends_with(b"\n") {
                    let whole = std::mem::take(&mut self.part);
                    self.line(&whole);
                } else {
                    self.part.truncate(LINE_BYTES);
                }
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some((random, label, secret)) = parse(line) else { return };
        let known = self.by_random.entry(random).or_insert_with(|| {
            self.order.push_back(random);
            Vec::new()
        });
        known.retain(|(known, _)| {
            self.secrets -= usize::from(*known == label);
            *known != label
        });
        known.push((label, secret));
        self.secrets += 1;
        while self.secrets > KEYLOG_SECRETS
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.by_random.remove(&oldest).map_or(0, |secrets| secrets.len());
            self.secrets -= gone;
            self.left_out += gone as u64;
        }
    }
}

/// The parts of a line. `None`: a comment, or a line of something else.
fn parse(line: &[u8]) -> Option<([u8; 32], Label, Secret)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (label, random, secret) = (Label::of(words.next()?)?, words.next()?, words.next()?);
    let random = digits(random)?.try_into().ok()?;
    Some((random, label, Secret::new(&digits(secret)?)?))
}

fn digits(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(value(pair[0])? << 4 | value(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocols::conversation::Side;
    use std::io::Write;

    #[test]
    fn a_log_is_read_as_it_grows() {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        let mut log = KeyLog::open(written.path()).unwrap();
        let random = [0xab; 32];
        assert_eq!(log.find(&random, Label::Master), None);
        let line = format!("# a comment\n\nCLIENT_RANDOM {} {}\n", "ab".repeat(32), "cd".repeat(48));
        let (one, other) = line.split_at(80);
        written.write_all(one.as_bytes()).unwrap();
        assert_eq!(log.find(&random, Label::Master), None);
        written.write_all(other.as_bytes()).unwrap();
        assert_eq!(log.find(&random, Label::Master), Secret::new(&[0xcd; 48]));
        let client = Label::Application(Side::Client);
        assert_eq!(log.find(&random, client), None);
        // Lines that are no secret, and one that is too long.
        let secret = format!("CLIENT_TRAFFIC_SECRET_0 {} {}\n", "ab".repeat(32), "ef".repeat(32));
        write!(written, "{}\nEXPORTER_SECRET 00 00\n{secret}", "x".repeat(3 * LINE_BYTES)).unwrap();
        assert_eq!(log.find(&random, client), Secret::new(&[0xef; 32]));
        // Another program truncates the file.
        written.as_file_mut().set_len(0).unwrap();
        written.as_file_mut().seek(SeekFrom::Start(0)).unwrap();
        written.write_all(secret.replace("ab", "01").as_bytes()).unwrap();
        assert_eq!(log.find(&[1; 32], client), Secret::new(&[0xef; 32]));
    }

    #[test]
    fn lines() {
        let check = |line: &str, is_secret: bool| assert_eq!(parse(line.as_bytes()).is_some(), is_secret, "{line}");
        let (random, secret) = ("0A".repeat(32), "1f".repeat(32));
        check(&format!("SERVER_HANDSHAKE_TRAFFIC_SECRET {random} {secret}\r\n"), true);
        check(&format!("CLIENT_RANDOM {random} {secret}zz"), false);
        check(&format!("CLIENT_RANDOM {random} {secret}0"), false);
        check(&format!("CLIENT_RANDOM {random}00 {secret}"), false);
        check(&format!("CLIENT_RANDOM {random} 00"), false);
        check("CLIENT_RANDOM", false);
        check("", false);
    }
}
