//! Finds the shared captures.

use std::path::{Path, PathBuf};

/// The folder with `captures` and `expected` in it: `STREAMLINE_SHARED`, or `shared` beside the workspace. Reports on
/// standard error if it does not exist.
pub fn folder() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("STREAMLINE_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no captures in {}; set STREAMLINE_SHARED to their folder", folder.display());
    None
}

/// Connections with the same addresses and ports in different VLANs or tunnels count as one, as in the programs that
/// made the expectations.
pub const JOINED: &[(&str, &str)] = &[("vlan", "ignore"), ("tunnel", "ignore")];

pub fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
