//! Credit and bells under the model checker: the parts of channels between stages, with threads in the role of
//! `engine`.
//!
//! A sleep in a model has no time limit: a lost signal leaves all threads asleep, and the checker reports that.

use base::atomic::{AtomicBool, Ordering};
use buffer::queue::PopError;
use buffer::queue::bell::Bell;
use buffer::queue::credit::{Giver, Taker, credit};
use buffer::queue::numbers::Queue;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// Tries every order, within a bound on preemptions. Without it that would take days.
fn check(model: impl Fn() + Sync + Send + 'static) {
    check_to(usize::MAX, model);
}

fn check_to(most: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(2).min(most));
    builder.check(model);
}

fn pair(places: usize) -> (Giver, Taker) {
    credit(places, Queue::Indexed, &Arc::new(Bell::new().unwrap())).unwrap()
}

/// The next full place of one of the takers; `None` when all have ended. Sleeps as the source of a stage does.
fn take(takers: &mut [Taker]) -> Option<(usize, u64)> {
    let mut ended = vec![false; takers.len()];
    loop {
        for (index, taker) in takers.iter_mut().enumerate() {
            match taker.take() {
                Ok(place) => return Some((index, place)),
                Err(PopError::Closed) => ended[index] = true,
                Err(PopError::Empty) => {}
            }
        }
        if ended.iter().all(|ended| *ended) {
            return None;
        }
        takers[0].bell().listen();
        for (taker, _) in takers.iter_mut().zip(&ended).filter(|(_, ended)| !**ended) {
            taker.ring_if_ready();
        }
        takers[0].bell().sleep();
        takers[0].bell().quiet();
    }
}

fn places_go_there_and_back(places: usize, count: u64) {
    struct Parcels(Vec<UnsafeCell<u64>>);
    // SAFETY: tested instead of proven: the checker's cells report every access that is not ordered.
    unsafe impl Sync for Parcels {}

    check(move || {
        let (mut giver, taker) = pair(places);
        let parcels = Arc::new(Parcels((0..places).map(|_| UnsafeCell::new(0)).collect()));
        let giving = thread::spawn({
            let parcels = Arc::clone(&parcels);
            move || {
                for number in 0..count {
                    let place = giver.place(|_| {}).unwrap();
                    // SAFETY: the checker's cells find out whether the taker reads meanwhile.
                    parcels.0[place as usize].with_mut(|parcel| unsafe { *parcel = number });
                    giver.give(place);
                }
            }
        });
        let mut takers = [taker];
        for number in 0..count {
            let (_, place) = take(&mut takers).unwrap();
            // SAFETY: as above.
            assert_eq!(parcels.0[place as usize].with(|parcel| unsafe { *parcel }), number);
            takers[0].give_back(std::iter::once(place));
        }
        assert_eq!(take(&mut takers), None);
        giving.join().unwrap();
    });
}

#[test]
fn one_place_goes_there_and_back() {
    places_go_there_and_back(1, 2);
}

#[test]
fn two_places_go_there_and_back() {
    places_go_there_and_back(2, 3);
}

#[test]
fn one_bell_rings_for_two_givers() {
    // With three threads a third preemption takes minutes.
    check_to(2, || {
        let bell = Arc::new(Bell::new().unwrap());
        let ((mut one, of_one), (mut other, of_other)) =
            (credit(1, Queue::Indexed, &bell).unwrap(), credit(1, Queue::Indexed, &bell).unwrap());
        let givers = [
            thread::spawn(move || one.place(|_| {}).into_iter().for_each(|place| one.give(place))),
            thread::spawn(move || other.place(|_| {}).into_iter().for_each(|place| other.give(place))),
        ];
        let mut takers = [of_one, of_other];
        let mut came = [take(&mut takers).unwrap().0, take(&mut takers).unwrap().0];
        came.sort_unstable();
        assert_eq!((came, take(&mut takers)), ([0, 1], None));
        givers.into_iter().for_each(|giver| giver.join().unwrap());
    });
}

#[test]
fn no_leaving_is_slept_through() {
    check(|| {
        let (mut giver, mut taker) = pair(1);
        let giving = thread::spawn(move || {
            while let Some(place) = giver.place(|_| {}) {
                giver.give(place);
            }
            giver
        });
        taker.leave();
        assert!(giving.join().unwrap().has_left());
    });
}

#[test]
fn no_end_is_slept_through() {
    check(|| {
        let (mut giver, taker) = pair(1);
        let giving = thread::spawn(move || {
            giver.end();
            giver
        });
        assert_eq!(take(&mut [taker]), None);
        giving.join().unwrap();
    });
}

#[test]
fn no_wish_to_stop_is_slept_through() {
    check(|| {
        let (bell, stop) = (Arc::new(Bell::new().unwrap()), Arc::new(AtomicBool::new(false)));
        let asking = thread::spawn({
            let (bell, stop) = (Arc::clone(&bell), Arc::clone(&stop));
            move || {
                stop.store(true, Ordering::Relaxed);
                bell.call();
            }
        });
        while !stop.load(Ordering::Relaxed) {
            bell.listen();
            bell.sleep();
            bell.quiet();
        }
        asking.join().unwrap();
    });
}
