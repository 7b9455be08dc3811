//! Finds the shared captures.

use std::path::{Path, PathBuf};
use testkit::shared;

/// The folder of the whole collection. Reports on standard error if it does not exist.
pub fn folder() -> Option<PathBuf> {
    if !shared::is_whole() {
        eprintln!("skipped: the shared captures are not here; set STREAMLINE_SHARED to their folder");
    }
    shared::is_whole().then(shared::data)
}

/// Connections with the same addresses and ports in different VLANs or tunnels count as one, as in the programs that
/// made the expectations.
pub const JOINED: &[(&str, &str)] = &[("vlan", "ignore"), ("tunnel", "ignore")];

pub fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
