//! The comparison `inspection`: flows, records of packets, questions and rules over capture files, against the programs that
//! answer the same questions. Each side is a process; captures lie in the page cache, output goes to memory. Ours is checked in
//! every run. Inspection between two devices (`inline`) is measured on virtual pairs.

mod inline;
mod rules;

use crate::captures::Capture;
use crate::case::{Case, CaseError, How, Sides};
use crate::first_light::sides::*;
use crate::machine::{NFPCAPD, Peer, SOFTFLOWD, TSHARK};
use crate::measure::{Clock, Figure, Side};
use crate::process::Program;
use crate::setting::Setting;
use crate::table::{Goal, Touched};

type Take = fn(&Setting) -> Result<Capture, CaseError>;

/// Whose flows are counted, and how many there are: [`small_frames`] has 64 of TCP and 64 of UDP.
const LARGE: (Take, u64) = (large_flows, FEW as u64);
const SMALL: (Take, u64) = (small_flows, MANY as u64);
const SHORT: (Take, u64) = (small_frames, 128);

const FIELDS: &str = "src_ip src_port dest_ip dest_port proto frame.len";
const ANSWER_FIELDS: &str = "timestamp src_ip dest_ip proto http.status http.http_content_type";
const THEIR_FIELDS: [&str; 6] = ["ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "_ws.col.Protocol", "frame.len"];

const fn row(about: &'static str, against: &'static str, goal: Goal, how: How) -> Case {
    Case { about, against, goal, touched: Touched::Header, how }
}

const fn wall(sides: fn(&Setting) -> Made<'_>) -> How {
    How::Time(Clock::Wall, Figure::Share, sides)
}

/// The cases, the one that shows how steady the machine is first.
pub static CASES: &[Case] = &[
    row(
        "A/A: `pcap | flows | json`, 10,000 small flows",
        "itself",
        Goal::Within(0.97, 1.03),
        wall(|setting| {
            let capture = SMALL.0(setting)?;
            let side = || flows(setting, &capture, SMALL.1);
            Ok(Sides { ours: side(), peer: side() })
        }),
    ),
    row(
        "`pcap | flows | json`, 8 large flows",
        "`nfpcapd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, LARGE, nfpcapd)),
    ),
    row(
        "`pcap | flows | json`, 8 large flows",
        "`softflowd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, LARGE, softflowd)),
    ),
    row(
        "`pcap | flows | json`, 10,000 small flows",
        "`nfpcapd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, SMALL, nfpcapd)),
    ),
    row(
        "`pcap | flows | json`, 10,000 small flows",
        "`softflowd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, SMALL, softflowd)),
    ),
    row(
        "`pcap | flows | json`, 64-byte frames",
        "`nfpcapd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, SHORT, nfpcapd)),
    ),
    row(
        "`pcap | flows | json`, 64-byte frames",
        "`softflowd -r F`",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| flows_or(setting, SHORT, softflowd)),
    ),
    files(
        "`pcap | flows | parquet`, 8 large flows",
        "`nfpcapd -r F`",
        Goal::AtMost(0.4, 0.25),
        wall(|setting| columns(setting, LARGE)),
    ),
    files(
        "`pcap | flows | parquet`, 10,000 small flows",
        "`nfpcapd -r F`",
        Goal::AtMost(0.4, 0.25),
        wall(|setting| columns(setting, SMALL)),
    ),
    row(
        "`pcap | packets | fields`, six fields as TSV",
        "`tshark -T fields`",
        Goal::AtMost(0.02, 0.01),
        wall(|setting| {
            let capture = small_flows(setting)?;
            let fields = THEIR_FIELDS.iter().flat_map(|field| ["-e", field]);
            let peer = tshark(&capture)?.args(["-T", "fields"]).args(fields);
            let ours = lines(setting, &format!("pcap F | packets | fields {FIELDS}"), &capture, capture.frames + 1);
            Ok(Sides { ours, peer: plain(peer) })
        }),
    ),
    row(
        "`pcap | packets | by src_ip top=10`",
        "`tshark -q -z ip_srcdst,tree`",
        Goal::AtMost(0.02, 0.01),
        wall(|setting| {
            let capture = small_flows(setting)?;
            let peer = tshark(&capture)?.args(["-q", "-z", "ip_srcdst,tree"]);
            Ok(Sides { ours: lines(setting, "pcap F | packets | by src_ip top=10", &capture, 10), peer: plain(peer) })
        }),
    ),
    row(
        "`pcap | http | where \"http.status = 200\" | fields`, six fields",
        "`tshark -Y \"http.response.code == 200\"`",
        Goal::AtMost(0.03, 0.015),
        wall(|setting| {
            let capture = http(setting)?;
            let peer = tshark(&capture)?.args(["-Y", "http.response.code == 200"]);
            let request = format!("pcap F | http | where \"http.status = 200\" | fields {ANSWER_FIELDS}");
            Ok(Sides { ours: lines(setting, &request, &capture, capture.bodies.len() as u64 + 1), peer: plain(peer) })
        }),
    ),
    files(
        "`pcap | http | files`, hashed, bodies of 1 KB to 4 MB",
        EXPORT,
        Goal::AtMost(0.15, 0.1),
        How::Time(Clock::Cpu, Figure::Share, |setting| bodies(setting, http, export_objects)),
    ),
    files(
        "`pcap | http | files`, hashed, bodies of 1 to 4 KB",
        EXPORT,
        Goal::AtMost(0.05, 0.03),
        How::Time(Clock::Cpu, Figure::Share, |setting| bodies(setting, http_small, export_objects)),
    ),
    files(
        "`pcap | http | files`, hashed, bodies of 1 KB to 4 MB",
        "`tcpflow -a -r F -o D`, with MD5",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| bodies(setting, http, tcpflow_all)),
    ),
    files(
        "`pcap | http | files`, hashed, bodies of 1 to 4 KB",
        "`tcpflow -a -r F -o D`, with MD5",
        Goal::AtMost(0.3, 0.2),
        wall(|setting| bodies(setting, http_small, tcpflow_all)),
    ),
    row(
        "`pcap | rules FILE`, 15,000 rules",
        "`pcap | http | count`",
        Goal::AtMost(4.0, 2.5),
        wall(|setting| {
            let capture = http(setting)?;
            let file = rules::file(setting)?;
            let ours = lines(setting, &format!("pcap F | rules \"{}\"", file.display()), &capture, rules::ALERTS);
            Ok(Sides { ours, peer: plain(setting.ours(&request("pcap F | http | count", &capture))) })
        }),
    ),
    row(
        "`bridge a b | ips rules=F`, one HTTP rule that never matches, a download in frames of 1,514 B",
        "Linux bridge",
        Goal::AtLeast(0.4, 0.7),
        How::Numbers(inline::download),
    ),
    row(
        "the same with 15,000 rules, a body full of their first contents",
        "Linux bridge",
        Goal::AtLeast(1.0, 2.0),
        How::Beside(inline::worst),
    ),
    row(
        "`bridge a b | ips rules=F`, 15,000 rules: there and back for one byte of UDP, p99",
        "Linux bridge",
        Goal::Reported,
        How::Beside(inline::latency),
    ),
];

const EXPORT: &str = "`tshark -q -r F --export-objects http,D`, processor time, without hashes";

const fn files(about: &'static str, against: &'static str, goal: Goal, how: How) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how }
}

fn bodies<'a>(
    setting: &'a Setting,
    take: Take,
    peer: fn(&'a Setting, &Capture) -> Result<Side<'a>, CaseError>,
) -> Made<'a> {
    let capture = take(setting)?;
    Ok(Sides { ours: body_files(setting, &capture, "hash=yes"), peer: peer(setting, &capture)? })
}

/// A request that prints `expected` lines, as a process.
fn lines<'a>(setting: &Setting, text: &str, capture: &Capture, expected: u64) -> Side<'a> {
    let program = setting.ours(&request(text, capture));
    Side::new(move || {
        let ran = program.run()?;
        let found = memchr::memchr_iter(b'\n', &ran.stdout).count() as u64;
        if found == expected { Ok(ran.cost) } else { Err(format!("{expected} lines expected, not {found}")) }
    })
}

fn flows<'a>(setting: &Setting, capture: &Capture, count: u64) -> Side<'a> {
    lines(setting, "pcap F | flows | json", capture, count)
}

fn flows_or<'a>(
    setting: &'a Setting,
    (take, count): (Take, u64),
    peer: fn(&'a Setting, &Capture) -> Result<Side<'a>, CaseError>,
) -> Made<'a> {
    let capture = take(setting)?;
    Ok(Sides { ours: flows(setting, &capture, count), peer: peer(setting, &capture)? })
}

/// Flows into one file of Parquet, which is as long as such flows make it: 8 bytes of each at least.
fn columns<'a>(setting: &'a Setting, (take, count): (Take, u64)) -> Made<'a> {
    let capture = take(setting)?;
    if !setting.accepts("pcap x | flows | parquet y") {
        let how = "a program with Parquet: build it by `cargo build --release -p cli --features arrow`, and name it by --streamline";
        return Err(CaseError::Missing(how.into()));
    }
    let peer = nfpcapd(setting, &capture)?;
    let ours = Side::new(move || {
        let folder = setting.output()?;
        let text = format!("pcap F | flows | parquet \"{}\"", folder.path().display());
        let cost = setting.ours(&request(&text, &capture)).run()?.cost;
        let written = std::fs::read(folder.path().join("000001.parquet")).map_err(|error| error.to_string())?;
        let is_whole = written.ends_with(b"PAR1") && written.len() as u64 > 8 * count;
        if is_whole { Ok(cost) } else { Err(format!("{} bytes are no file of {count} flows", written.len())) }
    });
    Ok(Sides { ours, peer })
}

fn tshark(capture: &Capture) -> Result<Program, CaseError> {
    Ok(program(TSHARK)?.arg("-r").arg(&capture.path))
}

fn program(peer: Peer) -> Result<Program, CaseError> {
    peer.find().map(Program::new).map_err(CaseError::Missing)
}

/// Its flows go to a file.
fn nfpcapd<'a>(setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, CaseError> {
    let program = program(NFPCAPD)?.arg("-r").arg(&capture.path).arg("-w");
    Ok(Side::new(move || {
        let folder = setting.output()?;
        Ok(program.clone().arg(folder.path()).run()?.cost)
    }))
}

/// Its flows go to a port of this host without a reader. It keeps as many flows as there are.
fn softflowd<'a>(_setting: &'a Setting, capture: &Capture) -> Result<Side<'a>, CaseError> {
    let to = ["-n", "127.0.0.1:9995", "-v", "9", "-m", "100000", "-c", "none"];
    Ok(plain(program(SOFTFLOWD)?.arg("-r").arg(&capture.path).args(to)))
}
