//! A compiled rule.

use crate::event::is_file;
use crate::header::{Action, Header, Protocol};
use crate::inspect::Step;
use crate::names::{App, Buffer, Number};
use crate::number::{Among, Compare};
use crate::packet_test::PacketTest;
use crate::state::{StateChange, StateTest, Verb};
use crate::threshold::{Rate, Suppress, Threshold};
use crate::transform::Transform;

/// The order in which rules are evaluated, by their action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order([&'static str; 4]);

impl Order {
    /// Suricata's: pass, drop, reject, alert.
    pub const USUAL: Order = Order(["pass", "drop", "reject", "alert"]);

    /// Reads names of actions. `None`: not each of the four once.
    pub fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Order> {
        let known = |name| Order::USUAL.0.into_iter().find(|known| *known == name);
        let names: [&str; 4] = names.map(known).collect::<Option<Vec<_>>>()?.try_into().ok()?;
        Order::USUAL.0.iter().all(|name| names.contains(name)).then_some(Order(names))
    }

    fn rank(&self, action: Action) -> usize {
        let name = match action {
            Action::Pass => "pass",
            Action::Drop => "drop",
            Action::Reject { .. } => "reject",
            Action::Alert => "alert",
        };
        self.0.iter().position(|known| *known == name).unwrap_or(self.0.len())
    }
}

impl Default for Order {
    fn default() -> Order {
        Order::USUAL
    }
}

/// What a rule is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Addresses alone: once per direction of a flow.
    Addresses,
    Packet,
    /// Streams, and packets outside streams.
    Payload,
    Transaction,
}

/// Where a list's steps look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Payload,
    Buffer(Buffer),
}

/// Steps over one target.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub target: Target,
    pub transforms: Vec<Transform>,
    pub steps: Vec<Step>,
    /// The side whose buffer is inspected, if the rule names one.
    pub to_server: Option<bool>,
    /// `Some(false)`: the buffer must be absent. `Some(true)`: it must be absent, or the steps must hold (`or_steps`).
    pub absent: Option<bool>,
}

impl List {
    pub fn is_of_frame(&self) -> bool {
        matches!(self.target, Target::Buffer(buffer) if buffer.about().name.starts_with(FRAME))
    }
}

impl List {
    /// Whether a step uses a variable that an earlier list sets.
    pub fn needs_earlier(&self) -> bool {
        let is_own = |at: usize, variable| self.steps[..at].iter().any(|step| step.sets() == Some(variable));
        self.steps.iter().enumerate().any(|(at, step)| step.uses().any(|variable| !is_own(at, variable)))
    }

    pub fn is_of_whole_file(&self) -> bool {
        let whole = [Buffer::FILE_MD5, Buffer::FILE_SHA1, Buffer::FILE_SHA256, Buffer::FILE_SIZE];
        matches!(self.target, Target::Buffer(buffer) if whole.contains(&buffer))
    }
}

/// Prefix of the names of frame buffers.
pub(crate) const FRAME: &str = "frame ";

/// The conditions of `flow`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowTest {
    pub to_server: Option<bool>,
    pub established: Option<bool>,
    /// `Some(true)`: only reassembled streams; `Some(false)`: only packets.
    pub stream: Option<bool>,
    pub fragment: Option<bool>,
}

/// The pattern that selects the rule.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    pub target: Target,
    pub bytes: Vec<u8>,
    /// The offset in the buffer at which the pattern ends at the latest.
    pub end: Option<u64>,
}

/// A compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Line in the file.
    pub line: u32,
    /// The action.
    pub action: Action,
    /// Rule number.
    pub sid: u32,
    /// Group number.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// The `msg` text.
    pub message: String,
    /// Description of its class.
    pub category: &'static str,
    /// Priority; 1 is the most severe.
    pub priority: u8,
    /// The `metadata` keys with their values.
    pub metadata: Vec<(String, Vec<String>)>,
    /// Flow bits that the rule sets and that name a traffic type: `traffic/id/NAME`, `traffic/label/NAME`.
    pub(crate) traffic: Vec<String>,
    /// The rule gives no alert.
    pub quiet: bool,
    pub(crate) header: Header,
    pub(crate) scope: Scope,
    pub(crate) app: Option<App>,
    pub(crate) flow: FlowTest,
    pub(crate) packet: Vec<PacketTest>,
    pub(crate) lists: Vec<List>,
    pub(crate) numbers: Vec<(Number, Compare, Among)>,
    /// Numbers that must equal one of several values or lie in a range, bounds included.
    pub(crate) among: Vec<(Number, Vec<(u64, u64)>)>,
    /// Application events that the rule requires.
    pub(crate) events: Vec<&'static str>,
    pub(crate) tests: Vec<StateTest>,
    pub(crate) changes: Vec<StateChange>,
    pub(crate) thresholds: Vec<Threshold>,
    /// Hosts of which the rule gives no alerts.
    pub(crate) suppressed: Vec<Suppress>,
    pub(crate) rate: Option<Rate>,
    pub(crate) fast: Option<Fast>,
}

impl Rule {
    /// The application that the rule is about, if any.
    pub fn app(&self) -> Option<App> {
        self.app
    }

    /// Whether a match may change what passes: now, or by a change of state that other rules test.
    pub(crate) fn changes_what_passes(&self) -> bool {
        let mut steps = self.lists.iter().flat_map(|list| &list.steps);
        self.action != Action::Alert
            || !self.changes.is_empty()
            || self.may_block()
            || steps.any(|step| matches!(step, Step::Member(_, verb) if verb.changes()))
    }

    /// Whether a match may block the packet.
    pub(crate) fn may_block(&self) -> bool {
        self.action.blocks() || self.rate.as_ref().is_some_and(|rate| rate.action.blocks())
    }

    /// Identifies the rule across reloads.
    pub(crate) fn key(&self) -> u64 {
        u64::from(self.gid) << 32 | u64::from(self.sid)
    }

    /// Sort key, with actions in this order. Within an action, rules that set state come before rules that test it; rules that unset bits come
    /// last.
    pub(crate) fn order(&self, order: Order) -> (usize, u8, u8, u32) {
        let rank = order.rank(self.action);
        let unset = |change: &StateChange| matches!(change, StateChange::Bit { verb: Verb::Unset, .. });
        if self.changes.iter().any(unset) {
            return (rank, 4, self.priority, self.line);
        }
        let state = match (self.changes.is_empty(), self.tests.is_empty()) {
            (false, true) => 0,
            (false, false) => 1,
            (true, false) => 2,
            (true, true) => 3,
        };
        (rank, state, self.priority, self.line)
    }

    /// Whether the rule inspects files. A transaction may have several.
    pub(crate) fn is_of_files(&self) -> bool {
        let mut targets = self.lists.iter().map(|list| list.target);
        targets.any(|target| matches!(target, Target::Buffer(buffer) if is_file(buffer)))
    }

    /// Whether the rule tests the application and nothing more specific.
    pub(crate) fn is_of_app_only(&self) -> bool {
        matches!(self.header.protocol, Protocol::App(_)) && self.lists.is_empty() || self.asks_app_alone()
    }

    /// Whether a rule of a stream is looked at in each segment, too. So are those whose contents stand at a place that they
    /// name, as in Suricata and Snort: their author thinks of the place in the packet.
    pub(crate) fn is_of_segments(&self) -> bool {
        let mut payload = self.lists.iter().filter(|list| list.target == Target::Payload);
        self.scope == Scope::Payload
            && self.header.protocol != Protocol::TcpStream
            && self.flow.stream != Some(true)
            && payload.any(|list| list.steps.iter().any(Step::names_its_place))
    }

    /// Whether `app-layer-protocol` is the only condition. Then the rule matches a flow once.
    pub(crate) fn asks_app_alone(&self) -> bool {
        let asks = |test: &PacketTest| matches!(test, PacketTest::App { .. });
        let of_flow = self.flow.to_server.is_some() || self.flow.established.is_some() || self.flow.stream.is_some();
        self.scope == Scope::Packet
            && !self.packet.is_empty()
            && self.packet.iter().all(asks)
            && !of_flow
            && self.lists.is_empty()
            && self.tests.is_empty()
            && self.changes.is_empty()
    }
}
