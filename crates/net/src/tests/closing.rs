//! The last packets of a flow that its application closed.

use super::bed::{Bed, at, frames, interface, outgoing, udp};
use crate::limits::{CLOSE_TIME, SECOND};
use driver::loopback::Capacity;
use flow::{Flow, OpenInterface};

/// An interface with a wire of 10 Mbit/s.
fn paced() -> Bed {
    Bed::with(&OpenInterface { rate: Some(10_000_000), ..interface("near", 1) }, Capacity::default())
}

fn fill(flow: &mut Flow, count: usize, remote: u16) {
    for _ in 0..count {
        flow.send(&[&outgoing(flow.granted.local, at(2, remote), &[0; 958])]).expect("there is room");
    }
}

/// The source ports of frames, until `end`. `busy` always has packets to send.
fn ports_until(bed: &mut Bed, end: u64, busy: &mut Flow) -> Vec<u16> {
    let mut ports = Vec::new();
    while bed.now < end {
        while busy.send(&[&outgoing(busy.granted.local, at(2, 1), &[0; 958])]).is_ok() {}
        bed.now = bed.settle().expect("the wire is busy").min(end);
        let sent = frames(&mut bed.far.receiver);
        ports.extend(sent.iter().map(|frame| u16::from_be_bytes([frame[34], frame[35]])));
    }
    ports
}

#[test]
fn last_packets_take_turns_with_the_flows_that_stay() {
    let mut bed = paced();
    let mut busy = bed.open(5, &udp(at(1, 5001), Some(at(2, 1))));
    let mut ends = bed.open(6, &udp(at(1, 5002), Some(at(2, 2))));
    bed.introduce(&mut busy);
    fill(&mut ends, 100, 2);
    bed.interface.leave(6, bed.now);
    // 100 of 0.8 ms each, and as many of the other flow in between.
    let begun = bed.now;
    let ports = ports_until(&mut bed, begun + SECOND / 10, &mut busy);
    let of_closed = ports.iter().filter(|port| **port == 5002).count();
    assert!(of_closed.abs_diff(ports.len() / 2) <= 3 && bed.users.flows() == 2, "{of_closed} of {}", ports.len());
    let ports = ports_until(&mut bed, begun + SECOND / 4, &mut busy);
    assert_eq!(of_closed + ports.iter().filter(|port| **port == 5002).count(), 100, "none is lost");
    assert_eq!((bed.users.flows(), bed.counter("flows.last_packets_dropped")), (1, 0));
}

#[test]
fn a_flow_that_cannot_send_its_last_packets_in_time_ends_without_them() {
    let mut bed = paced();
    let mut busy = bed.open(5, &udp(at(1, 5001), Some(at(2, 1))));
    let mut ends =
        bed.open(6, &flow::OpenFlow { share: Some("background".into()), ..udp(at(1, 5002), Some(at(2, 2))) });
    bed.introduce(&mut busy);
    fill(&mut ends, 100, 2);
    bed.interface.close_channel(6, ends.granted.channel, bed.now).expect("it is there");
    assert_eq!(ends.channel.state(), buffer::flow::State::Closed(0));
    // Packets that enter the channel after the close are not sent.
    fill(&mut ends, 50, 2);
    let begun = bed.now;
    let sent = ports_until(&mut bed, begun + CLOSE_TIME - 1, &mut busy).iter().filter(|port| **port == 5002).count();
    assert_eq!(bed.users.flows(), 2, "its user has it until it ends");
    bed.now = begun + CLOSE_TIME;
    bed.settle();
    assert_eq!((bed.users.flows(), bed.counter("flows.last_packets_dropped")), (1, 100 - sent as u64));
    assert!(sent < 10, "{sent}");
}

#[test]
fn a_flow_that_sends_its_last_packets_gives_its_name_to_its_user_only() {
    let mut bed = paced();
    let mut ends = bed.open(5, &udp(at(1, 5002), Some(at(2, 2))));
    bed.introduce(&mut ends);
    fill(&mut ends, 100, 2);
    bed.interface.close_channel(5, ends.granted.channel, bed.now).expect("it is there");
    let again = bed.open(5, &udp(at(1, 5002), Some(at(2, 2))));
    assert_eq!(again.granted.channel, ends.granted.channel);
    let other = bed.try_open(6, &udp(at(1, 5002), Some(at(2, 3)))).expect_err("it is another user");
    assert!(other.text.contains("another user"), "{other}");
    bed.now += SECOND / 2;
    let mut seen = 0;
    while let Some(due) = bed.settle() {
        seen += frames(&mut bed.far.receiver).len();
        bed.now = due;
    }
    seen += frames(&mut bed.far.receiver).len();
    assert_eq!((seen, bed.users.flows(), ends.channel.outstanding()), (100, 1, 0));
    // The new flow keeps its name when the old one goes.
    let found = bed.interface.core.flows.find(17, at(1, 5002), at(2, 2)).map(|id| id.number);
    assert_eq!((found, again.channel.state()), (Some(again.granted.flow), buffer::flow::State::Open));
}
