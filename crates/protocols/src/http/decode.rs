//! Undoes content and transfer codings: gzip, deflate, brotli and Zstandard, for rules LZMA, also nested. Decoding is
//! incremental: no step waits for the end of a body.
//!
//! Checksums are not verified, because a body that its receiver would discard is still worth seeing. If the first
//! bytes show that a body is not coded as announced, it passes unchanged; announced deflate may be gzip.

use super::format::{Around, DeflateAt, Format, GzipAt};
use super::head::Coding;
use super::lzma::Lzma;
use super::step::{Step, Then};
use super::zstd::Zstd;
use base::limits::{
    BROTLI_TABLES_BYTES, BROTLI_WINDOW_BYTES, CODED_GATHER_BYTES, CODING_STAGE_BYTES, HTTP_SPARES, INFLATE_BYTES,
    LZMA_BYTES, ZSTD_BYTES,
};
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Decompress, FlushDecompress, Status};

/// Coded bytes read and decoded bytes made of them, for the ratio limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    coded: u64,
    made: u64,
}

impl Spent {
    /// Bytes that may still be made: `free`, plus `ratio` times the coded bytes including `at_hand` bytes that wait.
    pub fn left(&self, free: u64, ratio: u64, at_hand: usize) -> u64 {
        let coded = self.coded.saturating_add(at_hand as u64);
        free.saturating_add(ratio.saturating_mul(coded)).saturating_sub(self.made)
    }

    pub fn add(&mut self, coded: usize, made: u64) {
        self.coded += coded as u64;
        self.made += made;
    }
}

/// Unused inflaters, so that a message need not allocate one.
#[derive(Debug, Default)]
pub struct Spares(Vec<Decompress>);

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

/// A chain of codings, the outermost first.
pub struct Decoder {
    stages: Vec<Stage>,
    /// Coded bytes to decode before the next block.
    pub gathered: Vec<u8>,
    /// Maximum memory, in bytes.
    bytes: usize,
    pub spent: Spent,
}

struct Stage {
    coder: Coder,
    /// Output of the stage before, not read yet; unused in the first stage.
    input: Vec<u8>,
    from: usize,
    to: usize,
}

impl Decoder {
    /// Maximum memory of a decoder of these codings, in the order in which they are undone. `first` is the body's
    /// first byte, which tells the window size of a brotli stream.
    pub fn memory_bytes(codings: &[Coding], first: u8) -> usize {
        let stage = |(index, coding): (usize, &Coding)| {
            let between = if index > 0 { CODING_STAGE_BYTES } else { 0 };
            between
                + match coding {
                    Coding::Gzip | Coding::Deflate => INFLATE_BYTES,
                    Coding::Brotli if index == 0 => brotli_window_bytes(first) + BROTLI_TABLES_BYTES,
                    Coding::Brotli => BROTLI_WINDOW_BYTES + BROTLI_TABLES_BYTES,
                    Coding::Zstd => ZSTD_BYTES,
                    Coding::Lzma => LZMA_BYTES,
                    Coding::Unknown => 0,
                }
        };
        codings.iter().enumerate().map(stage).sum()
    }

    /// A decoder of these codings, in the order in which they are undone. Allocates.
    pub fn new(codings: &[Coding], bytes: usize, spares: &mut Spares) -> Decoder {
        let stage = |(index, coding): (usize, &Coding)| {
            let coder = match coding {
                Coding::Gzip => Coder::Inflate(spares.take(), Format::Gzip(GzipAt::Magic, 0)),
                Coding::Deflate => Coder::Inflate(spares.take(), Format::Deflate(DeflateAt::First)),
                Coding::Brotli => Coder::Brotli(new_brotli()),
                Coding::Zstd => Coder::Zstd(Box::new(Zstd::new())),
                Coding::Lzma => Coder::Lzma(Box::new(Lzma::new())),
                Coding::Unknown => Coder::Plain,
            };
            Stage { coder, input: vec![0; if index > 0 { CODING_STAGE_BYTES } else { 0 }], from: 0, to: 0 }
        };
        Decoder {
            stages: codings.iter().enumerate().map(stage).collect(),
            gathered: Vec::new(),
            bytes,
            spent: Spent::default(),
        }
    }

    /// The memory that was charged for it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a copy of `bytes` to the gathered bytes, first to the buffer `spare`; `false` if they do not fit.
    pub fn gather_copy(&mut self, bytes: &[u8], spare: &mut Vec<u8>) -> bool {
        if self.gathered.len() + bytes.len() > CODED_GATHER_BYTES {
            return false;
        }
        if self.gathered.is_empty() {
            self.gathered = std::mem::take(spare);
            self.gathered.reserve_exact(CODED_GATHER_BYTES);
        }
        self.gathered.extend_from_slice(bytes);
        true
    }

    /// Decodes `input` into `output`; also returns the bytes made. All codings together make at most `budget` bytes,
    /// because an outer coding costs time even if its output is never seen.
    pub fn run(&mut self, input: &[u8], output: &mut [u8], budget: u64) -> (Step, u64) {
        let mut left = budget;
        let step = run(&mut self.stages, input, output, &mut left);
        self.spent.add(step.used, budget - left);
        (step, budget - left)
    }

    /// Whether every coding reached its end.
    pub fn is_complete(&self) -> bool {
        self.stages.iter().all(|stage| stage.coder.is_complete())
    }

    /// Keeps the parts that another message can reuse.
    pub fn dismantle(self, spares: &mut Spares) {
        for stage in self.stages {
            if let Coder::Inflate(inflate, _) = stage.coder {
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

/// Runs the last stage, which reads from the stages before it.
fn run(stages: &mut [Stage], input: &[u8], output: &mut [u8], budget: &mut u64) -> Step {
    let Some((last, before)) = stages.split_last_mut() else { return Step { used: 0, made: 0, then: Then::Damaged } };
    if before.is_empty() {
        return last.coder.run_within(input, output, budget);
    }
    let mut used = 0;
    loop {
        if last.from == last.to {
            let step = run(before, &input[used..], &mut last.input, budget);
            used += step.used;
            (last.from, last.to) = (0, step.made);
            if step.made == 0 {
                let too_soon = step.then == Then::End && !last.coder.is_complete();
                let then = if too_soon { Then::Damaged } else { step.then };
                return Step { used, made: 0, then };
            }
        }
        let step = last.coder.run_within(&last.input[last.from..last.to], output, budget);
        last.from += step.used;
        match step.then {
            Then::Input if step.made == 0 => {}
            Then::Input => return Step { used, made: step.made, then: Then::Room },
            then => return Step { used, made: step.made, then },
        }
    }
}

enum Coder {
    /// gzip and deflate.
    Inflate(Decompress, Format),
    /// br.
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd>),
    Lzma(Box<Lzma>),
    /// The data turned out not to be coded.
    Plain,
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Windows of more than 16 MiB are not part of the content coding; with them a peer could demand 1 GiB.
fn new_brotli() -> Box<Brotli> {
    Box::new(Brotli::new_strict(StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default()))
}

/// The size of the window, from WBITS in the first bits of a stream (RFC 7932 section 9.1).
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

impl Coder {
    fn is_complete(&self) -> bool {
        match self {
            Coder::Inflate(_, Format::Gzip(at, _)) => matches!(at, GzipAt::Trailer(_) | GzipAt::Between),
            Coder::Inflate(_, Format::Deflate(at)) => *at == DeflateAt::End,
            Coder::Brotli(state) => brotli_decompressor::BrotliDecoderIsFinished(state),
            Coder::Zstd(zstd) => zstd.is_complete(),
            Coder::Lzma(lzma) => lzma.is_complete,
            Coder::Plain => true,
        }
    }

    /// Runs with the room that the budget leaves.
    fn run_within(&mut self, input: &[u8], output: &mut [u8], budget: &mut u64) -> Step {
        let room = output.len().min(usize::try_from(*budget).unwrap_or(usize::MAX));
        if room == 0 {
            return Step { used: 0, made: 0, then: Then::Budget };
        }
        let step = self.run(input, &mut output[..room]);
        *budget -= step.made as u64;
        step
    }

    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Step {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let (inflate, format) = match self {
                Coder::Inflate(inflate, format) => (inflate, format),
                Coder::Brotli(state) => return brotli_step(state, input, output),
                Coder::Zstd(zstd) => return zstd.step(input, output),
                Coder::Lzma(lzma) => return lzma.step(input, output),
                Coder::Plain => {
                    let len = rest.len().min(output.len());
                    output[..len].copy_from_slice(&rest[..len]);
                    let then = if len < rest.len() { Then::Room } else { Then::Input };
                    return Step { used: used + len, made: len, then };
                }
            };
            if let Format::Gzip(GzipAt::Data, _) | Format::Deflate(DeflateAt::Data) = format {
                let step = inflate_step(inflate, rest, output);
                let (used, made) = (used + step.used, step.made);
                return match format {
                    Format::Gzip(at, members) if step.then == Then::End => {
                        // Another member may follow; the next call finds out.
                        (*at, *members) = (GzipAt::Trailer(8), *members + 1);
                        inflate.reset(false);
                        Step { used, made, then: Then::Room }
                    }
                    Format::Deflate(at) if step.then == Then::End => {
                        *at = DeflateAt::End;
                        Step { used, made, then: Then::End }
                    }
                    _ => Step { used, made, then: step.then },
                };
            }
            if *format == Format::Deflate(DeflateAt::End) {
                return Step { used, made: 0, then: Then::End };
            }
            let Some(&byte) = rest.first() else { return Step { used, made: 0, then: Then::Input } };
            match format.next(byte) {
                Around::Taken => used += 1,
                Around::Left => {}
                Around::End => return Step { used, made: 0, then: Then::End },
                Around::Damaged => return Step { used, made: 0, then: Then::Damaged },
                Around::Plain(before) => {
                    *self = Coder::Plain;
                    if let (Some(before), Some(slot)) = (before, output.first_mut()) {
                        *slot = before;
                        return Step { used, made: 1, then: Then::Room };
                    }
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
