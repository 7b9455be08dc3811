//! The TCP of two kernels across an emulated link: the bytes arrive, and every frame is accounted for.

use driver::change::Change;
use driver::tuntap::{Options, TunTap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::link::{Conditions, Counts, Link, Side};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};
use testkit::random::Random;

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the device a station of 10.0.0.0/24. `false`: `ip` is missing.
fn give_address(end: &End, last: u8) -> bool {
    let address = format!("10.0.0.{last}/24");
    let run = || Command::new("ip").args(["address", "add", &address, "dev", &end.name]).status();
    let done = end.namespace.enter(run).expect("its namespace is there").is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped (tools): there is no `ip`");
    }
    end.change(&Change { arp: Some(true), ..Change::default() });
    done
}

/// Half of the round trip.
const CONDITIONS: Conditions = Conditions {
    delay: Duration::from_millis(5),
    jitter: Duration::ZERO,
    lost: 10_000,
    doubled: 1_000,
    reordered: 1_000,
    reordered_by: Duration::from_millis(2),
    rate: None,
    queue_frames: 1_000,
    seed: 7,
};

/// Sends bytes from one station to the other, and fewer back. Gives the duration of the handshake.
fn transfer(from: &End, to: &End, bytes: &[u8]) -> Duration {
    let listener = to.namespace.enter(|| TcpListener::bind("10.0.0.2:4000")).expect("in it").expect("the port is free");
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection comes");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the other side finishes");
            stream.write_all(b"all of it").expect("the other side reads");
            received
        });
        let began = Instant::now();
        let connect = || TcpStream::connect("10.0.0.2:4000");
        let mut stream = from.namespace.enter(connect).expect("in it").expect("the other side listens");
        let handshake = began.elapsed();
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        stream.write_all(bytes).expect("the other side reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the other side answers");
        assert_eq!(answer, "all of it");
        assert!(receiving.join().expect("it receives") == bytes, "every byte, in order");
        handshake
    })
}

/// Frames that a station has sent and received, by its kernel's counters.
fn counted(end: &End) -> [u64; 2] {
    let counters = end.link().counters;
    ["tx_packets", "rx_packets"].map(|name| counters.get(name).expect("the kernel counts it"))
}

/// Waits until no frame is on its way, and compares all counts with those of the stations.
fn settle(link: Link, stations: [&End; 2], before: [[u64; 2]; 2]) -> [Counts; 2] {
    let end = Instant::now() + PATIENCE;
    let read = |link: &Link| (link.counts(), stations.map(counted));
    let mut last = read(&link);
    let (counts, seen) = loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = read(&link);
        if now == last && now.0.iter().all(|counts| counts.waiting == 0) {
            break now;
        }
        assert!(Instant::now() < end, "it does not settle: {now:?}");
        last = now;
    };
    // A tap device is removed with its link.
    assert_eq!(link.stop(), counts);
    for way in [0, 1] {
        let counts = counts[way];
        assert!(counts.add_up() && counts.missed == 0 && counts.refused == 0, "{counts:?}");
        assert_eq!(counts.taken, seen[way][0] - before[way][0], "sent by station {way}");
        assert_eq!(counts.sent, seen[1 - way][1] - before[1 - way][1], "received by station {}", 1 - way);
    }
    counts
}

fn bytes(count: usize) -> Vec<u8> {
    let mut random = Random(3);
    (0..count).map(|_| random.number() as u8).collect()
}

#[test]
fn two_kernels_talk_across_a_long_link_that_loses_frames() {
    if !may_make_networks() {
        return;
    }
    let pairs = [Pair::new(), Pair::new()];
    let [left, right] = pairs.each_ref().map(|pair| &pair.near);
    if !give_address(left, 1) || !give_address(right, 2) {
        return;
    }
    let before = [counted(left), counted(right)];
    let back = Conditions { seed: 8, ..CONDITIONS };
    let [there_side, back_side] = pairs.each_ref().map(|pair| Side::of_end(&pair.far));
    let link = Link::between(there_side, back_side, [CONDITIONS, back]);
    let handshake = transfer(left, right, &bytes(4 << 20));
    // One round trip for ARP, and one for TCP. A lost frame among these costs a second.
    assert!(handshake >= Duration::from_millis(20), "{handshake:?}");
    let [there, _] = settle(link, [left, right], before);
    assert!(there.lost > 5 && there.lost < there.taken / 20, "{there:?}");
}

#[test]
fn a_tap_device_is_an_end_of_a_link_and_a_rate_is_kept() {
    if !may_make_networks() {
        return;
    }
    let namespace = quiet_namespace();
    let tap = match TunTap::open(&namespace, &Options { name: "tap0".into(), ..Options::default() }) {
        Ok(tap) => tap,
        Err(error) => return eprintln!("skipped (kernel): {error}"),
    };
    let left = End::find(&namespace, "tap0").expect("it was made");
    left.change(&Change { up: Some(true), ..Change::default() });
    let pair = Pair::new();
    if !give_address(&left, 1) || !give_address(&pair.near, 2) {
        return;
    }
    let before = [counted(&left), counted(&pair.near)];
    // 40 Mbit/s: a mebibyte takes 0.21 s, and its headers take more.
    let there = Conditions { rate: Some(40_000_000), queue_frames: 50, ..Conditions::default() };
    let link = Link::between(Side::of_tap(tap), Side::of_end(&pair.far), [there, Conditions::default()]);
    let began = Instant::now();
    transfer(&left, &pair.near, &bytes(1 << 20));
    let took = began.elapsed();
    assert!((Duration::from_millis(215)..Duration::from_secs(20)).contains(&took), "{took:?}");
    settle(link, [&left, &pair.near], before);
}
