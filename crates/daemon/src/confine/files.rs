//! The files there are for the daemon once it listens (Landlock): its socket, which it may remove, what `/proc` and `/sys`
//! say, for that is where much of what it tells is known, and `/dev/net/tun`, by which it makes taps. None else to change, none
//! to execute, no secrets of root's to read. What else it cannot reach is in [`guard::files`].

use guard::Guard;
use guard::files::{AccessFs, BitFlags, Permitted};
use std::path::{Path, PathBuf};

/// What people are told.
const NAME: &str = "its socket, /dev/net/tun, /proc and /sys (Landlock)";

/// What may be read.
const READ: [&str; 2] = ["/proc", "/sys"];

/// Where devices are made that are files to their maker. It stays /dev/net/tun in every namespace.
const TAPS: &str = "/dev/net/tun";

/// Permits no use of files from now on, to this thread and those it will start, but to remove some of this folder, to read what
/// the kernel says, and to make taps.
pub(super) fn confine(folder: Option<&Path>) -> Guard {
    let removed = folder.map(|folder| (folder, BitFlags::from(AccessFs::RemoveFile)));
    let read = READ.map(|place| (Path::new(place), AccessFs::ReadFile | AccessFs::ReadDir));
    let taps = (Path::new(TAPS), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev);
    guard::files::confine(NAME, &removed.into_iter().chain(read).chain([taps]).collect::<Vec<_>>())
}

/// The same for the process that starts interface processes, and for these until they are confined themselves: beside what the kernel
/// says and taps, they read and execute these files.
pub(crate) fn confine_to_start(programs: &[PathBuf]) -> Guard {
    let read = BitFlags::from(AccessFs::ReadFile);
    let mut permitted: Vec<Permitted<'_>> = READ.map(|place| (Path::new(place), read | AccessFs::ReadDir)).to_vec();
    permitted
        .extend([TAPS, "/dev/null"].map(|file| (Path::new(file), read | AccessFs::WriteFile | AccessFs::IoctlDev)));
    // Where the loader finds libraries.
    permitted.push((Path::new("/etc/ld.so.cache"), read));
    permitted.extend(programs.iter().map(|program| (program.as_path(), read | AccessFs::Execute)));
    guard::files::confine(NAME, &permitted)
}

/// Does this kernel confine files? Nothing is confined by asking.
pub(super) fn supported() -> Guard {
    guard::files::supported(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn nothing_is_changed_read_or_executed_but_a_socket_removed() {
        let folders = [0, 1].map(|_| tempfile::tempdir().expect("there is room"));
        let [own, other] = folders.each_ref().map(|folder| folder.path().join("file"));
        for file in [&own, &other] {
            std::fs::write(file, "x").expect("there is room");
        }
        let folder = folders[0].path().to_path_buf();
        let tried = std::thread::spawn(move || {
            let before = open_taps();
            rustix::thread::set_no_new_privs(true).ok()?;
            confine(Some(&folder)).held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
            let kind = |error: std::io::Error| error.kind();
            Some([
                std::fs::write(&own, "y").map_err(kind),
                std::fs::write(&other, "y").map_err(kind),
                std::fs::remove_file(&other).map_err(kind),
                std::process::Command::new("/bin/true").status().map(drop).map_err(kind),
                std::fs::read(&other).map(drop).map_err(kind),
                std::fs::read("/proc/self/root/etc/passwd").map(drop).map_err(kind),
                std::fs::read("/proc/thread-self/status").map(drop).map_err(kind),
                std::fs::read("/sys/devices/system/cpu/possible").map(drop).map_err(kind),
                std::fs::File::open("/proc/thread-self/ns/net").map(drop).map_err(kind),
                // It may be absent, or not for this user: that is as before.
                if open_taps() == before { Ok(()) } else { Err(ErrorKind::Other) },
                std::fs::remove_file(&own).map_err(kind),
            ])
        });
        let Some(tried) = tried.join().expect("no panic") else { return };
        let denied = Err(ErrorKind::PermissionDenied);
        assert_eq!(tried[..6], [denied; 6]);
        assert_eq!(tried[6..], [Ok(()); 5]);
    }

    fn open_taps() -> Result<(), ErrorKind> {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(TAPS);
        opened.map(drop).map_err(|error| error.kind())
    }
}
