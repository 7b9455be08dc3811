//! Many programs decided together: tests they have in common are made once.
//!
//! In: programs that are all asked about every packet. Out: a [`Tree`] of those tests that several of them would make next,
//! each with two ways on, and at every leaf which programs have passed the packet already and where each of the others is
//! to go on. A program that the tests on the way to a leaf have refused is not there any more: of nine programs for TCP,
//! most ask a UDP packet nothing.
//!
//! Only tests of packet bytes at fixed offsets against constants are shared, which is what expressions begin with. The
//! rest of a program runs as it is. A generator that follows the tree (crate `kernel`) needs its own check that the bytes a
//! test loads are there, and asks all programs one by one about packets that are shorter.

use crate::ir::{Block, BlockId, End, Operand, Operation, Program, Size, Step, Test, Value};

/// Most tests in a tree; where it becomes too large, one with fewer is tried.
const SPLITS: [usize; 4] = [64, 16, 4, 1];

/// The rest of a program stands at every leaf it can come to: together at most so many times as much as all programs, and
/// some blocks.
const GROWTH: usize = 3;
const BLOCKS: usize = 128;

/// A number in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// How many bytes.
    pub size: Size,
    /// The first.
    pub offset: u32,
    /// The bits of it that count.
    pub mask: u32,
}

impl Key {
    /// Bytes a packet must have for it to be there.
    pub fn reach(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.size.bytes())
    }
}

/// What to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Is this number in the packet the value?
    Split {
        /// Which number.
        key: Key,
        /// What it is compared with.
        value: u32,
        /// Where it is.
        yes: Box<Tree>,
        /// Where it is not.
        no: Box<Tree>,
    },
    /// No further test is shared.
    Leaf {
        /// Programs that pass the packet, by their place.
        passed: Vec<usize>,
        /// Programs that are not through.
        rest: Vec<Rest>,
    },
}

/// Where a program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The program, by its place.
    pub program: usize,
    /// The block.
    pub at: BlockId,
    /// What A is by then; 0 if nothing was loaded. X and memory are still 0.
    pub a: Option<Key>,
}

/// The tree of these programs, of tests of a packet's first `bytes`; none where no test is shared, or where it would be too
/// large. Programs that repeat are not for this.
pub fn tree(programs: &[&Program], bytes: u32) -> Option<Tree> {
    let start = |program| Rest { program, at: BlockId(0), a: None };
    let all: usize = programs.iter().map(|program| program.blocks().len()).sum();
    let grow = |splits| {
        let mut growing = Growing { programs, splits, blocks: all * GROWTH + BLOCKS, bytes, facts: Vec::new() };
        growing.grow((0..programs.len()).map(start).collect(), Vec::new())
    };
    SPLITS.into_iter().find_map(grow).filter(|tree| matches!(tree, Tree::Split { .. }))
}

/// What is known of a number in the packet.
#[derive(Clone, Copy, Debug)]
struct Fact {
    key: Key,
    value: u32,
    /// It is the value, or it is not.
    equal: bool,
}

struct Growing<'a> {
    programs: &'a [&'a Program],
    /// Left to be made.
    splits: usize,
    /// Blocks that may still stand at leaves.
    blocks: usize,
    /// Tests may be of so many bytes.
    bytes: u32,
    facts: Vec<Fact>,
}

/// How a program stands.
enum Stand {
    Passed,
    Refused,
    /// It goes on here, and its next test may be shared.
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
        // The first of those that most make.
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

    /// Follows a program for as long as its tests are decided.
    fn advance(&self, mut rest: Rest) -> Stand {
        let blocks = self.programs[rest.program].blocks();
        loop {
            let block = &blocks[rest.at.index()];
            let asks = |test| Stand::Asks(rest, test);
            let Some(a) = loaded(block, rest.a) else { return asks(None) };
            rest.at = match block.end {
                End::Return(0) => return Stand::Refused,
                // What was loaded and not tested may lie behind the packet's end, and refuse it.
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

    /// The outcome of a test, if the facts decide it.
    fn known(&self, key: Key, test: Test, operand: u32) -> Option<bool> {
        let same_bytes = |fact: &&Fact| (fact.key.size, fact.key.offset) == (key.size, key.offset);
        self.facts.iter().filter(same_bytes).find_map(|fact| match fact.equal {
            // All bits that count here were compared.
            true if fact.key.mask & key.mask == key.mask => Some(test.holds(fact.value & key.mask, operand)),
            false if fact.key == key && test == Test::Equal && operand == fact.value => Some(false),
            _ => None,
        })
    }
}

/// What A is at the end of a block that does nothing but load it; none where it does something else.
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

    /// What a generator does: which programs pass, and how many were asked at the leaf.
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
                // The whole program says the same as its rest.
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
        // Each test is in two programs that go on for long whatever it says.
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
