//! Abilities of AF_XDP sockets beyond the common contract: modes, other owners' programs, queues, kept frames.

use buffer::shared::segment::Access;
use driver::af_packet::{self, Direction};
use driver::af_xdp::{Attach, Copying, Device, Options};
use driver::link::XdpMode;
use driver::{Error, Receive, Transmit, Turn};
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

const PATIENCE: Duration = Duration::from_secs(20);

fn open(pair: &Pair, options: Options) -> Result<Device, Error> {
    Device::open(&pair.near.namespace, &pair.near.name, options)
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[..14].copy_from_slice(&[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

fn receive(receiver: &mut dyn Receive, count: usize) -> Vec<Vec<u8>> {
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while seen.len() < count {
        assert!(Instant::now() < end, "{} came; {:?}", seen.len(), receiver.counters());
        let take = &mut |batch: driver::Batch<'_>| seen.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
        receiver.receive(Duration::from_secs(1), take).expect("it is there");
    }
    seen
}

#[test]
fn it_says_where_it_runs_and_whether_it_copies() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let check = |attach, copying, expected: Result<XdpMode, &str>| {
        match (open(&pair, Options { attach, copying, ..Options::default() }), expected) {
            (Ok(device), Ok(mode)) => {
                assert_eq!((device.mode, device.queues[0].receiver.mode()), (mode, mode));
                // A veth pair has no memory of its own to share.
                assert!(!device.queues[0].zero_copy);
                let attached = pair.near.link().xdp.expect("its program is there");
                assert_eq!(attached.mode, mode);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
            (Ok(_), Err(expected)) => panic!("no error, but it should be: {expected}"),
            (Err(error), Ok(_)) => panic!("{error}"),
        }
        assert_eq!(pair.near.link().xdp, None, "nothing is left of it");
    };
    check(Attach::NativeIfThere, Copying::NoneIfThere, Ok(XdpMode::Native));
    check(Attach::Native, Copying::Always, Ok(XdpMode::Native));
    check(Attach::Generic, Copying::NoneIfThere, Ok(XdpMode::Generic));
    let refused = "cannot do without copying for queue 0 of `near`: neither kernel nor device offers it";
    check(Attach::Native, Copying::None, Err(refused));
    // Packets of this size do not fit into the driver's buffers.
    pair.near.set_mtu(9000);
    pair.far.set_mtu(9000);
    check(Attach::Native, Copying::Always, Err("cannot attach an XDP program for `near`"));
    check(Attach::NativeIfThere, Copying::Always, Ok(XdpMode::Generic));
}

#[test]
fn a_device_that_has_a_program_is_left_alone() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let first = open(&pair, Options::default()).expect("root may take what a device receives");
    let foreign = pair.near.link().xdp.expect("its program is there").program;
    let error = open(&pair, Options::default()).expect_err("a device has one program");
    let expected = format!("XDP program {foreign} (`streamline_xdp`) is attached to `near`; a device has one: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    drop(first);
    assert!(open(&pair, Options::default()).is_ok());
}

/// The kernel frees a queue in the background, some time after it was closed.
#[test]
fn a_queue_can_be_opened_as_soon_as_it_was_closed() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    for round in 0..30 {
        let opened = open(&pair, Options { receive_chunks: 64, transmit_chunks: 64, ..Options::default() });
        assert!(opened.is_ok(), "round {round}: {:?}", opened.err());
    }
}

#[test]
fn what_is_taken_is_not_the_hosts() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let options = af_packet::Options {
        direction: Direction::In,
        block_timeout: Duration::from_millis(1),
        ..af_packet::Options::default()
    };
    let mut host = af_packet::Receiver::open(&pair.near.namespace, "near", &options).expect("root may receive");
    let mut device = open(&pair, Options::default()).expect("root may take what a device receives");
    let mut sender = pair.far.sender();
    sender.send(&frame(1, 60)).expect("it is up");
    assert_eq!(receive(&mut device.queues[0].receiver, 1), [frame(1, 60)]);
    device.queues[0].receiver.stop().expect("anything can be stopped");
    sender.send(&frame(2, 60)).expect("it is up");
    assert_eq!(receive(&mut host, 1), [frame(2, 60)]);
    drop(device);
    sender.send(&frame(3, 60)).expect("it is up");
    assert_eq!(receive(&mut host, 1), [frame(3, 60)]);
}

#[test]
fn frames_that_are_kept_stay_where_they_are() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let options = Options { receive_chunks: 64, ..Options::default() };
    let mut device = open(&pair, options).expect("root may take what a device receives");
    let receiver = &mut device.queues[0].receiver;
    let shown = receiver.segment().map(0, receiver.segment().bytes(), Access::Read).expect("it can be read");
    assert!(receiver.segment().map(0, receiver.segment().bytes(), Access::Write).is_err(), "but not written to");
    let mut sender = pair.far.sender();
    (0..10).for_each(|number| sender.send(&frame(number, 100)).expect("it is up"));
    let (mut kept, mut seen, end) = (Vec::new(), 0, Instant::now() + PATIENCE);
    while seen < 10 {
        assert!(Instant::now() < end);
        let take = &mut |batch: driver::Batch<'_>, positions: &[u64]| {
            let mut keep = 0;
            for (at, (frame, &position)) in batch.frames.iter().zip(positions).enumerate() {
                seen += 1;
                if frame.bytes_without_tag()[20].is_multiple_of(3) {
                    kept.push((frame.bytes_without_tag()[20], position));
                    keep |= 1 << at;
                }
            }
            keep
        };
        receiver.receive_keeping(Duration::from_secs(1), take).expect("it is there");
    }
    assert_eq!(kept.iter().map(|kept| kept.0).collect::<Vec<_>>(), [0, 3, 6, 9]);
    // All other chunks are overwritten many times.
    for _ in 0..100 {
        (0..32).for_each(|_| sender.send(&frame(77, 100)).expect("it is up"));
        receive(receiver, 32);
    }
    for (number, position) in &kept {
        let mut copy = vec![0; 100];
        let span = buffer::shared::payload::Span::new(std::sync::Arc::clone(&shown));
        span.copy_out(*position as usize, &mut copy);
        assert!(copy == frame(*number, 100), "a reader elsewhere sees the same bytes");
    }
    let counted = receiver.statistics().expect("it is there");
    assert_eq!((counted.dropped, counted.given), (0, 3210));
    for (_, position) in kept {
        assert!(receiver.give_back(position));
        assert!(!receiver.give_back(position), "once is enough");
    }
    assert!(!receiver.give_back(u64::MAX) && !receiver.give_back(1 << 40));
}

#[test]
fn who_keeps_everything_loses_what_comes_and_it_is_counted() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let mut device = open(&pair, Options { receive_chunks: 64, ..Options::default() }).expect("root may");
    let receiver = &mut device.queues[0].receiver;
    let mut sender = pair.far.sender();
    (0..100).for_each(|number| sender.send(&frame(number, 60)).expect("it is up"));
    let (mut positions, end) = (Vec::new(), Instant::now() + PATIENCE);
    while receiver.statistics().expect("it is there").seen < 100 || positions.len() < 64 {
        assert!(Instant::now() < end, "{:?}", receiver.counters());
        let keep_all = &mut |_: driver::Batch<'_>, all: &[u64]| {
            positions.extend_from_slice(all);
            u64::MAX
        };
        receiver.receive_keeping(Duration::from_millis(10), keep_all).expect("as above");
    }
    let counted = receiver.statistics().expect("as above");
    assert_eq!((counted.seen, counted.given, counted.dropped), (100, 64, 36));
    positions.into_iter().for_each(|position| assert!(receiver.give_back(position)));
    sender.send(&frame(5, 60)).expect("it is up");
    assert_eq!(receive(receiver, 1), [frame(5, 60)]);
}

#[test]
fn frames_longer_than_a_chunk_are_counted() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    pair.near.set_mtu(9000);
    pair.far.set_mtu(9000);
    let mut device = open(&pair, Options::default()).expect("generic mode is there");
    let queue = &mut device.queues[0];
    let mut sender = pair.far.sender();
    for len in [3840, 3841, 9014, 60] {
        sender.send(&frame(1, len)).expect("it is up");
    }
    assert_eq!(receive(&mut queue.receiver, 2), [frame(1, 3840), frame(1, 60)]);
    let counted = queue.receiver.statistics().expect("it is there");
    assert_eq!((counted.seen, counted.dropped), (4, 2));
    let long = frame(1, 4097);
    assert_eq!(queue.sender.transmit(&[&long, &long[..4096]]).expect("it is up"), Turn::Frames(2));
    let counted = queue.sender.statistics().expect("it is there");
    assert_eq!((counted.taken, counted.too_long), (2, 1));
}

#[test]
fn queues_that_are_not_in_use_are_left_alone() {
    if !may_make_networks() {
        return;
    }
    // As many queues as the driver prepares room for, one of them in use.
    let pair = Pair::with_queues(0);
    let device = open(&pair, Options::default()).expect("root may take what a device receives");
    assert_eq!(device.queues.len(), 1);
}

#[test]
fn each_queue_has_its_own() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::with_queues(2);
    let mut device = open(&pair, Options::default()).expect("root may take what a device receives");
    assert_eq!(device.queues.iter().map(|queue| queue.number).collect::<Vec<_>>(), [0, 1]);
    let mut sender = pair.far.sender();
    (0..20).for_each(|number| sender.send(&frame(number, 60)).expect("it is up"));
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while seen.len() < 20 {
        assert!(Instant::now() < end);
        for queue in &mut device.queues {
            let take = &mut |batch: driver::Batch<'_>| {
                seen.extend(batch.frames.iter().map(|frame| frame.bytes_without_tag()[20]));
            };
            queue.receiver.receive(Duration::from_millis(1), take).expect("it is there");
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    for queue in &mut device.queues {
        assert_eq!(queue.sender.transmit(&[&frame(1, 60)]).expect("it is up"), Turn::Frames(1));
    }
    drop(device);
    // One queue only: the host gets the frames of the other.
    let device = open(&pair, Options { queues: vec![1], ..Options::default() }).expect("as above");
    assert_eq!(device.queues.len(), 1);
    drop(device);
    assert!(open(&pair, Options { queues: vec![2], ..Options::default() }).is_err());
    assert!(open(&pair, Options { receive_chunks: 3, ..Options::default() }).is_err());
    assert!(open(&pair, Options { chunk_bytes: 1024, ..Options::default() }).is_err());
}

#[test]
fn every_chunk_that_was_sent_from_comes_back() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let mut device = open(&pair, Options { transmit_chunks: 16, ..Options::default() }).expect("root may");
    let sender = &mut device.queues[0].sender;
    let before = pair.far.link().counters;
    let frame = frame(1, 60);
    let frames = [&frame[..]; 100];
    let (mut sent, end) = (0, Instant::now() + PATIENCE);
    while sent < 10_000 {
        assert!(Instant::now() < end, "{:?}", sender.statistics());
        match sender.transmit(&frames).expect("it is up") {
            Turn::Frames(taken) => sent += taken,
            _ => assert!(sender.wait_for_room(PATIENCE).expect("as above"), "there is never room"),
        }
    }
    assert!(sender.wait_for_room(PATIENCE).expect("as above"));
    let counted = sender.statistics().expect("as above");
    assert_eq!((counted.taken, counted.sent + counted.under_way), (sent as u64, sent as u64));
    while sender.statistics().expect("as above").under_way > 0 {
        assert!(Instant::now() < end);
    }
    assert_eq!(pair.far.link().counters.since(&before).get("rx_packets"), Some(sent as u64));
}
