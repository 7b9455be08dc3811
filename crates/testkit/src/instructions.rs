//! Instructions that a test takes, as valgrind counts them, and golden files of them. A processor's own counters are not there
//! on many machines that run tests.
//!
//! The test that counts runs its own program again, with one test of it alone: the one that does the work. `UPDATE=1` writes the
//! golden files anew.

use std::path::Path;
use std::process::Command;

/// Whether instructions can be counted here. Else says why not, as a test does that is skipped.
pub fn can_be_counted() -> bool {
    if cfg!(debug_assertions) {
        eprintln!("skipped: the golden file is of optimised code");
        return false;
    }
    let is_there = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: needs valgrind, to count instructions");
    }
    is_there
}

/// Instructions of this program when it runs the test of this name alone, which finds `value` in the variable.
///
/// # Panics
/// Where that test fails, or valgrind does not say how many there were.
pub fn of_test(test: &str, variable: &str, value: &str) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--test-threads=1"]);
    let output = command.env(variable, value).output().expect("valgrind is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let counted = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    counted.unwrap_or_else(|| panic!("valgrind does not say how many instructions:\n{said}"))
}

/// Compares counts with those of a golden file, line by line, and tells both.
///
/// # Panics
/// Where the names are others, or a count is more than the file's and this part of it. Less is told.
pub fn check(golden: &Path, found: &[(&str, f64)], more: f64) {
    let text: String = found.iter().map(|(name, number)| format!("{name}: {number:.2}\n")).collect();
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(golden, text).unwrap();
    }
    let expected = std::fs::read_to_string(golden).unwrap();
    println!("found:\n{text}expected:\n{expected}");
    for (line, (name, number)) in expected.lines().zip(found) {
        let (known, most) = line.split_once(": ").unwrap();
        assert_eq!(known, *name);
        let most = most.parse::<f64>().unwrap() * (1.0 + more);
        assert!(*number <= most, "{name}: {number:.2} instructions, more than {most:.2}");
    }
    assert_eq!(expected.lines().count(), found.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_part_fails() {
        let folder = tempfile::tempdir().unwrap();
        let golden = folder.path().join("golden");
        std::fs::write(&golden, "one: 100.00\ntwo: 5.00\n").unwrap();
        let fails = |found: &[(&str, f64)]| std::panic::catch_unwind(|| check(&golden, found, 0.02)).is_err();
        assert!(!fails(&[("one", 101.9), ("two", 1.0)]));
        assert!(fails(&[("one", 102.1), ("two", 1.0)]));
        assert!(fails(&[("one", 1.0), ("three", 1.0)]));
        assert!(fails(&[("one", 1.0)]));
    }
}
