//! Parses scripts.

use super::{Event, Kind, Line, Named, STATES, Script, Segment, Time};
use packet::tcp::Flags;

const FLAGS: [(char, Flags); 6] =
    [('S', Flags::SYN), ('F', Flags::FIN), ('R', Flags::RST), ('P', Flags::PSH), ('U', Flags::URG), ('.', Flags::ACK)];

const KINDS: [(&str, Kind); 2] = [("block", Kind::Block), ("kernel", Kind::Kernel)];

impl Script {
    /// Parses a script. An error names the line.
    pub fn parse(name: &str, text: &str) -> Result<Script, String> {
        let mut script = Script { name: name.into(), only: None, lines: Vec::new() };
        if !text.starts_with("# RFC ") {
            return Err(format!("{name}:1: the first line does not name an RFC section"));
        }
        for (at, line) in text.lines().enumerate() {
            let wrong = |what: String| format!("{name}:{}: {what}: {line}", at + 1);
            let (said, _) = line.split_once('#').unwrap_or((line, ""));
            let said = said.trim();
            if let Some(only) = said.strip_prefix("only ") {
                let reason = kind_before(only).filter(|(_, reason)| !reason.is_empty());
                let (kind, reason) = reason.ok_or_else(|| wrong("a host and a reason are missing".into()))?;
                script.only = Some((kind, reason.into()));
            } else if !said.is_empty() {
                let (only, rest) = kind_before(said).map_or((None, said), |(kind, rest)| (Some(kind), rest));
                let (time, event) = read_line(rest).map_err(wrong)?;
                script.lines.push(Line { number: at + 1, text: said.into(), only, time, event });
            }
        }
        if script.lines.is_empty() {
            return Err(format!("{name}: nothing happens"));
        }
        Ok(script)
    }
}

/// Splits `block: rest` or `kernel: rest`.
fn kind_before(text: &str) -> Option<(Kind, &str)> {
    let (name, rest) = text.split_once(':')?;
    let kind = KINDS.iter().find(|(known, _)| *known == name)?.1;
    Some((kind, rest.trim()))
}

fn read_line(text: &str) -> Result<(Time, Event), String> {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (time, rest) = match first.strip_prefix('+') {
        Some(time) => (read_time(time)?, rest),
        None if first == "*" => (Time::Any, rest),
        None => (Time::Between(0, 0), text),
    };
    let event = read_event(rest.trim())?;
    let is_point = matches!(time, Time::Between(from, to) if from == to);
    if !is_point && !matches!(event, Event::Leaves(_) | Event::MayLeave(_)) {
        return Err("only what the host sends may leave its time open".into());
    }
    Ok((time, event))
}

fn read_time(text: &str) -> Result<Time, String> {
    let (from, to) = text.split_once('~').unwrap_or((text, text));
    let nanoseconds = |text: &str| {
        let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..1e6).contains(seconds));
        seconds.map(|seconds| (seconds * 1e9).round() as u64).ok_or(format!("`{text}` is no time in seconds"))
    };
    let (from, to) = (nanoseconds(from)?, nanoseconds(to)?);
    if to < from { Err(format!("`{text}` ends before it begins")) } else { Ok(Time::Between(from, to)) }
}

fn read_event(text: &str) -> Result<Event, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let count = || rest.parse::<usize>().map_err(|_| format!("`{rest}` is no number of bytes"));
    let event = match verb {
        "<" => {
            let segment = read_segment(rest)?;
            let is_whole = segment.data.is_some() && segment.window.is_some() && !segment.is_open;
            let is_acknowledged = segment.acknowledged.is_some() == (segment.flags & Flags::ACK.0 != 0);
            if !is_whole || !is_acknowledged || segment.options.iter().any(Named::is_open) {
                return Err("what the peer sends leaves nothing open".into());
            }
            return Ok(Event::Arrives(segment));
        }
        ">" => return Ok(Event::Leaves(read_segment(rest)?)),
        "?>" => return Ok(Event::MayLeave(read_segment(rest)?)),
        "write" => return Ok(Event::Write(count()?)),
        "read" => return Ok(Event::Read(count()?)),
        "expect" => {
            let state = STATES.iter().find(|(name, _)| *name == rest);
            return Ok(Event::Expect(state.ok_or(format!("`{rest}` is no state"))?.1));
        }
        "connect" => Event::Connect,
        "listen" => Event::Listen,
        "close" => Event::Close,
        "abort" => Event::Abort,
        "eof" => Event::EndOfStream,
        _ => return Err(format!("`{verb}` is no event")),
    };
    if rest.is_empty() { Ok(event) } else { Err(format!("`{rest}` is too much")) }
}

/// A number, or `None` for `*`.
fn read_open<T: std::str::FromStr>(text: &str) -> Result<Option<T>, String> {
    match text {
        "*" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| format!("`{text}` is no number that fits")),
    }
}

fn read_range(text: &str) -> Result<(u32, u32), String> {
    let range = text.split_once(':').and_then(|(from, to)| from.parse().ok().zip(to.parse().ok()));
    range.filter(|(from, to)| from <= to).ok_or(format!("`{text}` is no range"))
}

fn read_segment(text: &str) -> Result<Segment, String> {
    let (text, options) = match text.split_once('<') {
        Some((before, rest)) => (before, Some(rest.strip_suffix('>').ok_or("the options do not end")?)),
        None => (text, None),
    };
    let mut words = text.split_whitespace();
    let mut flags = 0;
    for letter in words.next().ok_or("there are no flags")?.chars() {
        let flag = FLAGS.iter().find(|(known, _)| *known == letter);
        flags |= flag.ok_or(format!("`{letter}` is no flag"))?.1.0;
    }
    let data = match words.next().ok_or("there are no sequence numbers")? {
        "*" => None,
        range => Some(read_range(range).map(|(from, to)| (from, to - from))?),
    };
    let mut segment =
        Segment { flags, data, acknowledged: None, window: None, urgent: 0, options: Vec::new(), is_open: false };
    let mut has_window = false;
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("`{word}` has no value"))?;
        match word {
            "ack" => segment.acknowledged = read_open(value)?,
            "win" => (segment.window, has_window) = (read_open(value)?, true),
            "urg" => segment.urgent = read_open(value)?.ok_or("`urg` leaves nothing open")?,
            _ => return Err(format!("`{word}` is no part of a segment")),
        }
    }
    if !has_window {
        return Err("there is no `win`".into());
    }
    for option in options.into_iter().flat_map(|options| options.split(',')) {
        match option.trim() {
            "*" => segment.is_open = true,
            option => segment.options.push(read_option(option)?),
        }
    }
    Ok(segment)
}

fn read_option(text: &str) -> Result<Named, String> {
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    match name {
        "mss" => Ok(Named::MaximumSegmentSize(read_open(value)?)),
        "wscale" => Ok(Named::WindowScale(read_open(value)?)),
        "sackOK" if value.is_empty() => Ok(Named::SackPermitted),
        "sack" => Ok(Named::Sack(value.split_whitespace().map(read_range).collect::<Result<_, _>>()?)),
        _ => Err(format!("`{text}` is no option")),
    }
}

impl Named {
    fn is_open(&self) -> bool {
        matches!(self, Named::MaximumSegmentSize(None) | Named::WindowScale(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# RFC 9293, section 3\n";

    #[test]
    fn lines_are_read() {
        let check = |line: &str, time: Time, event: Event| {
            let script = Script::parse("a", &format!("{HEAD}{line} # a comment")).unwrap();
            assert_eq!((script.lines[0].time, &script.lines[0].event), (time, &event), "{line}");
        };
        let now = Time::Between(0, 0);
        check("connect", now, Event::Connect);
        check("+1.5 write 9", Time::Between(1_500_000_000, 1_500_000_000), Event::Write(9));
        check("+0 expect closed reset", now, Event::Expect(super::super::State::Closed(super::super::Why::Reset)));
        let segment = Segment {
            flags: 0x12,
            data: Some((0, 0)),
            acknowledged: Some(1),
            window: None,
            urgent: 0,
            options: vec![Named::MaximumSegmentSize(Some(1_460)), Named::SackPermitted],
            is_open: true,
        };
        let text = "S. 0:0 ack 1 win * <mss 1460,sackOK,*>";
        check(&format!("* > {text}"), Time::Any, Event::Leaves(segment.clone()));
        check(&format!("+0~0.001 ?> {text}"), Time::Between(0, 1_000_000), Event::MayLeave(segment));
        let only = Script::parse("a", &format!("{HEAD}only block: it says so\nkernel: close")).unwrap();
        assert_eq!((only.only, only.lines[0].only), (Some((Kind::Block, "it says so".into())), Some(Kind::Kernel)));
    }

    #[test]
    fn wrong_lines_are_named() {
        let check = |line: &str, expected: &str| {
            let error = Script::parse("a", &format!("{HEAD}{line}")).unwrap_err();
            assert!(error.starts_with("a:2: ") && error.contains(expected), "{line}: {error}");
        };
        check("dance", "`dance` is no event");
        check("+x close", "`x` is no time");
        check("+2~1 > . 1:1 ack 1 win *", "ends before it begins");
        check("+0~1 close", "only what the host sends");
        check("close now", "`now` is too much");
        check("write many", "no number of bytes");
        check("expect bliss", "no state");
        check("> X 1:1 win *", "`X` is no flag");
        check("> . 2:1 win *", "no range");
        check("> . 1:1 ack 1", "there is no `win`");
        check("> . 1:1 ack 1 win 70000", "no number that fits");
        check("> . 1:1 ack 1 win * <mss>", "no number that fits");
        check("> . 1:1 ack 1 win * <mss 1", "do not end");
        check("< . 1:1 win 5", "leaves nothing open");
        check("< . 1:1 ack 1 win *", "leaves nothing open");
        check("< S 0:0 win 1 <mss *>", "leaves nothing open");
        check("only block:", "a host and a reason");
        assert!(Script::parse("a", "connect").unwrap_err().contains("RFC"));
        assert!(Script::parse("a", HEAD).unwrap_err().contains("nothing happens"));
    }
}
