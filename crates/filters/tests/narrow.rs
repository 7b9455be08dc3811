//! What is left in the kernel changes nothing: each filter that narrows gives the same of all frames as of those alone that
//! its program passes. Real frames and damaged ones.

use filter::prelude::*;
use program::Interpreter;
use testkit::Chain;
use testkit::frames::real_and_damaged;
use testkit::random::Random;

/// Parameters to try with a filter, from what is in the frames.
fn given(name: &str, random: &mut Random, frames: &[Vec<u8>]) -> Option<Vec<(&'static str, String)>> {
    let long: Vec<&Vec<u8>> = frames.iter().filter(|frame| frame.len() >= 60).collect();
    let frame = long[random.below(long.len())];
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| format!("{}.{}.{}.{}", frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let list = [6, 17, 1, 58, 47, 51, 44, 0];
    Some(match name {
        "ip" | "ip6" | "tcp" | "udp" => vec![],
        "icmp" => [vec![], vec![("type", "8,128".into())]][random.below(2)].clone(),
        "proto" => vec![("protocol", list[random.below(list.len())].to_string())],
        "port" | "sourceport" | "destport" => [
            vec![],
            vec![("port", port(34).to_string())],
            vec![("port", format!("{},{}:{}", port(36), port(34).min(60_000), port(34).min(60_000) + 500))],
        ][random.below(3)]
        .clone(),
        "host" => [vec![("address", address(26))], vec![("address", format!("{},fe80::1", address(30)))]]
            [random.below(2)]
        .clone(),
        "net" => vec![("network", format!("{}.0.0.0/8", frame[26]))],
        _ => return None,
    })
}

#[test]
fn what_is_left_out_changes_nothing() {
    let mut random = Random(0x1234_5678_9abc_def1);
    let frames = real_and_damaged(300, &mut random);
    let narrowing: Vec<&Kind> = filters::KINDS.iter().copied().filter(|kind| kind.narrow.is_some()).collect();
    assert!(narrowing.len() >= 11);
    let (mut refused, mut all) = (0, 0);
    for kind in narrowing {
        for _ in 0..8 {
            let given = given(kind.name, &mut random, &frames)
                .unwrap_or_else(|| panic!("`{}` narrows: say what to try it with", kind.name));
            let given: Vec<(&str, &str)> = given.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let params = testkit::chain::params(kind, &given);
            let narrow = kind.narrow.and_then(|narrow| narrow(&params)).expect("these are right");
            let interpreter = Interpreter::new(&program::narrow::program(&[narrow]).expect("these are few"));
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
    assert!(refused * 4 > all, "{refused} of {all}: hardly anything is left out");
}
