//! From a request's text to a running data path, in one process.

mod change;

pub(crate) use change::PreparedChange;
pub use change::RunningPlan;

use crate::app_space::AppSpace;
use crate::compiled::Compiled;
use crate::devices::Place;
use crate::devices::auto::AutoDevices;
use crate::isolate;
use crate::live::{LiveSpaces, Reads, RunningSource, rest};
use crate::parser::client::{Client, Joiner};
use crate::parser::prefix::{self, Prefix};
use crate::parser::space::{Join, NAME as PARSER, ParserSpace};
use crate::parser::stage::Bases;
use crate::running::edges::EdgeNames;
use base::atomic::StopFlag;
use capture::Devices;
use control::place::{Refused, place};
use control::transaction::{CarryError, carry_error, carry_out_but};
use control::{Design, Registry, Space, design};
use engine::profile::{Costs, Measured, Meter, tell};
use engine::{Edge, End, Node, NodeId, Report, Task, Worker, Workers};
use filter::param::Value;
use filter::{Env, Failure, Kind, Lower, Output, ParamType, Params, Schema, Spaces, Types, Wait};
use filters::parser::Continuity;
use filters::parser::outlet::{Slot, outlet};
use request::{Diagnostic, FilterCall, Item, Par, Term, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

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

impl From<CarryError> for Error {
    fn from(error: CarryError) -> Error {
        match error {
            CarryError::Request(diagnostic) => Error::Request(diagnostic),
            CarryError::System(text) => Error::System(text),
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
    share: bool,
    workers: Option<Workers>,
    costs: Costs,
    measures: bool,
    parser: Option<Vec<OsString>>,
    /// The command that starts a process for isolated filters; empty: this session starts no process.
    isolator: Vec<OsString>,
    /// Stands before chains of a request that begin without a source.
    source: Option<FilterCall>,
    /// By which it reads what runs for several requests.
    joined: Mutex<Weak<Client>>,
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
        let schemas: Arc<[&'static Schema]> =
            registry.kinds().iter().flat_map(|kind| [kind.schema, kind.other_schema]).flatten().collect();
        let env = Env {
            input: Types::NONE,
            stdout,
            compiler: Arc::new(Compiled::new(libpcap::Lazy::new())),
            schemas,
            wait: Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        };
        Session {
            registry,
            env,
            devices: Arc::new(AutoDevices::new(Place::default())),
            push_down: true,
            share: false,
            workers: None,
            costs: Costs::new(),
            measures: false,
            parser: None,
            isolator: Vec::new(),
            source: None,
            joined: Mutex::default(),
        }
    }

    /// Opens devices there.
    #[must_use]
    pub fn devices_at(mut self, place: Place) -> Session {
        self.devices = Arc::new(AutoDevices::new(place));
        self
    }

    /// Has this compile tcpdump text.
    #[must_use]
    pub(crate) fn compiler(mut self, compiler: Arc<dyn program::Compile>) -> Session {
        self.env.compiler = compiler;
        self
    }

    /// May selectors run in the kernel, and what nobody can want stay there? If not, devices give all their packets, as files
    /// do.
    #[must_use]
    pub fn push_down(mut self, push_down: bool) -> Session {
        self.push_down = push_down;
        self
    }

    /// Does a filter of what it prepared write to the session's output?
    pub fn writes_to_output(&self) -> bool {
        self.env.stdout.is_open()
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

    /// Puts this source before every chain of a request that begins without one. A request in which no chain does is an error
    /// then; one that takes the place of another may have its own.
    #[must_use]
    pub fn reading(mut self, source: Option<FilterCall>) -> Session {
        self.source = source;
        self
    }

    /// As [`parse`](Session::parse); chains without a source get the session's, and one at least there must be.
    fn parse_whole(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Text, Error> {
        let (text, begun) = self.parse_and_begin(source, variables)?;
        let first = text.items.iter().find(|item| matches!(item, Item::Path(_)));
        match first.zip(self.source.as_ref()).filter(|_| begun == 0) {
            None => Ok(text),
            Some((Item::Path(path), given)) => Err(self.two_sources(path, given).into()),
            Some(_) => Ok(text),
        }
    }

    /// A request with its own source was given another.
    fn two_sources(&self, path: &Par, given: &FilterCall) -> Diagnostic {
        let error =
            Diagnostic::new("the request has its own source", path.span).with_label("no chain begins without one");
        let first = path.branches.first().and_then(|chain| chain.links.first()).map(|link| &link.term);
        let Some(Term::Filter(first)) = first else { return error };
        let option = match &*given.name.text {
            "pcap" => "-r",
            "ethernet" => "-i",
            // Not an option of a person's: the command puts it there.
            other => {
                return error
                    .with_help(format!("leave out the source: this command puts `{other}` before the request"));
            }
        };
        let help = match self.registry.find(&first.name.text).filter(|kind| kind.first.is_some()) {
            Some(kind) => {
                let what = format!("`{}` with nothing before it is a source", kind.name);
                format!("{what}; to read {given} into it, leave out {option}: '{given} | {first}'")
            }
            None => format!("leave out the source in the request, or {option} beside it"),
        };
        error.with_help(help)
    }

    /// The same; says how many chains there were without a source.
    fn parse_and_begin(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<(Text, usize), Error> {
        let mut text = self.parse(source, variables)?;
        let says = |item: &Item| match item {
            Item::Set { settings, .. } => settings.iter().any(|setting| setting.key.text == "workers"),
            Item::Path(_) | Item::Let { .. } => false,
        };
        if let Some(workers) = self.workers.filter(|_| !text.items.iter().any(says)) {
            text.items.extend(request::parse(&format!("set workers={workers}"))?.items);
        }
        let begun = self.begin(&mut text);
        Ok((text, begun))
    }

    /// Puts the session's source before chains without one; gives how many there were.
    fn begin(&self, text: &mut Text) -> usize {
        let is_source = |name: &str| self.registry.find(name).is_some_and(Kind::may_begin);
        self.source.as_ref().map_or(0, |call| request::begin_with(text, call, &is_source))
    }

    /// A request as people are told what runs: with the source that it leaves out.
    pub(crate) fn purpose(&self, request: &str) -> String {
        let leaves_it_out = request::parse(request).is_ok_and(|mut text| self.begin(&mut text) > 0);
        match self.source.as_ref().filter(|_| leaves_it_out) {
            Some(source) => format!("{source}: {request}"),
            None => request.to_string(),
        }
    }

    /// The outside world, for filters that are put together without a request.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Workers of a request that does not say (`set workers=`).
    #[must_use]
    pub fn workers(mut self, workers: Option<Workers>) -> Session {
        self.workers = workers;
        self
    }

    /// What filters cost, by their text: what `workers=pipeline` and `workers=auto` go by.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Session {
        self.costs = costs;
        self
    }

    /// Measures what each filter of a request takes: [`Job::measured`] has it.
    #[must_use]
    pub fn measure(mut self, measures: bool) -> Session {
        self.measures = measures;
        self
    }

    /// May what parses payload run once for several requests that begin alike, where a request does not say (`set share=`)?
    #[must_use]
    pub fn share(mut self, share: bool) -> Session {
        self.share = share;
        self
    }

    /// The command that becomes the process which runs them: it is given the daemon's socket as one more argument, and ends as
    /// [`shared::server`](crate::parser::server) does. Without it only one that is there already is used.
    #[must_use]
    pub fn parser(mut self, command: Vec<OsString>) -> Session {
        self.parser = Some(command);
        self
    }

    /// The command that makes named rings which are not there: `streamline pipe create`. Without it they have to be there.
    #[must_use]
    pub fn ring_maker(mut self, command: Vec<OsString>) -> Session {
        self.env.make_ring = command.into();
        self
    }

    /// The command that becomes the process of filters with `isolate=yes`, as [`child::run`](crate::isolate::child::run) does.
    /// Without it a request that has such filters is refused.
    #[must_use]
    pub fn isolator(mut self, command: Vec<OsString>) -> Session {
        self.isolator = command;
        self
    }

    /// The same for the filters of a design.
    fn env_of(&self, design: &Design) -> Env {
        Env { wait: design.plan.wait, latency: latency(design), daemon: self.devices.daemon(), ..self.env.clone() }
    }

    fn live_spaces(&self) -> LiveSpaces {
        let devices: Arc<dyn Devices> = self.devices.clone();
        LiveSpaces::new(&devices, &self.env.compiler, self.push_down)
    }

    /// Checks a request and places it, but opens nothing.
    pub fn design(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Design, Error> {
        let text = self.parse_whole(source, variables)?;
        let mut spaces = self.own_spaces(&[]);
        let mut placed = design(&text, &self.registry, &spaces)?;
        if self.wants_to_share(&placed) {
            spaces.push(Box::new(ParserSpace::new(None, self.nobody_to_share_with(), Vec::new())));
            placed = place_shared(placed, &spaces, &BTreeSet::new())?.0;
        }
        tell(&self.costs, &mut placed.plan);
        Ok(placed)
    }

    /// What a design lacks in this place, besides devices: files that are not there, libpcap. Opens captures, and no more. An
    /// error is one of the request that shows only here, such as an expression that is none.
    pub fn missing(&self, design: &Design) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for (index, node) in design.plan.nodes.iter().enumerate() {
            let Task::Filter { kind, params } = &node.task else { continue };
            let has_list = kind.params.iter().any(|param| param.kind == ParamType::List);
            // The list of a source whose frames go back is one of devices.
            let reads_files = kind.is_source() && kind.returns.is_none() && has_list;
            // What may run without rights touches nothing when it is made.
            if !reads_files && !kind.spaces.has(Spaces::PARSER) {
                continue;
            }
            let env = Env { input: node.input, ..self.env.clone() };
            if let Err(error) = (kind.make)(params, &env) {
                match carry_error(design, NodeId(index as u32), error) {
                    CarryError::Request(diagnostic) => return Err(Error::Request(diagnostic)),
                    CarryError::System(text) => missing.push(text),
                }
            }
        }
        Ok(missing)
    }

    /// What is known of a device, by the daemon where one is used.
    pub fn device(&self, name: &str) -> Result<capture::Device, capture::CaptureError> {
        self.devices.device(name)
    }

    /// Does a daemon open devices for this session?
    pub fn has_daemon(&self) -> bool {
        self.devices.is_elsewhere()
    }

    /// The spaces of this process, beside sources that run and whose places are to be taken.
    fn own_spaces(&self, running: &[RunningSource]) -> Vec<Box<dyn Space>> {
        let app: Box<dyn Space> = Box::new(AppSpace::new(self.env.clone()));
        std::iter::once(app).chain(self.live_spaces().beside(running).into_boxes()).collect()
    }

    fn wants_to_share(&self, design: &Design) -> bool {
        match design.graph.settings.get("share") {
            Some(Value::Flag(share)) => *share,
            _ => self.share,
        }
    }

    /// Why nobody can run a part of a request for this session, whatever the request is.
    fn nobody_to_share_with(&self) -> Option<String> {
        if !self.push_down {
            return Some("it leaves out in the kernel what nobody can want".into());
        }
        self.devices.daemon().is_none().then(|| "it takes packets from a daemon, and none is used here".into())
    }

    /// The same session with other kinds of filters, for one request.
    pub(crate) fn with_registry(&self, registry: Registry) -> Session {
        Session {
            registry,
            env: self.env.clone(),
            devices: Arc::clone(&self.devices),
            push_down: self.push_down,
            share: self.share,
            workers: self.workers,
            costs: self.costs.clone(),
            measures: self.measures,
            parser: self.parser.clone(),
            // A program that takes blocks one by one runs all filters in its own thread.
            isolator: Vec::new(),
            source: self.source.clone(),
            joined: Mutex::default(),
        }
    }

    /// Prepares a request to run: everything it needs is open, or nothing is.
    pub fn prepare(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Job, Error> {
        self.prepare_but(source, variables, |_, _, _| {})
    }

    /// The same; `change` sees what is left for the worker.
    pub(crate) fn prepare_but(
        &self,
        source: &str,
        variables: &BTreeMap<String, String>,
        change: impl FnOnce(&Design, &mut AppSpace, &mut Rest),
    ) -> Result<Job, Error> {
        let text = self.parse_whole(source, variables)?;
        let purpose = self.purpose(source);
        self.devices.set_purpose(&purpose);
        let first = design(&text, &self.registry, &self.own_spaces(&[]))?;
        if !self.wants_to_share(&first) {
            return self.carry_out(first, None, change);
        }
        let mut joiner = self.joiner(&purpose);
        let job = self.carry_out(first, Some(&mut joiner), change)?;
        *self.joined() = joiner.connection();
        Ok(job)
    }

    fn joiner(&self, purpose: &str) -> Joiner {
        let daemon = self.devices.daemon().unwrap_or_default();
        Joiner::new(daemon, self.parser.clone(), purpose)
    }

    fn joined(&self) -> MutexGuard<'_, Weak<Client>> {
        // Nothing that panics under it leaves it half made.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a design out. Filters run in the space `parser` where there is somebody to ask. `change` sees what is left for
    /// the worker.
    fn carry_out(
        &self,
        first: Design,
        parser: Option<&mut dyn Join>,
        change: impl FnOnce(&Design, &mut AppSpace, &mut Rest),
    ) -> Result<Job, Error> {
        let asked = parser.is_some();
        let mut app = AppSpace::new(self.env_of(&first));
        let mut live = self.live_spaces().latency(latency(&first));
        let mut shared = ParserSpace::new(parser, self.nobody_to_share_with(), prefix::prefixes(&first));
        let mut spaces: Vec<Box<dyn Space + '_>> = vec![Box::new(&mut app)];
        spaces.extend(live.each().map(|space| Box::new(space) as Box<dyn Space + '_>));
        let (placed, refused) = if asked {
            spaces.push(Box::new(&mut shared));
            place_shared(first, &spaces, &BTreeSet::new())?
        } else {
            (first, Refused::default())
        };
        let mut design = carry_out_but(placed, refused, &mut spaces)?;
        tell(&self.costs, &mut design.plan);
        drop(spaces);
        let mut left = rest(live, shared.into_inlets(), &design.plan);
        change(&design, &mut app, &mut left);
        let away = isolate::carve(&design, &self.isolator, &mut left)?;
        app.give_away(&away, &design.plan);
        let sharing = asked.then(|| sharing(&design));
        let Rest { plan, left } = left;
        let origins: Vec<_> = left.iter().map(Left::origin).collect();
        let edges = EdgeNames::new(&design, &plan, &origins);
        let notes = notes(&design);
        let running = RunningPlan::new(design, origins, &left, plan.clone());
        // What was made once can be made again, unless what it reads has gone meanwhile.
        let meters: Vec<Meter> = plan.nodes.iter().filter(|_| self.measures).map(|_| Meter::default()).collect();
        let worker = app.into_worker(&plan, left, &meters).map_err(|error| Error::System(error.message))?;
        Ok(Job { running, edges, sharing, notes, worker, meters })
    }

    /// What the capture is used for, in words for people.
    fn set_purpose(&self, purpose: &str) {
        self.devices.set_purpose(purpose);
        let joined = self.joined().upgrade();
        // Where nobody is there any more, nobody shows it.
        let _ = joined.map(|client| client.set_purpose(purpose));
    }

    /// A prefix as the request that runs it: it ends in a place of its own.
    fn prefix_design(&self, text: &str) -> Result<Design, Error> {
        let text = self.parse(&format!("{text} | drop"), &BTreeMap::new())?;
        Ok(design(&text, &self.registry, &self.own_spaces(&[]))?)
    }

    /// Where a prefix, and what it begins with, may be read by others: the text of each such place, from the source down.
    pub(crate) fn prefixes_of(&self, text: &str) -> Result<Vec<String>, Error> {
        let cuts = cuts(&self.prefix_design(text)?);
        Ok(cuts.into_iter().map(|(_, prefix, _)| prefix.text).collect())
    }

    /// Prepares a prefix to run, with an outlet at each place where it may be read. It goes on from what runs already.
    pub(crate) fn prepare_prefix(&self, text: &str, mut bases: Bases) -> Result<Prepared, Error> {
        self.devices.set_purpose(&format!("shared: {text}"));
        let mut outlets = Vec::new();
        let bases = (!bases.0.is_empty()).then_some(&mut bases as &mut dyn Join);
        let job = self.carry_out(self.prefix_design(text)?, bases, |design, app, rest| {
            for (id, prefix, continuity) in cuts(design) {
                // What runs below is read there.
                let Some(at) = rest.left.iter().position(|left| left.is_node(id)) else { continue };
                let slot = Slot::new();
                let instance = outlet(Arc::clone(&slot), continuity);
                let end = design.plan.nodes[id.index()].edges.iter().find(|edge| is_end(design, edge.to));
                match end {
                    // What would drop everything stands where the last outlet goes.
                    Some(edge) => app.replace(edge.to, instance),
                    None => rest.add(at, id, instance),
                }
                outlets.push((prefix.text, continuity, slot));
            }
        })?;
        Ok(Prepared { job, outlets })
    }
}

/// A prefix that is ready to run, and the places where it may be read, from the source down.
pub(crate) struct Prepared {
    pub(crate) job: Job,
    pub(crate) outlets: Vec<(String, Continuity, Arc<Slot>)>,
}

/// Nodes of a design that others may read from, from the source down: all blocks of the design go through each of them.
fn cuts(design: &Design) -> Vec<(NodeId, Prefix, Continuity)> {
    let prefixes = prefix::prefixes(design);
    let cuts = (0..prefixes.len()).zip(prefixes).filter_map(|(index, prefix)| {
        let id = NodeId(index as u32);
        let (prefix, continuity) =
            prefix.and_then(|prefix| prefix.continuity.map(|continuity| (prefix, continuity)))?;
        let runs_for_all = match &design.plan.nodes[index].task {
            Task::Filter { kind, params } => prefix::is_shareable(kind, params).is_ok(),
            Task::Choose(_) => true,
        };
        (runs_for_all && !is_end(design, id)).then_some((id, prefix, continuity))
    });
    cuts.collect()
}

/// How much later than they came blocks may be found, where the request says so.
pub(crate) fn latency(design: &Design) -> Option<Duration> {
    design.graph.settings.number("latency").map(Duration::from_nanos)
}

fn is_end(design: &Design, id: NodeId) -> bool {
    let node = &design.plan.nodes[id.index()];
    matches!(&node.task, Task::Filter { kind, .. } if std::ptr::eq(*kind, &filters::drop::KIND))
}

/// Places a design anew with the space `parser`, as far as that pays, and but for those prefixes which run in this process.
fn place_shared(
    first: Design,
    spaces: &[Box<dyn Space + '_>],
    here: &BTreeSet<String>,
) -> Result<(Design, Refused), Diagnostic> {
    let mut refused = Refused::default();
    let mut design = place(first.graph, spaces, &refused)?;
    loop {
        let mut unfit = prefix::unfit(&design);
        unfit.0.extend(prefix::running_here(&design, here).0);
        if unfit.0.is_empty() {
            return Ok((design, refused));
        }
        // Each turn leaves out more of its nodes, so this ends.
        refused.0.extend(unfit.0);
        design = place(design.graph, spaces, &refused)?;
    }
}

/// What `explain` could not know: of a sink that was to have frames go out by a device within the kernel, why it does not.
fn notes(design: &Design) -> Vec<String> {
    let nodes = design.plan.nodes.iter().zip(&design.sites);
    let note = |(node, site): (&Node, &control::place::Site)| {
        let Task::Filter { kind: Kind { lower: Some(Lower::Forwards(_)), .. }, .. } = &node.task else { return None };
        let (_, why) = site.why.split_once(control::transaction::REFUSED)?;
        Some(format!("frames to `{}` go through this process: {}", node.label, why.trim_end_matches(')')))
    };
    nodes.filter_map(note).collect()
}

/// What runs for several requests; else why nothing does.
fn sharing(design: &Design) -> Result<Vec<String>, String> {
    let nodes = design.plan.nodes.iter().zip(&design.sites);
    let shared: Vec<String> =
        nodes.clone().filter(|(node, _)| node.space == PARSER).map(|(node, _)| node.label.clone()).collect();
    if !shared.is_empty() {
        return Ok(shared);
    }
    // The reason of the first filter that might have been.
    let why = nodes.filter_map(|(_, site)| site.why.split_once("(shared: ")).map(|(_, why)| why.trim_end_matches(')'));
    Err(why.map(String::from).next().unwrap_or_else(|| "nothing of it parses packets of a device".into()))
}

/// What is left for a worker: everything else runs elsewhere, and comes from there as sources.
pub(crate) struct Rest {
    pub(crate) plan: engine::Plan,
    /// By node of the rest.
    pub(crate) left: Vec<Left>,
}

impl Rest {
    /// Has this node of the whole plan run in the caller's thread.
    pub(crate) fn run_in_caller(&mut self, id: NodeId) {
        let at = self.left.iter().position(|left| left.is_node(id));
        self.plan.caller.extend(at.map(|at| NodeId(at as u32)));
    }

    /// Adds a node at the end, which gets what this one gives.
    fn add(&mut self, from: usize, origin: NodeId, instance: filter::run::Instance) {
        let task = Task::Filter { kind: &filters::drop::KIND, params: Params::new() };
        let to = NodeId(self.plan.nodes.len() as u32);
        let (space, input) = ("app".to_string(), Types::ANY);
        let how = Default::default();
        self.plan.nodes.push(Node { label: PARSER.into(), task, space, input, how, edges: Vec::new() });
        self.plan.nodes[from].edges.push(Edge::plain(to));
        self.left.push(Left::Given(origin, Opened::New(instance)));
    }
}

/// What a node of the rest is.
pub(crate) enum Left {
    /// A node of the whole plan, as it was.
    Node(NodeId),
    /// What comes from elsewhere, as a source, or goes there; the node of the whole plan that gives what this is about.
    Given(NodeId, Opened),
    /// What was pushed down, as a source.
    Source {
        /// The last node of the whole plan that it stands for.
        origin: NodeId,
        /// The source itself.
        source: Opened,
        /// What it reads.
        reads: Reads,
        /// The packet from which on it can take over from others of its device.
        first: Option<u64>,
    },
}

/// A source.
pub(crate) enum Opened {
    /// A new one.
    New(filter::run::Instance),
    /// This node of the worker that runs.
    Running(usize),
}

impl Left {
    /// The node of the whole plan that gives what this gives.
    pub(crate) fn origin(&self) -> NodeId {
        let (Left::Node(id) | Left::Given(id, _) | Left::Source { origin: id, .. }) = self;
        *id
    }

    pub(crate) fn is_node(&self, id: NodeId) -> bool {
        matches!(self, Left::Node(one) if *one == id)
    }
}

/// A request that is ready to run.
pub struct Job {
    /// How it is carried out.
    pub running: RunningPlan,
    /// What its edges are called.
    pub edges: EdgeNames,
    /// Where it was to be shared: which of its filters run once for several requests; else why none does.
    pub sharing: Option<Result<Vec<String>, String>>,
    /// What turned out otherwise than `explain` says.
    pub notes: Vec<String>,
    pub(crate) worker: Worker,
    /// By node of the worker, where it measures.
    meters: Vec<Meter>,
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

    /// What each filter took, where the session measures; `report` is that of the run.
    pub fn measured(&self, report: &Report) -> Vec<Measured> {
        Measured::of(report, &self.meters)
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
