//! Files that sinks are told to write: what can be said of a path before the run begins, so that it does not begin where
//! its first write must fail or would replace a file that nobody gave up. Creates nothing.

use crate::parts::system::reason;
use filter::ParamError;
use std::fs;
use std::path::Path;

/// Says before the run what would fail at its first write. A regular file that exists is refused unless it may be
/// replaced; devices and pipes with a name are written to as they are.
pub(crate) fn check(key: &'static str, path: &Path, may_exist: bool) -> Result<(), ParamError> {
    let name = path.display();
    let system = |message: String| ParamError { key: Some(key), ..ParamError::system(message) };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(ParamError::new(key, format!("{name} is a folder"))),
        Ok(metadata) if metadata.is_file() && !may_exist => {
            return Err(system(format!("{name} exists")).with_help("overwrite=yes replaces it"));
        }
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(system(format!("cannot write {name}: {} is no folder", folder.display()))),
        Err(error) => Err(system(format!("cannot write {name}: {}", reason(&error)))),
    }
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
}
