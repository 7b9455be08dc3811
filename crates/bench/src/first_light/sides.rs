//! The two sides of each case: our requests, loops by hand, other programs, and the checks of each.

use crate::captures::{Capture, Content};
use crate::case::{CaseError, IntoFolder, Sides};
use crate::in_process;
use crate::machine::{Peer, TCPDUMP, TCPFLOW, TSHARK};
use crate::measure::Side;
use crate::memory::Blocks;
use crate::process::{Cost, Program, Stopwatch, run_pipeline};
use crate::setting::Setting;
use crate::{floors, piped};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) type Made<'a> = Result<Sides<'a>, CaseError>;

const CAPTURE_BYTES: u64 = 300_000_000;
const SMALL_BODIES_BYTES: u64 = 50_000_000;
const SMALL_FRAMES: u64 = 4_000_000;
/// Number of large flows, and of connections with HTTP.
pub(crate) const FEW: usize = 8;
pub(crate) const MANY: usize = 10_000;
/// Files that may be open while the small flows are written.
pub(crate) const OPEN_FILES: u32 = 256;
/// The text to find in noise: three bytes, which occur once in every 16 MiB.
const NOISE_TEXT: &str = "sl|";
/// The text to find in frames: it is in the request of each large flow, and nowhere else.
pub(crate) const TEXT: &str = "GET /file/";

// --- captures -------------------------------------------------------------------------------------------------------

pub(crate) fn large_flows(setting: &Setting) -> Result<Capture, CaseError> {
    Ok(setting.store.large_flows(FEW, CAPTURE_BYTES)?)
}

pub(crate) fn small_frames(setting: &Setting) -> Result<Capture, CaseError> {
    Ok(setting.store.small_frames(SMALL_FRAMES)?)
}

pub(crate) fn small_flows(setting: &Setting) -> Result<Capture, CaseError> {
    Ok(setting.store.small_flows(MANY)?)
}

pub(crate) fn http(setting: &Setting) -> Result<Capture, CaseError> {
    Ok(setting.store.http(FEW, CAPTURE_BYTES)?)
}

/// 18,000 small bodies.
pub(crate) fn http_small(setting: &Setting) -> Result<Capture, CaseError> {
    Ok(setting.store.http_small(FEW, SMALL_BODIES_BYTES)?)
}

// --- ours -----------------------------------------------------------------------------------------------------------

pub(crate) fn request(text: &str, capture: &Capture) -> String {
    text.replacen("pcap F", &format!("pcap \"{}\"", capture.path.display()), 1)
}

/// A request that ends in `count`, as a process.
pub(crate) fn count<'a>(setting: &Setting, text: &str, capture: &Capture, expected: u64) -> Side<'a> {
    let program = setting.ours(&request(text, capture));
    Side::new(move || {
        let ran = program.run()?;
        check_number(&ran.stdout, "blocks", expected)?;
        Ok(ran.cost)
    })
}

/// Like [`count`], in this process.
fn count_here<'a>(text: &str, capture: &Capture, expected: u64) -> Side<'a> {
    let request = request(text, capture);
    Side::new(move || {
        let ran = in_process::run(&request)?;
        check_number(&ran.stdout, "blocks", expected)?;
        Ok(ran.cost)
    })
}

fn check_number(stdout: &[u8], key: &str, expected: u64) -> Result<(), String> {
    let text = String::from_utf8_lossy(stdout);
    let row: serde_json::Value = serde_json::from_str(text.trim()).map_err(|error| format!("{error}: {text}"))?;
    let found = row[key].as_u64();
    if found == Some(expected) { Ok(()) } else { Err(format!("{key}: {expected} expected, not {text}")) }
}

/// A request, as a process, whose output has to be that of the first side that ran.
pub(crate) fn saying<'a>(setting: &Setting, text: &str, capture: &Capture, said: &Rc<OnceCell<Vec<u8>>>) -> Side<'a> {
    let (program, said) = (setting.ours(&request(text, capture)), Rc::clone(said));
    Side::new(move || {
        let ran = program.run()?;
        match said.get_or_init(|| ran.stdout.clone()) == &ran.stdout {
            true => Ok(ran.cost),
            false => Err(format!("it said something else: {}", String::from_utf8_lossy(&ran.stdout))),
        }
    })
}

pub(crate) fn count_stream_bytes<'a>(setting: &Setting, capture: &Capture) -> Side<'a> {
    let program = setting.ours(&request("pcap F | tcp | count", capture));
    let expected = capture.streams.iter().map(|content| content.size).sum();
    Side::new(move || {
        let ran = program.run()?;
        check_number(&ran.stdout, "bytes", expected)?;
        Ok(ran.cost)
    })
}

pub(crate) fn count_or_loop<'a>(capture: Capture) -> Made<'a> {
    Ok(Sides { ours: count_here("pcap F | count", &capture, capture.frames), peer: count_by_hand(&capture) })
}

pub(crate) fn bpf<'a>(setting: &Setting, capture: &Capture) -> Made<'a> {
    let ours = count(setting, "pcap F | bpf \"tcp port 80\" | count", capture, capture.web_frames);
    Ok(Sides { ours, peer: tcpdump(capture, Some("tcp port 80"))? })
}

/// A request, as a process, that writes streams into files.
pub(crate) fn stream_files<'a>(setting: &'a Setting, capture: &Capture, options: &str) -> Side<'a> {
    into_files(setting, capture, format!("pcap F | tcp | files dir=D {options}"), capture.streams.clone(), None)
}

pub(crate) fn many_stream_files<'a>(setting: &'a Setting, capture: &Capture, options: &str) -> Side<'a> {
    let text = format!("pcap F | tcp | files dir=D {options}");
    into_files(setting, capture, text, capture.streams.clone(), Some(OPEN_FILES))
}

/// A request, as a process, that writes bodies into files.
pub(crate) fn body_files<'a>(setting: &'a Setting, capture: &Capture, options: &str) -> Side<'a> {
    into_files(setting, capture, format!("pcap F | http | files dir=D {options}"), capture.bodies.clone(), None)
}

pub(crate) fn into_files<'a>(
    setting: &'a Setting,
    capture: &Capture,
    text: String,
    expected: Vec<Content>,
    open_files: Option<u32>,
) -> Side<'a> {
    let text = request(&text, capture);
    let mut looked_inside = false;
    Side::new(move || {
        let cost = setting.run_into(
            |out| limited(setting.ours(&into(&text, out)), open_files),
            |out| check_files(out, &expected, !looked_inside),
        )?;
        looked_inside = true;
        Ok(cost)
    })
}

fn into(text: &str, out: &Path) -> String {
    text.replacen("dir=D", &format!("dir=\"{}\"", out.display()), 1)
}

fn limited(program: Program, open_files: Option<u32>) -> Program {
    match open_files {
        Some(limit) => program.open_files(limit),
        None => program,
    }
}

/// Checks the files: their number and sizes and, with `inside`, their bytes.
fn check_files(folder: &Path, expected: &[Content], inside: bool) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if entry.file_name() == "index.jsonl" {
            continue;
        }
        found.push(if inside {
            Content::of(&std::fs::read(entry.path()).map_err(wrong)?)
        } else {
            Content { size: entry.metadata().map_err(wrong)?.len(), hash: 0 }
        });
    }
    found.sort_unstable();
    let same = |(found, expected): (&Content, &Content)| {
        found.size == expected.size && (!inside || found.hash == expected.hash)
    };
    if found.len() == expected.len() && found.iter().zip(expected).all(same) {
        return Ok(());
    }
    let bytes = |contents: &[Content]| contents.iter().map(|content| content.size).sum::<u64>();
    let (there, wanted) = ((found.len(), bytes(&found)), (expected.len(), bytes(expected)));
    Err(format!("files and bytes: {wanted:?} expected, {there:?} there, or others of the same size"))
}

// --- by hand --------------------------------------------------------------------------------------------------------

pub(crate) fn count_by_hand<'a>(capture: &Capture) -> Side<'a> {
    let (path, expected) = (capture.path.clone(), capture.frames);
    Side::new(move || here(|| floors::count(&path).map(|(frames, _)| frames), expected))
}

/// The cost of finding a number in this process; it has to be `expected`.
fn here(find: impl FnOnce() -> Result<u64, String>, expected: u64) -> Result<Cost, String> {
    let watch = Stopwatch::start_here()?;
    let found = find()?;
    let cost = watch.stop()?;
    if found == expected { Ok(cost) } else { Err(format!("{expected} expected, {found} found by hand")) }
}

pub(crate) fn stream_files_by_hand<'a>(setting: &'a Setting, capture: &Capture) -> Side<'a> {
    let (path, expected) = (capture.path.clone(), capture.streams.clone());
    Side::new(move || {
        setting.do_into(|out| floors::write_streams(&path, out), |out| check_files(out, &expected, false))
    })
}

pub(crate) fn touch_or_loop<'a>(blocks: Blocks) -> Made<'a> {
    over_memory(blocks, Blocks::through_touch, Blocks::touch_by_hand)
}

pub(crate) fn look_or_loop<'a>(blocks: Blocks) -> Made<'a> {
    over_memory(blocks, |blocks| blocks.through_look(NOISE_TEXT), |blocks| blocks.look_by_hand(NOISE_TEXT))
}

/// A filter and a loop by hand over the same blocks; both have to find the same.
fn over_memory<'a>(
    blocks: Blocks,
    filter: fn(&Blocks) -> Result<(Cost, u64), String>,
    by_hand: fn(&Blocks) -> Result<(Cost, u64), String>,
) -> Made<'a> {
    let per_block = blocks.count() as f64;
    let expected = by_hand(&blocks)?.1;
    let side = |run: fn(&Blocks) -> Result<(Cost, u64), String>| {
        let blocks = blocks.clone();
        let checked = move || {
            let (cost, found) = run(&blocks)?;
            if found == expected { Ok(cost) } else { Err(format!("{expected} expected, not {found}")) }
        };
        Side::new(checked).per_item(per_block)
    };
    Ok(Sides { ours: side(filter), peer: side(by_hand) })
}

pub(crate) fn match_in_process<'a>(capture: &Capture) -> Side<'a> {
    count_here(&format!("pcap F | match \"{TEXT}\" | count"), capture, FEW as u64)
}

pub(crate) fn match_by_hand<'a>(capture: &Capture) -> Side<'a> {
    let path = capture.path.clone();
    Side::new(move || here(|| floors::count_with(&path, TEXT), FEW as u64))
}

// --- peers ----------------------------------------------------------------------------------------------------------

fn find(peer: Peer) -> Result<PathBuf, CaseError> {
    peer.find().map_err(CaseError::Missing)
}

pub(crate) fn plain<'a>(program: Program) -> Side<'a> {
    Side::new(move || Ok(program.run()?.cost))
}

pub(crate) fn tcpdump<'a>(capture: &Capture, expression: Option<&str>) -> Result<Side<'a>, CaseError> {
    let program = Program::new(find(TCPDUMP)?).arg("-r").arg(&capture.path).args(["-w", "/dev/null"]);
    Ok(plain(program.args(expression)))
}

pub(crate) fn conversations<'a>(capture: &Capture) -> Result<Side<'a>, CaseError> {
    Ok(plain(Program::new(find(TSHARK)?).args(["-q", "-z", "conv,tcp", "-r"]).arg(&capture.path)))
}

pub(crate) fn export_objects<'a>(setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, CaseError> {
    let program = Program::new(find(TSHARK)?).args(["-q", "-r"]).arg(&capture.path).arg("--export-objects");
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(format!("http,{}", out.display())), |_| Ok(()))))
}

pub(crate) fn tcpflow<'a>(
    setting: &'a Setting,
    capture: &Capture,
    open_files: Option<u32>,
) -> Result<Side<'a>, CaseError> {
    let program = limited(Program::new(find(TCPFLOW)?).arg("-r").arg(&capture.path).arg("-o"), open_files);
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(out), |_| Ok(()))))
}

pub(crate) fn tcpflow_all<'a>(setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, CaseError> {
    let program = Program::new(find(TCPFLOW)?).args(["-a", "-r"]).arg(&capture.path).arg("-o");
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(out), |_| Ok(()))))
}

pub(crate) fn memory(setting: &Setting, capture: Capture) -> Result<[IntoFolder<'_>; 2], CaseError> {
    let peer = Program::new(find(TCPFLOW)?).arg("-r").arg(&capture.path).arg("-o");
    let text = request("pcap F | tcp | files dir=D", &capture);
    let ours = move |out: &Path| setting.ours(&into(&text, out));
    Ok([Box::new(ours), Box::new(move |out| peer.clone().arg(out))])
}

pub(crate) fn touch_through_pipes(setting: &Setting) -> Side<'_> {
    const BLOCKS: u64 = 500_000;
    let stage = |words: &[&str]| Program::new(&setting.bench).arg("stage").args(words);
    let programs = [stage(&["produce", &BLOCKS.to_string()]), stage(&["touch"]), stage(&["end"])];
    let expected = piped::expected(BLOCKS);
    Side::new(move || {
        let ran = run_pipeline(&programs)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        if said == expected { Ok(ran.cost) } else { Err(format!("{expected} expected, not {said}")) }
    })
    .per_item(BLOCKS as f64)
}

pub(crate) fn match_through_pipes<'a>(setting: &Setting, capture: &Capture) -> Side<'a> {
    let stage = |word: &str| Program::new(&setting.bench).args(["stage", word]);
    let programs = [stage("read").arg(&capture.path), stage("match").arg(TEXT), stage("size")];
    Side::new(move || {
        let ran = run_pipeline(&programs)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        // The cuts of reads vary, so the amount that passes around each match does, too.
        let passed = said.trim().parse::<u64>().unwrap_or(0);
        if passed > 0 { Ok(ran.cost) } else { Err(format!("nothing matched: {said}")) }
    })
}
