//! The packets that the filters behind an edge can want. The filters decide by themselves; the kernel leaves out packets
//! that they cannot want.
//!
//! Where packets are *taken away* from the host, only filters written as a program count. A request with a filter like
//! `tcp` does not ask to leave all other packets with the host.

use super::selection::{Selection, selection};
use capture::ETHERNET;
use engine::{Edge, NodeId, Plan};
use filter::{Kind, Lower};
use program::{Compile, Expression, Passes};

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
