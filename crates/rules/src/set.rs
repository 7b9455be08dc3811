//! A compiled rule set, with the patterns that select rules.

use crate::address::{Variables, default_variables};
use crate::dataset::Datasets;
use crate::header::Header;
use crate::mistake::{Mistake, Wrong};
use crate::names::{App, BUFFERS, Origin, is_body};
use crate::packet_test::PacketTest;
use crate::patterns::{Pattern, Patterns};
use crate::rule::{List, Order, Rule, Scope, Target};
use crate::{options, state, text, threshold_file};
use base::limits::RULES;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// How to read a file of rules.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Variables besides the default ones, by name without the `$`.
    pub variables: Vec<(String, String)>,
    /// Leave out wrong and unsupported rules instead of failing.
    pub partial: bool,
    /// The caller parses QUIC.
    pub quic: bool,
    /// Folder of the files that rules name; `None`: rules may not name files.
    pub folder: Option<PathBuf>,
    /// The order of actions.
    pub order: Order,
}

impl Options {
    fn all_variables(&self) -> Variables {
        let mut variables = default_variables();
        variables.extend(self.variables.iter().cloned());
        variables
    }
}

/// A compiled rule set.
#[derive(Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    /// Rules on addresses alone.
    pub(crate) by_address: Vec<u32>,
    /// Rules to try on each packet.
    pub(crate) each_packet: Vec<u32>,
    /// Rules to try on each piece of payload.
    pub(crate) each_payload: Vec<u32>,
    /// Rules to try on each transaction, by application.
    pub(crate) each_transaction: HashMap<App, Vec<u32>>,
    /// Rules to try on each transaction of any application.
    pub(crate) any_transaction: Vec<u32>,
    pub(crate) packets: Patterns,
    pub(crate) payloads: Patterns,
    /// Rules of streams that are looked at in each segment, too.
    pub(crate) segments: Patterns,
    pub(crate) each_segment: Vec<u32>,
    /// Patterns by buffer.
    pub(crate) buffers: Vec<Patterns>,
    /// Some rule inspects streams.
    pub(crate) streams: bool,
    /// Some rule matches both sides of a transaction together.
    pub(crate) whole: bool,
    /// Some rule inspects protocol frames.
    pub(crate) frames: bool,
    /// Some rule inspects whole files.
    pub(crate) whole_files: bool,
    pub(crate) datasets: Datasets,
    /// Some rule uses events of: headers, TCP streams, applications.
    pub(crate) events: [bool; 3],
    /// Flow bits whose names state the traffic type.
    pub(crate) traffic: Vec<(u64, String)>,
    /// Some rule may block a packet.
    pub(crate) blocks: bool,
    left_out: Vec<Mistake>,
}

impl RuleSet {
    /// Whether what passes depends on the rule.
    pub(crate) fn is_decisive(&self, rule: &Rule) -> bool {
        self.blocks && rule.changes_what_passes()
    }

    /// Reads a file of rules. Returns all mistakes, unless there are none or the options say to leave rules out.
    pub fn read(file: &str, options: &Options) -> Result<RuleSet, Vec<Mistake>> {
        let variables = options.all_variables();
        let mut datasets = Datasets::new(options.folder.clone());
        let (mut rules, mut mistakes, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for text in text::rules(file) {
            match read_rule(&text, &variables, &mut datasets) {
                Ok(rule) if !known.insert(rule.key()) => {
                    let reason = format!("a rule with sid {} and gid {} stands before this one", rule.sid, rule.gid);
                    mistakes.push(text.mistake(Wrong::new(0, reason)));
                }
                Ok(_) if rules.len() >= RULES => {
                    mistakes.push(text.mistake(Wrong::new(0, format!("a set has {RULES} rules at most"))));
                    break;
                }
                Ok(rule) if rule.app == Some(App::Quic) && !options.quic => {
                    let reason = "QUIC needs the feature quic, without which this program was built";
                    mistakes.push(text.mistake(Wrong::new(0, reason)));
                }
                Ok(rule) => rules.push(rule),
                Err(wrong) => mistakes.push(text.mistake(wrong)),
            }
        }
        if !mistakes.is_empty() && !options.partial {
            return Err(mistakes);
        }
        rules.sort_by_key(|rule| rule.order(options.order));
        RuleSet::compile(rules, mistakes, datasets)
            .map_err(|reason| vec![Mistake { line: 1, column: 1, sid: None, reason }])
    }

    /// Adds the limits of a file of thresholds (`threshold.config`), or returns all its mistakes.
    pub fn limit(&mut self, file: &str, options: &Options) -> Result<(), Vec<Mistake>> {
        threshold_file::apply(&threshold_file::read(file, &options.all_variables())?, &mut self.rules);
        self.blocks = self.rules.iter().any(Rule::may_block);
        Ok(())
    }

    /// Compiles rules, which are in the order of their evaluation.
    fn compile(mut rules: Vec<Rule>, left_out: Vec<Mistake>, datasets: Datasets) -> Result<RuleSet, String> {
        // Bodies are long: inspect them last, unless a list needs a variable of an earlier one.
        let is_long = |list: &List| matches!(list.target, Target::Buffer(buffer) if is_body(buffer));
        for rule in rules.iter_mut().filter(|rule| !rule.lists.iter().any(List::needs_earlier)) {
            rule.lists.sort_by_key(is_long);
        }
        let mut set = RuleSet {
            rules: Vec::new(),
            by_address: Vec::new(),
            each_packet: Vec::new(),
            each_payload: Vec::new(),
            each_transaction: HashMap::new(),
            any_transaction: Vec::new(),
            packets: Patterns::default(),
            payloads: Patterns::default(),
            segments: Patterns::default(),
            each_segment: Vec::new(),
            buffers: Vec::new(),
            streams: false,
            whole: false,
            frames: false,
            whole_files: false,
            datasets,
            events: [false; 3],
            traffic: Vec::new(),
            blocks: false,
            left_out,
        };
        let (mut packets, mut payloads, mut segments) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffers: Vec<Vec<Pattern<'_>>> = vec![Vec::new(); BUFFERS.len()];
        for (at, rule) in (0u32..).zip(&rules) {
            set.traffic.extend(rule.traffic.iter().map(|bit| (state::name(bit), bit.clone())));
            let fast =
                rule.fast.as_ref().map(|fast| (fast.target, Pattern { rule: at, bytes: &fast.bytes, end: fast.end }));
            match fast {
                _ if !rule.is_of_segments() => {}
                Some((_, pattern)) => segments.push(pattern),
                None => set.each_segment.push(at),
            }
            match (rule.scope, fast) {
                (Scope::Addresses, _) => set.by_address.push(at),
                (Scope::Packet, Some((Target::Payload, pattern))) => packets.push(pattern),
                (Scope::Packet, _) => set.each_packet.push(at),
                (Scope::Payload, Some((Target::Payload, pattern))) => payloads.push(pattern),
                (Scope::Payload, _) => set.each_payload.push(at),
                (Scope::Transaction, Some((Target::Buffer(buffer), pattern)))
                    if buffer.about().origin != Origin::Packet =>
                {
                    buffers[usize::from(buffer.0)].push(pattern);
                }
                (Scope::Transaction, _) => match rule.app {
                    Some(app) => {
                        app.members().for_each(|app| set.each_transaction.entry(app).or_default().push(at));
                    }
                    None => set.any_transaction.push(at),
                },
            }
        }
        set.traffic.sort_unstable();
        set.traffic.dedup();
        set.packets = Patterns::new(&packets)?;
        set.payloads = Patterns::new(&payloads)?;
        set.segments = Patterns::new(&segments)?;
        set.buffers = buffers.iter().map(|rules| Patterns::new(rules)).collect::<Result<_, _>>()?;
        let of_payload = |list: &List| list.target == Target::Payload;
        set.streams = rules.iter().any(|rule| rule.scope != Scope::Packet && rule.lists.iter().any(of_payload));
        set.frames = rules.iter().any(|rule| rule.lists.iter().any(List::is_of_frame));
        set.whole_files = rules.iter().any(|rule| rule.lists.iter().any(List::is_of_whole_file));
        set.whole = rules.iter().any(|rule| rule.header.whole);
        let asks = |known: &[&str]| {
            let known = |test: &PacketTest| matches!(test, PacketTest::Event(event) if known.contains(event));
            rules.iter().any(|rule| rule.packet.iter().any(known))
        };
        let of_apps = rules.iter().any(|rule| !rule.events.is_empty());
        set.events = [asks(crate::events::DECODE), asks(crate::events::STREAM), of_apps];
        set.blocks = rules.iter().any(Rule::may_block);
        set.rules = rules;
        Ok(set)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether the set has no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule at an index.
    pub fn rule(&self, at: u32) -> Option<&Rule> {
        self.rules.get(at as usize)
    }

    /// The mistakes in the rules that were left out.
    pub fn left_out(&self) -> &[Mistake] {
        &self.left_out
    }
}

fn read_rule(text: &text::RuleText, variables: &Variables, datasets: &mut Datasets) -> Result<Rule, Wrong> {
    let (words, options) = text::parts(&text.text)?;
    let open = text.text.find('(').unwrap_or(text.text.len());
    let header = Header::read(&words, open, variables)?;
    options::read(header, &options, text.line(), text.text.len(), datasets)
}
