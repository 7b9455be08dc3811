//! The kernel's counters of a process.

/// How often the threads of a process have gone to sleep so far.
///
/// # Panics
/// If there is no such process.
pub fn sleeps(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
    let of = |task: std::fs::DirEntry| {
        // The thread may have ended meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.filter_map(of).sum()
}
