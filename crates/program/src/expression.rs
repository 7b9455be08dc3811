//! Compiles Boolean expressions over filter programs and typed predicates to one program.
//!
//! A program rejects a packet that lacks the bytes of a load, and ends there. As a part of `or` or `not` it must not end the
//! run. So a test before each load jumps if the bytes are missing. The test compares the length on the wire, the only length
//! that a program can read. Therefore the result is right for packets that are captured in full. Divisions get a similar test.
//!
//! A part may be undecided about a packet ([`predicate`](crate::predicate), or a program that jumps back). Then the
//! whole is undecided. So an expression has three programs: see [`Passes`].
//!
//! The crate `kernel` decides which of several expressions want a packet, with [`joint`](crate::joint).

use crate::draft::{Draft, Label};
use crate::ir::WHOLE;
use crate::ir::{Block, End, Index, MEMORY_WORDS, Operand, Operation, Program, Step, Test, Value};
use crate::predicate::{Code, Ends, Predicate};
use std::collections::BTreeSet;

/// No packet is longer: loads behind this offset fail.
const FURTHEST: u32 = 0xffff;

/// Selects packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Packets that this program keeps.
    Program(Program),
    /// Packets for which this predicate holds. Ethernet frames only.
    Packet(Predicate),
    /// Packets that pass all of these. An empty list passes every packet.
    All(Vec<Expression>),
    /// Packets that pass any of these. An empty list passes no packet.
    Any(Vec<Expression>),
    /// Packets that do not pass this.
    Not(Box<Expression>),
}

/// The packets that an expression's program passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// Packets that certainly pass, and packets about which the program is undecided.
    Perhaps,
    /// Packets that certainly pass.
    Surely,
    /// Packets about which the program is undecided.
    Unsure,
}

impl Expression {
    /// Whether its program can decide about every packet.
    pub fn is_exact(&self) -> bool {
        match self {
            Expression::Program(program) => !program.repeats(),
            Expression::Packet(predicate) => predicate.is_exact(),
            Expression::All(parts) | Expression::Any(parts) => parts.iter().all(Expression::is_exact),
            Expression::Not(part) => part.is_exact(),
        }
    }

    /// Its program. `None`: a predicate has too many ranges, a part uses all scratch memory, or it would be too long.
    pub fn program(&self, passes: Passes) -> Option<Program> {
        if let (Expression::Program(program), Passes::Perhaps | Passes::Surely) = (self, passes)
            && !program.repeats()
        {
            return Some(program.clone());
        }
        self.written(passes, false)
    }

    /// The same. `is_guarded`: no load may fail, whatever its failure means.
    fn written(&self, passes: Passes, is_guarded: bool) -> Option<Program> {
        if let Some(passes_all) = self.constant() {
            let is_wanted = passes_all && passes != Passes::Unsure;
            return Some(Program::constant(if is_wanted { WHOLE } else { 0 }));
        }
        if !self.is_small() {
            return None;
        }
        let mut draft = Draft::default();
        let [pass, refuse] = std::array::from_fn(|_| draft.label());
        let (sure, unsure) = match passes {
            Passes::Perhaps => (pass, pass),
            Passes::Surely => (pass, refuse),
            Passes::Unsure => (refuse, pass),
        };
        let mut writer = Writer { scratch: self.scratch(), draft, refuse, is_first: true, is_guarded };
        writer.add(self, Ends { yes: sure, no: refuse, unsure })?;
        let Writer { mut draft, .. } = writer;
        for (label, verdict) in [(refuse, 0), (pass, WHOLE)] {
            draft.place(label);
            draft.end(verdict);
        }
        // Remove jumps to jumps and unreachable code.
        crate::from_cbpf(&crate::to_cbpf(&draft.finish()?)).ok()
    }

    /// The result, if it is the same for every packet.
    pub(crate) fn constant(&self) -> Option<bool> {
        match self {
            Expression::Program(program) => program.always().map(|length| length > 0),
            Expression::Packet(_) => None,
            Expression::All(parts) => joined(parts.iter().map(Expression::constant), false),
            Expression::Any(parts) => joined(parts.iter().map(Expression::constant), true),
            Expression::Not(part) => part.constant().map(|known| !known),
        }
    }

    /// Whether it consists of predicates only.
    fn is_typed(&self) -> bool {
        match self {
            Expression::Program(_) => false,
            Expression::Packet(_) => true,
            Expression::All(parts) | Expression::Any(parts) => parts.iter().all(Expression::is_typed),
            Expression::Not(part) => part.is_typed(),
        }
    }

    fn is_small(&self) -> bool {
        match self {
            Expression::Program(_) => true,
            Expression::Packet(predicate) => predicate.is_small(),
            Expression::All(parts) | Expression::Any(parts) => parts.iter().all(Expression::is_small),
            Expression::Not(part) => part.is_small(),
        }
    }

    /// Calls `see` for each of its programs.
    fn each_program<'a>(&'a self, see: &mut dyn FnMut(&'a Program)) {
        match self {
            Expression::Program(program) => see(program),
            Expression::Packet(_) => {}
            Expression::All(parts) | Expression::Any(parts) => parts.iter().for_each(|part| part.each_program(see)),
            Expression::Not(part) => part.each_program(see),
        }
    }

    /// Two words of memory that its programs do not use: one for each register.
    fn scratch(&self) -> Option<[u8; 2]> {
        let mut used: BTreeSet<u8> = BTreeSet::new();
        self.each_program(&mut |program| {
            used.extend(program.blocks().iter().flat_map(|block| &block.steps).filter_map(slot));
        });
        let mut free = (0..MEMORY_WORDS as u8).filter(|slot| !used.contains(slot));
        Some([free.next()?, free.next()?])
    }
}

/// The result of joined parts, each of which may be known. One part with the result `decisive` decides.
pub(crate) fn joined(parts: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let mut all_known = true;
    for part in parts {
        if part == Some(decisive) {
            return part;
        }
        all_known &= part.is_some();
    }
    all_known.then_some(!decisive)
}

/// A program that passes packets that any of these passes, for the kernel's classic BPF machine. An empty list passes
/// none. `None`:
///
/// - one of them repeats,
/// - one shifts by a register (a shift of 32 and more gives 0 here, and another value in the kernel's machine),
/// - one uses all memory, or
/// - the program would be too long.
pub fn any_of(programs: &[&Program]) -> Option<Program> {
    let any = Expression::Any(programs.iter().map(|program| Expression::Program((*program).clone())).collect());
    let is_fit = any.constant().is_some() || programs.iter().all(|program| is_fit(program));
    // A load that fails here might find bytes in the kernel's machine, whose offsets wrap around.
    any.written(Passes::Perhaps, true).filter(|_| is_fit)
}

fn is_fit(program: &Program) -> bool {
    let shifts =
        |step: &Step| matches!(step, Step::Arithmetic(Operation::ShiftLeft | Operation::ShiftRight, Operand::X));
    !program.repeats() && !program.blocks().iter().flat_map(|block| &block.steps).any(shifts)
}

/// The word of memory that a step reads or writes.
fn slot(step: &Step) -> Option<u8> {
    match step {
        Step::LoadA(Value::Memory(slot)) | Step::LoadX(Index::Memory(slot)) => Some(*slot),
        Step::StoreA(slot) | Step::StoreX(slot) => Some(*slot),
        _ => None,
    }
}

struct Writer {
    /// For A and for X. `None`: the programs use all memory.
    scratch: Option<[u8; 2]>,
    draft: Draft,
    /// Rejects the packet as a whole. A failing load has the same effect.
    refuse: Label,
    /// Registers and memory are still 0 at this point.
    is_first: bool,
    /// No load may fail.
    is_guarded: bool,
}

impl Writer {
    /// Adds an expression at this point.
    fn add(&mut self, expression: &Expression, ends: Ends) -> Option<()> {
        if let Some(passes) = expression.constant() {
            self.draft.jump(if passes { ends.yes } else { ends.no });
            return Some(());
        }
        match expression {
            _ if expression.is_typed() => {
                self.is_first = false;
                Code { draft: &mut self.draft, refuse: self.refuse }.add(expression, ends);
                Some(())
            }
            Expression::Program(program) => self.add_program(program, ends),
            Expression::Not(part) => self.add(part, ends.swapped()),
            Expression::All(parts) => {
                self.one_by_one(parts, Expression::All, ends, |ends, next| Ends { yes: next, ..ends })
            }
            Expression::Any(parts) => {
                self.one_by_one(parts, Expression::Any, ends, |ends, next| Ends { no: next, ..ends })
            }
            // It is typed, so the branch above has handled it.
            Expression::Packet(_) => None,
        }
    }

    /// Evaluates the parts in turn: first programs, which are never undecided, then all predicates together. `going_on`
    /// says which result leads to the next part.
    fn one_by_one(
        &mut self,
        parts: &[Expression],
        join: fn(Vec<Expression>) -> Expression,
        ends: Ends,
        going_on: fn(Ends, Label) -> Ends,
    ) -> Option<()> {
        let (mut typed, mut asked): (Vec<Expression>, Vec<&Expression>) = (Vec::new(), Vec::new());
        for part in parts {
            match part.is_typed() {
                true => typed.push(part.clone()),
                false if asked.contains(&part) => {}
                false => asked.push(part),
            }
        }
        let typed = (!typed.is_empty()).then(|| join(typed));
        asked.extend(&typed);
        // It is no constant, so it has at least one part.
        let last = asked.pop()?;
        for part in asked {
            let next = self.draft.label();
            self.add(part, going_on(ends, next))?;
            self.draft.place(next);
        }
        self.add(last, ends)
    }

    fn add_program(&mut self, program: &Program, ends: Ends) -> Option<()> {
        let blocks = program.blocks();
        let labels: Vec<Label> = blocks.iter().map(|_| self.draft.label()).collect();
        if !std::mem::take(&mut self.is_first) {
            // Reset the registers and memory, as at the start of a run.
            self.draft.step(Step::LoadA(Value::Constant(0)));
            let read = blocks.iter().flat_map(|block| &block.steps).filter_map(|step| match step {
                Step::LoadA(Value::Memory(slot)) | Step::LoadX(Index::Memory(slot)) => Some(*slot),
                _ => None,
            });
            read.collect::<BTreeSet<u8>>().into_iter().for_each(|slot| self.draft.step(Step::StoreA(slot)));
            self.draft.step(Step::LoadX(Index::Constant(0)));
        }
        // If its rejection rejects the packet as a whole, a load may end the run.
        let is_guarded = self.is_guarded || ends.no != self.refuse;
        let scratch = self.scratch.or((!is_guarded).then_some([0; 2]))?;
        let mut known: Vec<Option<u64>> = vec![None; blocks.len()];
        known[0] = Some(0);
        for (at, block) in blocks.iter().enumerate() {
            let before = known[at].unwrap_or(0);
            let reach = block.reach();
            for to in block.end.successors().filter(|to| to.index() > at) {
                // Edges lead to later blocks: all paths to a block are followed before the block itself.
                let there = &mut known[to.index()];
                let after = before.max(reach);
                *there = Some(there.map_or(after, |there| there.min(after)));
            }
            self.draft.place(labels[at]);
            if is_guarded && reach > before {
                self.ask_length(block, reach, scratch, ends.no);
            }
            for &step in &block.steps {
                if is_guarded {
                    self.add_guarded(step, scratch, ends.no);
                } else {
                    self.draft.step(step);
                }
            }
            match block.end {
                End::Return(0) => self.draft.jump(ends.no),
                End::Return(_) => self.draft.jump(ends.yes),
                End::ReturnA => self.draft.branch(Test::Equal, Operand::Constant(0), ends.no, ends.yes),
                End::Jump(to) => self.draft.jump(labels[to.index()]),
                // The result of a backward jump is unknown.
                End::Repeat(_) => self.draft.jump(ends.unsure),
                End::Branch { test, operand, yes, no } => {
                    self.draft.branch(test, operand, labels[yes.index()], labels[no.index()]);
                }
            }
        }
        Some(())
    }

    /// Continues if the packet is at least `reach` bytes long, else jumps to `no`.
    fn ask_length(&mut self, block: &Block, reach: u64, [a, _]: [u8; 2], no: Label) {
        let saved = reads_a(block);
        if saved {
            self.draft.step(Step::StoreA(a));
        }
        self.draft.unless_on_wire(u32::try_from(reach).unwrap_or(u32::MAX), no);
        if saved {
            self.draft.step(Step::LoadA(Value::Memory(a)));
        }
    }

    fn add_guarded(&mut self, step: Step, [a, x]: [u8; 2], no: Label) {
        match step {
            Step::LoadA(Value::Indexed { size, offset }) => {
                // The load overwrites A in any case.
                if offset > FURTHEST {
                    let never = self.draft.label();
                    self.draft.jump(no);
                    return self.draft.place(never);
                }
                self.draft.step(Step::CopyXToA);
                self.draft.when(Test::Greater, FURTHEST, no);
                let end = Operand::Constant(offset + size.bytes());
                let asked = [Step::Arithmetic(Operation::Add, end), Step::StoreX(x), Step::LoadX(Index::WireLength)];
                asked.into_iter().for_each(|step| self.draft.step(step));
                let on = self.draft.label();
                self.draft.branch(Test::Greater, Operand::X, no, on);
                self.draft.place(on);
                self.draft.step(Step::LoadX(Index::Memory(x)));
                self.draft.step(step);
            }
            Step::Arithmetic(Operation::Divide | Operation::Modulo, Operand::X) => {
                self.draft.step(Step::StoreA(a));
                self.draft.step(Step::CopyXToA);
                self.draft.when(Test::Equal, 0, no);
                self.draft.step(Step::LoadA(Value::Memory(a)));
                self.draft.step(step);
            }
            step => self.draft.step(step),
        }
    }
}

/// Whether this block, or a later one, reads the value that A has at its start.
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

    /// Tests whether the byte has this value.
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
