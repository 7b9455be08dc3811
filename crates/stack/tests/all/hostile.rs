//! Arbitrary bytes: each frame is delivered, kept, or discarded and counted. None panics.

use proptest::prelude::*;
use stack::{ChecksumRule, Description, ImportError, Stack};

use crate::support::*;

/// Stacks of host 1, with a valid frame for each.
fn stacks() -> Vec<(Stack, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut auto = facts(1);
    auto.checksum = ChecksumRule::Auto;
    let datagram = to_station(sent(&mut build("udp 4000", 0), Some("10.0.0.2:53"), b"payload").unwrap(), MACS[1]);
    frames.push((build("udp 53", 1), datagram.clone()));
    frames.push((build_with("udp 53", &auto), datagram.clone()));
    frames.push((build("udp 53 to=10.0.0.1:4000 | dummy | ipv4 | dummy | ethernet | dummy", 1), datagram.clone()));

    let request = sent(&mut build("arp", 0), Some("10.0.0.2:0"), b"").unwrap();
    frames.push((build("arp", 1), request));

    let mut reply = to_station(sent(&mut build("icmp id=7", 0), Some("10.0.0.2:0"), b"payload").unwrap(), MACS[1]);
    reply[34] = 0;
    reply[36] += 8;
    frames.push((build("icmp id=7", 1), reply));

    // Host 0 reports an error about a datagram of host 1.
    let about = sent(&mut build("udp 53", 1), Some("10.0.0.1:4000"), b"payload").unwrap();
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&about[14..]);
    let checksum = packet::checksum::Sum::of(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = datagram[..34].to_vec();
    (frame[17], frame[23]) = (20 + message.len() as u8, 1);
    mend_ipv4(&mut frame);
    frame.extend(message);
    frames.push((build("udp 53", 1), frame));
    frames.extend(stacks_v6());
    frames
}

/// The same for IPv6.
fn stacks_v6() -> Vec<(Stack, Vec<u8>)> {
    let stack = |text: &str, host: usize| build_with(text, &facts_v6(host));
    let datagram = to_station(sent(&mut stack("udp 4000", 0), Some("[fd00::2]:53"), b"payload").unwrap(), MACS[1]);
    let mut request = sent(&mut stack("ndp", 0), Some("[fd00::2]:0"), b"").unwrap();
    // For the solicited-node group, of which this host is the only member.
    request[..6].copy_from_slice(&MACS[1]);
    let mut reply = to_station(sent(&mut stack("icmp id=7", 0), Some("[fd00::2]:0"), b"payload").unwrap(), MACS[1]);
    reply[54] = 129;
    mend_transport(&mut reply, 2);
    let about = sent(&mut stack("udp 53", 1), Some("[fd00::1]:4000"), b"payload").unwrap();
    let mut error = datagram[..54].to_vec();
    error.extend([1, 4, 0, 0, 0, 0, 0, 0]);
    error.extend(&about[14..]);
    (error[19], error[20]) = (error.len() as u8 - 54, 58);
    mend_transport(&mut error, 2);
    vec![
        (stack("udp 53", 1), datagram.clone()),
        (stack("udp 53 to=[fd00::1]:4000 | ipv6 | dummy", 1), datagram),
        (stack("ndp", 1), request),
        (stack("icmp id=7", 1), reply),
        (stack("udp 53", 1), error),
    ]
}

/// Gives a frame to a stack and returns whether the stack accounts for it.
fn take(stack: &mut Stack, frame: &[u8]) -> bool {
    let before: u64 = stack.discards().map(|(_, count)| count).sum();
    let mut delivered = 0;
    let outcome = stack.receive(0, frame, &mut |delivery| {
        delivered += 1;
        assert!(delivery.payload.len() <= frame.len());
    });
    let kept = stack.take_problem().is_some() || stack.next().is_some();
    stack.tend(0, &mut |_: &[u8], _: &[u8]| {}, &mut |_| {});
    let discarded = stack.discards().map(|(_, count)| count).sum::<u64>() - before;
    match outcome {
        Ok(()) => assert!(discarded == 0 && (delivered == 1) != kept, "{frame:02x?}"),
        Err(_) => assert!(discarded == 1 && delivered == 0 && !kept, "{frame:02x?}"),
    }
    outcome.is_ok()
}

#[test]
fn every_truncation_is_a_discard_and_every_mutation_is_accounted_for() {
    for (mut stack, frame) in stacks() {
        assert!(take(&mut stack, &frame), "{frame:02x?}");
        for length in 0..frame.len() {
            assert!(!take(&mut stack, &frame[..length]), "{length} {frame:02x?}");
        }
        for at in 0..frame.len() {
            for value in 0..=255 {
                let mut changed = frame.clone();
                changed[at] = value;
                take(&mut stack, &changed);
            }
        }
    }
}

#[test]
fn no_single_changed_byte_behind_the_ethernet_header_is_delivered() {
    // Checksums cover everything from the IP header on. The only change that they miss is 0000 for ffff. In IPv6 they
    // do not cover traffic class, flow label and hop limit.
    for ((mut stack, frame), free) in [(stacks().remove(0), &[][..]), (stacks_v6().remove(0), &[15, 16, 17, 21])] {
        for (at, bit) in (14..frame.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = frame.clone();
            changed[at] ^= 1 << bit;
            let is_free = free.contains(&at) || at == 14 && !free.is_empty() && bit < 4;
            assert_eq!(take(&mut stack, &changed), is_free, "{at} {bit}");
        }
    }
}

/// Bytes that begin like a frame for host 1, with a right IP checksum and an arbitrary rest.
fn nearly_a_frame() -> impl Strategy<Value = Vec<u8>> {
    let header = (0x45_u8..0x4a, any::<u8>(), prop::sample::select(vec![1_u8, 6, 17]));
    (header, proptest::collection::vec(any::<u8>(), 0..80)).prop_map(|((first, total, protocol), rest)| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, first, 0, 0, total, 0, 0, 0, 0, 64, protocol];
        frame.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(rest);
        if frame.len() >= 14 + usize::from(first & 15) * 4 {
            mend_ipv4(&mut frame);
        }
        frame
    })
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (mut stack, _) in stacks() {
            take(&mut stack, &bytes);
        }
    }

    #[test]
    fn bytes_that_are_nearly_a_frame(frame in nearly_a_frame()) {
        for (mut stack, _) in stacks() {
            take(&mut stack, &frame);
        }
    }

    #[test]
    fn any_state(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for (mut stack, frame) in stacks() {
            let before = stack.export();
            // By chance only a state without blocks can succeed: any other is too long.
            if stack.import(&bytes).is_err() {
                prop_assert_eq!(stack.export(), before);
            }
            take(&mut stack, &frame);
        }
    }

    #[test]
    fn any_change_of_a_state(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        for (mut stack, frame) in stacks() {
            let before = stack.export().unwrap();
            let mut state = before.clone();
            state[at.index(before.len())] = value;
            match stack.import(&state) {
                Ok(()) => {}
                Err(ImportError::Malformed | ImportError::OtherFlow | ImportError::NoBlock | ImportError::NotImported) => {
                    prop_assert_eq!(stack.export().unwrap(), before);
                }
            }
            take(&mut stack, &frame);
        }
    }

    #[test]
    fn any_text(text in "[ -~]{0,40}") {
        if let Err(error) = Description::parse(&text).and_then(|description| description.complete(&facts(0))) {
            prop_assert!(error.render(&text, "stack").starts_with("error: "));
        }
    }

    #[test]
    fn any_row_of_blocks(words in proptest::collection::vec(prop::sample::select(WORDS), 1..8)) {
        let text = words.join(" | ");
        for facts in [facts(0), facts_v6(0)] {
            match Description::parse(&text).and_then(|description| description.complete(&facts)) {
                Err(error) => prop_assert!(error.render(&text, "stack").contains('^'), "{text}: {error}"),
                Ok(description) => {
                    // The canonical text is complete and stays the same.
                    let canonical = description.canonical();
                    let again = Description::parse(&canonical).unwrap();
                    prop_assert_eq!(&again.canonical(), &canonical);
                    prop_assert_eq!(&again.complete(&facts).unwrap().canonical(), &canonical);
                }
            }
        }
    }
}

const WORDS: &[&str] = &[
    "udp 4000",
    "udp 53 to=10.0.0.1:4000",
    "icmp id=3",
    "arp",
    "ipv4",
    "ipv4 ttl=5 dscp=1",
    "ipv6",
    "ndp",
    "udp 53 to=[fd00::1]:4000",
    "ethernet",
    "ethernet eth0",
    "dummy",
    "tap \"a b\"",
    "bpf \"tcp port 80\"",
];
