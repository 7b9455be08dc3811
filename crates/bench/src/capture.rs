//! The comparison `capture`: the cost of listeners on a device, ours and the kernel's own packet sockets.
//!
//! Two devices of a pair are in a namespace each. A process pinned to one processor sends on one of them, as fast as it
//! can or as fast as both sides take without a loss. The listeners are on the other one, where packets are counted. The
//! cost of listeners is the processor time of all processes for each packet, minus the sender's time without any
//! listener, measured right before. It includes the sender, whose time the kernel uses to deliver. Starting and ending
//! programs is not counted.
//!
//! [`field`] has the devices, the daemon and the sender; [`listeners`] the programs; [`limits`] other numbers than
//! costs: losses, memory, waiting, idling. [`bulk`] measures a TCP stream beside listeners; [`web`] sends to requests
//! that parse.

pub mod bulk;
pub mod field;
pub mod limits;
pub mod listeners;
pub mod web;

use crate::case::{Case, CaseError, How, Numbers, Sides};
use crate::machine::NETSNIFF;
use crate::measure::{Clock, Figure, Side};
use crate::setting::Setting;
use crate::table::{Goal, Touched};
use field::Field;
use listeners::{Listener, Program, Who};
use std::rc::Rc;
use testkit::packets::REJECTING;

/// MiB of each buffer where costs are compared, so that no packet is lost.
const BUFFER: u32 = 64;

/// MiB that each reader asks for where losses are looked for: libpcap's default. Each stock reader has this much for
/// itself. Ours share one ring, which is at least 32 MiB in a daemon.
const SMALL_BUFFER: u32 = 2;

fn tcpdump(who: Who, expression: &'static str) -> Listener {
    Listener { who, program: Program::Tcpdump, expression, buffer: BUFFER }
}

fn one(who: Who) -> Vec<Listener> {
    vec![tcpdump(who, "")]
}

fn nine(who: Who) -> Vec<Listener> {
    (0..9).map(|_| tcpdump(who, "")).collect()
}

fn nine_rejecting(who: Who) -> Vec<Listener> {
    REJECTING.iter().map(|expression| tcpdump(who, expression)).collect()
}

fn one_rejecting(who: Who) -> Vec<Listener> {
    vec![tcpdump(who, REJECTING[0])]
}

fn dumpcap(who: Who) -> Vec<Listener> {
    vec![Listener { who, program: Program::Dumpcap, expression: "", buffer: BUFFER }]
}

struct Pairing {
    ours: fn(Who) -> Vec<Listener>,
    peer: (fn(Who) -> Vec<Listener>, Who),
    frame_bytes: usize,
}

fn sides<'a>(setting: &'a Setting, pairing: Pairing) -> Result<Sides<'a>, CaseError> {
    let Pairing { ours, peer: (peer, who), frame_bytes } = pairing;
    let sets = [ours(Who::Ours), peer(who)];
    let field = Rc::new(match sets[0].first().map(|listener| listener.program) {
        Some(Program::Web { coded, .. }) => Field::of_web(setting, coded)?,
        _ if sets.iter().flatten().all(Listener::wants_nothing) => Field::of_unwanted(setting)?,
        _ => Field::new(setting)?,
    });
    // At full speed, or at the highest rate that both sides take.
    let rate = field.common_rate(&sets, frame_bytes)?;
    let side = |listeners: fn(Who) -> Vec<Listener>, who| {
        let field = Rc::clone(&field);
        let packets = field.packets() as f64;
        Side::new(move || field.cost_of(&listeners(who), frame_bytes, rate)).per_item(packets)
    };
    Ok(Sides { ours: side(ours, Who::Ours), peer: side(peer, who) })
}

macro_rules! case {
    ($about:literal, $against:literal, $goal:expr, $ours:ident, ($peer:ident, $who:expr), $bytes:literal) => {
        Case {
            about: $about,
            against: $against,
            goal: $goal,
            touched: Touched::Copy,
            how: How::Time(Clock::Cpu, Figure::Share, |setting| {
                sides(setting, Pairing { ours: $ours, peer: ($peer, $who), frame_bytes: $bytes })
            }),
        }
    };
}

/// All cases.
pub static CASES: &[Case] = &[
    case!("A/A: one stock tcpdump, 64 B", "itself", Goal::Within(0.9, 1.1), stock_one, (one, Who::Stock), 64),
    case!("one `tcpdump -w /dev/null`, 64 B", "stock", Goal::AtMost(1.0, 0.6), one, (one, Who::Stock), 64),
    case!("one `tcpdump -w /dev/null`, 1,500 B", "stock", Goal::AtMost(1.0, 0.6), one, (one, Who::Stock), 1500),
    case!("`dumpcap -w`, 64 B", "stock", Goal::AtMost(0.7, 0.5), dumpcap, (dumpcap, Who::Stock), 64),
    case!("`dumpcap -w`, 1,500 B", "stock", Goal::AtMost(0.7, 0.5), dumpcap, (dumpcap, Who::Stock), 1500),
    case!(
        "nine tcpdumps that reject, 64 B",
        "one of them, ours",
        Goal::AtMost(1.3, 1.1),
        nine_rejecting,
        (one_rejecting, Who::Ours),
        64
    ),
    case!(
        "nine tcpdumps that reject, 64 B",
        "stock",
        Goal::AtMost(0.25, 0.13),
        nine_rejecting,
        (nine_rejecting, Who::Stock),
        64
    ),
    case!(
        "nine tcpdumps that reject, 1,500 B",
        "stock",
        Goal::AtMost(0.25, 0.13),
        nine_rejecting,
        (nine_rejecting, Who::Stock),
        1500
    ),
    case!("nine tcpdumps that match all, 64 B", "stock", Goal::AtMost(0.45, 0.27), nine, (nine, Who::Stock), 64),
    case!("nine tcpdumps that match all, 1,500 B", "stock", Goal::AtMost(0.45, 0.27), nine, (nine, Who::Stock), 1500),
    Case {
        about: "`bpf` in the kernel, one packet in 100 fits, 64 B",
        against: "in the program",
        goal: Goal::AtLeast(2.0, 4.0),
        touched: Touched::Copy,
        how: How::Time(Clock::Cpu, Figure::TimesAsFast, |setting| {
            sides(setting, Pairing { ours: pushed_down, peer: (not_pushed_down, Who::Ours), frame_bytes: 64 })
        }),
    },
    case!(
        "one that rejects, by a packet socket, 64 B",
        "stock",
        Goal::AtMost(1.5, 1.0),
        by_socket,
        (one_rejecting, Who::Stock),
        64
    ),
    case!(
        "`bpf | count`, every packet fits, 64 B",
        "counted above",
        Goal::AtMost(0.5, 0.25),
        counted_below,
        (counted_above, Who::Ours),
        64
    ),
    case!(
        "`bpf | count`, every packet fits, 1,500 B",
        "counted above",
        Goal::AtMost(0.5, 0.25),
        counted_below,
        (counted_above, Who::Ours),
        1500
    ),
    case!(
        "one `http`, as if to share, 1,500 B",
        "by itself",
        Goal::Reported,
        one_shared,
        (one_parsing, Who::Ours),
        1500
    ),
    case!(
        "nine `http` that share, 1,500 B",
        "each by itself",
        Goal::Reported,
        nine_shared,
        (nine_parsing, Who::Ours),
        1500
    ),
    case!(
        "nine `http` that share, gzip, 1,500 B",
        "each by itself",
        Goal::AtMost(0.5, 0.3),
        nine_shared_coded,
        (nine_parsing_coded, Who::Ours),
        1500
    ),
    number("highest loss-free rate, nine tcpdumps, 64 B", "stock, 2 MiB each", Goal::AtLeast(2.0, 3.0), |setting| {
        limits::loss_free(setting, &[nine_small(Who::Ours)], &[nine_small(Who::Stock)], 64)
    }),
    number("highest loss-free rate, nine tcpdumps, 1,500 B", "stock, 2 MiB each", Goal::AtLeast(2.0, 3.0), |setting| {
        limits::loss_free(setting, &[nine_small(Who::Ours)], &[nine_small(Who::Stock)], 1500)
    }),
    number(
        "capture to a file in memory, loss-free, 64 B",
        "best of tcpdump, dumpcap, netsniff-ng, 2 MiB",
        Goal::AtLeast(1.0, 1.5),
        |setting| to_file(setting, 64),
    ),
    number(
        "capture to a file in memory, loss-free, mixed sizes",
        "best of tcpdump, dumpcap, netsniff-ng, 2 MiB",
        Goal::AtLeast(1.0, 1.5),
        |setting| to_file(setting, field::MIXED),
    ),
    number("64-byte sender beside nine tcpdumps that reject", "no listener", Goal::Reported, |setting| {
        limits::sender(setting, &nine_rejecting(Who::Ours), &[], 0)
    }),
    // Stock listeners leave a sender half of its rate or more: 0.8 of that is 10 points of the whole.
    number(
        "64-byte sender beside four of 8,000 instructions each",
        "nine stock that reject",
        Goal::AtLeast(0.8, 1.0),
        |setting| limits::sender(setting, &four_dear(), &nine_rejecting(Who::Stock), 0),
    ),
    number(
        "sender of 225,000 a second beside four of 8,000 instructions each",
        "no listener",
        Goal::AtLeast(0.9, 0.98),
        |setting| limits::sender(setting, &four_dear(), &[], 225_000),
    ),
    number("iperf3 TCP beside nine tcpdumps that reject", "no listener", Goal::AtLeast(0.95, 0.98), |setting| {
        bulk::throughput(setting, &nine_rejecting(Who::Ours), &[], true)
    }),
    number(
        "iperf3 TCP without offloads beside nine that reject",
        "no listener",
        Goal::AtLeast(0.95, 0.98),
        |setting| bulk::throughput(setting, &nine_rejecting(Who::Ours), &[], false),
    ),
    number("iperf3 TCP beside nine tcpdumps that match all", "nine stock", Goal::AtLeast(1.8, 2.3), |setting| {
        bulk::throughput(setting, &nine(Who::Ours), &nine(Who::Stock), true)
    }),
    number(
        "iperf3 TCP without offloads beside nine that match all",
        "nine stock",
        Goal::AtLeast(1.8, 2.3),
        |setting| bulk::throughput(setting, &nine(Who::Ours), &nine(Who::Stock), false),
    ),
    number("memory of nine tcpdumps with 64 MiB each", "stock", Goal::AtMost(0.25, 0.15), |setting| {
        limits::memory(setting, &nine(Who::Ours), &nine(Who::Stock))
    }),
    number("request to first packet, 99 of 100", "-", Goal::AtMost(200.0, 50.0), limits::first_packet),
    number("idle daemon with ten requests", "-", Goal::AtMost(1.0, 0.1), limits::idle_daemon),
];

const fn number(
    about: &'static str,
    against: &'static str,
    goal: Goal,
    numbers: fn(&Setting) -> Result<Numbers, CaseError>,
) -> Case {
    Case { about, against, goal, touched: Touched::Copy, how: How::Numbers(numbers) }
}

/// The highest rate at which all packets get into a file.
fn to_file(setting: &Setting, frame_bytes: usize) -> Result<Numbers, CaseError> {
    NETSNIFF.find().map_err(CaseError::Missing)?;
    let to_file = |who, program| vec![Listener { who, program, expression: "", buffer: SMALL_BUFFER }];
    let peers =
        [Program::TcpdumpToFile, Program::Dumpcap, Program::Netsniff].map(|program| to_file(Who::Stock, program));
    limits::loss_free(setting, &[to_file(Who::Ours, Program::Save)], &peers, frame_bytes)
}

fn nine_small(who: Who) -> Vec<Listener> {
    nine(who).into_iter().map(|listener| Listener { buffer: SMALL_BUFFER, ..listener }).collect()
}

fn request(push_down: bool) -> Vec<Listener> {
    let program = Program::Request { push_down };
    vec![Listener { who: Who::Ours, program, expression: listeners::ONE_IN_A_HUNDRED, buffer: BUFFER }]
}

/// Requests whose expressions cost much for each packet.
fn four_dear() -> Vec<Listener> {
    let program = Program::Request { push_down: true };
    vec![Listener { who: Who::Ours, program, expression: listeners::dear(), buffer: BUFFER }; 4]
}

fn pushed_down(_who: Who) -> Vec<Listener> {
    request(true)
}

fn not_pushed_down(_who: Who) -> Vec<Listener> {
    request(false)
}

/// Ours where the kernel's program cannot run.
fn by_socket(_who: Who) -> Vec<Listener> {
    vec![Listener { who: Who::Ours, program: Program::BySocket, expression: REJECTING[0], buffer: BUFFER }]
}

fn count(below: bool) -> Vec<Listener> {
    vec![Listener { who: Who::Ours, program: Program::Count { below }, expression: listeners::ALL, buffer: BUFFER }]
}

fn counted_below(_who: Who) -> Vec<Listener> {
    count(true)
}

fn counted_above(_who: Who) -> Vec<Listener> {
    count(false)
}

fn web(count: usize, share: bool, coded: bool) -> Vec<Listener> {
    let listener = Listener { who: Who::Ours, program: Program::Web { share, coded }, expression: "", buffer: BUFFER };
    vec![listener; count]
}

fn one_parsing(_who: Who) -> Vec<Listener> {
    web(1, false, false)
}

fn one_shared(_who: Who) -> Vec<Listener> {
    web(1, true, false)
}

fn nine_parsing(_who: Who) -> Vec<Listener> {
    web(9, false, false)
}

fn nine_shared(_who: Who) -> Vec<Listener> {
    web(9, true, false)
}

fn nine_parsing_coded(_who: Who) -> Vec<Listener> {
    web(9, false, true)
}

fn nine_shared_coded(_who: Who) -> Vec<Listener> {
    web(9, true, true)
}

/// For the first row, which has the same on both sides.
fn stock_one(_who: Who) -> Vec<Listener> {
    one(Who::Stock)
}
