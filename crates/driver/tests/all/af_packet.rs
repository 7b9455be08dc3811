//! Abilities of packet sockets beyond the common contract: groups, directions, loopback devices, offloads, clocks.

use buffer::live::SlotFlags;
use driver::af_packet::{Direction, Fanout, FanoutBy, Options, PacketSocket, Receiver, Timestamps};
use driver::change::Change;
use driver::frame::{Clock, OpenChecksum};
use driver::netlink::Netlink;
use driver::{Error, Receive};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

fn quick() -> Options {
    Options { block_timeout: Duration::from_millis(1), ..Options::default() }
}

fn open(end: &End, options: &Options) -> Receiver {
    Receiver::open(&end.namespace, &end.name, options).expect("root may receive")
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until receivers have seen `count` frames together: the kernel may deliver them in the background.
fn await_seen(receivers: &mut [&mut Receiver], count: u64) {
    let end = Instant::now() + PATIENCE;
    let mut seen = |receiver: &mut &mut Receiver| receiver.statistics().expect("it is there").seen;
    while receivers.iter_mut().map(&mut seen).sum::<u64>() < count {
        assert!(Instant::now() < end, "they do not come");
        std::thread::yield_now();
    }
}

/// Stops the receiver, and gives the bytes of all frames that are left.
fn rest(receiver: &mut Receiver) -> Vec<Vec<u8>> {
    receiver.stop().expect("anything can be stopped");
    let (mut frames, end) = (Vec::new(), Instant::now() + PATIENCE);
    while receiver.statistics().expect("it is there").waiting() > 0 {
        assert!(Instant::now() < end, "what is there does not come");
        let take =
            &mut |batch: driver::Batch<'_>| frames.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
        receiver.receive(Duration::from_millis(100), take).expect("as above");
    }
    frames
}

/// A UDP datagram of this flow; `back`: in the other direction.
fn datagram(flow: u8, back: bool) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[5] = 1;
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[17] = 46;
    frame[22..24].copy_from_slice(&[64, 17]);
    let ends = [[10, 0, 0, flow], [10, 1, 0, 7]];
    let ports = [[100, flow], [0, 53]];
    let (from, to) = if back { (1, 0) } else { (0, 1) };
    frame[26..30].copy_from_slice(&ends[from]);
    frame[30..34].copy_from_slice(&ends[to]);
    frame[34..36].copy_from_slice(&ports[from]);
    frame[36..38].copy_from_slice(&ports[to]);
    frame[39] = 26;
    frame
}

#[test]
fn a_group_shares_frames_by_their_flow() {
    if !may_make_networks() {
        return;
    }
    for by in [FanoutBy::Hash, FanoutBy::RoundRobin, FanoutBy::Cpu, FanoutBy::Queue] {
        let pair = Pair::new();
        let options = Options { fanout: Some(Fanout { group: 7, by, defragment: false }), ..quick() };
        let mut members = [open(&pair.near, &options), open(&pair.near, &options)];
        let mut sender = pair.far.sender();
        let sent: Vec<Vec<u8>> = (0..64).flat_map(|flow| [datagram(flow, false), datagram(flow, true)]).collect();
        sent.iter().for_each(|frame| sender.send(frame).expect("it is up"));
        await_seen(&mut members.each_mut(), sent.len() as u64);
        let seen = members.each_mut().map(rest);
        let mut all = seen.concat();
        assert_eq!(all.len(), sent.len(), "{by:?}: each goes to one of them");
        all.sort();
        let mut sorted = sent.clone();
        sorted.sort();
        assert!(all == sorted, "{by:?}");
        match by {
            FanoutBy::Hash => {
                assert!(seen.iter().all(|seen| seen.len() > 10), "both have some");
                for flow in 0..64 {
                    let one = seen[0].contains(&datagram(flow, false));
                    assert_eq!(one, seen[0].contains(&datagram(flow, true)), "both directions go to the same");
                }
            }
            FanoutBy::RoundRobin => assert_eq!(seen.map(|seen| seen.len()), [64, 64]),
            FanoutBy::Cpu | FanoutBy::Queue => {}
        }
    }
}

#[test]
fn who_joins_a_group_otherwise_than_it_is_shared_is_refused() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let options = |by| Options { fanout: Some(Fanout { group: 7, by, defragment: false }), ..quick() };
    let _first = open(&pair.near, &options(FanoutBy::Hash));
    let error = Receiver::open(&pair.near.namespace, "near", &options(FanoutBy::Cpu)).expect_err("it is by hash");
    assert!(error.to_string().starts_with("cannot join group 7 for `near`"), "{error}");
}

#[test]
fn frames_of_one_direction_come_alone() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    for (direction, wanted) in
        [(Direction::In, &["in"][..]), (Direction::Out, &["out"]), (Direction::Both, &["in", "out"])]
    {
        let mut receiver = open(&pair.near, &Options { direction, ..quick() });
        let frame = |word: &str| [&datagram(1, false)[..42], word.as_bytes()].concat();
        pair.far.sender().send(&frame("in")).expect("it is up");
        await_seen(&mut [&mut receiver], u64::from(wanted.contains(&"in")));
        pair.near.sender().send(&frame("out")).expect("it is up");
        await_seen(&mut [&mut receiver], wanted.len() as u64);
        let expected: Vec<_> = wanted.iter().map(|word| frame(word)).collect();
        assert_eq!(rest(&mut receiver), expected, "{direction:?}");
    }
}

#[test]
fn a_loopback_device_gives_each_frame_once() {
    if !may_make_networks() {
        return;
    }
    let namespace = quiet_namespace();
    let loopback = End::find(&namespace, "lo").expect("there is one everywhere");
    loopback.set_up(true);
    for (direction, times) in [(Direction::Both, 1), (Direction::In, 1), (Direction::Out, 1)] {
        let mut receiver = open(&loopback, &Options { direction, ..quick() });
        loopback.sender().send(&datagram(1, false)).expect("it is up");
        await_seen(&mut [&mut receiver], 1);
        assert_eq!(rest(&mut receiver), vec![datagram(1, false); times], "{direction:?}");
    }
}

/// The kernel's clock serves a device without a clock of its own, and the receiver says so.
#[test]
fn without_a_clock_in_the_device_the_kernels_is_used() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let mut receiver = open(&pair.near, &Options { timestamps: Timestamps::HardwareIfThere, ..quick() });
    assert_eq!(receiver.clock(), Clock::Realtime);
    pair.far.sender().send(&datagram(1, false)).expect("it is up");
    let mut clocks = Vec::new();
    let take = &mut |batch: driver::Batch<'_>| clocks.extend(batch.frames.iter().map(|frame| frame.clock));
    receiver.receive(Duration::from_secs(20), take).expect("it is there");
    assert_eq!(clocks, [Clock::Realtime]);
}

/// A TCP segment with `bytes` bytes of payload, its checksum not filled in.
fn tcp(bytes: usize) -> Vec<u8> {
    let mut frame = datagram(1, false);
    frame.truncate(34);
    let length = (40 + bytes) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[23] = 6;
    frame.extend_from_slice(&[0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x10, 0, 100, 0, 0, 0, 0]);
    frame.resize(54 + bytes, 7);
    frame
}

/// Sends one frame of several segments, as a host's TCP does.
fn send_super_frame(end: &End, frame: &[u8], segment_bytes: u16) {
    let open = || {
        let socket = PacketSocket::new(end.index)?;
        socket.bind_to_send()?;
        Ok::<_, Error>(socket)
    };
    let socket = end.namespace.enter(open).expect("it is there").expect("root may open packet sockets");
    let (one, bytes) = (1_i32, size_of::<i32>() as u32);
    // SAFETY: an option of four bytes.
    let set = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, std::ptr::from_ref(&one).cast(), bytes)
    };
    assert_eq!(set, 0);
    // struct virtio_net_hdr: needs a checksum; TCP over IPv4; bytes of headers, of a segment; checksum from 34 at 16.
    let mut whole = vec![1, 1, 54, 0];
    whole.extend_from_slice(&segment_bytes.to_le_bytes());
    whole.extend_from_slice(&[34, 0, 16, 0]);
    whole.extend_from_slice(frame);
    socket.send(&whole).expect("it is up");
}

#[test]
fn super_frames_are_known_for_what_they_are() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let offloads = driver::ethtool::Offloads {
        tso: true,
        scatter_gather: true,
        transmit_checksum: true,
        ..driver::ethtool::Offloads::NONE
    };
    pair.far.set_offloads(offloads);
    for (segment_sizes, at_once) in [(false, false), (true, false), (true, true)] {
        let mut receiver = open(&pair.near, &Options { segment_sizes, at_once, ..quick() });
        let big = tcp(60_000);
        send_super_frame(&pair.far, &big, 1000);
        pair.far.sender().send(&datagram(1, false)).expect("it is up");
        let (mut seen, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while seen.len() < 2 && Instant::now() < end {
            let take = &mut |batch: driver::Batch<'_>| {
                seen.extend(batch.frames.iter().map(|frame| {
                    let flags = [SlotFlags::SUPER_FRAME, SlotFlags::CHECKSUM_OPEN].map(|flag| frame.flags.has(flag));
                    let known = (frame.segment_bytes, frame.segment_protocol, frame.open_checksum);
                    (frame.parts().concat(), frame.wire as usize, flags, known)
                }));
            };
            receiver.receive(Duration::from_secs(1), take).expect("it is there");
        }
        let known = if segment_sizes { (1000, 6, Some(OpenChecksum { start: 34, field: 50 })) } else { (0, 0, None) };
        let length = big.len();
        assert!(seen[0] == (big, length, [true, true], known), "{at_once} {:?}", (seen[0].1, seen[0].2, seen[0].3));
        assert_eq!(seen[1], (datagram(1, false), 60, [false, false], (0, 0, None)));
    }
}

#[test]
fn flows_have_a_hash_where_one_is_wanted() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    for flow_hash in [false, true] {
        let mut receiver = open(&pair.near, &Options { flow_hash, ..quick() });
        let mut sender = pair.far.sender();
        for frame in [datagram(1, false), datagram(1, true), datagram(2, false)] {
            sender.send(&frame).expect("it is up");
        }
        let (mut hashes, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while hashes.len() < 3 && Instant::now() < end {
            let take = &mut |batch: driver::Batch<'_>| hashes.extend(batch.frames.iter().map(|frame| frame.hash));
            receiver.receive(Duration::from_secs(1), take).expect("it is there");
        }
        if flow_hash {
            assert_eq!(hashes[0], hashes[1], "the same both ways");
            assert!(hashes[0] != hashes[2] && hashes[0] != 0);
        } else {
            assert_eq!(hashes, [0, 0, 0]);
        }
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let check = |name: &str, options: &Options, expected: &str| {
        let error = Receiver::open(&pair.near.namespace, name, options).expect_err("it cannot be");
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check("no-such", &quick(), "there is no device `no-such`");
    check("near", &Options { block_count: 1, ..quick() }, "a ring of 1 blocks");
    check("near", &Options { filter: Vec::new(), ..quick() }, "a filter of 0 instructions");
    let endless = driver::Instruction { code: 0x05, jump_true: 0, jump_false: 0, k: u32::MAX };
    check("near", &Options { filter: vec![endless], ..quick() }, "cannot attach a filter for `near`");
    // The name will be another device's.
    let near = pair.near.clone();
    near.set_up(false);
    near.change(&Change { name: Some("other".into()), ..Change::default() });
    check("near", &quick(), "there is no device `near`");
    let links = near.namespace.enter(|| Netlink::route(0)?.links()).expect("it is there").expect("anybody may list");
    assert!(links.iter().any(|link| link.name == "other"));
}
