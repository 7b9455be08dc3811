//! Warns of filters that lost much: more than a tenth of their blocks dropped, or rejected because they could not be
//! read. Blocks that a selector does not select are no loss. A block that lost its bytes is always said: it is a mistake
//! of this program or of a peer. Also names the inputs that a source could not read.

use filter::counter::{LeftOut, Tally};
use filter::{Type, Types};
use packet::link::LinkType;
use packet::malformed::Malformed;
use std::collections::{BTreeMap, BTreeSet};
use streamline::Report;

/// A filter may lose one block in this number without a warning.
const ONE_IN: u64 = 10;

/// At most this number of reasons is given for a filter.
const REASONS: usize = 3;

/// One line for each filter that lost much, for people. The reports are those of a request and of the requests that it
/// replaced. For a filter that ran through several of them, the last report counts.
pub(crate) fn lines<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<String> {
    let mut losses: BTreeMap<&str, String> = BTreeMap::new();
    let mut emptied = None;
    for report in reports {
        emptied = self::emptied(report).or(emptied);
        for node in &report.nodes {
            match loss(node, &report.link_types) {
                Some(line) => losses.insert(&node.label, line),
                None => losses.remove(node.label.as_str()),
            };
        }
    }
    losses.into_values().chain(emptied).collect()
}

/// One line for the blocks whose bytes were gone before they were read.
fn emptied(report: &Report) -> Option<String> {
    let number = report.traffic.faults + report.traffic.hold_refusals;
    let what = if number == 1 { "block was read as empty: its" } else { "blocks were read as empty: their" };
    (number > 0).then(|| format!("{} {what} bytes were gone", grouped(number)))
}

/// The inputs that sources could not read, or not to their end, one line for each. Without `-q` a warning has named each
/// when it came.
pub(crate) fn left_out<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for node in reports.flat_map(|report| &report.nodes) {
        let LeftOut { lines: named, count } = &node.counters.left_out;
        for line in named {
            if !lines.contains(line) {
                lines.push(line.clone());
            }
        }
        let more = count - named.len() as u64;
        if more > 0 {
            let label = crate::report::shortened(&node.label);
            lines.push(format!("`{label}` could not read {} more files", grouped(more)));
        }
    }
    lines
}

fn loss(node: &engine::NodeReport, link_types: &BTreeSet<u16>) -> Option<String> {
    let counters = &node.counters;
    let (dropped, unread) = (counters.drops.total(), counters.unread.total());
    let lost = dropped + unread;
    // The source of a file counts only the blocks that it gave.
    let came = counters.blocks_in.max(counters.blocks_out() + lost * u64::from(node.source));
    if lost * ONE_IN <= came {
        return None;
    }
    let how = match (dropped, unread) {
        (_, 0) => "dropped",
        (0, _) => "rejected",
        _ => "dropped or rejected",
    };
    let what = if node.source { "frames" } else { noun(node.input) };
    let were = if lost == 1 { "was" } else { "were" };
    let (lost, came) = (grouped(lost), grouped(came));
    let (label, why) = (crate::report::shortened(&node.label), reasons(&counters.drops, &counters.unread, link_types));
    Some(format!("{lost} of {came} {what} {were} {how} by `{label}`: {why}"))
}

fn noun(types: Types) -> &'static str {
    match types.iter().next().filter(|one| types == Types::of(&[*one])) {
        Some(Type::Frame) => "frames",
        Some(Type::Packet) => "packets",
        Some(Type::Message) => "blocks of messages",
        Some(Type::Record) => "records",
        Some(Type::Bytes) | None => "blocks",
    }
}

/// The most frequent reasons. With several reasons, each has its number.
fn reasons(drops: &Tally, unread: &Tally, link_types: &BTreeSet<u16>) -> String {
    let mut reasons: Vec<(&str, u64)> = drops.iter().chain(unread.iter()).collect();
    reasons.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    if let [(reason, _)] = reasons[..] {
        return explained(reason, link_types);
    }
    let shown = reasons.iter().take(REASONS);
    let mut shown: Vec<String> =
        shown.map(|(reason, number)| format!("{} ({})", explained(reason, link_types), grouped(*number))).collect();
    if reasons.len() > REASONS {
        shown.push("and more".into());
    }
    shown.join(", ")
}

/// A reason as a sentence. For unsupported input it names the link types.
fn explained(reason: &str, link_types: &BTreeSet<u16>) -> String {
    let is = |one: Malformed| reason == one.reason();
    if is(Malformed::UnsupportedLink) {
        let unread = |number: &&u16| !packet::encapsulation::is_read(LinkType(**number));
        let named = |number: &u16| match LinkType(*number).name() {
            Some(name) => format!("{number} ({name})"),
            None => number.to_string(),
        };
        let names: Vec<String> = link_types.iter().filter(unread).map(named).collect();
        return match &names[..] {
            [] => reason.to_string(),
            [name] => format!("link type {name} is not read"),
            names => format!("link types {} are not read", names.join(", ")),
        };
    }
    if reason == "fragment" || is(Malformed::LaterFragment) {
        return "fragments are not put together".into();
    }
    match reason.strip_suffix(" tunnel") {
        Some("ip in ip") => "IP-in-IP tunnels are not opened".into(),
        Some("geneve") => "Geneve tunnels are not opened".into(),
        Some(name) => format!("{} tunnels are not opened", name.to_uppercase()),
        None => reason.to_string(),
    }
}

/// A number with its thousands separated.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::NodeReport;
    use filter::Counters;

    fn node(label: &str, came: u64, drops: &[(&'static str, u64)], unread: &[(&'static str, u64)]) -> NodeReport {
        let mut counters = Counters { blocks_in: came, ..Counters::default() };
        drops.iter().for_each(|(reason, number)| counters.drops.add(reason, *number));
        unread.iter().for_each(|(reason, number)| counters.unread.add(reason, *number));
        counters.blocks_rejected = counters.unread.total();
        NodeReport {
            label: label.into(),
            space: "app".into(),
            operand: false,
            source: false,
            input: Types::of(&[Type::Frame]),
            writes_to: None,
            counters,
            edges: Vec::new(),
        }
    }

    fn report(nodes: Vec<NodeReport>, link_types: &[u16]) -> Report {
        Report { nodes, link_types: link_types.iter().copied().collect(), ..Report::default() }
    }

    fn check(node: NodeReport, link_types: &[u16], expected: Option<&str>) {
        let report = report(vec![node], link_types);
        assert_eq!(lines([&report].into_iter()), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn more_than_a_tenth_is_said_by_name_and_number() {
        let link = Malformed::UnsupportedLink.reason();
        check(
            node("tcp", 10_000, &[(link, 9_812)], &[]),
            &[1, 139],
            Some("9,812 of 10,000 frames were dropped by `tcp`: link type 139 (MTP2_WITH_PHDR) is not read"),
        );
        check(
            node("port 80", 207, &[], &[(link, 207)]),
            &[1, 139, 147],
            Some("207 of 207 frames were rejected by `port 80`: link types 139 (MTP2_WITH_PHDR), 147 are not read"),
        );
        check(
            node("tcp", 9, &[("fragment", 1)], &[("gre tunnel", 5)]),
            &[1],
            Some(
                "6 of 9 frames were dropped or rejected by `tcp`: GRE tunnels are not opened (5), fragments are not \
                 put together (1)",
            ),
        );
        check(node("tcp", 10, &[("fragment", 1)], &[]), &[1], None);
        check(node("tcp", 0, &[], &[]), &[], None);
        let one = node("tcp", 9, &[("fragment", 1)], &[]);
        check(one, &[1], Some("1 of 9 frames was dropped by `tcp`: fragments are not put together"));
    }

    #[test]
    fn of_a_source_what_it_gave_is_what_came_but_for_what_was_lost() {
        let mut source = node("ethernet eth0", 0, &[("overwritten before they were read", 50)], &[]);
        (source.source, source.counters.blocks_made, source.counters.blocks_in) = (true, 50, 0);
        let expected = "50 of 100 frames were dropped by `ethernet eth0`: overwritten before they were read";
        check(source, &[1], Some(expected));
    }

    #[test]
    fn of_a_filter_that_went_on_the_last_report_counts() {
        let early =
            report(vec![node("tcp", 10, &[("fragment", 9)], &[]), node("udp", 1, &[("fragment", 1)], &[])], &[1]);
        let late = report(vec![node("tcp", 1000, &[("fragment", 9)], &[])], &[1]);
        let lines = lines([&early, &late].into_iter());
        assert!(matches!(&lines[..], [line] if line.contains("`udp`")), "{lines:?}");
    }

    #[test]
    fn blocks_without_their_bytes_are_said_however_few() {
        let mut report = report(vec![node("tcp", 1000, &[], &[])], &[1]);
        report.traffic.faults = 1;
        assert_eq!(lines([&report].into_iter()), ["1 block was read as empty: its bytes were gone"]);
        report.traffic.hold_refusals = 2;
        assert_eq!(lines([&report].into_iter()), ["3 blocks were read as empty: their bytes were gone"]);
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
