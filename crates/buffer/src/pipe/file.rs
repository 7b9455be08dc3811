//! A file read as if it were a ring: its page cache is the ring, positions are offsets.
//!
//! To a socket, a pipe or another file its bytes go by sendfile(2), which moves pages, not bytes, and never enters this
//! process's memory. Where the kernel refuses that (a file opened for appending, some special files) they are written from
//! the map, which is one copy by the kernel, and counted as copied. To a ring they are copied once, and counted: a
//! descriptor alone would make every reader of that ring map a file that anybody with the right to write it can cut or
//! change under them. Rings are sealed against both; a file cannot be.
//!
//! A file that is cut while it is read reads as zeroes where it is looked at ([`MappedFile::bytes`]) and is an error where
//! it is forwarded.

use super::PipeWriter;
use crate::descriptor::{Descriptor, WIRE_MAX};
use crate::mapped_file::MappedFile;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Bytes asked for ahead of where the file is read, and the longest block a peek shows.
pub const WINDOW_BYTES: u64 = 1 << 20;

/// What of a file a peek showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBlock {
    /// Offset in the file.
    pub pos: u64,
    /// Bytes.
    pub len: usize,
}

/// How bytes left a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStat {
    /// Bytes that the kernel moved by itself.
    pub sent: u64,
    /// Bytes that were copied.
    pub copied: u64,
}

/// A regular file, read from its beginning on.
#[derive(Debug)]
pub struct PipeFile {
    file: File,
    mapped: MappedFile,
    pos: u64,
    /// Everything before was asked for.
    asked: u64,
    stat: FileStat,
}

impl PipeFile {
    /// Maps the file. Fails as [`MappedFile::new`] does.
    pub fn new(file: File) -> io::Result<PipeFile> {
        let mapped = MappedFile::new(file.try_clone()?)?;
        Ok(PipeFile { file, mapped, pos: 0, asked: 0, stat: FileStat::default() })
    }

    /// What it has done so far.
    pub fn stat(&self) -> FileStat {
        self.stat
    }

    /// Offset of the next byte.
    pub fn position(&self) -> u64 {
        self.pos
    }

    /// The next `len` bytes at most, where they lie; `None` at the end. The same again until they are released or
    /// forwarded. Makes a system call for each window, and at the end to see whether there is more.
    pub fn peek(&mut self, len: usize) -> io::Result<Option<FileBlock>> {
        if self.pos >= self.mapped.len() as u64 && self.pos >= self.mapped.grow()? as u64 {
            return Ok(None);
        }
        // A window ahead of this one.
        if self.pos + WINDOW_BYTES > self.asked {
            let from = self.asked.max(self.pos);
            self.asked = self.pos + 2 * WINDOW_BYTES;
            self.mapped.will_need(from as usize, (self.asked - from) as usize);
        }
        let there = (self.mapped.len() as u64 - self.pos).min(WINDOW_BYTES) as usize;
        Ok(Some(FileBlock { pos: self.pos, len: len.min(there) }))
    }

    /// The bytes of a block. What others can do to them meanwhile is said at [`MappedFile::bytes`].
    pub fn look_at(&self, block: &FileBlock) -> &[u8] {
        let bytes = self.mapped.bytes();
        let from = usize::try_from(block.pos).unwrap_or(usize::MAX).min(bytes.len());
        &bytes[from..from.saturating_add(block.len).min(bytes.len())]
    }

    /// Goes on behind the first `len` bytes of what was peeked.
    pub fn release(&mut self, block: &FileBlock, len: usize) -> io::Result<()> {
        if block.pos != self.pos {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.pos += len.min(block.len) as u64;
        Ok(())
    }

    fn cut(&self) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("the file was cut before byte {}", self.pos))
    }

    /// Gives what was peeked to a socket, a pipe or a file, and takes what of it went. No byte enters this process's memory
    /// but where the kernel refuses. Says how many went; fails as a write does.
    pub fn forward_to_fd(&mut self, block: &FileBlock, to: impl AsFd) -> io::Result<usize> {
        self.release(block, 0)?;
        let mut offset = self.pos;
        let sent = match rustix::fs::sendfile(&to, &self.file, Some(&mut offset), block.len) {
            Ok(0) if block.len > 0 => return Err(self.cut()),
            Ok(sent) => {
                self.stat.sent += sent as u64;
                sent
            }
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                let written = rustix::io::write(&to, self.look_at(block))?;
                if self.mapped.cut_at().is_some_and(|at| at < block.pos + written as u64) {
                    return Err(self.cut());
                }
                self.stat.copied += written as u64;
                written
            }
            Err(error) => return Err(error.into()),
        };
        self.pos += sent as u64;
        Ok(sent)
    }

    /// Gives what was peeked to a ring as one block, by one copy, and takes it. Fails as a write does; a block longer than
    /// the ring's longest is cut to that.
    pub fn forward_copied(&mut self, block: &FileBlock, to: &mut PipeWriter) -> io::Result<usize> {
        self.release(block, 0)?;
        let longest = usize::try_from(to.stat().block_bytes).unwrap_or(usize::MAX);
        let part = FileBlock { len: block.len.min(longest), ..*block };
        let mut about = Descriptor::default();
        about.set_wire(u32::try_from(part.len).unwrap_or(u32::MAX).min(WIRE_MAX));
        // Touched before it is written, so that no cut part is published.
        self.mapped.populate(part.pos as usize, part.len);
        if self.file.metadata()?.len() < part.pos + part.len as u64 {
            return Err(self.cut());
        }
        let written = to.write_block(about, self.look_at(&part))?;
        self.stat.copied += written as u64;
        self.pos += written as u64;
        Ok(written)
    }
}

impl io::Read for PipeFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(block) = self.peek(buffer.len())? else { return Ok(0) };
        let bytes = self.look_at(&block);
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        self.release(&block, len)?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::Local;
    use crate::ring::memory::Geometry;
    use crate::ring::{RingKind, Signalling};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn some_bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    fn a_file_goes_to_a_socket_without_a_copy_and_to_an_appended_file_with_one() {
        let expected = some_bytes(3 << 20);
        let mut file = PipeFile::new(file_of(&expected)).unwrap();
        let (to, mut from) = UnixStream::pair().unwrap();
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            from.read_to_end(&mut got).unwrap();
            got
        });
        while let Some(block) = file.peek(usize::MAX).unwrap() {
            assert_eq!(file.look_at(&block)[0], expected[block.pos as usize]);
            file.forward_to_fd(&block, &to).unwrap();
        }
        drop(to);
        assert!(reading.join().unwrap() == expected);
        assert_eq!(file.stat(), FileStat { sent: 3 << 20, copied: 0 });

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let to = File::options().create(true).append(true).open(&path).unwrap();
        let mut file = PipeFile::new(file_of(&expected)).unwrap();
        while let Some(block) = file.peek(usize::MAX).unwrap() {
            file.forward_to_fd(&block, &to).unwrap();
        }
        assert!(std::fs::read(path).unwrap() == expected);
        assert_eq!(file.stat(), FileStat { sent: 0, copied: 3 << 20 });
    }

    #[test]
    fn a_file_goes_to_a_ring_by_one_copy_and_grows_while_it_is_read() {
        let mut source = file_of(b"first");
        let mut file = PipeFile::new(source.try_clone().unwrap()).unwrap();
        let (_ring, mut to, mut from) = Local::pair(Geometry::new(RingKind::V, 4096, 0), Signalling::Every).unwrap();
        let block = file.peek(usize::MAX).unwrap().unwrap();
        assert_eq!(file.forward_copied(&block, &mut to).unwrap(), 5);
        assert!(file.release(&block, 1).is_err(), "it is not what comes next");
        assert_eq!(file.peek(9).unwrap(), None);
        source.write_all(&some_bytes(10_000)).unwrap();
        let mut got = [0; 5000];
        assert_eq!(from.read(&mut got).unwrap(), 5);
        // Looking for more says what was taken.
        from.set_non_blocking(true);
        assert!(from.peek().is_err());
        let block = file.peek(usize::MAX).unwrap().unwrap();
        assert_eq!(file.forward_copied(&block, &mut to).unwrap(), 4080, "what one block can have");
        assert_eq!(from.read(&mut got).unwrap(), 4080);
        assert!(got[..4080] == some_bytes(10_000)[..4080]);
        assert_eq!((file.position(), file.stat().copied), (4085, 4085));
    }

    #[test]
    fn a_file_that_is_cut_is_an_error_that_says_where() {
        let source = file_of(&some_bytes(20_000));
        let mut file = PipeFile::new(source.try_clone().unwrap()).unwrap();
        let block = file.peek(usize::MAX).unwrap().unwrap();
        file.release(&block, 10_000).unwrap();
        source.set_len(5000).unwrap();
        let block = file.peek(usize::MAX).unwrap().unwrap();
        let (to, _from) = UnixStream::pair().unwrap();
        let (_ring, mut ring, _reader) =
            Local::pair(Geometry::new(RingKind::D, 1 << 16, 0), Signalling::Every).unwrap();
        for error in [file.forward_to_fd(&block, &to).unwrap_err(), file.forward_copied(&block, &mut ring).unwrap_err()]
        {
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains("10000"), "{error}");
        }
    }
}
