//! The files that the daemon may use once it listens (Landlock):
//! - its socket, to remove it;
//! - `/proc` and `/sys`, the source of many of its reports;
//! - `/dev/net/tun`, to make taps.
//!
//! It may change and execute no other file, and read no secret of root's. [`guard::files`] says what else it cannot
//! reach.

use guard::Guard;
use guard::files::{AccessFs, BitFlags, Permitted};
use std::path::{Path, PathBuf};

const NAME: &str = "its socket, /dev/net/tun, /proc and /sys (Landlock)";

const READ: [&str; 2] = ["/proc", "/sys"];

/// The device file that makes taps. It is /dev/net/tun in every namespace.
const TAPS: &str = "/dev/net/tun";

/// Restricts the use of files, in this thread and those it will start. They may only remove files from `folder`, read
/// the kernel's reports, and make taps.
pub(super) fn confine(folder: Option<&Path>) -> Guard {
    let removed = folder.map(|folder| (folder, BitFlags::from(AccessFs::RemoveFile)));
    let read = READ.map(|place| (Path::new(place), AccessFs::ReadFile | AccessFs::ReadDir));
    let taps = (Path::new(TAPS), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev);
    guard::files::confine(NAME, &removed.into_iter().chain(read).chain([taps]).collect::<Vec<_>>())
}

/// Restricts the process that starts interface processes, and these until they confine themselves. They may read the
/// kernel's reports, make taps, and read and execute these files.
pub(crate) fn confine_to_start(programs: &[PathBuf]) -> Guard {
    let read = BitFlags::from(AccessFs::ReadFile);
    let mut permitted: Vec<Permitted<'_>> = READ.map(|place| (Path::new(place), read | AccessFs::ReadDir)).to_vec();
    permitted
        .extend([TAPS, "/dev/null"].map(|file| (Path::new(file), read | AccessFs::WriteFile | AccessFs::IoctlDev)));
    // The loader looks here for libraries.
    permitted.push((Path::new("/etc/ld.so.cache"), read));
    permitted.extend(programs.iter().map(|program| (program.as_path(), read | AccessFs::Execute)));
    guard::files::confine(NAME, &permitted)
}

/// Whether this kernel can confine files. Confines nothing.
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
                // It may be absent or not allowed for this user: then that must not change.
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
