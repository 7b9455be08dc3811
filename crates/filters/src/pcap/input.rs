//! Byte streams of captures that are read, not mapped: a file, or a thread that reads an input that may stay silent or
//! that decompresses.
//!
//! The filters' side never blocks for long: an input without data returns [`io::ErrorKind::WouldBlock`].

use super::unpack;
use packet::sniff::FileKind;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};

/// Bytes per read of a reading thread.
const PIPE_BUFFER_BYTES: usize = 128 << 10;

/// Number of buffers that a reading thread fills ahead of the filters.
const PIPE_BUFFERS: usize = 8;

/// An open input.
#[derive(Debug)]
pub(super) enum Input {
    File(File),
    /// An input that may stay silent, read by a thread.
    Pipe(Pipe),
}

impl Read for Input {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(space),
            Input::Pipe(pipe) => pipe.read(space),
        }
    }
}

/// An input that counts the bytes read from it.
#[derive(Debug)]
pub(super) struct Counted {
    /// `None` after [`take`](Counted::take).
    input: Option<Input>,
    pub(super) bytes: Arc<AtomicU64>,
}

impl Counted {
    pub(super) fn new(input: Input) -> Counted {
        Counted { input: Some(input), bytes: Arc::default() }
    }

    /// Takes the input out; `self` is then at its end.
    pub(super) fn take(&mut self) -> Counted {
        Counted { input: self.input.take(), bytes: Arc::clone(&self.bytes) }
    }

    /// Puts the input's first bytes, which were read to identify it, back in front. Decompresses it, in a thread, if
    /// `kind` is a compression: the decoders cannot pause where an input stays silent.
    pub(super) fn unpack(mut self, first: Vec<u8>, kind: Option<FileKind>) -> io::Result<Box<dyn Read + Send>> {
        let Some(kind) = kind.filter(|kind| kind.is_compressed()) else {
            return Ok(Box::new(Cursor::new(first).chain(self)));
        };
        let may_be_silent = match &mut self.input {
            Some(Input::Pipe(pipe)) => !std::mem::replace(&mut pipe.waits, true),
            _ => false,
        };
        let mut unpacked = Pipe::start(move || Ok(unpack::reader(kind, Cursor::new(first).chain(self))))?;
        unpacked.waits = !may_be_silent;
        Ok(Box::new(unpacked))
    }
}

impl Read for Counted {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let Some(input) = &mut self.input else { return Ok(0) };
        let read = input.read(space)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A buffer and the number of bytes read into it; 0 at the end of the input.
type Filled = io::Result<(Vec<u8>, usize)>;

/// The filters' end of a thread that reads a pipe, terminal or socket, or that decompresses. Such an input can stay
/// silent for ever, and a filter blocked in a read could not be stopped. The thread ends with its input, or when this end is dropped. A thread
/// that waits for input when the process ends goes with the process.
#[derive(Debug)]
pub(super) struct Pipe {
    filled: Receiver<Filled>,
    /// Returns buffers to the thread.
    empty: Sender<Vec<u8>>,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// The input has ended.
    ended: bool,
    /// A read waits for data. For an input that is never silent, and for readers that may block.
    waits: bool,
}

impl Pipe {
    /// Starts a thread that opens and reads an input.
    pub(super) fn start<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<Pipe> {
        // One more place than buffers, so that an error or the end always finds one.
        let (to_reader, filled) = mpsc::sync_channel(PIPE_BUFFERS + 1);
        let (empty, to_fill) = mpsc::channel();
        for _ in 0..PIPE_BUFFERS {
            // Cannot fail: the receiver still exists.
            let _ = empty.send(vec![0; PIPE_BUFFER_BYTES]);
        }
        std::thread::Builder::new().name("pcap input".into()).spawn(move || match open() {
            Ok(input) => fill(input, &to_fill, &to_reader),
            Err(error) => {
                let _ = to_reader.send(Err(error));
            }
        })?;
        Ok(Pipe { filled, empty, buffer: Vec::new(), at: 0, end: 0, ended: false, waits: false })
    }

    pub(super) fn stdin() -> io::Result<Pipe> {
        Pipe::start(|| Ok(io::stdin().lock()))
    }

    /// Reads a file that is not regular. The thread opens it, because opening a named pipe waits for its writer.
    pub(super) fn path(path: &Path) -> io::Result<Pipe> {
        let path = path.to_path_buf();
        Pipe::start(move || File::open(path))
    }
}

/// The body of the thread: reads until the end of input, an error, or until the filters' end is dropped.
fn fill(mut input: impl Read, to_fill: &Receiver<Vec<u8>>, to_reader: &SyncSender<Filled>) {
    while let Ok(mut buffer) = to_fill.recv() {
        let filled = loop {
            match input.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let is_last = !matches!(filled, Ok(1..));
        if to_reader.send(filled.map(|len| (buffer, len))).is_err() || is_last {
            return;
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.at == self.end {
            if self.ended {
                return Ok(0);
            }
            let filled =
                if self.waits { self.filled.recv().map_err(TryRecvError::from) } else { self.filled.try_recv() };
            let (buffer, end) = match filled {
                Ok(filled) => filled?,
                Err(TryRecvError::Empty) => return Err(io::ErrorKind::WouldBlock.into()),
                // It says its end, unless it panicked.
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("the thread that reads it has failed")),
            };
            self.ended = end == 0;
            let before = std::mem::replace(&mut self.buffer, buffer);
            (self.at, self.end) = (0, end);
            if !before.is_empty() {
                // The thread may have ended already.
                let _ = self.empty.send(before);
            }
        }
        let len = space.len().min(self.end - self.at);
        space[..len].copy_from_slice(&self.buffer[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    /// Reads to the end of input; waits while there is no data.
    fn read_all(mut input: impl Read) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            match input.read_to_end(&mut all) {
                Ok(_) => return Ok(all),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_pipe_gives_everything_in_order_however_much() {
        let (reader, mut writer) = io::pipe().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
        let sent = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        assert_eq!(read_all(Pipe::start(|| Ok(reader)).unwrap()).unwrap(), bytes);
        writing.join().unwrap();
    }

    #[test]
    fn a_silent_pipe_does_not_wait() {
        let (reader, writer) = io::pipe().unwrap();
        let mut pipe = Pipe::start(|| Ok(reader)).unwrap();
        assert_eq!(pipe.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(writer);
        assert_eq!(read_all(pipe).unwrap(), b"");
    }

    /// A reader that panics.
    struct Panics;

    impl Read for Panics {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("as a decoder might")
        }
    }

    #[test]
    fn a_thread_that_panics_is_no_end_of_input() {
        let error = read_all(Pipe::start(|| Ok(Panics)).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the thread that reads it has failed");
    }

    #[test]
    fn what_cannot_be_opened_says_so() {
        let pipe = Pipe::path(Path::new("/nonexistent/pipe")).unwrap();
        assert_eq!(read_all(pipe).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn gzip_members_follow_each_other_across_silences() {
        let (reader, mut writer) = io::pipe().unwrap();
        let input = Counted::new(Input::Pipe(Pipe::start(|| Ok(reader)).unwrap()));
        let read = Arc::clone(&input.bytes);
        let members = [gzip(b"hello "), gzip(b""), gzip(&[7; 100_000])].concat();
        let len = members.len() as u64;
        let mut decoded = input.unpack(members[..5].to_vec(), Some(FileKind::Gzip)).unwrap();
        assert_eq!(decoded.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let writing =
            std::thread::spawn(move || members[5..].chunks(3).for_each(|part| writer.write_all(part).unwrap()));
        let mut expected = b"hello ".to_vec();
        expected.resize(100_006, 7);
        assert_eq!(read_all(&mut decoded).unwrap(), expected);
        assert_eq!(read.load(Ordering::Relaxed), len - 5);
        writing.join().unwrap();
    }
}
