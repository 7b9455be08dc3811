//! Both halves of a flow channel against each other, and the driver's half against nonsense.

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
        assert_eq!(taken(&mut application, 10), [(u64::from(round), [&[round; 10][..], &[7; 3]].concat())]);
    }
}

#[test]
fn a_full_channel_says_so_and_a_slow_application_loses_counted_packets() {
    let (mut driver, mut application) = pair(small());
    for _ in 0..4 {
        application.send(&[&[1; 100]]).unwrap();
    }
    assert!(!application.has_room(1));
    assert_eq!(application.send(&[&[1; 100]]), Err(Full));
    assert_eq!(driver.waiting(), 4);
    let (mut long, mut application) = pair(small());
    application.send(&[&[1; 4000]]).unwrap();
    assert!(application.has_room(96) && !application.has_room(97));
    assert_eq!(application.send(&[&[1; 100]]), Err(Full));
    // A question for room makes the application look at the driver's progress, and so does the next packet.
    long.take().unwrap().unwrap();
    long.done(1);
    assert!(application.has_room(4096) && !application.has_room(4097));
    application.send(&[&[1; 4096]]).unwrap();
    assert!(!application.has_room(1));
    for _ in 0..4 {
        assert_eq!(driver.deliver(&[&[1]], 0).unwrap(), Delivered::Yes);
    }
    assert_eq!(driver.deliver(&[&[1]], 0).unwrap(), Delivered::Dropped(Drop::NoBuffer));
    assert_eq!(driver.deliver(&[&[1; 4 * 64 + 1]], 0).unwrap(), Delivered::Dropped(Drop::TooLong));
    assert_eq!((driver.dropped(Drop::NoBuffer), driver.delivered()), (1, 4));
}

fn taken(application: &mut Application, most: usize) -> Vec<(u64, Vec<u8>)> {
    let mut got = vec![];
    let take = &mut |packet: &Received<'_>| {
        let mut bytes = vec![0; packet.len() + 1];
        assert_eq!(packet.copy_to(&mut bytes), packet.len());
        bytes.truncate(packet.len());
        got.push((packet.time, bytes));
    };
    application.receive(most, take);
    got
}

/// Packets of every length up to all buffers, cut in several ways, one or two at a time.
#[test]
fn a_long_packet_lies_in_several_buffers() {
    let (mut driver, mut application) = pair(small());
    let bytes: Vec<u8> = (0..=255).collect();
    for len in 0..=256 {
        let (first, second) = bytes[..len].split_at(len * 2 / 3);
        let pieces: &[&[u8]] = if len % 2 == 0 { &[first, &[], second] } else { &[&bytes[..len]] };
        assert_eq!(driver.deliver(pieces, len as u64).unwrap(), Delivered::Yes);
        let mut expected = vec![(len as u64, bytes[..len].to_vec())];
        if len <= 192 {
            assert_eq!(driver.deliver(&[&[9; 64]], 7).unwrap(), Delivered::Yes);
            expected.push((7, vec![9; 64]));
        }
        assert!(application.has_received());
        assert_eq!(taken(&mut application, 1), expected[..1]);
        assert_eq!(taken(&mut application, 9), expected[1..]);
        assert!(!application.has_received());
    }
    assert_eq!(driver.delivered(), 257 + 193);
    // A prefix is copied across the pieces.
    driver.deliver(&[&bytes], 0).unwrap();
    application.receive(1, &mut |packet| {
        let mut to = [0; 100];
        assert_eq!((packet.copy_to(&mut to), &to[..]), (100, &bytes[..100]));
    });
}

#[test]
fn a_long_packet_that_finds_too_few_buffers_takes_none() {
    let (mut driver, mut application) = pair(small());
    for _ in 0..2 {
        assert_eq!(driver.deliver(&[&[1; 64]], 0).unwrap(), Delivered::Yes);
    }
    assert_eq!(driver.deliver(&[&[2; 129]], 0).unwrap(), Delivered::Dropped(Drop::NoBuffer));
    assert_eq!(driver.deliver(&[&[3; 128]], 0).unwrap(), Delivered::Yes);
    assert_eq!(driver.deliver(&[&[4]], 0).unwrap(), Delivered::Dropped(Drop::NoBuffer));
    assert_eq!(taken(&mut application, 9), [(0, vec![1; 64]), (0, vec![1; 64]), (0, vec![3; 128])]);
    assert_eq!(driver.deliver(&[&[5; 256]], 0).unwrap(), Delivered::Yes);
    assert_eq!(taken(&mut application, 9), [(0, vec![5; 256])]);
}

/// A driver that writes nonsense ends the application's call: no packet of invalid parts, and no endless one.
#[test]
fn an_application_reads_no_further_than_its_buffers() {
    use crate::shared::segment::{Access, Pages, Segment};
    use crate::shared::words::{Shared, SharedArray};
    use base::atomic::Ordering;
    use layout::{CONTINUES, DriverWords, Packet};
    let geometry = small();
    let hostile = |received: u64, places: [u64; 4]| {
        let (ours_bytes, theirs_bytes) = geometry.bytes();
        let ours = Segment::create("test-out", ours_bytes, Pages::Normal).unwrap();
        ours.seal_for_writer().unwrap();
        let theirs = Segment::create("test-in", theirs_bytes, Pages::Normal).unwrap();
        let front = theirs.map(0, geometry.receive_data(), Access::Write).unwrap();
        theirs.seal_for_readers().unwrap();
        let words: Shared<DriverWords> = Shared::in_mapping(&front, 0).unwrap();
        let packets: SharedArray<Packet> = SharedArray::in_mapping(&front, Geometry::packets(), 4).unwrap();
        let fds = [ours.fd().try_clone_to_owned().unwrap(), theirs.read_only_fd().unwrap()];
        let mut application = Application::attach(geometry, fds).unwrap();
        words.received.store(received, Ordering::Relaxed);
        places.iter().zip(0..).for_each(|(place, at)| packets.at(at).place.store(*place, Ordering::Relaxed));
        taken(&mut application, 100).into_iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>()
    };
    let part = |buffer: u64, len: u64| buffer | len << 32 | CONTINUES;
    assert_eq!(hostile(4, [part(0, 64), part(1, 64), part(2, 64), 3 | 9 << 32]), [201]);
    for received in [4, 5, u64::MAX] {
        assert_eq!(hostile(received, [part(0, 64), part(0, 64), part(0, 64), part(0, 64)]), [0; 0]);
        assert_eq!(hostile(received, [1 << 32, part(0, 1), part(4, 1), 0]), [1]);
        assert_eq!(hostile(received, [part(0, 65), 0, 0, 0]), [0; 0]);
        assert_eq!(hostile(received, [u64::MAX; 4]), [0; 0]);
    }
    assert_eq!(hostile(1, [part(0, 64), 1, 2, 3]), [0; 0]);
}

#[test]
fn packets_that_came_before_the_application_are_there_and_their_buffers_are_used_again() {
    let (mut driver, segments) = Driver::create(small()).unwrap();
    let mut deliver = |byte: u8| driver.deliver(&[&[byte]], 0).unwrap();
    assert_eq!([1, 2, 3].map(&mut deliver), [Delivered::Yes; 3]);
    let mut application = Application::attach(small(), segments).unwrap();
    let mut seen = vec![];
    for round in 4..40 {
        application.receive(10, &mut |packet| {
            let mut byte = [0];
            packet.copy_to(&mut byte);
            seen.push(byte[0]);
        });
        assert_eq!(deliver(round), Delivered::Yes);
    }
    assert_eq!(seen, (1..39).collect::<Vec<_>>());
}

#[test]
fn states_and_errors_reach_the_application() {
    let (mut driver, application) = pair(small());
    assert_eq!((application.state(), application.errors()), (State::Open, (0, 0, 0)));
    driver.report(90, 1400);
    assert_eq!(application.errors(), (1, 90, 1400));
    driver.report(113, 0);
    driver.close(103);
    assert_eq!((application.state(), application.errors()), (State::Closed(103), (2, 113, 0)));
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
        (0..100_000).for_each(|_| driver.ring(0));
        done.send(()).unwrap();
    });
    waiting.recv_timeout(std::time::Duration::from_secs(20)).expect("the driver goes on");
}

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
        // The driver looks for returned buffers once it has used up its first ones.
        for _ in 0..geometry.receive_buffers {
            assert_eq!(driver.deliver(&[&[1]], 0), Ok(Delivered::Yes));
        }
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

fn kept(driver: &Driver) -> [std::os::fd::OwnedFd; 2] {
    driver.segments().each_ref().map(|segment| segment.try_clone().unwrap())
}

#[test]
fn a_driver_that_follows_another_goes_on_where_that_ended() {
    let (mut driver, mut application) = pair(small());
    let mut sent = 0u8;
    for round in 0..50 {
        // Of three packets sent, one is done, one is taken, and one waits.
        while application.send(&[&[sent; 20]]).is_ok() {
            sent += 1;
        }
        for _ in 0..2 {
            driver.take().unwrap().unwrap();
        }
        driver.done(1);
        let waiting = driver.waiting();
        // One buffer has a packet that the application did not take, and one was given back.
        assert_eq!(driver.deliver(&[&[round; 64], &[round]], 5).unwrap(), Delivered::Yes);
        assert_eq!(taken(&mut application, 1).len(), 1);
        assert_eq!(driver.deliver(&[&[round + 100]], 6).unwrap(), Delivered::Yes);
        driver.drop_one(Drop::Forged);

        let segments = kept(&driver);
        drop(driver);
        driver = Driver::restore(small(), segments).unwrap();
        assert_eq!(driver.dropped(Drop::Forged), u64::from(round) + 1);
        assert_eq!(driver.waiting(), waiting + 1);
        let mut frame = [0; 20];
        let last = driver.last_done().unwrap();
        assert_eq!(driver.copy_out(&last, 0, &mut frame), 20);
        let before = frame[0];
        let outgoing = driver.take().unwrap().unwrap();
        driver.copy_out(&outgoing, 0, &mut frame);
        assert_eq!(frame, [before + 1; 20]);
        while driver.take().unwrap().is_some() {}
        driver.done(4);
        assert_eq!(application.outstanding(), 0);
        assert_eq!(taken(&mut application, 9), [(6, vec![round + 100])]);
        // Every buffer is in use again, and each only once.
        for number in 0..4 {
            assert_eq!(driver.deliver(&[&[number; 64]], 7).unwrap(), Delivered::Yes, "round {round}");
        }
        assert_eq!(driver.deliver(&[&[9]], 7).unwrap(), Delivered::Dropped(Drop::NoBuffer));
        assert_eq!(taken(&mut application, 9), [0, 1, 2, 3].map(|number| (7, vec![number; 64])));
    }
}

#[test]
fn a_channel_without_a_driver_is_closed_for_its_application() {
    let (driver, application) = pair(small());
    let [theirs, ours] = kept(&driver);
    drop(driver);
    close_abandoned(ours, 100).unwrap();
    assert_eq!(application.state(), State::Closed(100));
    let page = std::fs::File::open("/dev/null").unwrap();
    assert!(close_abandoned(page.into(), 100).is_err());
    // Either segment in place of the other has the wrong size.
    let [_, ours] = kept(&Driver::create(small()).unwrap().0);
    let long = Geometry { send_bytes: 1 << 20, receive_buffers: 1024, ..small() };
    assert!(Driver::restore(long, [theirs, ours]).is_err());
}

/// An application has a read-only descriptor, and cannot open a writable one, not even by `/proc`. The size is fixed.
#[test]
fn an_application_does_not_write_the_drivers_segment() {
    let (driver, [theirs, ours]) = Driver::create(small()).unwrap();
    let path = |fd: &std::os::fd::OwnedFd| format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    let mode = |fd| rustix::fs::fstat(fd).unwrap().st_mode & 0o777;
    assert_eq!(mode(&ours), 0o600);
    assert!(rustix::fs::ftruncate(&theirs, 0).is_err() && rustix::fs::ftruncate(&driver.segments()[1], 0).is_err());
    // SAFETY: a fresh range, which is unmapped with the process.
    let mapped = unsafe {
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, rustix::mm::MapFlags::SHARED, &ours, 0)
    };
    assert_eq!(mapped.unwrap_err(), rustix::io::Errno::ACCESS);
    // As another user, on a separate thread, because Linux keeps users per thread.
    let [theirs, ours] = [path(&theirs), path(&ours)];
    let opened = std::thread::spawn(move || {
        let nobody = rustix::thread::Uid::from_raw(65_534);
        // SAFETY: changes this thread alone, which ends.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, nobody.as_raw(), nobody.as_raw(), nobody.as_raw()) };
        let open = |path: &str| std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop);
        (changed == 0).then(|| [open(&theirs), open(&ours)].map(|opened| opened.map_err(|error| error.kind())))
    });
    match opened.join().unwrap() {
        Some(opened) => assert_eq!(opened, [Ok(()), Err(std::io::ErrorKind::PermissionDenied)]),
        None => eprintln!("skipped (rights): this user may not become another"),
    }
}

#[test]
fn doorbells_go_on_with_another_driver_and_hang_up_with_the_application() {
    let (driver, handles) = Bells::create().unwrap();
    let application = Bells::attach(handles).unwrap();
    assert!(driver.fall_asleep());
    let kept = driver.handles().map(|handle| handle.try_clone().unwrap());
    drop(driver);
    // The driver has ended: the bell keeps the ring for its successor.
    application.ring(3);
    let driver = Bells::restore(kept).unwrap();
    let mut news = vec![];
    driver.news(|channel| news.push(channel));
    driver.awake();
    assert_eq!(news, [3]);
    assert!(application.fall_asleep());
    driver.ring(9);
    application.news(|channel| news.push(channel));
    assert_eq!(news, [3, 9]);
    let hung_up = |bells: &Bells| {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(bells.fd(), rustix::event::PollFlags::empty())];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    assert!(!hung_up(&driver));
    drop(application);
    assert!(hung_up(&driver));
}

#[test]
fn facts_are_told_as_they_are() {
    let (mut driver, application) = pair(small());
    assert_eq!(application.facts().0, 0);
    for (number, has_address, unfinished_checksums) in [(1, true, false), (2, false, true), (3, true, true)] {
        let facts = Facts {
            mac: [2, 0xff, 0, 1, 0x80, number as u8],
            prefix: 32,
            mtu: 65_535,
            has_address,
            unfinished_checksums,
        };
        driver.tell(&facts);
        assert_eq!(application.facts(), (number, facts));
    }
}
