//! A named ring as a source.
//!
//! The source asks to read when it is made, so that it misses no block. The answer comes when the ring has a writer.

use super::{content_of, continuity_of, contract, name, named, open, size_note};
use crate::parser::Continuity;
use crate::parser::reading::{Found, Reading};
use buffer::keeper::client::{AskedReader, Named};
use buffer::pipe::{End, PipeReader};
use buffer::ring::From;
use filter::Moment;
use filter::prelude::*;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The source sleeps at most this long before it checks again for a writer.
const NAP: Duration = Duration::from_millis(50);

pub(super) fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let one = params.text("type").and_then(Type::of_name);
    let one = one.ok_or_else(|| ParamError::new("type", "a reader has to know what the ring carries"))?;
    let asked = open(params, env, |named| named.ask_to_read(contract(params), From::Next, Some(content_of(one))))?;
    let what = format!("ring {}", name(params));
    Ok(Instance::source(Ring {
        named: named(params)?,
        continuity: continuity_of(one),
        what,
        latency: env.latency,
        phase: Phase::Asking(asked),
        note: size_note(params),
    }))
}

struct Ring {
    named: Named,
    continuity: Continuity,
    what: String,
    latency: Option<Duration>,
    phase: Phase,
    /// A notice still to be given.
    note: Option<String>,
}

enum Phase {
    /// There is no writer yet.
    Asking(AskedReader),
    Reading(Box<Reading>),
    Over,
}

impl Ring {
    fn failed<T>(&self, why: impl std::fmt::Display) -> Result<T, Box<Failure>> {
        Err(Box::new(Failure::System(format!("{}: {why}", self.what))))
    }
}

impl Source for Ring {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if let Some(note) = self.note.take() {
            cx.notice(note);
        }
        let mut reading = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => return Ok(Pull::End),
            Phase::Reading(reading) => reading,
            Phase::Asking(asked) => {
                match asked.answer(Some(Instant::now())) {
                    Ok(Ok(reader)) => {
                        let ring = PipeReader::new(self.named.clone(), reader);
                        let reading = Reading::new(ring, self.continuity, self.what.clone(), self.latency);
                        self.phase = Phase::Reading(Box::new(reading));
                        return Ok(Pull::Ready);
                    }
                    Ok(Err(asked)) => self.phase = Phase::Asking(asked),
                    Err(error) => return self.failed(error),
                }
                return Ok(Pull::Idle(NAP));
            }
        };
        let found = reading.pull(cx);
        self.phase = Phase::Reading(reading);
        match found? {
            Found::Blocks => Ok(Pull::Ready),
            Found::Nothing(nap) => Ok(Pull::Idle(nap)),
            // The writer closed the ring, or this request was stopped.
            Found::End(None | Some(End::Closed | End::Unkept)) => Ok(Pull::End),
            Found::End(Some(End::WriterDied)) => {
                self.failed("the writer died: blocks that it had not published are missing")
            }
            Found::End(Some(End::Removed)) => self.failed("the ring was removed"),
        }
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        match &mut self.phase {
            Phase::Asking(asked) => Some(asked.answer_fd()),
            Phase::Reading(reading) => reading.bell(),
            Phase::Over => None,
        }
    }

    fn follows(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Reading(reading) => reading.moment(),
            Phase::Asking(_) | Phase::Over => None,
        }
    }

    fn stop(&mut self) -> bool {
        match &mut self.phase {
            Phase::Reading(reading) => {
                reading.stop();
                true
            }
            Phase::Asking(_) | Phase::Over => false,
        }
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        if let Phase::Reading(reading) = &mut self.phase {
            reading.book(cx);
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        if let Phase::Reading(mut reading) = std::mem::replace(&mut self.phase, Phase::Over) {
            reading.finish(cx);
        }
    }
}
