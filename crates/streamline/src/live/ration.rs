//! What of a plan the daemon's budgets have room for, before anything is opened: each reader that the plan would open is asked
//! what its expression costs, in the order in which readers are opened. What there is no room for runs in the reader.
//!
//! In: a plan, and the budgets of its devices as they are now. Out: what will not run here, and where more comes up than is
//! wanted. Should a budget change before the plan is carried out, the daemon refuses what does not fit, and it is placed again.

use super::space::{LiveSpace, Narrowing, Reads, Why};
use capture::writer::TroubleKind;
use capture::{Budget, Mode, Trouble, Wish};
use engine::{NodeId, Plan};
use filter::Devices;
use std::collections::BTreeMap;

/// What a plan is given.
#[derive(Debug, Default)]
pub(super) struct Rationed {
    /// Nodes that run in the reader, and why.
    pub(super) refused: Vec<(NodeId, String)>,
    /// How much is left out at least where packets leave the space: at a node, and whether what is above is shared.
    pub(super) narrowing: BTreeMap<(NodeId, bool), Narrowing>,
}

/// What this plan is given in this space.
pub(super) fn ration(space: &LiveSpace, plan: &Plan) -> Rationed {
    let mut rationed = Rationed::default();
    let mut budgets = Budgets { devices: space.devices(), known: BTreeMap::new() };
    for to_shared in [true, false] {
        let Some(mut rehearsed) = space.rehearsed(plan, to_shared) else { continue };
        // Nodes are activated from the last up.
        for id in (0..plan.nodes.len()).rev().map(|index| NodeId(index as u32)) {
            for paths in rehearsed.leaving(id) {
                let taken = rehearsed.narrowest(&paths, |reads| match rehearsed.goes_on(&reads) {
                    Some(node) => Ok(Some((reads, node))),
                    None => budgets.take(&reads).map(|()| None).map_err(Why::Trouble),
                });
                match taken {
                    Ok((goes_on, narrowing)) => {
                        let least = rationed.narrowing.entry((id, to_shared)).or_insert(narrowing);
                        *least = narrowing.max(*least);
                        if let Some((reads, node)) = goes_on {
                            rehearsed.takes_over(id, paths, reads, node);
                        }
                    }
                    Err(Why::Trouble(trouble)) if trouble.kind == TroubleKind::Cannot => {
                        rationed.refused.push((id, format!("it runs in the reader: {}", trouble.text)));
                    }
                    // A device that is not there is not there: who opens it says so.
                    Err(_) => {}
                }
            }
        }
    }
    rationed
}

/// What is left of each device's budget.
struct Budgets<'a> {
    devices: &'a dyn Devices,
    known: BTreeMap<String, Option<Budget>>,
}

impl Budgets<'_> {
    /// Takes what all readers of a source cost, or nothing.
    fn take(&mut self, reads: &Reads) -> Result<(), Trouble> {
        let wishes = reads.wishes();
        for wish in &wishes {
            let budget = || self.devices.budget(&wish.device);
            self.known.entry(wish.device.clone()).or_insert_with(budget);
        }
        let mut left = self.known.clone();
        // What is to be taken away from the host is chosen in the kernel, or not taken at all: whoever opens it says so.
        for wish in wishes.into_iter().filter(|wish| wish.mode == Mode::Tap) {
            if let Some(Some(budget)) = left.get_mut(&wish.device) {
                budget.take(&wish.device, cost(wish)?)?;
            }
        }
        self.known = left;
        Ok(())
    }
}

/// What a reader's expression costs, as the daemon counts it.
fn cost(wish: &Wish) -> Result<u32, Trouble> {
    let program = match wish.program.as_slice() {
        [] => None,
        program => {
            let lowered = program::from_cbpf(program);
            Some(lowered.map_err(|error| Trouble::new(TroubleKind::Wish, error.to_string()))?)
        }
    };
    Ok(kernel::cost(program.as_ref(), wish.sample))
}
