//! The file `threshold.config` of a Suricata installation: limits on alerts beside the rules (Suricata's manual, "Global
//! thresholds"). `suppress` silences, `threshold` (or `event_filter`) limits alerts, `rate_filter` changes the action.

use crate::address::{Variables, addresses};
use crate::header::named_action;
use crate::mistake::{Mistake, Read};
use crate::rule::Rule;
use crate::text::{self, Word, unsigned};
use crate::threshold::{Kind, Rate, Suppress, Threshold};

/// One line: the rules it is about, and what it says.
pub(crate) struct Line {
    /// 0: the rules of all groups.
    gid: u32,
    /// 0: all rules of the group.
    sid: u32,
    what: What,
}

enum What {
    Limit(Threshold),
    Rate(Rate),
    /// `None`: whatever the addresses.
    Suppress(Option<Suppress>),
}

/// Reads a file, or returns all its mistakes.
pub(crate) fn read(file: &str, variables: &Variables) -> Result<Vec<Line>, Vec<Mistake>> {
    let (mut lines, mut mistakes) = (Vec::new(), Vec::new());
    for text in text::rules(file) {
        match line(Word::new(&text.text, 0), variables) {
            Ok(line) => lines.push(line),
            Err(wrong) => mistakes.push(text.mistake(wrong)),
        }
    }
    if mistakes.is_empty() { Ok(lines) } else { Err(mistakes) }
}

fn line(text: Word<'_>, variables: &Variables) -> Read<Line> {
    let (name, rest) = text.text.split_once(char::is_whitespace).unwrap_or((text.text, ""));
    let value = Word::new(rest, text.at + text.text.len() - rest.len()).trim();
    let (mut gid, mut sid, mut others) = (None, None, Vec::new());
    for word in value.split(',') {
        match argument(word) {
            ("gen_id", number) => gid = Some(unsigned(number, 32)? as u32),
            ("sig_id", number) => sid = Some(unsigned(number, 32)? as u32),
            // A list of addresses has commas, and ends the line.
            ("ip", _) => {
                others.push(Word::new(&value.text[word.at - value.at..], word.at));
                break;
            }
            _ => others.push(word),
        }
    }
    let (Some(gid), Some(sid)) = (gid, sid) else { return text.wrong("gen_id and sig_id are needed") };
    if gid == 0 && sid != 0 {
        return text.wrong("a rule is named by its gen_id and its sig_id");
    }
    let what = match name {
        "suppress" => What::Suppress(suppress(value, &others, variables)?),
        "threshold" | "event_filter" => What::Limit(Threshold::of_words(name, None, value, &others)?),
        "rate_filter" => What::Rate(rate(value, &others)?),
        _ => return text.wrong("a line begins with suppress, threshold, event_filter or rate_filter"),
    };
    Ok(Line { gid, sid, what })
}

/// Splits a name from its value.
fn argument(word: Word<'_>) -> (&str, Word<'_>) {
    let (name, value) = word.text.split_once(char::is_whitespace).unwrap_or((word.text, ""));
    (name, Word::new(value, word.at + word.text.len() - value.len()).trim())
}

fn suppress(value: Word<'_>, words: &[Word<'_>], variables: &Variables) -> Read<Option<Suppress>> {
    let (mut sides, mut hosts) = (None, None);
    for word in words {
        match argument(*word) {
            ("track", side) => {
                sides = Some(match side.text {
                    "by_src" => (true, false),
                    "by_dst" => (false, true),
                    "by_either" => (true, true),
                    other => return side.wrong(format!("\u{201c}{other}\u{201d} cannot be tracked")),
                });
            }
            ("ip", list) => hosts = Some(addresses(list, variables)?),
            (name, _) => return word.wrong(format!("suppress does not know \u{201c}{name}\u{201d}")),
        }
    }
    match (sides, hosts) {
        (None, None) => Ok(None),
        (Some((source, target)), Some(hosts)) => Ok(Some(Suppress { source, target, hosts })),
        _ => value.wrong("suppress takes track and ip together, or neither"),
    }
}

fn rate(value: Word<'_>, words: &[Word<'_>]) -> Read<Rate> {
    let (mut action, mut hold, mut others) = (None, None, Vec::new());
    for word in words {
        match argument(*word) {
            ("new_action", name) => action = Some(named_action(name)?),
            ("timeout", seconds) => hold = Some(unsigned(seconds, 32)? as u32),
            _ => others.push(*word),
        }
    }
    let (Some(action), Some(hold)) = (action, hold) else { return value.wrong("new_action and timeout are needed") };
    let threshold = Threshold::of_words("rate_filter", Some(Kind::Rate { hold }), value, &others)?;
    Ok(Rate { threshold, action })
}

/// Applies the lines to the rules. A line about a rule that is not there changes nothing. A line about one rule replaces
/// its `threshold`; a line about many leaves rules alone that have limits of their own.
pub(crate) fn apply(lines: &[Line], rules: &mut [Rule]) {
    for line in lines {
        let is_meant =
            |rule: &&mut Rule| (line.gid == 0 || line.gid == rule.gid) && (line.sid == 0 || line.sid == rule.sid);
        for rule in rules.iter_mut().filter(is_meant) {
            match &line.what {
                What::Suppress(None) => rule.quiet = true,
                What::Suppress(Some(hosts)) => rule.suppressed.push(hosts.clone()),
                What::Limit(threshold) if line.sid != 0 => rule.thresholds = vec![*threshold],
                What::Limit(threshold) if rule.thresholds.is_empty() => rule.thresholds.push(*threshold),
                What::Rate(rate) if rule.thresholds.is_empty() => rule.rate = Some(*rate),
                What::Limit(_) | What::Rate(_) => {}
            }
        }
    }
}
