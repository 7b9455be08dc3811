//! Readers, daemons and devices that vanish without notice.

use crate::bed::{Bed, Running, Traffic, Witnesses, frame, port, times, until};
use capture::CaptureErrorKind;
use capture::{By, CaptureReader, CaptureRequest};
use driver::change::Change;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};
use testkit::network::{Pair, quiet_namespace};
use testkit::packets::to_port;
use testkit::random::Random;

const READERS: [&str; 5] = [
    "ethernet D | drop",
    "ethernet D | bpf \"udp port 443\" | save /dev/null",
    "ethernet D direction=in | bpf \"tcp\" | count",
    "ethernet D promisc=no buffer=1M | bpf \"len > 100\" | drop",
    "ethernet D by=socket | count",
];

#[test]
fn readers_that_are_killed_leave_nothing_and_cost_nobody_a_packet() {
    let Some(bed) = Bed::new(None) else { return };
    let before = bed.held(0);
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    let (mut random, mut kills) = (Random(0x9e37_79b9_7f4a_7c15), times("STREAMLINE_KILLS", 30));
    let mut objects = bed.objects();
    while kills > 0 {
        let count = kills.min(3);
        let readers: Vec<Running> =
            (0..count).map(|at| bed.run(READERS[(at + random.below(5)) % READERS.len()])).collect();
        // Every other time during the start, else while they read.
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(30_000) as u64));
        } else {
            until("they read", || bed.readers() == Witnesses::COUNT + count);
            witnesses.traffic.more(random.below(2000) as u64);
            objects.extend(bed.objects());
        }
        for reader in &readers {
            reader.signal(Signal::KILL);
        }
        drop(readers);
        kills -= count;
    }
    until("their places are free", || bed.readers() == Witnesses::COUNT);
    bed.await_held(&alone);
    let sent = witnesses.end(&bed);
    assert!(sent > 1000);
    bed.await_held(&before);
    objects.extend(bed.objects());
    bed.await_nothing_left(&objects);
}

/// The counts of a request's first filter: seen on the device, came, delivered, lost.
fn books(output: &Output) -> [u64; 4] {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    books_of(&said)
}

/// The same counts from a run that may have failed and printed errors first.
fn books_of(said: &str) -> [u64; 4] {
    let report = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
    let report: Value = serde_json::from_str(report).unwrap_or_else(|_| panic!("{said}"));
    let node = &report["filters"][0];
    let lost = node["dropped"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    [&node["events"]["seen on the device"], &node["blocks_in"], &node["blocks_taken"]]
        .map(|number| number.as_u64().unwrap_or(0))
        .into_iter()
        .chain([lost])
        .collect::<Vec<_>>()
        .try_into()
        .expect("four")
}

#[test]
fn one_of_nine_that_is_stopped_loses_alone_and_knows_how_much() {
    let Some(bed) = Bed::new(None) else { return };
    let six = || -> Vec<Running> {
        let start = |at| {
            let reader = bed.run("ethernet D direction=in | bpf \"udp port 443\" | drop");
            until("it reads", || bed.readers() == Witnesses::COUNT + at);
            reader
        };
        (1..=6).map(start).collect()
    };
    let (witnesses, readers) = Witnesses::beside(&bed, six);
    readers[0].signal(Signal::STOP);
    // At least one turn of the ring; longer if the variable says so.
    let (stopped, seconds) = (Instant::now(), times("STREAMLINE_STOP", 0));
    witnesses.traffic.more(140_000);
    while stopped.elapsed() < Duration::from_secs(seconds as u64) {
        witnesses.traffic.more(1000);
    }
    readers[0].signal(Signal::CONT);
    let sent = witnesses.end(&bed);
    for (at, reader) in readers.into_iter().enumerate() {
        reader.signal(Signal::INT);
        let [seen, came, delivered, lost] = books(&reader.end());
        assert_eq!((seen, came), (sent, sent / 4), "reader {at}");
        assert_eq!(delivered + lost, came, "reader {at}");
        assert_eq!(lost > 0, at == 0, "reader {at} lost {lost}");
    }
}

#[test]
fn readers_that_come_and_go_leave_nothing() {
    let Some(bed) = Bed::new(None) else { return };
    let before = bed.held(0);
    let (cycles, mut random) = (times("STREAMLINE_CYCLES", 40), Random(0x9e37_79b9_7f4a_7c15));
    // As the only reader: each takes the device and gives it back.
    let mut objects = bed.objects();
    for cycle in 0..cycles / 2 {
        let client = bed.client();
        let asked = bed.capture_request();
        let by = [By::Kernel, By::PacketSocket][usize::from(cycle % 4 == 3)];
        let asked =
            CaptureRequest { by, promiscuous: cycle % 3 == 0, ring_bytes: 1 << (18 + random.below(6)), ..asked };
        let attachment = client.open(&asked).expect("there is room");
        if asked.promiscuous {
            assert!(bed.pair.near.link().is_promiscuous(), "cycle {cycle}");
        }
        objects.extend(bed.objects());
        match cycle % 3 {
            0 => drop(attachment),
            // The tuple drops in this order.
            1 => drop((client, attachment)),
            _ => drop(CaptureReader::new(attachment, None, None).expect("it can be mapped")),
        }
        if cycle % 8 == 0 {
            // Now and then everything must be gone first; else the next reader comes while this one goes.
            until("the ring goes with its reader", || bed.client().state().is_ok_and(|state| state.rings.is_empty()));
            bed.await_nothing_left(&objects);
            objects.clear();
        }
    }
    bed.await_held(&before);
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    let client = bed.client();
    let mut held = Vec::new();
    for cycle in 0..cycles / 2 {
        let program = if random.below(2) == 0 { to_port(port(random.below(4) as u64)) } else { Vec::new() };
        let asked = CaptureRequest { program, promiscuous: random.below(2) == 0, ..bed.capture_request() };
        let reader =
            CaptureReader::new(client.open(&asked).expect("there is room"), None, None).expect("it can be mapped");
        if random.below(2) == 0 {
            client.exchange(reader.id(), &to_port(port(random.below(4) as u64))).expect("it is a reader");
        }
        held.push(reader);
        if cycle % 16 == 15 {
            held.clear();
        } else if random.below(3) == 0 {
            held.swap_remove(random.below(held.len()));
        }
    }
    drop((held, client));
    until("they are gone", || bed.readers() == Witnesses::COUNT);
    until("nobody wants what is for others", || bed.pair.near.link().promiscuity == 0);
    bed.await_held(&alone);
    objects.extend(bed.objects());
    witnesses.end(&bed);
    bed.await_held(&before);
    bed.await_nothing_left(&objects);
}

#[test]
fn who_reads_from_a_daemon_that_dies_says_so_and_nothing_stays_attached() {
    let Some(mut bed) = Bed::new(None) else { return };
    for busy in [false, true] {
        let requests =
            ["ethernet D | count", "ethernet D | bpf \"udp port 443\" | drop", "ethernet D by=socket | count"];
        let mut objects = BTreeSet::new();
        let readers = requests.iter().enumerate().map(|(at, request)| {
            let reader = bed.run(request);
            until("it reads", || bed.readers() == at + 1);
            reader
        });
        let readers: Vec<Running> = readers.collect();
        objects.extend(bed.objects());
        let traffic = busy.then(|| {
            let traffic = Traffic::new(&bed, &[]);
            traffic.more(500);
            traffic
        });
        bed.daemon.signal(Signal::KILL);
        for (mut reader, request) in readers.into_iter().zip(requests) {
            until("it ends", || reader.has_ended());
            let output = reader.end();
            let said = String::from_utf8_lossy(&output.stderr);
            // The daemon may count a reader that does not know yet that it is one.
            let is_told = said.contains("has ended") || said.contains("the daemon has gone");
            assert!(output.status.code() == Some(1) && is_told, "{request}: {said}");
        }
        bed.await_nothing_left(&objects);
        if let Some(traffic) = traffic {
            traffic.end();
        }
        bed.restart();
        let witnesses = Witnesses::new(&bed);
        witnesses.traffic.more(500);
        witnesses.end(&bed);
    }
}

#[test]
fn who_reads_from_a_device_that_goes_says_so_and_others_read_on() {
    let Some(bed) = Bed::new(None) else { return };
    let before = bed.held(0);
    let near = bed.pair.near.namespace.clone();
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    for by in ["kernel", "socket"] {
        for busy in [false, true] {
            let other = Pair::named([(&near, "other"), (&quiet_namespace(), "end")], 1);
            let other = other.expect("there was a pair before");
            let mut reader = bed.run(&format!("ethernet other by={by} | count"));
            until("it reads", || bed.readers() == Witnesses::COUNT + 1);
            let mut objects = bed.objects();
            let mut sender = other.far.sender();
            let mut number = 0;
            if busy {
                while number < 300 {
                    sender.send(&frame(number)).expect("it is there");
                    number += 1;
                }
            }
            other.near.remove();
            until("it ends", || reader.has_ended());
            let output = reader.end();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && said.contains("has ended"), "{by}, busy {busy}: {said}");
            bed.await_held(&alone);
            let still = bed.objects();
            objects.retain(|object| !still.contains(object));
            bed.await_gone(&objects);
        }
    }
    witnesses.end(&bed);
    bed.await_held(&before);
}

#[test]
fn a_name_that_goes_to_another_device_takes_no_reader_along() {
    let Some(bed) = Bed::new(None) else { return };
    let near = bed.pair.near.namespace.clone();
    let pair = |name: &str| {
        let pair = Pair::named([(&near, name), (&quiet_namespace(), "end")], 1).expect("there was a pair before");
        pair.near.await_carrier();
        pair
    };
    let rename = |pair: &Pair, name: &str| {
        pair.near.set_up(false);
        pair.near.change(&Change { name: Some(name.into()), ..Change::default() });
        pair.near.set_up(true);
        pair.near.await_carrier();
    };
    let client = bed.client();
    let open = |name: &str| {
        let asked = CaptureRequest { device: name.into(), ..bed.capture_request() };
        CaptureReader::new(client.open(&asked).expect("it is there"), None, None).expect("it can be mapped")
    };
    // Removed and replaced by a device of the same name, before the daemon can notice.
    for _ in 0..5 {
        let first = pair("other");
        let early = open("other");
        first.near.remove();
        let second = pair("other");
        let late = open("other");
        assert_eq!((early.device().index, late.device().index), (first.near.index, second.near.index));
        second.far.sender().send(&frame(0)).expect("it is up");
        until("its packets come", || late.memory().seen().packets == 1);
        second.near.remove();
    }
    // Renamed: existing readers go on; a later request for the old name does not get this device.
    let first = pair("other");
    let early = open("other");
    rename(&first, "secret");
    let asked = CaptureRequest { device: "other".into(), ..bed.capture_request() };
    assert_eq!(client.open(&asked).expect_err("there is none").kind, CaptureErrorKind::Absent);
    let second = pair("other");
    let late = open("other");
    second.far.sender().send(&frame(0)).expect("it is up");
    until("its packets come", || late.memory().seen().packets == 1);
    first.far.sender().send(&frame(0)).expect("it is up");
    until("its packets come", || early.memory().seen().packets == 1);
    assert_eq!(late.memory().seen().packets, 1);
}

#[test]
fn nine_that_read_a_device_that_goes_down_and_changes_lose_nothing_and_hear_of_its_end() {
    let Some(bed) = Bed::new(None) else { return };
    let near = bed.pair.near.namespace.clone();
    for by in ["kernel", "socket"] {
        let other = Pair::named([(&near, "other"), (&quiet_namespace(), "end")], 1).expect("there was a pair before");
        let start = |at: usize| {
            let filter = ["count", "bpf \"udp port 443\" | count", "bpf \"tcp\" | count"][at % 3];
            let reader = bed.run(&format!("ethernet other direction=in by={by} | {filter}"));
            until("it reads", || bed.readers() == at + 1);
            reader
        };
        let readers: Vec<Running> = (0..9).map(start).collect();
        let mut objects = bed.objects();
        let mut sender = other.far.sender();
        let client = bed.client();
        let mut sent = 0;
        let mut send = || {
            for _ in 0..300 {
                sender.send(&frame(sent)).expect("it is up");
                sent += 1;
            }
            let seen = || client.state().expect("the daemon answers").rings.iter().map(|ring| ring.seen.0).max();
            until("all of them are seen", || seen() == Some(sent));
            sent
        };
        send();
        // Packets sent while the device is down are lost for every reader, so the test sends none.
        for end in [&other.near, &other.far, &other.near] {
            end.set_up(false);
            end.set_up(true);
            other.near.await_carrier();
            other.far.await_carrier();
            send();
        }
        for mtu in [1400, 900, 4000, 1500] {
            other.near.set_mtu(mtu);
            send();
        }
        let sent = send();
        assert_eq!(bed.readers(), 9);
        other.near.remove();
        for (at, mut reader) in readers.into_iter().enumerate() {
            until("it ends", || reader.has_ended());
            let output = reader.end();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && said.contains("has ended"), "{by}, reader {at}: {said}");
            let [seen, came, delivered, lost] = books_of(&said);
            let wanted = [sent, sent / 4, 0][at % 3];
            assert_eq!((seen, came, delivered, lost), (sent, wanted, wanted, 0), "{by}, reader {at}");
        }
        drop(client);
        until("the ring goes", || bed.readers() == 0);
        objects.extend(bed.objects());
        bed.await_nothing_left(&objects);
    }
}
