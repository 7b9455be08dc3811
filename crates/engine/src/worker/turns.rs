//! The turns of a run: one batch of each source at a time, then each filter is finished; in between the thread looks, or sleeps.

use super::{End, Runner, Worker};
use base::atomic::StopFlag;
use filter::{Failure, Pull, Wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

/// `set wait=adaptive` looks again and again for so long before it sleeps: some times what it costs to sleep and to be woken.
const LOOKING: Duration = Duration::from_micros(50);

/// Sleep at most this long at a time while the input pauses, so that a capture request to stop is heard.
const NAP: Duration = Duration::from_millis(50);

/// Batches between two calls of a run's `look`.
const LOOK_BATCHES: u32 = 256;

/// What came of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The run goes on.
    Ready,
    /// No source gives anything now; ask again after this long. [`Duration::MAX`]: only the caller can change that.
    Idle(Duration),
    /// The run is over, and how it ended. A failure is told once.
    End(Result<End, Box<Failure>>),
}

/// How far a run is between two turns.
#[derive(Clone, Debug)]
pub struct Run {
    phase: Phase,
    /// Sources that have not ended.
    left: Vec<usize>,
    batches: u32,
    stopping: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Sources are asked.
    Sources,
    /// They have ended, like this; nodes before this one are finished.
    Finishing(End, usize),
    Ended(End),
}

impl Worker {
    /// A run that has not begun, to be carried on by [`turn`](Worker::turn) with the same `stop`.
    pub fn begin(&mut self, stop: &StopFlag) -> Run {
        self.shared.stop = stop.clone();
        Run { phase: Phase::Sources, left: self.sources.clone(), batches: 0, stopping: false }
    }

    /// Carries a run on a little, in the caller's thread: one batch of each source, or what one filter gives at a time in the
    /// end. What it gave has gone all the way down when this returns. The other arguments are those of
    /// [`run`](Worker::run).
    pub fn turn(&mut self, run: &mut Run, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Turn {
        match run.phase {
            Phase::Sources => match self.turn_of_sources(run, stop, look) {
                Ok(idle) => return idle.map_or(Turn::Ready, Turn::Idle),
                Err(end) => {
                    self.shared.order.sequence = u64::MAX;
                    run.phase = self.finishing(end, 0);
                }
            },
            // Nodes stand in topological order. A filter that fails does not keep the others from being finished.
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
                // Whoever still wants another plan hears that there is none to replace.
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

    /// The same while there are sources. Where none of them gave anything: how long until one is to be asked again. The error
    /// is the end.
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
                // What has come before is still carried through.
                run.stopping = true;
                self.next = None;
                run.left.retain(|&at| match &mut self.nodes[at].runner {
                    Runner::Source(source) => source.stop(),
                    _ => false,
                });
                idle = None;
                break;
            }
            match self.pull(run.left[index]) {
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
        // Those that were told to end where nothing more is to be had of them.
        run.left.retain(|at| !self.nodes[*at].ended);
        let begins_to_idle = idle.is_some() && self.idle_since.is_none();
        if run.batches.is_multiple_of(LOOK_BATCHES) || begins_to_idle {
            look(self);
        }
        let idle = idle.filter(|_| !run.left.is_empty() && !self.can_switch());
        match idle {
            None => self.idle_since = None,
            Some(_) if begins_to_idle && self.pauses(&run.left) => self.flush(),
            Some(_) => {}
        }
        Ok(idle)
    }

    /// A turn was idle: looks again, or sleeps, as the request wants it.
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

    /// Sleeps until one of these sources rings; where not all of them can, for `nap` at most.
    fn sleep(&mut self, sources: &[usize], nap: Duration) {
        let mut bells = Vec::new();
        // Another stage rings for all that may happen, for its end as well; who watches tells nobody that he is gone.
        let (mut all_ring, mut all_follow) = (true, self.watches.iter().all(Option::is_none));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let Runner::Source(source) = &mut node.runner else { continue };
            if !sources.contains(&at) {
                continue;
            }
            all_follow &= source.follows().is_some();
            match source.bell() {
                Some(bell) => bells.push(PollFd::from_borrowed_fd(bell, PollFlags::IN)),
                None => all_ring = false,
            }
        }
        let most = if all_ring { NAP } else { nap };
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let timeout = (!(all_ring && all_follow)).then_some(&timeout);
        // Every outcome means the same: look again.
        let tell = |asleep| self.gauge.iter().for_each(|gauge| gauge.set_asleep(asleep));
        tell(true);
        let _ = rustix::event::poll(&mut bells, timeout);
        tell(false);
    }

    /// Where others look: says how many blocks came.
    fn tell_blocks(&self) {
        if let Some(gauge) = &self.gauge {
            gauge.set_blocks(self.sources.iter().map(|at| self.nodes[*at].counters.blocks_made).sum());
        }
    }
}
