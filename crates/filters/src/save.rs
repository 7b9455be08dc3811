//! Writes captures: pcapng with every known fact about each frame, or classic pcap.
//!
//! - `save/encode.rs`: frames and interfaces as bytes of either format.
//! - `save/file.rs`: one file, named `.part` while it is written.
//! - `save/rotation.rs`: when the next file begins, its name, and which old file is removed.
//!
//! Frames are copied into a buffer of 256 KiB, which is written when full. Passing slices of the rings to the kernel
//! (`writev`) took a tenth longer for frames of 1,500 bytes, and 2.5 times as long for 64 bytes.

mod encode;
mod file;
mod rotation;
#[cfg(test)]
mod tests;

use crate::parts::ending;
use crate::parts::room::Room;
use crate::parts::target::{Existing, Target as FileTarget};
use base::terminal;
use encode::{Encoder, Format};
use file::Open;
use filter::counter::{FILE_BYTES, FILES};
use filter::env::Reader;
use filter::prelude::*;
use packet::pcap_file::Resolution;
use rotation::Rotation;
use std::path::{Path, PathBuf};

/// The kind `save`.
pub static KIND: Kind = Kind::new("save", "writes frames to a capture file", make)
    .also(&["write", "tee", "dumpcap", "record"])
    .help(
        "Writes pcapng, or classic pcap where the file's name ends in `.pcap` or `.cap`. A name of `-` is standard \
         output, which gets classic pcap, so that `... | save -` can be piped into `tcpdump -r -`; `format` decides \
         otherwise. A terminal is refused.\n\
         \n\
         pcapng keeps the link type, name, description and snap length of every interface, times in nanoseconds, \
         original lengths and the direction of outgoing frames, and ends with the number of frames of each interface. \
         Classic pcap has one link type for the whole file: frames of a second one end the run with status 2. Its \
         times are as precise as those of the first frame's capture, in microseconds where that is a device; \
         precision=ns keeps nanoseconds, and a file that has less precise times than its input is told of once.\n\
         \n\
         A file is called NAME.part until it is whole. A file that exists is not touched unless overwrite=yes. That files \
         can be written there is tried before the run begins. Where `max-bytes` is reached, the file is ended and no more \
         is written. Where writing fails, or less than `min-free` stays free of the file system, the run ends with an \
         error, and the file is whole up to there.\n\
         \n\
         With rotate-size or rotate-time the file is a series: `x.pcapng` becomes `x_00001_20260102030405.pcapng` and so \
         on, with the UTC time of its first frame. rotate-size begins a new file with the frame after that size was \
         reached; rotate-time at whole multiples of that time since 1970, by the frames' times, so that `rotate-time=1h` \
         begins a file every full hour. rotate-keep removes the oldest file of this run when there are more than that \
         many, the one being written included.",
    )
    .params(&[
        Param::new("file", ParamType::Path, "the file to write, or - for standard output").required().main(),
        Param::new("format", ParamType::Choice(&["pcapng", "pcap"]), "the format, where the name is not to decide"),
        Param::new("precision", ParamType::Choice(&["ns", "us"]), "unit of times in classic pcap, if not the input's"),
        Param::new("overwrite", ParamType::Flag, "replace a file that exists").default("no"),
        Param::new("rotate-size", ParamType::Size, "begin a new file when one has this many bytes"),
        Param::new("rotate-time", ParamType::Duration, "begin a new file at every multiple of this time"),
        Param::new("rotate-keep", ParamType::Number, "keep this many files of the series"),
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .sink()
    .completes(|params| ending::check(params, "file", &["pcapng", "pcap", "cap"]))
    .restarts()
    .examples(&[Example { request: "pcap browse.pcap | save copy.pcapng", output: "" }]);

const BUFFER_BYTES: usize = 256 << 10;

struct Save {
    target: Target,
    encoder: Encoder,
    buffer: Vec<u8>,
    room: Room,
    /// Writing is over: it failed, the reader is gone, or the limit is reached.
    over: bool,
    /// `Some`: the request was replaced, so the link type may differ now. True: the notice about that was given.
    restarted: Option<bool>,
}

enum Target {
    Stdout(Output),
    Files(Box<Files>),
}

/// A file, or a series of files.
struct Files {
    target: FileTarget,
    overwrite: bool,
    rotation: Rotation,
    open: Option<Open>,
    /// Number of completed files and their bytes.
    closed: (u64, u64),
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let name = params.text("file").unwrap_or_default();
    let format = format_of(name, params)?;
    let rotation = Rotation::new(params)?;
    let room = Room::new(params);
    let target = if name == "-" {
        if rotation.is_wanted() {
            return Err(ParamError::new("file", "standard output cannot be a series of files"));
        }
        if env.stdout.eager() {
            return Err(ParamError::new("file", "standard output is a terminal, and captures are no text")
                .with_help("redirect it: `... | save -' > x.pcap`"));
        }
        Target::Stdout(env.stdout.clone())
    } else {
        let overwrite = params.flag("overwrite");
        let existing = if overwrite || rotation.is_wanted() { Existing::Replaced } else { Existing::Stays };
        let target = FileTarget::check("file", Path::new(name), existing, &room)?;
        if rotation.is_wanted() && target.folder().is_none() {
            return Err(ParamError::new(
                "file",
                format!("{name} is a device or a pipe, which cannot be a series of files"),
            ));
        }
        Target::Files(Box::new(Files { target, overwrite, rotation, open: None, closed: (0, 0) }))
    };
    let (encoder, buffer) = (Encoder::new(format), Vec::with_capacity(BUFFER_BYTES));
    Ok(Instance::filter(Save { target, encoder, buffer, room, over: false, restarted: None }))
}

/// The format by the parameters and the file name extension.
fn format_of(name: &str, params: &Params) -> Result<Format, ParamError> {
    let classic = match params.text("format") {
        Some(format) => format == "pcap",
        None => name == "-" || matches!(&ending::of(name)[..], "pcap" | "cap"),
    };
    match (classic, params.text("precision")) {
        (true, Some("us")) => Ok(Format::Classic(Some(Resolution::Microseconds))),
        (true, Some(_)) => Ok(Format::Classic(Some(Resolution::Nanoseconds))),
        (true, None) => Ok(Format::Classic(None)),
        (false, Some("us")) => {
            Err(ParamError::new("precision", "pcapng has nanoseconds; precision is for format=pcap"))
        }
        (false, _) => Ok(Format::Pcapng),
    }
}

impl Filter for Save {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.over {
            return Ok(Status::Finished);
        }
        let written = self.write_copies(batch, cx);
        self.unless_failed(written)
    }

    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        let flushed = self.spill();
        self.unless_failed(flushed)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if self.over {
            return Ok(Status::Done);
        }
        let closed = self.close();
        if let Target::Files(files) = &self.target {
            cx.count(FILES, files.closed.0);
            cx.count(FILE_BYTES, files.closed.1);
        }
        self.over = true;
        closed.map(|_| Status::Done)
    }

    fn restart(&mut self, _cx: &mut Context<'_>) -> Made {
        self.restarted = Some(false);
        Ok(Status::Done)
    }
}

/// The outcome of a write.
type Written = Result<Reader, Box<Failure>>;

impl Save {
    fn unless_failed(&mut self, written: Written) -> Made {
        match written {
            Ok(Reader::Present) => Ok(Status::Done),
            Ok(Reader::Gone) => {
                self.over = true;
                Ok(Status::Finished)
            }
            Err(mut failure) => {
                self.over = true;
                if let Target::Files(files) = &mut self.target {
                    match &mut *failure {
                        // The request is at fault: remove the file, so that the corrected request does not find it.
                        Failure::Request(_) => files.discard(),
                        Failure::System(text) => {
                            if let Some(path) = files.rescue(&mut self.encoder, &mut self.buffer) {
                                text.push_str(&format!("; the earlier output is in {}", terminal::name(path)));
                            }
                        }
                    }
                }
                Err(failure)
            }
        }
    }

    /// Copies the frames of a batch into the buffer; writes the buffer when it is full.
    fn write_copies(&mut self, batch: &Batch<'_>, cx: &mut Context<'_>) -> Written {
        for (_, block) in batch.iter() {
            let Some(interface) = cx.rings.interface(block).filter(|interface| interface.link_type.is_some()) else {
                cx.counters.drops.add("no link type", 1);
                continue;
            };
            let bytes = cx.rings.bytes(block);
            if self.room.is_bounded() && !self.has_room_for(bytes.len(), interface) {
                cx.notices.push(self.room.notice(&self.path()));
                self.close()?;
                return Ok(Reader::Gone);
            }
            if let Target::Files(files) = &mut self.target {
                files.turn_to(block.time, &mut self.encoder, &mut self.buffer, &mut self.room, cx.notices)?;
            }
            match self.encoder.copy_frame(&mut self.buffer, block, bytes, interface, cx.counters) {
                Err(failure) if self.restarted.is_some() && matches!(*failure, Failure::Request(_)) => {
                    // Drop the frame and keep the file: it holds frames captured before the request was replaced.
                    cx.counters.drops.add("another link type than the file's", 1);
                    if self.restarted == Some(false) {
                        self.restarted = Some(true);
                        cx.notices.push(format!("frames since the request was replaced are left out: {failure}"));
                    }
                    continue;
                }
                copied => copied?,
            }
            if let Target::Files(files) = &mut self.target
                && let Some(open) = &mut files.open
                && let Some(snap_len) = self.encoder.take_longer_snap_len()
            {
                open.patch(snap_len, encode::SNAP_LEN_OFFSET, &mut self.buffer)?;
            }
            if self.buffer.len() >= BUFFER_BYTES && self.spill()? == Reader::Gone {
                return Ok(Reader::Gone);
            }
        }
        if self.encoder.take_lowered() {
            let name = self.path();
            cx.notices
                .push(format!("times in `{}` are microseconds, and the input has nanoseconds", terminal::name(name)));
        }
        match &self.target {
            Target::Stdout(stdout) if stdout.eager() => self.spill(),
            _ => Ok(Reader::Present),
        }
    }

    /// The output path for messages.
    fn path(&self) -> PathBuf {
        match &self.target {
            Target::Stdout(_) => "standard output".into(),
            Target::Files(files) => files.target.path(),
        }
    }

    /// Whether there is room for a frame of this length, with the headers before it and the end of the capture.
    fn has_room_for(&self, len: usize, interface: &buffer::Interface) -> bool {
        (self.buffer.len() + self.encoder.most_bytes(len, interface)) as u64 <= self.room.left()
    }

    fn spill(&mut self) -> Written {
        if self.buffer.is_empty() {
            return Ok(Reader::Present);
        }
        match &mut self.target {
            Target::Stdout(stdout) => {
                let reader = stdout.write(&self.buffer)?;
                self.room.add(self.buffer.len() as u64);
                self.buffer.clear();
                Ok(reader)
            }
            Target::Files(files) => {
                files.write(&mut self.buffer, &mut self.room)?;
                Ok(Reader::Present)
            }
        }
    }

    /// Writes the buffer and the end of the capture. Without frames this still gives a valid capture.
    fn close(&mut self) -> Written {
        match &mut self.target {
            Target::Stdout(_) => {
                self.encoder.end(&mut self.buffer);
                self.spill()
            }
            Target::Files(files) => {
                if files.open.is_none() && !files.rotation.is_wanted() {
                    files.begin(0, &mut self.encoder)?;
                }
                files.end(&mut self.encoder, &mut self.buffer, &mut self.room)?;
                Ok(Reader::Present)
            }
        }
    }
}

impl Files {
    /// Opens the file that a frame of this time belongs into, if it is not open yet.
    fn turn_to(
        &mut self,
        time: u64,
        encoder: &mut Encoder,
        buffer: &mut Vec<u8>,
        room: &mut Room,
        notices: &mut Vec<String>,
    ) -> Result<(), Box<Failure>> {
        if let Some(open) = &self.open {
            if !self.rotation.is_due(time, open.bytes() + buffer.len() as u64) {
                return Ok(());
            }
            self.end(encoder, buffer, room)?;
        }
        self.begin(time, encoder)?;
        if let (Some(old), Some(folder)) = (self.rotation.too_old(), self.target.folder())
            && let Err(error) = folder.remove(&old)
        {
            let (old, reason) = (folder.path_of(&old), crate::parts::system::reason(&error));
            notices.push(format!("cannot remove {}: {reason}", terminal::name(old)));
        }
        Ok(())
    }

    fn begin(&mut self, time: u64, encoder: &mut Encoder) -> Result<(), Box<Failure>> {
        let given = match &self.target {
            FileTarget::In(_, name) => name.as_os_str(),
            FileTarget::Special(path) => path.as_os_str(),
        };
        let name = self.rotation.begin(given, time);
        let open = Open::new(&self.target, &name, self.overwrite)?;
        encoder.begin(open.can_patch());
        self.open = Some(open);
        Ok(())
    }

    /// Writes the buffer to the open file. Error: writing failed, or left too little space free.
    fn write(&mut self, buffer: &mut Vec<u8>, room: &mut Room) -> Result<(), Box<Failure>> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let bytes = buffer.len() as u64;
        open.write(buffer)?;
        self.target.take_room(room, bytes)
    }

    fn end(&mut self, encoder: &mut Encoder, buffer: &mut Vec<u8>, room: &mut Room) -> Result<(), Box<Failure>> {
        let Some(open) = &mut self.open else { return Ok(()) };
        encoder.end(buffer);
        let bytes = buffer.len() as u64;
        open.write(buffer)?;
        self.closed = (self.closed.0 + 1, self.closed.1 + open.bytes());
        let roomy = self.target.take_room(room, bytes);
        let closed = self.open.take().map_or(Ok(()), |open| open.close(self.target.folder(), self.overwrite));
        closed.and(roomy)
    }

    fn discard(&mut self) {
        if let Some(open) = self.open.take() {
            open.discard(self.target.folder());
        }
    }

    /// After a failure: completes the capture with the bytes written before it, and returns its path. Frames still in
    /// the buffer are lost.
    fn rescue(&mut self, encoder: &mut Encoder, buffer: &mut Vec<u8>) -> Option<PathBuf> {
        let mut open = self.open.take()?;
        if buffer.is_empty() {
            encoder.end(buffer);
            // The end is optional: without it the capture is valid too.
            let _ = open.write(buffer);
        }
        buffer.clear();
        let folder = self.target.folder();
        if !open.cut() {
            open.discard(folder);
            return None;
        }
        // If the name was taken meanwhile, the file keeps its `.part` name.
        let named = open.close(folder, self.overwrite).is_ok();
        Some(open.path(folder, named))
    }
}
