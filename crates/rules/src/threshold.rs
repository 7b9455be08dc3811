//! Limits on alerts: `threshold` and `detection_filter`. The table of counts is bounded: when it is full, expired
//! counts go first, and a rule that finds no room alerts.

use crate::address::{Addresses, key};
use crate::header::Action;
use crate::mistake::Read;
use crate::state::{FlowState, is_purge_due};
use crate::tally::Tally;
use crate::text::{Opt, Word, unsigned};
use base::limits::{RULES_BACKOFF_SILENCE_S, RULES_THRESHOLDS, RULES_UNIQUE_PORTS};
use packet::Flow;
use std::collections::HashMap;
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Alert on the first `count` matches of each period.
    Limit,
    /// Alert on every `count`-th match.
    Threshold,
    /// Alert once per period, on match `count`.
    Both,
    /// Alert on matches `count`, `count * multiplier`, `count * multiplier²` and so on.
    Backoff,
    /// Alert on every match after the first `count` of a period.
    Filter,
    /// `rate_filter`: the rule takes another action behind the first `count` matches of a period, for `hold` seconds.
    Rate { hold: u32 },
}

/// The key by which matches are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Track {
    Source,
    Target,
    Pair,
    Rule,
    Flow,
}

/// The port whose distinct values are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unique {
    Source,
    Target,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold {
    pub kind: Kind,
    pub track: Track,
    pub count: u32,
    pub seconds: u32,
    /// At least 2 for [`Kind::Backoff`].
    pub multiplier: u32,
    /// Count distinct ports instead of matches.
    pub unique: Option<Unique>,
}

impl Threshold {
    /// Reads an option; `None`: another option.
    pub fn read(option: &Opt<'_>) -> Read<Option<Threshold>> {
        let kind = match option.name.text {
            "threshold" => None,
            "detection_filter" => Some(Kind::Filter),
            _ => return Ok(None),
        };
        let value = option.needed()?;
        Threshold::of_words(option.name.text, kind, value, &value.split(',')).map(Some)
    }

    /// Reads the words of `value`. `kind`: the one that `keyword` implies; `None`: a word says it.
    pub fn of_words(keyword: &str, mut kind: Option<Kind>, value: Word<'_>, words: &[Word<'_>]) -> Read<Threshold> {
        let (is_typed, filter) = (kind.is_none(), kind == Some(Kind::Filter));
        let (mut track, mut count, mut seconds, mut multiplier, mut unique) = (None, None, None, None, None);
        for word in words {
            let (name, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + name.len() + 1).trim();
            match name {
                "type" if is_typed => {
                    kind = Some(match rest.text {
                        "limit" => Kind::Limit,
                        "threshold" => Kind::Threshold,
                        "both" => Kind::Both,
                        "backoff" => Kind::Backoff,
                        other => return rest.wrong(format!("threshold has no type {other}")),
                    });
                }
                "track" => {
                    track = Some(match rest.text {
                        "by_src" => Track::Source,
                        "by_dst" => Track::Target,
                        "by_both" => Track::Pair,
                        "by_rule" => Track::Rule,
                        "by_flow" => Track::Flow,
                        other => return rest.wrong(format!("\u{201c}{other}\u{201d} cannot be tracked")),
                    });
                }
                "count" => count = Some(unsigned(rest, 32)? as u32),
                "multiplier" if kind == Some(Kind::Backoff) => {
                    multiplier = Some(unsigned(rest, 32)?.max(2) as u32);
                    seconds = Some(u32::MAX);
                }
                "unique_on" if filter => {
                    unique = Some(match rest.text {
                        "src_port" => Unique::Source,
                        "dst_port" => Unique::Target,
                        other => {
                            return rest
                                .wrong(format!("unique_on takes src_port or dst_port, not \u{201c}{other}\u{201d}"));
                        }
                    });
                }
                "seconds" => seconds = Some(unsigned(rest, 32)? as u32),
                _ => return word.wrong(format!("{keyword} does not know \u{201c}{name}\u{201d}")),
            }
        }
        if kind == Some(Kind::Backoff) && multiplier.is_none() {
            return value.wrong("threshold of type backoff needs a multiplier");
        }
        if unique.is_some() && track == Some(Track::Flow) {
            return value.wrong("a flow has one pair of ports");
        }
        let multiplier = multiplier.unwrap_or(1);
        match (kind, track, count, seconds) {
            (Some(kind), Some(track), Some(count), Some(seconds)) if count > 0 && seconds > 0 => {
                Ok(Threshold { kind, track, count, seconds, multiplier, unique })
            }
            _ => value.wrong(format!("{keyword} needs type, track, count and seconds, none of them 0")),
        }
    }
}

/// The effect of a match on which a limit has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// The match is below the count: neither the rule's action nor its alert applies.
    Nothing,
    /// The rule's action applies, without an alert.
    Action,
    /// The rule's action applies, with an alert. Of [`Kind::Rate`]: its other action applies.
    Alert,
}

impl Effect {
    /// The effect where there is no room to count: an alert, and the rule's own action.
    fn uncounted(kind: Kind) -> Effect {
        if matches!(kind, Kind::Rate { .. }) { Effect::Nothing } else { Effect::Alert }
    }
}

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Rule, tracking mode, and the addresses tracked.
type Who = (u64, Track, Option<IpAddr>, Option<IpAddr>);

#[derive(Clone, Debug, Default)]
struct Entry {
    tally: Tally,
    /// The end of the period; for [`Kind::Backoff`], the end of the silence after the last match.
    end: u64,
    /// Distinct ports seen, if ports are counted.
    ports: Vec<u16>,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    table: HashMap<Who, Entry>,
    /// Ports stored in all entries.
    ports: usize,
    /// Time of the last purge of expired entries.
    purged: u64,
    /// A limit was reached.
    pub full: bool,
}

impl Counts {
    /// Counts a match and returns its effect. `key` identifies the rule across reloads.
    pub fn count(
        &mut self,
        threshold: &Threshold,
        key: u64,
        packet: Option<&Flow>,
        flow: Option<&mut FlowState>,
        now: u64,
    ) -> Effect {
        let period = u64::from(threshold.seconds) * SECOND;
        let (source, target) = (packet.map(|packet| packet.source), packet.map(|packet| packet.target));
        let who = match threshold.track {
            Track::Source => (source, None),
            Track::Target => (target, None),
            // The pair is one for both directions.
            Track::Pair => (source.min(target), source.max(target)),
            Track::Rule => (None, None),
            Track::Flow => {
                let Some(flow) = flow else { return Effect::uncounted(threshold.kind) };
                let at = match flow.counts.iter().position(|entry| u64::from(entry.0) == key & 0xffff_ffff) {
                    Some(at) => at,
                    None if flow.counts.len() < base::limits::RULES_FLOW_BITS => {
                        flow.counts.push((key as u32, Tally { start: now, ..Tally::default() }));
                        flow.counts.len() - 1
                    }
                    None => return Effect::uncounted(threshold.kind),
                };
                return count_one(threshold, &mut flow.counts[at].1, now, period);
            }
        };
        let who = (key, threshold.track, who.0, who.1);
        let needs_entry = self.table.len() >= RULES_THRESHOLDS && !self.table.contains_key(&who);
        let needs_ports = self.ports >= RULES_UNIQUE_PORTS && threshold.unique.is_some();
        if (needs_entry || needs_ports) && is_purge_due(&mut self.purged, now) {
            self.table.retain(|_, entry| entry.end > now);
            self.ports = self.table.values().map(|entry| entry.ports.len()).sum();
        }
        if needs_entry && self.table.len() >= RULES_THRESHOLDS {
            self.full = true;
            return Effect::uncounted(threshold.kind);
        }
        let new = Entry { tally: Tally { start: now, ..Tally::default() }, ..Entry::default() };
        let entry = self.table.entry(who).or_insert(new);
        if let Some((unique, packet)) = threshold.unique.zip(packet) {
            if now.saturating_sub(entry.tally.start) >= period {
                self.ports -= entry.ports.len();
                (entry.tally.start, entry.ports) = (now, Vec::new());
            }
            let port = if unique == Unique::Source { packet.source_port } else { packet.target_port };
            entry.end = entry.tally.start.saturating_add(period);
            let is_known = entry.ports.contains(&port);
            // Ports beyond the threshold need not be told apart.
            if !is_known && entry.ports.len() <= threshold.count as usize {
                if self.ports >= RULES_UNIQUE_PORTS {
                    self.full = true;
                    return Effect::Alert;
                }
                self.ports += 1;
                entry.ports.push(port);
            }
            return if entry.ports.len() > threshold.count as usize { Effect::Alert } else { Effect::Nothing };
        }
        let effect = count_one(threshold, &mut entry.tally, now, period);
        entry.end = match threshold.kind {
            Kind::Backoff => now.saturating_add(RULES_BACKOFF_SILENCE_S * SECOND),
            _ => entry.tally.start.saturating_add(period).max(entry.tally.held),
        };
        effect
    }
}

fn count_one(threshold: &Threshold, tally: &mut Tally, now: u64, period: u64) -> Effect {
    let Tally { count, start, held } = tally;
    if *held > now {
        return Effect::Alert;
    }
    if now.saturating_sub(*start) >= period {
        (*count, *start) = (0, now);
    }
    *count = count.saturating_add(1);
    let if_met = |is_met: bool| if is_met { Effect::Alert } else { Effect::Nothing };
    match threshold.kind {
        Kind::Limit if *count > threshold.count => Effect::Action,
        Kind::Limit => Effect::Alert,
        Kind::Threshold => {
            let is_met = *count >= threshold.count;
            *count = if is_met { 0 } else { *count };
            if_met(is_met)
        }
        Kind::Backoff => {
            let mut next = u64::from(threshold.count);
            while next < u64::from(*count) {
                next = next.saturating_mul(u64::from(threshold.multiplier));
            }
            match next == u64::from(*count) {
                true => Effect::Alert,
                // Suricata's manual ("Thresholding Keywords") exempts no match but the first.
                false if *count == 1 => Effect::Nothing,
                false => Effect::Action,
            }
        }
        Kind::Both if *count > threshold.count => Effect::Action,
        Kind::Both => if_met(*count == threshold.count),
        Kind::Filter => if_met(*count > threshold.count),
        Kind::Rate { hold } => {
            let is_met = *count > threshold.count;
            if is_met {
                *held = now.saturating_add(u64::from(hold) * SECOND);
            }
            if_met(is_met)
        }
    }
}

/// The action that a rule takes while its matches come too often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub threshold: Threshold,
    pub action: Action,
}

/// Hosts of which a rule gives no alerts.
#[derive(Clone, Debug)]
pub(crate) struct Suppress {
    pub source: bool,
    pub target: bool,
    pub hosts: Addresses,
}

impl Suppress {
    pub fn has(&self, flow: &Flow) -> bool {
        self.source && self.hosts.has(key(flow.source)) || self.target && self.hosts.has(key(flow.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let alerts = |value: &str, count: u64| -> Vec<bool> {
            let name = if value.starts_with("type") { "threshold" } else { "detection_filter" };
            let option = Opt { name: Word::new(name, 0), value: Some(Word::new(value, 0)) };
            let threshold = Threshold::read(&option).unwrap().unwrap();
            let mut counts = Counts::default();
            (0..count).map(|at| counts.count(&threshold, 1, None, None, at * SECOND) == Effect::Alert).collect()
        };
        let (yes, no) = (true, false);
        assert_eq!(alerts("type limit, track by_src, count 1, seconds 3", 5), [yes, no, no, yes, no]);
        assert_eq!(alerts("type threshold, track by_src, count 2, seconds 60", 5), [no, yes, no, yes, no]);
        assert_eq!(alerts("type both, track by_src, count 2, seconds 60", 4), [no, yes, no, no]);
        assert_eq!(alerts("track by_rule, count 2, seconds 60", 4), [no, no, yes, yes]);
    }

    #[test]
    fn different_ports_are_counted() {
        let value = "track by_dst, count 1, seconds 60, unique_on dst_port";
        let option = Opt { name: Word::new("detection_filter", 0), value: Some(Word::new(value, 0)) };
        let threshold = Threshold::read(&option).unwrap().unwrap();
        let mut counts = Counts::default();
        let mut alerts = |port: u16, second: u64| {
            let host = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
            let packet = Flow { source: host, target: host, source_port: port, target_port: port, protocol: 6 };
            counts.count(&threshold, 1, Some(&packet), None, second * SECOND) == Effect::Alert
        };
        let found = [(80, 1), (80, 2), (81, 3), (80, 4), (80, 70)].map(|(port, second)| alerts(port, second));
        assert_eq!(found, [false, false, true, true, false]);
        for wrong in [
            "track by_dst, count 1, seconds 60, unique_on ttl",
            "track by_flow, count 1, seconds 1, unique_on src_port",
        ] {
            let option = Opt { name: Word::new("detection_filter", 0), value: Some(Word::new(wrong, 0)) };
            assert!(Threshold::read(&option).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_full_table_forgot_what_it_counted() {
        let threshold =
            |kind, seconds| Threshold { kind, track: Track::Source, count: 2, seconds, multiplier: 1, unique: None };
        let (long, short) = (threshold(Kind::Filter, 60), threshold(Kind::Limit, 1));
        let mut counts = Counts::default();
        let mut alerts = |threshold: &Threshold, key: u64, host: u32, now: u64| {
            let host = IpAddr::V4(std::net::Ipv4Addr::from(host));
            let packet = Flow { source: host, target: host, source_port: 0, target_port: 0, protocol: 6 };
            let alerts = counts.count(threshold, key, Some(&packet), None, now) == Effect::Alert;
            (alerts, counts.table.len(), std::mem::take(&mut counts.full))
        };
        for host in 0..RULES_THRESHOLDS as u32 {
            alerts(&long, 1, host, 10 * SECOND);
        }
        let full = RULES_THRESHOLDS;
        assert_eq!(alerts(&long, 1, 0, 11 * SECOND), (false, full, false), "its second, and no more than two");
        assert_eq!(alerts(&short, 2, 0, 12 * SECOND), (true, full, true), "the longer periods go on");
        assert_eq!(alerts(&long, 1, 0, 13 * SECOND), (true, full, false), "its third");
        assert_eq!(alerts(&short, 2, 0, 70 * SECOND), (true, 1, false), "all periods have ended");
    }

    fn from_host(host: u32, target_port: u16) -> Flow {
        let host = IpAddr::V4(std::net::Ipv4Addr::from(host));
        Flow { source: host, target: host, source_port: 0, target_port, protocol: 6 }
    }

    #[test]
    fn full_ports_alerted_for_good() {
        let (kind, track, unique) = (Kind::Filter, Track::Source, Some(Unique::Target));
        let threshold = Threshold { kind, track, count: u32::from(u16::MAX), seconds: 60, multiplier: 1, unique };
        let mut counts = Counts::default();
        let mut alerts = |host: u32, port: u16, now: u64| {
            let alerts = counts.count(&threshold, 1, Some(&from_host(host, port)), None, now) == Effect::Alert;
            (alerts, std::mem::take(&mut counts.full))
        };
        // A larger number of ports per host makes the search of its list slow.
        let ports = 1 << 6;
        for at in 0..RULES_UNIQUE_PORTS as u32 {
            assert_eq!(alerts(at / ports, (at % ports) as u16, 10 * SECOND), (false, false));
        }
        assert_eq!(alerts(1 << 20, 1, 12 * SECOND), (true, true), "no period has ended");
        assert_eq!(alerts(1 << 20, 2, 71 * SECOND), (false, false), "all others have ended");
        assert_eq!(counts.ports, 1);
    }

    #[test]
    fn backoff_filled_the_table_for_good() {
        let (kind, track, seconds) = (Kind::Backoff, Track::Source, u32::MAX);
        let threshold = Threshold { kind, track, count: 2, seconds, multiplier: 2, unique: None };
        let mut counts = Counts::default();
        let mut alerts = |host: u32, now: u64| {
            let alerts = counts.count(&threshold, 1, Some(&from_host(host, 0)), None, now * SECOND) == Effect::Alert;
            (alerts, std::mem::take(&mut counts.full))
        };
        for host in 0..RULES_THRESHOLDS as u32 {
            alerts(host, 10);
        }
        assert_eq!(alerts(0, 3000), (true, false), "the second match of this host");
        assert_eq!(alerts(1 << 20, 3010), (true, true), "no host has been silent for so long");
        assert_eq!(alerts(1 << 20, 3700), (false, false), "all hosts but one have been silent");
        assert_eq!(counts.table.len(), 2);
    }
}
