//! The peer: pipe(2) of 1 MiB, blocking, with tee(2) and splice(2) if they do the same work with less copying.

use super::payload::{check, check_head, check_sum, fill, sum};
use super::processes::{Part, Ran, run};
use nix::fcntl::{SpliceFFlags, splice, tee};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::Instant;

/// Bytes that a pipe holds: the default limit in `/proc/sys/fs/pipe-max-size`.
pub const PIPE_BYTES: usize = 1 << 20;

/// How a consumer uses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Copies it out; sums one in 64.
    Copy,
    /// Sums it.
    Sum,
    /// Reads its first word.
    Header,
}

impl Use {
    /// Uses a block, and checks that it is the right one.
    #[inline]
    pub fn of(self, block: &[u8], number: u64) -> Result<(), String> {
        match self {
            Use::Copy => check(block, number),
            Use::Sum => check_sum(sum(block), number, block.len()),
            Use::Header => check_head(block, number),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    format!("pipe: {error}")
}

fn pipe() -> Result<(PipeReader, PipeWriter), String> {
    let (reader, writer) = std::io::pipe().map_err(text)?;
    match rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).map_err(text)? {
        bytes if bytes >= PIPE_BYTES => Ok((reader, writer)),
        bytes => Err(format!("a pipe of {bytes} bytes is no match: raise /proc/sys/fs/pipe-max-size")),
    }
}

/// Blocks of `BYTES` bytes, `batch` of them in each call, on either side.
pub fn stream<const BYTES: usize>(batch: usize, blocks: u64, what: Use) -> Result<Ran, String> {
    let (mut reader, mut writer) = pipe()?;
    run(&mut [
        Part::new(0, || {
            let mut buffer = vec![[0; BYTES]; batch];
            for first in (0..blocks).step_by(batch) {
                (first..).zip(&mut buffer).for_each(|(number, block)| fill(block, number));
                writer.write_all(buffer.as_flattened()).map_err(text)?;
            }
            Ok(0.0)
        }),
        Part::new(1, || {
            let mut buffer = vec![[0; BYTES]; batch];
            for first in (0..blocks).step_by(batch) {
                reader.read_exact(buffer.as_flattened_mut()).map_err(text)?;
                (first..).zip(&buffer).try_for_each(|(number, block)| what.of(block, number))?;
            }
            Ok(0.0)
        }),
    ])
}

/// 64 bytes there and back, again and again, between these processors.
pub fn round_trips(trips: u64, processors: [usize; 2]) -> Result<Ran, String> {
    let (mut there, mut out) = pipe()?;
    let (mut home, mut back) = pipe()?;
    run(&mut [
        Part::new(processors[0], || {
            let mut block = [0; 64];
            for number in 0..trips {
                fill(&mut block, number);
                out.write_all(&block).map_err(text)?;
                home.read_exact(&mut block).map_err(text)?;
                check(&block, number)?;
            }
            Ok(0.0)
        }),
        Part::new(processors[1], || {
            let mut block = [0; 64];
            for _ in 0..trips {
                there.read_exact(&mut block).map_err(text)?;
                back.write_all(&block).map_err(text)?;
            }
            Ok(0.0)
        }),
    ])
}

/// A consumer that sums blocks from a pipe of its own.
fn summing<const BYTES: usize>(reader: &mut PipeReader, blocks: u64) -> Part<'_> {
    Part::new(1, move || {
        let mut block = [0; BYTES];
        for number in 0..blocks {
            reader.read_exact(&mut block).map_err(text)?;
            Use::Sum.of(&block, number)?;
        }
        Ok(0.0)
    })
}

/// Writes each block to one pipe for each reader.
pub fn broadcast<const BYTES: usize>(readers: usize, blocks: u64) -> Result<Ran, String> {
    let pipes = (0..readers).map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
    let (mut ends, mut writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    let mut parts = vec![Part::new(0, || {
        let mut block = [0; BYTES];
        for number in 0..blocks {
            fill(&mut block, number);
            writers.iter_mut().try_for_each(|writer| writer.write_all(&block)).map_err(text)?;
        }
        Ok(0.0)
    })];
    parts.extend(ends.iter_mut().map(|reader| summing::<BYTES>(reader, blocks)));
    run(&mut parts)
}

/// Writes each block once, and tees it to the readers' pipes: as many blocks at a time as all of them have room for.
pub fn broadcast_tee<const BYTES: usize>(readers: usize, blocks: u64) -> Result<Ran, String> {
    let (source, mut writer) = pipe()?;
    let pipes = (0..readers).map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
    let (mut ends, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    // Only a reading end tells how full a pipe is.
    let levels: Vec<File> = ends
        .iter()
        .map(|end| end.as_fd().try_clone_to_owned().map(File::from))
        .collect::<Result<_, _>>()
        .map_err(text)?;
    let mut parts = vec![Part::new(0, || {
        let mut block = [0; BYTES];
        let mut number = 0;
        while number < blocks {
            let mut room = PIPE_BYTES;
            for level in &levels {
                let level = rustix::io::ioctl_fionread(level).map_err(text)? as usize;
                room = room.min(PIPE_BYTES - level.min(PIPE_BYTES));
            }
            // Without room, tee waits for it.
            let count = ((room / BYTES).max(1) as u64).min(blocks - number);
            for number in number..number + count {
                fill(&mut block, number);
                writer.write_all(&block).map_err(text)?;
            }
            number += count;
            let all = count as usize * BYTES;
            let (last, others) = writers.split_last().ok_or("nobody reads")?;
            for other in others {
                let given = tee(&source, other, all, SpliceFFlags::empty()).map_err(text)?;
                if given != all {
                    return Err(format!("tee: {given} bytes of {all}"));
                }
            }
            let mut left = all;
            while left > 0 {
                left -= splice(&source, None, last, None, left, SpliceFFlags::SPLICE_F_MOVE).map_err(text)?;
            }
        }
        Ok(0.0)
    })];
    parts.extend(ends.iter_mut().map(|reader| summing::<BYTES>(reader, blocks)));
    run(&mut parts)
}

/// A third process passes blocks on from pipe to pipe by splice(2). Works on one full pipe after the other, so that
/// only passing on is timed: `given` by part 1.
pub fn forward<const BYTES: usize>(rounds: u64) -> Result<Ran, String> {
    let per_round = (PIPE_BYTES / BYTES) as u64;
    let (input, mut writer) = pipe()?;
    let (mut reader, output) = pipe()?;
    let (mut filled, mut fill_done) = std::io::pipe().map_err(text)?;
    run(&mut [
        Part::new(0, || {
            let mut block = [0; BYTES];
            for round in 0..rounds {
                let numbers = round * per_round..(round + 1) * per_round;
                for number in numbers.clone() {
                    fill(&mut block, number);
                    writer.write_all(&block).map_err(text)?;
                }
                fill_done.write_all(&[1]).map_err(text)?;
                for number in numbers {
                    reader.read_exact(&mut block).map_err(text)?;
                    Use::Header.of(&block, number)?;
                }
            }
            Ok(0.0)
        }),
        Part::new(1, || {
            let mut seconds = 0.0;
            for _ in 0..rounds {
                filled.read_exact(&mut [0]).map_err(text)?;
                let start = Instant::now();
                let mut left = PIPE_BYTES;
                while left > 0 {
                    left -= splice(&input, None, &output, None, left.min(BYTES), SpliceFFlags::SPLICE_F_MOVE)
                        .map_err(text)?;
                }
                seconds += start.elapsed().as_secs_f64();
            }
            Ok(seconds)
        }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_carries_everything() {
        stream::<4096>(1, 300, Use::Copy).unwrap();
        stream::<64>(32, 320, Use::Sum).unwrap();
        round_trips(50, [0, 1]).unwrap();
        broadcast::<4096>(4, 600).unwrap();
        broadcast_tee::<4096>(4, 600).unwrap();
        let ran = forward::<65536>(3).unwrap();
        assert!(ran.given_by(1).wall_s > 0.0);
    }
}
