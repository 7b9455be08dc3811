//! From a request's text to a running data path, in one process.

use crate::app_space::AppSpace;
use crate::devices::Place;
use crate::devices::auto::AutoDevices;
use crate::live_space::{Left, LiveSpace};
use crate::running::edges::EdgeNames;
use base::atomic::StopFlag;
use control::transaction::Trouble;
use control::{Design, Registry, Space, carry_out, design};
use engine::{End, Report, Worker};
use filter::{Env, Failure, Kind, Output, Schema, Types};
use request::{Diagnostic, Text};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;

/// Every filter there is.
pub fn registry() -> Registry {
    Registry::new(filters::KINDS)
}

/// What went wrong, by whose fault it is.
#[derive(Clone, Debug)]
pub enum Error {
    /// The request is wrong: where, and what would be right.
    Request(Diagnostic),
    /// The request turned out to be wrong once the input was known.
    Input(String),
    /// Input, output or the system failed.
    System(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Request(diagnostic) => diagnostic.fmt(f),
            Error::Input(text) | Error::System(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Error {
        Error::Request(diagnostic)
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Error {
        match trouble {
            Trouble::Request(diagnostic) => Error::Request(diagnostic),
            Trouble::System(text) => Error::System(text),
        }
    }
}

impl From<Box<Failure>> for Error {
    fn from(failure: Box<Failure>) -> Error {
        match *failure {
            Failure::Request(text) => Error::Input(text),
            Failure::System(text) => Error::System(text),
        }
    }
}

/// Where requests are prepared: knows the filters and the outside world.
pub struct Session {
    registry: Registry,
    env: Env,
    devices: Arc<AutoDevices>,
    push_down: bool,
}

impl Default for Session {
    fn default() -> Self {
        Session::new()
    }
}

impl Session {
    /// A session that writes to the process's standard output.
    pub fn new() -> Session {
        let stdout = std::io::stdout();
        let eager = stdout.is_terminal();
        Session::with_output(Output::new(Box::new(stdout), eager))
    }

    /// A session that writes elsewhere.
    pub fn with_output(stdout: Output) -> Session {
        let registry = registry();
        let schemas: Arc<[&'static Schema]> = registry.kinds().iter().filter_map(|kind| kind.schema).collect();
        let auto = Arc::new(AutoDevices::new(Place::default()));
        let devices = Arc::<AutoDevices>::clone(&auto);
        let env = Env { input: Types::NONE, stdout, compiler: Arc::new(libpcap::Lazy::new()), devices, schemas };
        Session { registry, env, devices: auto, push_down: true }
    }

    /// Opens devices there.
    #[must_use]
    pub fn devices_at(mut self, place: Place) -> Session {
        self.devices = Arc::new(AutoDevices::new(place));
        self.env.devices = Arc::<AutoDevices>::clone(&self.devices);
        self
    }

    /// May selectors run in the kernel, and what nobody can want stay there? If not, devices give all their packets, as files
    /// do.
    #[must_use]
    pub fn push_down(mut self, push_down: bool) -> Session {
        self.push_down = push_down;
        self
    }

    /// The filters a request may name.
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.registry.kinds()
    }

    /// Reads a text and fills in `let` and `$x`.
    pub fn parse(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Text, Error> {
        let text = request::parse(source)?;
        let is_filter = |name: &str| self.registry.find(name).is_some();
        Ok(request::expand(&text, variables, &is_filter)?)
    }

    /// The outside world, for filters that are put together without a request.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    fn live_space(&self) -> LiveSpace {
        LiveSpace::new(Arc::clone(&self.env.devices), Arc::clone(&self.env.compiler), self.push_down)
    }

    /// Checks a request and places it, but opens nothing.
    pub fn design(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Design, Error> {
        let text = self.parse(source, variables)?;
        let spaces: Vec<Box<dyn Space>> = vec![Box::new(AppSpace::new(self.env.clone())), Box::new(self.live_space())];
        Ok(design(&text, &self.registry, &spaces)?)
    }

    /// Prepares a request to run: everything it needs is open, or nothing is.
    pub fn prepare(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Job, Error> {
        let text = self.parse(source, variables)?;
        self.devices.set_purpose(source);
        let mut app = AppSpace::new(self.env.clone());
        let mut live = self.live_space();
        let mut spaces: Vec<Box<dyn Space + '_>> = vec![Box::new(&mut app), Box::new(&mut live)];
        let placed = design(&text, &self.registry, &spaces)?;
        let design = carry_out(placed, &mut spaces)?;
        drop(spaces);
        let (rest, left) = live.rest(&design.plan);
        let origins: Vec<_> = left.iter().map(Left::origin).collect();
        let edges = EdgeNames::new(&design, &rest, &origins);
        let worker = app.into_worker(&rest, left);
        Ok(Job { design, edges, worker })
    }
}

/// A request that is ready to run.
pub struct Job {
    /// How it is carried out.
    pub design: Design,
    /// What its edges are called.
    pub edges: EdgeNames,
    worker: Worker,
}

/// A request that ran.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Why it ended.
    pub end: End,
    /// What was counted.
    pub report: Report,
}

impl Job {
    /// Runs until the input ends, nobody wants more or `stop` is set. `look` is called now and then, for progress and
    /// notices, and in the end.
    pub fn run(mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Result<Finished, Error> {
        self.run_to_end(stop, look).0
    }

    /// As [`run`](Job::run), but gives what was counted also where the run failed.
    pub fn run_to_end(
        &mut self,
        stop: &StopFlag,
        look: &mut dyn FnMut(&mut Worker),
    ) -> (Result<Finished, Error>, Report) {
        let end = self.worker.run(stop, look);
        let report = self.worker.report();
        debug_assert_eq!(report.check(), Ok(()));
        (end.map(|end| Finished { end, report: report.clone() }).map_err(Error::from), report)
    }
}
