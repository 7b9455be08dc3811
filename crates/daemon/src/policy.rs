//! Who may do what with which device: a TOML file, decided by the kernel's word on who is at the other end of a socket.
//!
//! ```toml
//! [limits]
//! ring = "64M"        # bytes of one device's ring at most
//! readers = 64        # readers one user may have at a time
//!
//! [[allow]]           # the first that fits decides; its readers share rings, and see all of each other's packets
//! groups = ["streamline"]
//! devices = ["eth*", "wlan0"]
//! modes = ["tap"]     # tap: read copies; consume: take packets away
//! keep = "64M"        # the last so many bytes of each of these devices are there for readers that look back
//! ```
//!
//! Root may do everything (but nobody may consume without a file), and looks back into the ring of the first entry that keeps a device. Readers that two different
//! entries allow never share a ring.

use capture::Mode;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of one device's ring at most, if the file does not say.
const RING_BYTES: u64 = 256 << 20;

/// Readers one user may have at a time, if the file does not say.
const READERS: usize = 64;

/// The group that may tap where there is no file.
const GROUP: &str = "streamline";

/// Who is at the other end of a socket, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process when it connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// All groups it is in.
    pub groups: Vec<u32>,
}

/// Who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Bytes of one device's ring at most.
    pub ring_bytes: u64,
    /// Readers one user may have at a time.
    pub readers: usize,
    from_file: bool,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    users: Vec<u32>,
    groups: Vec<u32>,
    everybody: bool,
    devices: Vec<String>,
    modes: Vec<Allowed>,
    /// Bytes of a standing ring.
    keep: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allowed {
    Tap,
    Consume,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    allow: Vec<Allow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    ring: Option<String>,
    readers: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    everybody: bool,
    devices: Vec<String>,
    modes: Vec<Allowed>,
    keep: Option<String>,
}

impl Entry {
    fn concerns(&self, peer: &Peer) -> bool {
        self.everybody || self.users.contains(&peer.user) || self.groups.iter().any(|group| peer.groups.contains(group))
    }
}

/// Names and numbers of users or groups.
type Names = BTreeMap<String, u32>;

impl Policy {
    /// What holds without a file.
    pub fn without_file() -> Policy {
        let groups = group().into_iter().collect();
        let entry =
            Entry { users: vec![], groups, devices: vec!["*".into()], modes: vec![Allowed::Tap], ..Entry::default() };
        Policy { ring_bytes: RING_BYTES, readers: READERS, from_file: false, entries: vec![entry] }
    }

    /// Whoever is let in may tap everything: for a daemon that only the process it was made by can speak to, and that has
    /// no more rights than that one.
    pub fn for_one() -> Policy {
        let entry = Entry { everybody: true, devices: vec!["*".into()], modes: vec![Allowed::Tap], ..Entry::default() };
        Policy { ring_bytes: RING_BYTES, readers: READERS, from_file: false, entries: vec![entry] }
    }

    /// Reads a file; the error says where in it something is wrong.
    pub fn read(path: &Path) -> Result<Policy, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Policy::parse(&text, &names("/etc/passwd"), &names("/etc/group"))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str, users: &Names, groups: &Names) -> Result<Policy, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_string())?;
        let ring_bytes = match file.limits.ring {
            None => RING_BYTES,
            Some(text) => size(&text).ok_or_else(|| format!("limits.ring: `{text}` is no size; as 64M"))?,
        };
        let readers = file.limits.readers.unwrap_or(READERS);
        let number = |known: &Names, what: &str, name: &String| {
            let number = name.parse().ok().or_else(|| known.get(name).copied());
            number.ok_or_else(|| format!("there is no {what} `{name}`"))
        };
        let entry = |allow: Allow| {
            if allow.users.is_empty() && allow.groups.is_empty() && !allow.everybody {
                return Err("an entry allows nobody: it needs users, groups or everybody = true".to_string());
            }
            let keep = match &allow.keep {
                None => None,
                Some(text) => Some(size(text).ok_or_else(|| format!("keep: `{text}` is no size; as 64M"))?),
            };
            if keep.is_some_and(|bytes| bytes > ring_bytes) {
                return Err(format!("keep: more than the {ring_bytes} bytes that limits.ring lets a ring have"));
            }
            if keep.is_some() && !allow.modes.contains(&Allowed::Tap) {
                return Err("keep: an entry that does not allow \"tap\" has no readers that look back".to_string());
            }
            Ok(Entry {
                users: allow.users.iter().map(|name| number(users, "user", name)).collect::<Result<_, _>>()?,
                groups: allow.groups.iter().map(|name| number(groups, "group", name)).collect::<Result<_, _>>()?,
                everybody: allow.everybody,
                devices: allow.devices,
                modes: allow.modes,
                keep,
            })
        };
        let entries = file.allow.into_iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Policy { ring_bytes, readers, from_file: true, entries })
    }

    /// May this peer read this device in this mode? Gives the number of its trust group; else why not.
    pub fn allows(&self, peer: &Peer, device: &str, mode: Mode) -> Result<u32, String> {
        if mode == Mode::Consume && !self.from_file {
            let text = "packets may be taken away from the host where the daemon's policy says so (`--config`, `modes = \
                        [\"consume\"]`; then root may, too), or by root without a daemon (`--local`)";
            return Err(text.to_string());
        }
        if peer.user == 0 {
            // Who may see everything shares the ring that has everything.
            let kept = if mode == Mode::Tap { self.kept(device).next() } else { None };
            return Ok(kept.map_or(0, |(group, _)| group));
        }
        let wanted = match mode {
            Mode::Tap => Allowed::Tap,
            Mode::Consume => Allowed::Consume,
        };
        let mut mine = self.entries.iter().enumerate().filter(|(_, entry)| entry.concerns(peer));
        let fits = mine.clone().find(|(_, entry)| {
            entry.modes.contains(&wanted) && entry.devices.iter().any(|pattern| matches(pattern, device))
        });
        match fits {
            Some((at, _)) => Ok(at as u32 + 1),
            None if mine.next().is_none() => Err(format!(
                "user {} may use no device here; the daemon's policy says who may (without one, root and the group \
                 `{GROUP}`)",
                peer.user
            )),
            None => {
                let what = match mode {
                    Mode::Tap => format!("tap `{device}` (mode=tap)"),
                    Mode::Consume => format!("take packets of `{device}` away (mode=consume)"),
                };
                Err(format!("the daemon's policy does not let user {} {what}", peer.user))
            }
        }
    }

    /// Are there devices whose packets are kept?
    pub(crate) fn keeps(&self) -> bool {
        self.entries.iter().any(|entry| entry.keep.is_some())
    }

    /// The trust groups for which a device's packets are kept, and the bytes of each one's ring.
    pub(crate) fn kept(&self, device: &str) -> impl Iterator<Item = (u32, u64)> {
        let kept = self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at as u32 + 1, entry, entry.keep?)));
        let concerns = move |entry: &Entry| entry.devices.iter().any(|pattern| matches(pattern, device));
        let kept = kept.filter(move |(_, entry, _)| concerns(entry));
        kept.map(|(group, _, bytes)| (group, capture::taps::ring_bytes(bytes, self.ring_bytes)))
    }

    /// May this peer do anything at all?
    pub fn knows(&self, peer: &Peer) -> bool {
        peer.user == 0 || self.entries.iter().any(|entry| entry.concerns(peer))
    }

    /// May this peer look at what others do, and end it?
    pub fn may_manage(&self, peer: &Peer) -> bool {
        peer.user == 0
    }
}

/// The group whose members may connect, where there is one of that name.
pub fn group() -> Option<u32> {
    names("/etc/group").get(GROUP).copied()
}

/// Does a pattern, in which `*` stands for any bytes, match a name?
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.clone().next_back() else { return rest.is_empty() };
    let middle = parts.clone().count() - 1;
    for part in parts.take(middle) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// `64M`, or `64MiB`: bytes.
fn size(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Names and numbers in `/etc/passwd` or `/etc/group`.
fn names(path: &str) -> Names {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_string(), fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer { process: 1, user, groups: groups.to_vec() }
    }

    fn parse(text: &str) -> Result<Policy, String> {
        let names = |list: &[(&str, u32)]| list.iter().map(|(name, number)| (name.to_string(), *number)).collect();
        Policy::parse(text, &names(&[("anna", 1000)]), &names(&[("net", 50)]))
    }

    #[test]
    fn the_first_entry_that_fits_decides_and_nothing_else_is_allowed() {
        let policy = parse(
            "[limits]\nring = \"1M\"\n\n[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth*\"]\nmodes = [\"tap\"]\n\
             [[allow]]\ngroups = [\"net\", \"77\"]\ndevices = [\"*\"]\nmodes = [\"tap\", \"consume\"]\n",
        )
        .unwrap();
        assert_eq!((policy.ring_bytes, policy.readers, policy.keeps()), (1 << 20, READERS, false));
        let (anna, both, stranger) = (peer(1000, &[1000]), peer(1000, &[50]), peer(1, &[1]));
        assert_eq!(policy.allows(&anna, "eth0", Mode::Tap), Ok(1));
        assert_eq!(policy.allows(&both, "wlan0", Mode::Tap), Ok(2));
        assert_eq!(policy.allows(&both, "eth0", Mode::Consume), Ok(2));
        assert_eq!(policy.allows(&peer(0, &[]), "any", Mode::Consume), Ok(0));
        let why = |peer, device, mode| policy.allows(peer, device, mode).unwrap_err();
        assert!(why(&anna, "wlan0", Mode::Tap).ends_with("does not let user 1000 tap `wlan0` (mode=tap)"));
        assert!(why(&anna, "eth0", Mode::Consume).ends_with("take packets of `eth0` away (mode=consume)"));
        assert!(why(&stranger, "eth0", Mode::Tap).contains("may use no device here"));
    }

    #[test]
    fn without_a_file_nobody_takes_packets_away() {
        let (root, member) = (peer(0, &[]), peer(1000, &[7]));
        for policy in [Policy::without_file(), Policy::for_one()] {
            assert_eq!(policy.allows(&root, "eth0", Mode::Tap), Ok(0));
            for peer in [&root, &member] {
                assert!(policy.allows(peer, "eth0", Mode::Consume).unwrap_err().contains("--local"));
            }
        }
        assert_eq!(parse("").unwrap().allows(&root, "eth0", Mode::Consume), Ok(0));
    }

    #[test]
    fn packets_are_kept_for_who_may_read_them() {
        let policy = parse(
            "[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth*\"]\nmodes = [\"tap\"]\n\
             [[allow]]\ngroups = [\"net\"]\ndevices = [\"*0\"]\nmodes = [\"tap\"]\nkeep = \"64MiB\"\n\
             [[allow]]\neverybody = true\ndevices = [\"eth0\"]\nmodes = [\"tap\"]\nkeep = \"1M\"\n",
        )
        .unwrap();
        assert!(policy.keeps());
        let kept = |device| policy.kept(device).collect::<Vec<_>>();
        assert_eq!(kept("eth0"), [(2, 64 << 20), (3, 1 << 20)]);
        assert_eq!(kept("wlan0"), [(2, 64 << 20)]);
        assert_eq!(kept("eth1"), []);
        let root = peer(0, &[]);
        assert_eq!(policy.allows(&root, "wlan0", Mode::Tap), Ok(2), "root looks back into what is kept");
        assert_eq!(
            (policy.allows(&root, "eth1", Mode::Tap), policy.allows(&root, "eth0", Mode::Consume)),
            (Ok(0), Ok(0))
        );
    }

    #[test]
    fn mistakes_are_told() {
        for (text, told) in [
            ("[[allow]]\nusers=[\"bob\"]\ndevices=[]\nmodes=[]", "there is no user `bob`"),
            ("[[allow]]\ndevices=[]\nmodes=[]", "allows nobody"),
            ("[[allow]]\nusers=[\"anna\"]\ndevices=[]\nmodes=[\"tab\"]", "unknown variant `tab`"),
            ("[limits]\nring=\"big\"", "`big` is no size"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\"]\nkeep=\"all\"", "`all` is no size"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\"]\nkeep=\"9G\"", "limits.ring"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"consume\"]\nkeep=\"9M\"", "no readers that look back"),
            ("[limit]\n", "unknown field `limit`"),
            ("[limits\n", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("*", "", true),
            ("eth*", "eth", true),
            ("*0", "eth0", true),
            ("e*h*0", "eth10", true),
            ("e*x*0", "eth10", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
