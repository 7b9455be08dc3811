//! The same work as processes with pipes between them, as in a shell. Each stage is this program again, started with
//! `stage NAME`. Pipes are as large as an ordinary user may make them.

use crate::capture;
use crate::flows;
use crate::rings::payload::sum;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

/// Bytes of a block from which one byte is read.
pub const BLOCK_BYTES: usize = 1024;

/// Bytes of a block that is searched for a text: the read size of shell tools.
const TEXT_BLOCK_BYTES: usize = 64 << 10;

/// Bytes that a pipe holds: the default limit in `/proc/sys/fs/pipe-max-size`.
const PIPE_BYTES: i32 = 1 << 20;

/// Runs a stage: `produce COUNT`, `touch`, `sum`, `end`; `read FILE`, `match TEXT`, `size`.
pub fn run(args: &[String]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["produce", count] => produce(count.parse().map_err(|_| "how many blocks?")?),
        ["touch"] => touch(|block| u64::from(block[0])),
        ["sum"] => touch(sum),
        ["end"] => end(),
        ["read", path] => read(path),
        ["match", text] => pass_matching(text),
        ["size"] => size(),
        ["flow", ref role @ ..] => return flows::parts::run(role),
        ["send", device, count, bytes, rate] => {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
            return capture::field::send(device, number(count)?, number(bytes)? as usize, number(rate)?);
        }
        [stage @ ("web" | "web-gzip"), device, count, bytes, rate] => {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
            let coded = stage == "web-gzip";
            return capture::web::send(device, number(count)?, number(bytes)? as usize, number(rate)?, coded);
        }
        _ => return Err("stage produce COUNT | touch | sum | end, or read FILE | match TEXT | size".to_owned()),
    };
    outcome.map_err(|error| error.to_string())
}

/// Standard output without the library's buffer: one system call for each block.
fn output() -> io::Result<File> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    // With a lower limit the pipe stays as it is: slower, but not wrong.
    let _ = fcntl(&out, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    Ok(File::from(out))
}

fn produce(count: u64) -> io::Result<()> {
    let mut out = output()?;
    let mut block = [0; BLOCK_BYTES];
    for number in 0..count {
        block[0] = number as u8;
        out.write_all(&block)?;
    }
    Ok(())
}

/// Reads blocks, looks at them, and writes them on.
fn touch(look: impl Fn(&[u8]) -> u64) -> io::Result<()> {
    let mut out = output()?;
    let mut sum = 0u64;
    each_block(|block| {
        sum = sum.wrapping_add(look(block));
        out.write_all(block)
    })?;
    std::hint::black_box(sum);
    Ok(())
}

fn end() -> io::Result<()> {
    let (mut count, mut sum) = (0u64, 0u64);
    each_block(|block| {
        count += 1;
        sum += u64::from(block[0]);
        Ok(())
    })?;
    println!("{count} {sum}");
    Ok(())
}

/// The output of the stage `end` after `count` blocks.
pub fn expected(count: u64) -> String {
    let sum = (0..count).map(|number| number & 0xff).sum::<u64>();
    format!("{count} {sum}\n")
}

fn read(path: &str) -> io::Result<()> {
    let (mut file, mut out) = (File::open(path)?, output()?);
    let mut block = vec![0; TEXT_BLOCK_BYTES];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(()),
            length => out.write_all(&block[..length])?,
        }
    }
}

/// Reads large blocks, and writes on those that contain a text.
fn pass_matching(text: &str) -> io::Result<()> {
    let (mut input, mut out) = (input()?, output()?);
    let finder = memchr::memmem::Finder::new(text);
    let mut block = vec![0; TEXT_BLOCK_BYTES];
    loop {
        match input.read(&mut block)? {
            0 => return Ok(()),
            length if finder.find(&block[..length]).is_some() => out.write_all(&block[..length])?,
            _ => {}
        }
    }
}

fn size() -> io::Result<()> {
    println!("{}", io::copy(&mut input()?, &mut io::sink())?);
    Ok(())
}

fn input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn each_block(mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut input = input()?;
    let mut block = [0; BLOCK_BYTES];
    loop {
        match input.read_exact(&mut block) {
            Ok(()) => each(&block)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
