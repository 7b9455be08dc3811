//! Where running requests are found, and what they are called. The socket is `requests/PROCESS.sock` in the folder of
//! the user's keepers; the name is the number of the process that runs the request.

use buffer::control::name::{self, Claimed};
use buffer::keeper::place;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

const REQUESTS: usize = 4096;

/// How long to try for a name that should be free.
const CLAIM: Duration = Duration::from_secs(1);

/// Names a running request by its process number, above 0. Written `4711`, or in the older form `p4711`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub i32);

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Id, String> {
        let number = text.strip_prefix('p').unwrap_or(text).parse().ok().filter(|process| *process > 0);
        number.map(Id).ok_or_else(|| format!("`{text}` is no number of a request; `streamline ps` lists them"))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn folder() -> PathBuf {
    place::folder().join("requests")
}

pub(crate) fn socket_in(folder: &Path, process: i32) -> PathBuf {
    folder.join(format!("{process}.sock"))
}

/// Makes the folder if it is missing, and removes what killed processes left in it.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        place::make_folder(above)?;
    }
    place::make_folder(folder)?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        // Fails for a socket that is in use.
        let _ = match path.extension().and_then(|ending| ending.to_str()) {
            Some("sock") => name::clear_dead(&path),
            Some("lock") => name::clear_dead(&path.with_extension("")),
            _ => Ok(()),
        };
    }
    Ok(())
}

/// Listens at the socket of this process. The name belongs to this process; another process holds its lock only for a
/// moment, while it removes leftovers.
pub(crate) fn claim(path: &Path) -> io::Result<Claimed> {
    let until = Instant::now() + CLAIM;
    loop {
        match name::claim(path, 0o600, None) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            claimed => return claimed,
        }
    }
}

/// Folders of requests, each with its user: this user's own, or for root those of all users. A folder counts only if it
/// belongs to the user in its name, so a user cannot add a folder for another user.
fn folders() -> Vec<(PathBuf, u32)> {
    let user = rustix::process::geteuid();
    let mut folders = Vec::from_iter(place::check_folder(&place::folder()).is_ok().then(|| (folder(), user.as_raw())));
    if user.is_root() {
        let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let of_users = below(Path::new("/run/user")).filter_map(|path| {
            let user = path.file_name()?.to_str()?.parse().ok()?;
            Some((path.join("streamline"), user))
        });
        let temporary = std::env::temp_dir();
        let of_owners = below(&temporary).filter_map(|path| {
            let user = owner(&path)?;
            Some((path, user))
        });
        folders.extend(of_users.chain(of_owners).map(|(path, user)| (path.join("requests"), user)));
    }
    folders
}

/// The user in the name of a folder `streamline-USER`. `None`: the folder belongs to another user.
fn owner(path: &Path) -> Option<u32> {
    let user = path.file_name()?.to_str()?.strip_prefix("streamline-")?.parse::<u32>().ok()?;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user).then_some(user)
}

/// A running request that may be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The process that runs it.
    pub process: i32,
    /// Its socket.
    pub socket: PathBuf,
    /// The user whose folder the socket lies in.
    pub user: u32,
}

/// The sockets that may belong to requests, one list for each folder, sorted by process. The own folder comes first.
pub(crate) fn sockets() -> Vec<Vec<Found>> {
    let in_one = |(folder, user): (PathBuf, u32)| {
        let mut sockets: Vec<Found> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let socket = entry.path();
                // The socket of a ring has more than a number before its ending.
                let process = socket.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()?;
                Some(Found { process, socket, user })
            })
            .take(REQUESTS)
            .collect();
        sockets.sort();
        sockets
    };
    folders().into_iter().map(in_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn ids_are_numbers_of_processes() {
        for text in ["4711", "p4711"] {
            assert_eq!(text.parse::<Id>(), Ok(Id(4711)));
        }
        assert_eq!(Id(4711).to_string(), "4711");
        for wrong in ["", "p", "0", "p0", "p-1", "-1", "x", "7.tcp", "7p", "99999999999"] {
            assert!(wrong.parse::<Id>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_clears_away_the_dead_keeps_nobody_from_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let requests = folder.path().join("requests");
        make_folder(&requests).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clearing = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    make_folder(&requests).unwrap();
                }
            });
            let outcomes: Vec<_> = (1..500)
                .map(|process| {
                    let path = socket_in(&requests, process);
                    claim(&path).map(|claimed| name::give_up(&path, claimed))
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            clearing.join().unwrap();
            assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes.iter().find(|outcome| outcome.is_err()));
        });
    }

    #[test]
    fn what_the_dead_left_is_taken_away_and_what_lives_stays() {
        let folder = tempfile::tempdir().unwrap();
        let requests = folder.path().join("requests");
        make_folder(&requests).unwrap();
        let (dead, living) = (requests.join("1.sock"), requests.join("2.sock"));
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let _lock = name::lock(&living).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&living).unwrap();
        std::fs::write(requests.join("3.tcp.sock.lock"), "").unwrap();
        make_folder(&requests).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(&requests).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["2.sock", "2.sock.lock"]);
    }
}
