//! The turns of a run: one batch of each source at a time, and at the end each filter is finished. In between the
//! thread looks or sleeps.

use super::{End, Worker};
use crate::node::{Node, Runner};
use crate::replacement::{Fate, Step};
use base::atomic::StopFlag;
use filter::{Failure, Pull, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

/// How long `set wait=adaptive` polls before it sleeps: a few times the cost of sleeping and being woken.
const LOOKING: Duration = Duration::from_micros(50);

/// Longest sleep while the input pauses, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(50);

/// Batches between two calls of a run's `look`.
const LOOK_BATCHES: u32 = 256;

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The run goes on.
    Ready,
    /// No source has a block now; ask again after this long. [`Duration::MAX`]: only the caller can change that.
    Idle(Duration),
    /// The run has ended in this way. A failure is reported once.
    End(Result<End, Box<Failure>>),
}

/// The state of a run between two turns.
#[derive(Clone, Debug)]
pub struct Run {
    phase: Phase,
    /// Sources that have not ended.
    left: Vec<usize>,
    batches: u32,
    stopping: bool,
    /// The stage has stopped for a replacement.
    is_at_switch: bool,
}

impl Run {
    pub(crate) fn is_at_switch(&self) -> bool {
        self.is_at_switch
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The sources give blocks.
    Sources,
    /// All sources have ended, for this reason; nodes before this one are finished.
    Finishing(End, usize),
    Ended(End),
}

impl Worker {
    /// Starts a run, which [`turn`](Worker::turn) carries on with the same `stop`.
    pub fn begin(&mut self, stop: &StopFlag) -> Run {
        self.shared.stop = stop.clone();
        let left = self.sources.iter().copied().filter(|at| !self.nodes[*at].ended).collect();
        Run { phase: Phase::Sources, left, batches: 0, stopping: false, is_at_switch: false }
    }

    /// Carries a run on for a while, in the caller's thread: one batch of each source. At the end of the run, a turn
    /// finishes one filter at a time. All blocks of a turn have gone through all nodes when it returns. The other
    /// arguments are those of [`run`](Worker::run).
    ///
    /// If the plan has several stages, the others run on threads from the first turn on, and this runs only the
    /// caller's stage. The run ends when all stages have ended. Such a plan cannot be replaced.
    pub fn turn(&mut self, run: &mut Run, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Turn {
        if self.team.is_some() { self.turn_team(run, stop, look) } else { self.turn_stage(run, stop, look) }
    }

    /// Carries on this stage alone.
    pub(crate) fn turn_stage(&mut self, run: &mut Run, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Turn {
        match run.phase {
            Phase::Sources => match self.turn_of_sources(run, stop, look) {
                Ok(idle) => return idle.map_or(Turn::Ready, Turn::Idle),
                Err(end) => {
                    self.shared.order.sequence = u64::MAX;
                    run.phase = self.finishing(end, 0);
                }
            },
            // Nodes are in topological order. A filter that fails does not keep the others from being finished.
            Phase::Finishing(end, at) if at < self.nodes.len() => {
                if !self.finish_some(at) {
                    run.phase = self.finishing(end, at + 1);
                }
            }
            Phase::Finishing(end, _) => {
                self.shared.streams.sweep();
                self.shared.rings.recycle_held();
                self.bound_notices();
                self.end_watches();
                look(self);
                // This tells a caller that still waits for its replacement that the run is over.
                self.next = None;
                self.tell_blocks();
                self.gauge.iter().for_each(|gauge| gauge.end());
                run.phase = Phase::Ended(end);
                return Turn::End(self.failure.take().or(self.source_failure.take()).map_or(Ok(end), Err));
            }
            Phase::Ended(end) => return Turn::End(Ok(end)),
        }
        Turn::Ready
    }

    fn finishing(&mut self, end: End, at: usize) -> Phase {
        (self.shared.order.node, self.shared.order.ends) = (at as u32, 0);
        Phase::Finishing(end, at)
    }

    /// A turn while there are sources. If all sources were idle, gives how long the worker waits until it asks again.
    /// `None`: the next turn may follow at once. The error is the end of the run.
    fn turn_of_sources(
        &mut self,
        run: &mut Run,
        stop: &StopFlag,
        look: &mut dyn FnMut(&mut Worker),
    ) -> Result<Option<Duration>, End> {
        if self.can_switch() && self.failure.is_none() && !run.stopping {
            self.switch();
            run.left = self.sources.clone();
            run.left.retain(|at| !self.nodes[*at].ended);
        }
        if self.stops_for_switch(run) {
            return Ok(None);
        }
        if run.left.is_empty() {
            let wanted = self.sources.iter().all(|source| self.nodes[*source].wanted);
            return Err(match (run.stopping, wanted) {
                (true, _) => End::Stopped,
                (false, true) => End::Input,
                (false, false) => End::Enough,
            });
        }
        let mut idle = Some(Duration::MAX);
        let mut index = 0;
        while index < run.left.len() {
            if self.failure.is_some() {
                return Err(End::Stopped);
            }
            if (stop.is_set() || self.halt.as_ref().is_some_and(StopFlag::is_set)) && !run.stopping {
                // Blocks that came before the stop still go through.
                run.stopping = true;
                if !self.is_to_switch() {
                    self.next = None;
                }
                run.left.retain(|&at| match &mut self.nodes[at].runner {
                    Runner::Source(source) => source.stop(),
                    _ => false,
                });
                idle = None;
                break;
            }
            let at = run.left[index];
            let pulled = self.pull(at);
            if pulled.is_some() && self.source(at).is_some_and(|source| source.at_switch()) {
                run.left.remove(index);
                idle = None;
                continue;
            }
            match pulled {
                None | Some(Pull::End) => {
                    run.left.remove(index);
                    idle = None;
                    continue;
                }
                Some(Pull::Ready) => idle = None,
                Some(Pull::Idle(wait)) => idle = idle.map(|nap| nap.min(wait)),
            }
            index += 1;
        }
        run.batches = run.batches.wrapping_add(1);
        self.tell_blocks();
        // Leave out sources that were told to end and have given their last blocks.
        run.left.retain(|at| !self.nodes[*at].ended);
        let begins_to_idle = idle.is_some() && self.idle_since.is_none();
        if run.batches.is_multiple_of(LOOK_BATCHES) || begins_to_idle {
            look(self);
        }
        let idle = idle.filter(|_| !run.left.is_empty() && !self.can_switch() && !self.is_to_switch());
        match idle {
            None => self.idle_since = None,
            Some(_) if begins_to_idle && self.pauses(&run.left) => self.flush(),
            Some(_) => {}
        }
        Ok(idle)
    }

    fn is_to_switch(&self) -> bool {
        self.switching.as_ref().is_some_and(|switching| switching.step() != Step::Run)
    }

    /// In a replacement, the stage rests its own sources, and stops as soon as all blocks of other stages are through.
    /// Gives whether it has stopped. A run that has to end stops here as well: a stage that stopped earlier still has
    /// blocks to finish.
    fn stops_for_switch(&mut self, run: &mut Run) -> bool {
        let step = self.switching.as_ref().map_or(Step::Run, |switching| switching.step());
        if step == Step::Run || self.failure.is_some() {
            return false;
        }
        let comes_to_switch = |node: &Node, at: usize, fates: &[Fate]| match &node.runner {
            Runner::Source(source) if source.follows().is_none() => {
                step == Step::Retire && !node.ended && node.wanted && fates[at] == Fate::Retires
            }
            _ => true,
        };
        run.left.retain(|at| comes_to_switch(&self.nodes[*at], *at, &self.fates));
        if !run.left.is_empty() {
            return false;
        }
        if step == Step::Retire {
            self.retire();
        }
        self.tell_ends(|end, cx| end.switches(cx));
        run.is_at_switch = true;
        true
    }

    /// After an idle turn: polls or sleeps, as the request says.
    pub fn rest(&mut self, run: &Run, nap: Duration) {
        let looking = match self.wait {
            Wait::Sleep => Duration::ZERO,
            Wait::Adaptive => LOOKING,
            Wait::Busy => Duration::MAX,
        };
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if since.elapsed() < looking {
            return std::hint::spin_loop();
        }
        self.idle_since = None;
        self.sleep(&run.left, nap.min(NAP));
    }

    fn sleep(&mut self, sources: &[usize], nap: Duration) {
        let mut bells = Vec::new();
        // Another stage rings for every event, including its own end. A watcher does not ring when it goes.
        let (mut all_ring, mut all_stages) = (true, self.watches.iter().all(Option::is_none));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let Runner::Source(source) = &mut node.runner else { continue };
            if !sources.contains(&at) {
                continue;
            }
            all_stages &= source.is_of_stage();
            match source.bell() {
                Some(bell) => bells.push(PollFd::from_borrowed_fd(bell, PollFlags::IN)),
                None => all_ring = false,
            }
        }
        let most = if all_ring { NAP } else { nap };
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let timeout = (!(all_ring && all_stages)).then_some(&timeout);
        // Every outcome has the same effect: look again.
        let tell = |asleep| self.gauge.iter().for_each(|gauge| gauge.set_asleep(asleep));
        tell(true);
        let _ = rustix::event::poll(&mut bells, timeout);
        tell(false);
    }

    fn tell_blocks(&self) {
        if let Some(gauge) = &self.gauge {
            gauge.set_blocks(self.blocks_given());
        }
    }

    pub(crate) fn blocks_given(&self) -> u64 {
        self.sources.iter().map(|at| self.nodes[*at].counters.blocks_made).sum()
    }
}
