//! The threads of a team: each runs one stage; the caller's thread runs the first.

use super::{Team, lock};
use crate::replacement::Step;
use crate::worker::{End, Run, Turn, Worker};
use base::atomic::StopFlag;
use filter::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often the first stage looks around while it waits for the others.
const LOOK: Duration = Duration::from_millis(50);

type Ended = Result<End, Box<Failure>>;

impl Team {
    /// Starts the threads of all other stages that have not ended. The receiver gets no message; it
    /// closes when all threads have stopped.
    fn start(&mut self, stop: &StopFlag) -> Result<Receiver<()>, Box<Failure>> {
        let (alive, all_stopped) = channel::<()>();
        let mut starts = Vec::new();
        for (index, slot) in self.others.iter_mut().enumerate() {
            if self.ends[index + 1].is_some() {
                continue;
            }
            let Some(mut worker) = slot.take() else { continue };
            let (halt, board, stop) = (self.halt.clone(), self.boards[index].clone(), stop.clone());
            let (start, started) = channel::<()>();
            let alive = alive.clone();
            let run = move || {
                let _alive = alive;
                if started.recv().is_err() {
                    return (worker, None);
                }
                let end =
                    worker.run_whole(&halt, |worker| worker.run_stage(&stop, &mut |worker| lock(&board).look(worker)));
                (worker, end)
            };
            match std::thread::Builder::new().name(format!("thread {}", index + 2)).spawn(run) {
                Ok(thread) => self.running.push((index, thread)),
                // The threads that wait for their start learn that there is none.
                Err(error) => {
                    let text = format!("cannot start a thread for a stage: {error}");
                    return Err(Box::new(Failure::System(text)));
                }
            }
            starts.push(start);
        }
        starts.iter().for_each(|start| _ = start.send(()));
        Ok(all_stopped)
    }

    fn collect(&mut self) {
        let mut panicked = None;
        for (index, thread) in self.running.drain(..) {
            match thread.join() {
                Ok((mut worker, end)) => {
                    // The board may have a watch that came late.
                    lock(&self.boards[index]).look(&mut worker);
                    self.ends[index + 1] = end;
                    self.others[index] = Some(worker);
                }
                Err(panic) => panicked = Some(panic),
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    fn end(&mut self) -> Ended {
        let mut ends = Vec::new();
        for end in &mut self.ends {
            match end {
                Some(Ok(end)) => ends.push(*end),
                // Report a failure once.
                Some(Err(_)) => return end.replace(Ok(End::Stopped)).unwrap_or(Ok(End::Stopped)),
                None => {}
            }
        }
        Ok(if ends.contains(&End::Stopped) {
            End::Stopped
        } else if ends.contains(&End::Enough) {
            End::Enough
        } else {
            End::Input
        })
    }
}

impl Drop for Team {
    /// The caller's stage and its channel ends are gone already, so the other stages end.
    fn drop(&mut self) {
        self.halt.stop();
        for (_, thread) in self.running.drain(..) {
            // Its thread has shown a panic; this thread may be unwinding because of it.
            let _ = thread.join();
        }
    }
}

impl Worker {
    /// Runs all stages, each in a thread of its own. `None`: another plan has replaced the running one.
    pub(crate) fn run_team(&mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Option<Ended> {
        loop {
            let team = self.team.as_mut().expect("the caller looked");
            let all_stopped = match team.start(stop) {
                Ok(all_stopped) => all_stopped,
                Err(failure) => {
                    team.halt.stop();
                    team.collect();
                    return Some(Err(failure));
                }
            };
            if team.ends[0].is_none() {
                let halt = team.halt.clone();
                let mine = self.run_whole(&halt, |worker| worker.run_stage(stop, &mut *look));
                if let Some(team) = &mut self.team {
                    team.ends[0] = mine;
                }
            }
            while all_stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                look(self);
            }
            let team = self.team.as_mut().expect("nobody took it");
            team.collect();
            if team.ends.iter().all(Option::is_some) {
                let end = team.end();
                self.next = None;
                look(self);
                return Some(end);
            }
            self.go_on_switching(stop.is_set());
            self.team.as_ref()?;
        }
    }

    /// Carries on a run of several stages for a while: see [`turn`](Worker::turn).
    pub(crate) fn turn_team(&mut self, run: &mut Run, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Turn {
        let team = self.team.as_mut().expect("the caller looked");
        let is_first = team.running.is_empty() && team.ends.iter().all(Option::is_none);
        if is_first && let Err(failure) = team.start(stop) {
            team.halt.stop();
            team.collect();
            team.ends.iter_mut().for_each(|end| _ = end.get_or_insert(Ok(End::Stopped)));
            return Turn::End(Err(failure));
        }
        if team.ends[0].is_none() {
            let halt = team.halt.clone();
            let turn = self.run_whole(&halt, |worker| match worker.turn_stage(run, stop, look) {
                Turn::End(Err(failure)) => Some(Err(failure)),
                turn => Some(Ok(turn)),
            });
            let end = match turn {
                Some(Ok(Turn::End(end))) => end,
                Some(Err(failure)) => Err(failure),
                Some(Ok(turn)) => return turn,
                None => return Turn::Ready,
            };
            let team = self.team.as_mut().expect("nobody took it");
            team.ends[0] = Some(end);
            team.collect();
        }
        let team = self.team.as_mut().expect("nobody took it");
        Turn::End(team.end())
    }

    /// All stages are here, and some have stopped for a replacement: goes on with it. Cancels it if it is not possible,
    /// or if the run has to end.
    fn go_on_switching(&mut self, is_to_end: bool) {
        let Some(team) = &mut self.team else { return };
        let has_ended = team.ends.iter().any(Option::is_some);
        match (team.switching.step(), self.next.take()) {
            (Step::Stop, Some(next)) if !has_ended && !is_to_end => self.retire_stages(next),
            (Step::Retire, Some(next)) if !has_ended => self.switch_stages(next),
            // This tells the asker that there is no request to replace.
            _ => {
                team.next = None;
                team.switching.set(Step::Run);
            }
        }
    }

    /// Runs this stage. A failure stops the other stages. A panic closes this stage's channels first, so that the other
    /// stages end.
    fn run_whole<T>(
        &mut self,
        halt: &StopFlag,
        run: impl FnOnce(&mut Worker) -> Option<Result<T, Box<Failure>>>,
    ) -> Option<Result<T, Box<Failure>>> {
        // Of a worker that panicked, only its channels are used.
        match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(end) => {
                if matches!(end, Some(Err(_))) {
                    halt.stop();
                }
                end
            }
            Err(panic) => {
                halt.stop();
                self.nodes.clear();
                resume_unwind(panic)
            }
        }
    }
}
