//! Both queues against a `VecDeque`, and between two threads that run for thousands of laps.

use base::id::{Class, RingId};
use buffer::Descriptor;
use buffer::queue::{Closed, Entry, Misfit, Pop, PopError, Push, PushError, fast_forward, indexed};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    Push,
    Pop,
    PushBatch(usize),
    PopBatch(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Push),
        3 => Just(Step::Pop),
        1 => (0..12usize).prop_map(Step::PushBatch),
        1 => (0..12usize).prop_map(Step::PopBatch),
    ]
}

fn descriptor(number: u64) -> Descriptor {
    let class = Class(number as u32);
    Descriptor { pos: number << 32, time: !number, len: 9, class, ring: RingId(3), ..Descriptor::default() }
}

fn check<T: Entry + PartialEq + std::fmt::Debug>(
    (mut sender, mut receiver): (impl Push<T>, impl Pop<T>),
    steps: &[Step],
    make: impl Fn(u64) -> T,
) {
    let capacity = sender.capacity();
    assert_eq!(receiver.capacity(), capacity);
    let (mut expected, mut next) = (VecDeque::new(), 0);
    for step in steps {
        match *step {
            Step::Push => {
                let is_full = expected.len() == capacity;
                let outcome = sender.push(make(next));
                assert_eq!(outcome, if is_full { Err(PushError::Full(make(next))) } else { Ok(()) });
                if !is_full {
                    expected.push_back(make(next));
                }
                next += 1;
            }
            Step::Pop => assert_eq!(receiver.pop(), expected.pop_front().ok_or(PopError::Empty)),
            Step::PushBatch(count) => {
                let fits = count.min(capacity - expected.len());
                let mut batch = (next..next + count as u64).map(&make);
                assert_eq!(sender.push_batch(&mut batch), Ok(fits));
                assert_eq!(batch.next(), (fits < count).then(|| make(next + fits as u64)), "none is asked for in vain");
                expected.extend((next..next + fits as u64).map(&make));
                next += count as u64;
            }
            Step::PopBatch(limit) => {
                let mut taken = Vec::new();
                let count = receiver.pop_batch(limit, |entry| taken.push(entry));
                assert_eq!(count, Ok(taken.len()));
                assert!(taken.len() <= limit.min(expected.len()));
                assert!(!taken.is_empty() || limit == 0 || expected.is_empty(), "something of what there is");
                for entry in taken {
                    assert_eq!(Some(entry), expected.pop_front());
                }
            }
        }
    }
    drop(sender);
    while let Some(entry) = expected.pop_front() {
        assert_eq!(receiver.pop(), Ok(entry));
    }
    assert_eq!(receiver.pop(), Err(PopError::Closed));
    assert_eq!(receiver.pop_batch(4, |_| panic!("nothing is left")), Err(Closed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_is_a_bounded_deque(power in 0..7u32, steps in prop::collection::vec(step(), 0..200)) {
        let capacity = 1 << power;
        check(indexed::queue(capacity).unwrap(), &steps, |number| number);
        check(fast_forward::queue(capacity).unwrap(), &steps, |number| number);
        check(indexed::queue(capacity).unwrap(), &steps, descriptor);
        check(fast_forward::queue(capacity).unwrap(), &steps, descriptor);
        check(fast_forward::queue(capacity).unwrap(), &steps, |number| [number; 7]);
    }
}

/// Sends numbered entries one by one and in batches of changing size; checks their order and their sum.
fn check_threads<T: Entry + PartialEq + std::fmt::Debug>(
    (mut sender, mut receiver): (impl Push<T> + Send, impl Pop<T> + Send),
    make: impl Fn(u64) -> T + Send + Copy,
) {
    let laps = 1500;
    let entries = (sender.capacity() * laps) as u64;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut number = 0;
            while number < entries {
                let before = number;
                if number % 7 == 0 {
                    let batch = number..entries.min(number + 1 + number % 40);
                    number += sender.push_batch(&mut batch.map(make)).unwrap() as u64;
                } else if sender.push(make(number)).is_ok() {
                    number += 1;
                }
                if number == before {
                    // Both threads may share a processor: spinning alone would wait for a whole time slice.
                    std::thread::yield_now();
                }
            }
        });
        let (mut number, mut sum) = (0u64, 0u64);
        let mut take = |entry: T| {
            assert_eq!(entry, make(number));
            sum += number;
            number += 1;
        };
        let mut turn = 0;
        loop {
            turn += 1;
            let taken = if turn % 5 == 0 {
                receiver.pop().map(|entry| {
                    take(entry);
                    1
                })
            } else {
                receiver.pop_batch(turn % 50 + 1, &mut take).map_err(PopError::from)
            };
            match taken {
                Ok(0) | Err(PopError::Empty) => std::thread::yield_now(),
                Ok(_) => {}
                Err(PopError::Closed) => break,
            }
        }
        assert_eq!((number, sum), (entries, entries * (entries - 1) / 2));
    });
}

#[test]
fn two_threads_lose_and_double_nothing() {
    for capacity in [1, 2, 64] {
        check_threads(indexed::queue(capacity).unwrap(), |number| number);
        check_threads(fast_forward::queue(capacity).unwrap(), |number| number);
        check_threads(indexed::queue(capacity).unwrap(), descriptor);
        check_threads(fast_forward::queue(capacity).unwrap(), descriptor);
    }
}

fn check_receiver_gone((mut sender, receiver): (impl Push<u64>, impl Pop<u64>)) {
    assert!(!sender.is_closed());
    sender.push(1).unwrap();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.push(2), Err(PushError::Closed(2)));
    assert_eq!(sender.push_batch(&mut (3..9)), Err(Closed));
}

#[test]
fn a_receiver_that_went_is_told_at_once() {
    check_receiver_gone(indexed::queue(4).unwrap());
    check_receiver_gone(fast_forward::queue(4).unwrap());
}

#[test]
fn a_batch_that_panics_takes_nothing() {
    fn check((mut sender, mut receiver): (impl Push<u64>, impl Pop<u64>)) {
        sender.push_batch(&mut (0..3)).unwrap();
        let panicking = std::panic::AssertUnwindSafe(|| receiver.pop_batch(3, |_| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!([receiver.pop(), receiver.pop(), receiver.pop()], [Ok(0), Ok(1), Ok(2)]);
        // A sender whose iterator panics sends the entries before, or none, and goes on after that.
        let mut broken = (3..9).map(|number| if number == 5 { panic!("on purpose") } else { number });
        let panicking = std::panic::AssertUnwindSafe(|| sender.push_batch(&mut broken));
        assert!(std::panic::catch_unwind(panicking).is_err());
        sender.push(100).unwrap();
        let rest: Vec<u64> = std::iter::from_fn(|| receiver.pop().ok()).collect();
        assert!(rest == [3, 4, 100] || rest == [100], "{rest:?}");
    }
    check(indexed::queue(8).unwrap());
    check(fast_forward::queue(8).unwrap());
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for capacity in [0, 3, 1 << 40, usize::MAX] {
        assert_eq!(indexed::queue::<u64>(capacity).err(), Some(Misfit::Capacity(capacity)));
        assert_eq!(fast_forward::queue::<u64>(capacity).err(), Some(Misfit::Capacity(capacity)));
    }
}
