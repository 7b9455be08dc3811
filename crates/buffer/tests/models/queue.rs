//! Both queues under the model checker, which tries every order of their steps that C11 allows, up to some preemptions.
//!
//! The checker lets no load see a store that was not made yet, so a slot that is written too early does not show in the
//! slot itself. `a_slot_is_free_after_it_was_read` therefore watches memory beside the queue, which entries stand for,
//! like the payload of a data ring.

use buffer::queue::{Closed, Entry, Pop, PopError, Push, PushError, fast_forward, indexed};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// Tries every order, within a bound on preemptions. Without it that would take days.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(model);
}

trait Queue {
    type Sender<T: Entry>: Push<T> + Send + 'static;
    type Receiver<T: Entry>: Pop<T> + Send + 'static;

    fn new<T: Entry>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>);
}

struct Indexed;

impl Queue for Indexed {
    type Sender<T: Entry> = indexed::Sender<T>;
    type Receiver<T: Entry> = indexed::Receiver<T>;

    fn new<T: Entry>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        indexed::queue(capacity).unwrap()
    }
}

struct FastForward;

impl Queue for FastForward {
    type Sender<T: Entry> = fast_forward::Sender<T>;
    type Receiver<T: Entry> = fast_forward::Receiver<T>;

    fn new<T: Entry>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        fast_forward::queue(capacity).unwrap()
    }
}

/// Two words that belong together: torn entries, and entries of another lap, show.
fn entry(number: u64) -> [u64; 2] {
    [number + 1, (number + 1) * 10]
}

/// One by one, for more than two laps: all entries, in order, whole.
fn entries_come_in_order<Q: Queue>(capacity: usize, count: u64) {
    check(move || {
        let (mut sender, mut receiver) = Q::new(capacity);
        let sending = thread::spawn(move || {
            for number in 0..count {
                while sender.push(entry(number)).is_err() {
                    thread::yield_now();
                }
            }
        });
        for number in 0..count {
            let found = loop {
                match receiver.pop() {
                    Ok(found) => break found,
                    Err(PopError::Empty) => thread::yield_now(),
                    Err(PopError::Closed) => panic!("closed before entry {number}"),
                }
            };
            assert_eq!(found, entry(number));
        }
        sending.join().unwrap();
        assert_eq!(receiver.pop(), Err(PopError::Closed));
    });
}

fn batches_come_in_order<Q: Queue>(capacity: usize, count: u64) {
    check(move || {
        let (mut sender, mut receiver) = Q::new(capacity);
        let sending = thread::spawn(move || {
            let mut entries = (0..count).map(entry);
            let mut sent = 0;
            while sent < count {
                match sender.push_batch(&mut entries) {
                    Ok(0) => thread::yield_now(),
                    Ok(some) => sent += some as u64,
                    Err(Closed) => panic!("the receiver is still there"),
                }
            }
        });
        let mut number = 0;
        loop {
            let taken = receiver.pop_batch(usize::MAX, |found| {
                assert_eq!(found, entry(number));
                number += 1;
            });
            match taken {
                Ok(0) => thread::yield_now(),
                Ok(_) => {}
                Err(Closed) => break,
            }
        }
        assert_eq!(number, count);
        sending.join().unwrap();
    });
}

fn a_slot_is_free_after_it_was_read<Q: Queue>(capacity: usize, count: u64) {
    struct Payload(Vec<UnsafeCell<u64>>);
    // SAFETY: tested instead of proven: the checker's cells report every access that is not ordered.
    unsafe impl Sync for Payload {}

    check(move || {
        let (mut sender, mut receiver) = Q::new::<u64>(capacity);
        let payload = Arc::new(Payload((0..capacity).map(|_| UnsafeCell::new(0)).collect()));
        let place = move |number: u64| number as usize % capacity;
        let sending = thread::spawn({
            let payload = payload.clone();
            move || {
                let mut entries = (0..count).inspect(|&number| {
                    // SAFETY: the checker's cells find out whether the other side reads meanwhile.
                    payload.0[place(number)].with_mut(|cell| unsafe { *cell = number });
                });
                let mut sent = 0;
                while sent < count {
                    match sender.push_batch(&mut entries).unwrap() {
                        0 => thread::yield_now(),
                        some => sent += some as u64,
                    }
                }
            }
        });
        let mut number = 0;
        while number < count {
            let before = number;
            let taken = receiver.pop_batch(1, |found| {
                // SAFETY: as above.
                let in_payload = payload.0[place(found)].with(|cell| unsafe { *cell });
                assert_eq!((found, in_payload), (number, number));
                number += 1;
            });
            assert!(taken.is_ok());
            if number == before {
                thread::yield_now();
            }
        }
        sending.join().unwrap();
    });
}

fn closing_loses_nothing<Q: Queue>(capacity: usize, count: u64) {
    check(move || {
        let (mut sender, mut receiver) = Q::new(capacity);
        let sending = thread::spawn(move || {
            for number in 0..count {
                sender.push(entry(number)).unwrap();
            }
        });
        let mut number = 0;
        loop {
            match receiver.pop() {
                Ok(found) => {
                    assert_eq!(found, entry(number));
                    number += 1;
                }
                Err(PopError::Empty) => thread::yield_now(),
                Err(PopError::Closed) => break,
            }
        }
        assert_eq!(number, count);
        sending.join().unwrap();
    });
}

/// A sender whose receiver went does not wait for ever, and gets its entry back.
fn a_receiver_that_went_is_seen<Q: Queue>(capacity: usize) {
    check(move || {
        let (mut sender, mut receiver) = Q::new(capacity);
        let receiving = thread::spawn(move || {
            if let Ok(found) = receiver.pop() {
                assert_eq!(found, entry(0));
            }
        });
        let mut number = 0;
        let back = loop {
            match sender.push(entry(number)) {
                Ok(()) => number += 1,
                Err(PushError::Full(back)) => {
                    assert_eq!(back, entry(number));
                    thread::yield_now();
                }
                Err(PushError::Closed(back)) => break back,
            }
            assert!(number <= capacity as u64 + 1, "more than there is room for");
            // A sender that still has room need not notice.
            if number == capacity as u64 + 1 {
                break entry(number);
            }
        };
        assert_eq!(back, entry(number));
        receiving.join().unwrap();
        assert!(sender.is_closed());
        assert_eq!(sender.push_batch(&mut [entry(9)].into_iter()), Err(Closed));
    });
}

/// In queues of sixteen slots a side lets the other one get ahead; that must not change the result.
fn slip_changes_nothing<Q: Queue>() {
    entries_come_in_order::<Q>(16, 3);
    batches_come_in_order::<Q>(16, 4);
}

macro_rules! models {
    ($($module:ident $queue:ty;)*) => {
        $(mod $module {
            use super::*;

            #[test]
            fn entries_come_in_order() {
                super::entries_come_in_order::<$queue>(2, 5);
                super::entries_come_in_order::<$queue>(1, 3);
            }

            #[test]
            fn batches_come_in_order() {
                super::batches_come_in_order::<$queue>(2, 5);
            }

            #[test]
            fn a_slot_is_free_after_it_was_read() {
                super::a_slot_is_free_after_it_was_read::<$queue>(2, 5);
                super::a_slot_is_free_after_it_was_read::<$queue>(1, 3);
            }

            #[test]
            fn closing_loses_nothing() {
                super::closing_loses_nothing::<$queue>(4, 3);
            }

            #[test]
            fn a_receiver_that_went_is_seen() {
                super::a_receiver_that_went_is_seen::<$queue>(2);
            }

            #[test]
            fn slip_changes_nothing() {
                super::slip_changes_nothing::<$queue>();
            }
        })*
    };
}

models! {
    indexed_queue Indexed;
    fast_forward_queue FastForward;
}
