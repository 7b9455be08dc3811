//! The shared captures and the known facts about them, for the tests of `packet` and `protocols`. Without them the
//! tests are skipped, with a message.

use std::path::{Path, PathBuf};

use packet::LinkType;
use packet::capture::{Damage, Reader, Record, Stop};
use serde_json::Value;

/// The folder of the shared captures: `STREAMLINE_SHARED`, or `shared` beside the workspace.
pub fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("STREAMLINE_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    if folder.join("data/captures").is_dir() {
        return Some(folder.join("data"));
    }
    eprintln!("skipped: no captures in {}; set STREAMLINE_SHARED to their folder", folder.display());
    None
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
    let mut names: Vec<String> = Vec::new();
    if let Some(folder) = &folder {
        let files = std::fs::read_dir(folder.join("captures")).expect("the folder was there a moment ago");
        names.extend(files.map(|file| file.expect("readable folder").file_name().into_string().expect("UTF-8 name")));
        names.sort();
        assert!(!names.is_empty(), "no captures in {}", folder.display());
    }
    names.into_iter().filter_map(move |name| Some(load(folder.as_ref()?, name)))
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
