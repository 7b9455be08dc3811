//! Both halves of a flow channel against each other, and the driver's against nonsense.

use super::*;

fn pair(geometry: Geometry) -> (Driver, Application) {
    let (driver, fds) = Driver::create(geometry).unwrap();
    (driver, Application::attach(geometry, fds).unwrap())
}

fn small() -> Geometry {
    Geometry { send_records: 4, send_bytes: 4096, receive_buffers: 4, buffer_bytes: 64 }
}

#[test]
fn packets_travel_both_ways_and_places_are_used_again() {
    let (mut driver, mut application) = pair(small());
    for round in 0u8..100 {
        application.send(&[&[round; 14], &[round + 1; 1000]]).unwrap();
        let outgoing = driver.take().unwrap().unwrap();
        let mut frame = [0; 2000];
        assert_eq!(driver.copy_out(&outgoing, 0, &mut frame), 1014);
        assert!(frame[..14] == [round; 14] && frame[14..1014] == [round + 1; 1000]);
        assert_eq!(driver.copy_out(&outgoing, 13, &mut frame[..2]), 2);
        assert_eq!(frame[..2], [round, round + 1]);
        assert!(driver.take().unwrap().is_none());
        assert_eq!(application.outstanding(), 1);
        driver.done(1);
        assert_eq!(application.outstanding(), 0);

        assert_eq!(driver.deliver(&[&[round; 10], &[7; 3]], u64::from(round)).unwrap(), Delivered::Yes);
        let mut got = vec![];
        let take = &mut |packet: &Received<'_>| {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(&mut bytes);
            got.push((packet.time, bytes));
        };
        assert_eq!(application.receive(10, take), 1);
        assert_eq!(got, [(u64::from(round), [&[round; 10][..], &[7; 3]].concat())]);
    }
}

#[test]
fn a_full_channel_says_so_and_a_slow_application_loses_counted_packets() {
    let (mut driver, mut application) = pair(small());
    for _ in 0..4 {
        application.send(&[&[1; 100]]).unwrap();
    }
    assert_eq!(application.send(&[&[1; 100]]), Err(Full));
    assert_eq!(driver.waiting(), 4);
    let (_, mut application) = pair(small());
    application.send(&[&[1; 4000]]).unwrap();
    assert_eq!(application.send(&[&[1; 100]]), Err(Full));
    for _ in 0..4 {
        assert_eq!(driver.deliver(&[&[1]], 0).unwrap(), Delivered::Yes);
    }
    assert_eq!(driver.deliver(&[&[1]], 0).unwrap(), Delivered::Dropped(Drop::NoBuffer));
    assert_eq!(driver.deliver(&[&[1; 65]], 0).unwrap(), Delivered::Dropped(Drop::TooLong));
    assert_eq!((driver.dropped(Drop::NoBuffer), driver.delivered()), (1, 4));
}

#[test]
fn states_and_errors_reach_the_application() {
    let (mut driver, application) = pair(small());
    assert_eq!((application.state(), application.errors()), (State::Open, (0, 0)));
    driver.report(113);
    driver.close(103);
    assert_eq!((application.state(), application.errors()), (State::Closed(103), (1, 113)));
}

#[test]
fn a_side_that_sleeps_is_woken_and_one_that_has_news_does_not_sleep() {
    let (driver, handles) = Bells::create().unwrap();
    let application = Bells::attach(handles).unwrap();
    let readable = |bells: &Bells| {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(bells.fd(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    application.ring(70);
    assert!(!readable(&driver) && !driver.fall_asleep());
    let mut news = vec![];
    driver.news(|channel| news.push(channel));
    assert_eq!(news, [70]);
    assert!(driver.fall_asleep());
    application.ring(1023);
    application.ring(5000);
    assert!(readable(&driver));
    driver.awake();
    assert!(!readable(&driver));
    driver.news(|channel| news.push(channel));
    assert_eq!(news, [70, 1023]);
    assert!(application.fall_asleep());
    driver.ring(0);
    assert!(readable(&application));
}

/// Its ends of the pipes are the application's to change; the driver's ends stay as they are.
#[test]
fn an_application_cannot_make_the_driver_block_in_the_doorbell() {
    let (driver, handles) = Bells::create().unwrap();
    for end in &handles[1..] {
        rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::empty()).unwrap();
    }
    let application = Bells::attach(handles).unwrap();
    assert!(application.fall_asleep());
    let (done, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        driver.awake();
        // More than a pipe holds.
        (0..100_000).for_each(|_| driver.ring(0));
        done.send(()).unwrap();
    });
    waiting.recv_timeout(std::time::Duration::from_secs(20)).expect("the driver goes on");
}

/// An application that writes anything into its half gets faults, and the driver goes on.
#[test]
fn nonsense_is_a_fault() {
    use crate::shared::segment::{Access, Segment};
    use crate::shared::words::Shared;
    use base::atomic::Ordering;
    use layout::{ApplicationWords, Record};
    let geometry = small();
    let hostile = |spoil: &dyn Fn(&ApplicationWords, &Record)| {
        let (mut driver, [ours, _]) = Driver::create(geometry).unwrap();
        let segment = Segment::receive(ours, geometry.bytes().0, Access::Write).unwrap();
        let front = segment.map(0, geometry.send_data(), Access::Write).unwrap();
        let words: Shared<ApplicationWords> = Shared::in_mapping(&front, 0).unwrap();
        let record: Shared<Record> = Shared::in_mapping(&front, Geometry::records()).unwrap();
        spoil(&words, &record);
        (driver.take().map(|taken| taken.map(|outgoing| outgoing.len())), driver.deliver(&[&[1]], 0))
    };
    for index in [5, u64::MAX, 1 << 63] {
        assert_eq!(hostile(&|words, _| words.sent.store(index, Ordering::Relaxed)).0, Err(Fault::Index));
        assert_eq!(hostile(&|words, _| words.empties.store(index, Ordering::Relaxed)).1, Err(Fault::Index));
    }
    for (count, piece) in [(0, 0), (4, 0), (u64::MAX, 0), (1, 4096), (1, 5000 << 32), (2, u64::MAX)] {
        let taken = hostile(&|words, record| {
            record.count.store(count, Ordering::Relaxed);
            record.pieces.iter().for_each(|word| word.store(piece, Ordering::Relaxed));
            words.sent.store(1, Ordering::Relaxed);
        });
        assert_eq!(taken.0, Err(Fault::Record), "{count} pieces, {piece:x}");
    }
    // The same buffer twice: all numbers in the FIFO are 0.
    assert_eq!(hostile(&|words, _| words.empties.store(2, Ordering::Relaxed)).1, Err(Fault::Buffer));
}
