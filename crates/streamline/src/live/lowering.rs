//! Decides from the plan which filters the kernel runs, or the daemon where it copies. It decides before anything is
//! opened, both to explain a request and to run it.
//!
//! In:
//! - filters, one after the other from a device on ([`lowered`]);
//! - the filters behind the edges that leave the kernel ([`Behind`], [`wanted`]).
//!
//! Out: expressions and programs. The module `cut` makes a plan's readings of them.
//!
//! The filters behind an edge decide by themselves; the kernel leaves out packets that they cannot want. Where packets
//! are *taken away* from the host, only filters written as a program count. A request with a filter like `tcp` does not
//! ask to leave all other packets with the host.

use super::selection::{Selection, is_typed, selection};
use capture::budget::INSTRUCTIONS;
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{CaptureError, CaptureErrorKind, ETHERNET};
use engine::{Edge, NodeId, Plan};
use filter::{DeviceAccess, Kind, Lower, Params};
use program::{Compile, Expression, Passes, Program};

pub(crate) const KERNEL: &str = "kernel";
pub(crate) const DAEMON: &str = "daemon";

/// Most paths from devices to one node that are followed: a device has no more readers.
pub(super) const WAYS: usize = buffer::live::EXPRESSIONS;

/// Does a request have this device to itself?
pub(crate) fn is_own(kind: &Kind) -> bool {
    matches!(kind.device, Some(DeviceAccess::Exclusive(_)))
}

/// Does this filter give numbers of packets, and no packets?
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

/// The packets that filters behind an edge can want, as far as the filters tell.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// Selectors; a wanted packet passes all of them.
    written: Vec<Selection>,
    /// What a wanted packet must be besides.
    pre_filter: Option<Expression>,
    /// A filter behind the selectors that turns packets into others.
    opened: Option<Opened>,
}

/// Wanted packets at a filter that turns packets into others: those that it turns (`others`), and those that the
/// filters behind it want as they are (`behind`).
#[derive(Clone, Debug)]
struct Opened {
    others: Vec<Expression>,
    behind: Vec<Behind>,
}

impl Behind {
    pub(crate) fn of(plan: &Plan, edge: &Edge) -> Behind {
        Behind::find(plan, edge, true)
    }

    /// `may_open`: look behind a filter that turns packets into others. Not behind two of them, since a plan has many
    /// paths.
    fn find(plan: &Plan, edge: &Edge, may_open: bool) -> Behind {
        let mut behind = Behind { written: Vec::new(), pre_filter: None, opened: None };
        let mut at = edge.to;
        // Plans have no cycles, so this ends.
        while behind.add(plan, at, may_open) {
            let [Edge { to, select: None, .. }] = &plan.nodes[at.index()].edges[..] else { break };
            at = *to;
        }
        behind
    }

    /// Adds what a packet has to pass at a node. Gives whether that is known completely, so that the next node can be
    /// added.
    fn add(&mut self, plan: &Plan, at: NodeId, may_open: bool) -> bool {
        if plan.nodes[at.index()].edges.iter().any(|edge| edge.rejected) {
            // The rejected packets are wanted as well.
            return false;
        }
        if let Some(selection) = selection(plan, at) {
            match &selection {
                Selection::Filter(Kind { lower: Some(Lower::Program(_) | Lower::Selects(_)), .. }, _) => {}
                Selection::Filter(kind @ Kind { opens: Some(opens), .. }, params) => {
                    if may_open && let Some(others) = opens(params) {
                        let others = others.into_iter().map(Expression::Packet).collect();
                        let edges = &plan.nodes[at.index()].edges;
                        let behind = edges.iter().map(|edge| Behind::find(plan, edge, false)).collect();
                        self.opened = Some(Opened { others, behind });
                    }
                    debug_assert!(kind.pre_filter.is_none(), "what it opens it wants");
                    return false;
                }
                Selection::Filter(kind, params) => {
                    self.pre_filter = kind.pre_filter.and_then(|pre_filter| pre_filter(params)).map(Expression::Packet);
                    return false;
                }
                _ => {}
            }
            self.written.push(selection);
            return true;
        }
        false
    }

    /// An expression that passes at least what the filters can want. `None`: that may be everything. Packets are cut to
    /// `snap_len` bytes before the filters see them (0 = not cut).
    fn expression(
        &self,
        only_written: bool,
        compiler: &dyn Compile,
        link_type: u16,
        snap_len: u32,
    ) -> Option<Expression> {
        let written = self.written.iter().filter(|one| snap_len == 0 || one.is_of_cut_packets());
        // A selector without an expression reports its error itself.
        let written = written.filter_map(|one| one.expression(compiler, link_type).ok());
        let pre_filter = self.pre_filter.clone().filter(|_| !only_written && link_type == ETHERNET);
        let opened = self.opened.as_ref().filter(|_| link_type == ETHERNET).and_then(|opened| {
            let behind =
                opened.behind.iter().map(|behind| behind.expression(only_written, compiler, link_type, snap_len));
            let behind = behind.collect::<Option<Vec<_>>>()?;
            Some(Expression::Any(behind.into_iter().chain(opened.others.iter().cloned()).collect()))
        });
        let all: Vec<Expression> =
            written.chain(pre_filter).chain(opened).filter(|one| one.program(Passes::Perhaps).is_some()).collect();
        let all = Expression::All(all);
        let program = all.program(Passes::Perhaps)?;
        program.always().is_none_or(|length| length == 0).then_some(all)
    }
}

/// Which packets the filters behind these edges want; the edges leave the kernel at one place. A packet has to pass any
/// of the expressions. `None`: all packets may be wanted. `only_written`: count only selectors, not what other filters
/// can want.
pub(crate) fn wanted(
    behind: &[Behind],
    only_written: bool,
    compiler: &dyn Compile,
    link_type: u16,
    snap_len: u32,
) -> Option<Vec<Expression>> {
    let mut all: Vec<Expression> = Vec::new();
    for behind in behind {
        let one = behind.expression(only_written, compiler, link_type, snap_len)?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    (!all.is_empty()).then_some(all)
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
