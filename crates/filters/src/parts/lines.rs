//! Writes the text lines of sinks to standard output or to a file, in pieces of many whole lines.

use crate::parts::room::Room;
use crate::parts::system::reason;
use crate::parts::target::{Existing, Target as FileTarget, open_special};
use base::terminal;
use filter::env::Reader;
use filter::{Context, Env, Failure, Made, Output, Param, ParamError, ParamType, Params, Status};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// The buffer is written out when it holds this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Buffered lines and the file they go to.
pub(crate) struct Lines {
    buffer: Vec<u8>,
    to: Target,
    room: Room,
    reader: Reader,
    /// `max-bytes` is reached, and the notice about it is still to be given.
    limited: bool,
}

enum Target {
    Stdout(Output),
    File { target: FileTarget, overwrite: bool, open: Option<Open> },
}

/// An open file and the number of bytes of whole lines in it.
struct Open {
    file: File,
    bytes: u64,
}

impl Lines {
    /// The parameter `overwrite`, for filters that have `file`.
    pub(crate) const OVERWRITE: Param =
        Param::new("overwrite", ParamType::Flag, "replace a file that exists").default("no");

    /// Lines for the file that the parameter `file` names; without it, for standard output. Refuses a file that cannot
    /// be written or must not be replaced. Creates no file yet.
    pub(crate) fn new(params: &Params, env: &Env) -> Result<Lines, ParamError> {
        Lines::to("file", params, env)
    }

    /// Like [`new`](Lines::new), with another parameter, `key`, for the file.
    pub(crate) fn to(key: &'static str, params: &Params, env: &Env) -> Result<Lines, ParamError> {
        match params.text(key) {
            Some(path) if path != "-" => Lines::at(key, Path::new(path), params),
            _ => Ok(Lines::begin(Target::Stdout(env.stdout.clone()), Room::new(params))),
        }
    }

    /// Like [`new`](Lines::new), with the file at `path`. Errors name the parameter `key`.
    pub(crate) fn at(key: &'static str, path: &Path, params: &Params) -> Result<Lines, ParamError> {
        let (room, overwrite) = (Room::new(params), params.flag("overwrite"));
        let existing = if overwrite { Existing::Emptied } else { Existing::Stays };
        let target = FileTarget::check(key, path, existing, &room)?;
        Ok(Lines::begin(Target::File { target, overwrite, open: None }, room))
    }

    fn begin(to: Target, room: Room) -> Lines {
        Lines { buffer: Vec::new(), to, room, reader: Reader::Present, limited: false }
    }

    /// The buffer to append to. Call [`line_done`](Lines::line_done) after each whole line.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Ends a line; writes a full buffer out. Returns `Finished` when the reader is gone or no room is left.
    #[inline]
    pub(crate) fn line_done(&mut self) -> Made {
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIECE_BYTES { self.write_out() } else { Ok(self.status()) }
    }

    /// Ends a batch. On a terminal, its lines are written at once.
    #[inline]
    pub(crate) fn batch_done(&mut self, cx: &mut Context<'_>) -> Made {
        if self.is_eager() { self.flush(cx) } else { Ok(self.status()) }
    }

    /// Whether each batch is written at once, because a person is looking.
    pub(crate) fn is_eager(&self) -> bool {
        matches!(&self.to, Target::Stdout(output) if output.eager())
    }

    /// Whether the head of a table is bold.
    pub(crate) fn has_bold_heads(&self) -> bool {
        matches!(&self.to, Target::Stdout(output) if output.has_bold_heads())
    }

    /// The columns of the terminal that the lines go to. `None`: they go elsewhere, and may have any length.
    pub(crate) fn columns(&self) -> Option<usize> {
        match &self.to {
            Target::Stdout(output) => output.columns(),
            Target::File { .. } => None,
        }
    }

    fn status(&self) -> Status {
        if self.reader == Reader::Gone { Status::Finished } else { Status::Done }
    }

    /// Writes the buffer out. Gives a notice if `max-bytes` is reached.
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

    /// Writes the buffer out; creates the file if it does not exist yet.
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
            // A failed write is not tried again at the end of the run.
            self.reader = if self.limited { Reader::Gone } else { *written.as_ref().unwrap_or(&Reader::Gone) };
            self.buffer.clear();
            self.buffer.shrink_to(2 * PIECE_BYTES);
            written?;
        } else {
            self.buffer.clear();
        }
        Ok(self.status())
    }

    /// Drops the lines that exceed `max-bytes`. Returns whether it dropped any.
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
        // The reader of a named pipe went away: end the run quietly, as for standard output.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => {
            // Remove a partial line. This fails on a device, which has no length; the partial line does no harm there.
            let _ = open.file.set_len(open.bytes);
            Err(fail("write to", error))
        }
    }
}

/// Opens the file to write to. A file that appeared since the run began is replaced only with `overwrite`. Devices and
/// pipes exist already and are not created.
fn create(target: &FileTarget, overwrite: bool) -> io::Result<File> {
    match target {
        FileTarget::Special(path) => open_special(path),
        FileTarget::In(folder, name) if overwrite => folder.create_or_empty(name),
        FileTarget::In(folder, name) => folder.create(name),
    }
}
