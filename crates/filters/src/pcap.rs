//! Reads capture files, pcap and pcapng. Maps a file where possible, else reads it.
//!
//! - `pcap/files.rs`: which files a list of names means. `pcap/open.rs`: what kind of file one is.
//! - `pcap/mapped.rs`, `pcap/streamed.rs`: the two ways to read a capture. `pcap/input.rs`, `pcap/unpack.rs`: streams
//!   for the second, decompressed.
//! - `pcap/scan.rs`: from bytes to descriptors, the hot loop.
//! - `pcap/memory.rs`: reads everything into memory first, then gives it any number of times.
//!
//! This file goes from one capture to the next and sorts the ways in which they end.

mod files;
mod input;
mod mapped;
pub(crate) mod memory;
mod open;
mod scan;
mod streamed;
#[cfg(test)]
mod tests;
mod unpack;

use crate::parts::system::reason;
use buffer::SegmentId;
use files::{Candidate, Files, Target};
use filter::Progress;
use filter::prelude::*;
use input::{Input, Pipe};
use mapped::Mapped;
use memory::Replay;
use open::{Opened, Refusal};
use packet::capture::{Cause, Damage};
use std::time::Duration;
use streamed::Streamed;

/// The kind `pcap`.
pub static KIND: Kind = Kind::new("pcap", "reads captures from files", make)
    .also(&["read", "open", "file", "load", "pcapng"])
    .help(
        "Reads pcap and pcapng files, also those that gzip, zstd, xz, bzip2 or lz4 compressed, in the order given. What \
         a compressed file may expand to has no limit; its window has: 8 MiB for zstd, 64 MiB for xz. A folder stands for the captures in it and below it, sorted by path and recognised by their first bytes, \
         not by their names; `*` and `?` in a name stand for any bytes and any one byte of it; `-` is standard input.\n\
         \n\
         A file is mapped and its frames are not copied; with map=no, from a pipe or from a compressed file they are \
         read in pieces of 256 KiB. Times are nanoseconds, whatever the unit in the file. Each interface of a pcapng file \
         keeps its link type, name, description and snap length, and `save` writes them back.\n\
         \n\
         follow=yes goes on with the last file as it grows, as `tail -f` does, and reads what comes into a folder or \
         begins to match a pattern; files whose names end in `.part` are left alone until they are renamed. \
         Compressed files are read to their end. It ends with Ctrl-C. Let `save` write its series outside the folder that is \
         followed: each of its files would be read and saved again.\n\
         \n\
         memory=yes reads everything into memory first and gives it then, so that no file is in the way of what is \
         measured. loop=3 gives it three times, loop=0 until the run is stopped. Times go on from round to round; the \
         frames stay what they are, so that `tcp` takes later rounds for packets sent again.\n\
         \n\
         A file or folder that cannot be read is a warning, by whichever name or pattern it was found: one that is no \
         capture, that is empty or closed to the user. So is compressed data that ends early or is damaged; what precedes \
         the damage was given. `run -q` keeps these warnings, and --strict makes them exit status 1, as they are where \
         nothing could be read. A record cut at the end of a file is a warning, too. Damage inside a capture, and a file \
         that was cut while it was read, make the run fail with status 1, after everything readable in all files was \
         given. A file that does not exist ends the run before it begins.",
    )
    .params(&[
        Param::new("file", ParamType::List, "files, folders, patterns with * and ?, or - for standard input")
            .required()
            .main(),
        Param::new("follow", ParamType::Flag, "read on as the last file grows and as files come into a folder")
            .default("no"),
        Param::new("map", ParamType::Flag, "map files; no reads them, as for files that others cut or that lie far away")
            .default("yes"),
        Param::new("memory", ParamType::Flag, "read everything into memory before the first frame is given").default("no"),
        Param::new("loop", ParamType::Number, "how often everything is given, with memory=yes; 0 = until it is stopped")
            .default("1"),
    ])
    .source(Type::Frame)
    .leaves_nothing()
    .runs_in(Spaces::APP)
    .examples(&[Example { request: "pcap web.pcap browse.pcap | count", output: "{\"blocks\":250,\"bytes\":43378,\"wire_bytes\":43378}" }]);

/// The outcome of pulling one capture.
enum Step {
    /// Gave frames, or none this time: pull again.
    Given,
    /// No data now.
    Waiting,
    /// The capture has ended; some frames may have been given.
    End(Ending),
}

/// How a capture ended.
enum Ending {
    /// Complete.
    Whole,
    /// The capture's own data is invalid.
    Damaged(Damage),
    /// Another capture follows at this offset in the same file.
    Another(u64),
    /// The compressed data ends early or is damaged.
    Cut(String),
    /// Reading failed.
    Failed(String),
    /// Not a capture that can be read.
    Refused(Refusal),
}

struct Current {
    candidate: Candidate,
    reading: Reading,
    /// The file may still grow.
    grows: bool,
}

enum Reading {
    Mapped(Mapped),
    Streamed(Box<Streamed>),
}

struct Pcap {
    files: Files,
    current: Option<Current>,
    /// Memory of the previous capture. Its last frames may be in use until the next pull.
    before: Option<SegmentId>,
    follow: bool,
    map: bool,
    /// Number of damaged captures.
    failures: u64,
    /// The failure of the first of them. Later failures were given as notices.
    failure: Option<String>,
    /// Number of files that turned out to be captures, and of those that did not.
    captures: u64,
    refused: u64,
    bytes_done: u64,
    bytes_all: Option<u64>,
    nap: Nap,
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let (pcap, rounds) = (Pcap::new(params)?, params.number("loop").unwrap_or(1));
    match (params.flag("memory"), params.flag("follow")) {
        (true, true) => {
            Err(ParamError::new("memory", "a file that is followed has no end, and all of it is to be read first"))
        }
        (true, false) => Ok(Instance::source(Replay::new(pcap, rounds)?)),
        (false, _) if rounds != 1 => Err(ParamError::new("loop", "files are read once").with_help("write: memory=yes")),
        (false, _) => Ok(Instance::source(pcap)),
    }
}

impl Pcap {
    fn new(params: &Params) -> Result<Pcap, ParamError> {
        let (names, follow) = (params.list("file"), params.flag("follow"));
        if names.iter().any(String::is_empty) {
            return Err(ParamError::new("file", "a name is empty").with_help("`.` is the current folder"));
        }
        if names.iter().filter(|name| *name == "-").count() > 1 {
            return Err(ParamError::new("file", "standard input can be read once only"));
        }
        let files = Files::find(names, follow).map_err(refused)?;
        check_any(&files, names, follow)?;
        let bytes_all = files.total_bytes().filter(|_| !follow);
        Ok(Pcap {
            files,
            current: None,
            before: None,
            follow,
            map: params.flag("map"),
            failure: None,
            failures: 0,
            captures: 0,
            refused: 0,
            bytes_done: 0,
            bytes_all,
            nap: Nap::default(),
        })
    }
}

fn refused(refusal: Refusal) -> ParamError {
    let error = ParamError::system(refusal.text);
    match refusal.help {
        Some(help) => error.with_help(help),
        None => error,
    }
}

/// Requires one readable file. Other files are checked at their turn; their errors must not hide this file.
fn check_any(files: &Files, names: &[String], follow: bool) -> Result<(), ParamError> {
    if follow && files.is_open_ended() {
        return Ok(());
    }
    let mut first = None;
    for candidate in files.left() {
        let Target::Path(path) = &candidate.target else { return Ok(()) };
        match open::open(path, follow) {
            Ok(_) => return Ok(()),
            Err(refusal) if candidate.named || !refusal.foreign => first = first.or(Some(refusal)),
            Err(_) => {}
        }
    }
    let first = first.or_else(|| files.first_unread().cloned());
    Err(refused(
        first.unwrap_or_else(|| Refusal::new(format!("no captures in {}", base::terminal::line(&names.join(", "))))),
    ))
}

impl Source for Pcap {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        if let Some(segment) = self.before.take() {
            cx.rings.recycle(segment);
        }
        // Report folders that could not be read. With `follow` they are tried again later.
        while let Some(refusal) = self.files.next_unread() {
            cx.leave_out(refusal.to_string());
        }
        let Some(current) = &mut self.current else { return self.begin(cx) };
        let step = match &mut current.reading {
            Reading::Mapped(mapped) => mapped.pull(current.grows, cx),
            Reading::Streamed(streamed) => streamed.pull(current.grows, cx),
        };
        match step {
            Step::Given => {
                self.nap.wake();
                Ok(Pull::Ready)
            }
            Step::Waiting => Ok(self.wait()),
            Step::End(ending) => {
                self.end(ending, cx);
                Ok(Pull::Ready)
            }
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        // The run stops before the end of this capture.
        if let Some(current) = self.current.take() {
            cx.rings.retire(current.reading.segment());
        }
    }

    fn progress(&self) -> Option<Progress> {
        let here = self.current.as_ref().map_or(0, Current::bytes_read);
        Some(Progress { done: self.bytes_done + here, all: self.bytes_all })
    }
}

impl Current {
    /// At most the length found at the start: the file may have grown since the total was computed.
    fn bytes_read(&self) -> u64 {
        self.reading.position().min(self.candidate.bytes.unwrap_or(u64::MAX))
    }
}

impl Reading {
    fn position(&self) -> u64 {
        match self {
            Reading::Mapped(mapped) => mapped.position(),
            Reading::Streamed(streamed) => streamed.position(),
        }
    }

    fn segment(&self) -> SegmentId {
        match self {
            Reading::Mapped(mapped) => mapped.segment(),
            Reading::Streamed(streamed) => streamed.segment(),
        }
    }
}

impl Pcap {
    /// Begins the next file. After the last, returns the outcome of the run.
    fn begin(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let Some(candidate) = self.files.next() else {
            if self.follow && self.files.is_open_ended() {
                return Ok(self.wait());
            }
            return match self.outcome() {
                Some(text) => Err(Box::new(Failure::System(text))),
                None => Ok(Pull::End),
            };
        };
        let grows = self.follow && self.files.left().is_empty();
        match self.open(&candidate, grows, cx) {
            Ok((reading, grows)) => self.current = Some(Current { candidate, reading, grows }),
            Err(refusal) => self.refuse(&refusal, cx),
        }
        Ok(Pull::Ready)
    }

    /// The failure of the whole run, if any file failed.
    fn outcome(&mut self) -> Option<String> {
        match (self.failure.take(), self.failures) {
            (Some(text), 0 | 1) => Some(text),
            (Some(text), failures) => Some(format!("{text}; {} in all could not be read whole", in_words(failures))),
            (None, _) if self.captures == 0 && self.refused > 0 => {
                Some(format!("no capture among {} in {}", in_words(self.refused), self.files.names().join(", ")))
            }
            (None, _) => None,
        }
    }

    /// Opens a file: mapped if possible, else as a stream. Returns also whether it may grow.
    fn open(&self, candidate: &Candidate, grows: bool, cx: &mut Context<'_>) -> Result<(Reading, bool), Refusal> {
        let name = candidate.name();
        let unread = |error: std::io::Error| Refusal::new(format!("cannot read {name}: {}", reason(&error)));
        let (input, grows) = match &candidate.target {
            Target::Stdin => (Input::Pipe(Pipe::stdin().map_err(unread)?), false),
            Target::Path(path) => match open::open(path, grows)? {
                Opened::Capture(file) if self.map => match Mapped::open(file, cx) {
                    Ok(mapped) => return Ok((Reading::Mapped(mapped), grows)),
                    // Mapping failed: too many maps, or the file system does not support it.
                    Err(_) => (Input::File(std::fs::File::open(path).map_err(unread)?), grows),
                },
                Opened::Capture(file) => (Input::File(file), grows),
                Opened::Compressed(file) => (Input::File(file), false),
                Opened::Pipe => (Input::Pipe(Pipe::path(path).map_err(unread)?), false),
            },
        };
        let streamed = Streamed::open(name, input, cx);
        let streamed = streamed.ok_or_else(|| Refusal::new("there are no views left to read with".into()))?;
        Ok((Reading::Streamed(Box::new(streamed)), grows))
    }

    /// Waits for data, longer each time. Looks for new files now and then.
    fn wait(&mut self) -> Pull {
        if self.follow && self.nap.looks_again() {
            self.files.look_again();
            if let (Some(current), false) = (&mut self.current, self.files.left().is_empty()) {
                // A newer file appeared: read this one once more to its end, then leave it.
                current.grows = false;
            }
        }
        Pull::Idle(self.nap.next())
    }

    fn end(&mut self, ending: Ending, cx: &mut Context<'_>) {
        let Some(current) = self.current.take() else { return };
        // All of a file counts as read, even where its end cannot be.
        self.bytes_done += current.candidate.bytes.unwrap_or_else(|| current.bytes_read());
        let Current { candidate, reading, .. } = current;
        cx.rings.retire(reading.segment());
        self.before = Some(reading.segment());
        let name = candidate.name();
        self.captures += u64::from(!matches!(ending, Ending::Refused(_)));
        match ending {
            Ending::Whole => {}
            Ending::Damaged(damage @ Damage { cause: Cause::EndsInRecord { .. }, .. }) => {
                cx.count("captures cut at their end", 1);
                cx.notice(format!("{name}: {damage}; what precedes it was read"));
            }
            Ending::Cut(text) => {
                cx.leave_out(format!("{name}: {text}; what precedes it was read"));
            }
            Ending::Damaged(damage) => {
                cx.count("captures damaged", 1);
                let help = damage.cause.help().map_or(String::new(), |help| format!(" ({help})"));
                self.fail(format!("{name}: {damage}; what precedes it was read{help}"), cx);
            }
            Ending::Another(offset) => {
                cx.count("captures damaged", 1);
                let text = format!("{name}: byte {offset}: another capture begins here; what precedes it was read");
                self.fail(text, cx);
            }
            Ending::Failed(text) => {
                cx.count("captures damaged", 1);
                self.fail(format!("{name}: {text}"), cx);
            }
            Ending::Refused(refusal) => self.refuse(&refusal, cx),
        }
    }

    fn refuse(&mut self, refusal: &Refusal, cx: &mut Context<'_>) {
        self.refused += 1;
        cx.leave_out(refusal.to_string());
    }

    /// Keeps the first failure, with which the run fails at its end; reports the others as notices now. Reports the
    /// first one too if the end may be far away.
    fn fail(&mut self, text: String, cx: &mut Context<'_>) {
        self.failures += 1;
        let is_end = self.files.left().is_empty() && !self.follow;
        if self.failure.is_some() || !is_end {
            cx.notice(text.clone());
        }
        self.failure.get_or_insert(text);
    }
}

fn in_words(count: u64) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

/// How long to wait for data. Doubles each time: new data is seen soon, and an idle file costs little.
#[derive(Default)]
struct Nap {
    silent: u32,
}

impl Nap {
    const SHORTEST: Duration = Duration::from_micros(50);
    /// 50 µs doubled ten times.
    const DOUBLED: u32 = 10;
    /// Naps between two searches of the folders: about half a second once the naps are long.
    const LOOKS: u32 = 10;

    fn wake(&mut self) {
        self.silent = 0;
    }

    fn next(&mut self) -> Duration {
        self.silent = self.silent.saturating_add(1);
        Nap::SHORTEST * (1 << self.silent.min(Nap::DOUBLED))
    }

    fn looks_again(&self) -> bool {
        self.silent % Nap::LOOKS == Nap::LOOKS - 1
    }
}
