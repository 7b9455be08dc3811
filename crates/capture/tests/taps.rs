//! Readers of one ring, over a device that a test plays: each gets what it asked for, nobody disturbs anybody.

use buffer::live::{Areas, Facts, Geometry, SlotFlags};
use capture::codec::Farewell;
use capture::copying::{Copying, Ring, ring};
use capture::tap::{Counted, Found, Ledger, Rest};
use capture::writer::TroubleKind;
use capture::{
    By, Device, Direction, Expression, Handout, Mode, Only, Opened, Right, Share, Tap, Taps, Trouble, Wish, Writer,
};
use program::cbpf::Instruction;
use program::{Compile, CompileError};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// A device whose packets a test makes.
struct Played {
    ring: Ring,
    name: String,
    does: Does,
    promiscuous: bool,
    /// Its end waits for a word from here.
    lingers: Option<mpsc::Receiver<()>>,
    _alive: Arc<()>,
}

/// What devices are asked to do, and what of it they do.
#[derive(Default, Clone)]
struct Does {
    /// The step from now on that fails, from 1; 0 for none.
    fails: Arc<AtomicU32>,
    /// How many are promiscuous.
    promiscuous: Arc<AtomicI32>,
    /// They are unplugged.
    gone: Arc<AtomicBool>,
}

impl Does {
    fn step(&self, what: &str) -> Result<(), Trouble> {
        let counted = self.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |fails| fails.checked_sub(1));
        if counted == Ok(1) { Err(Trouble::new(TroubleKind::System, format!("{what} fails"))) } else { Ok(()) }
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.does.promiscuous.fetch_sub(i32::from(self.promiscuous), Ordering::SeqCst);
        if let Some(until) = self.lingers.take() {
            let _ = until.recv_timeout(Duration::from_secs(30));
        }
    }
}

#[derive(Default, Clone)]
struct Player {
    halves: Arc<Mutex<VecDeque<Copying>>>,
    does: Does,
    /// For the next device.
    lingers: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
    alive: Arc<()>,
}

impl Opened for Player {
    fn index(&self, _device: &str) -> Result<u32, Trouble> {
        Ok(1)
    }

    fn open(&self, device: &str, ring_bytes: u64, _mode: Mode, _by: By) -> Result<Box<dyn Writer>, Trouble> {
        self.does.step("opening")?;
        let (ring, half) = ring("played", ring_bytes)?;
        self.halves.lock().unwrap().push_back(half);
        let lingers = self.lingers.lock().unwrap().take();
        let does = self.does.clone();
        Ok(Box::new(Played {
            ring,
            name: device.into(),
            does,
            promiscuous: false,
            lingers,
            _alive: Arc::clone(&self.alive),
        }))
    }
}

impl Writer for Played {
    fn device(&self) -> Device {
        let link_type = [("bare0", 101), ("odd0", 104)].into_iter().find(|(name, _)| *name == self.name);
        let link_type = link_type.map_or(1, |(_, number)| number);
        Device { name: self.name.clone(), index: 1, link_type, mtu: 1500, how: "by a test".into(), copied: true }
    }
    fn geometry(&self) -> Geometry {
        self.ring.geometry()
    }
    fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.ring.areas()
    }
    fn set(&mut self, expressions: &[Expression]) -> Result<(), Trouble> {
        self.does.step("setting")?;
        self.ring.set(expressions);
        Ok(())
    }
    fn promiscuous(&mut self, wanted: bool) -> Result<(), Trouble> {
        if wanted {
            self.does.step("becoming promiscuous")?;
        }
        self.does.promiscuous.fetch_add(i32::from(wanted) - i32::from(self.promiscuous), Ordering::SeqCst);
        self.promiscuous = wanted;
        Ok(())
    }
    fn arm(&self, bits: u64) {
        self.ring.arm(bits);
    }
    fn bell(&self) -> BorrowedFd<'_> {
        self.ring.bell()
    }
    fn rung(&mut self) -> u64 {
        self.ring.rung()
    }
    fn gone(&mut self) -> bool {
        self.does.gone.load(Ordering::SeqCst)
    }
    fn statistics(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

fn player() -> (Player, Taps) {
    let player = Player::default();
    let taps = Taps::new(Box::new(player.clone())).unwrap();
    (player, taps)
}

fn wish() -> Wish {
    Wish { device: "played0".into(), ring_bytes: 1 << 20, ..Wish::default() }
}

/// Passes packets whose first byte is `byte`.
fn first_byte(byte: u8) -> Vec<Instruction> {
    let at = |code, jt, jf, k| Instruction { code, jt, jf, k };
    vec![at(0x30, 0, 0, 0), at(0x15, 0, 1, byte.into()), at(0x06, 0, 0, 0x40000), at(0x06, 0, 0, 0)]
}

fn publish(half: &mut Copying, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        half.batch(|publisher| {
            let mut bytes = [number as u8 % 4; 60];
            bytes[8..16].copy_from_slice(&number.to_le_bytes());
            let flags = if number % 2 == 1 { SlotFlags::OUTBOUND } else { SlotFlags::default() };
            let hash = (number as u32).wrapping_mul(0x9e37_79b9);
            let time = capture::clock::monotonic();
            publisher.publish(Facts { wire: 60, time, flags, hash, ..Facts::default() }, &bytes);
        });
    }
}

/// Waits until something is so.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn take(tap: &mut Tap) -> Vec<u64> {
    let (mut got, mut to) = (Vec::new(), [0; 100]);
    while let Found::Packet(packet) = tap.look() {
        if tap.take_copy(&packet, &mut to) == Some(60) {
            got.push(u64::from_le_bytes(to[8..16].try_into().unwrap()));
        }
    }
    got
}

#[test]
fn each_gets_its_own_and_the_books_add_up() {
    let (player, taps) = player();
    let open = |wish: &Wish, share| Tap::new(taps.open(wish, 0).unwrap(), None, share).unwrap();
    let mut all = open(&wish(), None);
    let mut ones = open(&Wish { program: first_byte(1), ..wish() }, None);
    let mut tenth = open(&Wish { sample: 10, ..wish() }, None);
    let mut out = open(&Wish { direction: Direction::Out, ..wish() }, None);
    let mut shares = [0, 1].map(|number| open(&wish(), Some(Share { number, of: 2 })));
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    assert!(player.halves.lock().unwrap().is_empty(), "one ring for all");
    publish(&mut half, 0..1000);
    assert_eq!(take(&mut all), (0..1000).collect::<Vec<_>>());
    assert_eq!(take(&mut ones), (0..1000).filter(|n| n % 4 == 1).collect::<Vec<_>>());
    assert_eq!(take(&mut tenth).len(), 100);
    assert_eq!(take(&mut out), (0..1000).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    let [mut first, second] = shares.each_mut().map(take);
    assert!(first.len() > 300 && second.len() > 300);
    first.extend(second);
    first.sort_unstable();
    assert_eq!(first, (0..1000).collect::<Vec<_>>());
    let ledger = ones.ledger();
    assert_eq!((ledger.seen, ledger.matched, ledger.filtered, ledger.delivered), (1000, 250, 750, 250));
    assert_eq!((ledger.lost, ledger.waiting, ledger.others), (0, 0, 0));
    assert_eq!(shares[0].ledger().others + shares[0].ledger().delivered, 1000);
    assert_eq!(ones.counted(), Counted { packets: 250, wire_bytes: 15_000, kept_bytes: 0 });
}

#[test]
fn who_only_counts_is_written_nothing() {
    let (player, taps) = player();
    let open = |wish: &Wish| Tap::new(taps.open(wish, 0).unwrap(), None, None).unwrap().that_counts();
    // The ring stays, and bits are used again: nobody's count is another's.
    let _stays = open(&wish());
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    for round in 0..35 {
        let mut all = open(&Wish { counts: Some(0), ..wish() });
        let mut out = open(&Wish { counts: Some(20), direction: Direction::Out, sample: 5, ..wish() });
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
    let (player, taps) = player();
    let open = |wish: &Wish| Tap::new(taps.open(wish, 0).unwrap(), None, None).unwrap();
    let mut tenth = open(&Wish { sample: 10, ..wish() });
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..15);
    let mut other = open(&Wish { sample: 2, ..wish() });
    publish(&mut half, 15..27);
    taps.close(&[other.id()]);
    publish(&mut half, 27..51);
    assert_eq!(take(&mut tenth), [0, 10, 20, 30, 40, 50]);
    assert_eq!(take(&mut other), [15, 17, 19, 21, 23, 25]);
}

#[test]
fn a_slow_reader_loses_alone_and_knows_how_much() {
    let (player, taps) = player();
    let mut slow = Tap::new(taps.open(&Wish { program: first_byte(2), ..wish() }, 0).unwrap(), None, None).unwrap();
    let mut quick = Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
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
    let (player, taps) = player();
    let mut tap = Tap::new(taps.open(&Wish { program: first_byte(3), ..wish() }, 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    // The first wait is a nap, the second sleeps.
    let began = Instant::now();
    tap.wait(Some(began + Duration::from_secs(5)));
    assert!(began.elapsed() < Duration::from_secs(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            publish(&mut half, 0..3);
            std::thread::sleep(Duration::from_millis(100));
            publish(&mut half, 3..4);
        });
        let mut waits = 0;
        while take(&mut tap).is_empty() {
            tap.wait(Some(began + Duration::from_secs(10)));
            waits += 1;
        }
        assert!(began.elapsed() > Duration::from_millis(190), "{waits} waits");
        assert!(began.elapsed() < Duration::from_secs(5) && waits < 20, "{waits} waits");
    });
    // Found at once where there is something already.
    publish(&mut half, 7..8);
    assert!(!tap.announce());
}

#[test]
fn who_is_woken_naps_while_packets_come_instead_of_being_woken_for_each() {
    let (player, taps) = player();
    let mut tap = Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let line_is_readable = |tap: &Tap, wait| {
        let mut fds = [PollFd::from_borrowed_fd(tap.line(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: wait, tv_nsec: 0 })).unwrap() > 0
    };
    while tap.rest() != Rest::Sleep {}
    // Who polls the line for it need not read what is on it.
    publish(&mut half, 0..1);
    assert!(line_is_readable(&tap, 10));
    assert_eq!(take(&mut tap), [0]);
    assert!(matches!(tap.rest(), Rest::Nap(_)) && !tap.announced());
    publish(&mut half, 1..2);
    assert!(!line_is_readable(&tap, 0), "nobody was asked to wake it");
    assert_eq!(take(&mut tap), [1]);
}

#[test]
fn who_sleeps_is_woken_while_another_device_is_taken_down() {
    let (player, taps) = player();
    let mut tap = Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    for (number, by_line) in (0..).zip([false, true]) {
        let (let_go, lingers) = mpsc::channel();
        *player.lingers.lock().unwrap() = Some(lingers);
        let slow = taps.open(&Wish { device: "slow0".into(), ..wish() }, 0).unwrap();
        std::thread::scope(|scope| {
            let (id, taps) = (slow.id, &taps);
            if !by_line {
                scope.spawn(move || taps.close(&[id]));
            }
            drop(slow);
            let until = Instant::now() + Duration::from_secs(20);
            while taps.states().len() > 1 {
                assert!(Instant::now() < until, "nobody can be told of what is there");
                std::thread::yield_now();
            }
            while tap.rest() != Rest::Sleep {}
            publish(&mut half, number..number + 1);
            let mut fds = [PollFd::from_borrowed_fd(tap.line(), PollFlags::IN)];
            let woken = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
            // It was not through by then.
            assert!(let_go.send(()).is_ok());
            assert_eq!(woken, 1);
        });
        assert_eq!(take(&mut tap), [number]);
    }
}

#[test]
fn an_expression_is_exchanged_without_a_wrong_packet() {
    let (player, taps) = player();
    let mut tap = Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..100);
    let code = first_byte(1);
    let exchange = taps.exchange(tap.id(), &code).unwrap();
    publish(&mut half, 100..200);
    tap.exchange(exchange, Some(program::Interpreter::from_cbpf(&code).unwrap()));
    publish(&mut half, 200..300);
    assert_eq!(take(&mut tap), (0..300).filter(|n| n % 4 == 1).collect::<Vec<_>>());
    let ledger = tap.ledger();
    assert_eq!((ledger.delivered, ledger.lost, ledger.waiting), (75, 0, 0));
    assert_eq!(ledger.matched, ledger.delivered + ledger.others);
    assert!(taps.exchange(9999, &code).is_err());
}

#[test]
fn readers_come_and_go_and_leave_nothing() {
    let (player, taps) = player();
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let kept = taps.open(&wish(), 0).unwrap();
    let mut kept = Tap::new(kept, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let before = fds();
    let mut sent = 0;
    for _ in 0..300 {
        let mut tap = Tap::new(taps.open(&Wish { program: first_byte(1), ..wish() }, 0).unwrap(), None, None).unwrap();
        publish(&mut half, sent..sent + 8);
        sent += 8;
        assert_eq!(take(&mut tap).len(), 2);
    }
    assert_eq!(take(&mut kept), (0..sent).collect::<Vec<_>>());
    let until = Instant::now() + Duration::from_secs(5);
    while taps.states()[0].readers.len() > 1 || fds() > before + 4 {
        assert!(Instant::now() < until, "{} readers, {} files", taps.states()[0].readers.len(), fds());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Arc::strong_count(&player.alive), 3, "the test, the opener, the device");
    drop(kept);
    while !taps.states().is_empty() {
        assert!(Instant::now() < until, "a ring without readers goes");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(taps);
    assert_eq!(Arc::strong_count(&player.alive), 1);
}

#[test]
fn no_more_readers_than_bits_and_groups_see_only_their_own_ring() {
    let (player, taps) = player();
    let small = Wish { ring_bytes: 1, ..wish() };
    let taken: Vec<_> = (0..64).map(|_| taps.open(&small, 0).unwrap()).collect();
    assert_eq!(taps.open(&small, 0).unwrap_err().kind, TroubleKind::Full);
    let other = taps.open(&small, 1).unwrap();
    assert_eq!(player.halves.lock().unwrap().len(), 2);
    assert_eq!(taps.states().len(), 2);
    drop((taken, other));
}

#[test]
fn a_reader_that_talks_nonsense_is_let_go() {
    let (_player, taps) = player();
    let bad = taps.open(&wish(), 0).unwrap();
    let _good = taps.open(&wish(), 0).unwrap();
    rustix::net::send(&bad.line, b"what?", rustix::net::SendFlags::empty()).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while taps.states()[0].readers.len() > 1 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let program = vec![Instruction { code: 0xffff, jt: 0, jf: 0, k: 0 }];
    assert_eq!(taps.open(&Wish { program, ..wish() }, 0).unwrap_err().kind, TroubleKind::Wish);
    assert_eq!(taps.states()[0].readers.len(), 1);
}

#[test]
fn past_packets_are_there_for_who_asks() {
    let (player, taps) = player();
    let keeper = taps.open(&Wish { keep: true, program: first_byte(7), ..wish() }, 0).unwrap();
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
    assert_eq!(taps.states().len(), 1, "a kept ring stays");
    assert!(taps.states()[0].kept);
    let [same, larger] = [wish().ring_bytes, 16 << 20]
        .map(|ring_bytes| taps.open(&Wish { keep: true, ring_bytes, ..wish() }, 0).unwrap().note);
    assert!(same.is_empty() && larger.contains("was there already, and holds"), "{same} {larger}");
    let looking_back = Wish { last_ns: 5_000_000_000, ..wish() };
    let mut tap = Tap::new(taps.open(&looking_back, 0).unwrap(), None, None).unwrap();
    assert!(tap.past().whole && tap.past().reaches_ns < 5_000_000_000, "{:?}", tap.past());
    publish(&mut half, 4..6);
    assert_eq!(take(&mut tap), [1, 2, 3, 4, 5]);
    let ledger = tap.ledger();
    assert_eq!((ledger.past, ledger.matched, ledger.delivered, ledger.lost), (3, 2, 2, 0));
    let program = first_byte(1);
    let decides = program::Interpreter::from_cbpf(&program).unwrap();
    let looking_back = Wish { program, ..looking_back };
    drop(tap);
    let mut tap = Tap::new(taps.open(&looking_back, 0).unwrap(), Some(decides), None).unwrap();
    publish(&mut half, 6..12);
    assert_eq!(take(&mut tap), [5, 9], "of the past and of now by the same expression");
    drop(tap);
    assert!(taps.forget("played0") && !taps.forget("played0"));
    until(|| taps.states().is_empty(), "a ring that is kept no more goes with its last reader");
}

#[test]
fn what_is_kept_is_everything_and_as_much_as_the_ring_holds() {
    let (player, taps) = player();
    taps.keep("played0", By::WhatIsBest, 1 << 18, 3).unwrap();
    taps.keep("played0", By::WhatIsBest, 1 << 18, 3).unwrap();
    assert_eq!((taps.states().len(), player.does.promiscuous.load(Ordering::SeqCst)), (1, 1));
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let looking_back = Wish { last_ns: 60_000_000_000, ..wish() };
    publish(&mut half, 0..100);
    let mut tap = Tap::new(taps.open(&looking_back, 3).unwrap(), None, None).unwrap();
    assert_eq!(take(&mut tap), (0..100).collect::<Vec<u64>>());
    // Of who has another ring, nothing.
    let other = Tap::new(taps.open(&looking_back, 4).unwrap(), None, None).unwrap();
    assert_eq!((other.position(), other.past().whole), (0, false));
    // Once round the ring: the clock of the past begins with the oldest packet.
    let began = tap.past().reaches_ns;
    publish(&mut half, 100..20_000);
    drop(tap);
    let mut tap = Tap::new(taps.open(&looking_back, 3).unwrap(), None, None).unwrap();
    let taken = take(&mut tap);
    assert!(taken[0] > 100 && taken.last() == Some(&19_999), "{taken:?}");
    assert!(tap.past().whole && tap.past().reaches_ns < began + 60_000_000_000);
    // A step that fails leaves the ring as it was. It is not that of taking away who read first.
    until(|| taps.states().iter().all(|ring| ring.readers.len() == 1), "who read first is gone");
    player.does.fails.store(1, Ordering::SeqCst);
    assert!(taps.keep("played0", By::WhatIsBest, 1 << 18, 4).is_err());
    assert_eq!(taps.states().iter().filter(|ring| ring.kept).count(), 1);
    assert!(taps.forget("played0"));
    drop((tap, other));
    until(|| taps.states().is_empty(), "both rings go");
}

#[test]
fn one_group_takes_away_and_others_are_told() {
    let (player, taps) = player();
    let taking = Wish { mode: Mode::Consume, ..wish() };
    let copies = taps.open(&wish(), 0).unwrap();
    assert_eq!(copies.note, "");
    let (say, lingers) = mpsc::channel();
    *player.lingers.lock().unwrap() = Some(lingers);
    let first = taps.open(&taking, 0).unwrap();
    assert!(first.note.contains("1 other reader of `played0` sees nothing"), "{}", first.note);
    assert!(taps.open(&wish(), 1).unwrap().note.contains("does not come here"));
    let refused = taps.open(&taking, 1).unwrap_err();
    assert!(refused.kind == TroubleKind::Full && refused.text.contains("another reader already"), "{refused}");
    // Who may see what the first sees joins it: one ring, each with an expression of its own.
    let joined = taps.open(&Wish { program: first_byte(3), ..taking.clone() }, 0).unwrap();
    assert_ne!(joined.bit, first.bit);
    assert_eq!(taps.states().iter().filter(|ring| ring.readers.len() == 2).count(), 1);
    drop(first);
    // What is left is a part: who copies is told so.
    until(|| taps.states().iter().any(|ring| ring.readers.len() == 1 && ring.readers[0].id == joined.id), "one goes");
    let told = taps.open(&wish(), 2).unwrap().note;
    assert!(told.contains("a part of what") && told.contains("does not come here"), "{told}");
    until(|| taps.states().len() == 2, "who only asked is gone");
    let first = joined;
    let hows: Vec<String> = taps.states().into_iter().map(|state| state.device.how).collect();
    assert_eq!(hows.iter().filter(|how| how.contains("taken away by another")).count(), 1, "{hows:?}");
    // It goes, and its writer takes its time: who comes next waits for that.
    drop(first);
    until(|| taps.states().len() == 1, "its ring is given up");
    let alive = Arc::strong_count(&player.alive);
    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| taps.open(&taking, 1));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!next.is_finished() && Arc::strong_count(&player.alive) <= alive);
        say.send(()).unwrap();
        next.join().unwrap()
    });
    assert!(next.is_ok());
    for wrong in [
        Wish { by: By::Kernel, ..taking.clone() },
        Wish { direction: Direction::Out, ..taking.clone() },
        Wish { keep: true, ..taking.clone() },
    ] {
        assert_eq!(taps.open(&wrong, 0).unwrap_err().kind, TroubleKind::Wish);
    }
    // What fails leaves the device to who comes next.
    drop(next);
    until(|| taps.states().len() == 1, "its ring is given up");
    player.does.fails.store(1, Ordering::SeqCst);
    assert_eq!(taps.open(&taking, 0).unwrap_err().kind, TroubleKind::System);
    assert!(taps.open(&taking, 0).is_ok());
}

/// Compiles `3` to what passes packets whose first byte is that, `~3` to what passes all others, `all` to something long that
/// passes all; for Ethernet alone.
struct FirstBytes;

impl Compile for FirstBytes {
    fn compile(&self, expression: &str, link_type: u16, _: u32) -> Result<Vec<Instruction>, CompileError> {
        if link_type != 1 {
            return Err(CompileError::syntax("there is no first byte"));
        }
        let number = |text: &str| text.parse().expect("a byte");
        Ok(match expression.strip_prefix('~') {
            Some(text) => {
                let mut code = first_byte(number(text));
                code.swap(2, 3);
                code
            }
            None if expression == "all" => long(1 << 13),
            None => first_byte(number(expression)),
        })
    }

    fn describe(&self) -> String {
        "a test's".into()
    }
}

/// Passes all packets, by so many instructions.
fn long(instructions: u32) -> Vec<Instruction> {
    let at = |code, k| Instruction { code, jt: 0, jf: 0, k };
    // Adds to A, which nobody asks.
    (1..instructions).map(|number| at(0x04, number)).chain([at(0x06, 1)]).collect()
}

fn shown(group: u32, text: &str) -> Right {
    Right { group, only: Some(Arc::new(Only::new(text, &FirstBytes).unwrap())) }
}

/// Which packets' payloads lie in a ring's memory, whoever they were for: those whose first byte is this.
fn lies_in(handout: &Handout) -> impl Fn() -> Vec<u8> + use<> {
    let file = std::fs::File::from(handout.areas.data.try_clone().unwrap());
    let bytes = handout.geometry.ring_bytes as usize;
    move || {
        let mut memory = vec![0; bytes];
        file.read_exact_at(&mut memory, 0).unwrap();
        // What has not been written is 0.
        (1..4).filter(|byte| memory.windows(8).any(|run| run == [*byte; 8])).collect()
    }
}

#[test]
fn what_a_group_is_not_shown_never_comes_into_its_ring() {
    let (player, taps) = player();
    let right = shown(5, "3");
    let open = |wish: &Wish| taps.open(wish, right.clone()).unwrap();
    let whole = taps.open(&wish(), 0).unwrap();
    let plain = open(&wish());
    assert_eq!((whole.note.as_str(), plain.note.contains("of `played0` only what `3` passes")), ("", true));
    let (all, limited) = (lies_in(&whole), lies_in(&plain));
    let [mut whole_half, mut half] = [(); 2].map(|()| player.halves.lock().unwrap().pop_front().unwrap());
    let mut publish = |numbers: std::ops::Range<u64>| {
        publish(&mut whole_half, numbers.clone());
        publish(&mut half, numbers);
    };
    let tap = |handout| Tap::new(handout, None, None).unwrap();
    let mut plain = tap(plain);
    // However they ask for more.
    let mut others = tap(open(&Wish { program: first_byte(2), ..wish() }));
    let mut same = tap(open(&Wish { program: first_byte(3), ..wish() }));
    let mut half_of_it = tap(open(&Wish { sample: 2, promiscuous: true, ..wish() }));
    let mut incoming = tap(open(&Wish { direction: Direction::In, ..wish() }));
    let counting = tap(open(&Wish { counts: Some(0), ..wish() })).that_counts();
    publish(0..400);
    let threes = |numbers: std::ops::Range<u64>| numbers.filter(|n| n % 4 == 3).collect::<Vec<_>>();
    assert_eq!((take(&mut plain), take(&mut same)), (threes(0..400), threes(0..400)));
    assert_eq!(take(&mut half_of_it), (0..400).filter(|n| n % 8 == 3).collect::<Vec<_>>());
    assert_eq!((take(&mut others), take(&mut incoming), counting.counted().packets), (vec![], vec![], 100));
    let ledger = plain.ledger();
    assert_eq!((ledger.seen, ledger.matched, ledger.filtered), (400, 100, 300));
    // By another expression, and by none again.
    for (begins, code) in [(400, first_byte(1)), (500, vec![])] {
        let exchange = taps.exchange(plain.id(), &code).unwrap();
        plain.exchange(exchange, program::Interpreter::from_cbpf(&code).ok());
        publish(begins..begins + 100);
    }
    assert_eq!(take(&mut plain), threes(500..600));
    // Who looks back finds what others of its group wanted.
    let looking_back = Wish { last_ns: u64::MAX, ..wish() };
    let mut late = tap(open(&looking_back));
    assert_eq!((take(&mut late), late.past().whole), (threes(0..600), false));
    taps.keep("played0", By::WhatIsBest, 1 << 20, right.clone()).unwrap();
    drop((plain, others, same, half_of_it, incoming, counting, late));
    until(|| taps.states().iter().all(|ring| ring.group == 0 || ring.readers.is_empty()), "they are gone");
    publish(600..700);
    let kept = open(&Wish { keep: true, program: first_byte(2), ..looking_back.clone() });
    publish(700..800);
    let mut late = tap(open(&looking_back));
    assert_eq!((take(&mut late), late.past().whole), (threes(0..800), true));
    let hows: Vec<String> = taps.states().into_iter().map(|ring| ring.device.how).collect();
    assert_eq!(hows, ["by a test", "by a test; only what `3` passes"]);
    assert_eq!((all(), limited()), (vec![1, 2, 3], vec![3]));
    drop((whole, kept));
}

#[test]
fn who_is_shown_a_part_takes_a_part_away() {
    let (player, taps) = player();
    let right = shown(5, "~2");
    let taking = taps.open(&Wish { mode: Mode::Consume, ..wish() }, right.clone()).unwrap();
    let lies = lies_in(&taking);
    let mut taking = Tap::new(taking, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    publish(&mut half, 0..40);
    assert_eq!((take(&mut taking), lies()), ((0..40).filter(|n| n % 4 != 2).collect(), vec![1, 3]));
    // Others are told that something is left, and those it shares with what there is for them as well.
    let told = taps.open(&wish(), 0).unwrap().note;
    assert!(told.starts_with("a part of what `played0` receives is taken away"), "{told}");
    let told = taps.open(&wish(), right).unwrap().note;
    assert!(told.contains("only what `~2` passes; a part of what"), "{told}");
}

#[test]
fn what_is_too_much_together_is_for_who_asks_to_decide() {
    let (_player, taps) = player();
    let right = shown(5, "all");
    let wordy = Wish { program: long(1 << 14), ..wish() };
    assert!(taps.open(&wordy, 0).is_ok(), "it may ask for that much");
    let refused = taps.open(&wordy, right.clone()).unwrap_err();
    assert!(
        refused.kind == TroubleKind::Cannot && refused.text.contains("together with the policy's `all`"),
        "{refused}"
    );
    until(|| taps.states().is_empty(), "nothing is left");
    let reader = taps.open(&wish(), right).unwrap();
    assert_eq!(taps.exchange(reader.id, &wordy.program).unwrap_err().kind, TroubleKind::Cannot);
    assert!(taps.exchange(reader.id, &first_byte(1)).is_ok());
}

#[test]
fn devices_that_cannot_be_asked_what_is_shown_are_refused() {
    let (player, taps) = player();
    let alive = Arc::strong_count(&player.alive);
    for (device, why) in [("bare0", "there is no first byte"), ("odd0", "a policy knows none of link type 104")] {
        let wish = Wish { device: device.into(), ..wish() };
        assert!(taps.open(&wish, 1).is_ok(), "who is shown everything may");
        for refused in [
            taps.open(&wish, shown(5, "3")).unwrap_err(),
            taps.open(&Wish { mode: Mode::Consume, ..wish.clone() }, shown(5, "3")).unwrap_err(),
            taps.keep(device, By::WhatIsBest, 1 << 20, shown(5, "3")).unwrap_err(),
        ] {
            let begins = format!("the daemon's policy shows of `{device}` only what `3` passes, which cannot be asked");
            assert_eq!(refused.kind, TroubleKind::Denied);
            assert!(refused.text.starts_with(&begins) && refused.text.ends_with(why), "{refused}");
        }
        until(|| taps.states().is_empty() && Arc::strong_count(&player.alive) == alive, "nothing is left");
    }
}

#[test]
fn whichever_step_fails_nothing_is_changed_or_left() {
    let (player, taps) = player();
    let reader = taps.open(&Wish { program: first_byte(1), ..wish() }, 0).unwrap();
    let mut reader = Tap::new(reader, None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let alive = Arc::strong_count(&player.alive);
    let (mut sent, mut failures) = (0, Vec::new());
    let another = Wish { promiscuous: true, ..wish() };
    let elsewhere = Wish { device: "played1".into(), ..another.clone() };
    let open = |wish: &Wish| taps.open(wish, 0).map(|handout| taps.close(&[handout.id]));
    let attempts: [&dyn Fn() -> Result<(), Trouble>; 3] =
        [&|| open(&another), &|| open(&elsewhere), &|| taps.exchange(reader.id(), &first_byte(2)).map(drop)];
    for attempt in &attempts {
        for step in 1.. {
            player.does.fails.store(step, Ordering::SeqCst);
            let outcome = attempt();
            // What is done to undo a failure does not fail, and what a reader leaves behind is not asked about.
            if player.does.fails.swap(0, Ordering::SeqCst) > 0 {
                outcome.unwrap();
                break;
            }
            if let Err(trouble) = outcome {
                failures.push(trouble.text);
                assert_eq!(player.does.promiscuous.load(Ordering::SeqCst), 0, "{failures:?}");
                publish(&mut half, sent..sent + 8);
                sent += 8;
            }
            let states = taps.states();
            assert_eq!((states.len(), states[0].readers.len()), (1, 1), "{failures:?}");
            assert_eq!(Arc::strong_count(&player.alive), alive, "{failures:?}");
        }
    }
    let of = |what: &str| format!("{what} fails");
    let (opening, setting, promiscuous) = (of("opening"), of("setting"), of("becoming promiscuous"));
    let expected = [&setting, &promiscuous, &opening, &setting, &promiscuous, &setting];
    assert_eq!(failures.iter().collect::<Vec<_>>(), expected);
    assert_eq!(player.does.promiscuous.load(Ordering::SeqCst), 0);
    // By the expression that was in force all the time.
    assert_eq!(take(&mut reader), (0..sent).filter(|n| n % 4 == 1).collect::<Vec<_>>());
}

#[test]
fn who_is_let_go_hears_why() {
    let (player, taps) = player();
    for busy in [false, true] {
        let open = || Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
        let (mut stopped, mut unplugged) = (open(), open());
        if busy {
            // Where that is not read before the owner closes, the kernel reports it before the last word.
            assert!(stopped.announce() && unplugged.announce());
        }
        taps.dismiss(&[stopped.id()], Farewell::Stopped(7));
        until(|| taps.states()[0].readers.len() == 1, "one has been let go");
        player.does.gone.store(true, Ordering::SeqCst);
        until(|| taps.states().is_empty() || taps.gone(&[unplugged.id()]).len() == 1, "the device has gone");
        for (tap, why) in [(&mut stopped, Farewell::Stopped(7)), (&mut unplugged, Farewell::DeviceGone)] {
            // Its line is closed a moment after it is no reader any more.
            until(
                || {
                    tap.announce();
                    tap.is_hung_up()
                },
                "it is hung up",
            );
            assert_eq!(tap.farewell(), Some(why), "busy: {busy}");
        }
        player.does.gone.store(false, Ordering::SeqCst);
    }
    let mut left = Tap::new(taps.open(&wish(), 0).unwrap(), None, None).unwrap();
    drop(taps);
    left.announce();
    assert_eq!((left.is_hung_up(), left.farewell()), (true, None), "who dies says nothing");
}

#[test]
fn what_a_reader_that_looks_no_more_has_lost_is_known_to_others() {
    let (player, taps) = player();
    let mut slow = Tap::new(taps.open(&Wish { program: first_byte(2), ..wish() }, 0).unwrap(), None, None).unwrap();
    let counting = taps.open(&Wish { counts: Some(0), ..wish() }, 0).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    let told = || taps.states()[0].readers.iter().map(|reader| (reader.matched, reader.lost)).collect::<Vec<_>>();
    publish(&mut half, 0..1000);
    assert_eq!(told()[0], (250, 0), "what waits is not lost");
    assert_eq!(take(&mut slow).len(), 250);
    publish(&mut half, 1000..40_000);
    // A MiB of ring has 4096 slots, and nobody else wants one.
    assert_eq!(told()[0], (10_000, 10_000 - 250 - 4096), "before it looks again");
    let got = take(&mut slow).len() as u64;
    let ledger = slow.ledger();
    assert_eq!(ledger.lost, 10_000 - 250 - got, "it begins again with half of the ring ahead of it");
    slow.look();
    assert_eq!(told()[0], (10_000, ledger.lost), "and behind that");
    assert_eq!(told()[1].1, 0, "who only counts loses nothing");
    // Another expression begins to count anew.
    let code = first_byte(1);
    let exchange = taps.exchange(slow.id(), &code).unwrap();
    slow.exchange(exchange, Some(program::Interpreter::from_cbpf(&code).unwrap()));
    assert!(take(&mut slow).is_empty());
    publish(&mut half, 40_000..40_400);
    assert_eq!(take(&mut slow).len(), 100);
    assert_eq!((told()[0], slow.ledger().lost), ((100, ledger.lost.min(100)), ledger.lost));
    drop(counting);
}

#[test]
fn what_is_under_way_is_not_lost() {
    let (player, taps) = player();
    let roomy = Wish { ring_bytes: 64 << 20, ..wish() };
    let mut tap = Tap::new(taps.open(&roomy, 0).unwrap(), None, None).unwrap();
    let mut half = player.halves.lock().unwrap().pop_front().unwrap();
    const PACKETS: u64 = 200_000;
    let (mut got, mut looks) = (0, 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| publish(&mut half, 0..PACKETS));
        while !writing.is_finished() {
            got += take(&mut tap).len() as u64;
            // Some packet is counted and cannot be read yet in many of these moments.
            assert_eq!((tap.ledger().lost, taps.states()[0].readers[0].lost), (0, 0), "after {looks} looks");
            looks += 1;
        }
    });
    got += take(&mut tap).len() as u64;
    let ledger = tap.ledger();
    assert_eq!((got, ledger.matched, ledger.delivered, ledger.lost), (PACKETS, PACKETS, PACKETS, 0));
}
