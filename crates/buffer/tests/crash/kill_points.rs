//! A death at each store in turn: the first run kills the child before its first store to shared memory, the next
//! before the second, and so on until a child survives. The surviving processes check every run.

use crate::blocks::{self, Checker, JUNK};
use crate::process::{Child, Scoreboard, Status, alone, die, soon, stop_here};
use base::atomic::kill_points;
use buffer::ring::{From, NotWritten, Nothing, OnFull, Patience, RingKind, Seen, Signalling, Writer};
use std::time::{Duration, Instant};

/// Words of the scoreboard. `BEGUN` and `PUBLISHED` are the writer's, as number of blocks or (in a stream) position. A
/// sleeping reader sets `SLEEPS` before it sleeps, and `SEEN` to what it has seen.
const BEGUN: usize = 0;
const PUBLISHED: usize = 1;
const SLEEPS: usize = 2;
const SEEN: usize = 3;
const GO: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    Write,
    Fill,
    Forward,
    Flush,
    Close,
    Some,
    Wait,
    Drop,
    Demote,
    Join,
}

impl Writes {
    const ALL: [Writes; 10] = [
        Writes::Write,
        Writes::Fill,
        Writes::Forward,
        Writes::Flush,
        Writes::Close,
        Writes::Some,
        Writes::Wait,
        Writes::Drop,
        Writes::Demote,
        Writes::Join,
    ];

    fn is_for(self, kind: RingKind) -> bool {
        match self {
            Writes::Forward => kind == RingKind::D,
            Writes::Some => kind == RingKind::C,
            _ => true,
        }
    }

    fn contracts(self, scene: Scene) -> &'static [OnFull] {
        match (self, scene) {
            (Writes::Wait | Writes::Demote, _) => &[OnFull::Wait, OnFull::Overwrite, OnFull::Shared],
            (Writes::Drop, _) => &[OnFull::DropNewest, OnFull::Overwrite],
            (_, Scene::Lapping) => &[OnFull::Overwrite, OnFull::Shared],
            _ => &OnFull::ALL,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Caught,
    /// The writer overwrites blocks that a reader is reading.
    Lapping,
    /// One reader, in a process of its own, sleeps.
    Asleep,
}

fn mark(kind: RingKind, writer: &Writer, n: u64, word: usize, board: Scoreboard) {
    board.set(word, if kind == RingKind::C { writer.head() } else { n });
}

/// Writes one block with `write`, and notes on the scoreboard that it is begun and that it is published.
fn publish(
    writer: &mut Writer,
    board: Scoreboard,
    begun: u64,
    published: impl Fn(&Writer) -> u64,
    write: impl FnOnce(&mut Writer) -> Result<(), NotWritten>,
) -> Result<(), NotWritten> {
    board.set(BEGUN, begun);
    let outcome = write(writer);
    board.set(PUBLISHED, published(writer));
    outcome
}

/// The child's work. `n` blocks are written already.
fn run_writer(writes: Writes, kind: RingKind, mut writer: Writer, mut n: u64, board: Scoreboard) {
    let stream = kind == RingKind::C;
    let begun = |writer: &Writer, n: u64| if stream { writer.head() + blocks::len(kind, n) as u64 } else { n + 1 };
    let published = |writer: &Writer, n: u64| if stream { writer.head() } else { n };
    let mut one = |writer: &mut Writer| {
        let outcome =
            publish(writer, board, begun(writer, n), |writer| published(writer, n), |it| blocks::try_write(it, n));
        if outcome.is_ok() {
            n += 1;
            mark(kind, writer, n, PUBLISHED, board);
        }
        outcome
    };
    match writes {
        Writes::Write => (0..6).for_each(|_| one(&mut writer).unwrap()),
        Writes::Flush => {
            for flush in [true, false, true] {
                one(&mut writer).unwrap();
                if flush {
                    writer.flush();
                }
            }
        }
        Writes::Close => {
            one(&mut writer).unwrap();
            writer.close();
            return;
        }
        Writes::Wait => {
            writer.set_patience(Patience::NONE);
            while one(&mut writer).is_ok() {}
            let bytes = blocks::bytes(kind, n, writer.head());
            let soon = Some(Instant::now() + Duration::from_millis(1));
            assert_eq!(writer.write(blocks::about(n), &bytes, soon), Err(NotWritten::WouldBlock));
        }
        Writes::Drop => assert!((0..40).filter(|_| one(&mut writer) == Err(NotWritten::Dropped)).count() > 0),
        Writes::Demote => {
            assert!((0..40).filter(|_| one(&mut writer).is_ok()).count() > 0);
            assert_eq!(writer.counters().demoted, 1);
        }
        Writes::Join => {
            assert_eq!(writer.readers(), 5);
            (0..3).for_each(|_| one(&mut writer).unwrap());
        }
        Writes::Fill => {
            for n in n..n + 3 {
                writer.fill(100).unwrap().copy_in(0, &[JUNK; 100]);
                let bytes = blocks::bytes(kind, n, writer.head());
                board.set(BEGUN, begun(&writer, n));
                let filling = writer.fill(bytes.len() as u32 + 20).unwrap();
                let half = bytes.len() / 2;
                filling.copy_in(0, &bytes[..half]);
                filling.copy_in(half as u32, &bytes[half..]);
                filling.copy_in(bytes.len() as u32, &[JUNK; 20]);
                filling.publish(blocks::about(n), bytes.len() as u32);
                mark(kind, &writer, n + 1, PUBLISHED, board);
            }
        }
        Writes::Forward => {
            for n in n..n + 4 {
                board.set(BEGUN, n + 1);
                writer.try_forward(&blocks::elsewhere(n)).unwrap();
                board.set(PUBLISHED, n + 1);
            }
            let batch: Vec<_> = (n + 4..n + 8).map(blocks::elsewhere).collect();
            board.set(BEGUN, n + 8);
            assert_eq!(writer.forward_batch(&batch), Ok(4));
            board.set(PUBLISHED, n + 8);
        }
        Writes::Some => {
            for _ in 0..4 {
                let from = writer.head();
                let bytes = blocks::bytes(kind, 7, from);
                board.set(BEGUN, from + bytes.len() as u64);
                let outcome = writer.try_write_some(&bytes);
                assert!(outcome != Err(NotWritten::TooLong));
                board.set(PUBLISHED, writer.head());
            }
        }
    }
    // A writer that dies does not close its ring.
    std::mem::forget(writer);
}

/// Blocks that readers saw before the writer went on: their bytes must be right if the reader finds them intact.
fn check_outstanding(readers: &[Checker], outstanding: &[Option<Seen>]) {
    for (checker, seen) in readers.iter().zip(outstanding) {
        let Some(seen) = seen else { continue };
        let bytes = checker.reader.bytes(seen).copy_to_vec();
        assert!(!checker.reader.intact(seen) || checker.seeing.is_right(seen, &bytes), "{checker:?}: {seen:?} is torn");
    }
}

/// One death (or stop) of a writer, at the `at`-th point. `false`: the child survived.
fn one_writer(kind: RingKind, writes: Writes, scene: Scene, at: u64, then: fn(), board: Scoreboard) -> bool {
    board.clear();
    let (mut ring, mut writer) = blocks::ring(kind, Signalling::Batched(2));
    let hold = (writes == Writes::Demote).then_some(Duration::ZERO);
    let mut readers: Vec<Checker> =
        writes.contracts(scene).iter().map(|contract| Checker::attach(&mut ring, kind, *contract, hold)).collect();
    let sleeps_by = OnFull::ALL[(at % 4) as usize];
    let mut sleeper = (scene == Scene::Asleep).then(|| Checker::attach(&mut ring, kind, sleeps_by, None));
    let unread = if scene == Scene::Lapping { 9 } else { 0 };
    let before = 40;
    for n in 0..before {
        blocks::try_write(&mut writer, n).unwrap();
        if n < before - unread {
            readers.iter_mut().chain(&mut sleeper).for_each(|reader| {
                assert_eq!(reader.drain(), Nothing::Yet);
                reader.reader.tell();
            });
        }
    }
    let outstanding: Vec<Option<Seen>> = readers.iter_mut().map(|reader| reader.reader.peek().ok()).collect();
    if writes == Writes::Join {
        writer.readers();
        readers.pop();
        readers.extend([(); 2].map(|()| Checker::attach_late(&mut ring, kind, From::Next)));
    }
    let sleeping = sleeper.as_mut().map(|checker| {
        let child = Child::fork(|| {
            checker.reader.set_patience(Patience { spins: 0, latency: Duration::from_micros(1) });
            board.set(SLEEPS, 1);
            let why = checker.read_to_the_end(soon());
            assert!(matches!(why, Nothing::Retired | Nothing::Ended), "{why:?}");
            board.set(SEEN, checker.seeing.next);
        });
        board.await_set(SLEEPS);
        std::thread::sleep(Duration::from_micros(300));
        child
    });
    mark(kind, &writer, before, BEGUN, board);
    mark(kind, &writer, before, PUBLISHED, board);
    // This process's copy of the writer stays silent until all is checked; its end then reaches no reader.
    let mut writer = Some(writer);
    let mut child = Child::fork(|| {
        let writer = writer.take().expect("it is there until here");
        kill_points::arm(at, then);
        run_writer(writes, kind, writer, before, board);
        kill_points::arm(0, then);
    });
    let ended = child.wait();
    let stopped = ended == Status::Stopped;
    assert!(matches!(ended, Status::Stopped | Status::Exited(0) | Status::Killed(libc::SIGKILL)), "{ended:?}");

    check_outstanding(&readers, &outstanding);
    ring.retire();
    let (begun, published) = (board.get(BEGUN), board.get(PUBLISHED));
    let is_sure = |contract: OnFull| contract.holds() && writes != Writes::Demote;
    let told: Vec<Nothing> = readers
        .iter_mut()
        .map(|checker| {
            let why = checker.drain();
            assert!(why == Nothing::Retired || (writes, why) == (Writes::Close, Nothing::Ended), "{why:?}");
            if checker.reader.is_started() && is_sure(checker.reader.contract()) {
                assert_eq!(checker.lost(), 0);
                assert!((published..=begun).contains(&checker.seeing.next), "{checker:?}: not {published} to {begun}");
            }
            assert!(checker.seeing.next <= begun, "{checker:?} sees more than was begun, {begun}");
            why
        })
        .collect();
    let mut oldest = Checker::attach_late(&mut ring, kind, From::Oldest);
    assert!(matches!(oldest.drain(), Nothing::Retired | Nothing::Ended));
    assert!(oldest.seeing.next <= begun);
    let mut next = Checker::attach_late(&mut ring, kind, From::Next);
    assert!(matches!(next.drain(), Nothing::Retired | Nothing::Ended));
    if let Some(mut sleeping) = sleeping {
        assert_eq!(sleeping.wait(), Status::Exited(0), "a sleeper is woken");
        assert!(board.get(SEEN) <= begun && (!is_sure(sleeps_by) || board.get(SEEN) >= published));
    }
    if stopped {
        // The readers have gone on; no reader sees what the old writer does then.
        let (mut ring, mut writer) = blocks::ring(kind, Signalling::Batched(2));
        let mut reader = Checker::attach(&mut ring, kind, OnFull::Wait, None);
        (0..3).for_each(|n| blocks::try_write(&mut writer, n).unwrap());
        child.go_on();
        assert_eq!(child.wait(), Status::Exited(0));
        (3..6).for_each(|n| blocks::try_write(&mut writer, n).unwrap());
        writer.close();
        assert_eq!((reader.drain(), reader.lost()), (Nothing::Ended, 0));
        for (checker, why) in readers.iter_mut().zip(told) {
            assert_eq!(checker.step(), Err(why), "a writer that wakes late is not believed");
        }
    }
    drop(writer);
    ended != Status::Exited(0)
}

fn each_point(name: &str, one: impl Fn(u64) -> bool) -> u64 {
    let points = (1..).take_while(|at| one(*at)).count() as u64;
    eprintln!("{points:5} points: {name}");
    assert!(points > 0, "{name} stores nothing");
    assert!(points < 2000, "{name} has no end");
    points
}

#[test]
fn a_writer_may_die_at_each_store() {
    let _alone = alone();
    let board = Scoreboard::new();
    let mut all = 0;
    for kind in RingKind::ALL {
        for writes in Writes::ALL.into_iter().filter(|writes| writes.is_for(kind)) {
            for scene in [Scene::Caught, Scene::Lapping, Scene::Asleep] {
                if scene != Scene::Caught
                    && matches!(writes, Writes::Wait | Writes::Drop | Writes::Demote | Writes::Join)
                {
                    continue;
                }
                all += each_point(&format!("writer dies: {} {writes:?} {scene:?}", kind.name()), |at| {
                    one_writer(kind, writes, scene, at, die, board)
                });
            }
        }
    }
    eprintln!("{all:5} points: writer, in all");
}

#[test]
fn a_writer_may_stop_at_each_store_and_wake_when_its_ring_is_retired() {
    let _alone = alone();
    let board = Scoreboard::new();
    for kind in RingKind::ALL {
        for (writes, scene) in
            [(Writes::Write, Scene::Lapping), (Writes::Fill, Scene::Caught), (Writes::Close, Scene::Caught)]
        {
            each_point(&format!("writer stops: {} {writes:?} {scene:?}", kind.name()), |at| {
                one_writer(kind, writes, scene, at, stop_here, board)
            });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Peek,
    Take,
    Tell,
    Wait,
    Leave,
}

fn run_reader(reads: Reads, checker: &mut Option<Checker>) {
    let Some(it) = checker else { return };
    match reads {
        Reads::Peek => while it.reader.next_block().is_ok() {},
        Reads::Take => assert_eq!(it.drain(), Nothing::Yet),
        Reads::Tell => {
            while it.step().is_ok() {
                it.reader.tell();
            }
        }
        Reads::Wait => {
            it.reader.set_patience(Patience { spins: 2, latency: Duration::from_micros(50) });
            assert_eq!(it.drain(), Nothing::Yet);
            let deadline = Instant::now() + Duration::from_millis(1);
            assert_eq!(it.reader.wait(Some(deadline)), Err(Nothing::Yet));
        }
        Reads::Leave => {
            assert!(matches!(it.step(), Ok(()) | Err(Nothing::Yet)));
            drop(checker.take());
        }
    }
}

/// One death of a reader. The writer is this process, and writes on.
fn one_reader(kind: RingKind, contract: OnFull, reads: Reads, at: u64) -> bool {
    let (mut ring, mut writer) = blocks::ring(kind, Signalling::Batched(2));
    let mut victim = Some(Checker::attach(&mut ring, kind, contract, None));
    let mut others = [OnFull::Wait, OnFull::Overwrite].map(|contract| Checker::attach(&mut ring, kind, contract, None));
    // Readers that can be overtaken are.
    let before = if contract.holds() { 6 } else { 60 };
    let mut n = 0;
    let mut write_and_read = |writer: &mut Writer, others: &mut [Checker]| {
        let outcome = blocks::try_write(writer, n);
        n += u64::from(outcome.is_ok());
        for other in others {
            assert_eq!(other.drain(), Nothing::Yet);
            other.reader.tell();
            assert_eq!(other.lost(), 0);
        }
        outcome
    };
    (0..before).for_each(|_| write_and_read(&mut writer, &mut others).unwrap());
    let mut child = Child::fork(|| {
        kill_points::arm(at, die);
        run_reader(reads, &mut victim);
        kill_points::arm(0, die);
    });
    let ended = child.wait();
    assert!(matches!(ended, Status::Exited(0) | Status::Killed(libc::SIGKILL)), "{ended:?}");
    // A holding reader holds the ring until its keeper says that it is gone; other readers never do.
    let full = (0..100).find_map(|_| write_and_read(&mut writer, &mut others).err());
    let expected = match contract {
        OnFull::Wait => Some(NotWritten::WouldBlock),
        OnFull::DropNewest => Some(NotWritten::Dropped),
        OnFull::Overwrite | OnFull::Shared => None,
    };
    assert_eq!(full, expected, "{kind:?} {contract:?} {reads:?}");
    drop(victim);
    (0..100).for_each(|_| write_and_read(&mut writer, &mut others).unwrap());
    writer.close();
    for other in &mut others {
        assert_eq!((other.drain(), other.lost()), (Nothing::Ended, 0));
    }
    ended != Status::Exited(0)
}

#[test]
fn a_reader_may_die_at_each_store() {
    let _alone = alone();
    let mut all = 0;
    for kind in RingKind::ALL {
        for contract in OnFull::ALL {
            for reads in [Reads::Peek, Reads::Take, Reads::Tell, Reads::Wait, Reads::Leave] {
                // A reader that holds no new block makes no store when it only looks.
                let points = (1..).take_while(|at| one_reader(kind, contract, reads, *at)).count();
                eprintln!("{points:5} points: reader dies: {} {} {reads:?}", kind.name(), contract.name());
                assert!(points > 0 || reads == Reads::Peek);
                all += points;
            }
        }
    }
    eprintln!("{all:5} points: reader, in all");
}

fn one_waker(kind: RingKind, at: u64, board: Scoreboard) -> bool {
    board.clear();
    let (mut ring, mut writer) = blocks::ring(kind, Signalling::Batched(2));
    writer.set_patience(Patience::NONE);
    let mut victim = Checker::attach(&mut ring, kind, OnFull::Wait, None);
    let mut n = 0;
    while blocks::try_write(&mut writer, n).is_ok() {
        n += 1;
    }
    let mut child = Child::fork(|| {
        board.await_set(GO);
        std::thread::sleep(Duration::from_micros(300));
        kill_points::arm(at, die);
        while victim.step().is_ok() {
            victim.reader.tell();
        }
        kill_points::arm(0, die);
    });
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            board.set(GO, 1);
            (n..n + 100).for_each(|n| blocks::write(&mut writer, n, soon()).unwrap());
        });
        let ended = child.wait();
        assert!(matches!(ended, Status::Exited(0) | Status::Killed(libc::SIGKILL)), "{ended:?}");
        drop(victim);
        assert!(writes.join().is_ok(), "the writer goes on when its keeper says that the reader is gone");
        ended != Status::Exited(0)
    })
}

#[test]
fn a_reader_may_die_at_each_store_that_wakes_its_writer() {
    let _alone = alone();
    let board = Scoreboard::new();
    for kind in RingKind::ALL {
        // The number of points depends on how fast the writer fills the room; the first ones cover a whole step.
        let points = (1..=12).take_while(|at| one_waker(kind, *at, board)).count();
        eprintln!("{points:5} points: reader dies: {} wakes its writer", kind.name());
        assert!(points >= 3);
    }
}
