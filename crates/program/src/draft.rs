//! A program under construction: a sequence of blocks that lead to labels whose places are not known yet.

use crate::ir::{Block, BlockId, End, Operand, Program, Size, Step, Test, Value};

/// A place in the program, which is known once the program is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Like [`End`], with labels.
#[derive(Clone, Copy)]
enum Way {
    Return(u32),
    Jump(Label),
    Branch { test: Test, operand: Operand, yes: Label, no: Label },
}

/// The program so far. A label that is used must be placed later: programs only run forward.
#[derive(Default)]
pub(crate) struct Draft {
    blocks: Vec<(Vec<Step>, Way)>,
    /// Steps of the next block.
    steps: Vec<Step>,
    places: Vec<usize>,
}

impl Draft {
    /// A new label without a place.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// Places the label at the next block.
    pub(crate) fn place(&mut self, label: Label) {
        if !self.steps.is_empty() {
            self.close(Way::Jump(label));
        }
        self.places[label.0] = self.blocks.len();
    }

    /// Adds a step to the next block.
    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// A = bytes of the packet.
    pub(crate) fn load(&mut self, size: Size, offset: u32) {
        self.step(Step::LoadA(Value::Packet { size, offset }));
    }

    fn close(&mut self, way: Way) {
        self.blocks.push((std::mem::take(&mut self.steps), way));
    }

    /// Ends the block with a verdict.
    pub(crate) fn end(&mut self, length: u32) {
        self.close(Way::Return(length));
    }

    /// Ends the block with a jump.
    pub(crate) fn jump(&mut self, to: Label) {
        self.close(Way::Jump(to));
    }

    /// Ends the block with a test of A.
    pub(crate) fn branch(&mut self, test: Test, operand: Operand, yes: Label, no: Label) {
        self.close(Way::Branch { test, operand, yes, no });
    }

    /// Jumps to `to` if the test of A holds, else continues.
    pub(crate) fn when(&mut self, test: Test, number: u32, to: Label) {
        let on = self.label();
        self.branch(test, Operand::Constant(number), to, on);
        self.place(on);
    }

    /// Continues if the test of A holds, else jumps to `to`.
    pub(crate) fn unless(&mut self, test: Test, number: u32, to: Label) {
        let on = self.label();
        self.branch(test, Operand::Constant(number), on, to);
        self.place(on);
    }

    /// Continues if the packet had at least `bytes` on the wire, else jumps to `to`. Overwrites A.
    pub(crate) fn unless_on_wire(&mut self, bytes: u32, to: Label) {
        self.step(Step::LoadA(Value::WireLength));
        self.unless(Test::AtLeast, bytes, to);
    }

    /// The program. `None`: it would be too long.
    pub(crate) fn finish(self) -> Option<Program> {
        let place = |label: Label| u16::try_from(self.places[label.0]).ok().map(BlockId);
        let blocks = self.blocks.iter().map(|(steps, way)| {
            let end = match *way {
                Way::Return(length) => End::Return(length),
                Way::Jump(to) => End::Jump(place(to)?),
                Way::Branch { test, operand, yes, no } => {
                    End::Branch { test, operand, yes: place(yes)?, no: place(no)? }
                }
            };
            Some(Block { steps: steps.clone(), end })
        });
        Program::new(blocks.collect::<Option<_>>()?).ok()
    }
}
