//! A compiled rule.

use crate::event::is_file;
use crate::header::{Header, Protocol};
use crate::inspect::Step;
use crate::names::{App, Buffer, Number};
use crate::number::{Among, Compare};
use crate::packet_test::PacketTest;
use crate::state::{StateChange, StateTest, Verb};
use crate::threshold::Threshold;
use crate::transform::Transform;

/// What a rule that matches does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet, or the flow, is looked at no further.
    Pass,
    /// The packet is dropped, and the flow where a stream matched.
    Drop,
    /// The same, and its ends are told.
    Reject {
        /// The sender.
        source: bool,
        /// The receiver.
        target: bool,
    },
    /// An alert alone.
    Alert,
}

impl Action {
    /// Which comes first.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Action::Pass => 0,
            Action::Drop => 1,
            Action::Reject { .. } => 2,
            Action::Alert => 3,
        }
    }

    /// Does it keep the packet from its receiver?
    pub fn blocks(self) -> bool {
        matches!(self, Action::Drop | Action::Reject { .. })
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Addresses alone: once for each direction of a flow.
    Addresses,
    /// Each packet.
    Packet,
    /// The stream, and packets that are in none.
    Payload,
    /// Transactions.
    Transaction,
}

/// Where the steps of a list look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Payload,
    Buffer(Buffer),
}

/// Steps over one buffer.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub target: Target,
    pub transforms: Vec<Transform>,
    pub steps: Vec<Step>,
    /// The side whose buffer is meant, where it is said.
    pub to_server: Option<bool>,
    /// The buffer must not be there; with `or_steps`, or else the steps must hold.
    pub absent: Option<bool>,
}

impl List {
    /// Is it about frames of a protocol?
    pub fn is_of_frame(&self) -> bool {
        matches!(self.target, Target::Buffer(buffer) if buffer.about().name.starts_with(FRAME))
    }
}

impl List {
    /// Is it about files as a whole?
    pub fn is_of_whole_file(&self) -> bool {
        let whole = [Buffer::FILE_MD5, Buffer::FILE_SHA1, Buffer::FILE_SHA256, Buffer::FILE_SIZE];
        matches!(self.target, Target::Buffer(buffer) if whole.contains(&buffer))
    }
}

/// What names of buffers that are frames begin with.
pub(crate) const FRAME: &str = "frame ";

/// What `flow` asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowTest {
    pub to_server: Option<bool>,
    pub established: Option<bool>,
    /// `Some(true)`: only rebuilt streams; `Some(false)`: only packets.
    pub stream: Option<bool>,
    pub fragment: Option<bool>,
}

/// Which bytes a rule is found by.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    pub target: Target,
    pub bytes: Vec<u8>,
}

/// A compiled rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Line in its file.
    pub line: u32,
    /// What it does.
    pub action: Action,
    /// Number of the rule.
    pub sid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// Its text for people.
    pub message: String,
    /// What its class is called.
    pub category: &'static str,
    /// 1 is the most severe.
    pub priority: u8,
    /// What its writer says of it, for people: keys and their values.
    pub metadata: Vec<(String, Vec<String>)>,
    /// Bits of flows that it sets and whose names say what the traffic is: `traffic/id/NAME`, `traffic/label/NAME`.
    pub(crate) traffic: Vec<String>,
    /// Gives no alert.
    pub quiet: bool,
    pub(crate) header: Header,
    pub(crate) scope: Scope,
    pub(crate) app: Option<App>,
    pub(crate) flow: FlowTest,
    pub(crate) packet: Vec<PacketTest>,
    pub(crate) lists: Vec<List>,
    pub(crate) numbers: Vec<(Number, Compare, Among)>,
    /// Numbers that are one of several, or lie between two, both of which are included.
    pub(crate) among: Vec<(Number, Vec<(u64, u64)>)>,
    /// Events of transactions that it asks for.
    pub(crate) events: Vec<&'static str>,
    pub(crate) tests: Vec<StateTest>,
    pub(crate) changes: Vec<StateChange>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) fast: Option<Fast>,
}

impl Rule {
    /// The application that its alerts are about, where it is about one.
    pub fn app(&self) -> Option<App> {
        self.app
    }

    /// Names the rule also when the rules are loaded again.
    pub(crate) fn key(&self) -> u64 {
        u64::from(self.gid) << 32 | u64::from(self.sid)
    }

    /// The place of its kind among others: what is set before what asks for it, and what is unset last.
    pub(crate) fn order(&self) -> (u8, u8, u8, u32) {
        let unset = |change: &StateChange| matches!(change, StateChange::Bit { verb: Verb::Unset, .. });
        if self.changes.iter().any(unset) {
            return (self.action.rank(), 4, self.priority, self.line);
        }
        let state = match (self.changes.is_empty(), self.tests.is_empty()) {
            (false, true) => 0,
            (false, false) => 1,
            (true, false) => 2,
            (true, true) => 3,
        };
        (self.action.rank(), state, self.priority, self.line)
    }

    /// Does it look at files, of which a transaction may have several?
    pub(crate) fn is_of_files(&self) -> bool {
        let mut targets = self.lists.iter().map(|list| list.target);
        targets.any(|target| matches!(target, Target::Buffer(buffer) if is_file(buffer)))
    }

    /// Is only the application asked for, or less?
    pub(crate) fn is_of_app_only(&self) -> bool {
        matches!(self.header.protocol, Protocol::App(_)) && self.lists.is_empty() || self.asks_app_alone()
    }

    /// Does nothing but `app-layer-protocol` ask for something? Then it matches a flow once.
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
