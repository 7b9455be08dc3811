//! `set workers=auto` against `workers=1`, on all requests of `first-light`: leaving the choice to the planner must
//! never cost much. Rows are skipped, with a line, while the setting is not accepted.

use crate::captures::Capture;
use crate::case::{Case, CaseError, How, Sides};
use crate::first_light::sides::{
    OPEN_FILES, TEXT, count, http, into_files, large_flows, saying, small_flows, small_frames,
};
use crate::measure::{Clock, Figure, Side};
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use std::rc::Rc;

type Made<'a> = Result<Sides<'a>, CaseError>;

const AUTO: &str = "set workers=auto; ";
const ONE: &str = "set workers=1; ";

macro_rules! row {
    ($about:literal, $touched:ident, $sides:expr) => {
        Case {
            about: concat!($about, ", workers=auto"),
            against: "workers=1",
            goal: Goal::AtMost(1.05, 1.0),
            touched: Touched::$touched,
            how: How::Time(Clock::Wall, Figure::Share, $sides),
        }
    };
}

/// The rows.
pub static CASES: &[Case] = &[
    row!("`pcap | count`, MTU frames", Header, |setting| counted(setting, "pcap F | count", large_flows)),
    row!("`pcap | count`, 64-byte frames", Header, |setting| counted(setting, "pcap F | count", small_frames)),
    row!("`pcap | bpf \"tcp port 80\" | count`, MTU frames", Header, |setting| {
        counted(setting, "pcap F | bpf \"tcp port 80\" | count", large_flows)
    }),
    row!("`pcap | bpf \"tcp port 80\" | count`, 64-byte frames", Header, |setting| {
        counted(setting, "pcap F | bpf \"tcp port 80\" | count", small_frames)
    }),
    row!("`pcap | tcp | count`", Header, |setting| same(setting, "pcap F | tcp | count", large_flows)),
    row!("`pcap | tcp | files hash=no`, 8 large flows", Copy, |setting| streams(setting, "no", large_flows, None)),
    row!("`pcap | tcp | files`, hashed, 8 large flows", Copy, |setting| streams(setting, "yes", large_flows, None)),
    row!("`pcap | tcp | files hash=no`, 10,000 small flows, 256 open files", Copy, |setting| {
        streams(setting, "no", small_flows, Some(OPEN_FILES))
    }),
    row!("`pcap | tcp | files`, hashed, 10,000 small flows, 256 open files", Copy, |setting| {
        streams(setting, "yes", small_flows, Some(OPEN_FILES))
    }),
    row!("`pcap | http | files hash=no`", Copy, |setting| bodies(setting, "no")),
    row!("`pcap | http | files`, hashed", Copy, |setting| bodies(setting, "yes")),
    row!("`pcap | match TEXT | count`, MTU frames", Sum, |setting| {
        same(setting, &format!("pcap F | match \"{TEXT}\" | count"), large_flows)
    }),
];

type Captured = fn(&Setting) -> Result<Capture, CaseError>;

fn both<'a>(setting: &'a Setting, side: impl Fn(&str) -> Side<'a>) -> Made<'a> {
    if !setting.accepts(&format!("{AUTO}generate count=1 | count")) {
        return Err(CaseError::Missing("`set workers=auto` is not accepted".to_owned()));
    }
    Ok(Sides { ours: side(AUTO), peer: side(ONE) })
}

/// Requests that count frames; the number that passes is known.
fn counted<'a>(setting: &'a Setting, chain: &str, capture: Captured) -> Made<'a> {
    let capture = capture(setting)?;
    let expected = if chain.contains("bpf") { capture.web_frames } else { capture.frames };
    both(setting, |set| count(setting, &format!("{set}{chain}"), &capture, expected))
}

/// Requests whose output has to be the same on both sides.
fn same<'a>(setting: &'a Setting, chain: &str, capture: Captured) -> Made<'a> {
    let (capture, said) = (capture(setting)?, Rc::default());
    both(setting, |set| saying(setting, &format!("{set}{chain}"), &capture, &said))
}

fn streams<'a>(setting: &'a Setting, hash: &str, capture: Captured, open_files: Option<u32>) -> Made<'a> {
    let capture = capture(setting)?;
    both(setting, |set| {
        let text = format!("{set}pcap F | tcp | files dir=D hash={hash}");
        into_files(setting, &capture, text, capture.streams.clone(), open_files)
    })
}

fn bodies<'a>(setting: &'a Setting, hash: &str) -> Made<'a> {
    let capture = http(setting)?;
    both(setting, |set| {
        let text = format!("{set}pcap F | http | files dir=D hash={hash}");
        into_files(setting, &capture, text, capture.bodies.clone(), None)
    })
}
