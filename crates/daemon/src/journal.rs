//! Lines for the administrator: the first few of each cause, then one a minute that says how many were left out. So
//! clients cannot fill a log or a pipe, however often they cause a line.

use std::time::{Duration, Instant};

const FIRST: u32 = 5;

/// How often one line is written for all later ones. A cause that was silent for this long starts again.
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Connections cannot be accepted.
    Accepting,
    Refusal,
    Keeping,
    Flows,
}

impl Cause {
    const ALL: [Cause; 4] = [Cause::Accepting, Cause::Refusal, Cause::Keeping, Cause::Flows];
}

#[derive(Debug, Default)]
struct Said {
    written: u32,
    /// The last line, written or not, and its time.
    last: Option<(Instant, String)>,
    left_out: Option<(Instant, u64)>,
}

impl Said {
    /// When the lines that were left out are due.
    fn due(&self) -> Option<Instant> {
        self.left_out.map(|(since, _)| since + PERIOD)
    }
}

/// Writes lines, and leaves out repeated ones.
pub(crate) struct Journal<'a> {
    write: &'a dyn Fn(&str),
    said: [Said; Cause::ALL.len()],
}

impl<'a> Journal<'a> {
    pub(crate) fn new(write: &'a dyn Fn(&str)) -> Journal<'a> {
        Journal { write, said: Cause::ALL.map(|_| Said::default()) }
    }

    pub(crate) fn tell(&mut self, cause: Cause, now: Instant, line: String) {
        self.catch_up(now);
        let said = &mut self.said[cause as usize];
        let is_silent = said.left_out.is_none()
            && said.last.as_ref().is_none_or(|(last, _)| now.saturating_duration_since(*last) >= PERIOD);
        if is_silent {
            said.written = 0;
        }
        if said.written < FIRST {
            said.written += 1;
            (self.write)(&line);
        } else {
            let (_, count) = said.left_out.get_or_insert((now, 0));
            *count += 1;
        }
        said.last = Some((now, line));
    }

    /// Writes how many lines were left out, for each cause for which that is due. Gives when to call it next, if lines
    /// are left out.
    pub(crate) fn catch_up(&mut self, now: Instant) -> Option<Instant> {
        for said in &mut self.said {
            if said.due().is_none_or(|due| due > now) {
                continue;
            }
            if let (Some((_, count)), Some((_, last))) = (said.left_out.take(), &said.last) {
                let more = if count == 1 { "".into() } else { format!("; {count} such lines in the last minute") };
                (self.write)(&format!("{last}{more}"));
            }
        }
        self.said.iter().filter_map(Said::due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn the_first_lines_of_a_cause_are_written_and_then_one_a_minute_for_all() {
        let lines = RefCell::new(Vec::new());
        let write = |line: &str| lines.borrow_mut().push(line.to_string());
        let mut journal = Journal::new(&write);
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let new = || std::mem::take(&mut *lines.borrow_mut());
        // Ten a second, for three minutes.
        for number in 0..1800 {
            journal.tell(Cause::Refusal, start + number * second / 10, format!("line {number}"));
        }
        assert_eq!(
            new(),
            [
                "line 0",
                "line 1",
                "line 2",
                "line 3",
                "line 4",
                "line 604; 600 such lines in the last minute",
                "line 1204; 600 such lines in the last minute"
            ]
        );
        // Another cause has lines of its own. The last line of a silent cause is written in the end.
        journal.tell(Cause::Accepting, start + 180 * second, "other".into());
        assert_eq!(new(), ["other"]);
        let due = journal.catch_up(start + 180 * second).expect("lines were left out");
        assert_eq!(journal.catch_up(due - second / 10), Some(due));
        assert_eq!((new(), journal.catch_up(due)), (Vec::<String>::new(), None));
        assert_eq!(new(), ["line 1799; 595 such lines in the last minute"]);
        // After a minute of silence it starts again.
        journal.tell(Cause::Refusal, due + PERIOD, "again".into());
        assert_eq!(new(), ["again"]);
    }

    #[test]
    fn a_line_that_comes_once_a_minute_is_written() {
        let lines = RefCell::new(0);
        let write = |_: &str| *lines.borrow_mut() += 1;
        let mut journal = Journal::new(&write);
        for minute in 0..20 {
            journal.tell(Cause::Keeping, Instant::now() + minute * PERIOD, "line".into());
        }
        assert_eq!(*lines.borrow(), 20);
    }
}
