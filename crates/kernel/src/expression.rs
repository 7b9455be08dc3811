//! An expression of a capture program.

use program::ir::Program;
use std::sync::Arc;

/// An expression: selects the packets that get its bit.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The bit.
    pub bit: u8,
    /// The filter program. `None` passes all packets.
    pub program: Option<Arc<Program>>,
    /// Applies to received packets.
    pub incoming: bool,
    /// Applies to sent packets.
    pub outgoing: bool,
    /// With `n`, the first of every `n` passing packets gets the bit; 0 and 1: all. One exact count for all processors
    /// and both directions.
    pub sample: u32,
    /// `Some(n)`: count packets only, as if `n` bytes of each were kept (0: all), and set no bit. `None`: set the bit.
    pub counts: Option<u32>,
}

impl Expression {
    /// An expression for all packets that `program` passes, in both directions. `None`: all packets.
    pub fn new(bit: u8, program: Option<Arc<Program>>) -> Expression {
        Expression { bit, program, incoming: true, outgoing: true, sample: 1, counts: None }
    }
}
