//! Lets a process use only the files it names from now on (Landlock); it can read, change and execute no other. It also
//! connects to no port, signals no other process, and reaches no abstract socket of another process, if the kernel is
//! new enough for that.

use super::Guard;
use landlock::{
    ABI, Access, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::path::Path;

pub use landlock::{AccessFs, BitFlags};

/// A file, or a folder with all below it, and the allowed accesses.
pub type Permitted<'a> = (&'a Path, BitFlags<AccessFs>);

/// The accesses that need a rule from now on.
fn rules(level: CompatLevel, net: BitFlags<AccessNet>) -> Result<RulesetCreated, RulesetError> {
    let all = Ruleset::default().set_compatibility(level);
    let all = all.handle_access(AccessFs::from_all(ABI::V1))?.set_compatibility(CompatLevel::BestEffort);
    all.handle_access(AccessFs::from_all(ABI::V5))?.handle_access(net)?.scope(Scope::from_all(ABI::V6))?.create()
}

fn restrict(permitted: &[Permitted<'_>], net: BitFlags<AccessNet>) -> Result<RestrictionStatus, String> {
    let restricted = rules(CompatLevel::BestEffort, net).and_then(|mut rules| {
        for (place, access) in permitted {
            // A missing place needs no rule.
            if let Ok(place) = PathFd::new(place) {
                rules = rules.add_rule(PathBeneath::new(place, *access))?;
            }
        }
        rules.restrict_self()
    });
    restricted.map_err(|error| error.to_string())
}

/// Allows only these uses of files from now on, in this thread and those it will start. New privileges must be given up
/// first; `name` is the guard's name for people.
pub fn confine(name: &'static str, permitted: &[Permitted<'_>]) -> Guard {
    guard(name, restrict(permitted, AccessNet::from_all(ABI::V4)))
}

/// Allows no use of files from now on, like [`confine`], but allows binding sockets to ports.
pub fn confine_to_ports(name: &'static str) -> Guard {
    guard(name, restrict(&[], AccessNet::ConnectTcp.into()))
}

fn guard(name: &'static str, restricted: Result<RestrictionStatus, String>) -> Guard {
    let held = match restricted {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err("this kernel has no Landlock, or does not use it".into()),
        Err(error) => Err(error),
    };
    Guard { name, held }
}

/// Whether this kernel can confine files. Confines nothing.
pub fn supported(name: &'static str) -> Guard {
    let made = rules(CompatLevel::HardRequirement, AccessNet::from_all(ABI::V4));
    Guard { name, held: made.map(drop).map_err(|_| "this kernel has no Landlock, or does not use it".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn ports_are_bound_and_not_connected_to_where_only_files_go() {
        let there = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = there.local_addr().expect("it is bound");
        let tried = |confine: fn() -> Guard| {
            let thread = std::thread::spawn(move || {
                rustix::thread::set_no_new_privs(true).ok()?;
                confine().held.map_err(|error| eprintln!("skipped: {error}")).ok()?;
                let bound = TcpListener::bind("127.0.0.1:0").is_ok();
                Some([bound, TcpStream::connect(address).is_ok(), std::fs::read("/proc/self/status").is_ok()])
            });
            thread.join().expect("no panic")
        };
        let ports = tried(|| confine_to_ports("ports"));
        let nothing = tried(|| confine("nothing", &[]));
        // A kernel whose Landlock knows no ports allows both.
        let Some(([bound, _, read], [no_port, connected, _])) = ports.zip(nothing) else { return };
        assert_eq!((bound, read, no_port), (true, false, connected));
    }
}
