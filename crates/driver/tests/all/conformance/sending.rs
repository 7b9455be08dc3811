//! Checks of every sender.

use super::bed::{Ability, Bed, PATIENCE, Subject, Wanted, check, receive};
use super::frames::{numbered, sizes, tagged};
use driver::Turn;
use std::time::Instant;

pub fn send_all(bed: &mut Bed, frames: &[Vec<u8>]) {
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let (mut sent, end) = (0, Instant::now() + PATIENCE);
    while sent < frames.len() {
        assert!(Instant::now() < end, "{sent} frames went; {:?}", bed.sender.statistics());
        match bed.sender.transmit(&frames[sent..]).expect("the device is there") {
            Turn::Frames(taken) => sent += taken,
            Turn::Nothing => assert!(bed.sender.wait_for_room(PATIENCE).expect("as above"), "there is never room"),
            Turn::Down => panic!("it is up"),
        }
    }
}

pub fn every_size_is_sent_whole(subject: &Subject) {
    let mut bed = subject.open();
    let sent: Vec<Vec<u8>> = (14..=1514).map(|len| numbered(len as u64, len)).collect();
    send_all(&mut bed, &sent);
    check(&receive(&mut *bed.observer, sent.len()), &sent);
    let counted = bed.sender.statistics().expect("it is there");
    let bytes: usize = sent.iter().map(Vec::len).sum();
    assert_eq!((counted.taken, counted.sent, counted.sent_bytes), (1501, 1501, bytes as u64));
}

pub fn tags_are_sent_as_they_are(subject: &Subject) {
    let mut bed = subject.open();
    let frame = || numbered(3, 90);
    let sent = [tagged(frame(), 0x8100, 7), tagged(tagged(frame(), 0x8100, 5), 0x88a8, 100), frame()];
    send_all(&mut bed, &sent);
    check(&receive(&mut *bed.observer, sent.len()), &sent);
}

pub fn what_does_not_fit_is_counted(subject: &Subject) {
    if !subject.can(Ability::Limits) {
        return;
    }
    let mut bed = subject.open();
    // A tag does not count towards the limit.
    let good = [numbered(1, 60), tagged(numbered(2, 1514), 0x8100, 7), numbered(3, 1514)];
    let [long, short] = [numbered(9, 1519), numbered(9, 13)];
    send_all(&mut bed, &[good[0].clone(), long, good[1].clone(), short, good[2].clone()]);
    check(&receive(&mut *bed.observer, good.len()), &good);
    let counted = bed.sender.statistics().expect("it is there");
    assert_eq!((counted.taken, counted.sent), (5, 3));
    assert_eq!((counted.too_long, counted.malformed, counted.refused, counted.under_way), (1, 1, 0, 0));
}

pub fn many_frames_are_sent_in_order(subject: &Subject) {
    const ROUND: usize = 500;
    let mut bed = subject.open_with(Wanted::default());
    for round in 0..20 {
        let numbers = (round * ROUND)..((round + 1) * ROUND);
        let sent: Vec<Vec<u8>> =
            numbers.zip(sizes(60, 1514)).map(|(number, len)| numbered(number as u64, len)).collect();
        send_all(&mut bed, &sent);
        check(&receive(&mut *bed.observer, ROUND), &sent);
    }
    assert_eq!(bed.sender.statistics().expect("it is there").sent, 20 * ROUND as u64);
}
