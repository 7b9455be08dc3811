//! Combines filters that stand one after the other from a device on: the expression that the kernel asks, or the daemon
//! where it copies. Makes programs of expressions, and cheap ones where they must be.

use super::selection::{Selection, is_typed};
use capture::budget::INSTRUCTIONS;
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{CaptureError, CaptureErrorKind};
use filter::{DeviceAccess, Kind, Lower, Params};
use program::{Compile, Expression, Passes, Program};

/// Most paths from devices to one node that are followed: a device has no more readers.
pub(super) const WAYS: usize = buffer::live::EXPRESSIONS;

/// Whether a request has this device to itself.
pub(crate) fn is_own(kind: &Kind) -> bool {
    matches!(kind.device, Some(DeviceAccess::Exclusive(_)))
}

/// Whether this filter gives numbers of packets, and no packets.
pub(crate) fn counts(kind: &Kind) -> bool {
    matches!(kind.lower, Some(Lower::Counts))
}

/// The device by which a sink sends frames without their leaving the kernel. `None`: it is no such sink.
pub(crate) fn forwards_to(kind: &Kind, params: &Params) -> Option<String> {
    match kind.lower {
        Some(Lower::Forwards(target)) => target(params).ok(),
        _ => None,
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    /// A packet has to pass all of these.
    pub(crate) chosen: Vec<Expression>,
    /// Of the packets that pass, take the first of each `sample`.
    pub(crate) sample: u32,
    pub(crate) counts: bool,
}

impl Lowered {
    pub(crate) fn expression(&self) -> Expression {
        match &self.chosen[..] {
            [one] => one.clone(),
            all => Expression::All(all.to_vec()),
        }
    }
}

pub(super) fn cannot(text: impl Into<String>) -> CaptureError {
    CaptureError::new(CaptureErrorKind::Cannot, text)
}

/// Combines filters that stand one after the other, over frames of a link type. The error says why the kernel cannot do
/// it.
pub(crate) fn lowered<'a>(
    filters: impl IntoIterator<Item = &'a Selection>,
    compiler: &dyn Compile,
    link_type: u16,
) -> Result<Lowered, CaptureError> {
    let mut all = Lowered { sample: 1, ..Lowered::default() };
    for filter in filters {
        match filter {
            Selection::Filter(Kind { lower: Some(Lower::Counts), .. }, _) => all.counts = true,
            Selection::Filter(Kind { lower: Some(Lower::Forwards(_)), .. }, _) => {}
            // The first of each m of the first of each n is the first of each m * n.
            Selection::Filter(Kind { lower: Some(Lower::OneIn(one_in)), .. }, params) => {
                let sample = one_in(params).map_err(cannot)?.checked_mul(all.sample);
                all.sample = sample.ok_or_else(|| cannot("so few packets are not counted there"))?;
            }
            // A typed filter behind `sample` is not lowered: the packets are counted before it, and the reader alone
            // asks it.
            Selection::Filter(kind, _) if is_typed(kind) && all.sample > 1 => {}
            _ => {
                let expression = filter.expression(compiler, link_type).map_err(cannot)?;
                if repeats(&expression) {
                    return Err(cannot(kernel::lower::Refusal::Repeats.to_string()));
                }
                all.chosen.push(expression);
            }
        }
    }
    if all.expression().program(Passes::Perhaps).is_none() {
        return Err(cannot("the expression is too long for a program"));
    }
    Ok(all)
}

fn repeats(expression: &Expression) -> bool {
    match expression {
        Expression::Program(program) => program.repeats(),
        Expression::Packet(_) => false,
        Expression::All(parts) | Expression::Any(parts) => parts.iter().any(repeats),
        Expression::Not(part) => repeats(part),
    }
}

/// Above this cost, a reader's expression may be replaced by a cheap, rough one. It is the average share of each of a
/// device's readers, unless the daemon's policy says otherwise.
const ROUGH: u32 = INSTRUCTIONS / WAYS as u32;

/// Replaces costly expressions by the beginnings of their programs, which are cheap and pass at least the same packets.
/// `None`: one of them would pass everything.
pub(crate) fn roughly(wanted: Vec<Expression>) -> Option<Vec<Expression>> {
    let is_cheap = |program: &Program| kernel::cost(Some(program), 1) <= ROUGH;
    let rough = |expression: Expression| {
        let program = expression.program(Passes::Perhaps)?;
        if is_cheap(&program) {
            return Some(expression);
        }
        let beginnings = (1..=program.blocks().len()).map(|blocks| program.beginning(blocks));
        let program = beginnings.take_while(is_cheap).last()?;
        program.always().is_none_or(|length| length == 0).then_some(Expression::Program(program))
    };
    wanted.into_iter().map(rough).collect()
}

/// The program for packets that `chosen` and any of `wanted` pass, no longer than a program may be. `None`: everything
/// passes.
pub(crate) fn program(chosen: &Expression, wanted: Option<&[Expression]>, passes: Passes) -> Option<Program> {
    let both = wanted.map(|wanted| Expression::All(vec![chosen.clone(), Expression::Any(wanted.to_vec())]));
    // Where both together are too long, use `chosen` alone.
    let mut programs = both.iter().chain([chosen]).filter_map(|expression| expression.program(passes));
    let program = programs.find(|program| program::to_cbpf(program).len() <= PROGRAM_INSTRUCTIONS)?;
    program.always().is_none_or(|length| length == 0).then_some(program)
}

/// Like [`program()`], but with one program for each of `wanted`; a packet has to pass any of them.
pub(crate) fn programs(chosen: &Expression, wanted: Option<&[Expression]>) -> Option<Vec<Program>> {
    let each = |wanted: &Expression| program(chosen, Some(std::slice::from_ref(wanted)), Passes::Perhaps);
    match wanted {
        None => program(chosen, None, Passes::Perhaps).map(|program| vec![program]),
        Some(wanted) => wanted.iter().map(each).collect(),
    }
}
