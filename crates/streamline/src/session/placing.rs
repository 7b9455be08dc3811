//! From a checked graph to a design that is carried out: decides where the filters run and how packets are read below
//! them, and opens that. Where something turns out to be impossible, it decides again from the top.

use super::Error;
use crate::app_space::{self, AppSpace};
use crate::live::{Cut, Known, LiveSpaces, ask, cut, offer};
use crate::parser::prefix;
use crate::parser::space::ParserSpace;
use crate::rest::{Rest, rest};
use crate::space::{APP, DAEMON, KERNEL, PARSER, Space};
use capture::Devices;
use control::difference::Difference;
use control::place::{Asked, Offered, Placing};
use control::transaction::{Failed, Order, wrong};
use control::{Before, Design, Graph, Offer, Transaction, whole};
use filter::{Kind, Params, Spaces};
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

/// A request that is carried out.
pub(super) struct Carried {
    pub(super) design: Design,
    /// Which nodes of a running plan go on.
    pub(super) difference: Difference,
    pub(super) app: AppSpace,
    /// The worker's part of the plan.
    pub(super) rest: Rest,
}

impl Here<'_> {
    fn space(&mut self, name: &str) -> Option<&mut dyn Space> {
        let shared = self.shared.iter_mut().map(|space| space as &mut dyn Space);
        let mut spaces = std::iter::once(&mut self.app as &mut dyn Space).chain(self.live.each()).chain(shared);
        spaces.find(|space| space.name() == name)
    }

    /// Places each filter of a graph in a space that offers to run it.
    fn place(&self, graph: Graph) -> Result<Design, Diagnostic> {
        let parser = self.shared.as_ref().map(|_| (PARSER, Spaces::PARSER));
        let own = [(APP, Spaces::APP), (KERNEL, Spaces::KERNEL), (DAEMON, Spaces::DAEMON)];
        let spaces: Vec<(&str, Spaces)> = own.into_iter().chain(parser).collect();
        let mut placing = Placing::new(&graph, &spaces, &self.known.refused)?;
        while let Some(Asked { calls, before }) = placing.ask() {
            let offered = |((name, _), before): (&(&str, Spaces), &Vec<Before<'_>>)| -> Offered {
                let offers = calls.iter().map(|(kind, params)| self.offered(name, kind, params, before));
                let offers: Option<Vec<Offer>> = offers.collect::<Result<_, _>>()?;
                Ok(offers.map(|offers| Offer { cost: offers.iter().map(|offer| offer.cost).sum() }))
            };
            placing.put(&spaces.iter().zip(&before).map(offered).collect::<Vec<_>>())?;
        }
        let (plan, sites) = placing.done();
        Ok(Design { plan, sites, graph })
    }

    /// The offer of one space to run a filter behind those that run there too.
    fn offered(&self, space: &str, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Offered {
        match space {
            APP => Ok(Some(app_space::OFFER)),
            PARSER => self.shared.as_ref().map_or(Ok(None), |shared| shared.offer(kind, params)),
            _ => offer(space, &self.known, kind, params, before),
        }
    }

    /// Places the filters and cuts the plan, but opens nothing. Where a space will not run a filter after all, it
    /// places the filters again.
    pub(super) fn decide(&mut self, mut graph: Graph) -> Result<(Design, Cut), Diagnostic> {
        self.known.look(&graph, self.devices.as_ref());
        loop {
            let mut design = self.place(graph)?;
            let cut = cut(&design.plan, &self.known);
            // Each turn refuses more, so this ends.
            if self.refuses(&design, &cut) {
                graph = design.graph;
                continue;
            }
            for (id, note) in &cut.notes {
                design.sites[id.index()].notes.push(note.clone());
            }
            whole::check(&design)?;
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
        if ask(&mut self.known, design, cut) {
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
    /// `running`: the design that it is to replace.
    pub(super) fn carry_out(
        mut self,
        mut graph: Graph,
        running: Option<&Design>,
        ready: &mut dyn FnMut(&mut Design) -> Result<(), Error>,
    ) -> Result<Carried, Error> {
        loop {
            let (mut design, cut) = self.decide(graph)?;
            ready(&mut design)?;
            self.live.set_cut(cut);
            if let Some(shared) = &mut self.shared {
                shared.set_prefixes(prefix::prefixes(&design));
            }
            match self.attempt(&design, running) {
                Ok(difference) => {
                    let inlets = self.shared.map(ParserSpace::into_inlets).unwrap_or_default();
                    let rest = rest(self.live, inlets, &design.plan);
                    return Ok(Carried { design, difference, app: self.app, rest });
                }
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

    /// Follows the orders of a transaction.
    fn attempt(&mut self, design: &Design, running: Option<&Design>) -> Result<Difference, Failed> {
        let mut transaction = Transaction::new(design, running);
        while let Some((name, order)) = transaction.order() {
            let space = self.space(name).expect("a design is placed in spaces that are here");
            transaction.answer(match order {
                Order::Keep(id, running) => Ok(space.keep(id, running)),
                Order::Carry(step) => space.carry(&step, &design.plan).map(|()| true),
                Order::Undo(step) => {
                    space.undo(&step);
                    Ok(true)
                }
            });
        }
        transaction.end()
    }
}
