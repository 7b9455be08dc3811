//! One side of a flow channel dies at each store in turn. Another driver takes a dead driver's place: packets are
//! published whole and once, each buffer is in use again, and the rest of the work is done. The death of an application
//! is noticed, and leaves no part of a packet.

use crate::process::{Child, Scoreboard, Status, alone, die};
use base::atomic::kill_points;
use buffer::flow::{Application, Bells, Delivered, Driver, Drop, Facts, Geometry, Received, State, close_abandoned};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const SIZE: Geometry = Geometry { send_records: 8, send_bytes: 4096, receive_buffers: 8, buffer_bytes: 64 };

/// Lengths of the packets that the child delivers: in one buffer, in several, and one that waits for returned buffers.
const LENGTHS: [usize; 5] = [10, 130, 64, 100, 1];

/// Word of the scoreboard: packets that the child knows to be published.
const PUBLISHED: usize = 0;

/// Word of the scoreboard: the child knows that it closed its flow.
const CLOSED: usize = 1;

/// The channel for which the other side rings.
const CHANNEL: usize = 70;

fn packet(number: usize) -> Vec<u8> {
    (0..LENGTHS[number]).map(|at| (at * 7 + number * 31) as u8).collect()
}

fn drive(mut driver: Driver, bells: &Bells, board: Scoreboard) {
    look(bells);
    driver.take().unwrap().unwrap();
    driver.done(1);
    for number in 0..LENGTHS.len() {
        let bytes = packet(number);
        let (one, other) = bytes.split_at(bytes.len() / 2);
        assert_eq!(driver.deliver(&[one, other], number as u64), Ok(Delivered::Yes));
        board.set(PUBLISHED, number as u64 + 1);
        bells.ring(CHANNEL);
    }
    while driver.take().unwrap().is_some() {
        driver.done(1);
    }
    driver.drop_one(Drop::Overload);
    driver.report(libc::EHOSTUNREACH, 0);
    let facts =
        Facts { mac: [2, 0, 0, 0, 0, 1], prefix: 24, mtu: 1400, has_address: true, unfinished_checksums: false };
    driver.tell(&facts);
    driver.close(libc::ENETDOWN);
}

fn apply(mut application: Application, bells: &Bells, board: Scoreboard) {
    look(bells);
    for number in 0..LENGTHS.len() {
        let bytes = packet(number);
        let (one, other) = bytes.split_at(bytes.len() / 2);
        application.send(&[one, other]).unwrap();
        board.set(PUBLISHED, number as u64 + 1);
        bells.ring(CHANNEL);
    }
    assert_eq!(received(&mut application).len(), 4);
    application.close();
    board.set(CLOSED, 1);
}

fn look(bells: &Bells) {
    assert!(!bells.fall_asleep());
    bells.news(|channel| assert_eq!(channel, CHANNEL));
    assert!(bells.fall_asleep());
    bells.awake();
}

fn copies<const N: usize>(fds: [&Arc<OwnedFd>; N]) -> [OwnedFd; N] {
    fds.map(|fd| fd.try_clone().unwrap())
}

/// Whether the other side has closed its end of the pipe, and no ring is left to read.
fn hangs_up(bells: &Bells) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(bells.fd(), PollFlags::empty())];
    rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap();
    fds[0].revents().contains(PollFlags::HUP)
}

fn received(application: &mut Application) -> Vec<(u64, Vec<u8>)> {
    let mut all = vec![];
    let take = &mut |packet: &Received<'_>| {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes);
        all.push((packet.time, bytes));
    };
    application.receive(usize::MAX, take);
    all
}

/// Runs `body` in a child that dies at this store; says whether it died.
fn dies(at: u64, body: impl FnOnce()) -> bool {
    let mut child = Child::fork(|| {
        kill_points::arm(at, die);
        body();
    });
    let ended = child.wait();
    assert!([Status::Exited(0), Status::Killed(libc::SIGKILL)].contains(&ended), "{at}: {ended:?}");
    ended != Status::Exited(0)
}

/// A run in which the driver dies at this store; `false`: it survived.
fn driver_dies_at(at: u64) -> bool {
    let (mut driver, fds) = Driver::create(SIZE).unwrap();
    let mut application = Application::attach(SIZE, fds).unwrap();
    // Four buffers were used and given back: the child takes them back when it has used up the other four.
    for _ in 0..4 {
        assert_eq!(driver.deliver(&[&[1]], 0), Ok(Delivered::Yes));
    }
    assert_eq!(received(&mut application).len(), 4);
    for number in 0..5u8 {
        application.send(&[&[number; 30]]).unwrap();
    }
    let (bells, handles) = Bells::create().unwrap();
    let rings = Bells::attach(handles).unwrap();
    rings.ring(CHANNEL);
    assert!(rings.fall_asleep());
    let (segments, kept) = (copies(driver.segments().each_ref()), copies(bells.handles()));
    let board = Scoreboard::new();
    let died = dies(at, move || drive(driver, &bells, board));

    let (mut driver, bells) = (Driver::restore(SIZE, segments).unwrap(), Bells::restore(kept).unwrap());
    assert!(!hangs_up(&rings) && !hangs_up(&bells), "{at}");
    // Whether or not a ring was lost, each side can wake the other.
    rings.awake();
    for (one, other) in [(&rings, &bells), (&bells, &rings)] {
        one.ring(CHANNEL + 1);
        let mut heard = false;
        other.news(|channel| heard |= channel == CHANNEL + 1);
        assert!(heard && other.fall_asleep(), "{at}");
        one.ring(CHANNEL);
        let mut fds = [PollFd::from_borrowed_fd(other.fd(), PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1), "{at}");
    }
    let (errors, state, closed) = (application.errors(), application.state(), State::Closed(libc::ENETDOWN));
    assert!(errors == (1, libc::EHOSTUNREACH, 0) || died && errors.0 == 0, "{at}: {errors:?}");
    assert!(state == closed || died && state == State::Open, "{at}: {state:?}");
    assert!(application.dropped(Drop::Overload) <= 1, "{at}");
    let got = received(&mut application);
    let known = board.get(PUBLISHED) as usize;
    assert!(got.len() == known || died && got.len() == known + 1, "{at}: {} of {known}", got.len());
    for (number, (time, bytes)) in got.iter().enumerate() {
        assert_eq!((*time, bytes), (number as u64, &packet(number)), "{at}");
    }
    // Each packet that was not done is sent, in order; the dead driver's last one may be sent again.
    let mut next = 5 - driver.waiting() as u8;
    while let Some(outgoing) = driver.take().unwrap() {
        let mut frame = [0; 30];
        assert_eq!(driver.copy_out(&outgoing, 0, &mut frame), 30);
        assert_eq!(frame, [next; 30], "{at}");
        driver.done(1);
        next += 1;
    }
    assert_eq!((next, application.outstanding()), (5, 0), "{at}");
    // Two rounds: with the buffers that the driver has, and with those that come back.
    for _ in 0..2 {
        for number in 0..8u8 {
            assert_eq!(driver.deliver(&[&[number; 64]], 9), Ok(Delivered::Yes), "{at}: buffer {number}");
        }
        assert_eq!(driver.deliver(&[&[0]], 9), Ok(Delivered::Dropped(Drop::NoBuffer)), "{at}");
        assert_eq!(received(&mut application), (0..8).map(|number| (9, vec![number; 64])).collect::<Vec<_>>(), "{at}");
    }
    // No third driver takes over.
    let [_, ours] = copies(driver.segments().each_ref());
    drop(driver);
    close_abandoned(ours, libc::ENETDOWN).unwrap();
    assert_eq!(application.state(), closed, "{at}");
    died
}

/// A run in which the application dies at this store; `false`: it survived.
fn application_dies_at(at: u64) -> bool {
    let (mut driver, fds) = Driver::create(SIZE).unwrap();
    for _ in 0..4 {
        assert_eq!(driver.deliver(&[&[1]], 0), Ok(Delivered::Yes));
    }
    let (bells, handles) = Bells::create().unwrap();
    bells.ring(CHANNEL);
    let board = Scoreboard::new();
    let (application, rings) = (Application::attach(SIZE, fds).unwrap(), Bells::attach(handles).unwrap());
    let died = dies(at, move || apply(application, &rings, board));

    assert!(hangs_up(&bells), "{at}");
    let (known, mut sent) = (board.get(PUBLISHED) as usize, 0);
    while let Some(outgoing) = driver.take().unwrap() {
        let mut frame = vec![0; outgoing.len()];
        assert_eq!(driver.copy_out(&outgoing, 0, &mut frame), frame.len());
        assert_eq!(frame, packet(sent), "{at}");
        driver.done(1);
        sent += 1;
    }
    assert!(sent == known || died && sent == known + 1, "{at}: {sent} of {known}");
    assert!(driver.is_closed() || died && board.get(CLOSED) == 0, "{at}");
    // Four buffers were never given to the application, and up to four came back.
    let delivered = (0..9).filter(|_| driver.deliver(&[&[0]], 9) == Ok(Delivered::Yes)).count();
    assert!((4..=8).contains(&delivered) && (died || delivered == 8), "{at}: {delivered}");
    died
}

fn check(whose: &str, dies_at: fn(u64) -> bool, least: usize) {
    let _alone = alone();
    let points = (1..).take_while(|at| dies_at(*at)).count();
    eprintln!("{whose} died at {points} points");
    assert!(points >= least, "{points}");
}

#[test]
fn a_driver_may_die_at_each_store_and_another_goes_on() {
    check("a driver", driver_dies_at, 60);
}

#[test]
fn an_application_may_die_at_each_store() {
    check("an application", application_dies_at, 50);
}
