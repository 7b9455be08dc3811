//! Turns a request's text into a running data path, in one process.

mod change;
mod placing;
mod several;
mod timer;

pub use crate::error::Error;
pub(crate) use change::PreparedChange;
pub use change::RunningPlan;
pub(crate) use timer::Timer;

use crate::app_space::AppSpace;
use crate::compiled::Compiled;
use crate::devices::Place;
use crate::devices::auto::AutoDevices;
use crate::isolate;
use crate::left::Left;
use crate::live::{Known, LiveSpaces, RunningSource};
use crate::parser::bases::Bases;
use crate::parser::client::{Client, Joiner};
use crate::parser::prefix::{self, Prefix};
use crate::parser::space::{Join, ParserSpace};
use crate::rest::Rest;
use crate::running::edges::EdgeNames;
use crate::space::PARSER;
use base::atomic::StopFlag;
use capture::Devices;
use control::transaction::{CarryError, carry_error};
use control::{Design, Graph, Registry, checked, settings};
use engine::profile::{Costs, Measured, Meter, tell};
use engine::{End, Node, NodeId, Report, Task, Worker, Workers};
use filter::param::Value;
use filter::{Env, Kind, Lower, Output, Schema, Spaces, Types, Wait};
use filters::conversations;
use filters::parser::Continuity;
use filters::parser::outlet::{Slot, outlet};
use placing::{Carried, Here};
use request::{Diagnostic, FilterCall, Item, Par, Role, Term, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All filters.
pub fn registry() -> Registry {
    static LISTS: [&[&Kind]; 4] = [filters::KINDS, conversations::KINDS, inspection::KINDS, columns::KINDS];
    Registry::new(&LISTS).without(columns::LEFT_OUT)
}

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// The columns of a terminal.
pub fn columns_of(terminal: impl AsFd) -> usize {
    let said = rustix::termios::tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if said == 0 { COLUMNS } else { said }
}

/// Prepares requests: knows the filters and the outside world.
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
    /// The source for chains of a request that begin without one.
    source: Option<FilterCall>,
    /// The number of packets after which a request ends.
    first: Option<u64>,
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
        match stdout.is_terminal() {
            true => Session::with_output(Output::terminal(Box::new(stdout), || columns_of(std::io::stdout()))),
            false => Session::with_output(Output::new(Box::new(stdout), false)),
        }
    }

    /// A session that writes elsewhere.
    pub fn with_output(stdout: Output) -> Session {
        let registry = registry().for_people(stdout.columns().is_some());
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
            first: None,
            joined: Mutex::default(),
        }
    }

    /// What has no sink is written on a terminal as elsewhere: records as JSON.
    #[must_use]
    pub fn as_json(mut self) -> Session {
        self.registry = self.registry.for_people(false);
        self
    }

    /// Sets where devices are opened.
    #[must_use]
    pub fn devices_at(mut self, place: Place) -> Session {
        self.devices = Arc::new(AutoDevices::new(place));
        self
    }

    #[must_use]
    pub(crate) fn compiler(mut self, compiler: Arc<dyn program::Compile>) -> Session {
        self.env.compiler = compiler;
        self
    }

    /// Whether selectors may run in the kernel, and packets that no filter can want stay there. If not, devices give all their
    /// packets, as files do.
    #[must_use]
    pub fn push_down(mut self, push_down: bool) -> Session {
        self.push_down = push_down;
        self
    }

    /// The filters that a request may name, by name.
    pub fn kinds(&self) -> Vec<&'static Kind> {
        self.registry.kinds()
    }

    /// Parses a text and fills in `let` and `$x`.
    pub fn parse(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Text, Error> {
        let text = request::parse(source)?;
        let is_filter = |name: &str| self.registry.find(name).is_some();
        Ok(request::expand(&text, variables, &is_filter)?)
    }

    /// Puts this source before each chain of a request that begins without one. Then a request in which no chain lacks
    /// a source is an error. A request that replaces another may have its own source.
    #[must_use]
    pub fn reading(mut self, source: Option<FilterCall>) -> Session {
        self.source = source;
        self
    }

    /// Ends a request after this number of packets of each source: those that pass the selectors right behind it. `None`:
    /// no limit.
    #[must_use]
    pub fn first(mut self, count: Option<u64>) -> Session {
        self.first = count;
        self
    }

    /// Whether a chain of this request begins without a source. Not where the text has an error.
    pub fn lacks_source(&self, source: &str, variables: &BTreeMap<String, String>) -> bool {
        let any = FilterCall::new("pcap", []);
        self.parse(source, variables).is_ok_and(|mut text| request::begin_with(&mut text, &any, &self.may_begin()) > 0)
    }

    fn may_begin(&self) -> impl Fn(&str) -> bool {
        |name| self.registry.find(name).is_some_and(Kind::may_begin)
    }

    /// Like [`parse`](Session::parse). Chains without a source get the session's; at least one chain must lack a
    /// source.
    fn parse_whole(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Text, Error> {
        let (text, begun) = self.parse_and_begin(source, variables)?;
        let first = text.items.iter().find(|item| matches!(item, Item::Path(_)));
        match first.zip(self.source.as_ref()).filter(|_| begun == 0) {
            None => Ok(text),
            Some((Item::Path(path), given)) => Err(self.two_sources(path, given).into()),
            Some(_) => Ok(text),
        }
    }

    /// The error for a request that has its own source although the session has one.
    fn two_sources(&self, path: &Par, given: &FilterCall) -> Diagnostic {
        let error =
            Diagnostic::new("the request has its own source", path.span).with_label("no chain begins without one");
        let first = path.branches.first().and_then(|chain| chain.links.first()).map(|link| &link.term);
        let Some(Term::Filter(first)) = first else { return error };
        let option = match &*given.name.text {
            "pcap" => "-r",
            "ethernet" => "-i",
            // The command put this source there, not a person.
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

    /// Like `parse_whole`, but accepts any request. Also gives how many chains had no source.
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
        several::name_devices(&mut text, &self.registry)?;
        if let Some(count) = self.first {
            let role = |name: &str| match self.registry.find(name) {
                Some(kind) if kind.may_begin() => Role::Source,
                Some(kind) if kind.selector => Role::Selector,
                _ => Role::Other,
            };
            request::put_behind_sources(&mut text, &FilterCall::new("head", [count.to_string()]), &role);
        }
        Ok((text, begun))
    }

    /// Puts the session's source before chains without one, and gives their number.
    fn begin(&self, text: &mut Text) -> usize {
        self.source.as_ref().map_or(0, |call| request::begin_with(text, call, &self.may_begin()))
    }

    /// The request's text with the source that it leaves out, for people.
    pub(crate) fn purpose(&self, request: &str) -> String {
        let leaves_it_out = request::parse(request).is_ok_and(|mut text| self.begin(&mut text) > 0);
        match self.source.as_ref().filter(|_| leaves_it_out) {
            Some(source) => format!("{source}: {request}"),
            None => request.to_string(),
        }
    }

    /// The outside world, for filters that are made without a request.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Sets the workers of a request without `set workers=`.
    #[must_use]
    pub fn workers(mut self, workers: Option<Workers>) -> Session {
        self.workers = workers;
        self
    }

    /// Sets the costs of filters, by their text; `workers=pipeline` and `workers=auto` use them.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Session {
        self.costs = costs;
        self
    }

    /// Turns on measuring each filter of a request; see [`Job::measured`].
    #[must_use]
    pub fn measure(mut self, measures: bool) -> Session {
        self.measures = measures;
        self
    }

    /// Whether filters that parse payload may run once for several requests that begin alike. A request's `set share=` goes
    /// first.
    #[must_use]
    pub fn share(mut self, share: bool) -> Session {
        self.share = share;
        self
    }

    /// Sets the command that starts a parser process. It is given the daemon's socket as one more argument, and ends as
    /// [`parser::server`](crate::parser::server) does. Without a command, only a process that already runs is used.
    #[must_use]
    pub fn parser(mut self, command: Vec<OsString>) -> Session {
        self.parser = Some(command);
        self
    }

    /// Sets the command that makes missing named rings: `streamline pipe create`. Without one the rings have to exist.
    #[must_use]
    pub fn ring_maker(mut self, command: Vec<OsString>) -> Session {
        self.env.make_ring = command.into();
        self
    }

    /// Sets the command that starts a process for filters with `isolate=yes`; it does what
    /// [`child::run`](crate::isolate::child::run) does. Without one, a request with such filters is refused.
    #[must_use]
    pub fn isolator(mut self, command: Vec<OsString>) -> Session {
        self.isolator = command;
        self
    }

    /// The outside world for the filters of a graph.
    fn env_of(&self, graph: &Graph) -> Env {
        let wait = settings::plan(&graph.settings).wait;
        Env { wait, latency: settings::latency(&graph.settings), daemon: self.devices.daemon(), ..self.env.clone() }
    }

    /// Checks and places a request, but opens nothing.
    pub fn design(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Design, Error> {
        let graph = checked(&self.parse_whole(source, variables)?, &self.registry)?;
        let shared = self.wants_to_share(&graph).then(|| ParserSpace::new(None, self.nobody_to_share_with()));
        let (mut design, _) = self.here(&graph, shared, &[]).decide(graph)?;
        tell(&self.costs, &mut design.plan);
        Ok(design)
    }

    /// Lists missing things that a design needs besides devices: files, libpcap, flows of the daemon. Opens captures, and
    /// flows for a moment. The error is one of the request that shows only here, such as an invalid expression.
    pub fn missing(&self, design: &Design) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        for (index, node) in design.plan.nodes.iter().enumerate() {
            let Task::Filter { kind, params } = &node.task else { continue };
            // Filters that may run without rights touch nothing when they are made.
            if !kind.leaves_nothing && !kind.spaces.has(Spaces::PARSER) {
                continue;
            }
            let env = Env { input: node.input, ..self.env_of(&design.graph) };
            if let Err(error) = (kind.make)(params, &env) {
                match carry_error(design, NodeId(index as u32), error) {
                    CarryError::Request(diagnostic) => return Err(Error::Request(diagnostic)),
                    CarryError::System(text) => missing.push(text),
                }
            }
        }
        Ok(missing)
    }

    /// Describes a device; asks the daemon where one is used.
    pub fn device(&self, name: &str) -> Result<capture::Device, capture::CaptureError> {
        self.devices.device(name)
    }

    /// Whether a daemon opens devices for this session.
    pub fn has_daemon(&self) -> bool {
        self.devices.is_elsewhere()
    }

    /// The spaces for a request. `running`: the sources of a plan that is to be replaced.
    fn here<'a>(&self, graph: &Graph, shared: Option<ParserSpace<'a>>, running: &[RunningSource]) -> Here<'a> {
        let devices: Arc<dyn Devices> = self.devices.clone();
        Here {
            app: AppSpace::new(self.env_of(graph)),
            live: LiveSpaces::new(&devices, &self.env.compiler)
                .beside(running)
                .latency(settings::latency(&graph.settings)),
            shared,
            stay: BTreeSet::new(),
            known: Known::new(Arc::clone(&self.env.compiler), self.push_down, running),
            devices,
        }
    }

    fn wants_to_share(&self, graph: &Graph) -> bool {
        match graph.settings.get("share") {
            Some(Value::Flag(share)) => *share,
            _ => self.share,
        }
    }

    /// Why this session cannot share any part of any request. `None`: it can.
    fn nobody_to_share_with(&self) -> Option<String> {
        if !self.push_down {
            return Some("it leaves out in the kernel what nobody can want".into());
        }
        self.devices.daemon().is_none().then(|| "it takes packets from a daemon, and none is used here".into())
    }

    /// A copy of the session with other kinds of filters, for one request.
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
            first: self.first,
            joined: Mutex::default(),
        }
    }

    /// Prepares a request to run: opens all it needs, or leaves all closed.
    pub fn prepare(&self, source: &str, variables: &BTreeMap<String, String>) -> Result<Job, Error> {
        self.prepare_but(source, variables, |_, _, _| {})
    }

    /// Like `prepare`; `change` may change the worker's part of the plan.
    pub(crate) fn prepare_but(
        &self,
        source: &str,
        variables: &BTreeMap<String, String>,
        change: impl FnOnce(&Design, &mut AppSpace, &mut Rest),
    ) -> Result<Job, Error> {
        let text = self.parse_whole(source, variables)?;
        let purpose = self.purpose(source);
        self.devices.set_purpose(&purpose);
        let graph = checked(&text, &self.registry)?;
        if !self.wants_to_share(&graph) {
            return self.carry_out(graph, None, change);
        }
        let mut joiner = self.joiner(&purpose);
        let job = self.carry_out(graph, Some(&mut joiner), change)?;
        *self.joined() = joiner.connection();
        Ok(job)
    }

    fn joiner(&self, purpose: &str) -> Joiner {
        let daemon = self.devices.daemon().unwrap_or_default();
        Joiner::new(daemon, self.parser.clone(), purpose)
    }

    fn joined(&self) -> MutexGuard<'_, Weak<Client>> {
        // No panic under this lock leaves a half-made value.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a checked graph out. Filters run in the space `parser` if there is a parser process. `change` may change
    /// the worker's part of the plan.
    fn carry_out(
        &self,
        graph: Graph,
        parser: Option<&mut dyn Join>,
        change: impl FnOnce(&Design, &mut AppSpace, &mut Rest),
    ) -> Result<Job, Error> {
        let asked = parser.is_some();
        let shared = parser.map(|parser| ParserSpace::new(Some(parser), self.nobody_to_share_with()));
        let carried = self.here(&graph, shared, &[]).carry_out(graph, None, &mut |design| {
            tell(&self.costs, &mut design.plan);
            Ok(())
        })?;
        let Carried { design, mut app, rest: mut left, .. } = carried;
        change(&design, &mut app, &mut left);
        let away = isolate::carve(&design, &self.isolator, &mut left)?;
        app.give_away(&away, &design.plan);
        let sharing = asked.then(|| sharing(&design));
        let Rest { plan, left } = left;
        let origins: Vec<_> = left.iter().map(Left::origin).collect();
        let edges = EdgeNames::new(&design, &plan, &origins);
        let notes = notes(&design);
        let running = RunningPlan::new(design, origins, &left, plan.clone());
        // The instances were made once, so making them again fails only if their input has gone meanwhile.
        let meters: Vec<Meter> = plan.nodes.iter().filter(|_| self.measures).map(|_| Meter::default()).collect();
        let worker = app.into_worker(&plan, left, &meters).map_err(Error::System)?;
        Ok(Job { running, edges, sharing, notes, worker, meters })
    }

    fn set_purpose(&self, purpose: &str) {
        self.devices.set_purpose(purpose);
        let joined = self.joined().upgrade();
        // If the parser process is gone, it shows no purpose.
        let _ = joined.map(|client| client.set_purpose(purpose));
    }

    /// Makes a graph of a prefix, as the request that runs it; it ends in a `drop` that only takes the place of a sink.
    fn prefix_graph(&self, text: &str) -> Result<Graph, Error> {
        let text = self.parse(&format!("{text} | drop"), &BTreeMap::new())?;
        Ok(checked(&text, &self.registry)?)
    }

    /// The texts of a prefix and its beginnings that other requests may read, from the source down.
    pub(crate) fn prefixes_of(&self, text: &str) -> Result<Vec<String>, Error> {
        let graph = self.prefix_graph(text)?;
        let cuts = cuts(&self.here(&graph, None, &[]).decide(graph)?.0);
        Ok(cuts.into_iter().map(|(_, prefix, _)| prefix.text).collect())
    }

    /// Prepares a prefix to run, with an outlet at each place where it may be read. It goes on from the prefixes that
    /// run already.
    pub(crate) fn prepare_prefix(&self, text: &str, mut bases: Bases) -> Result<Prepared, Error> {
        self.devices.set_purpose(&format!("shared: {text}"));
        let mut outlets = Vec::new();
        let bases = (!bases.0.is_empty()).then_some(&mut bases as &mut dyn Join);
        let job = self.carry_out(self.prefix_graph(text)?, bases, |design, app, rest| {
            for (id, prefix, continuity) in cuts(design) {
                // A place that runs as another prefix is read there.
                let Some(at) = rest.left.iter().position(|left| left.is_node(id)) else { continue };
                let slot = Slot::new();
                let instance = outlet(Arc::clone(&slot), continuity);
                let end = design.plan.nodes[id.index()].edges.iter().find(|edge| is_end(design, edge.to));
                match end {
                    // The last outlet takes the place of the `drop` at the end.
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

/// Nodes of a design that other requests may read, from the source down. All blocks of the design go through each of
/// them.
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

fn is_end(design: &Design, id: NodeId) -> bool {
    let node = &design.plan.nodes[id.index()];
    matches!(&node.task, Task::Filter { kind, .. } if std::ptr::eq(*kind, &filters::drop::KIND))
}

/// What `explain` could not know: why a sink does not forward frames within the kernel.
fn notes(design: &Design) -> Vec<String> {
    let nodes = design.plan.nodes.iter().zip(&design.sites);
    let note = |(node, site): (&Node, &control::place::Site)| {
        let Task::Filter { kind: Kind { lower: Some(Lower::Forwards(_)), .. }, .. } = &node.task else { return None };
        let (_, why) = site.why.split_once(control::transaction::REFUSED)?;
        Some(format!("frames to `{}` go through this process: {}", node.label, why.trim_end_matches(')')))
    };
    nodes.filter_map(note).collect()
}

/// What runs for several requests. The error says why nothing does.
fn sharing(design: &Design) -> Result<Vec<String>, String> {
    let nodes = design.plan.nodes.iter().zip(&design.sites);
    let shared: Vec<String> =
        nodes.clone().filter(|(node, _)| node.space == PARSER).map(|(node, _)| node.label.clone()).collect();
    if !shared.is_empty() {
        return Ok(shared);
    }
    // Give the reason of the first filter that could have been shared.
    let why = nodes.filter_map(|(_, site)| site.why.split_once("(shared: ")).map(|(_, why)| why.trim_end_matches(')'));
    Err(why.map(String::from).next().unwrap_or_else(|| "nothing of it parses packets of a device".into()))
}

/// A request that is ready to run.
pub struct Job {
    /// The plan, as it is carried out.
    pub running: RunningPlan,
    /// The names of its edges.
    pub edges: EdgeNames,
    /// The filters that run once for several requests; the error says why none do. `None`: sharing was not wanted.
    pub sharing: Option<Result<Vec<String>, String>>,
    /// Differences between the plan and the answer of `explain`.
    pub notes: Vec<String>,
    pub(crate) worker: Worker,
    /// A meter for each node of the worker; empty if it does not measure.
    meters: Vec<Meter>,
}

/// The end of a request that ran.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Why it ended.
    pub end: End,
    /// The counters.
    pub report: Report,
}

impl Job {
    /// Runs until the input ends, no filter wants more, or `stop` is set. Calls `look` now and then and once at the
    /// end, for progress and notices.
    pub fn run(mut self, stop: &StopFlag, look: &mut dyn FnMut(&mut Worker)) -> Result<Finished, Error> {
        self.run_to_end(stop, look).0
    }

    /// The time that each filter took, where the session measures; `report` is the run's report.
    pub fn measured(&self, report: &Report) -> Vec<Measured> {
        Measured::of(report, &self.meters)
    }

    /// Sets `stop` after the time that the request gives itself (`set for=`).
    pub(crate) fn timer(&self, stop: &StopFlag) -> Option<Timer> {
        settings::duration(&self.running.design.graph.settings).map(|time| Timer::start(time, stop))
    }

    /// Like [`run`](Job::run), but also gives the report of a run that failed.
    pub fn run_to_end(
        &mut self,
        stop: &StopFlag,
        look: &mut dyn FnMut(&mut Worker),
    ) -> (Result<Finished, Error>, Report) {
        let _timer = self.timer(stop);
        let end = self.worker.run(stop, look);
        let report = self.worker.report();
        debug_assert_eq!(report.check(), Ok(()));
        (end.map(|end| Finished { end, report: report.clone() }).map_err(Error::from), report)
    }
}
