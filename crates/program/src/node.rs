//! The interpreter's code: tests of packet bytes, and steps on registers. [`build`](crate::build) makes it.

use crate::ir::{Operand, Test};
use crate::op::Op;
use crate::symbol::Symbol;

/// Bytes of a window.
pub(crate) const WINDOW_BYTES: u16 = 8;

/// The index of a node. Indexes from the number of nodes on are verdicts.
pub(crate) type NodeIndex = u16;

/// A step of the interpreter; 48 bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// Whether the bytes of a window equal its value under its mask.
    Equal(Window),
    /// Whether the bytes, as a number under the mask, are at least the value.
    AtLeast(Window),
    /// [`Node::Equal`] behind an IPv4 header that starts at this offset.
    BehindEqual(u16, Window),
    /// [`Node::AtLeast`] behind an IPv4 header that starts at this offset.
    BehindAtLeast(u16, Window),
    /// Two tests joined by "and".
    Both(Pair),
    /// Two tests joined by "or".
    Either(Pair, Second),
    /// [`Node::Both`] behind an IPv4 header that starts at this offset.
    BehindBoth(u16, Pair),
    /// [`Node::Either`] behind an IPv4 header that starts at this offset.
    BehindEither(u16, Pair, Second),
    /// Whether the length on the wire is at least this.
    Length { at_least: u32, yes: NodeIndex, no: NodeIndex },
    /// Steps on registers.
    Registers(Box<Registers>),
}

/// Eight bytes from `start`, most significant first, under a mask. Bytes past the packet's end count as 0 if the first
/// `need` bytes are there; else the run ends with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u16,
    pub(crate) need: u16,
    pub(crate) yes: NodeIndex,
    pub(crate) no: NodeIndex,
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

/// Like [`Window`]. But if some of the eight bytes are missing, the first of its two tests decides (`short`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) start: u16,
    pub(crate) short: NodeIndex,
    pub(crate) yes: NodeIndex,
    pub(crate) no: NodeIndex,
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

/// The second test of an [`Node::Either`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

/// A block as in the intermediate form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Registers {
    /// Values that earlier blocks did not keep.
    pub(crate) prelude: Vec<(Register, Symbol)>,
    pub(crate) ops: Box<[Op]>,
    pub(crate) end: RegistersEnd,
}

/// Like [`End`](crate::ir::End), with indexes of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegistersEnd {
    Return(u32),
    ReturnA,
    Jump(NodeIndex),
    Repeat(NodeIndex),
    Branch { test: Test, operand: Operand, yes: NodeIndex, no: NodeIndex },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Register {
    A,
    X,
}

/// A program ready to run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Code {
    /// The node where each packet starts.
    pub(crate) entry: NodeIndex,
    /// Edges lead to later nodes, except [`RegistersEnd::Repeat`].
    pub(crate) nodes: Vec<Node>,
    /// Their indexes follow those of the nodes.
    pub(crate) verdicts: Vec<u32>,
}

const _: () = assert!(2 * crate::ir::MAX_BLOCKS - 1 <= NodeIndex::MAX as usize);

impl Node {
    /// Replaces numbers of blocks by indexes of nodes.
    pub(crate) fn relocate(&mut self, entries: &[NodeIndex], singles: &[NodeIndex]) {
        let to = |block: &mut NodeIndex| *block = entries[usize::from(*block)];
        match self {
            Node::Equal(window)
            | Node::AtLeast(window)
            | Node::BehindEqual(_, window)
            | Node::BehindAtLeast(_, window) => [&mut window.yes, &mut window.no].into_iter().for_each(to),
            Node::Both(pair) | Node::Either(pair, _) | Node::BehindBoth(_, pair) | Node::BehindEither(_, pair, _) => {
                pair.short = singles[usize::from(pair.short)];
                [&mut pair.yes, &mut pair.no].into_iter().for_each(to);
            }
            Node::Length { yes, no, .. } => [yes, no].into_iter().for_each(to),
            Node::Registers(registers) => match &mut registers.end {
                RegistersEnd::Return(_) | RegistersEnd::ReturnA => {}
                RegistersEnd::Jump(next) | RegistersEnd::Repeat(next) => to(next),
                RegistersEnd::Branch { yes, no, .. } => [yes, no].into_iter().for_each(to),
            },
        }
    }
}

const _: () = assert!(size_of::<Node>() <= 48);
