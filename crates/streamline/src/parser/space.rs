//! The space `parser`: filters that run once for several requests, in the parser process.
//!
//! In: steps of a transaction. Out: a source for each place where blocks leave this space for the request's own
//! process. This process makes neither the filters placed here nor those before them in the kernel. The parser process
//! has the same text and makes them.

use crate::left::Opened;
use crate::parser::prefix::{Prefix, is_shareable};
use crate::space::{PARSER, Space};
use buffer::pipe::PipeReader;
use control::place::Offered;
use control::transaction::Step;
use control::{Offer, StepError};
use engine::{NodeId, Plan};
use filter::{Kind, ParamError, Params};
use filters::parser::Continuity;
use filters::parser::inlet::{Keeper, inlet};
use std::collections::BTreeMap;

pub(crate) struct Joined {
    pub(crate) ring: PipeReader,
    pub(crate) continuity: Continuity,
    pub(crate) keeper: Box<dyn Keeper>,
}

/// Runs prefixes for several requests.
pub(crate) trait Join {
    /// Opens a prefix to read what it gives from now on. The error says why not.
    fn join(&mut self, text: &str) -> Result<Joined, String>;
}

pub(crate) struct ParserSpace<'a> {
    parser: Option<&'a mut dyn Join>,
    /// Why no parser process can be asked for this whole design.
    nobody: Option<String>,
    prefixes: Vec<Option<Prefix>>,
    inlets: BTreeMap<NodeId, Opened>,
    /// The prefixes that the running plan reads: for each, the nodes of its worker. Empty without a running plan.
    running: BTreeMap<String, Vec<usize>>,
}

impl<'a> ParserSpace<'a> {
    /// The space of a request. Without `parser` it can plan but not open anything.
    pub(crate) fn new(parser: Option<&'a mut dyn Join>, nobody: Option<String>) -> Self {
        ParserSpace { parser, nobody, prefixes: Vec::new(), inlets: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// Sets the prefixes of the design that is to be carried out.
    pub(crate) fn set_prefixes(&mut self, prefixes: Vec<Option<Prefix>>) {
        self.prefixes = prefixes;
    }

    /// Prepares a plan beside running readings: a new source for a running prefix goes on with that reading.
    pub(crate) fn beside(mut self, running: BTreeMap<String, Vec<usize>>) -> Self {
        self.running = running;
        self
    }

    /// Whether it can run this kind with these parameters. The error says why not.
    pub(crate) fn offer(&self, kind: &Kind, params: &Params) -> Offered {
        match &self.nobody {
            Some(why) => Err(why.clone()),
            None => is_shareable(kind, params).map(|()| Some(Offer { cost: 1 })),
        }
    }

    /// The sources for the blocks that leave this space: for each node, its text and its source.
    pub(crate) fn into_inlets(self) -> BTreeMap<NodeId, (String, Opened)> {
        let text =
            |id: NodeId| self.prefixes.get(id.index()).and_then(Option::as_ref).map(|prefix| prefix.text.clone());
        self.inlets.into_iter().map(|(id, inlet)| (id, (text(id).unwrap_or_default(), inlet))).collect()
    }

    /// The running source of this prefix. `None`: there is none, or it is in use already.
    fn goes_on(&self, text: &str) -> Option<usize> {
        let is_taken =
            |node: usize| self.inlets.values().any(|inlet| matches!(inlet, Opened::Running(taken) if *taken == node));
        // Nodes are activated from the last to the first.
        self.running.get(text)?.iter().rev().copied().find(|node| !is_taken(*node))
    }

    fn join(&mut self, id: NodeId) -> Result<Opened, String> {
        let prefix =
            self.prefixes.get(id.index()).and_then(Option::as_ref).filter(|prefix| prefix.continuity.is_some());
        let prefix = prefix.ok_or("its blocks cannot be shared")?;
        if let Some(node) = self.goes_on(&prefix.text) {
            return Ok(Opened::Running(node));
        }
        let parser = self.parser.as_mut().ok_or("there is nobody to ask")?;
        let Joined { ring, continuity, keeper } = parser.join(&prefix.text)?;
        Ok(Opened::New(inlet(ring, continuity, prefix.text.clone(), keeper)))
    }
}

impl Space for ParserSpace<'_> {
    fn name(&self) -> &'static str {
        PARSER
    }

    fn carry(&mut self, step: &Step, plan: &Plan) -> Result<(), StepError> {
        let Step::Activate(id) = step else { return Ok(()) };
        if plan.nodes[id.index()].edges.iter().any(|edge| plan.nodes[edge.to.index()].space != PARSER) {
            let refused = |why| StepError { refused: true, error: ParamError::system(why) };
            let inlet = self.join(*id).map_err(refused)?;
            self.inlets.insert(*id, inlet);
        }
        Ok(())
    }

    fn undo(&mut self, step: &Step) {
        if let Step::Activate(id) = step {
            self.inlets.remove(id);
        }
    }
}
