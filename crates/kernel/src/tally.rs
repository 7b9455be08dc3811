//! Counts what each expression passes, and sets the bits of those that want the packet written.

use crate::code::{Alu, Atomic, Code, Compare, Register, Width};
use crate::expression::Expression;
use crate::lower::facts;
use crate::wire::{PerCpu, add_constant, add_register, count};
use Register::{R1, R2, R3, R7};
use base::atomic::AtomicU64;
use buffer::live::words::{EXPRESSIONS, PACKET_BYTES};
use buffer::shared::words::Words;
use std::os::fd::BorrowedFd;

/// Words that both the owner and the program write. Readers cannot see them.
#[repr(C)]
pub(crate) struct BellWords {
    /// The bits whose readers sleep.
    pub(crate) armed: AtomicU64,
    /// Fills the cache line: the program reads `armed` for every wanted packet.
    pub(crate) _armed: [AtomicU64; 7],
    /// By bit: packets that passed an expression that samples.
    pub(crate) sampled: [AtomicU64; EXPRESSIONS],
}

// SAFETY: repr(C), atomics only, and all zero bytes are a valid value.
unsafe impl Words for BellWords {}

/// Where expressions count.
#[derive(Clone, Copy)]
pub(crate) struct Tally<'a> {
    /// The map of [`BellWords`], with the counts of sampling expressions.
    pub(crate) bell: BorrowedFd<'a>,
    /// The page of counts of each processor.
    pub(crate) counts: PerCpu<'a>,
}

/// The packet has passed these expressions: counts it, and sets the bits of those that want it written.
pub(crate) fn want<'a>(code: &mut Code, expressions: impl Iterator<Item = &'a Expression>, tally: Tally<'_>) {
    let mut expressions = expressions.peekable();
    if expressions.peek().is_none() {
        return;
    }
    let none = code.label();
    tally.counts.this(code, R1, none);
    expressions.for_each(|expression| want_one(code, expression, tally.bell));
    code.place(none);
}

/// The same for one expression. `R1` holds this processor's page of counts, and keeps it.
fn want_one(code: &mut Code, expression: &Expression, bell: BorrowedFd<'_>) {
    let bit = expression.bit % EXPRESSIONS as u8;
    let left_out = code.label();
    if expression.sample > 1 {
        // One count for all processors: an atomic operation per passing packet, and only for expressions that sample.
        code.set_map_value(R3, bell, std::mem::offset_of!(BellWords, sampled) as u32 + 8 * u32::from(bit));
        code.set(R2, 1);
        code.atomic(Atomic::FetchAdd, R3, 0, R2);
        code.set_64(R3, expression.sample.into());
        code.alu_register(Alu::Modulo, R2, R3);
        code.jump_if(Compare::NotEqual, R2, 0, left_out);
    }
    if expression.counts.is_none() {
        code.load(Width::Eight, R3, R7, facts::WANTED);
        code.set_64(R2, 1 << bit);
        code.alu_register(Alu::Or, R3, R2);
        code.store(Width::Eight, R7, facts::WANTED, R3);
    }
    let at = count::EXPRESSIONS + count::EXPRESSION * i16::from(bit);
    add_constant(code, R1, at, 1);
    code.load(Width::Eight, R2, R7, facts::WIRE);
    add_register(code, R1, at + count::WIRE_BYTES, R2);
    if let Some(snap_len) = expression.counts {
        let whole = code.label();
        let most = if snap_len > 0 { snap_len.min(PACKET_BYTES as u32) } else { PACKET_BYTES as u32 };
        code.jump_if(Compare::AtMost, R2, most as i32, whole);
        code.set(R2, most as i32);
        code.place(whole);
        add_register(code, R1, count::KEPT_BYTES + 8 * i16::from(bit), R2);
    }
    code.place(left_out);
}
