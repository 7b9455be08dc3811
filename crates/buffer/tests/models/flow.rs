//! Flow channels and their doorbells under the model checker, as they ship.
//!
//! A sleep in a model has no time limit: a lost ring leaves both sides asleep, and the checker reports that.

use buffer::flow::{Application, Bells, Delivered, Driver, Drop, Facts, Geometry, State, model};
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A channel of one or two records, as many buffers, and eight bytes each.
fn channel(places: u32) -> (Driver, Application) {
    let bytes = 8 * places.max(2);
    model(Geometry { send_records: places, send_bytes: bytes, receive_buffers: places, buffer_bytes: 8 })
}

fn bytes(number: u64) -> [u8; 8] {
    (number * 0x0101_0101_0101_0101).to_ne_bytes()
}

/// Sleeps until the other side rings, like an interface's thread or an application's leader; `ready` is the last look.
fn sleep_unless(bells: &Bells, ready: impl Fn() -> bool) {
    if bells.fall_asleep() && !ready() {
        bells.sleep();
    }
    bells.awake();
    bells.news(|_| {});
}

/// Each packet is sent as it was written, in order, although its place is used again; every sleep ends.
fn packets_are_sent(places: u32, count: u64) {
    check(move || {
        let (mut driver, mut application) = channel(places);
        let (bells, theirs) = Bells::model();
        let sending = thread::spawn(move || {
            for number in 1..=count {
                while application.send(&[&bytes(number)]).is_err() {
                    sleep_unless(&theirs, || application.has_room(8));
                }
                theirs.ring(0);
            }
        });
        for number in 1..=count {
            let outgoing = loop {
                match driver.take().expect("the application keeps to the protocol") {
                    Some(outgoing) => break outgoing,
                    None => sleep_unless(&bells, || driver.waiting() > 0),
                }
            };
            let mut copy = [0; 8];
            assert_eq!((driver.copy_out(&outgoing, 0, &mut copy), copy), (8, bytes(number)));
            driver.done(1);
            bells.ring(0);
        }
        sending.join().unwrap();
    });
}

#[test]
fn one_place_is_sent_from_again_and_again() {
    packets_are_sent(1, 2);
}

#[test]
fn two_places_are_sent_from_again_and_again() {
    packets_are_sent(2, 3);
}

/// The application reads each packet that was not dropped, whole and in order. The driver never waits.
fn packets_are_received(places: u32, count: u64) {
    check(move || {
        let (mut driver, mut application) = channel(places);
        let (bells, theirs) = Bells::model();
        let receiving = thread::spawn(move || {
            let (mut got, mut last) = (0, 0);
            loop {
                // Read before the packets: packets from before the end are visible after it.
                let is_over = application.state() != State::Open;
                got += application.receive(64, &mut |packet| {
                    let mut copy = [0; 8];
                    assert_eq!(packet.copy_to(&mut copy), 8);
                    let number = packet.time;
                    assert!(number > last && copy == bytes(number), "packet {number} behind {last}: {copy:?}");
                    last = number;
                });
                if is_over {
                    return got as u64 + application.dropped(Drop::NoBuffer);
                }
                sleep_unless(&theirs, || application.has_received());
            }
        });
        for number in 1..=count {
            let delivered = driver.deliver(&[&bytes(number)], number).expect("the application keeps to the protocol");
            assert!(matches!(delivered, Delivered::Yes | Delivered::Dropped(Drop::NoBuffer)));
            bells.ring(0);
        }
        driver.close(0);
        bells.ring(0);
        assert_eq!(receiving.join().unwrap(), count);
    });
}

#[test]
fn one_buffer_is_filled_again_and_again() {
    packets_are_received(1, 2);
}

#[test]
fn two_buffers_are_filled_again_and_again() {
    packets_are_received(2, 3);
}

#[test]
fn a_long_packet_comes_whole() {
    check(|| {
        let (mut driver, mut application) = channel(2);
        let (bells, theirs) = Bells::model();
        let long = [bytes(1), bytes(2)].concat();
        let expected = long.clone();
        let receiving = thread::spawn(move || {
            loop {
                let mut copy = vec![0; 16];
                if application.receive(1, &mut |packet| assert_eq!(packet.copy_to(&mut copy), 16)) == 1 {
                    return assert_eq!(copy, expected);
                }
                sleep_unless(&theirs, || application.has_received());
            }
        });
        assert_eq!(driver.deliver(&[&long], 1), Ok(Delivered::Yes));
        bells.ring(0);
        receiving.join().unwrap();
    });
}

#[test]
fn an_error_comes_with_its_errno_and_an_end_with_all_counts() {
    check(|| {
        let (mut driver, application) = channel(1);
        let reading = thread::spawn(move || {
            let (count, errno, detail) = application.errors();
            assert!(count == 0 || (errno, detail) == (90, 1400), "{count} {errno} {detail}");
            if application.state() == State::Closed(5) {
                assert_eq!(application.dropped(Drop::Refused), 1);
            }
        });
        driver.report(90, 1400);
        driver.drop_one(Drop::Refused);
        driver.close(5);
        reading.join().unwrap();
    });
}

#[test]
fn facts_come_whole_and_before_the_packets_that_they_are_for() {
    let facts =
        Facts { mac: [2, 0, 0, 0, 0, 7], prefix: 24, mtu: 1400, has_address: true, unfinished_checksums: false };
    check(move || {
        let (mut driver, mut application) = channel(1);
        let reading = thread::spawn(move || {
            let there = application.receivable();
            let (count, told) = application.facts();
            assert!(count == 0 || told == facts, "{told:?}");
            application.receive(there, &mut |_| assert_eq!(count, 1));
        });
        driver.tell(&facts);
        driver.deliver(&[&bytes(1)], 1).expect("the application keeps to the protocol");
        reading.join().unwrap();
    });
}

#[test]
fn what_was_sent_before_the_end_is_sent() {
    check(|| {
        let (mut driver, mut application) = channel(1);
        let sending = thread::spawn(move || {
            application.send(&[&bytes(1)]).expect("room for one");
            application.close();
        });
        if driver.is_closed() {
            assert!(driver.take().expect("the application keeps to the protocol").is_some());
        }
        sending.join().unwrap();
    });
}
