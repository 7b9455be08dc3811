//! Where keepers are found: `$XDG_RUNTIME_DIR/streamline/NAME.sock`, or `/run/streamline/NAME.sock` for root.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Longest name of a ring in bytes; with the folder it must fit a socket's address.
pub const NAME_BYTES: usize = 64;

/// Whether this is a valid name of a ring. Letters, digits, `.`, `_` and `-`, not beginning with `.` or `-`.
pub fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let other = |c: char| first(c) || c == '.' || c == '-';
    name.len() <= NAME_BYTES && name.starts_with(first) && name.chars().all(other)
}

/// The folder of this user's keepers.
pub fn folder() -> PathBuf {
    folder_of(rustix::process::geteuid().as_raw(), std::env::var_os("XDG_RUNTIME_DIR"))
}

fn folder_of(user: u32, runtime: Option<OsString>) -> PathBuf {
    match runtime.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(path) if user != 0 => path.join("streamline"),
        None if user != 0 => std::env::temp_dir().join(format!("streamline-{user}")),
        _ => PathBuf::from("/run/streamline"),
    }
}

/// Makes the folder if it does not exist. All users may look into root's: each ring has its own policy.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let mode = if user == 0 { 0o755 } else { 0o700 };
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    check_folder(folder)
}

/// Whether the folder, if it exists, belongs to this user. Where all users may make one (`/tmp`), another user may have
/// come first, and would see everything that is written to rings kept there.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let text = format!("`{}` belongs to somebody else", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// The socket of the ring with this name, in this user's folder. A name with a `/` is itself the path of a socket.
pub fn socket(name: &str) -> io::Result<PathBuf> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    if !is_name(name) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{name}` is no name for a ring: up to {NAME_BYTES} letters, digits, `.`, `_` and `-`"),
        ));
    }
    let folder = folder();
    check_folder(&folder)?;
    Ok(folder.join(format!("{name}.sock")))
}

/// The names of the rings in this user's folder, in order.
pub fn names() -> io::Result<Vec<String>> {
    let folder = folder();
    let entries = match check_folder(&folder).and_then(|()| std::fs::read_dir(&folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".sock").map(str::to_owned))
        .filter(|name| is_name(name))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_file_names() {
        for (name, expected) in [
            ("video", true),
            ("a.b-c_9", true),
            ("", false),
            (".hidden", false),
            ("-flag", false),
            ("a/b", false),
            ("..", false),
            ("ä", false),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(is_name(name), expected, "{name}");
        }
    }

    #[test]
    fn each_user_has_a_folder() {
        let check = |user, runtime: Option<&str>, expected: &str| {
            assert_eq!(folder_of(user, runtime.map(OsString::from)), PathBuf::from(expected));
        };
        check(0, Some("/run/user/0"), "/run/streamline");
        check(0, None, "/run/streamline");
        check(7, Some("/run/user/7"), "/run/user/7/streamline");
        let temporary = std::env::temp_dir().join("streamline-7");
        assert_eq!(folder_of(7, Some("not/absolute".into())), temporary);
        assert_eq!(folder_of(7, None), temporary);
    }
}
