//! Confines a keeper once its ring exists. It gives up all capabilities, all system calls that keeping a ring does not
//! need, and all files except its socket and the lock beside it, which it removes at the end.
//!
//! A keeper listens to clients of other users as long as its ring exists. [`guard`] says how a process is confined.

use guard::calls::Calls;
use guard::files::{AccessFs, BitFlags};
use guard::{CapabilitySet, Guard};
use std::io;
use std::path::Path;

/// The names of the two guards in messages: files and system calls.
const NAMES: [&str; 2] = ["removing its socket (Landlock)", "the system calls it makes (seccomp)"];

/// Drops all capabilities, and all ways to regain one.
pub(super) fn drop_capabilities() -> io::Result<()> {
    guard::keep_capabilities(CapabilitySet::empty())
}

/// Confines this thread and the threads that it will start, for good: it may remove files of this folder, and open
/// none. If the kernel lacks a guard, the keeper runs without it, and `doctor` says so. Drop capabilities before.
pub(super) fn confine(folder: &Path) -> [Guard; 2] {
    // Files first: the second guard forbids the calls that set up the first.
    let files = guard::files::confine(NAMES[0], &[(folder, BitFlags::from(AccessFs::RemoveFile))]);
    // Reading stays permitted: the keeper reopens its own memory for readers.
    [files, Calls::of_any_program().and_to_keep_rings().and_to_read().confine(NAMES[1])]
}

/// Which of [`confine`]'s guards this kernel supports. Confines nothing.
pub(crate) fn supported() -> [Guard; 2] {
    [guard::files::supported(NAMES[0]), guard::calls::supported(NAMES[1])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::keeper::client::Named;
    use buffer::keeper::server::{Keeper, RingOptions};
    use buffer::ring::memory::Geometry;
    use buffer::ring::{From, OnFull, RingKind, Signalling};
    use std::io::ErrorKind;

    #[test]
    fn it_keeps_its_ring_and_does_nothing_else() {
        let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let [own, other] = folders.each_ref().map(|folder| folder.path().to_owned());
        for folder in [&own, &other] {
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        let ring = own.join("ring.sock");
        let mut keeper = Keeper::create(&ring, RingOptions::new(Geometry::new(RingKind::D, 4096, 16))).unwrap();
        let confined = std::thread::spawn(move || {
            // Confines only this thread, which ends with the test.
            drop_capabilities().ok()?;
            for guard in confine(&own) {
                guard.held.map_err(|error| eprintln!("skipped: {}: {error}", guard.name)).ok()?;
            }
            let kind = |error: io::Error| error.kind();
            let tried = [
                std::process::Command::new("/bin/true").status().map(drop).map_err(kind),
                std::fs::write(own.join("new"), "x").map_err(kind),
                std::fs::read(own.join("file")).map(drop).map_err(kind),
                std::fs::read("/etc/passwd").map(drop).map_err(kind),
                std::fs::remove_file(other.join("file")).map_err(kind),
                std::os::unix::net::UnixStream::connect("/run/dbus/system_bus_socket").map(drop).map_err(kind),
                std::net::UdpSocket::bind("127.0.0.1:0").map(drop).map_err(kind),
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CONT)
                    .map_err(|errno| errno.kind()),
            ];
            keeper.run().ok()?;
            Some(tried)
        });
        let named = Named::at(ring.to_str().unwrap()).unwrap();
        if let Ok(mut writer) = named.open_writer(Signalling::Every) {
            let reader = named.open_reader(OnFull::Overwrite, From::Next, None).unwrap();
            writer.resize(1 << 16, 32).unwrap();
            drop((writer, reader));
            named.remove().unwrap();
        }
        let Some(tried) = confined.join().expect("no panic") else { return };
        assert_eq!(tried, [Err(ErrorKind::PermissionDenied); 8]);
        assert!(!ring.exists() && folders[1].path().join("file").exists());
    }
}
