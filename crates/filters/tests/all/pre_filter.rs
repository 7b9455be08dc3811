//! A kernel program must agree with its filter. A pre-filter's program drops no frame that the filter takes. A
//! selector's program, or that of any expression of selectors, is right when sure and otherwise says that it is unsure.
//! Tested on real, damaged and random frames.

use filter::prelude::*;
use program::{Expression, Interpreter, Passes, Predicate};
use testkit::Chain;
use testkit::frames::{real_and_damaged, shaped};
use testkit::random::Random;

/// Random parameters for a filter, taken from the frames.
fn given(name: &str, random: &mut Random, frames: &[Vec<u8>]) -> Option<Vec<(&'static str, String)>> {
    let long: Vec<&Vec<u8>> = frames.iter().filter(|frame| frame.len() >= 60).collect();
    let frame = long[random.below(long.len())];
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let v4 = |at: usize| format!("{}.{}.{}.{}", frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let v6 = |at: usize| std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
    let ethernet = |at: usize| frame[at..at + 6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let one_of = |random: &mut Random, texts: &[String]| texts[random.below(texts.len())].clone();
    let range = |port: u16| format!("{},{}:{}", half(36), port.min(60_000), port.min(60_000) + 500);
    let key = match name {
        "ip" | "ip6" | "tcp" | "udp" | "conflicts" => return Some(Vec::new()),
        "port" | "sourceport" | "destport" => "port",
        "proto" => "protocol",
        "icmp" => "type",
        "host" => "address",
        "net" => "network",
        "vlan" => "id",
        "ether" => "value",
        _ => return None,
    };
    let text = match key {
        "port" => one_of(random, &[half(34).to_string(), range(half(34)), "0:65535".into()]),
        "protocol" => {
            one_of(random, &["6", "17", "17,47", "1,58", "47:60", "51", "44", "0", "0:255"].map(String::from))
        }
        "type" => one_of(random, &["8,128".into(), "0:255".into(), frame[34].to_string()]),
        "address" => {
            let texts = [
                "10.0.0.1".into(),
                v4(26),
                v4(30),
                format!("{},fe80::1", v4(30)),
                v6(22).to_string(),
                v6(38).to_string(),
            ];
            one_of(random, &texts)
        }
        "network" => {
            let first = v6(22).segments()[0];
            let texts =
                [format!("{}.0.0.0/8", frame[26]), "0.0.0.0/0".into(), format!("{first:x}::/16"), "fe80::/10".into()];
            one_of(random, &texts)
        }
        "id" => one_of(random, &["0:7".into(), "5".into(), (half(14) & 0xfff).to_string()]),
        _ => one_of(
            random,
            &[ethernet(0), ethernet(6), half(12).to_string(), "arp,0x86dd,0x8847".into(), "vlan,30:2047".into()],
        ),
    };
    // These filters require the parameter.
    let may_be_left_out = !matches!(key, "address" | "network");
    Some(if may_be_left_out && random.below(4) == 0 { Vec::new() } else { vec![(key, text)] })
}

/// Frames of every sort, all complete.
fn frames(random: &mut Random) -> Vec<Vec<u8>> {
    let mut frames = real_and_damaged(600, random);
    frames.extend((0..1500).map(|_| shaped(random).bytes));
    let ethernet = |behind: &[u8]| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], behind].concat();
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    let spanning_tree = [0, 38, 0x42, 0x42, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut short_arp = arp;
    short_arp[5] = 16;
    let udp = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 53, 0, 8, 0, 0];
    let mut too_short = udp;
    too_short[3] = 19;
    // Headers that can precede IP, each behind its own ether type or length.
    let in_front: [&[u8]; 13] = [
        &[8, 0],
        &[0x88, 0x47, 0, 1, 1, 64],
        &[0x88, 0x48, 0, 1, 1, 64],
        &[0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21],
        &[0x91, 0, 0, 1, 8, 0],
        &[0x92, 0, 0, 1, 8, 0],
        &[0x93, 0, 0, 1, 8, 0],
        &[0x89, 9, 1, 1, 0, 1, 0, 2, 8, 0],
        &[0x89, 0x26, 0, 0, 0, 0, 8, 0],
        &[0x89, 0x3f, 0, 0, 0, 0, 0, 0, 8, 0],
        &[0x88, 0xe7, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
        &[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
        &[0, 40, 6, 6, 3],
    ];
    for (packet, before) in [udp, too_short].iter().flat_map(|packet| in_front.map(|before| (packet, before))) {
        let frame = [before, packet].concat();
        frames.extend([ethernet(&frame), ethernet(&[&[0x81, 0, 0, 5], &frame[..]].concat())]);
    }
    let made: [&[u8]; 9] = [
        &[&[8, 6], &short_arp[..]].concat(),
        &[&[8, 6], &arp[..]].concat(),
        &[&[0x80, 0x35], &arp[..]].concat(),
        &[&[0x81, 0, 0, 5, 8, 6], &arp[..]].concat(),
        &spanning_tree,
        &[&[0x81, 0, 0, 5], &spanning_tree[..]].concat(),
        &[0, 9, 0xaa, 0xaa, 3, 0, 0, 0xc, 1, 0xb, 0, 0, 0],
        &[0, 9, 6, 6, 3, 0x45, 0, 0, 20, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
        &[0x88, 0xcc, 2, 7, 4, 0, 1, 2, 3, 4, 5],
    ];
    for frame in made.map(ethernet) {
        // Whole, and cut at every length.
        frames.extend((0..=frame.len()).map(|len| frame[..len].to_vec()));
    }
    frames
}

fn interpreter(expression: &Expression, passes: Passes) -> Interpreter {
    Interpreter::new(&expression.program(passes).expect("these are few"))
}

/// Which frames a filter passes.
fn passed(kind: &'static Kind, given: &[(&str, &str)], frames: &[Vec<u8>]) -> Vec<bool> {
    let mut passed = vec![false; frames.len()];
    let numbered: Vec<_> = frames.iter().enumerate().map(|(number, frame)| (number as u64, frame.clone())).collect();
    let outcome = Chain::frames(1, &numbered).then(kind, given).run();
    outcome.blocks.iter().for_each(|block| passed[block.descriptor.time as usize] = true);
    passed
}

/// A filter with parameters, and its pre-filter.
fn try_out(kind: &'static Kind, random: &mut Random, frames: &[Vec<u8>]) -> (Vec<(&'static str, String)>, Predicate) {
    let given =
        given(kind.name, random, frames).unwrap_or_else(|| panic!("`{}` narrows: say what to try it with", kind.name));
    let texts: Vec<(&str, &str)> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let predicate = kind.pre_filter.and_then(|pre_filter| pre_filter(&testkit::chain::params(kind, &texts)));
    (given, predicate.expect("these are right"))
}

fn pre_filtering() -> impl Iterator<Item = &'static Kind> {
    filters::KINDS.iter().copied().filter(|kind| kind.pre_filter.is_some())
}

#[test]
fn what_is_left_out_changes_nothing() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let frames = real_and_damaged(300, &mut random);
    assert!(pre_filtering().count() >= 13);
    let (mut refused, mut all) = (0, 0);
    for kind in pre_filtering() {
        for _ in 0..8 {
            let (given, predicate) = try_out(kind, &mut random, &frames);
            let given: Vec<(&str, &str)> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let interpreter = interpreter(&Expression::Packet(predicate), Passes::Perhaps);
            let passes = |frame: &&Vec<u8>| interpreter.run(frame, frame.len() as u32) != 0;
            let of = |frames: Vec<&Vec<u8>>| {
                let frames: Vec<_> = frames.into_iter().map(|frame| (1_000_000_000, frame.clone())).collect();
                let outcome = Chain::frames(1, &frames).then(kind, &given).run();
                let block = |block: &testkit::chain::Block| (block.descriptor.class, block.bytes.clone());
                outcome.blocks.iter().map(block).collect::<Vec<_>>()
            };
            let passed: Vec<&Vec<u8>> = frames.iter().filter(passes).collect();
            refused += frames.len() - passed.len();
            all += frames.len();
            assert!(of(frames.iter().collect()) == of(passed), "{} {given:?}", kind.name);
        }
    }
    assert!(refused * 3 > all, "{refused} of {all}: hardly anything is left out");
}

/// A random expression of selectors, and its result for each frame.
fn expression(random: &mut Random, depth: usize, leaves: &[(Expression, Vec<bool>)]) -> (Expression, Vec<bool>) {
    let parts = |random: &mut Random| -> (Vec<Expression>, Vec<Vec<bool>>) {
        let count = 1 + random.below(3);
        (0..count).map(|_| expression(random, depth - 1, leaves)).unzip()
    };
    let each = |said: Vec<Vec<bool>>, join: fn(bool, bool) -> bool| {
        said.into_iter().reduce(|one, other| one.into_iter().zip(other).map(|(a, b)| join(a, b)).collect()).unwrap()
    };
    match if depth == 0 { 0 } else { random.below(4) } {
        0 => leaves[random.below(leaves.len())].clone(),
        1 => {
            let (part, said) = expression(random, depth - 1, leaves);
            (Expression::Not(Box::new(part)), said.into_iter().map(|said| !said).collect())
        }
        2 => {
            let (parts, said) = parts(random);
            (Expression::All(parts), each(said, |a, b| a && b))
        }
        _ => {
            let (parts, said) = parts(random);
            (Expression::Any(parts), each(said, |a, b| a || b))
        }
    }
}

/// `byte[at] == value`, as tcpdump would compile it: a frame that is too short does not pass.
fn byte(at: u32, value: u8) -> Expression {
    let line = |code, jt, jf, k| program::cbpf::Instruction { code, jt, jf, k };
    let code = [line(0x30, 0, 0, at), line(0x15, 0, 1, value.into()), line(6, 0, 0, 1), line(6, 0, 0, 0)];
    Expression::Program(program::from_cbpf(&code).unwrap())
}

/// Compares the three programs of an expression with the right results. Returns how many frames are unsure.
fn compare(expression: &Expression, right: &[bool], frames: &[Vec<u8>]) -> usize {
    let programs = [Passes::Perhaps, Passes::Surely, Passes::Unsure].map(|passes| interpreter(expression, passes));
    let mut unsure_count = 0;
    for (frame, right) in frames.iter().zip(right) {
        let [perhaps, surely, unsure] = [0, 1, 2].map(|at| programs[at].run(frame, frame.len() as u32) != 0);
        let is_sound = match right {
            true => perhaps && surely != unsure,
            false => !(surely || expression.is_exact() && perhaps),
        };
        let told = || format!("{expression:?} of {frame:02x?}: {right}, said {perhaps}, {surely}, {unsure}");
        assert!(is_sound && !(surely && unsure) && !(expression.is_exact() && unsure), "{}", told());
        unsure_count += usize::from(unsure);
        assert!(!perhaps || surely || unsure, "{}", told());
    }
    unsure_count
}

#[test]
fn a_selectors_program_says_what_the_selector_says() {
    let mut random = Random(0x5eed);
    let frames = frames(&mut random);
    let plain: Vec<Vec<u8>> =
        (0..500).map(|_| shaped(&mut random)).filter(|one| one.is_plain).map(|one| one.bytes).collect();
    // Leave out IP options.
    let plain: Vec<Vec<u8>> = plain
        .into_iter()
        .filter(|frame| [14, 18].iter().any(|at| matches!((frame[at - 2], frame[*at]), (8, 0x45) | (0x86, _))))
        .collect();
    assert!(plain.len() > 50);
    let mut selectors = 0;
    for kind in pre_filtering().filter(|kind| matches!(kind.lower, Some(Lower::Selects(_)))) {
        selectors += 1;
        for _ in 0..24 {
            let (given, predicate) = try_out(kind, &mut random, &frames);
            let given: Vec<(&str, &str)> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let expression = Expression::Packet(predicate);
            let unsure = compare(&expression, &passed(kind, &given, &frames), &frames);
            assert!(unsure * 2 < frames.len(), "{} {given:?}: cannot tell about {unsure}", kind.name);
            let unsure = compare(&expression, &passed(kind, &given, &plain), &plain);
            assert_eq!(unsure, 0, "{} {given:?}: plain packets", kind.name);
        }
    }
    assert_eq!(selectors, 11, "every typed selector has a program");
    assert_eq!(selectors, filters::KINDS.iter().filter(|kind| matches!(kind.lower, Some(Lower::Selects(_)))).count());
}

#[test]
fn an_expressions_program_says_what_its_parts_say() {
    let mut random = Random(0xa11);
    let frames = frames(&mut random);
    let mut leaves: Vec<(Expression, Vec<bool>)> = Vec::new();
    for kind in pre_filtering().filter(|kind| matches!(kind.lower, Some(Lower::Selects(_)))) {
        for _ in 0..4 {
            let (given, predicate) = try_out(kind, &mut random, &frames);
            let given: Vec<(&str, &str)> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
            leaves.push((Expression::Packet(predicate), passed(kind, &given, &frames)));
        }
    }
    for (at, value) in [(23, 6), (12, 8), (36, 0), (70, 0), (200, 0)] {
        let said = frames.iter().map(|frame| frame.get(at as usize) == Some(&value)).collect();
        leaves.push((byte(at, value), said));
    }
    for _ in 0..300 {
        let (expression, right) = expression(&mut random, 3, &leaves);
        compare(&expression, &right, &frames);
    }
}

/// A device's pre-filter lets through all frames that the filter changes. The frames it drops would pass unchanged.
#[test]
fn what_is_not_let_in_is_not_opened() {
    let mut random = Random(0x7a11);
    let mut frames = frames(&mut random);
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let inner = testkit::packets::tcp((a, 1000), (b, 80), 1, 1, 0x10, b"inside");
    let ethernet = |behind: &[u8]| [&[2; 12], behind].concat();
    let tunnels = [
        testkit::packets::udp((a, 5000), (b, 4789), &[&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat()),
        testkit::packets::udp((a, 4789), (b, 5000), &[&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat()),
        testkit::packets::ipv4(a, b, 4, &inner[14..]),
        testkit::packets::ipv4(a, b, 47, &[&[0, 0, 8, 0], &inner[14..]].concat()),
        testkit::packets::ipv4(a, b, 97, &[&[0x30, 0], &inner[..]].concat()),
        testkit::packets::ipv4(a, b, 137, &[&[0, 0, 0x11, 64], &inner[14..]].concat()),
        ethernet(&[&[0x88, 0x47, 0, 0, 0x11, 64], &inner[14..]].concat()),
        ethernet(&[&[0x88, 0x64, 0x11, 0, 0, 1, 0, inner.len() as u8 - 12, 0, 0x21], &inner[14..]].concat()),
    ];
    let mut fragment = inner.clone();
    fragment[20] |= 0x20;
    for frame in tunnels.iter().chain([&fragment]) {
        let [start, end] = [&frame[..12], &frame[12..]];
        frames.extend([frame.clone(), [start, &[0x81, 0, 0, 5], end].concat()]);
    }
    let kind = &filters::decap::KIND;
    let others = kind.opens.and_then(|opens| opens(&testkit::chain::params(kind, &[]))).unwrap();
    let others = Expression::Any(others.into_iter().map(Expression::Packet).collect());
    let let_in = interpreter(&others, Passes::Perhaps);
    let (mut opened, mut left_out) = (0, 0);
    for frame in &frames {
        let outcome = Chain::frames(1, &[(1_000_000_000, frame.clone())]).then(kind, &[]).run();
        let is_as_it_was = matches!(&outcome.blocks[..], [block] if block.bytes == *frame);
        let is_let_in = let_in.run(frame, frame.len() as u32) != 0;
        assert!(is_as_it_was || is_let_in, "{frame:02x?}");
        opened += usize::from(!is_as_it_was);
        left_out += usize::from(!is_let_in);
    }
    assert!(opened >= 18 && left_out * 3 > frames.len(), "{opened} opened, {left_out} of {} left out", frames.len());
}

/// Keeps the programs of typical requests short.
#[test]
fn programs_are_short() {
    let of = |kind: &'static Kind, given: &[(&str, &str)]| {
        Expression::Packet(
            kind.pre_filter.and_then(|pre_filter| pre_filter(&testkit::chain::params(kind, given))).unwrap(),
        )
    };
    let host = || of(&filters::host::KIND, &[("address", "10.0.0.1")]);
    let vlan = || of(&filters::vlan::KIND, &[]);
    let rows = [
        ("host 10.0.0.1", host(), 90),
        ("vlan", vlan(), 40),
        ("port 80", of(&filters::port::KIND, &[("port", "80")]), 120),
        ("ether 02:00:00:00:00:01", of(&filters::ether::KIND, &[("value", "02:00:00:00:00:01")]), 12),
        ("not { host 10.0.0.1 or vlan }", Expression::Not(Box::new(Expression::Any(vec![host(), vlan()]))), 80),
    ];
    for (text, expression, most) in rows {
        let length = program::to_cbpf(&expression.program(Passes::Perhaps).unwrap()).len();
        println!("{text}: {length} instructions");
        assert!(length <= most, "{text}: {length} instructions");
    }
}
