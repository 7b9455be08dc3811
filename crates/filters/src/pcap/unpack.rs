//! Decompresses captures: gzip, Zstandard, xz, bzip2 and LZ4. Each may have any number of members, streams or frames.
//!
//! Windows are bounded, so that a few bytes do not ask for much memory: those of Zstandard by 8 MiB (RFC 9659), those of
//! xz by 64 MiB, as of its preset -9. The formats bound those of the others: 32 KiB, 900 kB and 8 MiB.
//!
//! The bytes decoded before damage are given first. Damage is an error of a kind that [`is_damage`] knows.

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder as Lz4Decoder;
use lzma_rust2::XzReader;
use packet::sniff::FileKind;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder as ZstdDecoder};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::rc::Rc;

/// Compressed bytes per read.
const COMPRESSED_BYTES: usize = 64 << 10;

/// Most bytes of a Zstandard window (RFC 9659, section 3).
const ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// Most KiB of an xz decoder: a dictionary of 64 MiB, and a MiB for its tables.
const XZ_KIB: u32 = (64 + 1) << 10;

/// The decompressed bytes of an input of a kind that is compressed.
pub(super) fn reader(kind: FileKind, input: impl Read + 'static) -> impl Read {
    let progress = Rc::new(RefCell::new(Progress::Going));
    let watched = Watched { input: Box::new(input), progress: Rc::clone(&progress) };
    let input = BufReader::with_capacity(COMPRESSED_BYTES, watched);
    let decoder: Box<dyn Read> = match kind {
        FileKind::Zstd => Box::new(Frames::<Zstd>::new(input, &progress)),
        FileKind::Lz4 => Box::new(Frames::<Lz4>::new(input, &progress)),
        FileKind::Xz => Box::new(XzReader::new_mem_limit(input, true, XZ_KIB)),
        FileKind::Bzip2 => Box::new(MultiBzDecoder::new(input)),
        _ => Box::new(MultiGzDecoder::new(input)),
    };
    Unpacked { decoder, progress }
}

/// Whether the compressed data is itself damaged or cut, or its window too large.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// How far the compressed input is.
enum Progress {
    Going,
    /// A decoder asked for bytes behind the last one.
    Ended,
    Failed(io::Error),
}

/// An input that notes its end and its failure. Decoders report both in their own ways.
struct Watched {
    input: Box<dyn Read>,
    progress: Rc<RefCell<Progress>>,
}

impl Read for Watched {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(space);
        match &read {
            Ok(0) if !space.is_empty() => *self.progress.borrow_mut() = Progress::Ended,
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                *self.progress.borrow_mut() = Progress::Failed(io::Error::new(error.kind(), error.to_string()));
            }
            _ => {}
        }
        read
    }
}

/// A decoder whose errors say what is wrong with the input.
struct Unpacked {
    decoder: Box<dyn Read>,
    progress: Rc<RefCell<Progress>>,
}

impl Read for Unpacked {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(space).map_err(|error| match self.progress.replace(Progress::Going) {
            Progress::Failed(failure) => failure,
            Progress::Ended => io::Error::new(ErrorKind::UnexpectedEof, "its compressed data ends early"),
            Progress::Going if error.kind() == ErrorKind::OutOfMemory => {
                io::Error::new(ErrorKind::InvalidData, "its compressed data needs a larger window than is read")
            }
            Progress::Going => io::Error::new(ErrorKind::InvalidData, "its compressed data is damaged"),
        })
    }
}

/// The input of a frame: its magic number, put back, and the rest.
type Input = io::Chain<Cursor<[u8; 4]>, BufReader<Watched>>;

/// A decoder of one frame.
trait Frame: Read + Sized {
    fn begin(input: Input) -> io::Result<Self>;

    /// What follows the frame, once it was read to its end.
    fn finish(self) -> io::Result<Input>;

    /// Whether a frame with this magic number may end where the input ends, without an end mark.
    fn may_be_open(_magic: u32) -> bool {
        false
    }
}

/// Frames one after the other, with skippable ones between them (RFC 8878, section 3.1.2; the LZ4 frame format has the
/// same).
struct Frames<F> {
    input: Option<BufReader<Watched>>,
    /// The current frame, and whether the end of the input ends it.
    frame: Option<(F, bool)>,
    progress: Rc<RefCell<Progress>>,
}

impl<F: Frame> Frames<F> {
    fn new(input: BufReader<Watched>, progress: &Rc<RefCell<Progress>>) -> Frames<F> {
        Frames { input: Some(input), frame: None, progress: Rc::clone(progress) }
    }

    /// Begins the next frame; `false` at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(mut input) = self.input.take() else { return Ok(false) };
        let mut magic = [0; 4];
        loop {
            if input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            input.read_exact(&mut magic)?;
            if u32::from_le_bytes(magic) & !0xf != 0x184d_2a50 {
                break;
            }
            let mut length = [0; 4];
            input.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut (&mut input).take(length), &mut io::sink())? < length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let open = F::may_be_open(u32::from_le_bytes(magic));
        self.frame = Some((F::begin(Cursor::new(magic).chain(input))?, open));
        Ok(true)
    }
}

impl<F: Frame> Read for Frames<F> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.frame.is_none() && !self.begin()? {
                return Ok(0);
            }
            let Some((mut frame, open)) = self.frame.take() else { return Ok(0) };
            let read = frame.read(space)?;
            if read > 0 {
                self.frame = Some((frame, open));
                return Ok(read);
            }
            if matches!(*self.progress.borrow(), Progress::Ended) && !open {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.input = Some(frame.finish()?.into_inner().1);
        }
    }
}

/// A frame of Zstandard (RFC 8878).
struct Zstd {
    decoder: ZstdDecoder,
    input: Input,
    /// Given behind all bytes that were decoded before it.
    failure: Option<FrameDecoderError>,
}

/// An empty last block, and a checksum.
const ZSTD_LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl Zstd {
    fn decode_block(&mut self) {
        let one = BlockDecodingStrategy::UptoBlocks(1);
        if let Err(error) = self.decoder.decode_blocks(&mut self.input, one) {
            self.failure = Some(error);
            // The decoder keeps a window of bytes back until the frame ends. It cannot fail at an empty block.
            let _ = self.decoder.decode_blocks(&ZSTD_LAST_BLOCK[..], BlockDecodingStrategy::All);
        }
    }
}

impl Read for Zstd {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() && self.failure.is_none() {
            self.decode_block();
        }
        match self.decoder.read(space)? {
            0 => self.failure.take().map_or(Ok(0), |failure| Err(io::Error::other(failure))),
            read => Ok(read),
        }
    }
}

impl Frame for Zstd {
    fn begin(mut input: Input) -> io::Result<Zstd> {
        let mut decoder = ZstdDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES);
        decoder.init(&mut input).map_err(|error| match error {
            FrameDecoderError::WindowSizeTooBig { .. } => ErrorKind::OutOfMemory.into(),
            other => io::Error::other(other),
        })?;
        Ok(Zstd { decoder, input, failure: None })
    }

    fn finish(self) -> io::Result<Input> {
        let said = self.decoder.get_checksum_from_data();
        if said.is_some() && said != self.decoder.get_calculated_checksum() {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(self.input)
    }
}

/// A frame of LZ4.
type Lz4 = Lz4Decoder<Input>;

impl Frame for Lz4 {
    fn begin(input: Input) -> io::Result<Lz4> {
        Ok(Lz4Decoder::new(input))
    }

    fn finish(self) -> io::Result<Input> {
        Ok(self.into_inner())
    }

    fn may_be_open(magic: u32) -> bool {
        // The legacy frame has no end mark.
        magic == 0x184c_2102
    }
}
