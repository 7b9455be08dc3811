//! A flow that moves to another stack and goes on there.

use stack::blocks::dummy::Dummy;
use stack::{Block, Discard, ImportError, Incoming, Outgoing, SendError, Stack, Step, Unsupported};

use crate::support::*;

#[test]
fn a_flow_goes_on_in_a_new_stack_with_its_peer_and_its_counts() {
    let mut old = build("dummy | udp 53 to=10.0.0.1:4000", 1);
    let mut peer = build("udp 4000 to=10.0.0.2:53", 0);
    let frame = to_station(sent(&mut peer, None, b"question").unwrap(), MACS[1]);
    for _ in 0..3 {
        assert_eq!(received(&mut old, &frame).unwrap().len(), 1);
    }
    sent(&mut old, None, b"answer").unwrap();
    let state = old.export().unwrap();

    // The new stack's text names no peer, and its blocks have another order.
    let mut new = build("udp 53 | ipv4 | dummy", 1);
    assert_eq!(sent(&mut new, None, b"answer"), Err(SendError::NoDestination));
    new.import(&state).unwrap();
    let frame_of_new = to_station(sent(&mut new, None, b"answer").unwrap(), MACS[0]);
    assert_eq!(received(&mut peer, &frame_of_new).unwrap(), [(endpoint("10.0.0.2:53"), b"answer".to_vec())]);
    assert_eq!(received(&mut new, &frame).unwrap(), [(endpoint("10.0.0.1:4000"), b"question".to_vec())]);
    let mut stranger = frame;
    stranger[35] ^= 1;
    assert_eq!(received(&mut new, &stranger), Err(Discard::OtherPeer));

    // Counts continue. `dummy`, now below `udp`, first saw one packet down and three up, then one and two.
    let state = new.export().unwrap();
    assert_eq!(Dummy::read(&state[state.len() - 16..]), Ok(Dummy { down: 2, up: 5 }));
    // version, count, 3 "udp", 36: port, peer, sent, received
    let udp = [0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1, 0x0f, 0xa0];
    assert_eq!(state[..10], [1, 2, 3, b'u', b'd', b'p', 0, 0, 0, 36]);
    assert_eq!(state[10..46], [&udp[..], &2_u64.to_be_bytes(), &4_u64.to_be_bytes()].concat());
}

#[test]
fn a_flow_of_ipv6_goes_on_with_its_peer_and_not_in_a_stack_of_ipv4() {
    let state = build_with("udp 53 to=[fd00::1]:4000", &facts_v6(1)).export().unwrap();
    let mut new = build_with("udp 53", &facts_v6(1));
    new.import(&state).unwrap();
    assert_eq!(sent(&mut new, None, b"x").unwrap()[38..54], [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(build("udp 53", 1).import(&state), Err(ImportError::OtherFlow));
}

#[test]
fn a_flow_gets_a_peer_by_moving_to_a_stack_that_names_it() {
    let old = build("udp 53", 1).export().unwrap();
    let mut new = build("udp 53 to=10.0.0.1:4000", 1);
    new.import(&old).unwrap();
    assert!(sent(&mut new, None, b"x").is_ok());
    let mut other = build("udp 53 to=10.0.0.1:5000", 1);
    other.import(&new.export().unwrap()).unwrap();
    assert_eq!(sent(&mut other, None, b"x").unwrap()[36..38], 5000_u16.to_be_bytes());
}

#[test]
fn echo_requests_go_on_counting() {
    let mut old = build("icmp id=7", 0);
    sent(&mut old, Some("10.0.0.2:0"), b"").unwrap();
    let mut new = build("icmp id=7", 0);
    new.import(&old.export().unwrap()).unwrap();
    assert_eq!(sent(&mut new, Some("10.0.0.2:0"), b"").unwrap()[38..42], [0, 7, 0, 1]);
    assert_eq!(build("icmp id=8", 0).import(&old.export().unwrap()), Err(ImportError::OtherFlow));
}

#[test]
fn what_cannot_move() {
    let state = build("udp 53 to=10.0.0.1:4000 | dummy", 1).export().unwrap();
    assert_eq!(build("udp 54", 1).import(&state), Err(ImportError::OtherFlow));
    assert_eq!(build("icmp", 1).import(&state), Err(ImportError::NoBlock));
    for length in 0..state.len() {
        assert_eq!(build("udp 53", 1).import(&state[..length]), Err(ImportError::Malformed), "{length}");
    }
    // A flow may lose or gain `dummy` blocks.
    let mut without = build("udp 53", 1);
    assert_eq!(without.import(&state), Ok(()));
    assert_eq!(build("dummy | udp 53 | dummy", 1).import(&without.export().unwrap()), Ok(()));
    // A peer with a port but no address is malformed.
    let mut half = state.clone();
    half[12..28].fill(0);
    assert_eq!(build("udp 53 | dummy", 1).import(&half), Err(ImportError::Malformed));
}

#[test]
fn a_failed_import_leaves_the_stack_as_it_was() {
    let mut donor = build("dummy | udp 53 to=10.0.0.1:4000", 1);
    sent(&mut donor, None, b"x").unwrap();
    let state = donor.export().unwrap();
    let mut stack = build("dummy | udp 54 | dummy", 1);
    let before = stack.export().unwrap();
    // `dummy` takes its state first; then `udp` refuses.
    assert_eq!(stack.import(&state), Err(ImportError::OtherFlow));
    assert_eq!(stack.export().unwrap(), before);
}

#[test]
fn stacks_without_state_move_as_nothing() {
    let state = build("arp", 0).export().unwrap();
    assert_eq!(state, [1, 0]);
    assert_eq!(build("arp", 0).import(&state), Ok(()));
}

/// A block that exports no state.
struct Secret;

impl Block for Secret {
    fn name(&self) -> &'static str {
        "secret"
    }

    fn header_bytes(&self) -> usize {
        0
    }

    fn down(&mut self, _now: u64, _packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, _packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        Ok(Step::Pass)
    }
}

#[test]
fn a_block_that_cannot_give_its_state_holds_the_flow() {
    let mut stack = Stack::of_blocks(vec![Box::new(Secret)]);
    assert_eq!(stack.export(), Err(Unsupported::NotExported));
    assert_eq!(stack.import(&[1, 1, 6, b's', b'e', b'c', b'r', b'e', b't', 0, 0, 0, 0]), Err(ImportError::NotImported));
    assert_eq!(stack.import(&[1, 0]), Ok(()));
}
