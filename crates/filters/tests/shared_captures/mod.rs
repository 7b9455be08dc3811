//! Where the shared captures are.

use std::path::{Path, PathBuf};

/// Their folder, with `captures` and `expected` in it: `STREAMLINE_SHARED` names it, else it is `shared` beside the
/// workspace. Says on standard error where there is none.
pub fn folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("STREAMLINE_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no captures in {}; set STREAMLINE_SHARED to their folder", folder.display());
    None
}

/// As the programs that the expectations were made with have it: what is in one VLAN or tunnel and what is in another with the
/// same addresses and ports is one connection.
#[allow(dead_code, reason = "not every test that uses this module makes streams")]
pub const JOINED: &[(&str, &str)] = &[("vlan", "ignore"), ("tunnel", "ignore")];

/// The paths in a folder, sorted.
pub fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
