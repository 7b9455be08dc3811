//! Undoes content and transfer codings: gzip, deflate, brotli, one on top of the other. Bytes go in and come out as they
//! come; nothing waits for the end of a body.
//!
//! Check sums are not looked at: what a receiver would throw away is worth seeing here. Where a body is not coded as it
//! says (its first byte tells, for gzip), it is passed on as it is.

use super::head::Coding;
use base::limits::{BROTLI_TABLES_BYTES, BROTLI_WINDOW_BYTES, CODING_STAGE_BYTES, HTTP_SPARES, INFLATE_BYTES};
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};

/// What one call of a decoder did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes taken.
    pub(super) used: usize,
    /// Bytes given.
    pub(super) made: usize,
    /// What it needs to go on.
    pub(super) then: Then,
}

/// What a decoder needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// More to read: it took all there was.
    Input,
    /// A call with more room; there may be more to give.
    Room,
    /// Nothing: its input is over. What comes after is not part of it.
    End,
    /// Nothing: its input is damaged.
    Damaged,
}

/// Inflaters that nobody uses, so that a message does not allocate one.
#[derive(Debug, Default)]
pub(super) struct Spares(Vec<Decompress>);

impl Spares {
    fn take(&mut self) -> Decompress {
        match self.0.pop() {
            Some(mut inflate) => {
                inflate.reset(false);
                inflate
            }
            None => Decompress::new(false),
        }
    }

    fn give(&mut self, inflate: Decompress) {
        if self.0.len() < HTTP_SPARES {
            self.0.push(inflate);
        }
    }
}

/// Several codings, the outermost first.
pub(super) struct Decoder {
    stages: Vec<Stage>,
    /// Bytes of memory it takes at most.
    bytes: usize,
}

struct Stage {
    coder: Coder,
    /// What the stage before it gave and this one has not taken; unused in the first.
    input: Vec<u8>,
    from: usize,
    to: usize,
}

impl Decoder {
    /// Memory that a decoder of these codings takes at most. `first` is the body's first byte: it says how large the
    /// window of a brotli stream is. The codings stand in the order in which they are undone.
    pub(super) fn memory_bytes(codings: &[Coding], first: u8) -> usize {
        let stage = |(index, coding): (usize, &Coding)| {
            let between = if index > 0 { CODING_STAGE_BYTES } else { 0 };
            between
                + match coding {
                    Coding::Gzip | Coding::Deflate => INFLATE_BYTES,
                    Coding::Brotli if index == 0 => brotli_window_bytes(first) + BROTLI_TABLES_BYTES,
                    Coding::Brotli => BROTLI_WINDOW_BYTES + BROTLI_TABLES_BYTES,
                    Coding::Unknown => 0,
                }
        };
        codings.iter().enumerate().map(stage).sum()
    }

    /// A decoder of these codings, in the order in which they are undone. Allocates.
    pub(super) fn new(codings: &[Coding], bytes: usize, spares: &mut Spares) -> Decoder {
        let stage = |(index, coding): (usize, &Coding)| {
            let coder = match coding {
                Coding::Gzip => Coder::Gzip { inflate: spares.take(), at: GzipAt::Magic, members: 0 },
                Coding::Deflate => Coder::Deflate { inflate: spares.take(), at: DeflateAt::First },
                Coding::Brotli => Coder::Brotli(new_brotli()),
                Coding::Unknown => Coder::Plain,
            };
            Stage { coder, input: vec![0; if index > 0 { CODING_STAGE_BYTES } else { 0 }], from: 0, to: 0 }
        };
        Decoder { stages: codings.iter().enumerate().map(stage).collect(), bytes }
    }

    /// The memory it was counted with.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decodes from `input` into `output`.
    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        run(&mut self.stages, input, output)
    }

    /// Did every coding's end come?
    pub(super) fn is_complete(&self) -> bool {
        self.stages.iter().all(|stage| stage.coder.is_complete())
    }

    /// Keeps what another message can use.
    pub(super) fn dismantle(self, spares: &mut Spares) {
        for stage in self.stages {
            if let Coder::Gzip { inflate, .. } | Coder::Deflate { inflate, .. } = stage.coder {
                spares.give(inflate);
            }
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("stages", &self.stages.len()).field("bytes", &self.bytes).finish()
    }
}

/// Runs the last of these stages, which fetches what it reads from those before it.
fn run(stages: &mut [Stage], input: &[u8], output: &mut [u8]) -> Step {
    let Some((last, before)) = stages.split_last_mut() else { return Step { used: 0, made: 0, then: Then::Damaged } };
    if before.is_empty() {
        return last.coder.run(input, output);
    }
    let mut used = 0;
    loop {
        if last.from == last.to {
            let step = run(before, &input[used..], &mut last.input);
            used += step.used;
            (last.from, last.to) = (0, step.made);
            if step.made == 0 {
                let too_soon = step.then == Then::End && !last.coder.is_complete();
                let then = if too_soon { Then::Damaged } else { step.then };
                return Step { used, made: 0, then };
            }
        }
        let step = last.coder.run(&last.input[last.from..last.to], output);
        last.from += step.used;
        match step.then {
            Then::Input if step.made == 0 => {}
            Then::Input => return Step { used, made: step.made, then: Then::Room },
            then => return Step { used, made: step.made, then },
        }
    }
}

/// One coding.
enum Coder {
    Gzip {
        inflate: Decompress,
        at: GzipAt,
        members: u64,
    },
    Deflate {
        inflate: Decompress,
        at: DeflateAt,
    },
    Brotli(Box<Brotli>),
    /// It turned out not to be coded.
    Plain,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Windows of more than 16 MiB are no part of the content coding, and a peer could ask for 1 GiB with them.
fn new_brotli() -> Box<Brotli> {
    Box::new(Brotli::new_strict(StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default()))
}

/// WBITS, in the first bits of a stream (RFC 7932 section 9.1).
fn brotli_window_bytes(first: u8) -> usize {
    let (three, next) = (first >> 1 & 7, first >> 4 & 7);
    let bits = match (first & 1, three, next) {
        (0, ..) => 16,
        (_, 0, 0) => 17,
        (_, 0, next) => 8 + next,
        (_, three, _) => 17 + three,
    };
    1 << bits
}

/// Where in a member (RFC 1952 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GzipAt {
    Magic,
    /// In the ten bytes every header has: so many were read, and the flags.
    Header(u8, u8),
    /// The length of the extra field: none or one byte of it was read.
    ExtraLength(u8, Option<u8>),
    /// So many bytes of it are left.
    Extra(u8, u16),
    Name(u8),
    Comment(u8),
    /// So many bytes of the header's check sum are left.
    HeaderCheck(u8),
    Data,
    /// So many bytes of the trailer are left.
    Trailer(u8),
    /// Between members.
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeflateAt {
    /// The first byte tells zlib from raw.
    First,
    /// The second byte of zlib's header.
    Second,
    Data,
    End,
}

const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const HEADER_CHECK: u8 = 2;

impl GzipAt {
    /// What comes after the parts of the header up to the one whose flag is `done`.
    fn after(flags: u8, done: u8) -> GzipAt {
        match done {
            0 if flags & EXTRA != 0 => GzipAt::ExtraLength(flags, None),
            0 | EXTRA if flags & NAME != 0 => GzipAt::Name(flags),
            0 | EXTRA | NAME if flags & COMMENT != 0 => GzipAt::Comment(flags),
            _ if flags & HEADER_CHECK != 0 => GzipAt::HeaderCheck(2),
            _ => GzipAt::Data,
        }
    }

    /// Reads one byte of a header or trailer; `None` where it cannot be one.
    fn next(self, byte: u8) -> Option<GzipAt> {
        Some(match self {
            GzipAt::Magic | GzipAt::Between if byte == 0x1f => GzipAt::Header(1, 0),
            GzipAt::Magic | GzipAt::Between => return None,
            GzipAt::Header(1, _) if byte != 0x8b => return None,
            GzipAt::Header(2, _) if byte != 8 => return None,
            GzipAt::Header(3, _) => GzipAt::Header(4, byte),
            GzipAt::Header(9, flags) => GzipAt::after(flags, 0),
            GzipAt::Header(read, flags) => GzipAt::Header(read + 1, flags),
            GzipAt::ExtraLength(flags, None) => GzipAt::ExtraLength(flags, Some(byte)),
            GzipAt::ExtraLength(flags, Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => GzipAt::after(flags, EXTRA),
                left => GzipAt::Extra(flags, left),
            },
            GzipAt::Extra(flags, 1) => GzipAt::after(flags, EXTRA),
            GzipAt::Extra(flags, left) => GzipAt::Extra(flags, left - 1),
            GzipAt::Name(flags) if byte == 0 => GzipAt::after(flags, NAME),
            GzipAt::Comment(flags) if byte == 0 => GzipAt::after(flags, COMMENT),
            GzipAt::HeaderCheck(1) => GzipAt::Data,
            GzipAt::HeaderCheck(left) => GzipAt::HeaderCheck(left - 1),
            GzipAt::Trailer(1) => GzipAt::Between,
            GzipAt::Trailer(left) => GzipAt::Trailer(left - 1),
            GzipAt::Name(_) | GzipAt::Comment(_) | GzipAt::Data => self,
        })
    }
}

impl Coder {
    fn is_complete(&self) -> bool {
        match self {
            Coder::Gzip { at, .. } => matches!(at, GzipAt::Trailer(_) | GzipAt::Between),
            Coder::Deflate { at, .. } => *at == DeflateAt::End,
            Coder::Brotli(state) => brotli_decompressor::BrotliDecoderIsFinished(state),
            Coder::Plain => true,
        }
    }

    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self {
                Coder::Gzip { inflate, at: at @ GzipAt::Data, members } => {
                    let step = inflate_step(inflate, rest, output);
                    used += step.used;
                    if step.then != Then::End {
                        return Step { used, ..step };
                    }
                    // Members may follow each other; the next call looks.
                    (*at, *members) = (GzipAt::Trailer(8), *members + 1);
                    inflate.reset(false);
                    return Step { used, made: step.made, then: Then::Room };
                }
                Coder::Gzip { at, members, .. } => {
                    let Some(&byte) = rest.first() else { return Step { used, made: 0, then: Then::Input } };
                    match at.next(byte) {
                        Some(next) => *at = next,
                        None if *at == GzipAt::Magic => {
                            *self = Coder::Plain;
                            continue;
                        }
                        None if *members > 0 => {
                            *at = GzipAt::Between;
                            return Step { used, made: 0, then: Then::End };
                        }
                        None => return Step { used, made: 0, then: Then::Damaged },
                    }
                    used += 1;
                }
                Coder::Deflate { inflate, at } => match (*at, rest.first()) {
                    (DeflateAt::End, _) => return Step { used, made: 0, then: Then::End },
                    (DeflateAt::First, Some(byte)) if byte & 0x0f == 8 && byte >> 4 <= 7 => {
                        *at = DeflateAt::Second;
                        used += 1;
                    }
                    (DeflateAt::First, Some(_)) => *at = DeflateAt::Data,
                    (DeflateAt::Second, Some(flags)) if flags & 0x20 != 0 => {
                        return Step { used, made: 0, then: Then::Damaged };
                    }
                    (DeflateAt::Second, Some(_)) => {
                        *at = DeflateAt::Data;
                        used += 1;
                    }
                    (DeflateAt::First | DeflateAt::Second, None) => {
                        return Step { used, made: 0, then: Then::Input };
                    }
                    (DeflateAt::Data, _) => {
                        let step = inflate_step(inflate, rest, output);
                        if step.then == Then::End {
                            *at = DeflateAt::End;
                        }
                        return Step { used: used + step.used, ..step };
                    }
                },
                Coder::Brotli(state) => return brotli_step(state, input, output),
                Coder::Plain => {
                    let len = rest.len().min(output.len());
                    output[..len].copy_from_slice(&rest[..len]);
                    let then = if len < rest.len() { Then::Room } else { Then::Input };
                    return Step { used: used + len, made: len, then };
                }
            }
        }
    }
}

fn inflate_step(inflate: &mut Decompress, input: &[u8], output: &mut [u8]) -> Step {
    let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None);
    let used = (inflate.total_in() - before_in) as usize;
    let made = (inflate.total_out() - before_out) as usize;
    let then = match status {
        Ok(Status::StreamEnd) => Then::End,
        Ok(_) if made == output.len() => Then::Room,
        Ok(_) if used == input.len() => Then::Input,
        Ok(_) if used + made > 0 => Then::Room,
        Ok(_) | Err(_) => Then::Damaged,
    };
    Step { used, made, then }
}

fn brotli_step(state: &mut Brotli, input: &[u8], output: &mut [u8]) -> Step {
    let (mut left_in, mut used) = (input.len(), 0);
    let (mut left_out, mut made, mut total) = (output.len(), 0, 0);
    let result =
        BrotliDecompressStream(&mut left_in, &mut used, input, &mut left_out, &mut made, output, &mut total, state);
    let then = match result {
        BrotliResult::ResultSuccess => Then::End,
        BrotliResult::NeedsMoreInput => Then::Input,
        BrotliResult::NeedsMoreOutput if used + made > 0 => Then::Room,
        BrotliResult::NeedsMoreOutput | BrotliResult::ResultFailure => Then::Damaged,
    };
    Step { used, made, then }
}
