//! Files that sinks are told to write: what can be said of a path before the run begins, so that it does not begin where
//! its first write must fail or would replace a file that nobody gave up. Creates nothing.

use crate::parts::system::reason;
use filter::ParamError;
use rustix::fs::Access;
use std::path::Path;
use std::{fs, io};

/// Says before the run what would fail at its first write. A regular file that exists is refused unless it may be
/// replaced; devices and pipes with a name are written to as they are.
pub(crate) fn check(key: &'static str, path: &Path, may_exist: bool) -> Result<(), ParamError> {
    let name = path.display();
    let system = |message: String| ParamError { key: Some(key), ..ParamError::system(message) };
    let cannot = |error: io::Error| system(format!("cannot write {name}: {}", reason(&error)));
    let is_there = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(ParamError::new(key, format!("{name} is a folder"))),
        Ok(metadata) if metadata.is_file() && !may_exist => {
            return Err(system(format!("{name} exists")).with_help("overwrite=yes replaces it"));
        }
        found => found.is_ok(),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(folder) {
        // What is there is written to as it is, or replaced by another of its name.
        Ok(metadata) if metadata.is_dir() && is_there && may(path, Access::WRITE_OK).is_ok() => Ok(()),
        Ok(metadata) if metadata.is_dir() => may_create_in(folder).map_err(cannot),
        Ok(_) => Err(system(format!("cannot write {name}: {} is no folder", folder.display()))),
        Err(error) => Err(cannot(error)),
    }
}

/// Says before the run why a folder could not be made or files could not be made in it, where that is known. What is missing
/// above it would be made, too.
pub(crate) fn check_folder(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find_map(|above| {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match fs::metadata(above) {
            Ok(metadata) if metadata.is_dir() => Some(may_create_in(above)),
            Ok(_) => Some(Err(rustix::io::Errno::NOTDIR.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        }
    });
    there.unwrap_or(Ok(()))
}

fn may_create_in(folder: &Path) -> io::Result<()> {
    may(folder, Access::WRITE_OK | Access::EXEC_OK)
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(rustix::fs::access(path, access)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "x").unwrap();
        let check = |name: &str, may_exist: bool, expected: Result<(), &str>| {
            let checked = check("file", &folder.path().join(name), may_exist);
            let text = checked.map_err(|error| error.message.rsplit_once('/').unwrap().1.to_string());
            assert_eq!(text, expected.map_err(str::to_string), "{name}");
        };
        check("new", false, Ok(()));
        check("old", true, Ok(()));
        check("old", false, Err("old exists"));
        check("", true, Err(" is a folder"));
        check("none/new", true, Err("new: No such file or directory"));
        check("/dev/null", false, Ok(()));
    }

    #[test]
    fn where_nothing_can_be_made_nothing_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let check = |name: &str| check_folder(&folder.path().join(name)).map_err(|error| error.raw_os_error());
        assert_eq!(check(""), Ok(()));
        assert_eq!(check("new/and/below"), Ok(()));
        assert_eq!(check("file/below"), Err(Some(rustix::io::Errno::NOTDIR.raw_os_error())));
    }
}
