//! Joins two tests of neighbouring bytes. `src or dst port 80`, `host` and `net` compare two fields that lie within
//! eight bytes (`Either`); EtherType, protocol and fragment offset follow each other (`Both`).
//!
//! A pair is an addition. Its two tests stay: other edges may lead to the second one, and the first decides if the
//! packet is too short for the eight bytes.

use crate::node::{Node, NodeIndex, Pair, Second, Window};

/// For each block, the pair that can replace its test. Targets are still numbers of blocks.
pub(crate) fn find(nodes: &[Option<Node>]) -> Vec<Option<Node>> {
    let mut pairs: Vec<Option<Node>> = vec![None; nodes.len()];
    // Back to front, so that a third test can join a pair.
    for at in (0..nodes.len()).rev() {
        let (header, first) = match &nodes[at] {
            Some(Node::Equal(window)) => (None, window),
            Some(Node::BehindEqual(header, window)) => (Some(*header), window),
            _ => continue,
        };
        // Nodes lead to later ones, so the number of this one fits.
        let Ok(short) = NodeIndex::try_from(at) else { continue };
        let first_test = Test::of(first);
        let both = [pairs.get(usize::from(first.yes)), nodes.get(usize::from(first.yes))]
            .into_iter()
            .filter_map(|node| Test::conjunction(node?.as_ref()?, header))
            .filter(|second| second.no == first.no)
            .find_map(|second| {
                let (start, [one, two]) = align([first_test, second])?;
                // Tests that never hold, alone or together, are not worth a special case.
                let agree = (one.value ^ two.value) & one.mask & two.mask == 0
                    && one.value & !one.mask == 0
                    && two.value & !two.mask == 0;
                let (mask, value) = (one.mask | two.mask, one.value | two.value);
                agree.then_some(Pair { start, short, yes: second.yes, no: second.no, mask, value })
            });
        if let Some(pair) = both {
            pairs[at] = Some(header.map_or(Node::Both(pair), |header| Node::BehindBoth(header, pair)));
            continue;
        }
        let either = nodes
            .get(usize::from(first.no))
            .and_then(|node| Test::conjunction(node.as_ref()?, header))
            .filter(|second| second.yes == first.yes)
            .and_then(|second| {
                let (start, [one, two]) = align([first_test, second])?;
                let pair = Pair { start, short, yes: second.yes, no: second.no, mask: one.mask, value: one.value };
                Some((pair, Second { mask: two.mask, value: two.value }))
            });
        pairs[at] = either.map(|(pair, second)| match header {
            None => Node::Either(pair, second),
            Some(header) => Node::BehindEither(header, pair, second),
        });
    }
    pairs
}

/// The common parts of a window and a [`Node::Both`].
#[derive(Debug, Clone, Copy)]
struct Test {
    start: u16,
    yes: NodeIndex,
    no: NodeIndex,
    mask: u64,
    value: u64,
}

impl Test {
    fn of(window: &Window) -> Test {
        let Window { start, yes, no, mask, value, .. } = *window;
        Test { start, yes, no, mask, value }
    }

    /// The node as one comparison of masked bytes, behind the same header.
    fn conjunction(node: &Node, header: Option<u16>) -> Option<Test> {
        match (node, header) {
            (Node::Equal(window), None) => Some(Test::of(window)),
            (Node::BehindEqual(behind, window), Some(header)) if *behind == header => Some(Test::of(window)),
            (Node::Both(pair), None) => Some(Test::of_pair(pair)),
            (Node::BehindBoth(behind, pair), Some(header)) if *behind == header => Some(Test::of_pair(pair)),
            _ => None,
        }
    }

    fn of_pair(pair: &Pair) -> Test {
        let Pair { start, yes, no, mask, value, .. } = *pair;
        Test { start, yes, no, mask, value }
    }
}

/// Moves both tests into the later of the two windows, if their bits lie in it. A value may have bits outside its mask
/// (a test that never holds); they must fit, too.
fn align(tests: [Test; 2]) -> Option<(u16, [Test; 2])> {
    let start = tests[0].start.max(tests[1].start);
    let moved = |test: Test| {
        let shift = 8 * u32::from(start - test.start);
        let (mask, value) = (test.mask.checked_shl(shift)?, test.value.checked_shl(shift)?);
        (mask >> shift == test.mask && value >> shift == test.value).then_some(Test { start, mask, value, ..test })
    };
    Some((start, [moved(tests[0])?, moved(tests[1])?]))
}
