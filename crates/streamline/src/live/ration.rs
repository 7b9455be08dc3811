//! Fits a plan into the daemon's budgets, before anything is opened. It sums the costs of the expressions of all
//! readers that the plan would open, in the order in which they are opened. A filter that does not fit runs in the
//! reader.
//!
//! In: a plan, and the present budgets of its devices. Out: the nodes that will not run here, and the places where more
//! packets come up than are wanted. If a budget changes before the plan is carried out, the daemon refuses the excess,
//! and the plan is placed again.

use super::space::{LiveSpace, PreFiltering, Reads, Why};
use capture::CaptureErrorKind;
use capture::{Budget, CaptureError, CaptureRequest, Devices, Mode};
use engine::{NodeId, Plan};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Rationed {
    /// Nodes that run in the reader, and why.
    pub(super) refused: Vec<(NodeId, String)>,
    /// How much is left out at least where packets leave the space. The key is the node, and whether the nodes above
    /// are shared.
    pub(super) pre_filtering: BTreeMap<(NodeId, bool), PreFiltering>,
}

pub(super) fn ration(space: &LiveSpace, plan: &Plan) -> Rationed {
    let mut rationed = Rationed::default();
    let mut budgets = Budgets { devices: space.devices(), known: BTreeMap::new() };
    for to_shared in [true, false] {
        let Some(mut rehearsed) = space.rehearsed(plan, to_shared) else { continue };
        // Nodes are activated from the last to the first.
        for id in (0..plan.nodes.len()).rev().map(|index| NodeId(index as u32)) {
            for paths in rehearsed.leaving(id) {
                let taken = rehearsed.narrowest(&paths, |reads| match rehearsed.goes_on(&reads) {
                    Some(node) => Ok(Some((reads, node))),
                    None => budgets.take(&reads).map(|()| None).map_err(Why::CaptureError),
                });
                match taken {
                    Ok((goes_on, pre_filtering)) => {
                        let least = rationed.pre_filtering.entry((id, to_shared)).or_insert(pre_filtering);
                        *least = pre_filtering.max(*least);
                        if let Some((reads, node)) = goes_on {
                            rehearsed.takes_over(id, paths, reads, node);
                        }
                    }
                    Err(Why::CaptureError(error)) if error.kind == CaptureErrorKind::Cannot => {
                        rationed.refused.push((id, format!("it runs in the reader: {}", error.text)));
                    }
                    // A missing device is reported when it is opened.
                    Err(_) => {}
                }
            }
        }
    }
    rationed
}

struct Budgets<'a> {
    devices: &'a dyn Devices,
    known: BTreeMap<String, Option<Budget>>,
}

impl Budgets<'_> {
    /// Takes the costs of all readers of a source, or nothing when they do not fit.
    fn take(&mut self, reads: &Reads) -> Result<(), CaptureError> {
        let all_asked = reads.all_asked();
        for asked in &all_asked {
            let budget = || self.devices.budget(&asked.device);
            self.known.entry(asked.device.clone()).or_insert_with(budget);
        }
        let mut left = self.known.clone();
        // The kernel must choose the packets that are taken from the host, so the reader cannot. Opening reports an
        // expression that does not fit.
        for asked in all_asked.into_iter().filter(|asked| asked.mode == Mode::Tap) {
            if let Some(Some(budget)) = left.get_mut(&asked.device) {
                budget.take(&asked.device, cost(asked)?)?;
            }
        }
        self.known = left;
        Ok(())
    }
}

fn cost(asked: &CaptureRequest) -> Result<u32, CaptureError> {
    let program = match asked.program.as_slice() {
        [] => None,
        program => {
            let lowered = program::from_cbpf(program);
            Some(lowered.map_err(|error| CaptureError::new(CaptureErrorKind::Request, error.to_string()))?)
        }
    };
    Ok(kernel::cost(program.as_ref(), asked.sample))
}
