//! Several programs as one that passes what any of them passes: what need not be copied because nobody wants it.
//!
//! A load outside the packet refuses it on behalf of one program, but ends the run of all. So before each load stands a
//! test that goes on to the next program where the bytes are not there. It asks the length on the wire, for that is what a
//! program can ask: the outcome is the programs' only for packets all of whose bytes are there. Divisions are asked before
//! in the same way.
//!
//! Not for deciding which of them: crate `kernel` does that, by [`joint`](crate::joint).

use crate::ir::{Block, BlockId, End, Index, MEMORY_WORDS, Operand, Operation, Program, Step, Test, Value};
use std::collections::BTreeSet;

/// What it returns for a packet that passes: more bytes than any has.
pub const WHOLE: u32 = 1 << 18;

/// No packet is longer: a load from further on finds nothing.
const FURTHEST: u32 = 0xffff;

/// Passes what any of these passes, and nothing where there is none. `None` where one of them cannot be a part of it: it
/// repeats, shifts by a register (by 32 and more that gives 0 here, and something else in the kernel's machine), or uses all
/// memory; or where it would be too long.
pub fn any_of(programs: &[&Program]) -> Option<Program> {
    if programs.iter().any(|program| program.always().is_some_and(|length| length > 0)) {
        return Some(Program::constant(WHOLE));
    }
    let mut different: Vec<&Program> = Vec::new();
    for program in programs.iter().filter(|program| program.always().is_none()) {
        if !different.contains(program) {
            different.push(program);
        }
    }
    if !different.iter().all(|program| is_fit(program)) {
        return None;
    }
    let mut drafts = Drafts { scratch: scratch(&different)?, blocks: Vec::new(), labels: 0 };
    let starts: Vec<Label> = (0..=different.len()).map(|_| drafts.label()).collect();
    let pass = drafts.label();
    for (at, program) in different.iter().enumerate() {
        drafts.add(program, starts[at], starts[at + 1], pass);
    }
    // Nobody wants it.
    drafts.push(starts[different.len()], Vec::new(), Draft::Return(0));
    drafts.push(pass, Vec::new(), Draft::Return(WHOLE));
    drafts.finish()
}

fn is_fit(program: &Program) -> bool {
    let shifts =
        |step: &Step| matches!(step, Step::Arithmetic(Operation::ShiftLeft | Operation::ShiftRight, Operand::X));
    !program.repeats() && !program.blocks().iter().flat_map(|block| &block.steps).any(shifts)
}

/// The memory a step reads or writes.
fn slot(step: &Step) -> Option<u8> {
    match step {
        Step::LoadA(Value::Memory(slot)) | Step::LoadX(Index::Memory(slot)) => Some(*slot),
        Step::StoreA(slot) | Step::StoreX(slot) => Some(*slot),
        _ => None,
    }
}

/// Two words of memory that none of them uses: one for each register.
fn scratch(programs: &[&Program]) -> Option<[u8; 2]> {
    let steps = programs.iter().flat_map(|program| program.blocks()).flat_map(|block| &block.steps);
    let used: BTreeSet<u8> = steps.filter_map(slot).collect();
    let mut free = (0..MEMORY_WORDS as u8).filter(|slot| !used.contains(slot));
    Some([free.next()?, free.next()?])
}

/// A place in the program that is made.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// As [`End`], with labels.
#[derive(Clone, Copy)]
enum Draft {
    Return(u32),
    Jump(Label),
    Branch { test: Test, operand: Operand, yes: Label, no: Label },
}

struct Drafts {
    /// For A, for X.
    scratch: [u8; 2],
    blocks: Vec<(Label, Vec<Step>, Draft)>,
    labels: usize,
}

impl Drafts {
    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn push(&mut self, label: Label, steps: Vec<Step>, end: Draft) {
        self.blocks.push((label, steps, end));
    }

    /// Adds a program that begins at `start`, goes to `pass` with what it wants, and to `next` with what it does not.
    fn add(&mut self, program: &Program, start: Label, next: Label, pass: Label) {
        let blocks = program.blocks();
        let labels: Vec<Label> = blocks.iter().map(|_| self.label()).collect();
        // As at the beginning of a run.
        let mut clear = vec![Step::LoadA(Value::Constant(0))];
        let read = blocks.iter().flat_map(|block| &block.steps).filter_map(|step| match step {
            Step::LoadA(Value::Memory(slot)) | Step::LoadX(Index::Memory(slot)) => Some(*slot),
            _ => None,
        });
        clear.extend(read.collect::<BTreeSet<u8>>().into_iter().map(Step::StoreA));
        clear.push(Step::LoadX(Index::Constant(0)));
        self.push(start, clear, Draft::Jump(labels[0]));
        let mut known: Vec<Option<u64>> = vec![None; blocks.len()];
        known[0] = Some(0);
        for (at, block) in blocks.iter().enumerate() {
            let before = known[at].unwrap_or(0);
            let reach = block.reach();
            for to in block.end.successors() {
                // Edges lead to later blocks: all ways to one are followed before it is come to.
                let there = &mut known[to.index()];
                let after = before.max(reach);
                *there = Some(there.map_or(after, |there| there.min(after)));
            }
            let mut piece = Piece { label: labels[at], steps: Vec::new() };
            if reach > before {
                self.ask_length(&mut piece, block, reach, next);
            }
            for &step in &block.steps {
                self.add_step(&mut piece, step, next);
            }
            let end = match block.end {
                End::Return(0) => Draft::Jump(next),
                End::Return(_) => Draft::Jump(pass),
                End::ReturnA => Draft::Branch { test: Test::Equal, operand: Operand::Constant(0), yes: next, no: pass },
                End::Jump(to) | End::Repeat(to) => Draft::Jump(labels[to.index()]),
                End::Branch { test, operand, yes, no } => {
                    Draft::Branch { test, operand, yes: labels[yes.index()], no: labels[no.index()] }
                }
            };
            self.push(piece.label, piece.steps, end);
        }
    }

    /// Goes on in a new block where the packet has so many bytes, else to the next program.
    fn ask_length(&mut self, piece: &mut Piece, block: &Block, reach: u64, next: Label) {
        let (saved, on) = (reads_a(block), self.label());
        let [a, _] = self.scratch;
        if saved {
            piece.steps.push(Step::StoreA(a));
        }
        piece.steps.push(Step::LoadA(Value::WireLength));
        let reach = Operand::Constant(u32::try_from(reach).unwrap_or(u32::MAX));
        self.cut(piece, Draft::Branch { test: Test::AtLeast, operand: reach, yes: on, no: next }, on);
        if saved {
            piece.steps.push(Step::LoadA(Value::Memory(a)));
        }
    }

    fn add_step(&mut self, piece: &mut Piece, step: Step, next: Label) {
        let [a, x] = self.scratch;
        match step {
            Step::LoadA(Value::Indexed { size, offset }) => {
                // A is lost by this anyway.
                let (near, there) = (self.label(), self.label());
                if offset > FURTHEST {
                    self.cut(piece, Draft::Jump(next), there);
                    return;
                }
                piece.steps.push(Step::CopyXToA);
                let far = Operand::Constant(FURTHEST);
                self.cut(piece, Draft::Branch { test: Test::Greater, operand: far, yes: next, no: near }, near);
                let end = Operand::Constant(offset + size.bytes());
                let asked = [Step::Arithmetic(Operation::Add, end), Step::StoreX(x), Step::LoadX(Index::WireLength)];
                piece.steps.extend(asked);
                self.cut(
                    piece,
                    Draft::Branch { test: Test::Greater, operand: Operand::X, yes: next, no: there },
                    there,
                );
                piece.steps.extend([Step::LoadX(Index::Memory(x)), step]);
            }
            Step::Arithmetic(Operation::Divide | Operation::Modulo, Operand::X) => {
                let on = self.label();
                piece.steps.extend([Step::StoreA(a), Step::CopyXToA]);
                let zero = Operand::Constant(0);
                self.cut(piece, Draft::Branch { test: Test::Equal, operand: zero, yes: next, no: on }, on);
                piece.steps.extend([Step::LoadA(Value::Memory(a)), step]);
            }
            step => piece.steps.push(step),
        }
    }

    /// Ends a block in the middle of one; what follows is at `on`.
    fn cut(&mut self, piece: &mut Piece, end: Draft, on: Label) {
        let steps = std::mem::take(&mut piece.steps);
        self.push(piece.label, steps, end);
        piece.label = on;
    }

    fn finish(self) -> Option<Program> {
        let mut places = vec![None; self.labels];
        for (at, (label, ..)) in self.blocks.iter().enumerate() {
            places[label.0] = Some(BlockId(u16::try_from(at).ok()?));
        }
        let place = |label: Label| places[label.0];
        let blocks = self.blocks.into_iter().map(|(_, steps, end)| {
            let end = match end {
                Draft::Return(length) => End::Return(length),
                Draft::Jump(to) => End::Jump(place(to)?),
                Draft::Branch { test, operand, yes, no } => {
                    End::Branch { test, operand, yes: place(yes)?, no: place(no)? }
                }
            };
            Some(Block { steps, end })
        });
        Program::new(blocks.collect::<Option<_>>()?).ok()
    }
}

/// A block that is being made.
struct Piece {
    label: Label,
    steps: Vec<Step>,
}

/// Does it matter to a block, or to those behind it, what A is when it begins?
fn reads_a(block: &Block) -> bool {
    for step in &block.steps {
        match step {
            Step::LoadA(_) | Step::CopyXToA => return false,
            Step::StoreA(_) | Step::Arithmetic(..) | Step::Negate | Step::CopyAToX => return true,
            Step::LoadX(_) | Step::StoreX(_) => {}
        }
    }
    !matches!(block.end, End::Return(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbpf::Instruction;
    use crate::{Interpreter, from_cbpf};

    fn line(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    /// Is the byte there the value?
    fn byte(at: u32, value: u32) -> Program {
        from_cbpf(&[line(0x30, 0, 0, at), line(0x15, 0, 1, value), line(6, 0, 0, 9), line(6, 0, 0, 0)]).unwrap()
    }

    fn check(programs: &[Program], packet: &[u8], expected: bool) {
        let any = any_of(&programs.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(Interpreter::new(&any).run(packet, packet.len() as u32) == WHOLE, expected, "{packet:?}");
        let one = programs.iter().any(|one| Interpreter::new(one).run(packet, packet.len() as u32) != 0);
        assert_eq!(one, expected, "{packet:?}");
    }

    #[test]
    fn what_is_too_short_for_one_is_asked_the_next() {
        let programs = [byte(20, 1), byte(2, 7), byte(0, 3)];
        check(&programs, &[0, 0, 7], true);
        check(&programs, &[3], true);
        check(&programs, &[], false);
        check(&programs, &[0; 20], false);
        check(&programs, &[1; 21], true);
        check(&[], &[1], false);
        check(&[byte(0, 1), Program::constant(5)], &[], true);
        check(&[Program::constant(0)], &[1], false);
    }

    #[test]
    fn places_and_divisors_that_a_packet_says_are_asked_before() {
        // byte[4 * (byte[0] & 0xf) + 1] == 9; byte[1] / byte[0] == 2
        let behind =
            [line(0xb1, 0, 0, 0), line(0x50, 0, 0, 1), line(0x15, 0, 1, 9), line(6, 0, 0, 1), line(6, 0, 0, 0)];
        let divided = [
            line(0x30, 0, 0, 0),
            line(0x07, 0, 0, 0),
            line(0x30, 0, 0, 1),
            line(0x3c, 0, 0, 0),
            line(0x15, 0, 1, 2),
            line(6, 0, 0, 1),
            line(6, 0, 0, 0),
        ];
        let programs = [from_cbpf(&behind).unwrap(), from_cbpf(&divided).unwrap(), byte(0, 2)];
        check(&programs, &[1, 0, 0, 0, 0, 9], true);
        check(&programs, &[1, 0, 0, 0, 0, 8], false);
        check(&programs, &[1, 2, 0, 0, 0], true);
        check(&programs, &[0, 2], false);
        check(&programs, &[2, 1], true);
    }

    #[test]
    fn what_the_kernels_machine_takes_otherwise_is_no_part_of_it() {
        let shifted = [line(0x30, 0, 0, 0), line(0x6c, 0, 0, 0), line(0x16, 0, 0, 0)];
        assert_eq!(any_of(&[&byte(0, 1), &from_cbpf(&shifted).unwrap()]), None);
    }

    #[test]
    fn the_same_is_asked_once() {
        let one = any_of(&[&byte(0, 1)]).unwrap();
        assert_eq!(any_of(&[&byte(0, 1), &byte(0, 1), &byte(0, 1)]), Some(one));
    }
}
