//! In whose folder a ring's name is looked up. A single test, because the environment belongs to the whole process.

#![cfg(not(loom))]

use buffer::keeper::client::Named;
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::RingKind;
use buffer::ring::memory::Geometry;
use std::io;
use std::os::unix::fs::PermissionsExt;

const NOBODY: u32 = 65_534;
const SOMEBODY: u32 = 54_321;

fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    let change = move || {
        // SAFETY: changes this thread alone.
        let changed = unsafe {
            libc::syscall(libc::SYS_setresgid, user, user, user) == 0
                && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
        };
        assert!(changed, "root may become anybody");
        work()
    };
    std::thread::scope(|scope| scope.spawn(change).join().unwrap())
}

#[test]
fn nobody_is_given_a_ring_out_of_somebody_elses_folder() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped (rights): only root can try what others may do");
        return;
    }
    let everybodys = tempfile::tempdir().unwrap();
    std::fs::set_permissions(everybodys.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    // SAFETY: nothing else in this process reads its environment at this time.
    unsafe {
        std::env::remove_var("XDG_RUNTIME_DIR");
        std::env::set_var("TMPDIR", everybodys.path());
    }
    // Another user has made the folder in which `NOBODY`'s rings would be.
    let mut keeper = as_user(SOMEBODY, || {
        let folder = everybodys.path().join(format!("streamline-{NOBODY}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let policy = Policy { read: Reach::Other, hold: Reach::Other, write: Reach::Other };
        let geometry = Geometry::new(RingKind::D, 4096, 16);
        let options = RingOptions { policy, ..RingOptions::new(geometry) };
        Keeper::create(&folder.join("ring.sock"), options).unwrap()
    });
    let (asked, stop) = io::pipe().unwrap();
    let keeping = std::thread::spawn(move || keeper.run_until(std::os::fd::AsFd::as_fd(&asked)));
    let found = as_user(NOBODY, || Named::at("ring").and_then(|named| named.state()));
    assert_eq!(found.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // A path names a keeper explicitly, so its owner does not matter.
    let path = everybodys.path().join(format!("streamline-{NOBODY}/ring.sock"));
    as_user(NOBODY, || Named::at(path.to_str().unwrap()).and_then(|named| named.state())).unwrap();
    drop(stop);
    keeping.join().unwrap().unwrap();
}
