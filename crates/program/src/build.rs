//! The interpreter's code: the intermediate form, rewritten into self-contained tests.
//!
//! Most blocks from libpcap load one field, mask it and compare it with a constant. Such a block becomes a [`Window`](crate::node::Window): the
//! eight packet bytes that end with the field, a mask and a value, without registers. A block may compare a value that an
//! earlier block loaded (the EtherType, or X from the IPv4 header length). Such values are followed as [`Symbol`]s (see
//! [`walk`](crate::walk)) and loaded again, which costs less than keeping them. Two tests that share eight bytes and a target
//! become one ([`pair`]). Only the remaining blocks (arithmetic, memory, values that differ by path) stay steps on registers.
//!
//! Loads must fail exactly where the original ones fail. So a window requires all bytes that its block loads (`need`).
//! A block whose loads reach beyond its window stays steps on registers.

use crate::ir::{Block, End, Program};
use crate::node::{Code, Node, NodeIndex, Register, Registers, RegistersEnd};
use crate::op::Op;
use crate::pair;
use crate::symbol::Symbol;
use crate::walk::{Walk, Wanted, walk};

/// Makes the nodes of a program.
pub(crate) fn build(program: &Program) -> Code {
    let blocks = program.blocks();
    let walks = walk(blocks);
    let mut wanted = vec![Wanted::default(); blocks.len()];
    let mut nodes: Vec<Option<Node>> = vec![None; blocks.len()];
    for at in (0..blocks.len()).rev() {
        let block = &blocks[at];
        let after = match block.end {
            // The target of a backward edge comes later, so assume that it reads everything.
            End::Repeat(_) => Wanted { a: true, x: true, memory: u16::MAX },
            end => end.successors().map(|to| wanted[to.index()]).fold(Wanted::default(), Wanted::or),
        };
        if matches!(block.end, End::Return(_)) && block.steps.is_empty() {
            continue;
        }
        let walk = &walks[at];
        let kept = (walk.sets.a && after.a) || (walk.sets.x && after.x);
        let test = if kept { None } else { walk.test(block) };
        nodes[at] = Some(match test {
            Some(node) => {
                wanted[at] = after;
                node
            }
            None => {
                let (node, want) = registers(block, walk, after);
                wanted[at] = want;
                node
            }
        });
    }
    let pairs = pair::find(&nodes);
    assign(blocks, nodes, pairs)
}

/// The block as steps on registers, with the values that it needs first, and those that earlier blocks must keep.
fn registers(block: &Block, walk: &Walk, after: Wanted) -> (Node, Wanted) {
    let mut want = walk.reads.or(after.without(walk.sets));
    let mut prelude = Vec::new();
    if want.x && walk.before.x != Symbol::Unknown {
        prelude.push((Register::X, walk.before.x));
        want.x = false;
    }
    if want.a && walk.before.a != Symbol::Unknown {
        prelude.push((Register::A, walk.before.a));
        want.a = false;
    }
    let end = match block.end {
        End::Return(length) => RegistersEnd::Return(length),
        End::ReturnA => RegistersEnd::ReturnA,
        End::Jump(to) => RegistersEnd::Jump(to.0),
        End::Repeat(to) => RegistersEnd::Repeat(to.0),
        End::Branch { test, operand, yes, no } => RegistersEnd::Branch { test, operand, yes: yes.0, no: no.0 },
    };
    let ops = block.steps.iter().map(|&step| Op::new(step)).collect();
    (Node::Registers(Box::new(Registers { prelude, ops, end })), want)
}

/// Assigns indexes to nodes and verdicts: each pair before its first test, in the order of the blocks.
fn assign(blocks: &[Block], nodes: Vec<Option<Node>>, pairs: Vec<Option<Node>>) -> Code {
    let count = nodes.iter().chain(&pairs).flatten().count();
    let mut verdicts = Vec::new();
    // The targets of edges to a block, and the index of its own test.
    let mut entries = Vec::with_capacity(blocks.len());
    let mut singles = Vec::with_capacity(blocks.len());
    let mut next = 0;
    for ((block, node), pair) in blocks.iter().zip(&nodes).zip(&pairs) {
        let entry = match (node, block.end) {
            (None, End::Return(length)) => {
                verdicts.push(length);
                count + verdicts.len() - 1
            }
            _ => next,
        };
        next += usize::from(pair.is_some());
        entries.push(number(entry));
        singles.push(number(next));
        next += usize::from(node.is_some());
    }
    let mut placed = Vec::with_capacity(count);
    for (node, pair) in nodes.into_iter().zip(pairs) {
        for mut node in [pair, node].into_iter().flatten() {
            node.relocate(&entries, &singles);
            placed.push(node);
        }
    }
    Code { entry: entries[0], nodes: placed, verdicts }
}

/// At most `MAX_BLOCKS` nodes and fewer pairs, so all indexes fit.
fn number(index: usize) -> NodeIndex {
    NodeIndex::try_from(index).unwrap_or(NodeIndex::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbpf::Instruction;

    /// The names of reachable nodes. `short` edges are not followed.
    fn check(code: &[(u16, u8, u8, u32)], expected: &[&str]) {
        let code: Vec<Instruction> = code.iter().map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect();
        let Code { entry, nodes, .. } = build(&crate::from_cbpf(&code).unwrap());
        let mut reached = vec![false; nodes.len()];
        if let Some(first) = reached.get_mut(usize::from(entry)) {
            *first = true;
        }
        let mut names = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            if !reached[at] {
                continue;
            }
            let (name, next) = match node {
                Node::Equal(window) => ("equal", vec![window.yes, window.no]),
                Node::AtLeast(window) => ("at least", vec![window.yes, window.no]),
                Node::BehindEqual(_, window) => ("behind equal", vec![window.yes, window.no]),
                Node::BehindAtLeast(_, window) => ("behind at least", vec![window.yes, window.no]),
                Node::Both(pair) => ("both", vec![pair.yes, pair.no]),
                Node::Either(pair, _) => ("either", vec![pair.yes, pair.no]),
                Node::BehindBoth(_, pair) => ("behind both", vec![pair.yes, pair.no]),
                Node::BehindEither(_, pair, _) => ("behind either", vec![pair.yes, pair.no]),
                Node::Length { yes, no, .. } => ("length", vec![*yes, *no]),
                Node::Registers(registers) => match registers.end {
                    RegistersEnd::Branch { yes, no, .. } => ("registers", vec![yes, no]),
                    RegistersEnd::Jump(next) => ("registers", vec![next]),
                    _ => ("registers", vec![]),
                },
            };
            names.push(name);
            for index in next {
                assert!(usize::from(index) > at, "edges lead on");
                if let Some(reached) = reached.get_mut(usize::from(index)) {
                    *reached = true;
                }
            }
        }
        assert_eq!(names, expected);
    }

    /// The interpreter's speed depends on this: common expressions become tests without registers, joined where possible.
    #[test]
    fn shapes() {
        // tcp port 80, as libpcap optimises it.
        check(
            &[
                (0x28, 0, 0, 12),
                (0x15, 0, 6, 0x86dd),
                (0x30, 0, 0, 20),
                (0x15, 0, 15, 6),
                (0x28, 0, 0, 54),
                (0x15, 12, 0, 80),
                (0x28, 0, 0, 56),
                (0x15, 10, 11, 80),
                (0x15, 0, 10, 0x800),
                (0x30, 0, 0, 23),
                (0x15, 0, 8, 6),
                (0x28, 0, 0, 20),
                (0x45, 6, 0, 0x1fff),
                (0xb1, 0, 0, 14),
                (0x48, 0, 0, 14),
                (0x15, 2, 0, 80),
                (0x48, 0, 0, 16),
                (0x15, 0, 1, 80),
                (0x06, 0, 0, 9),
                (0x06, 0, 0, 0),
            ],
            &["equal", "equal", "either", "equal", "both", "behind either"],
        );
        // greater 100 and ether[14] > 5
        check(
            &[(0x80, 0, 0, 0), (0x35, 0, 3, 100), (0x30, 0, 0, 14), (0x25, 0, 1, 5), (0x06, 0, 0, 9), (0x06, 0, 0, 0)],
            &["length", "at least"],
        );
        // A sum cannot become a test; the EtherType test before it can.
        check(
            &[
                (0x28, 0, 0, 12),
                (0x15, 0, 4, 0x800),
                (0x30, 0, 0, 14),
                (0x04, 0, 0, 1),
                (0x15, 0, 1, 9),
                (0x06, 0, 0, 9),
                (0x06, 0, 0, 0),
            ],
            &["equal", "registers"],
        );
        // A later block reads scratch memory: both blocks stay on registers.
        check(
            &[
                (0x28, 0, 0, 12),
                (0x02, 0, 0, 1),
                (0x15, 0, 2, 0x800),
                (0x60, 0, 0, 1),
                (0x16, 0, 0, 0),
                (0x06, 0, 0, 0),
            ],
            &["registers", "registers"],
        );
        check(&[(0x06, 0, 0, 9)], &[]);
    }
}
