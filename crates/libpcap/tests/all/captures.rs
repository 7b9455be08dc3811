//! Compares the interpreter with tcpdump, for all expressions in the expectations of the shared captures: it must pass
//! the same number of packets.
//!
//! The expectations (`expected/*.json`, `bpf`: expression -> count) were made with tcpdump and libpcap 1.10.3. Strings
//! among them are tcpdump's errors. An expression that tcpdump refuses because no packet can match must pass none here.

use libpcap::Libpcap;
use program::interpreter::SELECT_FRAMES;
use program::{Compile, Frame, Interpreter, cbpf, from_cbpf, to_cbpf};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder of the shared captures, and the least number of expressions that pass packets there. Where it is absent,
/// that of the part which is bundled (`testkit::shared`, which builds on this crate).
fn shared() -> (PathBuf, usize) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let beside = || crates.join("../../shared");
    let whole = std::env::var_os("STREAMLINE_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if whole.join("expected").is_dir() { (whole, 1000) } else { (crates.join("testkit/data"), 100) }
}

/// A classic capture file, as far as this test needs it.
struct Capture<'f> {
    link_type: u16,
    snap_len: u32,
    frames: Vec<Frame<'f>>,
}

impl<'f> Capture<'f> {
    /// `None`: another format, an old version, or a file that ends inside a record.
    fn new(file: &'f [u8]) -> Option<Capture<'f>> {
        let magic: [u8; 4] = *file.first_chunk()?;
        let swapped = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => cfg!(target_endian = "big"),
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => cfg!(target_endian = "little"),
            _ => return None,
        };
        let word = |at: usize| -> Option<u32> {
            let bytes = *file.get(at..)?.first_chunk()?;
            Some(if swapped { u32::from_ne_bytes(bytes).swap_bytes() } else { u32::from_ne_bytes(bytes) })
        };
        let mut link_type = u16::try_from(word(20)? & 0xffff).ok()?;
        if link_type == 0 && swapped {
            // An address family in the other byte order, as on OpenBSD's loopback.
            link_type = 108;
        }
        let snap_len = word(16)?;
        let mut frames = Vec::new();
        let mut at = 24;
        while at < file.len() {
            let (captured, wire_len) = (word(at + 8)?, word(at + 12)?);
            at += 16;
            let bytes = file.get(at..at + usize::try_from(captured).ok()?)?;
            at += bytes.len();
            // libpcap gives at most as much of a record as the file's header promises.
            let limit = if snap_len == 0 || snap_len > 0x7fff_ffff { 262_144 } else { snap_len };
            let kept = bytes.get(..usize::try_from(limit).ok()?).unwrap_or(bytes);
            frames.push(Frame { bytes: kept, wire_len });
        }
        Some(Capture { link_type, snap_len, frames })
    }
}

/// The number of packets that pass: packet by packet, by the batch, and after a round trip through classic BPF.
fn counts(code: &[cbpf::Instruction], frames: &[Frame<'_>]) -> [usize; 3] {
    let program = from_cbpf(code).unwrap();
    let interpreter = Interpreter::new(&program);
    let again = Interpreter::from_cbpf(&to_cbpf(&program)).unwrap();
    let select =
        |with: &Interpreter| frames.chunks(SELECT_FRAMES).map(|frames| with.select(frames).count_ones() as usize).sum();
    let one = frames.iter().filter(|frame| interpreter.run(frame.bytes, frame.wire_len) != 0).count();
    [one, select(&interpreter), select(&again)]
}

#[test]
fn as_many_packets_as_tcpdump() {
    let (data, least) = shared();
    let library = match Libpcap::load() {
        Ok(library) => library,
        Err(error) => {
            eprintln!("skipped, no libpcap: {error}");
            return;
        }
    };
    let mut wrong = Vec::new();
    let (mut captures, mut compared, mut hits, mut refused) = (0, 0, 0, 0);
    for entry in std::fs::read_dir(data.join("expected")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let Ok(file) = std::fs::read(data.join("captures").join(&name)) else {
            eprintln!("skipped: {name} is not there");
            continue;
        };
        let expected: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let Some(capture) = Capture::new(&file) else { continue };
        captures += 1;
        for (expression, expected) in expected["bpf"].as_object().unwrap() {
            let rejects_all = expected.as_str().is_some_and(|text| text.contains("expression rejects all packets"));
            let compiled = library.compile(expression, capture.link_type, capture.snap_len);
            match (expected.as_u64(), compiled) {
                (Some(count), Ok(code)) => {
                    let got = counts(&code, &capture.frames);
                    if got != [usize::try_from(count).unwrap(); 3] {
                        wrong.push(format!("{name}: {expression:?}: {got:?}, not {count}"));
                    }
                    compared += 1;
                    hits += usize::from(count > 0);
                }
                (None, Ok(code)) if rejects_all => {
                    assert_eq!(from_cbpf(&code).unwrap().always(), Some(0), "{name}: {expression:?}");
                    refused += 1;
                }
                (None, Err(_)) => refused += 1,
                // tcpdump refuses the file itself.
                (None, Ok(_)) => {}
                (Some(_), Err(error)) => wrong.push(format!("{name}: {expression:?}: {error}")),
            }
        }
    }
    eprintln!(
        "{captures} captures, {compared} expressions compared, {hits} with hits, {refused} refused as by tcpdump"
    );
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(hits > least, "the captures are there, so there is something to compare");
}
