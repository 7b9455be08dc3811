//! The files there are for a process from some moment on (Landlock): what it says it needs, and none else to read, change or
//! execute. It connects to no port, signals nobody else, and reaches no abstract socket of others, where the kernel is new
//! enough to say so.

use super::Guard;
use landlock::{
    ABI, Access, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::path::Path;

pub use landlock::{AccessFs, BitFlags};

/// A folder and all below it, or a file, and what may be done there.
pub type Permitted<'a> = (&'a Path, BitFlags<AccessFs>);

/// Everything that needs a rule from now on.
fn rules(level: CompatLevel, net: BitFlags<AccessNet>) -> Result<RulesetCreated, RulesetError> {
    let all = Ruleset::default().set_compatibility(level);
    let all = all.handle_access(AccessFs::from_all(ABI::V1))?.set_compatibility(CompatLevel::BestEffort);
    all.handle_access(AccessFs::from_all(ABI::V5))?.handle_access(net)?.scope(Scope::from_all(ABI::V6))?.create()
}

fn restrict(permitted: &[Permitted<'_>], net: BitFlags<AccessNet>) -> Result<RestrictionStatus, String> {
    let restricted = rules(CompatLevel::BestEffort, net).and_then(|mut rules| {
        for (place, access) in permitted {
            // Where there is no such place nothing can be done there.
            if let Ok(place) = PathFd::new(place) {
                rules = rules.add_rule(PathBeneath::new(place, *access))?;
            }
        }
        rules.restrict_self()
    });
    restricted.map_err(|error| error.to_string())
}

/// Permits no use of files from now on, to this thread and those it will start, but these. New privileges have to be given up
/// before; `name` is what people are told.
pub fn confine(name: &'static str, permitted: &[Permitted<'_>]) -> Guard {
    guard(name, restrict(permitted, AccessNet::from_all(ABI::V4)))
}

/// Permits no use of any file from now on, as [`confine`] does, but to bind sockets to ports.
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

/// Does this kernel confine files? Nothing is confined by asking.
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
        // A kernel whose Landlock knows no ports permits both.
        let Some(([bound, _, read], [no_port, connected, _])) = ports.zip(nothing) else { return };
        assert_eq!((bound, read, no_port), (true, false, connected));
    }
}
