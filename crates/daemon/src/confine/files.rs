//! The files the daemon may change once it listens: none, but that it may remove its socket; and none it may execute
//! (Landlock). Reading is as before: `/proc` and `/sys` are where much of what it tells is known. It connects to no port,
//! signals nobody else, and reaches no abstract socket of others, where the kernel is new enough to say so.

use super::Guard;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::path::Path;

/// What people are told.
const NAME: &str = "no files but its socket (Landlock)";

/// Everything that needs a rule from now on.
fn rules(level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    let all = Ruleset::default().set_compatibility(level);
    let files = AccessFs::from_write(ABI::V1) | AccessFs::Execute;
    let all = all.handle_access(files)?.set_compatibility(CompatLevel::BestEffort);
    let newer = AccessFs::from_write(ABI::V5);
    all.handle_access(newer)?.handle_access(AccessNet::from_all(ABI::V4))?.scope(Scope::from_all(ABI::V6))?.create()
}

fn restrict(folder: Option<&Path>) -> Result<RestrictionStatus, String> {
    let restricted = rules(CompatLevel::BestEffort).and_then(|mut rules| {
        // A folder that cannot be opened is one whose socket stays.
        if let Some(folder) = folder.and_then(|folder| PathFd::new(folder).ok()) {
            rules = rules.add_rule(PathBeneath::new(folder, AccessFs::RemoveFile))?;
        }
        rules.restrict_self()
    });
    restricted.map_err(|error| error.to_string())
}

/// Permits no changes to files from now on, to this thread and those it will start, but removing some of this folder.
pub(super) fn confine(folder: Option<&Path>) -> Guard {
    let held = match restrict(folder) {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err("this kernel has no Landlock, or does not use it".into()),
        Err(error) => Err(error),
    };
    Guard { name: NAME, held }
}

/// Does this kernel confine files? Nothing is confined by asking.
pub(super) fn supported() -> Guard {
    let made = rules(CompatLevel::HardRequirement);
    Guard { name: NAME, held: made.map(drop).map_err(|_| "this kernel has no Landlock, or does not use it".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn nothing_is_changed_but_a_socket_removed_and_nothing_is_executed() {
        let folders = [0, 1].map(|_| tempfile::tempdir().expect("there is room"));
        let [own, other] = folders.each_ref().map(|folder| folder.path().join("file"));
        for file in [&own, &other] {
            std::fs::write(file, "x").expect("there is room");
        }
        let folder = folders[0].path().to_path_buf();
        let tried = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).ok()?;
            confine(Some(&folder)).held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
            let kind = |error: std::io::Error| error.kind();
            Some([
                std::fs::write(&own, "y").map_err(kind),
                std::fs::write(&other, "y").map_err(kind),
                std::fs::remove_file(&other).map_err(kind),
                std::process::Command::new("/bin/true").status().map(drop).map_err(kind),
                std::fs::read(&other).map(drop).map_err(kind),
                std::fs::remove_file(&own).map_err(kind),
            ])
        });
        let Some(tried) = tried.join().expect("no panic") else { return };
        let denied = Err(ErrorKind::PermissionDenied);
        assert_eq!(tried, [denied, denied, denied, denied, Ok(()), Ok(())]);
    }
}
