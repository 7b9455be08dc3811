//! Asks all expressions of a device about one packet.
//!
//! The tree of [`program::joint`] makes tests that several expressions begin with only once. Each leaf has the rests of the
//! programs that are still undecided. If a packet is too short for a shared test, all programs are asked one after the other.

use crate::code::{Code, Compare, Label, Register, Width};
use crate::expression::Expression;
use crate::lower::{Entry, HEAD_BYTES, facts, load_key, lower};
use crate::program_error::ProgramError;
use crate::tally::{Tally, want};
use Register::{R1, R7, R8};
use program::ir::Program;
use program::joint::{Key, Tree};

/// Sets the bit of each expression that wants the packet, and counts.
pub(crate) fn decide(code: &mut Code, tally: Tally<'_>, expressions: &[&Expression]) -> Result<(), ProgramError> {
    let (all, asked): (Vec<&Expression>, Vec<&Expression>) =
        expressions.iter().partition(|expression| expression.program.is_none());
    want(code, all.into_iter(), tally);
    let programs: Vec<&Program> = asked.iter().filter_map(|expression| expression.program.as_deref()).collect();
    let tree = match programs.iter().any(|program| program.repeats()) {
        true => None,
        false => program::joint::tree(&programs, HEAD_BYTES),
    };
    let done = code.label();
    if let Some(tree) = tree {
        let mut leaves = Leaves { expressions: &asked, programs: &programs, tally, short: code.label(), done };
        leaves.add(code, &tree, 0, None)?;
        code.place(leaves.short);
    }
    for (expression, program) in asked.iter().zip(&programs) {
        ask(code, tally, expression, program, Entry::START)?;
    }
    code.place(done);
    Ok(())
}

fn ask(
    code: &mut Code,
    tally: Tally<'_>,
    expression: &Expression,
    program: &Program,
    entry: Entry,
) -> Result<(), ProgramError> {
    let refused = |refusal| ProgramError::Expression(expression.bit, refusal);
    let (accept, reject) = (code.label(), code.label());
    lower(code, program, entry, accept, reject).map_err(refused)?;
    code.place(accept);
    want(code, std::iter::once(expression), tally);
    code.place(reject);
    Ok(())
}

struct Leaves<'a> {
    expressions: &'a [&'a Expression],
    programs: &'a [&'a Program],
    tally: Tally<'a>,
    /// Packets too short for a shared test go here.
    short: Label,
    done: Label,
}

impl Leaves<'_> {
    /// Adds a tree. At least `known` bytes of the copy are there, and A holds the number `a`.
    fn add(&mut self, code: &mut Code, tree: &Tree, known: u32, a: Option<Key>) -> Result<(), ProgramError> {
        match tree {
            Tree::Split { key, value, yes, no } => {
                // The tree asks for no more than `HEAD_BYTES`.
                let reach = key.reach() as u32;
                if reach > known {
                    code.load(Width::Eight, R1, R7, facts::HEAD);
                    code.jump_if(Compare::Less, R1, reach as i32, self.short);
                }
                if a != Some(*key) {
                    load_key(code, *key);
                }
                let (known, otherwise) = (known.max(reach), code.label());
                code.jump_if_32(Compare::NotEqual, R8, *value, otherwise);
                self.add(code, yes, known, Some(*key))?;
                code.place(otherwise);
                self.add(code, no, known, Some(*key))
            }
            Tree::Leaf { passed, rest } => {
                want(code, passed.iter().map(|at| self.expressions[*at]), self.tally);
                for rest in rest {
                    let entry = Entry { at: rest.at, a: rest.a, known };
                    let (expression, program) = (self.expressions[rest.program], self.programs[rest.program]);
                    ask(code, self.tally, expression, program, entry)?;
                }
                code.jump(self.done);
                Ok(())
            }
        }
    }
}
