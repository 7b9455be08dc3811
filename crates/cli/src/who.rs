//! Users and processes by the names that people know, for tables.

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) struct Users(BTreeMap<u32, String>);

impl Users {
    /// The names as they are now. Reads a file.
    pub(crate) fn read() -> Users {
        Users(daemon::policy::user_names())
    }

    pub(crate) fn name(&self, user: u32) -> String {
        self.0.get(&user).cloned().unwrap_or_else(|| user.to_string())
    }
}

/// Fields of `/proc/PROCESS/stat` behind the program's name, which may hold any character (proc_pid_stat(5)). The first
/// is the state. Empty if this process cannot see that one.
fn stat(process: i32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(String::from).collect()
}

/// Whether this process is stopped (SIGSTOP, a debugger), so that it reads nothing. No, if it cannot be seen from here.
pub(crate) fn is_stopped(process: i32) -> bool {
    stat(process).first().is_some_and(|state| matches!(state.as_str(), "T" | "t"))
}

pub(crate) fn age(process: i32) -> Option<Duration> {
    /// The index of the start time, counted from the state on, in ticks since boot.
    const START: usize = 19;
    let start: u64 = stat(process).get(START)?.parse().ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let since = up - start as f64 / rustix::param::clock_ticks_per_second() as f64;
    Duration::try_from_secs_f64(since.max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_an_age() {
        let this = std::process::id() as i32;
        assert!(!is_stopped(this));
        let (age, up) = (age(this).unwrap(), age(1).unwrap_or(Duration::MAX));
        assert!(age <= up, "{age:?} of {up:?}");
        assert_eq!((is_stopped(i32::MAX), super::age(i32::MAX)), (false, None));
    }

    #[test]
    fn users_have_names_or_numbers() {
        let users = Users([(0, "root".to_string())].into());
        assert_eq!([users.name(0), users.name(4711)], ["root", "4711"]);
    }
}
