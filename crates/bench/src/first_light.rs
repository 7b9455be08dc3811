//! The comparison `first-light`: capture files in, counts, streams and HTTP bodies out, in one process.
//!
//! External peers are compared as whole processes with our release binary; captures lie in the page cache, output goes to
//! memory. What comes out of ours is checked in every run: the count, or the number and the sizes of the files, and once
//! the bytes in them.

use crate::captures::{Capture, Content};
use crate::case::{Case, How, IntoFolder, Sides, Trouble};
use crate::in_process;
use crate::machine::{Peer, TCPDUMP, TCPFLOW, TSHARK};
use crate::measure::{Clock, Figure, Side};
use crate::memory::Blocks;
use crate::process::{Cost, Program, Stopwatch, run_pipeline};
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use crate::{floors, stages};
use std::path::{Path, PathBuf};

type Made<'a> = Result<Sides<'a>, Trouble>;

/// Bytes of the captures with large flows and with HTTP.
const CAPTURE_BYTES: u64 = 300_000_000;
/// Frames of the capture with small ones.
const SMALL_FRAMES: u64 = 4_000_000;
/// Large flows, and connections with HTTP.
const FEW: usize = 8;
/// Small flows.
const MANY: usize = 10_000;
/// Files that may be open while those are written.
const OPEN_FILES: u32 = 256;
/// Memory that no cache holds.
const MEMORY_BYTES: u64 = 256 << 20;
/// Memory that the second-level cache holds.
const CACHE_BYTES: u64 = 512 << 10;
/// What is looked for: in the request of each large flow, and nowhere else.
const TEXT: &str = "GET /file/";

const fn wall(figure: Figure, sides: fn(&Setting) -> Made<'_>) -> How {
    How::Time(Clock::Wall, figure, sides)
}

/// The cases, those that show how steady the machine is first.
pub static CASES: &[Case] = &[
    Case {
        about: "A/A: a loop by hand",
        against: "itself",
        goal: Goal::Within(0.97, 1.03),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = small_frames(setting)?;
            Ok(Sides { ours: count_by_hand(&capture), peer: count_by_hand(&capture) })
        }),
    },
    Case {
        about: "A/A: `pcap | count` as a process",
        against: "itself",
        goal: Goal::Within(0.97, 1.03),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            let side = || count(setting, "pcap F | count", &capture, capture.frames);
            Ok(Sides { ours: side(), peer: side() })
        }),
    },
    Case {
        about: "`pcap | count`, MTU frames",
        against: "loop by hand over the mapped file",
        goal: Goal::AtMost(1.6, 1.2),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| count_or_loop(large_flows(setting)?)),
    },
    Case {
        about: "`pcap | count`, MTU frames",
        against: "`tcpdump -r F -w /dev/null`",
        goal: Goal::AtLeast(2.0, 2.6),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides {
                peer: tcpdump(&capture, None)?,
                ours: count(setting, "pcap F | count", &capture, capture.frames),
            })
        }),
    },
    Case {
        about: "`pcap | count`, 64-byte frames",
        against: "loop by hand over the mapped file",
        goal: Goal::AtMost(2.5, 1.6),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| count_or_loop(small_frames(setting)?)),
    },
    Case {
        about: "`pcap | count`, 64-byte frames",
        against: "`tcpdump -r F -w /dev/null`",
        goal: Goal::AtLeast(3.0, 4.5),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = small_frames(setting)?;
            Ok(Sides {
                peer: tcpdump(&capture, None)?,
                ours: count(setting, "pcap F | count", &capture, capture.frames),
            })
        }),
    },
    Case {
        about: "`pcap | bpf \"tcp port 80\" | count`, MTU frames",
        against: "`tcpdump -r F -w /dev/null tcp port 80`",
        goal: Goal::AtLeast(1.7, 2.4),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| bpf(setting, &large_flows(setting)?)),
    },
    Case {
        about: "`pcap | bpf \"tcp port 80\" | count`, 64-byte frames",
        against: "`tcpdump -r F -w /dev/null tcp port 80`",
        goal: Goal::AtLeast(2.2, 3.5),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| bpf(setting, &small_frames(setting)?)),
    },
    Case {
        about: "`pcap | tcp | count`",
        against: "`tshark -q -z conv,tcp -r F`",
        goal: Goal::AtMost(0.05, 0.01),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            let peer = conversations(&capture)?;
            Ok(Sides { ours: count_stream_bytes(setting, &capture), peer })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 8 large flows",
        against: "map and `writev` of the same bytes by hand",
        goal: Goal::AtMost(1.6, 1.2),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides {
                ours: stream_files(setting, &capture, "hash=no"),
                peer: stream_files_by_hand(setting, &capture),
            })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 8 large flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(0.80, 0.65),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { peer: tcpflow(setting, &capture, None)?, ours: stream_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "`pcap | tcp | files`, hashed, 8 large flows",
        against: "`tcpflow -r F -o D`, without hashes",
        goal: Goal::AtMost(1.0, 0.75),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { peer: tcpflow(setting, &capture, None)?, ours: stream_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | tcp | files hash=no`, 10,000 small flows, 256 open files",
        against: "`tcpflow -r F -o D`, 256 open files",
        goal: Goal::AtMost(0.5, 0.3),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = small_flows(setting)?;
            let peer = tcpflow(setting, &capture, Some(OPEN_FILES))?;
            Ok(Sides { peer, ours: many_stream_files(setting, &capture, "hash=no") })
        }),
    },
    Case {
        about: "`pcap | tcp | files`, hashed, 10,000 small flows, 256 open files",
        against: "`tcpflow -r F -o D`, without hashes, 256 open files",
        goal: Goal::AtMost(0.5, 0.3),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = small_flows(setting)?;
            let peer = tcpflow(setting, &capture, Some(OPEN_FILES))?;
            Ok(Sides { peer, ours: many_stream_files(setting, &capture, "hash=yes") })
        }),
    },
    Case {
        about: "`pcap | http | files`, hashed",
        against: "`tshark -q -r F --export-objects http,D`, processor time",
        goal: Goal::AtMost(0.05, 0.02),
        touched: Touched::Copy,
        how: How::Time(Clock::Cpu, Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: export_objects(setting, &capture)?, ours: body_files(setting, &capture) })
        }),
    },
    Case {
        about: "`pcap | http | files`, hashed",
        against: "`tcpflow -a -r F -o D`",
        goal: Goal::AtMost(0.3, 0.2),
        touched: Touched::Copy,
        how: wall(Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { peer: tcpflow_all(setting, &capture)?, ours: body_files(setting, &capture) })
        }),
    },
    Case {
        about: "memory of `pcap | tcp | files`, 8 large flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(1.5, 0.7),
        touched: Touched::Copy,
        how: How::Memory(|setting| memory(setting, large_flows(setting)?)),
    },
    Case {
        about: "memory of `pcap | tcp | files`, 10,000 small flows",
        against: "`tcpflow -r F -o D`",
        goal: Goal::AtMost(1.5, 0.7),
        touched: Touched::Copy,
        how: How::Memory(|setting| memory(setting, small_flows(setting)?)),
    },
    Case {
        about: "8 filters that do nothing: ns for each block and filter",
        against: "the source alone",
        goal: Goal::AtMost(2.0, 1.0),
        touched: Touched::None,
        how: wall(Figure::ExtraNs(8.0), |setting| {
            let blocks = Blocks::new(&setting.store.noise(MEMORY_BYTES)?, CACHE_BYTES, 1024, 8192);
            let per_block = blocks.count() as f64;
            let (with, without) = (blocks.clone(), blocks);
            Ok(Sides {
                ours: Side::new(move || with.through_nothing(8)).per_item(per_block),
                peer: Side::new(move || without.through_nothing(0)).per_item(per_block),
            })
        }),
    },
    Case {
        about: "filter that reads one byte of each 1 KB block, out of memory",
        against: "loop by hand over the same memory",
        goal: Goal::AtMost(1.3, 1.1),
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            touch_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, MEMORY_BYTES, 1024, 32))
        }),
    },
    Case {
        about: "the same out of the cache",
        against: "loop by hand over the same memory",
        goal: Goal::Reported,
        touched: Touched::Header,
        how: wall(Figure::Share, |setting| {
            touch_or_loop(Blocks::new(&setting.store.noise(MEMORY_BYTES)?, CACHE_BYTES, 1024, 16_384))
        }),
    },
    Case {
        about: "filter that reads one byte of each 1 KB block, out of memory",
        against: "three processes and pipes of 1 MiB, a read and a write for each block",
        goal: Goal::AtLeast(100.0, 100.0),
        touched: Touched::Header,
        how: wall(Figure::TimesAsFast, |setting| {
            let blocks = Blocks::new(&setting.store.noise(MEMORY_BYTES)?, MEMORY_BYTES, 1024, 32);
            let per_block = blocks.count() as f64;
            let ours = Side::new(move || Ok(blocks.through_touch()?.0)).per_item(per_block);
            Ok(Sides { ours, peer: touch_through_pipes(setting) })
        }),
    },
    Case {
        about: "`pcap | match TEXT | count`, MTU frames",
        against: "the same matcher in a loop by hand",
        goal: Goal::AtMost(1.2, 1.05),
        touched: Touched::Sum,
        how: wall(Figure::Share, |setting| {
            let capture = large_flows(setting)?;
            Ok(Sides { ours: match_in_process(&capture), peer: match_by_hand(&capture) })
        }),
    },
    Case {
        about: "`pcap | match TEXT | count`, MTU frames, as a process",
        against: "three processes and pipes of 1 MiB, the same matcher in the middle, 64 KB at a time",
        goal: Goal::Reported,
        touched: Touched::Sum,
        how: wall(Figure::TimesAsFast, |setting| {
            let capture = large_flows(setting)?;
            let request = format!("pcap F | match \"{TEXT}\" | count");
            let ours = count(setting, &request, &capture, FEW as u64);
            Ok(Sides { ours, peer: match_through_pipes(setting, &capture) })
        }),
    },
];

// --- captures -------------------------------------------------------------------------------------------------------

fn large_flows(setting: &Setting) -> Result<Capture, Trouble> {
    Ok(setting.store.large_flows(FEW, CAPTURE_BYTES)?)
}

fn small_frames(setting: &Setting) -> Result<Capture, Trouble> {
    Ok(setting.store.small_frames(SMALL_FRAMES)?)
}

fn small_flows(setting: &Setting) -> Result<Capture, Trouble> {
    Ok(setting.store.small_flows(MANY)?)
}

fn http(setting: &Setting) -> Result<Capture, Trouble> {
    Ok(setting.store.http(FEW, CAPTURE_BYTES)?)
}

// --- ours -----------------------------------------------------------------------------------------------------------

/// A request text in which `F` stands for the capture.
fn request(text: &str, capture: &Capture) -> String {
    text.replacen("pcap F", &format!("pcap \"{}\"", capture.path.display()), 1)
}

/// A request that ends in `count`, as a process.
fn count<'a>(setting: &Setting, text: &str, capture: &Capture, expected: u64) -> Side<'a> {
    let program = setting.ours(&request(text, capture));
    Side::new(move || {
        let ran = program.run()?;
        check_number(&ran.stdout, "blocks", expected)?;
        Ok(ran.cost)
    })
}

/// The same in this process.
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

fn count_stream_bytes<'a>(setting: &Setting, capture: &Capture) -> Side<'a> {
    let program = setting.ours(&request("pcap F | tcp | count", capture));
    let expected = capture.streams.iter().map(|content| content.size).sum();
    Side::new(move || {
        let ran = program.run()?;
        check_number(&ran.stdout, "bytes", expected)?;
        Ok(ran.cost)
    })
}

fn count_or_loop<'a>(capture: Capture) -> Made<'a> {
    Ok(Sides { ours: count_here("pcap F | count", &capture, capture.frames), peer: count_by_hand(&capture) })
}

fn bpf<'a>(setting: &Setting, capture: &Capture) -> Made<'a> {
    let ours = count(setting, "pcap F | bpf \"tcp port 80\" | count", capture, capture.web_frames);
    Ok(Sides { ours, peer: tcpdump(capture, Some("tcp port 80"))? })
}

/// Files of streams, as a process.
fn stream_files<'a>(setting: &'a Setting, capture: &Capture, options: &str) -> Side<'a> {
    into_files(setting, capture, format!("pcap F | tcp | files dir=D {options}"), capture.streams.clone(), None)
}

fn many_stream_files<'a>(setting: &'a Setting, capture: &Capture, options: &str) -> Side<'a> {
    let text = format!("pcap F | tcp | files dir=D {options}");
    into_files(setting, capture, text, capture.streams.clone(), Some(OPEN_FILES))
}

/// Files of bodies, as a process.
fn body_files<'a>(setting: &'a Setting, capture: &Capture) -> Side<'a> {
    into_files(setting, capture, "pcap F | http | files dir=D".to_owned(), capture.bodies.clone(), None)
}

fn into_files<'a>(
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

/// Are these the files that should be there: as many, of those sizes and, where `inside`, with those bytes?
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

fn count_by_hand<'a>(capture: &Capture) -> Side<'a> {
    let (path, expected) = (capture.path.clone(), capture.frames);
    Side::new(move || here(|| floors::count(&path).map(|(frames, _)| frames), expected))
}

/// What it costs to find a number in this process, which has to be that one.
fn here(find: impl FnOnce() -> Result<u64, String>, expected: u64) -> Result<Cost, String> {
    let watch = Stopwatch::start_here()?;
    let found = find()?;
    let cost = watch.stop()?;
    if found == expected { Ok(cost) } else { Err(format!("{expected} expected, {found} found by hand")) }
}

fn stream_files_by_hand<'a>(setting: &'a Setting, capture: &Capture) -> Side<'a> {
    let (path, expected) = (capture.path.clone(), capture.streams.clone());
    Side::new(move || {
        setting.do_into(|out| floors::write_streams(&path, out), |out| check_files(out, &expected, false))
    })
}

fn touch_or_loop<'a>(blocks: Blocks) -> Made<'a> {
    let per_block = blocks.count() as f64;
    let expected = blocks.touch_by_hand()?.1;
    let check = move |(cost, sum): (Cost, u64)| {
        if sum == expected { Ok(cost) } else { Err(format!("sum {expected} expected, not {sum}")) }
    };
    let by_hand = blocks.clone();
    Ok(Sides {
        ours: Side::new(move || check(blocks.through_touch()?)).per_item(per_block),
        peer: Side::new(move || check(by_hand.touch_by_hand()?)).per_item(per_block),
    })
}

fn match_in_process<'a>(capture: &Capture) -> Side<'a> {
    count_here(&format!("pcap F | match \"{TEXT}\" | count"), capture, FEW as u64)
}

fn match_by_hand<'a>(capture: &Capture) -> Side<'a> {
    let path = capture.path.clone();
    Side::new(move || here(|| floors::count_with(&path, TEXT), FEW as u64))
}

// --- peers ----------------------------------------------------------------------------------------------------------

fn find(peer: Peer) -> Result<PathBuf, Trouble> {
    peer.find().map_err(Trouble::Missing)
}

fn plain<'a>(program: Program) -> Side<'a> {
    Side::new(move || Ok(program.run()?.cost))
}

fn tcpdump<'a>(capture: &Capture, expression: Option<&str>) -> Result<Side<'a>, Trouble> {
    let program = Program::new(find(TCPDUMP)?).arg("-r").arg(&capture.path).args(["-w", "/dev/null"]);
    Ok(plain(program.args(expression)))
}

fn conversations<'a>(capture: &Capture) -> Result<Side<'a>, Trouble> {
    Ok(plain(Program::new(find(TSHARK)?).args(["-q", "-z", "conv,tcp", "-r"]).arg(&capture.path)))
}

fn export_objects<'a>(setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, Trouble> {
    let program = Program::new(find(TSHARK)?).args(["-q", "-r"]).arg(&capture.path).arg("--export-objects");
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(format!("http,{}", out.display())), |_| Ok(()))))
}

fn tcpflow<'a>(setting: &'a Setting, capture: &Capture, open_files: Option<u32>) -> Result<Side<'a>, Trouble> {
    let program = limited(Program::new(find(TCPFLOW)?).arg("-r").arg(&capture.path).arg("-o"), open_files);
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(out), |_| Ok(()))))
}

fn tcpflow_all<'a>(setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, Trouble> {
    let program = Program::new(find(TCPFLOW)?).args(["-a", "-r"]).arg(&capture.path).arg("-o");
    Ok(Side::new(move || setting.run_into(|out| program.clone().arg(out), |_| Ok(()))))
}

fn memory(setting: &Setting, capture: Capture) -> Result<[IntoFolder<'_>; 2], Trouble> {
    let peer = Program::new(find(TCPFLOW)?).arg("-r").arg(&capture.path).arg("-o");
    let text = request("pcap F | tcp | files dir=D", &capture);
    let ours = move |out: &Path| setting.ours(&into(&text, out));
    Ok([Box::new(ours), Box::new(move |out| peer.clone().arg(out))])
}

fn touch_through_pipes(setting: &Setting) -> Side<'_> {
    const BLOCKS: u64 = 500_000;
    let stage = |words: &[&str]| Program::new(&setting.bench).arg("stage").args(words);
    let programs = [stage(&["produce", &BLOCKS.to_string()]), stage(&["touch"]), stage(&["end"])];
    let expected = stages::expected(BLOCKS);
    Side::new(move || {
        let ran = run_pipeline(&programs)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        if said == expected { Ok(ran.cost) } else { Err(format!("{expected} expected, not {said}")) }
    })
    .per_item(BLOCKS as f64)
}

fn match_through_pipes<'a>(setting: &Setting, capture: &Capture) -> Side<'a> {
    let stage = |word: &str| Program::new(&setting.bench).args(["stage", word]);
    let programs = [stage("read").arg(&capture.path), stage("match").arg(TEXT), stage("size")];
    Side::new(move || {
        let ran = run_pipeline(&programs)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        // How reads cut the file is not fixed, so neither is how much around each match passes.
        let passed = said.trim().parse::<u64>().unwrap_or(0);
        if passed > 0 { Ok(ran.cost) } else { Err(format!("nothing matched: {said}")) }
    })
}
