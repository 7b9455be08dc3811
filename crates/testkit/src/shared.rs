//! Captures and rules with the results of other programs: `captures`, `expected` and `rules` in one folder.

use std::path::{Path, PathBuf};

/// The folder of the whole collection: `data` in `STREAMLINE_SHARED`, or in `shared` beside the workspace. Where it is
/// absent, that of the part which is bundled.
pub fn data() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let whole = std::env::var_os("STREAMLINE_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if whole.join("expected").is_dir() { whole } else { bundled() }
}

/// The folder of the part that is bundled.
pub fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// Whether [`data`] is the whole collection.
pub fn is_whole() -> bool {
    data() != bundled()
}

/// At least this many of `count` things of the whole collection are in [`data`].
pub fn part(count: usize) -> usize {
    if is_whole() { count } else { count / 20 }
}

/// The folder of the whole collection. Reports on standard error if it does not exist.
pub fn whole() -> Option<PathBuf> {
    if !is_whole() {
        eprintln!("skipped: the shared captures are not here; set STREAMLINE_SHARED to their folder");
    }
    is_whole().then(data)
}

/// The files of a folder, by name.
pub fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
