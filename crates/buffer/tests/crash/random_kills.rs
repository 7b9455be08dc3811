//! Deaths at random times: one writer and three readers of mixed contracts, each in a process of its own.
//!
//! In every other round the writer dies: its readers must get everything it published, and end. In the other rounds a
//! reader dies: the writer, which is this process then, and the other two readers must go on.

use crate::blocks::{self, Checker};
use crate::process::{Child, Scoreboard, Status, alone, soon};
use buffer::ring::{NotWritten, Nothing, OnFull, RingKind, Signalling};
use std::time::{Duration, Instant};

const KILLS: u64 = 200;

const LATEST_US: u64 = 1500;

/// Words of the scoreboard: blocks (in a stream: bytes) begun, and published; the last block that each reader has seen.
const BEGUN: usize = 0;
const PUBLISHED: usize = 1;
const READY: usize = 2;
const SEEN: usize = 5;

/// Random numbers (xorshift), the same in each run, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn pause(us: u64) {
    let until = Instant::now() + Duration::from_micros(us);
    std::thread::sleep(Duration::from_micros(us.saturating_sub(100)));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn read(checker: &mut Checker, board: Scoreboard, place: usize) {
    board.set(READY + place, 1);
    let why = checker.read_to_the_end(soon());
    assert!(matches!(why, Nothing::Retired | Nothing::Ended), "{checker:?}: {why:?}");
    if checker.reader.contract().holds() {
        assert_eq!(checker.lost(), 0, "{checker:?}");
    }
    board.set(SEEN + place, checker.seeing.next);
}

struct Round {
    kind: RingKind,
    signalling: Signalling,
    contracts: [OnFull; 3],
    after_us: u64,
}

impl Round {
    fn roll(dice: &mut Dice) -> Round {
        let signalling = [Signalling::Every, Signalling::Batched(4), Signalling::Never][dice.below(3) as usize];
        Round {
            kind: RingKind::ALL[dice.below(4) as usize],
            signalling,
            contracts: [(); 3].map(|()| OnFull::ALL[dice.below(4) as usize]),
            after_us: dice.below(LATEST_US),
        }
    }

    fn start(&self, ring: &mut buffer::ring::Ring, board: Scoreboard) -> (Vec<Checker>, Vec<Child>) {
        let mut checkers: Vec<Checker> =
            self.contracts.iter().map(|contract| Checker::attach(ring, self.kind, *contract, None)).collect();
        let readers =
            checkers.iter_mut().enumerate().map(|(place, it)| Child::fork(|| read(it, board, place))).collect();
        (checkers, readers)
    }

    fn writer_dies(&self, board: Scoreboard) -> Status {
        let (mut ring, mut writer) = blocks::ring(self.kind, self.signalling);
        let (_checkers, readers) = self.start(&mut ring, board);
        let mut child = Child::fork(|| {
            (0..3).for_each(|place| board.await_set(READY + place));
            let stream = self.kind == RingKind::C;
            for n in 0..1_000_000 {
                let after = if stream { writer.head() + blocks::len(self.kind, n) as u64 } else { n + 1 };
                board.set(BEGUN, after);
                while blocks::write(&mut writer, n, soon()) == Err(NotWritten::Dropped) {
                    std::thread::yield_now();
                }
                board.set(PUBLISHED, after);
            }
        });
        pause(self.after_us);
        let ended = child.kill();
        ring.retire();
        for (place, mut reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.wait(), Status::Exited(0), "reader {place} of {:?}, {:?}", self.contracts, self.kind);
            let seen = board.get(SEEN + place);
            assert!(seen <= board.get(BEGUN));
            assert!(!self.contracts[place].holds() || seen >= board.get(PUBLISHED), "{:?}", self.contracts);
        }
        ended
    }

    fn reader_dies(&self, victim: usize, board: Scoreboard) -> Status {
        let (mut ring, mut writer) = blocks::ring(self.kind, self.signalling);
        let (checkers, mut readers) = self.start(&mut ring, board);
        let mut checkers: Vec<Option<Checker>> = checkers.into_iter().map(Some).collect();
        let mut ended = None;
        let dies_at = Instant::now() + Duration::from_micros(self.after_us);
        let (mut n, mut left) = (0, 50);
        while left > 0 {
            match blocks::write(&mut writer, n, dies_at.max(Instant::now() + Duration::from_micros(20))) {
                Ok(()) => n += 1,
                Err(NotWritten::Dropped) => std::thread::yield_now(),
                Err(refused) => assert_eq!(refused, NotWritten::WouldBlock),
            }
            if ended.is_none() && Instant::now() >= dies_at {
                ended = Some(readers[victim].kill());
                checkers[victim] = None;
                // From here on blocks are written without it.
                let deadline = soon();
                while writer.readers() != 2 {
                    assert!(Instant::now() < deadline);
                }
            }
            left -= u64::from(ended.is_some());
        }
        let all = if self.kind == RingKind::C { writer.head() } else { n };
        writer.close();
        for (place, reader) in readers.iter_mut().enumerate().filter(|(place, _)| *place != victim) {
            assert_eq!(reader.wait(), Status::Exited(0), "reader {place} of {:?}, {:?}", self.contracts, self.kind);
            let seen = board.get(SEEN + place);
            assert!(
                seen == all || !self.contracts[place].holds() && seen < all,
                "{seen} of {all}: {:?}",
                self.contracts
            );
        }
        ended.expect("it was killed")
    }
}

#[test]
fn anybody_may_die_at_any_time() {
    let _alone = alone();
    let kills = std::env::var("STREAMLINE_KILLS").ok().map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let began = Instant::now();
    let board = Scoreboard::new();
    let mut dice = Dice(0x5eed_0001);
    let (mut writers, mut readers, mut blocks) = (0, 0, 0);
    for n in 0..kills {
        board.clear();
        let round = Round::roll(&mut dice);
        let ended =
            if n % 2 == 0 { round.writer_dies(board) } else { round.reader_dies(dice.below(3) as usize, board) };
        assert_eq!(ended, Status::Killed(libc::SIGKILL));
        (writers, readers) = if n % 2 == 0 { (writers + 1, readers) } else { (writers, readers + 1) };
        blocks += (0..3).map(|place| board.get(SEEN + place)).sum::<u64>();
        if (n + 1) % 10_000 == 0 {
            eprintln!("{} kills, {:.0} s", n + 1, began.elapsed().as_secs_f64());
        }
    }
    eprintln!(
        "{writers} writers and {readers} readers killed in {:.1} s, {blocks} blocks and bytes of streams seen by others",
        began.elapsed().as_secs_f64()
    );
}
