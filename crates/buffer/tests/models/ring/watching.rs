//! Sleeping in a reader's place on several bells, as pipes do, and the thread that makes a descriptor readable.

use super::{check, check_meetings, newcomer, reader, ring, take, write};
use base::atomic::{AtomicU32, Ordering};
use buffer::pipe::watch::reading::{Front, Reading, Watch};
use buffer::pipe::watch::writing::{Locked, Wanted, Writing, sleep_for_readers};
use buffer::pipe::watch::{Event, Watcher};
use buffer::ring::sleeper::Needed;
use buffer::ring::{Nothing, OnFull, Reader, RingKind, Signalling, Writer};
use buffer::shared::futex::{self, wait_any};
use loom::sync::Mutex;
use loom::thread;
use std::sync::Arc;

#[test]
fn a_sleeper_is_woken_by_what_comes() {
    check_meetings(RingKind::P, |_ring, mut writer, mut reader| {
        let thread = thread::spawn(move || {
            write(&mut writer, 1);
            writer
        });
        let block = loop {
            match take(&mut reader) {
                Ok(block) => break block,
                Err(nothing) => assert_eq!(nothing, Nothing::Yet),
            }
            reader.sleeper().sleep(&[], None);
        };
        assert_eq!(block, Some(vec![1]));
        drop(thread.join().unwrap());
    });
}

#[test]
fn a_sleeper_is_woken_by_the_end_and_by_other_words() {
    #[derive(Clone, Copy)]
    enum Cause {
        End,
        Death,
        Word,
    }
    for cause in [Cause::End, Cause::Death, Cause::Word] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Every);
            let reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
            let word = Arc::new(AtomicU32::new(0));
            let thread = thread::spawn({
                let word = Arc::clone(&word);
                move || {
                    match cause {
                        Cause::End => writer.close(),
                        Cause::Death => {
                            ring.retire();
                            std::mem::forget(writer);
                        }
                        Cause::Word => {
                            word.store(1, Ordering::Release);
                            futex::wake(&word);
                            std::mem::forget(writer);
                        }
                    }
                    std::mem::forget(ring);
                }
            });
            let sleeper = reader.sleeper();
            while !sleeper.is_due() && word.load(Ordering::Acquire) == 0 {
                sleeper.sleep(&[(&word, 0)], None);
            }
            thread.join().unwrap();
        });
    }
}

#[derive(Clone)]
struct Sink(Arc<Mutex<Writer>>);

impl Front for Sink {
    fn watch(&self) -> Option<Needed> {
        let mut writer = self.0.lock().unwrap();
        writer.watch();
        writer.needed_by(0)
    }

    fn unwatch(&self, _is_silent: bool) {
        self.0.lock().unwrap().unwatch();
    }
}

/// A forwarder wakes when a reader of another ring moves, even if the writer there needs no room.
#[test]
fn who_waits_for_a_reader_elsewhere_is_woken_when_it_moves() {
    for takes in [true, false] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Every);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
            write(&mut writer, 1);
            let thread = thread::spawn(move || {
                if takes {
                    assert_eq!(take(&mut reader), Ok(Some(vec![1])));
                }
                // Otherwise it leaves.
                if takes { Some(reader) } else { None }
            });
            let sink = Sink(Arc::new(Mutex::new(writer)));
            let fronts = [sink];
            loop {
                let watch = Watch::new(&fronts);
                if watch.is_due() {
                    break;
                }
                wait_any(&watch.words(), watch.deadline());
            }
            drop(thread.join().unwrap());
        });
    }
}

/// Stands for an eventfd: a word to sleep on.
struct Word(AtomicU32);

impl Event for Word {
    fn raise(&self) {
        assert_eq!(self.0.swap(1, Ordering::AcqRel), 0);
        futex::wake(&self.0);
    }

    fn lower(&self) {
        assert_eq!(self.0.swap(0, Ordering::AcqRel), 1);
    }
}

impl Word {
    fn wait(&self) {
        while self.0.load(Ordering::Acquire) == 0 {
            futex::wait(&self.0, 0, None);
        }
    }
}

/// Reports the reader's state, as a pipe does after each look, and waits until the event is raised.
fn wait_for(watcher: &Watcher<Word, Reading<Sink>>, reader: &Reader, fronts: Vec<Sink>) {
    let is_over = reader.is_done();
    watcher.set_watched(Reading { sleeper: reader.sleeper(), is_over, fronts });
    watcher.event().wait();
}

/// The event is raised for a block and for the end, whenever they come.
#[test]
fn a_descriptor_is_readable_when_something_comes() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Every);
        let mut reader = reader(&mut ring, &mut writer, OnFull::Overwrite);
        let watcher = Arc::new(Watcher::new(Word(AtomicU32::new(0))));
        let of_thread = Arc::clone(&watcher);
        let watching = thread::spawn(move || of_thread.run());
        let writing = thread::spawn(move || write(&mut writer, 1));
        let mut got = Vec::new();
        loop {
            match take(&mut reader) {
                Ok(block) => got.extend(block.unwrap()),
                Err(Nothing::Yet) => wait_for(&watcher, &reader, Vec::new()),
                Err(nothing) => break assert_eq!(nothing, Nothing::Ended),
            }
        }
        assert_eq!(got, [1]);
        watcher.close();
        watching.join().unwrap();
        writing.join().unwrap();
    });
}

/// It is also raised when the reader of a forwarded block has moved, even after the end of the ring itself.
#[test]
fn a_descriptor_is_readable_when_what_was_forwarded_is_passed() {
    for is_over in [false, true] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 2, Signalling::Every);
            let mut here = reader(&mut ring, &mut writer, OnFull::Wait);
            if is_over {
                writer.close();
                assert_eq!(here.peek(), Err(Nothing::Ended));
            } else {
                std::mem::forget(writer);
            }
            let (mut other, mut writer) = self::ring(RingKind::P, 2, Signalling::Every);
            let mut there = reader(&mut other, &mut writer, OnFull::Wait);
            write(&mut writer, 1);
            let sink = Sink(Arc::new(Mutex::new(writer)));
            let watcher = Arc::new(Watcher::new(Word(AtomicU32::new(0))));
            let of_thread = Arc::clone(&watcher);
            let watching = thread::spawn(move || of_thread.run());
            let reading = thread::spawn(move || {
                assert_eq!(take(&mut there), Ok(Some(vec![1])));
                there
            });
            while sink.0.lock().unwrap().passed() == 0 {
                assert!(here.peek().is_err());
                wait_for(&watcher, &here, vec![sink.clone()]);
            }
            watcher.close();
            watching.join().unwrap();
            drop(reading.join().unwrap());
        });
    }
}

impl Locked for Sink {
    fn with<T>(&self, look: impl FnOnce(&mut Writer, bool) -> T) -> T {
        look(&mut self.0.lock().unwrap(), true)
    }
}

/// A writer's event is raised when the reader in the way has moved or left, and when the first reader joins.
#[test]
fn a_descriptor_is_writable_when_there_is_room() {
    #[derive(Clone, Copy, PartialEq)]
    enum Cause {
        Takes,
        Leaves,
        Comes,
    }
    for cause in [Cause::Takes, Cause::Leaves, Cause::Comes] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
            let mut there =
                if cause == Cause::Comes { None } else { Some(reader(&mut ring, &mut writer, OnFull::Wait)) };
            if there.is_some() {
                write(&mut writer, 1);
            }
            let sink = Sink(Arc::new(Mutex::new(writer)));
            let watcher = Arc::new(Watcher::new(Word(AtomicU32::new(0))));
            let of_thread = Arc::clone(&watcher);
            let watching = thread::spawn(move || of_thread.run());
            let reading = thread::spawn(move || {
                match cause {
                    Cause::Takes => assert_eq!(take(there.as_mut().unwrap()), Ok(Some(vec![1]))),
                    Cause::Leaves => there = None,
                    Cause::Comes => there = Some(newcomer(&mut ring, OnFull::Wait)),
                }
                (ring, there)
            });
            let wanted = Wanted { room: 1, reader: cause == Cause::Comes };
            while !wanted.is_there(&sink) {
                watcher.set_watched(Writing { sink: sink.clone(), wanted });
                watcher.event().wait();
            }
            watcher.close();
            watching.join().unwrap();
            drop(reading.join().unwrap());
        });
    }
}

#[test]
fn a_writer_that_sleeps_without_its_lock_is_woken() {
    for takes in [true, false] {
        check(move || {
            let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
            let mut reader = reader(&mut ring, &mut writer, OnFull::Wait);
            write(&mut writer, 1);
            let thread = thread::spawn(move || {
                if takes {
                    assert_eq!(take(&mut reader), Ok(Some(vec![1])));
                    return Some((ring, reader));
                }
                drop(reader);
                None
            });
            let sink = Sink(Arc::new(Mutex::new(writer)));
            while sink.with(|writer, _| writer.room_needs(1)).unwrap().is_some() {
                sleep_for_readers(&sink, |writer| writer.sleep_needs(1));
            }
            drop(thread.join().unwrap());
        });
    }
}

#[test]
fn who_waits_for_two_readers_is_woken_by_the_slower_one() {
    check(|| {
        let (mut ring, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let readers = [(); 2].map(|()| reader(&mut ring, &mut writer, OnFull::Wait));
        write(&mut writer, 1);
        let threads = readers.map(|mut reader| {
            thread::spawn(move || {
                assert_eq!(take(&mut reader), Ok(Some(vec![1])));
                reader
            })
        });
        let sink = Sink(Arc::new(Mutex::new(writer)));
        while sink.with(|writer, _| writer.needed_by(0)).is_some() {
            sleep_for_readers(&sink, |writer| writer.needed_by(0));
        }
        assert_eq!(sink.with(|writer, _| writer.passed()), 1);
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    });
}

#[test]
fn who_watches_goes_on_watching_in_another_ring() {
    check(|| {
        let (_small, mut before) = ring(RingKind::P, 1, Signalling::Every);
        before.watch();
        let (mut large, mut writer) = ring(RingKind::P, 1, Signalling::Every);
        let mut reader = reader(&mut large, &mut writer, OnFull::Wait);
        write(&mut writer, 1);
        let thread = thread::spawn(move || {
            assert_eq!(take(&mut reader), Ok(Some(vec![1])));
            reader
        });
        writer.go_on_from(&before);
        let sink = Sink(Arc::new(Mutex::new(writer)));
        while sink.with(|writer, _| writer.needed_by(0)).is_some() {
            sleep_for_readers(&sink, |writer| writer.needed_by(0));
        }
        drop(thread.join().unwrap());
    });
}
