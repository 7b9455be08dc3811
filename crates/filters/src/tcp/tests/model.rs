//! Random conversations against a model without order: an array of bytes in which the first copy stays.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Part {
    start: usize,
    len: usize,
    /// Bytes that the snap length cut off its end.
    cut: usize,
    /// Which copy: the bytes of each differ.
    copy: u8,
}

/// A stream of both directions, as segments in the order of capture.
#[derive(Clone, Debug)]
struct Scenario {
    isn: u32,
    len: [usize; 2],
    parts: Vec<(usize, Part)>,
    fin: bool,
}

fn byte(side: usize, place: usize, copy: u8) -> u8 {
    b'A' + ((place * 7 + usize::from(copy) * 3 + side) % 26) as u8
}

/// The expected stream: each byte from the first segment that had it, gaps as `[n]`.
fn model(scenario: &Scenario, side: usize) -> String {
    // The first segment with a byte: its value, or `None` inside if the snap length cut it.
    let mut bytes: Vec<Option<Option<u8>>> = vec![None; scenario.len[side]];
    for (of, part) in scenario.parts.iter().filter(|(of, _)| *of == side) {
        for (index, known) in bytes[part.start..][..part.len].iter_mut().enumerate() {
            let captured = index < part.len - part.cut;
            known.get_or_insert(captured.then(|| byte(*of, part.start + index, part.copy)));
        }
    }
    // Without a FIN the stream ends with its last known byte.
    let end =
        if scenario.fin { bytes.len() } else { bytes.iter().rposition(Option::is_some).map_or(0, |last| last + 1) };
    let (mut text, mut missing) = (String::new(), 0);
    for value in &bytes[..end] {
        match value.flatten() {
            None => missing += 1,
            Some(value) => {
                if missing > 0 {
                    text += &format!("[{missing}]");
                    missing = 0;
                }
                text.push(char::from(value));
            }
        }
    }
    if missing > 0 {
        text += &format!("[{missing}]");
    }
    text + if scenario.fin { "$" } else { "~" }
}

fn assemble(scenario: &Scenario) -> BTreeMap<u32, String> {
    let ends = [CLIENT, SERVER];
    let first = [scenario.isn.wrapping_add(1), scenario.isn.wrapping_mul(77)];
    let send = |side: usize, place: usize, acknowledgment: u32, flags: u8, payload: &[u8]| {
        tcp(ends[side], ends[1 - side], first[side].wrapping_add(place as u32), acknowledgment, flags, payload)
    };
    let mut frames = vec![
        (tcp(CLIENT, SERVER, scenario.isn, 0, flag::SYN, b""), 0),
        (tcp(SERVER, CLIENT, first[1].wrapping_sub(1), first[0], flag::SYN | flag::ACK, b""), 0),
    ];
    for (side, part) in &scenario.parts {
        let payload: Vec<u8> = (part.start..part.start + part.len).map(|place| byte(*side, place, part.copy)).collect();
        frames.push((send(*side, part.start, first[1 - side], flag::ACK, &payload), part.cut));
    }
    if scenario.fin {
        for side in 0..2 {
            let all = first[1 - side].wrapping_add(scenario.len[1 - side] as u32);
            frames.push((send(side, scenario.len[side], all, flag::FIN | flag::ACK, b""), 0));
        }
    }
    let pieces = frames.into_iter().map(|(mut frame, cut)| {
        let mut block = Descriptor::default();
        block.set_wire(frame.len() as u32);
        frame.truncate(frame.len() - cut);
        (block, frame)
    });
    let outcome = Chain::pieces(Type::Frame, Some(ETHERNET), pieces.collect()).then(&KIND, &[]).run();
    streams(&outcome).into_iter().map(|(class, text)| (class, joined(&text))).collect()
}

/// A text with one number for each gap. A gap comes in parts where the other direction goes on between them.
fn joined(text: &str) -> String {
    let (mut out, mut missing) = (String::new(), 0);
    for part in text.split_inclusive(']') {
        let (before, gap) = part.strip_suffix(']').and_then(|rest| rest.split_once('[')).unwrap_or((part, "0"));
        if missing > 0 && !before.is_empty() {
            out += &format!("[{}]", std::mem::take(&mut missing));
        }
        out += before;
        missing += gap.parse::<u32>().unwrap_or(0);
    }
    if missing > 0 { out + &format!("[{missing}]") } else { out }
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let isn = prop_oneof![Just(0), any::<u32>(), (0_u32..400).prop_map(|before| u32::MAX - before)];
    let sides = (1_usize..200, 1_usize..200);
    (isn, sides, any::<bool>()).prop_flat_map(|(isn, (client, server), fin)| {
        let len = [client, server];
        let part = (0_usize..2, 0.0..1.0_f64, 1_usize..60, 0_usize..8, 0_u8..8).prop_map(
            move |(side, at, size, cut, copy)| {
                let start = (at * len[side] as f64) as usize;
                let size = size.min(len[side] - start);
                // One segment in four is cut.
                let cut = if cut < 6 { 0 } else { (cut - 5) * size / 3 };
                (side, Part { start, len: size, cut, copy })
            },
        );
        proptest::collection::vec(part, 0..60).prop_map(move |parts| Scenario { isn, len, parts, fin })
    })
}

/// A whole stream, cut into segments. Some are sent again, and all are shuffled a little.
fn shuffled() -> impl Strategy<Value = Scenario> {
    let sizes = || proptest::collection::vec(1_usize..20, 1..40);
    (any::<u32>(), sizes(), sizes(), proptest::collection::vec((any::<u16>(), 0_usize..80), 0..80), any::<bool>())
        .prop_map(|(isn, client, server, moves, fin)| {
            let mut parts = Vec::new();
            let mut len = [0; 2];
            for (side, sizes) in [client, server].iter().enumerate() {
                for size in sizes {
                    parts.push((side, Part { start: len[side], len: *size, cut: 0, copy: 0 }));
                    len[side] += size;
                }
            }
            for (copy, (from, to)) in moves.into_iter().enumerate() {
                let from = usize::from(from) % parts.len();
                let mut part = parts[from].clone();
                part.1.copy = copy as u8;
                let to = to % parts.len();
                if copy % 2 == 0 { parts.insert(to, part) } else { parts.swap(from, to) }
            }
            Scenario { isn, len, parts, fin }
        })
}

proptest! {
    #[test]
    fn segments_that_overlap_anyhow(scenario in scenarios()) {
        let found = assemble(&scenario);
        prop_assert_eq!(&found[&FROM_CLIENT], &model(&scenario, 0));
        prop_assert_eq!(&found[&FROM_SERVER], &model(&scenario, 1));
    }

    #[test]
    fn segments_shuffled_and_sent_again(scenario in shuffled()) {
        let found = assemble(&scenario);
        prop_assert_eq!(&found[&FROM_CLIENT], &model(&scenario, 0));
        prop_assert_eq!(&found[&FROM_SERVER], &model(&scenario, 1));
    }

    /// Any segments at all lead to counted numbers and well-formed streams.
    #[test]
    fn anything(segments in proptest::collection::vec(
        (any::<bool>(), prop_oneof![0_u32..50, any::<u32>()], prop_oneof![0_u32..50, any::<u32>()], 0_u8..32, 0_usize..20, 0_u64..3),
        0..100,
    )) {
        let (mut frames, mut time) = (Vec::new(), 0);
        for (to_server, sequence, acknowledgment, flags, len, seconds) in segments {
            let (from, to) = if to_server { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
            time += seconds * SECOND;
            frames.push((time, tcp(from, to, sequence, acknowledgment, flags, &b"abcdefghijklmnopqrstuvwxyz"[..len])));
            // A batch each second, so that timers fire.
            let others = if seconds > 0 { BATCH_BLOCKS } else { 0 };
            frames.extend((0..others).map(|_| (time, udp(CLIENT, SERVER, b""))));
        }
        for kind in [&KIND, &limits::SMALL] {
            let outcome = Chain::frames(ETHERNET, &frames).then(kind, &[]).run();
            streams(&outcome);
            let given: u64 = outcome.blocks.iter().map(|block| block.bytes.len() as u64).sum();
            prop_assert!(given <= frames.iter().map(|(_, frame)| frame.len() as u64).sum());
        }
    }
}
