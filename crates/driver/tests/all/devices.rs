//! Lists of devices, and events when they change.

use driver::change::Change;
use driver::counters::Meaning;
use driver::device;
use driver::ethtool::Offloads;
use driver::link::Address;
use driver::watch::{Event, Watch, What};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testkit::network::{Pair, may_make_networks};

#[test]
fn a_device_is_described() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::with_queues(2);
    pair.near.set_mtu(9000);
    let devices = device::list(&pair.near.namespace).expect("root may list");
    assert_eq!(devices.iter().map(|device| device.link.name.as_str()).collect::<Vec<_>>(), ["lo", "near"]);
    let near = &devices[1];
    assert_eq!((near.driver.as_deref(), near.link.kind.as_deref()), (Some("veth"), Some("veth")));
    assert_eq!((near.link.mtu, near.link.link_type(), near.link.header_bytes()), (9000, Some(1), 14));
    assert_eq!((near.link.receive_queues, near.link.transmit_queues), (2, 2));
    assert_eq!(near.channels.map(|channels| channels.at_most[0]), Some(2));
    assert_eq!((near.link.address.0.len(), near.link.is_up(), near.link.is_running()), (6, true, true));
    assert_eq!((near.namespace, near.link.xdp), (pair.near.namespace.id(), None));
    assert_eq!(near.offloads, Offloads::NONE);
    assert_ne!(near.namespace, pair.far.namespace.id());

    let wanted = Offloads { tso: true, gro: true, scatter_gather: true, transmit_checksum: true, ..Offloads::NONE };
    pair.near.set_offloads(wanted);
    let near = device::find(&pair.near.namespace, "near").expect("it is still there");
    assert_eq!(near.offloads, wanted);
    let error = device::find(&pair.near.namespace, "far").expect_err("that one is elsewhere");
    assert_eq!(error.to_string(), "there is no device `far`");
}

/// Events up to `last`, without those about carriers: the kernel decides when a carrier settles.
fn events_until(watch: &mut Watch, last: &What) -> Vec<What> {
    let (mut seen, end) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    loop {
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{last:?} was not told, but {seen:?}");
        let Some(Event { what, .. }) = watch.next(left).expect("the kernel tells") else { continue };
        if !matches!(what, What::Running | What::Stopped) {
            seen.push(what);
        }
        if seen.last() == Some(last) {
            return seen;
        }
    }
}

#[test]
fn changes_are_told_in_order() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let mut watch = Watch::new(&pair.near.namespace).expect("root may watch");
    assert_eq!(watch.next(Duration::ZERO).expect("as above"), None);
    let near = &pair.near;

    let check = |watch: &mut Watch, change: Change, expected: &[What]| {
        near.change(&change);
        assert_eq!(events_until(watch, &expected[expected.len() - 1]), expected);
    };
    let change = Change::default;
    let (up, down) = (Change { up: Some(true), ..change() }, Change { up: Some(false), ..change() });
    check(&mut watch, Change { mtu: Some(1400), ..change() }, &[What::Mtu { from: 1500, to: 1400 }]);
    check(&mut watch, Change { promiscuous: Some(true), ..change() }, &[What::Promiscuous(true)]);
    check(&mut watch, Change { promiscuous: Some(false), ..change() }, &[What::Promiscuous(false)]);
    check(&mut watch, down, &[What::Down]);
    check(&mut watch, Change { name: Some("here".into()), ..change() }, &[What::Renamed { from: "near".into() }]);
    let address = Some(Address(vec![2, 0, 0, 0, 0, 7]));
    check(&mut watch, Change { address, ..change() }, &[What::Readdressed]);
    check(&mut watch, up, &[What::Up]);
    near.remove();
    assert_eq!(events_until(&mut watch, &What::Removed), [What::Down, What::Removed]);

    let again = Pair::between(&pair.near.namespace, &pair.far.namespace, 1).expect("the names are free again");
    let seen = events_until(&mut watch, &What::Up);
    assert_eq!(seen.first(), Some(&What::Added));
    assert_eq!(watch.links().filter(|link| link.index == again.near.index).count(), 1);
}

#[test]
fn a_watch_that_was_told_too_much_looks_again() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let mut watch = Watch::new(&pair.near.namespace).expect("root may watch");
    for round in 0..2000_u32 {
        pair.near.set_mtu(1000 + round % 2);
    }
    pair.near.set_mtu(1234);
    let end = Instant::now() + Duration::from_secs(10);
    let mut mtus = BTreeMap::new();
    while watch.links().any(|link| link.index == pair.near.index && link.mtu != 1234) {
        assert!(Instant::now() < end);
        while let Some(event) = watch.next(Duration::ZERO).expect("too much is no error") {
            if let What::Mtu { to, .. } = event.what {
                *mtus.entry(to).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(mtus.get(&1234), Some(&1));
    assert!(mtus.values().sum::<i32>() < 2000, "some were missed, or the test proves nothing");
}

#[test]
fn what_was_sent_shows_in_the_counters() {
    if !may_make_networks() {
        return;
    }
    let pair = Pair::new();
    let before = pair.far.link().counters;
    let mut sender = pair.near.sender();
    for len in 60..160 {
        sender.send(&vec![7; len]).expect("it is up");
    }
    assert_eq!((sender.frames, sender.bytes), (100, (60..160).sum()));
    // The kernel may deliver them in the background.
    let (mut counted, end) = (pair.far.link().counters.since(&before), Instant::now() + Duration::from_secs(20));
    while counted.get("rx_dropped") != Some(100) && Instant::now() < end {
        counted = pair.far.link().counters.since(&before);
    }
    assert_eq!([counted.get("rx_packets"), counted.get("rx_bytes")], [Some(100), Some(sender.bytes)]);
    assert!(counted.all().all(|counter| counter.meaning != Meaning::Lost || counter.value == 0), "{counted:?}");
    // No protocol of the host wanted them.
    assert_eq!(counted.get("rx_dropped"), Some(100));
}
