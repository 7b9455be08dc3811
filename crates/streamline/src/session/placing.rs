//! From a checked graph to a design that is carried out: decides where the filters run and how packets are read below
//! them, and opens that. Where something turns out to be impossible, it decides again from the top.

use super::{Error, Rest};
use crate::app_space::AppSpace;
use crate::live::{Cut, Known, LiveSpaces, cut, rest};
use crate::parser::prefix;
use crate::parser::space::ParserSpace;
use capture::Devices;
use control::difference::Difference;
use control::place::{self, place};
use control::transaction::{Failed, carry_out, wrong};
use control::{Design, Graph, Space};
use engine::Plan;
use request::Diagnostic;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The spaces for one request, and what is known of the world.
pub(super) struct Here<'a> {
    pub(super) app: AppSpace,
    pub(super) live: LiveSpaces,
    /// `None`: the request shares nothing.
    pub(super) shared: Option<ParserSpace<'a>>,
    /// Texts of prefixes that run in this process already, and go on in it.
    pub(super) stay: BTreeSet<String>,
    pub(super) known: Known,
    pub(super) devices: Arc<dyn Devices>,
}

impl<'a> Here<'a> {
    fn spaces(&mut self) -> Vec<Box<dyn Space + '_>> {
        let mut spaces: Vec<Box<dyn Space + '_>> = vec![Box::new(&mut self.app)];
        spaces.extend(self.live.each().map(|space| Box::new(space) as Box<dyn Space + '_>));
        spaces.extend(self.shared.as_mut().map(|space| Box::new(space) as Box<dyn Space + '_>));
        spaces
    }

    /// Places the filters and cuts the plan, but opens nothing. Where a space will not run a filter after all, it
    /// places the filters again.
    pub(super) fn decide(&mut self, mut graph: Graph) -> Result<(Design, Cut), Diagnostic> {
        self.known.look(&graph, self.devices.as_ref());
        loop {
            let refused = self.known.refused.clone();
            let mut design = place(graph, &self.spaces(), &refused)?;
            let cut = cut(&design.plan, &self.known);
            // Each turn refuses more, so this ends.
            if self.refuses(&design, &cut) {
                graph = design.graph;
                continue;
            }
            for (id, note) in &cut.notes {
                design.sites[id.index()].notes.push(note.clone());
            }
            place::check(&design)?;
            return match cut.wrong.clone() {
                Some((id, error)) => Err(wrong(&design, id, error)),
                None => Ok((design, cut)),
            };
        }
    }

    /// Notes what cannot run where it was placed. Gives whether there is something.
    fn refuses(&mut self, design: &Design, cut: &Cut) -> bool {
        if !cut.refused.is_empty() {
            return self.known.refuse(design, &cut.refused);
        }
        if self.known.ask(design, cut) {
            return true;
        }
        if self.shared.is_none() {
            return false;
        }
        let before = self.known.refused.0.len();
        self.known.refused.0.extend(prefix::unfit(design).0);
        self.known.refused.0.extend(prefix::running_here(design, &self.stay).0);
        self.known.refused.0.len() > before
    }

    /// Opens a request's devices, files and rings, or leaves all closed. `ready` sees each design before it is carried out.
    /// `running`: the design that it is to replace. Gives also which of its nodes go on.
    pub(super) fn carry_out(
        &mut self,
        mut graph: Graph,
        running: Option<&Design>,
        ready: &mut dyn FnMut(&mut Design) -> Result<(), Error>,
    ) -> Result<(Design, Difference), Error> {
        loop {
            let (mut design, cut) = self.decide(graph)?;
            ready(&mut design)?;
            self.live.set_cut(cut);
            if let Some(shared) = &mut self.shared {
                shared.set_prefixes(prefix::prefixes(&design));
            }
            let outcome = carry_out(&design, running, &mut self.spaces());
            match outcome {
                Ok(difference) => return Ok((design, difference)),
                Err(Failed::Error(error)) => return Err(error.into()),
                // Each turn refuses more, so this ends.
                Err(Failed::Refused(node, why)) => {
                    if !self.live.tell(&mut self.known) {
                        self.known.refuse(&design, &[(node, why)]);
                    }
                    graph = design.graph;
                }
            }
        }
    }

    /// The worker's part of the plan, and the space that has made it.
    pub(super) fn into_rest(self, plan: &Plan) -> (AppSpace, Rest) {
        let inlets = self.shared.map(ParserSpace::into_inlets).unwrap_or_default();
        (self.app, rest(self.live, inlets, plan))
    }
}
