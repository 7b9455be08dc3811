//! Traces of flows: their content, their permissions, and that the traced flow does not notice.

use super::bed::{Application, FAMILIES, FAR, NEAR, at, await_that, datagram, joined, received, udp};
use crate::NetErrorKind;
use buffer::flow::{Drop, State};
use flow::{Direction, Flow, Host, TRACE_GEOMETRY, TraceHead};

fn trace(application: &mut Application, user: Option<u32>, flow: u64, snap: u32) -> Flow {
    let (granted, fds) = application.client.trace(user, flow, snap).expect("it may");
    Host::default().adopt(granted, TRACE_GEOMETRY, fds).expect("it is whole")
}

/// The direction, length and kept bytes of each frame.
fn traced(trace: &mut Flow) -> Vec<(Direction, u32, Vec<u8>)> {
    let read = |packet: &Vec<u8>| {
        let (head, frame) = TraceHead::read(packet).expect("a head");
        (head.direction, head.bytes, frame.to_vec())
    };
    received(trace).iter().map(read).collect()
}

#[test]
fn a_trace_shows_both_directions_of_one_flow() {
    for at in FAMILIES {
        let [near, far] = joined();
        let (mut one, mut other) = (Application::new(&near, 1000), Application::new(&far, 1000));
        let mut bound = other.open(&udp(at(2, 4000), None));
        let mut client = one.open(&udp(at(1, 5000), Some(at(2, 4000))));
        let mut untraced = one.open(&udp(at(1, 5001), Some(at(2, 4000))));
        // Another process of the user, and one of root.
        let (mut watcher, mut root) = (Application::new(&near, 1000), Application::new(&near, 0));
        let number = client.granted.flow;
        let (mut whole, mut short) =
            (trace(&mut watcher, Some(1000), number, 65_549), trace(&mut root, None, number, 60));
        let question = datagram([NEAR, FAR], at(1, 5000), at(2, 4000), &[7; 100]);
        client.send(&[&question]).expect("there is room");
        untraced.send(&[&datagram([NEAR, FAR], at(1, 5001), at(2, 4000), b"other")]).expect("there is room");
        let mut seen = 0;
        await_that("both arrive", || {
            seen += received(&mut bound).len();
            seen == 2
        });
        let answer = datagram([FAR, NEAR], at(2, 4000), at(1, 5000), b"answer");
        bound.send(&[&answer]).expect("there is room");
        await_that("the answer arrives", || !received(&mut client).is_empty());
        let expected = [(Direction::Sent, question), (Direction::Received, answer)];
        let frames = traced(&mut whole);
        for ((direction, len, frame), (way, bytes)) in frames.iter().zip(&expected) {
            assert_eq!((direction, *len as usize, frame), (way, bytes.len(), bytes));
        }
        assert_eq!(frames.len(), 2);
        let frames = traced(&mut short);
        let headers = if at(1, 0).is_ipv4() { 34 } else { 54 };
        let kept = [(headers + 108, 60), (headers + 14, (headers + 14).min(60))];
        assert_eq!(
            frames.iter().map(|(_, len, kept)| (*len, kept.len())).collect::<Vec<_>>(),
            kept.map(|(len, kept)| (len, kept as usize))
        );
        // It ends with its client, and with the flow.
        drop(root);
        one.client.close(client.granted.channel).expect("it is there");
        await_that("the trace ends with the flow", || whole.channel.state() == State::Closed(0));
        assert_eq!(short.channel.state(), State::Open, "nobody was left to be told");
        drop((watcher, one));
        await_that("the quota comes back", || near.users.flows() == 0);
    }
}

#[test]
fn a_trace_that_is_behind_loses_frames_and_the_flow_none() {
    let [near, far] = joined();
    let (mut one, mut other) = (Application::new(&near, 1000), Application::new(&far, 1000));
    let mut bound = other.open(&udp(at(2, 4000), None));
    let mut client = one.open(&udp(at(1, 5000), Some(at(2, 4000))));
    let slow = trace(&mut one, Some(1000), client.granted.flow, 65_549);
    let frame = datagram([NEAR, FAR], at(1, 5000), at(2, 4000), b"traced");
    let (mut sent, mut seen) = (0, 0);
    await_that("all are sent", || {
        // Less than the other side has buffers for.
        for _ in 0..50.min(3000 - sent).min(200 - (sent - seen)) {
            sent += u64::from(client.send(&[&frame]).is_ok());
        }
        seen += received(&mut bound).len() as u64;
        seen == 3000
    });
    assert_eq!(slow.channel.dropped(Drop::NoBuffer), 3000 - 2048);
    assert!(client.channel.dropped(Drop::Refused) == 0 && client.channel.state() == State::Open);
}

#[test]
fn only_the_user_of_a_flow_and_root_trace_it_and_not_too_often() {
    let [near, _far] = joined();
    let mut one = Application::new(&near, 1000);
    let flow = one.open(&udp(at(1, 5000), None)).granted.flow;
    let mut stranger = Application::new(&near, 1001);
    for (user, number) in [(Some(1001), flow), (None, flow + 7)] {
        assert_eq!(stranger.client.trace(user, number, 60).expect_err("it may not").kind, NetErrorKind::Absent);
    }
    let traces = [1, 2, 3, 4].map(|_| trace(&mut one, Some(1000), flow, 60));
    let error = one.client.trace(Some(1000), flow, 60).expect_err("four are the most");
    assert!(error.kind == NetErrorKind::Full && error.text.contains("4 traces"), "{error}");
    near.down("near").expect("it is up");
    assert!(traces.iter().all(|trace| trace.channel.state() == State::Closed(0)));
}
