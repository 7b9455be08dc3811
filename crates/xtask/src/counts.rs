//! Numbers of passed, failed and skipped tests, added up from the output of test programs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// More reasons than this are combined into one.
const REASONS: usize = 10;

/// The sums, and why tests were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed, and tested something.
    pub passed: u64,
    pub failed: u64,
    /// The names of failed tests.
    pub failures: Vec<String>,
    /// The names of tests that failed beside others, and passed alone.
    alone: Vec<String>,
    /// Tests that are marked as ignored.
    ignored: u64,
    /// Tests that reported that they could not run. Tests that lack rights come first.
    skips: Vec<Skip>,
    /// The test whose output is being read.
    section: Option<String>,
    /// Whether the tests passed whose output is being read. A skip in a failed test does not matter.
    passing: bool,
}

/// A test that reported that it could not run: `skipped (rights): REASON` if it lacks rights, else `skipped: REASON`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Skip {
    test: String,
    rights: bool,
    reason: String,
}

impl Counts {
    /// Reads a line of the output of a test program with `--show-output`.
    pub fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.section = Some(name.into());
        } else if matches!(line, "successes:" | "failures:") {
            self.section = None;
            self.passing = line == "successes:";
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.into());
        } else if let Some([passed, failed, ignored]) = sums(line) {
            self.passed += passed;
            self.failed += failed;
            self.ignored += ignored;
            self.section = None;
        } else if let (true, Some(test), Some((rights, reason))) = (self.passing, &self.section, reason(line)) {
            let skip = Skip { test: test.clone(), rights, reason: reason.into() };
            match self.skips.last_mut().filter(|last| last.test == skip.test) {
                // A test counts once, even if it skipped several things.
                Some(last) if rights && !last.rights => *last = skip,
                Some(_) => {}
                None => self.skips.push(skip),
            }
        }
    }

    /// Prints why tests were skipped, and the sums as the last line of standard output.
    pub fn print(&self) {
        self.reasons().iter().for_each(|reason| println!("{reason}"));
        println!("{self}");
    }

    /// These tests had failed, and passed when nothing ran beside them.
    pub fn passed_alone(&mut self, tests: &[String]) {
        self.failures.retain(|name| !tests.contains(name));
        self.failed = self.failed.saturating_sub(tests.len() as u64);
        self.passed += tests.len() as u64;
        self.alone.extend_from_slice(tests);
    }

    /// Tests that were skipped for want of rights.
    pub fn without_rights(&self) -> Vec<&str> {
        self.skips.iter().filter(|skip| skip.rights).map(|skip| &skip.test[..]).collect()
    }

    /// Tests that passed only alone, and why tests were skipped, the most frequent reason first: a line each, with the number
    /// of tests and the first test.
    pub fn reasons(&self) -> Vec<String> {
        let mut groups: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
        for Skip { test, rights, reason } in &self.skips {
            groups.entry((*rights, reason)).or_default().push(test);
        }
        let mut rows: Vec<(u64, String)> = Vec::new();
        for ((rights, reason), tests) in groups {
            let mark = if rights { "no rights: " } else { "" };
            let more = if tests.len() > 1 { ", ..." } else { "" };
            rows.push((tests.len() as u64, format!("{mark}{reason} ({}{more})", tests[0])));
        }
        if self.ignored > 0 {
            rows.push((self.ignored, "marked as ignored".into()));
        }
        rows.sort_by_key(|(count, _)| Reverse(*count));
        if rows.len() > REASONS {
            let rest = rows.split_off(REASONS - 1);
            rows.push((rest.iter().map(|(count, _)| count).sum(), format!("{} other reasons", rest.len())));
        }
        let skipped = rows.into_iter().map(|(count, text)| format!("{count:5} skipped: {text}"));
        let alone = (!self.alone.is_empty())
            .then(|| format!("{:5} passed only alone: {}", self.alone.len(), self.alone.join(", ")));
        alone.into_iter().chain(skipped).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.skips.len() as u64;
        let passed = self.passed.saturating_sub(skipped);
        write!(f, "{passed} passed, {} failed, {} skipped", self.failed, self.ignored + skipped)
    }
}

/// The reason for which a test is skipped, and whether it lacks rights.
fn reason(line: &str) -> Option<(bool, &str)> {
    let rest = line.strip_prefix("skipped")?;
    let (rights, rest) = rest.strip_prefix(" (rights)").map_or((false, rest), |rest| (true, rest));
    Some((rights, rest.strip_prefix([':', ','])?.trim()))
}

/// The numbers of passed, failed and ignored tests in a line like `test result: ok. 5 passed; 0 failed; 1 ignored; 0
/// measured; ...`.
fn sums(line: &str) -> Option<[u64; 3]> {
    let (_, sums) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut sums = sums.split("; ");
    let mut next = |word: &str| sums.next()?.strip_suffix(word)?.parse().ok();
    Some([next(" passed")?, next(" failed")?, next(" ignored")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Counts {
        let mut counts = Counts::default();
        lines.lines().for_each(|line| counts.read(line));
        counts
    }

    #[test]
    fn results_are_added_up() {
        assert_eq!(read("").to_string(), "0 passed, 0 failed, 0 skipped");
        let counts = read(
            "running 6 tests\n\
             test a::b ... ok\n\
             test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test c::d ... FAILED\n\
             test src/lib.rs - e (line 5) ... FAILED\n\
             test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\
             test result: none\n\
             error: test result: ok. 1 passed; 1 failed; 1 ignored\n",
        );
        assert_eq!(counts.to_string(), "15 passed, 2 failed, 1 skipped");
        assert_eq!(counts.failures, ["c::d", "src/lib.rs - e (line 5)"]);
        assert_eq!(counts.reasons(), ["    1 skipped: marked as ignored"]);
    }

    #[test]
    fn tests_that_could_not_test_are_skipped_and_not_passed() {
        let counts = read(
            "successes:\n\n\
             ---- a::b stdout ----\nloading\nskipped: no captures\nskipped: no captures\n\n\
             ---- c stdout ----\nwas not skipped\nskipped a line\n\n\
             ---- d stdout ----\nskipped, no libpcap: it is not there\nskipped (rights): not root\n\n\
             ---- e stdout ----\nskipped (rights): not root\nskipped: no captures\n\n\
             successes:\n    a::b\nskipped: x\n\n\
             failures:\n\n---- f stdout ----\nskipped: no captures\n\nfailures:\n    f\n\n\
             test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured\n",
        );
        assert_eq!(counts.to_string(), "1 passed, 1 failed, 3 skipped");
        assert_eq!(counts.without_rights(), ["d", "e"]);
        assert_eq!(
            counts.reasons(),
            ["    2 skipped: no rights: not root (d, ...)", "    1 skipped: no captures (a::b)"]
        );
    }

    #[test]
    fn reasons_are_no_more_than_ten_lines() {
        let skip = |at| format!("---- t{at} stdout ----\nskipped: reason {at}\n");
        let of = |count: usize| read(&format!("successes:\n{}", (0..count).map(skip).collect::<String>()));
        assert_eq!(of(10).reasons().len(), 10);
        let reasons = of(13).reasons();
        assert_eq!(reasons.len(), 10);
        assert_eq!(reasons[9], "    4 skipped: 4 other reasons");
    }
}
