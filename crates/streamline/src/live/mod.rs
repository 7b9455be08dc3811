//! The spaces `kernel` and `daemon`: devices, and selectors that run where the packets are.
//!
//! - `known` — what is known of devices, budgets and refusals.
//! - `offer` — decides which filters may run there.
//! - `cut` — decides from the plan what is read and what is left out, before anything is opened; `shape` has what the
//!   plan's shape rules out, `leaving` what to read at one place of it, `way` how devices lead there, `reads` what a
//!   source reads, `lowering` the programs for it, `behind` the packets that filters above want.
//! - `selection` — selectors as expressions, and what decides in the reader where a program cannot.
//! - `verifier` — asks the kernel about programs.
//! - `forward` — frames that go from one device to another.
//! - `space` — one of the two spaces: opens what was cut.
//! - here — both spaces.

mod behind;
mod cut;
mod forward;
mod known;
mod leaving;
mod lowering;
mod offer;
mod ports;
pub(crate) mod reads;
mod selection;
mod shape;
mod space;
mod verifier;
mod way;

pub(crate) use cut::{Cut, cut};
pub(crate) use known::Known;
pub(crate) use offer::offer;
pub(crate) use reads::{Reads, RunningSource, hands_over};
pub(crate) use verifier::ask;

use crate::left::Left;
use crate::space::{DAEMON, KERNEL, Space};
use capture::Devices;
use engine::{NodeId, Task};
use program::Compile;
use space::LiveSpace;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct LiveSpaces([LiveSpace; 2]);

impl LiveSpaces {
    pub(crate) fn new(devices: &Arc<dyn Devices>, compiler: &Arc<dyn Compile>) -> LiveSpaces {
        LiveSpaces([KERNEL, DAEMON].map(|name| LiveSpace::new(name, Arc::clone(devices), Arc::clone(compiler))))
    }

    /// Sets how much later than it came a packet may be found (`set latency=`).
    pub(crate) fn latency(mut self, latency: Option<Duration>) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_latency(latency));
        self
    }

    /// Prepares a plan beside running sources that it will replace. A new source that reads the same as a running one
    /// is that one. A source that reads the same device differently takes over at one packet.
    pub(crate) fn beside(mut self, running: &[RunningSource]) -> LiveSpaces {
        self.0.iter_mut().for_each(|space| space.set_beside(running));
        self
    }

    /// Sets what is to be opened.
    pub(crate) fn set_cut(&mut self, cut: Cut) {
        self.0.iter_mut().for_each(|space| space.set_sources(cut.sources.clone()));
    }

    /// Tells what could not be opened. Gives whether there was something.
    pub(crate) fn tell(&mut self, known: &mut Known) -> bool {
        self.0.iter_mut().fold(false, |told, space| space.tell(known) | told)
    }

    /// Takes what leaves the space of this name at a node: each source's label, task, and the source itself.
    pub(crate) fn take_sources(&mut self, space: &str, id: NodeId) -> Vec<(String, Task, Left)> {
        let space = self.0.iter_mut().find(|live| live.name() == space);
        space.map_or_else(Vec::new, |live| live.take_sources(id))
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut dyn Space> {
        self.0.iter_mut().map(|space| space as &mut dyn Space)
    }
}
