//! Users of a wire: each has its part, whatever number of flows it has.

use super::bed::{Bed, at, outgoing, udp};
use crate::share::ShareLimits;

/// The packets that each flow has waiting.
const PACKETS: usize = 8;

/// The turns of a user with one flow among the first `turns`, against a user with 20 flows and this weight.
fn turns_of_one(bed: &mut Bed, user_weight: u32, turns: usize) -> usize {
    let mut flows = Vec::new();
    for (user, port) in [(5, 4000)].into_iter().chain((0..20).map(|number| (6, 5000 + number))) {
        let weight = if user == 6 { user_weight } else { 1 };
        bed.limits = ShareLimits { user_weight: weight, ..ShareLimits::NONE };
        flows.push(bed.open(user, &udp(at(1, port), Some(at(2, 9)))));
    }
    bed.introduce(&mut flows[0]);
    for flow in &mut flows {
        let packet = outgoing(flow.granted.local, at(2, 9), &[7; 500]);
        for _ in 0..PACKETS {
            flow.send(&[&packet]).expect("there is room");
        }
    }
    let sent = bed.sent();
    assert_eq!(sent.len(), 21 * PACKETS);
    sent[..turns].iter().filter(|frame| frame[34..36] == 4000_u16.to_be_bytes()).count()
}

#[test]
fn a_user_with_many_flows_takes_no_more_of_a_wire_than_another() {
    assert!(turns_of_one(&mut Bed::new(), 1, 2 * PACKETS).abs_diff(PACKETS) <= 1);
    assert!(turns_of_one(&mut Bed::new(), 3, 4 * PACKETS).abs_diff(PACKETS) <= 1);
}
