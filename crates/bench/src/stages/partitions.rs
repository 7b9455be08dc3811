//! Requests on two workers against the same requests on one. Both write the same files, which is checked in every run.

use crate::captures::Capture;
use crate::case::{Case, CaseError, How, Sides};
use crate::first_light::sides::{FEW, http, into_files, request, saying};
use crate::measure::{Clock, Figure, Side};
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use std::rc::Rc;

/// Bytes of the capture with coded bodies only. They decode to three times this or more.
const CODED_BYTES: u64 = 60_000_000;

type Made<'a> = Result<Sides<'a>, CaseError>;

const fn row(about: &'static str, against: &'static str, goal: Goal, sides: fn(&Setting) -> Made<'_>) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how: How::Time(Clock::Wall, Figure::TimesAsFast, sides) }
}

/// The rows.
pub static CASES: &[Case] = &[
    Case {
        about: "A/A: `pcap | tcp | http | files hash=no`",
        against: "itself",
        goal: Goal::Within(0.97, 1.03),
        touched: Touched::Copy,
        how: How::Time(Clock::Wall, Figure::Share, |setting| {
            let capture = http(setting)?;
            Ok(Sides { ours: bodies(setting, &capture, 1, "no"), peer: bodies(setting, &capture, 1, "no") })
        }),
    },
    row("`pcap | tcp | http | files hash=no`, workers=2", "workers=1", Goal::AtLeast(1.4, 1.6), |setting| {
        let capture = http(setting)?;
        Ok(Sides { ours: bodies(setting, &capture, 2, "no"), peer: bodies(setting, &capture, 1, "no") })
    }),
    row("`pcap | tcp | http | files`, hashed, workers=2", "workers=1", Goal::AtLeast(1.1, 1.25), |setting| {
        let capture = http(setting)?;
        Ok(Sides { ours: bodies(setting, &capture, 2, "yes"), peer: bodies(setting, &capture, 1, "yes") })
    }),
    row("`pcap | tcp | http | count`, gzip bodies, two shares of `http`", "one", Goal::AtLeast(1.6, 1.85), |setting| {
        let capture = setting.store.http_coded(FEW, CODED_BYTES)?;
        shared(setting, &capture, "tcp | http", "")
    }),
    row("`pcap | tcp | match` of 100 regexes, two shares of `match`", "one", Goal::AtLeast(1.6, 1.85), |setting| {
        let capture = http(setting)?;
        shared(setting, &capture, "tcp | match", &expressions())
    }),
];

fn bodies<'a>(setting: &'a Setting, capture: &Capture, workers: u32, hash: &str) -> Side<'a> {
    let text = format!("set workers={workers}; pcap F | tcp | http | files dir=D hash={hash}");
    into_files(setting, capture, text, capture.bodies.clone(), None)
}

/// The parameter of `match`: an alternation of a hundred expressions, all of them more than plain text.
fn expressions() -> String {
    let one = |number: usize| format!("k{number}[a-f]{{3}}[0-9]+z");
    format!("regex=\"{}\"", (0..100).map(one).collect::<Vec<_>>().join("|"))
}

/// A chain with two shares of its last filter, and with one. If `spread` is not known, two workers divide the flows.
fn shared<'a>(setting: &Setting, capture: &Capture, chain: &str, params: &str) -> Made<'a> {
    let one = format!("pcap F | {chain} {params} | count");
    let spread = format!("pcap F | {chain} {params} spread=2 | count");
    let two = if setting.accepts(&request(&spread, capture)) {
        spread
    } else {
        eprintln!("  `spread=2` is not accepted: measured with `set workers=2`");
        format!("set workers=2; {one}")
    };
    let said = Rc::default();
    Ok(Sides { ours: saying(setting, &two, capture, &said), peer: saying(setting, &one, capture, &said) })
}
