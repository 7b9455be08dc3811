//! Abilities of devices that this program makes beyond the common contract: layers, queues, persistence.

use driver::change::Change;
use driver::tuntap::{Layer, Options, TunTap};
use driver::{Error, Receive, Transmit, Turn, device};
use std::time::{Duration, Instant};
use testkit::network::{End, may_make_networks, quiet_namespace};

fn bring_up(namespace: &driver::namespace::Namespace, name: &str) -> End {
    let end = End::find(namespace, name).expect("it was just made");
    end.change(&Change { arp: Some(false), ..Change::default() });
    end.set_up(true);
    end
}

fn packet(flow: u8) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    packet[3] = 40;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 0, 0, flow, 10, 0, 1, 1]);
    packet[20..24].copy_from_slice(&[100, flow, 0, 53]);
    packet[25] = 20;
    packet
}

#[test]
fn a_tun_carries_packets() {
    if !may_make_networks() {
        return;
    }
    let namespace = quiet_namespace();
    let options = Options { name: "here%d".into(), layer: Layer::Tun, ..Options::default() };
    let mut tun = TunTap::open(&namespace, &options).expect("root may make devices");
    assert_eq!((tun.device.name.as_str(), tun.device.link_type()), ("here0", Some(101)));
    let host = bring_up(&namespace, "here0");
    let (receiver, sender) = &mut tun.queues[0];
    host.sender().send(&packet(3)).expect("it is up");
    let mut seen = Vec::new();
    let take = &mut |batch: driver::Batch<'_>| seen.extend(batch.frames.iter().map(|frame| frame.parts().concat()));
    assert_eq!(receiver.receive(Duration::from_secs(20), take).expect("it is up"), Turn::Frames(1));
    assert_eq!(seen, [packet(3)]);
    // Bytes that are neither IPv4 nor IPv6 are no packet.
    assert_eq!(sender.transmit(&[&packet(1), &[0x75; 40], &[], &packet(2)]).expect("it is up"), Turn::Frames(4));
    let counted = sender.statistics().expect("it is there");
    assert_eq!((counted.taken, counted.sent, counted.malformed), (4, 2, 2));
    assert_eq!(host.link().counters.get("rx_packets"), Some(2));
}

#[test]
fn queues_share_frames_by_their_flow() {
    if !may_make_networks() {
        return;
    }
    let namespace = quiet_namespace();
    let options = Options { name: "many".into(), layer: Layer::Tun, queues: 2, ..Options::default() };
    let mut tun = TunTap::open(&namespace, &options).expect("root may make devices");
    let host = bring_up(&namespace, "many");
    let mut sender = host.sender();
    (0..200).for_each(|flow| sender.send(&packet(flow)).expect("it is up"));
    let (mut counts, end) = ([0, 0], Instant::now() + Duration::from_secs(20));
    while counts.iter().sum::<usize>() < 200 {
        assert!(Instant::now() < end, "{counts:?} came");
        for (count, (receiver, _)) in counts.iter_mut().zip(&mut tun.queues) {
            receiver.receive(Duration::from_millis(1), &mut |batch| *count += batch.frames.len()).expect("it is up");
        }
    }
    assert!(counts.iter().all(|&count| count > 20), "both have some: {counts:?}");
    for (_, sender) in &mut tun.queues {
        assert_eq!(sender.transmit(&[&packet(1)]).expect("it is up"), Turn::Frames(1));
    }
}

#[test]
fn a_device_stays_only_if_it_is_asked_to() {
    if !may_make_networks() {
        return;
    }
    let namespace = quiet_namespace();
    for persistent in [false, true] {
        let options = Options { name: "own".into(), persistent, ..Options::default() };
        let first = TunTap::open(&namespace, &options).expect("root may make devices");
        drop(first);
        assert_eq!(device::find(&namespace, "own").is_ok(), persistent);
    }
    // A later program attaches to it.
    let index = device::find(&namespace, "own").expect("it stayed").link.index;
    let again = TunTap::open(&namespace, &Options { name: "own".into(), ..Options::default() }).expect("it is free");
    assert_eq!(again.device.index, index);
    let error = TunTap::open(&namespace, &Options { name: "own".into(), ..Options::default() }).expect_err("it is not");
    assert!(matches!(error, Error::System { .. }) && error.to_string().starts_with("cannot make the device `own`"));
    let options = Options { name: "lo".into(), ..Options::default() };
    assert!(TunTap::open(&namespace, &options).is_err());
    assert!(TunTap::open(&namespace, &Options { queues: 0, ..Options::default() }).is_err());
}
