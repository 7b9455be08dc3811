//! The files of a package in a folder, as they lie below `/`.

use super::{Made, VERSION, bill, components, failed, notices};
use crate::install::files::{self, Built, Content, File};
use crate::{Failure, process};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where `/usr` of a package is.
const PREFIX: &str = "/usr";

/// Where systemd and its kin look for files that `install` leaves in `share/streamline`.
const UNITS: [(&str, &str); 3] =
    [(".service", "lib/systemd/system"), (".socket", "lib/systemd/system"), (".sysusers.conf", "lib/sysusers.d")];

const DOCUMENTS: [&str; 5] = ["README.md", "CHANGELOG.md", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT"];

pub(super) struct Staged {
    /// The folder that stands for `/`.
    pub folder: PathBuf,
}

impl Staged {
    pub(super) fn lay_out(made: &Made<'_>, built: &Built, folder: &Path) -> Result<Staged, Failure> {
        let all = files::all(made.root, Path::new(PREFIX), built)?;
        let documents = DOCUMENTS.map(|name| File::copy(made.root.join(name), document(name)));
        let components = components::of(made.root)?;
        let notices = File::made(notices::text(&components), document("NOTICES"));
        let bill = File::made(bill::text(VERSION, &made.date, &components), document("streamline.cdx.json"));
        let _ = fs::remove_dir_all(folder);
        for file in all.into_iter().chain(documents).chain([notices, bill]) {
            put(&folder.join(PREFIX.trim_start_matches('/')).join(place(&file.to)), &file)?;
        }
        // The packages' own times.
        let touch = format!("find . -exec touch -h -d @{} {{}} +", made.time);
        process::run(&mut process::program(folder, "sh", &["-c", &touch]))?;
        Ok(Staged { folder: folder.to_path_buf() })
    }
}

fn document(name: &str) -> PathBuf {
    Path::new("share/doc/streamline").join(name)
}

/// Where a file lies below `/usr`.
fn place(to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unit = UNITS.iter().find(|(ending, _)| to.starts_with("share/streamline") && name.ends_with(ending));
    // sysusers.d takes `NAME.conf`.
    unit.map_or_else(|| to.to_path_buf(), |(_, folder)| Path::new(folder).join(name.replace(".sysusers.", ".")))
}

fn put(to: &Path, file: &File) -> Result<(), Failure> {
    let failed = |error| failed(to, &error);
    fs::create_dir_all(to.parent().unwrap_or(to)).map_err(failed)?;
    match &file.content {
        Content::Copy(from) => drop(fs::copy(from, to).map_err(failed)?),
        Content::Made(bytes) => fs::write(to, bytes).map_err(failed)?,
    }
    fs::set_permissions(to, Permissions::from_mode(if file.is_program { 0o755 } else { 0o644 })).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_where_systemd_looks() {
        for (from, to) in [
            ("share/streamline/streamline.service", "lib/systemd/system/streamline.service"),
            ("share/streamline/streamline.sysusers.conf", "lib/sysusers.d/streamline.conf"),
            ("bin/streamline", "bin/streamline"),
        ] {
            assert_eq!(place(Path::new(from)), Path::new(to));
        }
    }
}
