//! Follows the intermediate form with symbols: the contents of A and X in terms of the packet, the bytes that are known
//! to be there, and so the blocks that are tests without registers.
//!
//! It only analyses; [`node`](crate::node) decides about each block.

use crate::ir::{Block, BlockId, End, Index, Operand, Operation, Size, Step, Test, Value};
use crate::node::{Node, NodeIndex, WINDOW_BYTES, Window};
use crate::symbol::Symbol;

/// Registers and memory slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) a: bool,
    pub(crate) x: bool,
    pub(crate) memory: u16,
}

impl Wanted {
    pub(crate) fn or(self, other: Wanted) -> Wanted {
        Wanted { a: self.a || other.a, x: self.x || other.x, memory: self.memory | other.memory }
    }

    pub(crate) fn without(self, other: Wanted) -> Wanted {
        Wanted { a: self.a && !other.a, x: self.x && !other.x, memory: self.memory & !other.memory }
    }
}

/// The knowledge at the start of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) a: Symbol,
    pub(crate) x: Symbol,
    /// The packet has at least this many bytes.
    bytes: u64,
}

const NOTHING: Facts = Facts { a: Symbol::Unknown, x: Symbol::Unknown, bytes: 0 };

impl Facts {
    fn meet(self, other: Facts) -> Facts {
        let same = |one, two| if one == two { one } else { Symbol::Unknown };
        Facts { a: same(self.a, other.a), x: same(self.x, other.x), bytes: self.bytes.min(other.bytes) }
    }
}

/// The analysis of a block.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    pub(crate) before: Facts,
    after: Facts,
    /// The registers and slots that it sets, and those that it reads before setting them.
    pub(crate) sets: Wanted,
    pub(crate) reads: Wanted,
    /// It only has loads, masks and copies of known symbols.
    plain: bool,
    /// Bytes its loads need from the start of the packet.
    reach: u64,
    /// Bytes its loads need behind the IPv4 header at an offset.
    reach_behind: Option<(u32, u64)>,
}

/// Analyses all blocks in order, each after its predecessors. Targets of backward edges start without knowledge.
pub(crate) fn walk(blocks: &[Block]) -> Vec<Walk> {
    let mut facts: Vec<Option<Facts>> = vec![None; blocks.len()];
    facts[0] = Some(Facts { a: Symbol::Constant(0), x: Symbol::Constant(0), bytes: 0 });
    for block in blocks {
        if let End::Repeat(to) = block.end {
            facts[to.index()] = Some(NOTHING);
        }
    }
    let mut walks = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.iter().enumerate() {
        let walk = Walk::through(block, facts[at].unwrap_or(NOTHING));
        for to in block.end.successors() {
            let fact = &mut facts[to.index()];
            *fact = Some(fact.map_or(walk.after, |known| known.meet(walk.after)));
        }
        walks.push(walk);
    }
    walks
}

impl Walk {
    fn through(block: &Block, before: Facts) -> Walk {
        let nothing = Wanted::default();
        let mut walk =
            Walk { before, after: before, sets: nothing, reads: nothing, plain: true, reach: 0, reach_behind: None };
        block.steps.iter().for_each(|&step| walk.step(step));
        if let End::Branch { operand, .. } = block.end {
            walk.read_a();
            if operand == Operand::X {
                walk.read_x();
            }
        }
        if block.end == End::ReturnA {
            walk.read_a();
        }
        walk.after.bytes = before.bytes.max(walk.reach);
        walk
    }

    fn read_a(&mut self) {
        self.reads.a |= !self.sets.a;
    }

    fn read_x(&mut self) {
        self.reads.x |= !self.sets.x;
    }

    fn read_memory(&mut self, slot: u8) {
        self.plain = false;
        self.reads.memory |= slot_bit(slot) & !self.sets.memory;
    }

    fn set_a(&mut self, symbol: Symbol) {
        self.plain &= symbol != Symbol::Unknown;
        self.sets.a = true;
        self.after.a = symbol;
    }

    fn set_x(&mut self, symbol: Symbol) {
        self.plain &= symbol != Symbol::Unknown;
        self.sets.x = true;
        self.after.x = symbol;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::LoadA(Value::Constant(value)) => self.set_a(Symbol::Constant(value)),
            Step::LoadA(Value::WireLength) => self.set_a(Symbol::WireLength),
            Step::LoadA(Value::Packet { size, offset }) => self.load(None, size, offset),
            Step::LoadA(Value::Indexed { size, offset }) => {
                self.read_x();
                match self.after.x {
                    Symbol::HeaderLength(header) => self.load(Some(header), size, offset),
                    Symbol::Constant(x) if x.checked_add(offset).is_some() => self.load(None, size, x + offset),
                    _ => self.set_a(Symbol::Unknown),
                }
            }
            Step::LoadA(Value::Memory(slot)) => {
                self.read_memory(slot);
                self.set_a(Symbol::Unknown);
            }
            Step::LoadX(Index::Constant(value)) => self.set_x(Symbol::Constant(value)),
            Step::LoadX(Index::WireLength) => self.set_x(Symbol::WireLength),
            Step::LoadX(Index::HeaderLength(offset)) => {
                self.reach = self.reach.max(u64::from(offset) + 1);
                self.set_x(Symbol::HeaderLength(offset));
            }
            Step::LoadX(Index::Memory(slot)) => {
                self.read_memory(slot);
                self.set_x(Symbol::Unknown);
            }
            Step::StoreA(slot) => {
                self.read_a();
                self.plain = false;
                self.sets.memory |= slot_bit(slot);
            }
            Step::StoreX(slot) => {
                self.read_x();
                self.plain = false;
                self.sets.memory |= slot_bit(slot);
            }
            Step::CopyAToX => {
                self.read_a();
                self.set_x(self.after.a);
            }
            Step::CopyXToA => {
                self.read_x();
                self.set_a(self.after.x);
            }
            Step::Negate => {
                self.read_a();
                self.set_a(Symbol::Unknown);
            }
            Step::Arithmetic(operation, operand) => {
                self.read_a();
                if operand == Operand::X {
                    self.read_x();
                }
                let operand = match (operand, self.after.x) {
                    (Operand::Constant(value), _) | (Operand::X, Symbol::Constant(value)) => Some(value),
                    _ => None,
                };
                self.set_a(match (self.after.a, operation, operand) {
                    (Symbol::Field { behind, size, offset, mask }, Operation::And, Some(value)) => {
                        Symbol::Field { behind, size, offset, mask: mask & value }
                    }
                    (Symbol::Constant(a), _, Some(value)) => {
                        operation.apply(a, value).map_or(Symbol::Unknown, Symbol::Constant)
                    }
                    _ => Symbol::Unknown,
                });
            }
        }
    }

    fn load(&mut self, behind: Option<u32>, size: Size, offset: u32) {
        let end = u64::from(offset) + u64::from(size.bytes());
        match (behind, self.reach_behind) {
            (None, _) => self.reach = self.reach.max(end),
            (Some(header), None) => self.reach_behind = Some((header, end)),
            (Some(header), Some((same, reach))) if header == same => {
                self.reach_behind = Some((header, reach.max(end)));
            }
            // Loads behind two headers: one window cannot cover both.
            (Some(_), Some(_)) => self.plain = false,
        }
        let mask = u32::MAX >> (32 - 8 * size.bytes());
        self.set_a(Symbol::Field { behind, size, offset, mask });
    }

    /// The block as a test without registers. `None`: it is none.
    pub(crate) fn test(&self, block: &Block) -> Option<Node> {
        let End::Branch { test, operand, yes: BlockId(yes), no: BlockId(no) } = block.end else { return None };
        let constant = match (operand, self.after.x) {
            (Operand::Constant(value), _) | (Operand::X, Symbol::Constant(value)) => value,
            _ => return None,
        };
        if !self.plain {
            return None;
        }
        match self.after.a {
            Symbol::WireLength if self.reach <= self.before.bytes && self.reach_behind.is_none() => {
                let at_least = match test {
                    Test::AtLeast => constant,
                    Test::Greater => constant.checked_add(1)?,
                    Test::Equal | Test::AnyBit => return None,
                };
                Some(Node::Length { at_least, yes, no })
            }
            Symbol::Field { behind: None, size, offset, mask } if self.reach_behind.is_none() => {
                let field = Field { offset, size, mask };
                let (window, order) = field.window(self.reach, test, constant)?.leading(yes, no);
                Some(if order { Node::AtLeast(window) } else { Node::Equal(window) })
            }
            Symbol::Field { behind: Some(header), size, offset, mask } => {
                let reach = match self.reach_behind {
                    None => 0,
                    Some((same, reach)) if same == header => reach,
                    Some(_) => return None,
                };
                // The window covers the header's first byte, which proves the bytes before it.
                if self.reach > self.before.bytes.max(u64::from(header) + 1) {
                    return None;
                }
                let header = u16::try_from(header).ok()?;
                let field = Field { offset, size, mask };
                let (window, order) = field.window(reach, test, constant)?.leading(yes, no);
                Some(if order { Node::BehindAtLeast(header, window) } else { Node::BehindEqual(header, window) })
            }
            _ => None,
        }
    }
}

fn slot_bit(slot: u8) -> u16 {
    1u16.checked_shl(slot.into()).unwrap_or(0)
}

/// A field under a mask. The caller knows its base.
#[derive(Debug, Clone, Copy)]
struct Field {
    offset: u32,
    size: Size,
    mask: u32,
}

/// A comparison of a window, without its targets.
#[derive(Debug, Clone, Copy)]
struct Comparison {
    start: u16,
    need: u16,
    mask: u64,
    value: u64,
    /// It compares the order, not equality.
    order: bool,
    /// The results are swapped.
    swapped: bool,
}

impl Field {
    /// The comparison of the eight bytes that end where the block's loads end (`reach`), if they include the field.
    fn window(self, reach: u64, test: Test, constant: u32) -> Option<Comparison> {
        let end = u64::from(self.offset) + u64::from(self.size.bytes());
        let need = u16::try_from(reach.max(end)).ok()?;
        let start = need.saturating_sub(WINDOW_BYTES);
        if self.offset < u32::from(start) {
            return None;
        }
        let shift = 8 * (u64::from(start) + u64::from(WINDOW_BYTES) - end);
        let (mask, constant) = (u64::from(self.mask), u64::from(constant));
        let made = |mask: u64, value: u64, order| {
            // Both fit: they are no larger than the field, which lies inside the window.
            Comparison { start, need, mask: mask << shift, value: value << shift, order, swapped: false }
        };
        // Bytes under an empty mask are 0.
        let never = Comparison { start, need, mask: 0, value: 1, order: false, swapped: false };
        Some(match test {
            Test::Equal if constant & !mask != 0 => never,
            Test::Equal => made(mask, constant, false),
            Test::AnyBit => Comparison { swapped: true, ..made(mask & constant, 0, false) },
            Test::AtLeast if constant > mask => never,
            Test::AtLeast => made(mask, constant, true),
            Test::Greater if constant >= mask => never,
            Test::Greater => made(mask, constant + 1, true),
        })
    }
}

impl Comparison {
    fn leading(self, yes: NodeIndex, no: NodeIndex) -> (Window, bool) {
        let Comparison { start, need, mask, value, order, swapped } = self;
        let (yes, no) = if swapped { (no, yes) } else { (yes, no) };
        (Window { start, need, yes, no, mask, value }, order)
    }
}
