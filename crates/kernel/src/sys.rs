//! System calls for programs and maps, and properties of the machine that matter to them.

pub use bpf::{
    Hook, Link, LoadError, MMAPABLE, MapKind, TestRun, create_map, freeze, live_run, load, load_socket_filter,
    load_xdp, test_run, update,
};

/// Waits until all programs that are running now have ended. Afterwards no packet is in a program that was replaced
/// before the call.
pub fn wait_for_runs() {
    // The global command of membarrier(2) waits for a grace period of RCU, under which programs run. If it is missing,
    // sleep for the usual length of one.
    // SAFETY: it takes no addresses.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
    if done != 0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The most processors that this machine may have: the number of per-processor pages.
pub fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    let known = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    last.map_or(known, |last| last.saturating_add(1)).clamp(1, 4096)
}

/// Whether this kernel can switch threads in the middle of softirqs (since Linux 6.18 also between those of one processor). An
/// ordinary kernel finishes a packet's programs before it begins with the next packet.
pub(crate) fn is_realtime() -> bool {
    // If the file cannot be read, assume an ordinary kernel.
    has_realtime(&std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default())
}

fn has_realtime(version: &str) -> bool {
    version.split_whitespace().any(|word| word == "PREEMPT_RT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_kernels_are_known_by_their_versions() {
        for (version, expected) in [
            ("#1 SMP PREEMPT_RT Debian 6.12.48-1 (2025-09-20)\n", true),
            ("#1 SMP PREEMPT_DYNAMIC @0\n", false),
            ("#42~22.04.1-Ubuntu SMP", false),
            ("", false),
        ] {
            assert_eq!(has_realtime(version), expected, "{version}");
        }
    }
}
