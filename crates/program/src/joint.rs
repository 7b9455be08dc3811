//! Decides many programs together: their common tests run once.
//!
//! Input: programs that all see every packet. Output: a [`Tree`] of tests that several programs would make next, with
//! two branches each. A leaf lists the programs that have passed the packet, and where each of the others continues.
//! Rejecting programs are gone: of nine programs for TCP, most have no test left for a UDP packet.
//!
//! Only tests of packet bytes at fixed offsets against constants are shared, since expressions begin with such tests.
//! The rest of a program runs unchanged. A generator that follows the tree (crate `kernel`) must check itself that the
//! bytes of a test are there, and must ask all programs one by one about shorter packets.

use crate::ir::{Block, BlockId, End, Operand, Operation, Program, Size, Step, Test, Value};

/// The most tests of a tree. If a tree becomes too large, the next smaller number is tried.
const SPLITS: [usize; 4] = [64, 16, 4, 1];

/// A program's rest is repeated at each leaf that reaches it, at most to this multiple of all blocks, plus `BLOCKS`.
const GROWTH: usize = 3;
const BLOCKS: usize = 128;

/// A number in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// How many bytes.
    pub size: Size,
    /// Offset of the first byte.
    pub offset: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Key {
    /// The least length of a packet that has the number.
    pub fn reach(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.size.bytes())
    }
}

/// What to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Compares a number in the packet with a value.
    Split {
        /// The number.
        key: Key,
        /// Compared with the number.
        value: u32,
        /// The branch if they are equal.
        yes: Box<Tree>,
        /// The branch if they differ.
        no: Box<Tree>,
    },
    /// No further test is shared.
    Leaf {
        /// The indices of programs that pass the packet.
        passed: Vec<usize>,
        /// Programs that are not finished.
        rest: Vec<Rest>,
    },
}

/// Where a program continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The index of the program.
    pub program: usize,
    /// The block.
    pub at: BlockId,
    /// The number in A. `None`: A is 0. X and memory are still 0.
    pub a: Option<Key>,
}

/// The tree of these programs, with tests of a packet's first `bytes`. `None`: no test is shared, or the tree would be
/// too large. The programs must not repeat.
pub fn tree(programs: &[&Program], bytes: u32) -> Option<Tree> {
    let start = |program| Rest { program, at: BlockId(0), a: None };
    let all: usize = programs.iter().map(|program| program.blocks().len()).sum();
    let grow = |splits| {
        let mut growing = Growing { programs, splits, blocks: all * GROWTH + BLOCKS, bytes, facts: Vec::new() };
        growing.grow((0..programs.len()).map(start).collect(), Vec::new())
    };
    SPLITS.into_iter().find_map(grow).filter(|tree| matches!(tree, Tree::Split { .. }))
}

/// A known fact about a number in the packet.
#[derive(Clone, Copy, Debug)]
struct Fact {
    key: Key,
    value: u32,
    /// Whether the number equals the value.
    equal: bool,
}

struct Growing<'a> {
    programs: &'a [&'a Program],
    /// Tests that may still be added.
    splits: usize,
    /// Blocks that may still be added at leaves.
    blocks: usize,
    /// Tests may look at this number of bytes.
    bytes: u32,
    facts: Vec<Fact>,
}

/// The state of a program.
enum Stand {
    Passed,
    Refused,
    /// It continues here. Its next test is given if it can be shared.
    Asks(Rest, Option<(Key, u32)>),
}

impl Growing<'_> {
    fn grow(&mut self, rest: Vec<Rest>, mut passed: Vec<usize>) -> Option<Tree> {
        let mut left = Vec::with_capacity(rest.len());
        let mut tests: Vec<(Key, u32, usize)> = Vec::new();
        for rest in rest {
            match self.advance(rest) {
                Stand::Refused => {}
                Stand::Passed => passed.push(rest.program),
                Stand::Asks(rest, test) => {
                    left.push(rest);
                    let Some((key, value)) = test else { continue };
                    match tests.iter_mut().find(|(known, of, _)| (*known, *of) == (key, value)) {
                        Some((_, _, count)) => *count += 1,
                        None => tests.push((key, value, 1)),
                    }
                }
            }
        }
        // Of the tests that most programs make, the first one.
        let best = tests.into_iter().rev().max_by_key(|(_, _, count)| *count).filter(|(_, _, count)| *count > 1);
        let Some((key, value, _)) = best.filter(|_| self.splits > 0) else {
            let blocks: usize =
                left.iter().map(|rest| self.programs[rest.program].blocks().len() - rest.at.index()).sum();
            self.blocks = self.blocks.checked_sub(blocks)?;
            return Some(Tree::Leaf { passed, rest: left });
        };
        self.splits -= 1;
        self.facts.push(Fact { key, value, equal: true });
        let yes = self.grow(left.clone(), passed.clone());
        self.facts.pop();
        self.facts.push(Fact { key, value, equal: false });
        let no = self.grow(left, passed);
        self.facts.pop();
        Some(Tree::Split { key, value, yes: Box::new(yes?), no: Box::new(no?) })
    }

    /// Follows a program as long as its tests are decided.
    fn advance(&self, mut rest: Rest) -> Stand {
        let blocks = self.programs[rest.program].blocks();
        loop {
            let block = &blocks[rest.at.index()];
            let asks = |test| Stand::Asks(rest, test);
            let Some(a) = loaded(block, rest.a) else { return asks(None) };
            rest.at = match block.end {
                End::Return(0) => return Stand::Refused,
                // A value that was loaded but not tested may lie behind the packet's end, which rejects the packet.
                End::Return(_) if block.steps.is_empty() => return Stand::Passed,
                End::Jump(to) if block.steps.is_empty() => to,
                End::Branch { test, operand: Operand::Constant(operand), yes, no } => {
                    let Some(key) = a else { return asks(None) };
                    match self.known(key, test, operand) {
                        Some(true) => yes,
                        Some(false) => no,
                        None if test == Test::Equal && key.reach() <= self.bytes.into() => {
                            return asks(Some((key, operand)));
                        }
                        None => return asks(None),
                    }
                }
                _ => return asks(None),
            };
            rest.a = a;
        }
    }

    /// The result of a test, if the facts decide it.
    fn known(&self, key: Key, test: Test, operand: u32) -> Option<bool> {
        let same_bytes = |fact: &&Fact| (fact.key.size, fact.key.offset) == (key.size, key.offset);
        self.facts.iter().filter(same_bytes).find_map(|fact| match fact.equal {
            // All bits of this test were compared.
            true if fact.key.mask & key.mask == key.mask => Some(test.holds(fact.value & key.mask, operand)),
            false if fact.key == key && test == Test::Equal && operand == fact.value => Some(false),
            _ => None,
        })
    }
}

/// The number in A after a block that only loads it. `None`: the block does more.
fn loaded(block: &Block, before: Option<Key>) -> Option<Option<Key>> {
    let key = match block.steps.as_slice() {
        [] => return Some(before),
        [Step::LoadA(Value::Packet { size, offset }), ..] => Key { size: *size, offset: *offset, mask: u32::MAX },
        _ => return None,
    };
    match block.steps[1..] {
        [] => Some(Some(key)),
        [Step::Arithmetic(Operation::And, Operand::Constant(mask))] => Some(Some(Key { mask, ..key })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interpreter;
    use crate::cbpf::Instruction;
    use crate::from_cbpf;

    /// `half[12] == 0x800 && byte[23] == protocol && half[36] == port`.
    fn program(protocol: u32, port: u32) -> Program {
        let line = |code, jt, jf, k| Instruction { code, jt, jf, k };
        from_cbpf(&[
            line(0x28, 0, 0, 12),
            line(0x15, 0, 5, 0x800),
            line(0x30, 0, 0, 23),
            line(0x15, 0, 3, protocol),
            line(0x28, 0, 0, 36),
            line(0x15, 0, 1, port),
            line(0x06, 0, 0, 1),
            line(0x06, 0, 0, 0),
        ])
        .unwrap()
    }

    /// Follows the tree like a generator. Returns the passing programs, and how many were asked at the leaf.
    fn run(tree: &Tree, programs: &[&Program], packet: &[u8]) -> (Vec<usize>, usize) {
        match tree {
            Tree::Split { key, value, yes, no } => {
                let at = key.offset as usize;
                let Some(bytes) = packet.get(at..at + key.size.bytes() as usize) else {
                    let all = programs.iter().enumerate();
                    let passed = all.filter(|(_, program)| Interpreter::new(program).run(packet, 0) != 0);
                    return (passed.map(|(at, _)| at).collect(), programs.len());
                };
                let number = bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
                run(if number & key.mask == *value { yes } else { no }, programs, packet)
            }
            Tree::Leaf { passed, rest } => {
                let mut all = passed.clone();
                // The whole program gives the same result as its rest.
                let asked = rest.iter().filter(|rest| Interpreter::new(programs[rest.program]).run(packet, 0) != 0);
                all.extend(asked.map(|rest| rest.program));
                all.sort_unstable();
                (all, rest.len())
            }
        }
    }

    #[test]
    fn who_is_refused_by_a_shared_test_is_asked_no_more() {
        let programs = [program(6, 80), program(6, 443), program(17, 53), program(17, 80), program(6, 80)];
        let programs: Vec<&Program> = programs.iter().collect();
        let tree = tree(&programs, 128).unwrap();
        let mut packet = [0u8; 60];
        assert_eq!(run(&tree, &programs, &packet), (vec![], 0), "no IPv4");
        packet[12] = 8;
        assert_eq!(run(&tree, &programs, &packet), (vec![], 0), "no protocol of theirs");
        packet[23] = 6;
        packet[37] = 80;
        assert_eq!(run(&tree, &programs, &packet), (vec![0, 4], 0), "both of the same test pass by it");
        packet[36..38].copy_from_slice(&443u16.to_be_bytes());
        assert_eq!(run(&tree, &programs, &packet), (vec![1], 1), "one test of one program is left");
        assert_eq!(run(&tree, &programs, &packet[..13]), (vec![], 5), "too short for a shared test");
        let tree = super::tree(&programs, 37).unwrap();
        assert_eq!(run(&tree, &programs, &packet), (vec![1], 3), "ports are too far behind");
    }

    #[test]
    fn nothing_in_common_is_no_tree() {
        assert_eq!(tree(&[], 128), None);
        assert_eq!(tree(&[&program(6, 80)], 128), None);
        let always = Program::constant(1);
        assert_eq!(tree(&[&always, &always], 128), None);
        assert_eq!(tree(&[&always, &program(6, 80)], 128), None);
    }

    #[test]
    fn what_would_be_too_large_shares_less() {
        // Each test is in two programs that continue for long in both cases.
        let long = |first: u32| {
            let line = |code, jt, jf, k| Instruction { code, jt, jf, k };
            let mut lines = vec![];
            for byte in 0..12 {
                lines.extend([line(0x30, 0, 0, (byte + first / 2) % 12), line(0x15, 1, 0, byte), line(0x30, 0, 0, 40)]);
            }
            lines.extend((0..200).flat_map(|byte| [line(0x30, 0, 0, byte), line(0x25, 1, 0, 9), line(0x06, 0, 0, 0)]));
            lines.push(line(0x06, 0, 0, 1));
            from_cbpf(&lines).unwrap()
        };
        let programs: Vec<Program> = (0..24).map(long).collect();
        let programs: Vec<&Program> = programs.iter().collect();
        fn splits(tree: &Tree) -> usize {
            match tree {
                Tree::Split { yes, no, .. } => 1 + splits(yes) + splits(no),
                Tree::Leaf { .. } => 0,
            }
        }
        // Twice the programs fit, five times do not.
        assert_eq!(tree(&programs, 128).as_ref().map(splits), Some(1));
    }
}
