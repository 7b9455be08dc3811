//! The policy: which user may do what with which device. It is a TOML file; the kernel identifies the user at the other
//! end of a socket.
//!
//! ```toml
//! [limits]
//! ring = "64M"        # most bytes of one device's ring
//! readers = 48        # most readers of one user; a device's ring has places for 64
//! instructions = 4096 # most instructions of all expressions of a device for each packet; one user's: three quarters
//!
//! [[allow]]           # the first entry that fits decides; its readers share rings, and see all of each other's packets
//! groups = ["streamline"]
//! devices = ["eth*", "wlan0"]
//! modes = ["tap"]     # tap: read copies; consume: take packets away; flow: open flows, where the device is an interface
//! slices = "20%"      # mode flow: most guaranteed part of each of these wires, for all flows of a user together
//! weight = 10         # mode flow: largest weight N of a share `fair:N`, which divides what the user's flows get
//! user-weight = 1     # mode flow: the user's share of what slices leave over, relative to other users
//! keep = "64M"        # keep the last 64 MiB of each of these devices for readers that look back
//! filter = "udp port 53"  # the only packets of these devices that they see, whatever they ask for
//! ```
//!
//! Without `slices` and `weight`, a user has 20 % of each wire and weights up to 10. Root has all of each wire, and
//! weights up to 1000. All users share equally what slices leave over, root too, unless `user-weight` says otherwise.
//!
//! Root may do everything, except consume without a file. It looks back into the ring of the first entry that keeps all
//! of a device. Readers that two different entries allow never share a ring. So packets that a filter rejects are not
//! in the rings of its readers. These readers still learn how many packets and bytes a device has in total.
//!
//! A filter does not concern flows, which get only their own packets. So an entry with a filter allows no `flow`.
//!
//! A filter is compiled once, when the file is read, as `bpf` would compile it. So host names are resolved only then.
//! Packets behind a VLAN tag are other packets to it: `not port 22` lets port 22 through behind a tag. It is better to
//! name the packets that may be seen.

pub use buffer::control::peer::Peer;
use capture::budget::INSTRUCTIONS;
use capture::{Mode, Only, Permission};
use net::ShareLimits;
use program::Compile;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Most bytes of one device's ring, if the file does not say.
const RING_BYTES: u64 = 256 << 20;

const READERS: usize = capture::registry::READERS_OF_USER;

/// The group that may capture if there is no file.
const GROUP: &str = "streamline";

/// Which user may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Most bytes of one device's ring.
    pub ring_bytes: u64,
    /// Most readers of one user.
    pub readers: usize,
    /// Most instructions that all expressions of a device may cost each packet. `None`: any number.
    pub instructions: Option<u32>,
    from_file: bool,
    /// The only client is the process that made the daemon, so there is no other reader.
    is_for_one: bool,
    /// This user may do what root may. `None`: no user may.
    owner: Option<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    users: Vec<u32>,
    groups: Vec<u32>,
    everybody: bool,
    devices: Vec<String>,
    modes: Vec<Allowed>,
    /// The part of a wire that each of its users may take.
    shares: ShareLimits,
    /// Bytes of a standing ring.
    keep: Option<u64>,
    /// The part of its devices' packets that is seen.
    only: Option<Arc<Only>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Allowed {
    Tap,
    Consume,
    Flow,
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
    instructions: Option<u32>,
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
    slices: Option<String>,
    weight: Option<u32>,
    #[serde(rename = "user-weight")]
    user_weight: Option<u32>,
    keep: Option<String>,
    filter: Option<String>,
}

impl Entry {
    fn concerns(&self, peer: &Peer) -> bool {
        self.everybody || self.users.contains(&peer.user) || self.groups.iter().any(|group| peer.groups.contains(group))
    }

    /// The permission of the peers that this entry lets in; `at` is its number. They are a trust group of their own.
    /// Group 0 is for root, and for peers that need no policy.
    fn right(&self, at: usize) -> Permission {
        Permission { group: at as u32 + 1, only: self.only.clone() }
    }
}

type Names = BTreeMap<String, u32>;

impl Policy {
    /// The policy without a file.
    pub fn without_file() -> Policy {
        Policy::for_groups(group().into_iter().collect())
    }

    fn for_groups(groups: Vec<u32>) -> Policy {
        let modes = vec![Allowed::Tap, Allowed::Flow];
        let entry = Entry { groups, devices: vec!["*".into()], modes, ..Entry::default() };
        Policy::of(RING_BYTES, READERS, Some(INSTRUCTIONS), vec![entry])
    }

    fn of(ring_bytes: u64, readers: usize, instructions: Option<u32>, entries: Vec<Entry>) -> Policy {
        Policy { ring_bytes, readers, instructions, from_file: false, is_for_one: false, owner: None, entries }
    }

    /// Lets any client capture everything. It is for a daemon that only the process which made it can speak to, and
    /// that has no more rights than that process. Expressions may cost any number of instructions, as when that process
    /// captures by itself.
    pub fn for_one() -> Policy {
        let entry = Entry { everybody: true, devices: vec!["*".into()], modes: vec![Allowed::Tap], ..Entry::default() };
        Policy { is_for_one: true, ..Policy::of(RING_BYTES, READERS, None, vec![entry]) }
    }

    /// Lets this user do what root may, for a daemon that has no more rights than this user.
    pub fn owned_by(self, user: u32) -> Policy {
        Policy { owner: Some(user), ..self }
    }

    fn is_manager(&self, peer: &Peer) -> bool {
        peer.user == 0 || self.owner == Some(peer.user)
    }

    /// Reads a file. The error says where it is wrong. Loads libpcap to compile filters.
    pub fn read(path: &Path) -> Result<Policy, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", base::terminal::name(path)))?;
        Policy::parse(&text, &names("/etc/passwd"), &names("/etc/group"), &streamline::compiler())
            .map_err(|error| format!("{}: {error}", base::terminal::name(path)))
    }

    fn parse(text: &str, users: &Names, groups: &Names, compiler: &dyn Compile) -> Result<Policy, String> {
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
            let limits_flows = allow.slices.is_some() || allow.weight.or(allow.user_weight).is_some();
            if limits_flows && !allow.modes.contains(&Allowed::Flow) {
                let text = "slices, weight, user-weight: they concern flows, and the entry does not allow \"flow\"";
                return Err(text.to_string());
            }
            let mut shares = ShareLimits::default();
            if let Some(text) = &allow.slices {
                let wrong = || format!("slices: `{text}` is no part of a wire; as \"20%\", at most 100%");
                shares.slices_ppm = percent_ppm(text).ok_or_else(wrong)?;
            }
            let weights = [
                ("weight", allow.weight, &mut shares.weight),
                ("user-weight", allow.user_weight, &mut shares.user_weight),
            ];
            for (key, given, place) in weights {
                *place = weight(key, given, *place)?;
            }
            if allow.filter.is_some() && allow.modes.contains(&Allowed::Flow) {
                return Err("filter: a flow gets packets past it: \"flow\" needs an entry of its own".to_string());
            }
            let only = |text: &String| match text.trim() {
                // As in tcpdump, it would pass everything, which is hardly what the author of the file meant.
                "" => Err("filter: it is empty; without the key all packets are seen".to_string()),
                text => Only::new(text, compiler).map_err(|why| format!("filter = `{text}`: {why}")),
            };
            Ok(Entry {
                only: allow.filter.as_ref().map(only).transpose()?.map(Arc::new),
                users: allow.users.iter().map(|name| number(users, "user", name)).collect::<Result<_, _>>()?,
                groups: allow.groups.iter().map(|name| number(groups, "group", name)).collect::<Result<_, _>>()?,
                everybody: allow.everybody,
                devices: allow.devices,
                modes: allow.modes,
                shares,
                keep,
            })
        };
        let located = |(at, allow)| entry(allow).map_err(|text| format!("[[allow]] number {}: {text}", at + 1));
        let entries = file.allow.into_iter().enumerate().map(located).collect::<Result<_, _>>()?;
        let instructions = Some(file.limits.instructions.unwrap_or(INSTRUCTIONS));
        Ok(Policy { from_file: true, ..Policy::of(ring_bytes, readers, instructions, entries) })
    }

    /// Checks that this peer may read this device in this mode, and gives its trust group with the part that the group
    /// sees. The error says why it may not.
    pub fn allows(&self, peer: &Peer, device: &str, mode: Mode) -> Result<Permission, String> {
        if mode == Mode::Consume && !self.from_file {
            let text = "packets may be taken away from the host where the daemon's policy says so (`--config`, `modes = \
                        [\"consume\"]`; then root may, too), or by root without a daemon (`--local`)";
            return Err(text.to_string());
        }
        if self.is_manager(peer) {
            // A user that may see everything shares the ring that has everything.
            let whole = || self.kept(device).map(|(right, _)| right).find(|right| right.only.is_none());
            let kept = if mode == Mode::Tap { whole() } else { None };
            return Ok(kept.unwrap_or_default());
        }
        let (wanted, what) = match mode {
            Mode::Tap => (Allowed::Tap, format!("tap `{device}` (mode=tap)")),
            Mode::Consume => (Allowed::Consume, format!("take packets of `{device}` away (mode=consume)")),
        };
        let of_device = |pattern: &String| matches(pattern, device);
        self.fitting(peer, wanted, of_device, &what).map(|(at, entry)| entry.right(at))
    }

    /// Checks that this peer may open flows on this device (`None`: on any device). Gives the part of the wire that it
    /// may take. The error says why it may not.
    pub fn allows_flows(&self, peer: &Peer, device: Option<&str>) -> Result<ShareLimits, String> {
        if self.is_manager(peer) {
            return Ok(ShareLimits::NONE);
        }
        let what = match device {
            Some(device) => format!("open flows on `{device}` (`modes = [\"flow\"]`)"),
            None => "open flows on any device (`modes = [\"flow\"]`)".to_string(),
        };
        let of_device = |pattern: &String| device.is_none_or(|device| matches(pattern, device));
        self.fitting(peer, Allowed::Flow, of_device, &what).map(|(_, entry)| entry.shares)
    }

    /// The first entry that allows this peer a mode on a device, with its number. The error says why there is none;
    /// `what` names what the peer wanted.
    fn fitting(
        &self,
        peer: &Peer,
        wanted: Allowed,
        of_device: impl Fn(&String) -> bool,
        what: &str,
    ) -> Result<(usize, &Entry), String> {
        let mut mine = self.entries.iter().enumerate().filter(|(_, entry)| entry.concerns(peer));
        let fits = |(_, entry): &(usize, &Entry)| entry.modes.contains(&wanted) && entry.devices.iter().any(&of_device);
        match mine.clone().find(fits) {
            Some(found) => Ok(found),
            None if mine.next().is_none() => Err(format!(
                "user {} may use no device here; the daemon's policy says who may (without one, root and the group \
                 `{GROUP}`)",
                peer.user
            )),
            None => Err(format!("the daemon's policy does not let user {} {what}", peer.user)),
        }
    }

    /// Whether there are devices whose packets are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.entries.iter().any(|entry| entry.keep.is_some())
    }

    /// The trust groups for which a device's packets are kept: the part that each group sees, and the bytes of its
    /// ring.
    pub(crate) fn kept(&self, device: &str) -> impl Iterator<Item = (Permission, u64)> {
        let kept = self.entries.iter().enumerate().filter_map(|(at, entry)| Some((at, entry, entry.keep?)));
        let concerns = move |entry: &Entry| entry.devices.iter().any(|pattern| matches(pattern, device));
        let kept = kept.filter(move |(_, entry, _)| concerns(entry));
        kept.map(|(at, entry, bytes)| (entry.right(at), capture::registry::ring_bytes(bytes, self.ring_bytes)))
    }

    /// Whether this group's ring can have readers that another reader could deceive.
    pub(crate) fn shares(&self, right: &Permission) -> bool {
        // Only root is in group 0.
        !self.is_for_one && right.group != 0
    }

    /// Whether this peer may do anything at all.
    pub fn knows(&self, peer: &Peer) -> bool {
        self.is_manager(peer) || self.entries.iter().any(|entry| entry.concerns(peer))
    }

    /// Whether this peer may look at other users' work, end it, and turn devices into interfaces.
    pub fn may_manage(&self, peer: &Peer) -> bool {
        self.is_manager(peer)
    }
}

/// The group whose members may connect, if it exists.
pub fn group() -> Option<u32> {
    names("/etc/group").get(GROUP).copied()
}

/// Whether this name matches a pattern, in which `*` stands for any bytes.
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

/// The weight that a key gives, or `otherwise`.
fn weight(key: &str, given: Option<u32>, otherwise: u32) -> Result<u32, String> {
    let (weight, most) = (given.unwrap_or(otherwise), ShareLimits::NONE.weight);
    if (1..=most).contains(&weight) { Ok(weight) } else { Err(format!("{key}: {weight} is no weight; 1 to {most}")) }
}

/// Parses a percentage, such as `20%` or `0.5%`, into millionths.
fn percent_ppm(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 4 {
        return None;
    }
    let ppm = whole.parse::<u32>().ok()?.checked_mul(10_000)? + format!("{part:0<4}").parse::<u32>().ok()?;
    (ppm <= 1_000_000).then_some(ppm)
}

/// Names of users by number, from `/etc/passwd`; if a number has several names, the first.
pub fn user_names() -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for (name, number) in entries("/etc/passwd") {
        names.entry(number).or_insert(name);
    }
    names
}

/// Names and numbers in `/etc/passwd` or `/etc/group`.
fn names(path: &str) -> Names {
    entries(path).into_iter().collect()
}

fn entries(path: &str) -> Vec<(String, u32)> {
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
    use program::CompileError;
    use program::cbpf::Instruction;

    fn peer(user: u32, groups: &[u32]) -> Peer {
        Peer { process: 1, user, groups: groups.to_vec() }
    }

    /// A compiler that knows some expressions, and fewer for frames without an Ethernet header.
    struct Played;

    impl Compile for Played {
        fn compile(&self, expression: &str, link_type: u16, _: u32) -> Result<Vec<Instruction>, CompileError> {
            let returns = Instruction { code: 6, jt: 0, jf: 0, k: 1 };
            let jumps_back = Instruction { code: 5, jt: 0, jf: 0, k: u32::MAX - 1 };
            let load = Instruction { code: 0, jt: 0, jf: 0, k: 0 };
            match expression {
                "absent" => Err(CompileError::unavailable("no libpcap: install libpcap0.8")),
                "again" => Ok(vec![load, jumps_back, returns]),
                "long" => Ok(vec![returns; 1 << 15]),
                "ether" if link_type != capture::ETHERNET => Err(CompileError::syntax("no link header")),
                "udp" | "ether" => Ok(vec![returns]),
                _ => Err(CompileError::syntax(format!("{expression} for {link_type} is nothing"))),
            }
        }

        fn describe(&self) -> String {
            "played".into()
        }
    }

    fn parse_by(text: &str, compiler: &dyn Compile) -> Result<Policy, String> {
        let names = |list: &[(&str, u32)]| list.iter().map(|(name, number)| (name.to_string(), *number)).collect();
        Policy::parse(text, &names(&[("anna", 1000)]), &names(&[("net", 50)]), compiler)
    }

    fn parse(text: &str) -> Result<Policy, String> {
        parse_by(text, &Played)
    }

    fn group(number: u32) -> Result<Permission, String> {
        Ok(number.into())
    }

    #[test]
    fn the_first_entry_that_fits_decides_and_nothing_else_is_allowed() {
        let policy = parse(
            "[limits]\nring = \"1M\"\n\n[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth*\"]\nmodes = [\"tap\"]\n\
             [[allow]]\ngroups = [\"net\", \"77\"]\ndevices = [\"*\"]\nmodes = [\"tap\", \"consume\"]\n",
        )
        .unwrap();
        assert_eq!((policy.ring_bytes, policy.readers, policy.keeps()), (1 << 20, READERS, false));
        assert_eq!(policy.instructions, Some(INSTRUCTIONS));
        assert_eq!(parse("[limits]\ninstructions = 99").map(|policy| policy.instructions), Ok(Some(99)));
        assert_eq!((Policy::without_file().instructions, Policy::for_one().instructions), (Some(INSTRUCTIONS), None));
        let (anna, both, stranger) = (peer(1000, &[1000]), peer(1000, &[50]), peer(1, &[1]));
        assert_eq!(policy.allows(&anna, "eth0", Mode::Tap), group(1));
        assert_eq!(policy.allows(&both, "wlan0", Mode::Tap), group(2));
        assert_eq!(policy.allows(&both, "eth0", Mode::Consume), group(2));
        assert_eq!(policy.allows(&peer(0, &[]), "any", Mode::Consume), group(0));
        let why = |peer, device, mode| policy.allows(peer, device, mode).unwrap_err();
        assert!(why(&anna, "wlan0", Mode::Tap).ends_with("does not let user 1000 tap `wlan0` (mode=tap)"));
        assert!(why(&anna, "eth0", Mode::Consume).ends_with("take packets of `eth0` away (mode=consume)"));
        assert!(why(&stranger, "eth0", Mode::Tap).contains("may use no device here"));
    }

    #[test]
    fn an_entry_says_what_its_users_take_of_a_wire() {
        let policy = parse(
            "[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth0\"]\nmodes = [\"flow\"]\nslices = \"62.5%\"\nweight = 100\n\
             user-weight = 3\n\
             [[allow]]\neverybody = true\ndevices = [\"*\"]\nmodes = [\"tap\", \"flow\"]\n",
        )
        .unwrap();
        let limits = |user, device| policy.allows_flows(&peer(user, &[]), Some(device)).unwrap();
        assert_eq!(limits(1000, "eth0"), ShareLimits { slices_ppm: 625_000, weight: 100, user_weight: 3 });
        assert_eq!(limits(1000, "eth1"), ShareLimits { slices_ppm: 200_000, weight: 10, user_weight: 1 });
        assert_eq!((limits(7, "eth0"), limits(0, "eth0")), (ShareLimits::default(), ShareLimits::NONE));
        let entry = |mode: &str, rest: &str| {
            parse(&format!("[[allow]]\neverybody = true\ndevices = [\"*\"]\nmodes = [\"{mode}\"]\n{rest}\n"))
        };
        for (text, ppm) in [("0%", 0), ("100%", 1_000_000), ("0.0001%", 1), ("20 %", 200_000), ("7.05%", 70_500)] {
            assert_eq!(percent_ppm(text), Some(ppm), "{text}");
        }
        for text in ["", "%", "20", "101%", "100.0001%", "-1%", "+1%", "1.%", ".5%", "1.00001%", "99999999999%", "1,5%"]
        {
            let error = entry("flow", &format!("slices = \"{text}\"")).unwrap_err();
            assert!(error.contains("number 1: slices") && error.contains("20%"), "{text}: {error}");
        }
        for key in ["weight", "user-weight"] {
            for weight in ["0", "1001"] {
                let error = entry("flow", &format!("{key} = {weight}")).unwrap_err();
                assert!(error.contains(&format!("1: {key}: {weight} is no weight; 1 to 1000")), "{error}");
            }
            assert!(entry("tap", &format!("{key} = 5")).unwrap_err().contains("does not allow \"flow\""));
        }
        assert!(entry("flow", "slices = \"5%\"").is_ok());
    }

    #[test]
    fn without_a_file_nobody_takes_packets_away() {
        let (root, member) = (peer(0, &[]), peer(1000, &[7]));
        for policy in [Policy::without_file(), Policy::for_one()] {
            assert_eq!(policy.allows(&root, "eth0", Mode::Tap), group(0));
            for peer in [&root, &member] {
                assert!(policy.allows(peer, "eth0", Mode::Consume).unwrap_err().contains("--local"));
            }
        }
        assert_eq!(parse("").unwrap().allows(&root, "eth0", Mode::Consume), group(0));
    }

    #[test]
    fn flows_are_for_entries_that_say_so() {
        let policy = parse(
            "[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth*\"]\nmodes = [\"flow\"]\n\
             [[allow]]\ngroups = [\"net\"]\ndevices = [\"*\"]\nmodes = [\"tap\"]\n",
        )
        .unwrap();
        let (root, anna, reader, stranger) = (peer(0, &[]), peer(1000, &[]), peer(7, &[50]), peer(1, &[1]));
        for (peer, device, allowed) in [
            (&root, Some("wlan0"), true),
            (&root, None, true),
            (&anna, Some("eth0"), true),
            (&anna, None, true),
            (&anna, Some("wlan0"), false),
            (&reader, Some("eth0"), false),
            (&reader, None, false),
            (&stranger, Some("eth0"), false),
        ] {
            assert_eq!(policy.allows_flows(peer, device).is_ok(), allowed, "{} {device:?}", peer.user);
        }
        let why = |peer, device| policy.allows_flows(peer, device).unwrap_err();
        assert!(
            why(&anna, Some("wlan0")).ends_with("does not let user 1000 open flows on `wlan0` (`modes = [\"flow\"]`)")
        );
        assert!(why(&reader, None).ends_with("does not let user 7 open flows on any device (`modes = [\"flow\"]`)"));
        assert!(why(&stranger, None).contains("user 1 may use no device here"));
        // Having flows does not include seeing the device.
        assert!(policy.allows(&anna, "eth0", Mode::Tap).unwrap_err().contains("tap `eth0`"));
    }

    #[test]
    fn without_a_file_flows_are_for_who_may_capture() {
        let policy = Policy::for_groups(vec![50]);
        let allowed = |user, groups: &[u32]| policy.allows_flows(&peer(user, groups), Some("eth0")).is_ok();
        assert_eq!((allowed(0, &[]), allowed(1000, &[50]), allowed(1000, &[51])), (true, true, false));
        assert!(
            Policy::for_one().allows_flows(&peer(1000, &[]), None).is_err(),
            "who has a daemon alone only captures"
        );
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
        assert_eq!(kept("eth0"), [(2.into(), 64 << 20), (3.into(), 1 << 20)]);
        assert_eq!(kept("wlan0"), [(2.into(), 64 << 20)]);
        assert_eq!(kept("eth1"), []);
        let root = peer(0, &[]);
        assert_eq!(policy.allows(&root, "wlan0", Mode::Tap), group(2), "root looks back into what is kept");
        assert_eq!(
            (policy.allows(&root, "eth1", Mode::Tap), policy.allows(&root, "eth0", Mode::Consume)),
            (group(0), group(0))
        );
    }

    #[test]
    fn who_has_a_filter_sees_no_more_and_root_has_none() {
        let policy = parse(
            "[[allow]]\nusers = [\"anna\"]\ndevices = [\"eth*\"]\nmodes = [\"tap\", \"consume\"]\nkeep = \"1M\"\n\
             filter = \" udp \"\n\
             [[allow]]\ngroups = [\"net\"]\ndevices = [\"eth0\"]\nmodes = [\"tap\"]\nkeep = \"1M\"\n\
             [[allow]]\neverybody = true\ndevices = [\"*\"]\nmodes = [\"tap\"]\nfilter = \"ether\"\n",
        )
        .unwrap();
        let only = |text| Some(Arc::new(Only::new(text, &Played).unwrap()));
        let [udp, ether] = ["udp", "ether"].map(only);
        assert_ne!(udp, ether);
        let (root, anna, stranger) = (peer(0, &[]), peer(1000, &[]), peer(7, &[]));
        for mode in [Mode::Tap, Mode::Consume] {
            assert_eq!(policy.allows(&anna, "eth0", mode), Ok(Permission { group: 1, only: udp.clone() }));
        }
        assert_eq!(policy.allows(&stranger, "eth0", Mode::Tap), Ok(Permission { group: 3, only: ether.clone() }));
        assert_eq!(policy.allows(&anna, "tun0", Mode::Tap), Ok(Permission { group: 3, only: ether }));
        let kept = |device| policy.kept(device).map(|(right, _)| right).collect::<Vec<_>>();
        assert_eq!(kept("eth0"), [Permission { group: 1, only: udp.clone() }, 2.into()]);
        assert_eq!(kept("eth1"), [Permission { group: 1, only: udp }]);
        // A user that may see everything gets no ring that has only a part.
        assert_eq!(policy.allows(&root, "eth0", Mode::Tap), group(2));
        assert_eq!(policy.allows(&root, "eth1", Mode::Tap), group(0));
    }

    /// Uses the daemon's real compiler.
    #[test]
    fn filters_are_what_tcpdump_takes() {
        let compiler = streamline::compiler();
        let entry = "[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\"]\n";
        let check = |filter: &str| parse_by(&format!("{entry}filter = \"{filter}\"\n"), &compiler).map(drop);
        if check("udp").is_err_and(|why| why.contains("libpcap0.8")) {
            return eprintln!("skipped: libpcap is not installed");
        }
        for right in ["udp port 53", "not tcp port 22 and not vlan", "ether host 00:00:5e:00:53:01"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, told) in [("prot 80", "syntax error"), ("ip6 protochain 6", "the kernel cannot run")] {
            let why = check(wrong).unwrap_err();
            assert!(
                why.starts_with(&format!("[[allow]] number 1: filter = `{wrong}`: ")) && why.contains(told),
                "{why}"
            );
        }
    }

    /// Expressions that people commonly use with tcpdump.
    const USUAL: [&str; 32] = [
        "tcp",
        "udp",
        "icmp",
        "arp",
        "icmp6",
        "not arp and not stp",
        "broadcast or multicast",
        "greater 1000",
        "port 53",
        "tcp port 80",
        "udp port 53 or icmp",
        "port 67 or port 68",
        "tcp port 80 or tcp port 443",
        "tcp port 80 or tcp port 443 or tcp port 8080",
        "portrange 1-1024",
        "udp portrange 5000-6000",
        "host 10.0.0.1",
        "host 10.1.2.3 and port 443",
        "tcp port 22 and host 10.0.0.1",
        "src host 192.168.1.1 and dst port 80",
        "(host 10.0.0.1 or host 10.0.0.2) and (port 80 or port 443)",
        "net 10.0.0.0/8",
        "net 10.0.0.0/8 and not port 22",
        "src net 192.168.0.0/16 and dst net 10.0.0.0/8",
        "dst portrange 1-1023 and not src net 10.0.0.0/8",
        "not port 22 and not port 53 and not port 123",
        "ip6 host 2001:db8::1",
        "net 2001:db8::/32 and tcp",
        "ether host 00:00:5e:00:53:01",
        "vlan and tcp port 80",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "ip proto 47 or esp",
    ];

    #[test]
    fn the_default_budget_is_what_64_usual_expressions_cost() {
        use capture::Opened;
        let compiler = streamline::compiler();
        let cost = |expression: &str| -> Result<u32, String> {
            let code = compiler.compile(expression, capture::ETHERNET, 262_144).map_err(|error| error.message)?;
            let program = program::from_cbpf(&code).map_err(|error| error.to_string())?;
            Ok(streamline::devices::opener::Opener.cost(Some(&program), 1))
        };
        match cost("udp") {
            Ok(_) => {}
            Err(why) if why.contains("libpcap0.8") => return eprintln!("skipped: libpcap is not installed"),
            Err(why) => panic!("{why}"),
        }
        let costs = USUAL.map(|expression| cost(expression).unwrap_or_else(|why| panic!("{expression}: {why}")));
        let twice = 2 * costs.iter().sum::<u32>();
        assert!(twice <= INSTRUCTIONS && twice > INSTRUCTIONS / 2, "64 expressions cost {twice}");
        assert!(costs.iter().all(|cost| (6..77).contains(cost)), "{costs:?}");
    }

    #[test]
    fn mistakes_are_told() {
        for (text, told) in [
            ("[[allow]]\nusers=[\"bob\"]\ndevices=[]\nmodes=[]", "there is no user `bob`"),
            ("[[allow]]\ndevices=[]\nmodes=[]", "allows nobody"),
            ("[[allow]]\nusers=[\"anna\"]\ndevices=[]\nmodes=[\"tab\"]", "unknown variant `tab`"),
            ("[limits]\nring=\"big\"", "`big` is no size"),
            ("[limits]\ninstructions=-1", "expected u32"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\"]\nkeep=\"all\"", "`all` is no size"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\"]\nkeep=\"9G\"", "limits.ring"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"consume\"]\nkeep=\"9M\"", "no readers that look back"),
            (
                "[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\n[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=\"prot\"",
                "[[allow]] number 2: filter = `prot`: prot for 1 is nothing",
            ),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=\"absent\"", "filter = `absent`: no libpcap"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=\"again\"", "repeats (`protochain`)"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=\"long\"", "32768 instructions"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=\" \"", "filter: it is empty"),
            ("[[allow]]\neverybody=true\ndevices=[]\nmodes=[]\nfilter=53", "expected a string"),
            (
                "[[allow]]\neverybody=true\ndevices=[]\nmodes=[\"tap\",\"flow\"]\nfilter=\"udp\"",
                "[[allow]] number 1: filter: a flow gets packets past it",
            ),
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
