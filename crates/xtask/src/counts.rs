//! How many tests passed, failed and were skipped, added up from what test programs print.

use std::fmt;

/// The sums, and what tests said that could not test.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were not run.
    pub skipped: u64,
    /// The names of those that failed.
    pub failures: Vec<String>,
    /// Tests that passed because what they need is absent: their names, and what they said.
    pub in_vain: Vec<(String, String)>,
    /// The test whose output is being read.
    section: Option<String>,
}

impl Counts {
    /// Reads a line of what `cargo test -- --show-output` prints.
    pub fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.section = Some(name.into());
        } else if matches!(line, "successes:" | "failures:") {
            self.section = None;
        } else if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.into());
        } else if let Some([passed, failed, ignored]) = sums(line) {
            self.passed += passed;
            self.failed += failed;
            self.skipped += ignored;
            self.section = None;
        } else if line.starts_with("skipped")
            && let Some(name) = self.section.take()
        {
            self.in_vain.push((name, line.into()));
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Tests passed, failed and ignored in a line as `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; ...`.
fn sums(line: &str) -> Option<[u64; 3]> {
    let (_, sums) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut sums = sums.split("; ");
    let mut next = |word: &str| sums.next()?.strip_suffix(word)?.parse().ok();
    Some([next(" passed")?, next(" failed")?, next(" ignored")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expected: &str, failures: &[&str], in_vain: &[(&str, &str)]) {
        let mut counts = Counts::default();
        lines.lines().for_each(|line| counts.read(line));
        assert_eq!(counts.to_string(), expected);
        assert_eq!(counts.failures, failures);
        let in_vain: Vec<_> = in_vain.iter().map(|(name, said)| (name.to_string(), said.to_string())).collect();
        assert_eq!(counts.in_vain, in_vain);
    }

    #[test]
    fn results_are_added_up() {
        check("", "0 passed, 0 failed, 0 skipped", &[], &[]);
        check(
            "running 6 tests\n\
             test a::b ... ok\n\
             test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test c::d ... FAILED\n\
             test src/lib.rs - e (line 5) ... FAILED\n\
             test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n\
             test result: none\n\
             error: test result: ok. 1 passed; 1 failed; 1 ignored\n",
            "15 passed, 2 failed, 1 skipped",
            &["c::d", "src/lib.rs - e (line 5)"],
            &[],
        );
    }

    #[test]
    fn tests_that_could_not_test_are_named_once() {
        check(
            "successes:\n\n\
             ---- a::b stdout ----\nloading\nskipped: no captures\nskipped: no captures\n\n\
             ---- c stdout ----\nwas not skipped\n\n\
             successes:\n    a::b\nskipped\n",
            "0 passed, 0 failed, 0 skipped",
            &[],
            &[("a::b", "skipped: no captures")],
        );
    }
}
