//! Readers that come, go, and change their expressions: none of them waits for another, and they leave nothing behind.

use crate::played::*;
use capture::CaptureErrorKind;
use capture::line::CloseReason;
use capture::reader::Rest;
use capture::{Attachment, By, CaptureError, CaptureReader, CaptureRequest, Direction, Mode};
use program::cbpf::Instruction;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[test]
fn nobody_waits_for_programs_that_are_loaded_for_somebody_else() {
    let (player, registry) = player();
    let open =
        |user, device: &str| registry.open_for(user, &CaptureRequest { device: device.into(), ..capture_request() }, 0);
    let mut sleeps = CaptureReader::new(open(1, "played0").unwrap(), None, None).unwrap();
    let (goes, closes) = (open(1, "played0").unwrap(), open(1, "played0").unwrap());
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    while sleeps.rest() != Rest::Sleep {}
    let id = sleeps.id();
    // On the same device, a reader comes, and another changes its expression.
    let comes = || open(2, "played0").map(drop);
    let asks = || registry.exchange(id, &first_byte(1)).map(drop);
    let changes: [&(dyn Fn() -> Result<(), CaptureError> + Sync); 2] = [&comes, &asks];
    std::thread::scope(|scope| {
        for (change, exchanges) in changes.into_iter().zip([false, true]) {
            let (begun, go_on) = player.does.be_slow("played0");
            let slow = scope.spawn(change);
            begun.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(registry.states()[0].readers.len(), if exchanges { 1 } else { 3 });
            if !exchanges {
                // Packets reach awake readers, sleepers are woken, and readers that go are dropped and listed as gone.
                publish(&mut half, 0..1);
                let mut fds = [PollFd::from_borrowed_fd(sleeps.line(), PollFlags::IN)];
                let woken = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
                assert_eq!(woken, 1);
                registry.close(&[closes.granted.id]);
                assert_eq!(registry.gone(&[closes.granted.id, goes.granted.id]), [closes.granted.id].into());
            }
            let elsewhere = open(3, "played1").unwrap();
            assert_eq!(registry.states().len(), 2);
            registry.close(&[elsewhere.granted.id]);
            until(|| registry.states().len() == 1, "it is taken down");
            assert!(!slow.is_finished());
            go_on.send(()).unwrap();
            slow.join().unwrap().unwrap();
            if !exchanges {
                registry.close(&[goes.granted.id]);
                until(|| registry.states()[0].readers.len() == 1, "who came a moment ago has gone again");
            }
        }
    });
    assert_eq!(take(&mut sleeps), [0]);
}

#[test]
fn a_reader_that_went_while_programs_were_loaded_is_not_served_for_ever() {
    let (player, registry) = player();
    let stays = registry.open(&capture_request(), 0).unwrap();
    let goes = registry.open(&CaptureRequest { promiscuous: true, ..capture_request() }, 0).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let memory = goes.map().unwrap();
    std::thread::scope(|scope| {
        let (begun, go_on) = player.does.be_slow("played0");
        let exchanging = scope.spawn(|| registry.exchange(stays.granted.id, &first_byte(1)));
        begun.recv_timeout(Duration::from_secs(30)).unwrap();
        registry.close(&[goes.granted.id]);
        go_on.send(()).unwrap();
        exchanging.join().unwrap().unwrap();
    });
    until(|| player.does.promiscuous.load(Ordering::SeqCst) == 0, "nobody wants to hear everything any more");
    let before = memory.matched(usize::from(goes.granted.bit)).packets;
    publish(&mut half, 0..10);
    assert_eq!(memory.matched(usize::from(goes.granted.bit)).packets, before);
    // If another device ends while a reader is let in there, that reader does not stay behind either.
    std::thread::scope(|scope| {
        let (begun, go_on) = player.does.be_slow("played1");
        let opening =
            scope.spawn(|| registry.open(&CaptureRequest { device: "played1".into(), ..capture_request() }, 0));
        begun.recv_timeout(Duration::from_secs(30)).unwrap();
        player.does.gone.store(true, Ordering::SeqCst);
        until(
            || registry.states().is_empty() || registry.gone(&[stays.granted.id]).len() == 1,
            "the devices have gone",
        );
        go_on.send(()).unwrap();
        let why = opening.join().unwrap().unwrap_err();
        assert_eq!((why.kind, why.text.as_str()), (CaptureErrorKind::System, "`played1` has gone"));
    });
    until(|| registry.states().is_empty() && Arc::strong_count(&player.alive) == 2, "nothing is left");
}

#[test]
fn a_bit_is_given_to_the_next_reader_when_no_packet_can_have_its_old_meaning() {
    let (_player, registry) = player();
    let small = CaptureRequest { ring_bytes: 1, ..capture_request() };
    let mut readers: Vec<Attachment> = (0..64).map(|_| registry.open(&small, 0).unwrap()).collect();
    assert_eq!(WAITED.get(), 0, "bits that nobody has had are at hand");
    for round in 1..=3 {
        let gone: Vec<u64> = readers.drain(..20).map(|reader| reader.granted.id).collect();
        registry.close(&gone);
        readers.extend((0..20).map(|_| registry.open(&small, 0).unwrap()));
        assert_eq!(WAITED.get(), round, "once for all that went");
    }
    assert_eq!(registry.open(&small, 0).unwrap_err().kind, CaptureErrorKind::Full);
    assert_eq!(WAITED.get(), 3, "there is nothing to wait for");
}

#[test]
fn an_expression_is_exchanged_without_a_wrong_packet() {
    let (player, registry) = player();
    let mut reader = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..100);
    let code = first_byte(1);
    let exchange = registry.exchange(reader.id(), &code).unwrap();
    publish(&mut half, 100..200);
    reader.exchange(exchange, Some(program::Interpreter::from_cbpf(&code).unwrap()));
    publish(&mut half, 200..300);
    assert_eq!(take(&mut reader), (0..300).filter(|n| n % 4 == 1).collect::<Vec<_>>());
    let ledger = reader.ledger();
    assert_eq!((ledger.delivered, ledger.lost, ledger.waiting), (75, 0, 0));
    assert_eq!(ledger.matched, ledger.delivered + ledger.others);
    assert!(registry.exchange(9999, &code).is_err());
}

#[test]
fn readers_come_and_go_and_leave_nothing() {
    let (player, registry) = player();
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let kept = registry.open(&capture_request(), 0).unwrap();
    let mut kept = CaptureReader::new(kept, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let before = fds();
    let mut sent = 0;
    for _ in 0..300 {
        let mut reader = CaptureReader::new(
            registry.open(&CaptureRequest { program: first_byte(1), ..capture_request() }, 0).unwrap(),
            None,
            None,
        )
        .unwrap();
        publish(&mut half, sent..sent + 8);
        sent += 8;
        assert_eq!(take(&mut reader).len(), 2);
    }
    assert_eq!(take(&mut kept), (0..sent).collect::<Vec<_>>());
    let until = Instant::now() + Duration::from_secs(5);
    while registry.states()[0].readers.len() > 1 || fds() > before + 4 {
        assert!(Instant::now() < until, "{} readers, {} files", registry.states()[0].readers.len(), fds());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Arc::strong_count(&player.alive), 3, "the test, the opener, the device");
    drop(kept);
    while !registry.states().is_empty() {
        assert!(Instant::now() < until, "a ring without readers goes");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(registry);
    assert_eq!(Arc::strong_count(&player.alive), 1);
}

#[test]
fn no_more_readers_than_bits_and_groups_see_only_their_own_ring() {
    let (player, registry) = player();
    let small = CaptureRequest { ring_bytes: 1, ..capture_request() };
    let taken: Vec<_> = (0..64).map(|_| registry.open(&small, 0).unwrap()).collect();
    assert_eq!(registry.open(&small, 0).unwrap_err().kind, CaptureErrorKind::Full);
    let other = registry.open(&small, 1).unwrap();
    assert_eq!(player.halves.lock().unwrap().len(), 2);
    assert_eq!(registry.states().len(), 2);
    drop((taken, other));
}

#[test]
fn a_reader_that_talks_nonsense_is_let_go() {
    let (_player, registry) = player();
    let bad = registry.open(&capture_request(), 0).unwrap();
    let _good = registry.open(&capture_request(), 0).unwrap();
    rustix::net::send(&bad.fds.line, b"what?", rustix::net::SendFlags::empty()).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while registry.states()[0].readers.len() > 1 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let program = vec![Instruction { code: 0xffff, jt: 0, jf: 0, k: 0 }];
    assert_eq!(
        registry.open(&CaptureRequest { program, ..capture_request() }, 0).unwrap_err().kind,
        CaptureErrorKind::Request
    );
    assert_eq!(registry.states()[0].readers.len(), 1);
}

#[test]
fn one_group_takes_away_and_others_are_told() {
    let (player, registry) = player();
    let taking = CaptureRequest { mode: Mode::Consume, ..capture_request() };
    let copies = registry.open(&capture_request(), 0).unwrap();
    assert_eq!(copies.granted.note, "");
    let (say, lingers) = mpsc::channel();
    *player.lingers.lock().unwrap() = Some(lingers);
    let first = registry.open(&taking, 0).unwrap();
    assert!(first.granted.note.contains("1 other reader of `played0` sees nothing"), "{}", first.granted.note);
    assert!(registry.open(&capture_request(), 1).unwrap().granted.note.contains("does not come here"));
    let refused = registry.open(&taking, 1).unwrap_err();
    assert!(refused.kind == CaptureErrorKind::Full && refused.text.contains("another reader already"), "{refused}");
    // A reader with the same permission as the first joins its ring; each has its own expression.
    let joined = registry.open(&CaptureRequest { program: first_byte(3), ..taking.clone() }, 0).unwrap();
    assert_ne!(joined.granted.bit, first.granted.bit);
    assert_eq!(registry.states().iter().filter(|ring| ring.readers.len() == 2).count(), 1);
    drop(first);
    // Only a part is taken away now, and copying readers are told so.
    until(
        || registry.states().iter().any(|ring| ring.readers.len() == 1 && ring.readers[0].id == joined.granted.id),
        "one goes",
    );
    let told = registry.open(&capture_request(), 2).unwrap().granted.note;
    assert!(told.contains("takes away a part") && told.contains("do not come here"), "{told}");
    until(|| registry.states().len() == 2, "who only asked is gone");
    let first = joined;
    let hows: Vec<String> = registry.states().into_iter().map(|state| state.device.how).collect();
    assert_eq!(hows.iter().filter(|how| how.contains("taken away by another")).count(), 1, "{hows:?}");
    // The reader goes, but its writer takes its time: the next reader waits for that.
    drop(first);
    until(|| registry.states().len() == 1, "its ring is given up");
    let alive = Arc::strong_count(&player.alive);
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| registry.open(&taking, 1));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!next.is_finished() && Arc::strong_count(&player.alive) <= alive);
        say.send(()).unwrap();
        next.join().unwrap()
    });
    assert!(next.is_ok());
    for wrong in [
        CaptureRequest { by: By::Kernel, ..taking.clone() },
        CaptureRequest { direction: Direction::Out, ..taking.clone() },
        CaptureRequest { keep: true, ..taking.clone() },
    ] {
        assert_eq!(registry.open(&wrong, 0).unwrap_err().kind, CaptureErrorKind::Request);
    }
    // A failure leaves the device free for the next reader.
    drop(next);
    until(|| registry.states().len() == 1, "its ring is given up");
    player.does.fails.store(1, Ordering::SeqCst);
    assert_eq!(registry.open(&taking, 0).unwrap_err().kind, CaptureErrorKind::System);
    assert!(registry.open(&taking, 0).is_ok());
}

#[test]
fn whichever_step_fails_nothing_is_changed_or_left() {
    let (player, registry) = player();
    let reader = registry.open(&CaptureRequest { program: first_byte(1), ..capture_request() }, 0).unwrap();
    let mut reader = CaptureReader::new(reader, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let alive = Arc::strong_count(&player.alive);
    let (mut sent, mut failures) = (0, Vec::new());
    let another = CaptureRequest { promiscuous: true, ..capture_request() };
    let elsewhere = CaptureRequest { device: "played1".into(), ..another.clone() };
    let open = |asked: &CaptureRequest| {
        let attachment = registry.open(asked, 0)?;
        let sets = player.does.sets.load(Ordering::SeqCst);
        registry.close(&[attachment.granted.id]);
        // If other readers remain, the device hears of it a moment later.
        let hears = || asked.device != "played0" || player.does.sets.load(Ordering::SeqCst) > sets;
        until(hears, "its expression is given up");
        Ok(())
    };
    let attempts: [&dyn Fn() -> Result<(), CaptureError>; 3] =
        [&|| open(&another), &|| open(&elsewhere), &|| registry.exchange(reader.id(), &first_byte(2)).map(drop)];
    for attempt in &attempts {
        for step in 1.. {
            player.does.fails.store(step, Ordering::SeqCst);
            let outcome = attempt();
            // Steps that undo a failure do not fail, and the step after a reader went is not part of the test.
            if player.does.fails.swap(0, Ordering::SeqCst) > 0 {
                outcome.unwrap();
                break;
            }
            if let Err(error) = outcome {
                failures.push(error.text);
                assert_eq!(player.does.promiscuous.load(Ordering::SeqCst), 0, "{failures:?}");
                publish(&mut half, sent..sent + 8);
                sent += 8;
            }
            // If the device was not told that a reader went, its expression stays in force until the next change.
            let states = registry.states();
            assert_eq!((states.len(), states[0].readers[0].id), (1, reader.id()), "{failures:?}");
            assert_eq!(Arc::strong_count(&player.alive), alive, "{failures:?}");
        }
    }
    let of = |what: &str| format!("{what} fails");
    let (opening, setting, promiscuous) = (of("opening"), of("setting"), of("becoming promiscuous"));
    let expected = [&setting, &promiscuous, &opening, &setting, &promiscuous, &setting];
    assert_eq!(failures.iter().collect::<Vec<_>>(), expected);
    until(|| player.does.promiscuous.load(Ordering::SeqCst) == 0, "who wanted it is gone");
    until(|| registry.states()[0].readers.len() == 1, "nobody else is left");
    // The expression that was in force all the time decided on all packets.
    assert_eq!(take(&mut reader), (0..sent).filter(|n| n % 4 == 1).collect::<Vec<_>>());
}

#[test]
fn who_is_let_go_hears_why() {
    let (player, registry) = player();
    for busy in [false, true] {
        let open = || CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
        let (mut stopped, mut unplugged) = (open(), open());
        if busy {
            // If the owner closes with this message unread, the kernel reports that before the last message.
            assert!(stopped.announce() && unplugged.announce());
        }
        registry.dismiss(&[stopped.id()], CloseReason::Stopped(7));
        until(|| registry.states()[0].readers.len() == 1, "one has been let go");
        player.does.gone.store(true, Ordering::SeqCst);
        until(|| registry.states().is_empty() || registry.gone(&[unplugged.id()]).len() == 1, "the device has gone");
        for (reader, why) in [(&mut stopped, CloseReason::Stopped(7)), (&mut unplugged, CloseReason::DeviceGone)] {
            // Its line is closed a moment after it is no longer listed.
            until(
                || {
                    reader.announce();
                    reader.is_hung_up()
                },
                "it is hung up",
            );
            assert_eq!(reader.close_reason(), Some(why), "busy: {busy}");
        }
        player.does.gone.store(false, Ordering::SeqCst);
    }
    let mut left = CaptureReader::new(registry.open(&capture_request(), 0).unwrap(), None, None).unwrap();
    drop(registry);
    left.announce();
    assert_eq!((left.is_hung_up(), left.close_reason()), (true, None), "who dies says nothing");
}
