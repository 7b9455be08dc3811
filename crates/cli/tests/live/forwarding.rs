//! Frames from one device to another. The kernel forwards if it can run all filters in between, else the program does.
//! Every frame arrives once and in order, or is counted where it was lost.

use crate::net::*;
use driver::ethtool::Offloads;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::network::{End, Pair, may_make_networks, quiet_namespace};

const FRAMES: u64 = 3000;

struct Way {
    from: Pair,
    to: Pair,
}

impl Way {
    /// `gro`: the receiver uses NAPI, so that `out` takes redirected frames.
    fn new(gro: bool) -> Way {
        let here = quiet_namespace();
        let pair = |near: &str, far: &str| Pair::named([(&here, near), (&quiet_namespace(), far)], 1).unwrap();
        let way = Way { from: pair("in", "sender"), to: pair("out", "receiver") };
        way.to.far.set_offloads(Offloads { gro, ..Offloads::NONE });
        way
    }

    fn explained(&self, request: &str) -> String {
        let output = command(&self.from.near, "explain", request).end();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts a request that forwards, and returns once frames come through.
    fn begin(&self, request: &str) -> Running {
        let running = command(&self.from.near, "run", request);
        let (mut sender, before) = (self.from.far.sender(), received(&self.to.far));
        // Three test frames may have come before.
        until(&format!("{request}: frames come through"), || {
            sender.send(&probe()).unwrap();
            received(&self.to.far) > before + 3
        });
        let mut last = 0;
        until("the last of them arrives", || {
            std::thread::sleep(Duration::from_millis(30));
            std::mem::replace(&mut last, received(&self.to.far)) == received(&self.to.far)
        });
        running
    }

    /// Forwards by this request, and sends numbered frames. Returns the output of the receiver's `sequence` and the
    /// counts of the forwarding request.
    fn pass(&self, request: &str, generate: &str) -> (Value, Value) {
        let running = self.begin(request);
        // The probes on the output device have no numbers, and must not mix with the frames.
        let receive = format!("af_packet receiver direction=in | sequence count={FRAMES}");
        let receiving = command(&self.to.far, "run", &receive);
        until("somebody receives", || self.to.far.link().is_promiscuous());
        let before = received(&self.to.far);
        succeeded(&command(&self.from.far, "run", &format!("generate {generate} | send sender")).end());
        // Lost frames do not come. A slow program gets ten seconds for frames in flight.
        let began = Instant::now();
        while received(&self.to.far) < before + FRAMES && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        let received = receiving.interrupt();
        let (said, error) = (String::from_utf8_lossy(&received.stdout), String::from_utf8_lossy(&received.stderr));
        let said = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{request}: {said} {error}"));
        (said, succeeded(&running.interrupt()))
    }
}

fn received(end: &End) -> u64 {
    end.link().counters.get("rx_packets").unwrap_or(0)
}

/// A frame without a number that only `udp port 53` matches.
fn probe() -> Vec<u8> {
    datagram(0, 53, 60)
}

fn command(end: &End, command: &str, request: &str) -> Running {
    let mut program = Command::new(PROGRAM);
    program.args([command, "--local"]);
    if command == "run" {
        program.args(["--stats", "json"]);
    }
    program.arg(request).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end.namespace.enter(move || Running::start(program)).unwrap()
}

fn filter<'a>(stats: &'a Value, label: &str) -> &'a Value {
    let filters = stats["filters"].as_array().unwrap_or_else(|| panic!("{stats:#}"));
    let is_it = |filter: &&Value| filter["filter"].as_str().is_some_and(|name| name.contains(label));
    filters.iter().find(is_it).unwrap_or_else(|| panic!("{label}: {stats:#}"))
}

#[test]
fn in_the_kernel_every_frame_arrives_and_is_counted() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    for request in ["ethernet in mode=consume everything=yes | send out", "af_xdp in | send out"] {
        let explained = way.explained(request);
        assert!(explained.lines().all(|line| line.contains("kernel")), "{explained}");
        let (said, stats) = way.pass(request, &format!("count={FRAMES} rate=100k"));
        assert_eq!((&said["frames"], &said["lost"]), (&FRAMES.into(), &0.into()), "{said}");
        let forwarded = filter(&stats, "send out");
        assert!(forwarded["blocks_in"].as_u64() > Some(FRAMES), "{stats:#}");
        assert_eq!(forwarded["blocks_in"], forwarded["events"]["sent"], "{stats:#}");
        assert_eq!(way.from.near.link().xdp, None, "nothing is left of it");
    }
}

#[test]
fn what_an_expression_does_not_want_stays_the_hosts() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    let request = "ethernet in mode=consume | bpf \"udp port 53\" | send out";
    let explained = way.explained(request);
    if explained.is_empty() {
        return eprintln!("skipped: no libpcap here");
    }
    assert!(explained.lines().all(|line| line.contains("kernel")), "{explained}");
    let running = way.begin(request);
    let host = command(&way.from.near, "run", "af_packet in direction=in | udp | head 5 | count");
    until("the host is looked at", || way.from.near.link().promiscuity > 1);
    let (mut sender, before) = (way.from.far.sender(), received(&way.to.far));
    for number in 0..12 {
        sender.send(&datagram(number, if number % 12 < 7 { 53 } else { 80 }, 100)).unwrap();
    }
    succeeded(&host.end());
    until("the others arrive", || received(&way.to.far) == before + 7);
    let stats = succeeded(&running.interrupt());
    let forwarded = filter(&stats, "send out");
    let number = |name: &str| forwarded[name].as_u64().unwrap();
    assert_eq!((number("blocks_rejected"), number("blocks_in") - number("blocks_taken")), (5, 5), "{stats:#}");
}

#[test]
fn where_the_kernel_cannot_the_program_does_and_explain_says_why() {
    if !may_make_networks() {
        return;
    }
    let why = "`out` takes no redirected frames while its other end does not work by NAPI: switch GRO on there";
    for (gro, request, why) in [
        (false, "ethernet in mode=consume everything=yes | send out", why),
        (true, "ethernet in mode=consume everything=yes | work 1us | send out", "lies below what comes before"),
        (true, "set wait=busy; af_xdp in | send out by=xdp", "by=xdp was asked for"),
        (true, "set wait=adaptive; af_xdp in | send out by=direct", "by=direct was asked for"),
    ] {
        let way = Way::new(gro);
        let explained = way.explained(request);
        let line = explained.lines().find(|line| line.contains("send out")).unwrap_or_else(|| panic!("{explained}"));
        assert!(line.contains("app") && (line.contains(why) || request.contains("work")), "{explained}");
        let (said, stats) = way.pass(request, &format!("count={FRAMES} rate=20k size=64..1500"));
        assert_eq!((&said["frames"], &said["lost"]), (&FRAMES.into(), &0.into()), "{request}: {said}");
        let sent = filter(&stats, "send out");
        assert_eq!(sent["events"]["sent"], sent["blocks_in"], "{request}: {stats:#}");
    }
}

#[test]
fn frames_that_others_want_as_well_do_not_go_past_them() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    let explained = way.explained("ethernet in mode=consume everything=yes | { send out + count }");
    let line = explained.lines().find(|line| line.contains("send out")).unwrap();
    assert!(line.contains("another branch wants the same frames"), "{explained}");
    for (request, why) in [
        ("ethernet in | send out", "frames are taken from the host by mode=consume alone"),
        (
            "ethernet in mode=consume everything=yes | sample 2 | send out",
            "between two devices it has no program for `sample`",
        ),
        ("ethernet in mode=consume everything=yes snaplen=100 | send out", "frames that are cut are not sent"),
        ("ethernet in mode=consume everything=yes | send in", "frames would go back where they came from"),
        ("ethernet in@0/2 mode=consume everything=yes | send out", "not a part"),
    ] {
        let explained = way.explained(request);
        assert!(explained.contains(why), "{request}: {explained}");
    }
}

#[test]
fn frames_that_the_devices_drop_are_counted() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    let running = way.begin("ethernet in mode=consume everything=yes | send out");
    way.to.near.set_up(false);
    let (mut sender, dropped) =
        (way.from.far.sender(), || way.from.near.link().counters.get("rx_dropped").unwrap_or(0));
    let before = dropped();
    (0..10).for_each(|_| sender.send(&probe()).unwrap());
    until("they are dropped", || dropped() == before + 10);
    let stats = succeeded(&running.interrupt());
    assert_eq!(filter(&stats, "send out")["dropped"]["dropped by one of the devices"], 10, "{stats:#}");
}

/// This driver says that it takes redirected frames, and drops them all. Test frames reveal that.
#[test]
fn a_way_out_that_swallows_frames_is_found_before_any_of_the_hosts_is_taken() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    way.to.far.set_up(false);
    let request = "ethernet in mode=consume everything=yes | send out";
    assert!(way.explained(request).lines().all(|line| line.contains("kernel")));
    let running = command(&way.from.near, "run", request);
    until("it begins", || way.from.near.link().xdp.is_some());
    let said = String::from_utf8_lossy(&running.interrupt().stderr).into_owned();
    let note = "note: frames to `send out` go through this process: `out` takes no redirected frames";
    assert!(said.contains(note), "{said}");
}

#[test]
fn a_device_that_goes_ends_it_with_an_error() {
    if !may_make_networks() {
        return;
    }
    let way = Way::new(true);
    let running = way.begin("ethernet in mode=consume everything=yes | send out");
    way.to.near.remove();
    let output = running.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: the device `out` was removed"), "{said}");
}

#[test]
fn sending_by_af_xdp_leaves_what_the_device_receives_to_the_host() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let sending = command(&pair.near, "run", "generate rate=1k | send near by=xdp");
    until("frames arrive", || received(&pair.far) > 0);
    let host = command(&pair.near, "run", "af_packet near direction=in | head 3 | count");
    until("the host is looked at", || pair.near.link().is_promiscuous());
    let mut sender = pair.far.sender();
    for number in 0..3 {
        sender.send(&datagram(number, 9, 60)).unwrap();
    }
    succeeded(&host.end());
    assert_eq!(pair.near.link().xdp, None);
    let stats = succeeded(&sending.interrupt());
    assert!(filter(&stats, "send near")["events"]["sent"].as_u64() > Some(0), "{stats:#}");
}
