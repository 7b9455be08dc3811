//! The shared captures and the known facts about them, for the tests of `packet` and `protocols`. Without them the
//! tests are skipped, with a message.

use std::path::{Path, PathBuf};

use packet::LinkType;
use packet::capture::{Damage, Record, Stop};
use packet::capture_file::Reader;
use serde_json::Value;

/// The folder of the shared captures: `data` in `STREAMLINE_SHARED`, or in `shared` beside the workspace. Where it is
/// absent, that of the part which is bundled (`testkit::shared`, which builds on this crate).
pub fn folder() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let beside = || crates.join("../../shared");
    let whole = std::env::var_os("STREAMLINE_SHARED").map_or_else(beside, PathBuf::from).join("data");
    if whole.join("expected").is_dir() { whole } else { crates.join("testkit/data") }
}

pub struct Capture {
    pub name: String,
    pub file: Vec<u8>,
    pub packets: Vec<Packet>,
    /// Why reading ended; `None`: at the regular end.
    pub damage: Option<Damage>,
    pub expected: Value,
}

pub struct Packet {
    pub link: LinkType,
    /// Offset in the file of the window in which the record was found.
    pub window: usize,
    pub record: Record,
}

impl Capture {
    pub fn data(&self, packet: &Packet) -> &[u8] {
        packet.record.data(&self.file[packet.window..])
    }

    pub fn feature(&self, name: &str) -> u64 {
        self.expected["packet_features"][name].as_u64().unwrap_or(0)
    }
}

/// All captures, one at a time, sorted by name.
pub fn captures() -> impl Iterator<Item = Capture> {
    let folder = folder();
    let files = std::fs::read_dir(folder.join("captures")).expect("a part of them is bundled");
    let names = files.map(|file| file.expect("readable folder").file_name().into_string().expect("UTF-8 name"));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.into_iter().map(move |name| load(&folder, name))
}

fn load(folder: &Path, name: String) -> Capture {
    let file = std::fs::read(folder.join("captures").join(&name)).expect("readable capture");
    let text = std::fs::read(folder.join("expected").join(format!("{name}.json"))).expect("every capture has one");
    let expected = serde_json::from_slice(&text).expect("valid JSON");
    let (packets, damage) = read(&file, usize::MAX);
    Capture { name, file, packets, damage, expected }
}

/// Reads a file through windows of at most `window_bytes`, or more if the reader asks for more.
pub fn read(file: &[u8], window_bytes: usize) -> (Vec<Packet>, Option<Damage>) {
    let mut packets = Vec::new();
    let (mut at, mut wanted) = (0, window_bytes);
    let mut reader = None;
    loop {
        let rest = &file[at..];
        let window = &rest[..wanted.min(rest.len())];
        let step = match &mut reader {
            None => Reader::open(window).map(|(opened, consumed)| {
                reader = Some(opened);
                at += consumed;
            }),
            Some(reader) => reader.next(window).map(|record| {
                let link = reader.interface(record.interface).expect("a record has an interface").link;
                packets.push(Packet { link, window: at, record });
                at += record.consumed;
            }),
        };
        match step {
            Ok(()) => wanted = window_bytes,
            Err(Stop::Damaged(damage)) => return (packets, Some(damage)),
            Err(Stop::More { consumed, need }) => {
                let rest = &file[at + consumed..];
                if need > rest.len() {
                    let ended = reader.map(|reader| reader.finish(rest));
                    return (packets, ended.and_then(Result::err));
                }
                at += consumed;
                wanted = need.max(window_bytes);
            }
        }
    }
}
