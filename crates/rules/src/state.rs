//! State that outlives a packet: bits and numbers of flows, bits of hosts and host pairs, and the rule options that
//! test and change them.

use crate::mistake::Read;
use crate::names::App;
use crate::tally::Tally;
use crate::text::{Opt, Word, unsigned};
use base::limits::{RULES_FLOW_BITS, RULES_HOST_BITS};
use std::collections::HashMap;
use std::net::IpAddr;

/// The state of a flow. Arrays by side have the direction to the server at `[0]`.
#[derive(Clone, Debug, Default)]
pub struct FlowState {
    bits: Vec<u64>,
    numbers: Vec<(u64, u32)>,
    /// The application, if it is known yet.
    pub app: App,
    /// Application detection has ended.
    pub app_known: bool,
    /// Time of the first packet, ns.
    pub start: u64,
    /// Packets by side.
    pub packets: [u64; 2],
    /// Frame bytes by side.
    pub bytes: [u64; 2],
    /// Stream bytes by side.
    pub stream_bytes: [u64; 2],
    /// A pass rule matched: the engine ignores the rest of the flow.
    pub passed: bool,
    /// A rule dropped the flow.
    pub dropped: bool,
    /// By side: rules on addresses alone were tried.
    pub(crate) addresses_seen: [bool; 2],
    /// Rules on the application alone that matched.
    pub(crate) app_matched: Vec<u32>,
    /// Threshold counts of rules that track by flow.
    pub(crate) counts: Vec<(u32, Tally)>,
    /// By side: rules that wait, and the stream offset of their pattern.
    pub(crate) waiting: [Vec<(u32, u64)>; 2],
    /// The rule set that the rule indexes refer to.
    set_number: u64,
    /// A limit was reached and not counted yet.
    pub(crate) full: bool,
}

impl FlowState {
    /// Drops state of an older rule set, also that the flow passes.
    pub(crate) fn meet_set(&mut self, number: u64) {
        if std::mem::replace(&mut self.set_number, number) != number {
            (self.addresses_seen, self.passed) = ([false; 2], false);
            self.waiting.iter_mut().for_each(Vec::clear);
            self.app_matched.clear();
        }
    }

    /// Creates the state of a flow that began at `start`, ns.
    pub fn new(start: u64) -> FlowState {
        FlowState { start, ..FlowState::default() }
    }

    pub(crate) fn has_bit(&self, name: u64) -> bool {
        self.bits.contains(&name)
    }

    fn set_bit(&mut self, name: u64, value: bool) {
        let at = self.bits.iter().position(|bit| *bit == name);
        match (at, value) {
            (Some(at), false) => drop(self.bits.swap_remove(at)),
            (None, true) if self.bits.len() < RULES_FLOW_BITS => self.bits.push(name),
            (None, true) => self.full = true,
            _ => {}
        }
    }

    fn number(&self, name: u64) -> Option<u32> {
        self.numbers.iter().find(|number| number.0 == name).map(|number| number.1)
    }

    fn set_number(&mut self, name: u64, value: u32) {
        match self.numbers.iter().position(|number| number.0 == name) {
            Some(at) => self.numbers[at].1 = value,
            None if self.numbers.len() < RULES_FLOW_BITS => self.numbers.push((name, value)),
            None => self.full = true,
        }
    }
}

/// Bits of hosts and host pairs, with their expiry times.
#[derive(Debug, Default)]
pub(crate) struct HostBits {
    bits: HashMap<(u64, Host), u64>,
    /// Time of the last purge of expired bits.
    purged: u64,
    /// A limit was reached.
    pub full: bool,
}

/// The owner of a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    One(IpAddr),
    Pair(IpAddr, IpAddr),
}

impl HostBits {
    fn has(&self, name: u64, host: Host, now: u64) -> bool {
        self.bits.get(&(name, host)).is_some_and(|end| *end > now)
    }

    fn set(&mut self, name: u64, host: Host, end: u64, now: u64) {
        if self.bits.len() >= RULES_HOST_BITS && !self.bits.contains_key(&(name, host)) {
            if is_purge_due(&mut self.purged, now) {
                self.bits.retain(|_, end| *end > now);
            }
            if self.bits.len() >= RULES_HOST_BITS {
                self.full = true;
                return;
            }
        }
        self.bits.insert((name, host), end);
    }
}

/// Whether it is time to purge a full table. At most once a second, because a purge visits every entry.
pub(crate) fn is_purge_due(purged: &mut u64, now: u64) -> bool {
    let due = now.abs_diff(*purged) >= 1_000_000_000;
    if due {
        *purged = now;
    }
    due
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Flow,
    Source,
    Target,
    Pair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Unset,
    Toggle,
}

/// A condition on state.
#[derive(Clone, Debug)]
pub(crate) enum StateTest {
    /// One of the bits is set; `negated`: one of them is not set.
    Bits {
        names: Vec<u64>,
        of: Of,
        negated: bool,
    },
    Number {
        name: u64,
        test: NumberTest,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum NumberTest {
    Set,
    NotSet,
    Compare(Sign, NumberValue),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sign {
    Equal,
    Other,
    Less,
    More,
    AtMost,
    AtLeast,
}

/// A constant, or another number of the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NumberValue {
    Value(u32),
    Name(u64),
}

/// A change of state that a matching rule makes.
#[derive(Clone, Debug)]
pub(crate) enum StateChange {
    Bit { name: u64, of: Of, verb: Verb, expire_s: u32 },
    Number { name: u64, operation: char, value: NumberValue },
}

/// Names are hashed so that they stay the same when rules are reloaded.
pub(crate) fn name(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(crate) enum Read1 {
    Test(StateTest),
    Change(StateChange),
    /// `noalert`: the rule gives no alert.
    Quiet,
}

/// Reads `flowbits`, `flowint`, `xbits` or `hostbits`; `None`: another option.
pub(crate) fn read(option: &Opt<'_>) -> Read<Option<Read1>> {
    match option.name.text {
        "flowbits" => flow_bits(option).map(Some),
        "flowint" => flow_int(option).map(Some),
        "xbits" | "hostbits" => host_bits(option).map(Some),
        _ => Ok(None),
    }
}

fn checked_name(word: Word<'_>) -> Read<u64> {
    if word.text.is_empty() || word.text.contains(char::is_whitespace) {
        return word.wrong(format!("\u{201c}{}\u{201d} is no name of a bit", word.text));
    }
    Ok(name(word.text))
}

fn flow_bits(option: &Opt<'_>) -> Read<Read1> {
    let words = option.needed()?.split(',');
    let verb = words[0].text;
    if verb == "noalert" {
        return if words.len() == 1 { Ok(Read1::Quiet) } else { words[1].wrong("noalert takes no name") };
    }
    let Some(names) = words.get(1).filter(|_| words.len() == 2) else {
        return words[0].wrong(format!("flowbits:{verb} needs one name"));
    };
    let several: Vec<Word<'_>> = names.split('|');
    let named: Read<Vec<u64>> = several.iter().map(|word| checked_name(*word)).collect();
    let named = named?;
    let one = |verb| {
        if named.len() > 1 {
            return names.wrong("only isset and isnotset take several names");
        }
        Ok(Read1::Change(StateChange::Bit { name: named[0], of: Of::Flow, verb, expire_s: 0 }))
    };
    match verb {
        "isset" => Ok(Read1::Test(StateTest::Bits { names: named, of: Of::Flow, negated: false })),
        "isnotset" => Ok(Read1::Test(StateTest::Bits { names: named, of: Of::Flow, negated: true })),
        "set" => one(Verb::Set),
        "unset" => one(Verb::Unset),
        "toggle" => one(Verb::Toggle),
        other => words[0].wrong(format!("flowbits does not know \u{201c}{other}\u{201d}")),
    }
}

fn flow_int(option: &Opt<'_>) -> Read<Read1> {
    let value = option.needed()?;
    let words = value.split(',');
    if words.len() < 2 || words.len() > 3 {
        return value.wrong("flowint needs a name, an operation and perhaps a value");
    }
    let name = checked_name(words[0])?;
    let test = |test| Ok(Read1::Test(StateTest::Number { name, test }));
    match (words[1].text, words.get(2)) {
        ("isset", None) => return test(NumberTest::Set),
        ("notset" | "isnotset", None) => return test(NumberTest::NotSet),
        (other, None) => return words[1].wrong(format!("flowint {other} needs a value")),
        _ => {}
    }
    let operand = words[2];
    let operand = if operand.text.starts_with(|letter: char| letter.is_ascii_digit()) {
        NumberValue::Value(unsigned(operand, 32)? as u32)
    } else {
        NumberValue::Name(checked_name(operand)?)
    };
    let compare = |sign| test(NumberTest::Compare(sign, operand));
    match words[1].text {
        "==" => compare(Sign::Equal),
        "!=" => compare(Sign::Other),
        "<" => compare(Sign::Less),
        ">" => compare(Sign::More),
        "<=" => compare(Sign::AtMost),
        ">=" => compare(Sign::AtLeast),
        sign @ ("+" | "-" | "=") => {
            let operation = sign.chars().next().unwrap_or('=');
            Ok(Read1::Change(StateChange::Number { name, operation, value: operand }))
        }
        other => words[1].wrong(format!("flowint does not know \u{201c}{other}\u{201d}")),
    }
}

fn host_bits(option: &Opt<'_>) -> Read<Read1> {
    let kind = option.name.text;
    let words = option.needed()?.split(',');
    if words.len() < 2 {
        return words[0].wrong(format!("{kind} needs a verb, a name and whose bit it is"));
    }
    let names = words[1].split('|');
    let (mut of, mut expire_s) = (if kind == "hostbits" { Some(Of::Source) } else { None }, 300);
    for word in &words[2..] {
        let mut parts = word.text.split_ascii_whitespace();
        match (parts.next().unwrap_or_default(), parts.next()) {
            ("track", Some("ip_src")) | ("src", None) => of = Some(Of::Source),
            ("track", Some("ip_dst")) | ("dst", None) => of = Some(Of::Target),
            ("track", Some("ip_pair")) | ("both", None) => of = Some(Of::Pair),
            ("track", Some("tx")) => return word.wrong("bits of transactions are not supported"),
            ("expire", Some(seconds)) => expire_s = unsigned(Word::new(seconds, word.at), 32)? as u32,
            _ => return word.wrong(format!("{kind} does not know \u{201c}{}\u{201d}", word.text)),
        }
    }
    let Some(of) = of else { return words[0].wrong(format!("{kind} needs track ip_src, ip_dst or ip_pair")) };
    let named: Read<Vec<u64>> = names.iter().map(|word| checked_name(*word)).collect();
    let named = named?;
    let change = |verb| Ok(Read1::Change(StateChange::Bit { name: named[0], of, verb, expire_s }));
    match words[0].text {
        "isset" => Ok(Read1::Test(StateTest::Bits { names: named, of, negated: false })),
        "isnotset" => Ok(Read1::Test(StateTest::Bits { names: named, of, negated: true })),
        "set" => change(Verb::Set),
        "unset" => change(Verb::Unset),
        "toggle" => change(Verb::Toggle),
        other => words[0].wrong(format!("{kind} does not know \u{201c}{other}\u{201d}")),
    }
}

fn host(of: Of, source: IpAddr, target: IpAddr) -> Host {
    match of {
        Of::Source | Of::Flow => Host::One(source),
        Of::Target => Host::One(target),
        Of::Pair => Host::Pair(source.min(target), source.max(target)),
    }
}

/// The state that one packet's rules test and change.
pub(crate) struct Context<'a> {
    pub flow: Option<&'a mut FlowState>,
    pub hosts: &'a mut HostBits,
    pub addresses: Option<(IpAddr, IpAddr)>,
    pub now: u64,
}

impl Context<'_> {
    fn has_bit(&self, name: u64, of: Of) -> bool {
        match (of, self.addresses) {
            (Of::Flow, _) => self.flow.as_ref().is_some_and(|flow| flow.has_bit(name)),
            (of, Some((source, target))) => self.hosts.has(name, host(of, source, target), self.now),
            (_, None) => false,
        }
    }

    pub fn holds(&self, test: &StateTest) -> bool {
        match test {
            StateTest::Bits { names, of, negated } => names.iter().any(|name| self.has_bit(*name, *of) != *negated),
            StateTest::Number { name, test } => {
                let Some(flow) = self.flow.as_ref() else { return false };
                let value = flow.number(*name);
                match test {
                    NumberTest::Set => value.is_some(),
                    NumberTest::NotSet => value.is_none(),
                    NumberTest::Compare(sign, with) => {
                        let with = match with {
                            NumberValue::Value(value) => Some(*value),
                            NumberValue::Name(name) => flow.number(*name),
                        };
                        let (Some(value), Some(with)) = (value, with) else { return false };
                        match sign {
                            Sign::Equal => value == with,
                            Sign::Other => value != with,
                            Sign::Less => value < with,
                            Sign::More => value > with,
                            Sign::AtMost => value <= with,
                            Sign::AtLeast => value >= with,
                        }
                    }
                }
            }
        }
    }

    pub fn change(&mut self, change: &StateChange) {
        match change {
            StateChange::Bit { name, of: Of::Flow, verb, .. } => {
                if let Some(flow) = self.flow.as_mut() {
                    let value = match verb {
                        Verb::Set => true,
                        Verb::Unset => false,
                        Verb::Toggle => !flow.has_bit(*name),
                    };
                    flow.set_bit(*name, value);
                }
            }
            StateChange::Bit { name, of, verb, expire_s } => {
                let Some((source, target)) = self.addresses else { return };
                let host = host(*of, source, target);
                let value = match verb {
                    Verb::Set => true,
                    Verb::Unset => false,
                    Verb::Toggle => !self.hosts.has(*name, host, self.now),
                };
                if value {
                    let end = self.now.saturating_add(u64::from(*expire_s) * 1_000_000_000);
                    self.hosts.set(*name, host, end, self.now);
                } else {
                    self.hosts.bits.remove(&(*name, host));
                }
            }
            StateChange::Number { name, operation, value } => {
                let Some(flow) = self.flow.as_mut() else { return };
                let value = match value {
                    NumberValue::Value(value) => *value,
                    NumberValue::Name(other) => flow.number(*other).unwrap_or(0),
                };
                let old = flow.number(*name).unwrap_or(0);
                let new = match operation {
                    '+' => old.wrapping_add(value),
                    '-' => old.wrapping_sub(value),
                    _ => value,
                };
                flow.set_number(*name, new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_refused_the_bits_it_has() {
        const SECOND: u64 = 1_000_000_000;
        let host = |at: u32| Host::One(IpAddr::V4(std::net::Ipv4Addr::from(at)));
        let mut bits = HostBits::default();
        for at in 0..RULES_HOST_BITS as u32 {
            bits.set(1, host(at), 20 * SECOND, 10 * SECOND);
        }
        bits.set(1, host(0), 90 * SECOND, 11 * SECOND);
        assert!(!bits.full && bits.has(1, host(0), 80 * SECOND), "it goes on longer");
        bits.set(2, host(0), 90 * SECOND, 12 * SECOND);
        assert!(std::mem::take(&mut bits.full) && !bits.has(2, host(0), 12 * SECOND), "no bit has ended");
        bits.set(2, host(0), 90 * SECOND, 30 * SECOND);
        assert!(!bits.full && bits.has(2, host(0), 30 * SECOND) && bits.bits.len() == 2, "all others have ended");
    }
}
