//! Held data, against the rule byte by byte.

use crate::parts::policy::{ALL, Policy};
use crate::tcp::held::Held;
use crate::tcp::piece::Piece;
use buffer::{BlockTable, Interface};
use proptest::prelude::*;

const LANE: u32 = 3;

/// Each byte remembers its current piece. `None` for a hole.
fn by_byte(steps: &[(usize, usize)], policy: Policy) -> Vec<Option<usize>> {
    let mut owners: Vec<Option<usize>> = Vec::new();
    for (number, &(start, len)) in steps.iter().enumerate() {
        let end = start + len;
        owners.resize(owners.len().max(end), None);
        let before = owners.clone();
        let mut at = start;
        while at < end {
            let Some(owner) = before[at] else {
                owners[at] = Some(number);
                at += 1;
                continue;
            };
            // A run with one owner is a piece.
            let from = (0..=at).rev().take_while(|place| before[*place] == Some(owner)).last().unwrap();
            let to = (at..before.len()).take_while(|place| before[*place] == Some(owner)).last().unwrap() + 1;
            if policy.takes_later_in_stream((from as u64, to as u64), (start as u64, end as u64)) {
                owners[at..to.min(end)].fill(Some(number));
            }
            at = to.min(end);
        }
    }
    owners
}

proptest! {
    #[test]
    fn any_pieces_are_as_the_rule_says_byte_by_byte(
        steps in proptest::collection::vec((0usize..40, 1usize..12), 1..12),
        policy in proptest::sample::select(ALL.to_vec()),
        until in 0u64..50,
    ) {
        let mut rings = BlockTable::new();
        let segment = rings.add_append_ring();
        let view = rings.add_view(segment, Interface::default()).unwrap();
        let mut held = Held::default();
        let (mut new, mut pieces) = (0, 0);
        for (number, (start, len)) in steps.iter().enumerate() {
            let block = rings.append_copy(view, &[&vec![b'a' + number as u8; *len]]).unwrap();
            let piece = Piece { start: *start as u64, end: (*start + *len) as u64, block };
            let (bytes, more) = held.keep(LANE, &piece, policy, &mut rings);
            new += bytes;
            pieces += more;
            prop_assert!(held.meets(LANE, &piece) && !held.meets(LANE + 1, &piece));
            prop_assert_eq!(pieces, held.pieces() as i64);
        }
        let owners = by_byte(&steps, policy);
        let count = owners.iter().flatten().count() as u64;
        prop_assert_eq!((new, held.bytes(), held.end(LANE)), (count, count, owners.len() as u64));
        // Taken out in two parts: first the pieces that end before a position in the first run.
        let mut found = vec![None; owners.len()];
        let mut taken = 0;
        let mut put = |rings: &BlockTable, piece: Piece| {
            for (place, byte) in (piece.start..piece.end).zip(rings.bytes(&piece.block)) {
                found[place as usize] = Some(usize::from(byte - b'a'));
            }
        };
        taken += held.take_first(LANE, until, &rings, |piece| {
            assert!(piece.end <= until);
            put(&rings, piece);
        });
        while held.first(LANE).is_some() {
            taken += held.take_first(LANE, u64::MAX, &rings, |piece| put(&rings, piece));
        }
        prop_assert_eq!((found, i64::from(taken)), (owners, pieces));
        prop_assert_eq!((held.pieces(), held.bytes(), held.heavy_lane_after(0)), (0, 0, None));
        // Every hold is released.
        rings.retire(segment);
        rings.recycle(segment);
        prop_assert!(rings.interface(&view.block(0, 0)).is_none(), "something is still held");
    }
}
