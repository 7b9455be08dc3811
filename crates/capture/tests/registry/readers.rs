//! The packets that readers get, and their books.

use crate::played::*;
use buffer::live::{Facts, SlotFlags};
use capture::reader::{Counted, Ledger, Rest};
use capture::{By, CaptureReader, CaptureRequest, Direction, Partition};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn each_gets_its_own_and_the_books_add_up() {
    let (player, registry) = player();
    let open = |asked: &CaptureRequest, partition| {
        CaptureReader::new(registry.open(asked, 0).unwrap(), None, partition).unwrap()
    };
    let mut all = open(&capture_request(), None);
    let mut ones = open(&CaptureRequest { program: first_byte(1), ..capture_request() }, None);
    let mut tenth = open(&CaptureRequest { sample: 10, ..capture_request() }, None);
    let mut out = open(&CaptureRequest { direction: Direction::Out, ..capture_request() }, None);
    let mut partitions = [0, 1].map(|number| open(&capture_request(), Some(Partition { number, of: 2 })));
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    assert!(player.halves.lock().unwrap().is_empty(), "one ring for all");
    publish(&mut half, 0..1000);
    assert_eq!(take(&mut all), (0..1000).collect::<Vec<_>>());
    assert_eq!(take(&mut ones), (0..1000).filter(|n| n % 4 == 1).collect::<Vec<_>>());
    assert_eq!(take(&mut tenth).len(), 100);
    assert_eq!(take(&mut out), (0..1000).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    let [mut first, second] = partitions.each_mut().map(take);
    assert!(first.len() > 300 && second.len() > 300);
    first.extend(second);
    first.sort_unstable();
    assert_eq!(first, (0..1000).collect::<Vec<_>>());
    let ledger = ones.ledger();
    assert_eq!((ledger.seen, ledger.matched, ledger.filtered, ledger.delivered), (1000, 250, 750, 250));
    assert_eq!((ledger.lost, ledger.waiting, ledger.others), (0, 0, 0));
    assert_eq!(partitions[0].ledger().others + partitions[0].ledger().delivered, 1000);
    assert_eq!(ones.counted(), Counted { packets: 250, wire_bytes: 15_000, kept_bytes: 0 });
}

#[test]
fn who_only_counts_is_written_nothing() {
    let (player, registry) = player();
    let open = |asked: &CaptureRequest| {
        CaptureReader::new(registry.open(asked, 0).unwrap(), None, None).unwrap().that_counts()
    };
    // The ring stays, and bits are used again: no count passes to the next reader.
    let _stays = open(&capture_request());
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    for round in 0..35 {
        let mut all = open(&CaptureRequest { counts: Some(0), ..capture_request() });
        let mut out =
            open(&CaptureRequest { counts: Some(20), direction: Direction::Out, sample: 5, ..capture_request() });
        publish(&mut half, 0..100);
        assert_eq!(all.counted(), Counted { packets: 100, wire_bytes: 6000, kept_bytes: 6000 });
        assert_eq!(out.counted(), Counted { packets: 10, wire_bytes: 600, kept_bytes: 200 });
        let ledger = Ledger { seen: 100, matched: 10, filtered: 90, delivered: 10, ..Ledger::default() };
        assert_eq!(out.ledger(), ledger);
        assert_eq!((take(&mut all), take(&mut out)), (vec![], vec![]));
        assert_eq!(all.memory().next(), 100 * (round + 1), "what the other wants is written");
    }
}

#[test]
fn one_in_so_many_stays_so_when_others_come_and_go() {
    let (player, registry) = player();
    let open = |asked: &CaptureRequest| CaptureReader::new(registry.open(asked, 0).unwrap(), None, None).unwrap();
    let mut tenth = open(&CaptureRequest { sample: 10, ..capture_request() });
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..15);
    let mut other = open(&CaptureRequest { sample: 2, ..capture_request() });
    publish(&mut half, 15..27);
    assert_eq!(take(&mut other), [15, 17, 19, 21, 23, 25]);
    registry.close(&[other.id()]);
    publish(&mut half, 27..51);
    assert_eq!(take(&mut tenth), [0, 10, 20, 30, 40, 50]);
}

#[test]
fn a_slow_reader_loses_alone_and_knows_how_much() {
    let (player, registry) = player();
    let mut slow = CaptureReader::new(
        registry.open(&CaptureRequest { program: first_byte(2), ..capture_request() }, 0).unwrap(),
        None,
        None,
    )
    .unwrap();
    let mut quick = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let mut got = Vec::new();
    for round in 0..40 {
        publish(&mut half, round * 1000..(round + 1) * 1000);
        got.extend(take(&mut quick));
    }
    assert_eq!(got, (0..40_000).collect::<Vec<_>>());
    let waiting = slow.ledger();
    assert_eq!(waiting.matched, 10_000);
    let taken = take(&mut slow);
    let ledger = slow.ledger();
    assert_eq!((ledger.delivered, ledger.waiting), (taken.len() as u64, 0));
    assert!(ledger.lost > 0 && ledger.delivered > 0);
    assert_eq!(ledger.delivered + ledger.lost, 10_000);
    assert!(taken.is_sorted() && taken.iter().all(|n| n % 4 == 2) && taken.last() == Some(&39_998));
}

#[test]
fn who_sleeps_is_woken_by_what_it_wants_and_by_nothing_else() {
    let (player, registry) = player();
    let mut reader = CaptureReader::new(
        registry.open(&CaptureRequest { program: first_byte(3), ..capture_request() }, 0).unwrap(),
        None,
        None,
    )
    .unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    // The first wait is a nap, the second a sleep.
    let began = Instant::now();
    reader.wait(Some(began + Duration::from_secs(5)));
    assert!(began.elapsed() < Duration::from_secs(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            publish(&mut half, 0..3);
            std::thread::sleep(Duration::from_millis(100));
            publish(&mut half, 3..4);
        });
        let mut waits = 0;
        while take(&mut reader).is_empty() {
            reader.wait(Some(began + Duration::from_secs(10)));
            waits += 1;
        }
        assert!(began.elapsed() > Duration::from_millis(190), "{waits} waits");
        assert!(began.elapsed() < Duration::from_secs(5) && waits < 20, "{waits} waits");
    });
    // A packet that is there already is found at once.
    publish(&mut half, 7..8);
    assert!(!reader.announce());
}

#[test]
fn who_is_woken_naps_while_packets_come_instead_of_being_woken_for_each() {
    let (player, registry) = player();
    let mut reader = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let line_is_readable = |reader: &CaptureReader, wait| {
        let mut fds = [PollFd::from_borrowed_fd(reader.line(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: wait, tv_nsec: 0 })).unwrap() > 0
    };
    while reader.rest() != Rest::Sleep {}
    // A program that polls the line need not read its messages.
    publish(&mut half, 0..1);
    assert!(line_is_readable(&reader, 10));
    assert_eq!(take(&mut reader), [0]);
    assert!(matches!(reader.rest(), Rest::Nap(_)) && !reader.announced());
    publish(&mut half, 1..2);
    assert!(!line_is_readable(&reader, 0), "nobody was asked to wake it");
    assert_eq!(take(&mut reader), [1]);
}

#[test]
fn who_sleeps_is_woken_while_another_device_is_taken_down() {
    let (player, registry) = player();
    let mut reader = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    for (number, by_line) in (0..).zip([false, true]) {
        let (let_go, lingers) = mpsc::channel();
        *player.lingers.lock().unwrap() = Some(lingers);
        let slow = registry.open(&CaptureRequest { device: "slow0".into(), ..capture_request() }, 0).unwrap();
        std::thread::scope(|scope| {
            let (id, registry) = (slow.granted.id, &registry);
            if !by_line {
                scope.spawn(move || registry.close(&[id]));
            }
            drop(slow);
            let until = Instant::now() + Duration::from_secs(20);
            while registry.states().len() > 1 {
                assert!(Instant::now() < until, "nobody can be told of what is there");
                std::thread::yield_now();
            }
            while reader.rest() != Rest::Sleep {}
            publish(&mut half, number..number + 1);
            let mut fds = [PollFd::from_borrowed_fd(reader.line(), PollFlags::IN)];
            let woken = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
            // The thread had not finished by then.
            assert!(let_go.send(()).is_ok());
            assert_eq!(woken, 1);
        });
        assert_eq!(take(&mut reader), [number]);
    }
}

#[test]
fn past_packets_are_there_for_who_asks() {
    let (player, registry) = player();
    let keeper = registry.open(&CaptureRequest { keep: true, program: first_byte(7), ..capture_request() }, 0).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let now = capture::clock::monotonic();
    for (number, age_ms) in [(0u64, 9000), (1, 4000), (2, 1000), (3, 0)] {
        half.batch(|publisher| {
            let mut bytes = [0; 60];
            bytes[8..16].copy_from_slice(&number.to_le_bytes());
            let time = now.saturating_sub(age_ms * 1_000_000);
            publisher.publish(Facts { wire: 60, time, flags: SlotFlags::MONOTONIC, ..Facts::default() }, &bytes);
        });
    }
    drop(keeper);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(registry.states().len(), 1, "a kept ring stays");
    assert!(registry.states()[0].kept);
    let [same, larger] = [capture_request().ring_bytes, 16 << 20].map(|ring_bytes| {
        registry.open(&CaptureRequest { keep: true, ring_bytes, ..capture_request() }, 0).unwrap().granted.note
    });
    assert!(same.is_empty() && larger.contains("was there already, and holds"), "{same} {larger}");
    let looking_back = CaptureRequest { last_ns: 5_000_000_000, ..capture_request() };
    let mut reader = CaptureReader::new(registry.open(&looking_back, 0).unwrap(), None, None).unwrap();
    assert!(reader.past().whole && reader.past().reaches_ns < 5_000_000_000, "{:?}", reader.past());
    publish(&mut half, 4..6);
    assert_eq!(take(&mut reader), [1, 2, 3, 4, 5]);
    let ledger = reader.ledger();
    assert_eq!((ledger.past, ledger.matched, ledger.delivered, ledger.lost), (3, 2, 2, 0));
    let program = first_byte(1);
    let decides = program::Interpreter::from_cbpf(&program).unwrap();
    let looking_back = CaptureRequest { program, ..looking_back };
    drop(reader);
    let mut reader = CaptureReader::new(registry.open(&looking_back, 0).unwrap(), Some(decides), None).unwrap();
    publish(&mut half, 6..12);
    assert_eq!(take(&mut reader), [5, 9], "of the past and of now by the same expression");
    drop(reader);
    assert!(registry.forget("played0") && !registry.forget("played0"));
    until(|| registry.states().is_empty(), "a ring that is kept no more goes with its last reader");
}

#[test]
fn what_is_kept_is_everything_and_as_much_as_the_ring_holds() {
    let (player, registry) = player();
    registry.keep("played0", By::WhatIsBest, 1 << 18, 3).unwrap();
    registry.keep("played0", By::WhatIsBest, 1 << 18, 3).unwrap();
    assert_eq!((registry.states().len(), player.does.promiscuous.load(Ordering::SeqCst)), (1, 1));
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let looking_back = CaptureRequest { last_ns: 60_000_000_000, ..capture_request() };
    publish(&mut half, 0..100);
    let mut reader = CaptureReader::new(registry.open(&looking_back, 3).unwrap(), None, None).unwrap();
    assert_eq!(take(&mut reader), (0..100).collect::<Vec<u64>>());
    // A reader of another ring does not find them.
    let other = CaptureReader::new(registry.open(&looking_back, 4).unwrap(), None, None).unwrap();
    assert_eq!((other.position(), other.past().whole), (0, false));
    // Once round the ring: the past begins with the oldest packet.
    let began = reader.past().reaches_ns;
    publish(&mut half, 100..20_000);
    drop(reader);
    let mut reader = CaptureReader::new(registry.open(&looking_back, 3).unwrap(), None, None).unwrap();
    let taken = take(&mut reader);
    assert!(taken[0] > 100 && taken.last() == Some(&19_999), "{taken:?}");
    assert!(reader.past().whole && reader.past().reaches_ns < began + 60_000_000_000);
    // A failed step leaves the ring as it was. Wait first, so that the step is not the removal of the first reader.
    until(|| registry.states().iter().all(|ring| ring.readers.len() == 1), "who read first is gone");
    player.does.fails.store(1, Ordering::SeqCst);
    assert!(registry.keep("played0", By::WhatIsBest, 1 << 18, 4).is_err());
    assert_eq!(registry.states().iter().filter(|ring| ring.kept).count(), 1);
    assert!(registry.forget("played0"));
    drop((reader, other));
    until(|| registry.states().is_empty(), "both rings go");
}

#[test]
fn what_a_reader_that_looks_no_more_has_lost_is_known_to_others() {
    let (player, registry) = player();
    let mut slow = CaptureReader::new(
        registry.open(&CaptureRequest { program: first_byte(2), ..capture_request() }, 0).unwrap(),
        None,
        None,
    )
    .unwrap();
    let counting = registry.open(&CaptureRequest { counts: Some(0), ..capture_request() }, 0).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let told = || registry.states()[0].readers.iter().map(|reader| (reader.matched, reader.lost)).collect::<Vec<_>>();
    publish(&mut half, 0..1000);
    assert_eq!(told()[0], (250, 0), "what waits is not lost");
    assert_eq!(take(&mut slow).len(), 250);
    publish(&mut half, 1000..40_000);
    // A ring of one MiB has 4096 slots, and no other expression takes one.
    assert_eq!(told()[0], (10_000, 10_000 - 250 - 4096), "before it looks again");
    let got = take(&mut slow).len() as u64;
    let ledger = slow.ledger();
    assert_eq!(ledger.lost, 10_000 - 250 - got, "it begins again with half of the ring ahead of it");
    slow.look();
    assert_eq!(told()[0], (10_000, ledger.lost), "and behind that");
    assert_eq!(told()[1].1, 0, "who only counts loses nothing");
    // Another expression starts counting from 0.
    let code = first_byte(1);
    let exchange = registry.exchange(slow.id(), &code).unwrap();
    slow.exchange(exchange, Some(program::Interpreter::from_cbpf(&code).unwrap()));
    assert!(take(&mut slow).is_empty());
    publish(&mut half, 40_000..40_400);
    assert_eq!(take(&mut slow).len(), 100);
    assert_eq!((told()[0], slow.ledger().lost), ((100, ledger.lost.min(100)), ledger.lost));
    drop(counting);
}

#[test]
fn what_is_under_way_is_not_lost() {
    let (player, registry) = player();
    let roomy = CaptureRequest { ring_bytes: 64 << 20, ..capture_request() };
    let mut reader = CaptureReader::new(registry.open(&roomy, 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    const PACKETS: u64 = 200_000;
    let (mut got, mut looks) = (0, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| publish(&mut half, 0..PACKETS));
        while !writing.is_finished() {
            got += take(&mut reader).len() as u64;
            // In many of these moments some packet is counted but cannot be read yet.
            assert_eq!((reader.ledger().lost, registry.states()[0].readers[0].lost), (0, 0), "after {looks} looks");
            looks += 1;
        }
    });
    got += take(&mut reader).len() as u64;
    let ledger = reader.ledger();
    assert_eq!((got, ledger.matched, ledger.delivered, ledger.lost), (PACKETS, PACKETS, PACKETS, 0));
}

#[test]
fn who_says_that_it_sleeps_again_and_again_is_woken_no_more_often_than_the_owner_looks() {
    let (player, registry) = player();
    let busy = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let (began, ended) = (Instant::now(), AtomicBool::new(false));
    let mut woken = 0;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut sent = 0;
            while !ended.load(Ordering::SeqCst) {
                publish(&mut half, sent..sent + 1);
                sent += 1;
            }
        });
        while began.elapsed() < Duration::from_millis(300) {
            // Reads no packets between two sleeps.
            let asleep = capture::line::Line::Asleep(busy.memory().next()).to_bytes();
            let _ = rustix::net::send(busy.line(), &asleep, rustix::net::SendFlags::DONTWAIT);
            let mut word = [0; 8];
            while let Ok((1.., _)) = rustix::net::recv(busy.line(), &mut word, rustix::net::RecvFlags::DONTWAIT) {
                woken += 1;
            }
        }
        ended.store(true, Ordering::SeqCst);
        writing.join().unwrap();
    });
    let most = began.elapsed().as_micros() / 100;
    assert!(woken > 0 && woken <= most, "{woken} times in {most} looks");
}
