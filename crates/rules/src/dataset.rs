//! Sets of values that rules query and extend (`dataset`). A rule set shares its sets by name. Their initial values
//! come from files beside the rules; the sets are never written to files.

use crate::mistake::Read;
use crate::text::{Word, unsigned};
use base::limits::{RULES_DATASET_BYTES, RULES_DATASET_FILE_BYTES};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The type of a set's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Md5,
    Sha1,
    Sha256,
    Ipv4,
    Ipv6,
    Ip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// The value is in the set.
    IsSet,
    IsNotSet,
    /// The value is new. A rule that matches adds it.
    Set,
    /// The value is in the set. A rule that matches removes it.
    Unset,
}

impl Verb {
    /// Whether a rule that matches changes the set.
    pub fn changes(self) -> bool {
        matches!(self, Verb::Set | Verb::Unset)
    }
}

/// A change that a rule makes to a set once all its conditions hold. A rule may be tried several times before.
#[derive(Debug)]
pub(crate) struct Change {
    pub set: Arc<Dataset>,
    pub verb: Verb,
    pub value: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct Dataset {
    kind: Kind,
    /// Memory limit in bytes.
    most: usize,
    values: Mutex<Values>,
    /// Values rejected for lack of room.
    full: AtomicU64,
}

#[derive(Debug, Default)]
struct Values {
    /// `true`: a rule added the value; `false`: it is from the set's file.
    all: HashMap<Box<[u8]>, bool>,
    bytes: usize,
}

/// Overhead of a value, in bytes.
const VALUE_BYTES: usize = 32;

impl Values {
    /// Adds a value. Returns false if there is no room.
    fn add(&mut self, value: &[u8], most: usize, by_rule: bool) -> bool {
        if self.all.contains_key(value) {
            return true;
        }
        let bytes = self.bytes + value.len() + VALUE_BYTES;
        if bytes > most {
            return false;
        }
        self.bytes = bytes;
        self.all.insert(value.into(), by_rule);
        true
    }
}

impl Dataset {
    fn new(kind: Kind, most: usize) -> Dataset {
        Dataset { kind, most, values: Mutex::default(), full: AtomicU64::new(0) }
    }

    /// Whether the rule's conditions on a buffer hold.
    pub fn holds(&self, verb: Verb, buffer: &[u8]) -> bool {
        let Some(value) = self.kind.value(buffer) else { return verb == Verb::IsNotSet };
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.all.contains_key(&*value) == matches!(verb, Verb::IsSet | Verb::Unset)
    }
}

impl Change {
    pub fn apply(&self) {
        let Change { set, verb, value } = self;
        let Some(value) = set.kind.value(value) else { return };
        let mut values = set.values.lock().unwrap_or_else(PoisonError::into_inner);
        match verb {
            Verb::IsSet | Verb::IsNotSet => {}
            Verb::Set if !values.add(&value, set.most, true) => drop(set.full.fetch_add(1, Relaxed)),
            Verb::Set => {}
            Verb::Unset if values.all.remove(&*value).is_some() => {
                values.bytes = values.bytes.saturating_sub(value.len() + VALUE_BYTES);
            }
            Verb::Unset => {}
        }
    }
}

impl Kind {
    fn of_name(name: &str) -> Option<Kind> {
        Some(match name {
            "string" => Kind::Text,
            "md5" => Kind::Md5,
            "sha256" => Kind::Sha256,
            "ipv4" => Kind::Ipv4,
            "ipv6" => Kind::Ipv6,
            "ip" => Kind::Ip,
            _ => return None,
        })
    }

    /// Converts a buffer to a value; `None` if its length is wrong.
    fn value(self, buffer: &[u8]) -> Option<std::borrow::Cow<'_, [u8]>> {
        let length = match self {
            Kind::Text => return Some(buffer.into()),
            Kind::Ip if buffer.len() == 4 => return Some(mapped(buffer).into()),
            Kind::Md5 | Kind::Ipv6 | Kind::Ip => 16,
            Kind::Sha1 => 20,
            Kind::Sha256 => 32,
            Kind::Ipv4 => 4,
        };
        (buffer.len() == length).then(|| buffer.into())
    }

    /// Parses a value from its form in a file.
    fn read(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Kind::Text => STANDARD.decode(text).ok(),
            Kind::Md5 | Kind::Sha1 | Kind::Sha256 => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let pairs = text.as_bytes().chunks(2);
                let bytes = pairs.map(|pair| match *pair {
                    [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
                    _ => None,
                });
                let bytes: Option<Vec<u8>> = bytes.collect();
                bytes.filter(|bytes| self.value(bytes).is_some())
            }
            Kind::Ipv4 | Kind::Ipv6 | Kind::Ip => match (text.parse().ok()?, self) {
                (IpAddr::V4(address), Kind::Ipv4) => Some(address.octets().to_vec()),
                (IpAddr::V4(address), _) => Some(mapped(&address.octets())),
                (IpAddr::V6(address), Kind::Ipv6 | Kind::Ip) => Some(address.octets().to_vec()),
                (IpAddr::V6(_), _) => None,
            },
        }
    }
}

/// Maps an IPv4 address to IPv6 (RFC 4291, 2.5.5.2).
fn mapped(address: &[u8]) -> Vec<u8> {
    [&[0; 10][..], &[0xff; 2], address].concat()
}

#[derive(Debug, Default)]
pub(crate) struct Datasets {
    /// Where the files that rules name are; `None`: rules may not name files.
    folder: Option<PathBuf>,
    /// By name, with the file that the set was loaded from.
    sets: BTreeMap<String, (Arc<Dataset>, Option<String>)>,
    /// Digest lists, by file and type.
    lists: Vec<(String, Kind, Arc<Dataset>)>,
}

impl Datasets {
    pub fn new(folder: Option<PathBuf>) -> Datasets {
        Datasets { folder, ..Datasets::default() }
    }

    /// Reads `dataset`: the set and the operation.
    pub fn read(&mut self, value: Word<'_>) -> Read<(Arc<Dataset>, Verb)> {
        let words = value.split(',');
        let verb = match words[0].text {
            "set" => Verb::Set,
            "unset" => Verb::Unset,
            "isset" => Verb::IsSet,
            "isnotset" => Verb::IsNotSet,
            other => return words[0].wrong(format!("dataset does not know \u{201c}{other}\u{201d}")),
        };
        let Some(name) = words.get(1).filter(|name| !name.text.is_empty()) else {
            return value.wrong("dataset needs the name of a set");
        };
        let (mut kind, mut most, mut file) = (None, RULES_DATASET_BYTES, None);
        for word in &words[2..] {
            let (key, rest) = word.text.split_once(' ').unwrap_or((word.text, ""));
            let rest = Word::new(rest, word.at + key.len() + 1).trim();
            match key {
                "type" => match Kind::of_name(rest.text) {
                    Some(known) => kind = Some(known),
                    None => return rest.wrong(format!("a set has no values of the type {}", rest.text)),
                },
                "load" => file = Some(rest),
                "memcap" => most = size(rest)?.min(RULES_DATASET_BYTES),
                // Ignored: the table grows as needed.
                "hashsize" => drop(unsigned(rest, 32)?),
                "format" if rest.text == "csv" => {}
                "state" | "save" => return word.wrong("rules write no files: a set is not saved"),
                other => return word.wrong(format!("dataset does not know \u{201c}{other}\u{201d}")),
            }
        }
        if let Some((known, from)) = self.sets.get(name.text) {
            if kind.is_some_and(|kind| kind != known.kind) {
                return name.wrong(format!("an earlier rule says another type of the set {}", name.text));
            }
            if file.is_some_and(|file| from.as_deref() != Some(file.text)) {
                return name.wrong(format!("an earlier rule says another file of the set {}", name.text));
            }
            return Ok((Arc::clone(known), verb));
        }
        let Some(kind) = kind else { return name.wrong("dataset needs a type for a set that is new") };
        let set = Dataset::new(kind, most);
        if let Some(file) = file {
            self.load(file, &set)?;
        }
        let set = Arc::new(set);
        self.sets.insert(name.text.to_string(), (Arc::clone(&set), file.map(|file| file.text.to_string())));
        Ok((set, verb))
    }

    /// The digest list in a file.
    pub fn list(&mut self, file: Word<'_>, kind: Kind) -> Read<Arc<Dataset>> {
        if let Some((_, _, list)) = self.lists.iter().find(|list| list.0 == file.text && list.1 == kind) {
            return Ok(Arc::clone(list));
        }
        let list = Dataset::new(kind, RULES_DATASET_BYTES);
        self.load(file, &list)?;
        let list = Arc::new(list);
        self.lists.push((file.text.to_string(), kind, Arc::clone(&list)));
        Ok(list)
    }

    fn load(&self, name: Word<'_>, set: &Dataset) -> Read<()> {
        let text = self.text(name)?;
        let mut values = set.values.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, line) in (1..).zip(text.lines()) {
            // A comma separates the value from its reputation.
            let value = line.split(',').next().unwrap_or_default().trim();
            if value.is_empty() || value.starts_with('#') {
                continue;
            }
            let Some(value) = set.kind.read(value) else {
                return name.wrong(format!("{}: line {number} is no value of this type", name.text));
            };
            if !values.add(&value, set.most, false) {
                return name.wrong(format!("{}: the set takes more than {} bytes", name.text, set.most));
            }
        }
        Ok(())
    }

    fn text(&self, name: Word<'_>) -> Read<String> {
        let path = Path::new(name.text);
        let stays = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let Some(folder) = self.folder.as_ref().filter(|_| stays && !name.text.is_empty()) else {
            return name.wrong("a file that a rule names lies in the folder of the rules, or below it");
        };
        let read = || -> std::io::Result<String> {
            let file = std::fs::File::open(folder.join(path))?;
            // Reading a pipe would never end.
            if !file.metadata()?.is_file() {
                return Err(std::io::Error::other("that is no file"));
            }
            let mut text = String::new();
            file.take(RULES_DATASET_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) if text.len() <= RULES_DATASET_FILE_BYTES => Ok(text),
            Ok(_) => name.wrong(format!("{} has more than {RULES_DATASET_FILE_BYTES} bytes", name.text)),
            Err(error) => name.wrong(format!("cannot read {}: {error}", name.text)),
        }
    }

    /// Copies values that rules added to the same-named sets of `other`.
    pub fn adopt(&self, other: &Datasets) {
        for (name, (set, _)) in &self.sets {
            let Some((old, _)) = other.sets.get(name).filter(|(old, _)| old.kind == set.kind) else { continue };
            let old = old.values.lock().unwrap_or_else(PoisonError::into_inner);
            let mut values = set.values.lock().unwrap_or_else(PoisonError::into_inner);
            for (value, _) in old.all.iter().filter(|value| *value.1) {
                if !values.add(value, set.most, true) {
                    set.full.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Values rejected for lack of room since the last call.
    pub fn take_full(&self) -> u64 {
        self.sets.values().map(|(set, _)| set.full.swap(0, Relaxed)).sum()
    }
}

/// Reads a byte count with a unit: `10mb`.
pub(crate) fn size(word: Word<'_>) -> Read<usize> {
    let digits = word.text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.text.split_at(digits);
    let shift = match &*unit.trim().to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return word.wrong(format!("\u{201c}{}\u{201d} is no size", word.text)),
    };
    let bytes = unsigned(Word::new(number, word.at), 32)?;
    Ok(usize::try_from(bytes << shift).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let rows = [
            (Kind::Text, "YWJj", Some(&b"abc"[..])),
            (Kind::Text, "abc", None),
            (
                Kind::Md5,
                "00112233445566778899aabbccddeeff",
                Some(&[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]),
            ),
            (Kind::Md5, "0011", None),
            (Kind::Sha256, "xx", None),
            (Kind::Ipv4, "10.0.0.1", Some(&[10, 0, 0, 1])),
            (Kind::Ipv4, "::1", None),
            (Kind::Ip, "10.0.0.1", Some(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1])),
        ];
        for (kind, text, expected) in rows {
            assert_eq!(kind.read(text).as_deref(), expected, "{text}");
        }
        assert_eq!(size(Word::new("10mb", 0)), Ok(10 << 20));
        assert!(size(Word::new("10 apples", 0)).is_err());
    }

    #[test]
    fn a_set_is_one_for_all_rules() {
        let mut sets = Datasets::default();
        let (set, verb) = sets.read(Word::new("set,seen,type string,memcap 100", 0)).unwrap();
        let change = |verb, value: &[u8]| {
            let holds = set.holds(verb, value);
            Change { set: Arc::clone(&set), verb, value: value.into() }.apply();
            holds
        };
        assert!(set.holds(verb, b"a") && change(verb, b"a") && !change(verb, b"a") && set.holds(Verb::IsNotSet, b"b"));
        let (same, verb) = sets.read(Word::new("isset,seen", 0)).unwrap();
        assert!(same.holds(verb, b"a") && !same.holds(verb, b"b"));
        // Two values more than the limit allows.
        assert!([b"c", b"d", b"e", b"f"].iter().all(|value| change(Verb::Set, *value)));
        assert_eq!((sets.take_full(), sets.take_full()), (2, 0));
        let mut next = Datasets::default();
        let (kept, _) = next.read(Word::new("isset,seen,type string", 0)).unwrap();
        next.adopt(&sets);
        assert!(kept.holds(Verb::IsSet, b"a") && change(Verb::Unset, b"a") && !set.holds(Verb::IsSet, b"a"));
        for wrong in [
            "isset",
            "is,seen",
            "isset,seen,type md5",
            "isset,other",
            "isset,other,type text",
            "isset,other,type string,load ../x",
            "isset,other,type string,load /x",
            "set,other,type string,state x",
        ] {
            assert!(sets.read(Word::new(wrong, 0)).is_err(), "{wrong}");
        }
    }
}
