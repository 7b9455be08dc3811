//! A thread that is never idle, with more packets for one flow than it can carry: other flows must not notice.

use super::bed::{Bed, FAR, NEAR, at, datagram, outgoing, received, udp};
use crate::interface::Next;
use crate::limits::{OVERLOAD_WINDOW, SECOND};
use buffer::flow::Drop;
use driver::{Transmit, Turn};
use flow::Flow;

/// Frames of a turn without idle time.
const TURN: usize = crate::limits::RECEIVE_BATCHES * base::limits::BATCH_BLOCKS;

/// A bed in which a packet costs 3 ns for each byte of its weight, about 2 us.
fn bed() -> Bed {
    let mut bed = Bed::new();
    bed.interface.core.work.simulated = Some((3, 0));
    bed
}

impl Bed {
    /// Receives a full turn of frames for these ports of 10.0.0.1, in turn. The clock advances by their cost.
    fn saturated_turn(&mut self, ports: &[u16]) {
        let frames: Vec<_> =
            ports.iter().map(|&port| datagram([FAR, NEAR], at(2, 7), at(1, port), &[7; 100])).collect();
        for number in 0..TURN {
            let frame = frames[number % frames.len()].as_slice();
            assert_eq!(self.far.sender.transmit(&[frame]).expect("it is there"), Turn::Frames(1));
        }
        let before = self.cost();
        assert_eq!(self.interface.turn(self.now), Next::Again);
        self.now += self.cost() - before;
    }

    fn cost(&self) -> u64 {
        self.interface.core.work.simulated.expect("this test simulates it").1
    }

    /// Runs saturated turns for `windows`, with `each` after each turn. Returns the number of turns.
    fn saturate(&mut self, windows: u64, ports: &[u16], mut each: impl FnMut(&mut Bed)) -> usize {
        let (end, mut turns) = (self.now + windows * OVERLOAD_WINDOW, 0);
        while self.now < end {
            self.saturated_turn(ports);
            each(self);
            turns += 1;
        }
        turns
    }
}

fn overload(flow: &Flow) -> usize {
    flow.channel.dropped(Drop::Overload) as usize
}

/// One of eight packets is for port 4001.
const FLOOD: [u16; 8] = [4000, 4000, 4000, 4001, 4000, 4000, 4000, 4000];

#[test]
fn a_flooded_flow_loses_its_own_packets_only_and_recovers_after_the_flood() {
    let mut bed = bed();
    // Flows of one user count separately.
    let (mut flooded, mut steady) = (bed.open(5, &udp(at(1, 4000), None)), bed.open(5, &udp(at(1, 4001), None)));
    let mut seen = [0; 2];
    let mut read = |_: &mut Bed| {
        seen[0] += received(&mut flooded).len();
        seen[1] += received(&mut steady).len();
    };
    let turns = bed.saturate(10, &FLOOD, &mut read);
    let sent = [turns * TURN / 8 * 7, turns * TURN / 8];
    assert_eq!(seen[1], sent[1]);
    let drops = overload(&flooded);
    assert_eq!(seen[0] + drops, sent[0]);
    // The steady flow used about a tenth, and has room for four times that. The flooded flow has the rest.
    assert!(drops * 10 > sent[0] && drops * 2 < sent[0], "{drops} of {}", sent[0]);
    let count = |flow: &Flow| flow.channel.dropped(Drop::NoBuffer) + flow.channel.dropped(Drop::TooLong);
    assert_eq!((count(&flooded), count(&steady), overload(&steady)), (0, 0, 0));
    let state = bed.interface.state(None, bed.now).flows.remove(0);
    assert_eq!(state.received as usize, seen[0]);
    assert_eq!(state.drops, [("more than its share of receive work".to_string(), drops as u64)]);
    assert_eq!(state.receive_ns, seen[0] as u64 * 3 * (512 + 142) + drops as u64 * 3 * 512);
    assert_eq!(
        bed.ends(),
        [("delivered".into(), (seen[0] + seen[1]) as u64), ("dropped_by_flow".into(), drops as u64)]
    );

    // The flood ends, but the thread has no idle time: another flow is flooded now.
    let mut next = bed.open(6, &udp(at(1, 4002), None));
    let after = FLOOD.map(|port| if port == 4000 { 4002 } else { 4000 });
    let mut turns = |bed: &mut Bed, windows: u64| {
        let mut seen = 0;
        let turns = bed.saturate(windows, &after, |_| {
            seen += received(&mut flooded).len();
            received(&mut next);
        });
        (seen, turns * TURN / 8)
    };
    turns(&mut bed, 2);
    let (seen, sent) = turns(&mut bed, 5);
    assert_eq!(seen, sent);
    assert!(overload(&next) > 0);
    bed.ends();
}

#[test]
fn a_flow_that_was_flooded_has_everything_within_two_windows() {
    let mut bed = bed();
    let (mut flooded, mut steady) = (bed.open(5, &udp(at(1, 4000), None)), bed.open(6, &udp(at(1, 4001), None)));
    let mut read = |_: &mut Bed| received(&mut flooded).len() + received(&mut steady).len();
    bed.saturate(5, &FLOOD, |bed| _ = read(bed));
    // Frames without a flow keep the thread busy.
    let quiet = [4000, 9, 9, 4001, 9, 9, 9, 9];
    bed.saturate(2, &quiet, |bed| _ = read(bed));
    let (mut seen, before) = (0, bed.counter("ended.dropped_by_flow"));
    let turns = bed.saturate(5, &quiet, |bed| seen += read(bed));
    assert_eq!((seen, bed.counter("ended.dropped_by_flow")), (turns * TURN / 4, before));
    assert!(before > 0);
    bed.ends();
}

#[test]
fn a_flow_alone_is_never_limited_and_neither_is_an_interface_with_idle_time() {
    let mut bed = bed();
    let mut alone = bed.open(5, &udp(at(1, 4000), Some(at(2, 7))));
    bed.introduce(&mut alone);
    let mut seen = 0;
    // It also sends, and the other frames have no flow.
    let turns = bed.saturate(20, &[4000, 4000, 4000, 9], |bed| {
        seen += received(&mut alone).len();
        alone.send(&[&outgoing(at(1, 4000), at(2, 7), b"mine")]).expect("there is room");
        drop(super::bed::frames(&mut bed.far.receiver));
    });
    assert_eq!((seen, overload(&alone)), (turns * TURN / 4 * 3, 0));

    let mut other = bed.open(6, &udp(at(1, 4001), None));
    let before = bed.cost();
    while bed.cost() - before < SECOND / 5 {
        for &port in &FLOOD {
            bed.give(&datagram([FAR, NEAR], at(2, 7), at(1, port), &[7; 1000]));
        }
        bed.now += OVERLOAD_WINDOW / 1000;
        received(&mut alone);
        received(&mut other);
    }
    assert_eq!((overload(&alone), overload(&other)), (0, 0));
    bed.ends();
}

#[test]
fn a_stopped_application_takes_no_time_from_others() {
    let mut bed = bed();
    let (stopped, mut steady) = (bed.open(5, &udp(at(1, 4000), None)), bed.open(6, &udp(at(1, 4001), None)));
    let mut seen = 0;
    let turns = bed.saturate(10, &FLOOD, |_| seen += received(&mut steady).len());
    assert_eq!(seen, turns * TURN / 8);
    let (full, over) = (stopped.channel.dropped(Drop::NoBuffer) as usize, overload(&stopped));
    assert_eq!(256 + full + over, turns * TURN / 8 * 7);
    assert!(full > 0 && over > 0, "{full} {over}");
    bed.ends();
}

#[test]
fn packets_between_flows_of_this_host_pass_a_flow_that_is_over_its_allowance() {
    let mut bed = bed();
    let (mut flooded, mut local) = (bed.open(5, &udp(at(1, 4000), None)), bed.open(6, &udp(at(1, 4001), None)));
    let (mut turns, mut seen) = (0, 0);
    bed.saturate(10, &FLOOD, |_| {
        received(&mut local);
        seen += received(&mut flooded).iter().filter(|frame| frame.ends_with(b"from here")).count();
        local.send(&[&outgoing(at(1, 4001), at(1, 4000), b"from here")]).expect("there is room");
        turns += 1;
    });
    // The last one is still to come.
    assert_eq!((seen, bed.counter("looped")), (turns - 1, turns as u64 - 1));
    assert!(overload(&flooded) > 0);
    bed.ends();
}
