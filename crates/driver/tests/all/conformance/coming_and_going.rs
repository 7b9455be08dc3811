//! A receiver and a sender while their device is switched off, changed or removed.

use super::bed::{Ability, Bed, PATIENCE, Seen, Subject, Wanted, check, receive, receive_once, receive_rest};
use super::frames::numbered;
use driver::{Error, Receive, Turn};
use std::time::{Duration, Instant};
use testkit::network::End;

fn receive_until_down(receiver: &mut dyn Receive) -> Vec<Seen> {
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while receive_once(receiver, Duration::from_millis(50), &mut seen).expect("it is there") != Turn::Down {
        assert!(Instant::now() < end, "nothing is said of the device");
    }
    seen
}

fn receive_until_error(receiver: &mut dyn Receive) -> (Vec<Seen>, Error) {
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        assert!(Instant::now() < end, "nothing is said of the device");
        if let Err(error) = receive_once(receiver, Duration::from_millis(50), &mut seen) {
            return (seen, error);
        }
    }
}

fn device(bed: &Bed) -> End {
    bed.device.clone().expect("who can be switched off is a device of the kernel's")
}

fn five(first: u64) -> Vec<Vec<u8>> {
    (first..first + 5).map(|number| numbered(number, 100)).collect()
}

pub fn a_device_that_was_down_goes_on(subject: &Subject) {
    if !subject.can(Ability::Link) {
        return;
    }
    let mut bed = subject.open();
    let device = device(&bed);
    for round in 0..2 {
        let sent = five(10 * round);
        sent.iter().for_each(|frame| (bed.inject)(frame));
        bed.await_seen(5 * (round + 1));
        device.set_up(false);
        check(&receive_until_down(&mut *bed.receiver), &sent);
        assert_eq!(bed.sender.transmit(&[&numbered(1, 60)]).expect("it is there"), Turn::Down);
        device.set_up(true);
        device.await_carrier();
    }
    let sent = five(100);
    sent.iter().for_each(|frame| (bed.inject)(frame));
    check(&receive(&mut *bed.receiver, sent.len()), &sent);
    // A healthy device without frames gives no frame and no report.
    let mut none = Vec::new();
    let turn = receive_once(&mut *bed.receiver, Duration::from_millis(20), &mut none).expect("it is there");
    assert_eq!((turn, none.len()), (Turn::Nothing, 0));
    let counted = bed.receiver.statistics().expect("it is there");
    assert_eq!((counted.dropped, counted.damaged, counted.waiting()), (0, 0, 0));
    assert_eq!(bed.sender.transmit(&[&numbered(1, 60)]).expect("it is up"), Turn::Frames(1));
}

pub fn a_device_that_was_removed_ends(subject: &Subject) {
    if !subject.can(Ability::Link) {
        return;
    }
    for down_before in [false, true] {
        let mut bed = subject.open();
        let (device, mut sent) = (device(&bed), five(1));
        if !subject.has(Ability::LastFrames) {
            sent.clear();
        }
        sent.iter().for_each(|frame| (bed.inject)(frame));
        bed.await_seen(sent.len() as u64);
        if down_before {
            device.set_up(false);
            check(&receive_until_down(&mut *bed.receiver), &sent);
        }
        device.remove();
        let (seen, error) = receive_until_error(&mut *bed.receiver);
        check(&seen, if down_before { &[] } else { &sent });
        let Error::Removed(name) = &error else { panic!("{error}") };
        assert_eq!((name, error.to_string()), (&device.name, format!("the device `{name}` was removed")));
        // The device stays removed, and the statistics can still be read.
        assert!(matches!(receive_until_error(&mut *bed.receiver).1, Error::Removed(_)));
        assert!(matches!(bed.sender.transmit(&[&numbered(1, 60)]), Err(Error::Removed(_))));
        let counted = bed.receiver.statistics().expect("the receiver is there");
        assert_eq!((counted.seen, counted.given), (sent.len() as u64, sent.len() as u64));
        assert!(bed.receiver.counters().is_ok());
    }
}

pub fn a_device_may_be_down_at_first(subject: &Subject) {
    if !subject.can(Ability::Link) {
        return;
    }
    let mut bed = subject.open_with(Wanted { down: true, ..Wanted::default() });
    assert!(receive_until_down(&mut *bed.receiver).is_empty());
    let device = device(&bed);
    device.set_up(true);
    device.await_carrier();
    let sent = five(1);
    sent.iter().for_each(|frame| (bed.inject)(frame));
    check(&receive(&mut *bed.receiver, sent.len()), &sent);
}

pub fn another_mtu_is_no_interruption(subject: &Subject) {
    if !subject.can(Ability::Link) {
        return;
    }
    let mut bed = subject.open_with(Wanted { mtu: Some(3000), ..Wanted::default() });
    let device = device(&bed);
    let mut sent = Vec::new();
    for (number, mtu) in [3000, 1500, 3000, 2000].into_iter().enumerate() {
        device.set_mtu(mtu);
        let frame = numbered(number as u64, mtu as usize + 14);
        (bed.inject)(&frame);
        sent.push(frame);
    }
    check(&receive(&mut *bed.receiver, sent.len()), &sent);
    if !subject.has(Ability::Limits) {
        return;
    }
    // Frames to send must keep to the new limit.
    bed.sender.transmit(&[&numbered(1, 2014), &numbered(2, 2019)]).expect("it is up");
    let counted = bed.sender.statistics().expect("as above");
    assert_eq!((counted.sent, counted.too_long), (1, 1));
}

pub fn others_frames_come_as_long_as_they_are_wanted(subject: &Subject) {
    if !subject.can(Ability::Promiscuity) {
        return;
    }
    let bed = subject.open();
    let one = device(&bed);
    assert!(!one.link().is_promiscuous());
    let mut bed = subject.open_with(Wanted { promiscuous: true, ..Wanted::default() });
    let device = device(&bed);
    assert!(device.link().is_promiscuous());
    let mut frame = numbered(1, 60);
    frame[..6].copy_from_slice(&[2, 0x77, 0, 0, 0, 1]);
    (bed.inject)(&frame);
    check(&receive_rest(&mut bed, 1), &[frame]);
    drop(bed.receiver);
    device.await_state(|link| !link.is_promiscuous());
}
