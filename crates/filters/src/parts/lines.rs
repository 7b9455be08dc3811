//! Where sinks write lines of text: standard output or a file, in pieces of many whole lines.

use crate::parts::room::Room;
use crate::parts::system::reason;
use crate::parts::target::{Existing, Target as FileTarget, open_special};
use base::terminal;
use filter::env::Reader;
use filter::{Context, Env, Failure, Made, OutputSink, Param, ParamError, ParamType, Params, Status};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Written out as soon as this many bytes have come together.
const PIECE_BYTES: usize = 64 << 10;

/// Lines on their way out.
pub(crate) struct Lines {
    buffer: Vec<u8>,
    to: Target,
    room: Room,
    reader: Reader,
    /// Nothing more may be written, and people were not told yet.
    limited: bool,
}

enum Target {
    Stdout(OutputSink),
    File { target: FileTarget, overwrite: bool, open: Option<Open> },
}

/// An open file and the bytes of whole lines in it.
struct Open {
    file: File,
    bytes: u64,
}

impl Lines {
    /// The parameter that stands beside `file`.
    pub(crate) const OVERWRITE: Param =
        Param::new("overwrite", ParamType::Flag, "replace a file that exists").default("no");

    /// To the file that the parameter `file` names, else to standard output. Refuses what could not be written or should
    /// not be replaced; makes no file yet.
    pub(crate) fn new(params: &Params, env: &Env) -> Result<Lines, ParamError> {
        Lines::to("file", params, env)
    }

    /// The same, to the file that this parameter names.
    pub(crate) fn to(key: &'static str, params: &Params, env: &Env) -> Result<Lines, ParamError> {
        let room = Room::new(params);
        let to = match params.text(key) {
            Some(path) if path != "-" => {
                let overwrite = params.flag("overwrite");
                let existing = if overwrite { Existing::Emptied } else { Existing::Stays };
                let target = FileTarget::check(key, Path::new(path), existing, &room)?;
                Target::File { target, overwrite, open: None }
            }
            _ => Target::Stdout(env.stdout.open()),
        };
        Ok(Lines { buffer: Vec::new(), to, room, reader: Reader::Present, limited: false })
    }

    /// Where to append. Call [`line_done`](Lines::line_done) when a line is whole.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Ends a line. Writes where enough has come together; says `Finished` where no more is wanted.
    #[inline]
    pub(crate) fn line_done(&mut self) -> Made {
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIECE_BYTES { self.write_out() } else { Ok(self.status()) }
    }

    /// A batch is dealt with: where somebody is looking, its lines should appear.
    #[inline]
    pub(crate) fn batch_done(&mut self, cx: &mut Context<'_>) -> Made {
        match &self.to {
            Target::Stdout(output) if output.eager() => self.flush(cx),
            _ => Ok(self.status()),
        }
    }

    fn status(&self) -> Status {
        if self.reader == Reader::Gone { Status::Finished } else { Status::Done }
    }

    /// Writes what there is, and tells people where that is the last that may be written.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        let written = self.write_out();
        if std::mem::take(&mut self.limited) {
            let path = match &self.to {
                Target::Stdout(_) => "standard output".into(),
                Target::File { target, .. } => target.path(),
            };
            cx.notice(self.room.notice(&path));
        }
        written
    }

    /// Writes what there is, and makes the file if there is none yet.
    pub(crate) fn write_out(&mut self) -> Made {
        if self.reader == Reader::Present {
            self.limited = self.cut_to_room();
            let written = match &mut self.to {
                Target::Stdout(_) if self.buffer.is_empty() => Ok(Reader::Present),
                Target::Stdout(output) => {
                    self.room.add(self.buffer.len() as u64);
                    output.write(&self.buffer)
                }
                Target::File { target, overwrite, open } => {
                    let written = write_file(target, *overwrite, open, &self.buffer);
                    written
                        .and_then(|reader| target.take_room(&mut self.room, self.buffer.len() as u64).map(|()| reader))
                }
            };
            // What could not be written is not tried again when the run is finished.
            self.reader = if self.limited { Reader::Gone } else { *written.as_ref().unwrap_or(&Reader::Gone) };
            self.buffer.clear();
            self.buffer.shrink_to(2 * PIECE_BYTES);
            written?;
        } else {
            self.buffer.clear();
        }
        Ok(self.status())
    }

    /// Leaves out the lines for which there is no room; says whether there are any.
    fn cut_to_room(&mut self) -> bool {
        let left = usize::try_from(self.room.left()).unwrap_or(usize::MAX);
        if self.buffer.len() <= left {
            return false;
        }
        let whole = self.buffer[..left].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.buffer.truncate(whole);
        true
    }
}

fn write_file(
    target: &FileTarget,
    overwrite: bool,
    open: &mut Option<Open>,
    bytes: &[u8],
) -> Result<Reader, Box<Failure>> {
    let fail = |what: &str, error: io::Error| {
        Box::new(Failure::System(format!("cannot {what} `{}`: {}", terminal::name(target.path()), reason(&error))))
    };
    let open = match open {
        Some(open) => open,
        None => {
            let file = create(target, overwrite).map_err(|error| fail("create", error))?;
            open.insert(Open { file, bytes: 0 })
        }
    };
    match open.file.write_all(bytes) {
        Ok(()) => {
            open.bytes += bytes.len() as u64;
            Ok(Reader::Present)
        }
        // A pipe with a name whose reader left ends as standard output does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => {
            // Half a line is none. A device has no length, and no lines that anybody finds again.
            let _ = open.file.set_len(open.bytes);
            Err(fail("write to", error))
        }
    }
}

/// Opens the file to write to. What came into its place since the run began is not replaced unasked either; a device or a
/// pipe is there already and is not made.
fn create(target: &FileTarget, overwrite: bool) -> io::Result<File> {
    match target {
        FileTarget::Special(path) => open_special(path),
        FileTarget::In(folder, name) if overwrite => folder.create_or_empty(name),
        FileTarget::In(folder, name) => folder.create(name),
    }
}
