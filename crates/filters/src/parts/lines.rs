//! Where sinks write lines of text: standard output or a file, in pieces of many whole lines.

use crate::parts::system::reason;
use crate::parts::target;
use filter::env::Reader;
use filter::{Env, Failure, Made, Output, Param, ParamError, ParamType, Params, Status};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Written out as soon as this many bytes have come together.
const PIECE_BYTES: usize = 64 << 10;

/// Lines on their way out.
pub(crate) struct Lines {
    buffer: Vec<u8>,
    to: Target,
    reader: Reader,
}

enum Target {
    Stdout(Output),
    File { path: PathBuf, overwrite: bool, file: Option<File> },
}

impl Lines {
    /// The parameter that stands beside `file`.
    pub(crate) const OVERWRITE: Param =
        Param::new("overwrite", ParamType::Flag, "replace a file that exists").default("no");

    /// To the file that the parameter `file` names, else to standard output. Creates nothing yet, and refuses what
    /// could not be written or should not be replaced.
    pub(crate) fn new(params: &Params, env: &Env) -> Result<Lines, ParamError> {
        let to = match params.text("file") {
            Some(path) if path != "-" => {
                let (path, overwrite) = (PathBuf::from(path), params.flag("overwrite"));
                target::check("file", &path, overwrite)?;
                Target::File { path, overwrite, file: None }
            }
            _ => Target::Stdout(env.stdout.clone()),
        };
        Ok(Lines { buffer: Vec::new(), to, reader: Reader::Present })
    }

    /// Where to append. Call [`line_done`](Lines::line_done) when a line is whole.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Ends a line. Writes where enough has come together; says `Finished` where nobody reads any more.
    #[inline]
    pub(crate) fn line_done(&mut self) -> Made {
        self.buffer.push(b'\n');
        if self.buffer.len() >= PIECE_BYTES { self.write_out() } else { Ok(self.status()) }
    }

    /// A batch is dealt with: where somebody is looking, its lines should appear.
    #[inline]
    pub(crate) fn batch_done(&mut self) -> Made {
        match &self.to {
            Target::Stdout(output) if output.eager() => self.write_out(),
            _ => Ok(self.status()),
        }
    }

    fn status(&self) -> Status {
        if self.reader == Reader::Gone { Status::Finished } else { Status::Done }
    }

    /// Writes what there is, and makes the file if there is none yet.
    pub(crate) fn write_out(&mut self) -> Made {
        if self.reader == Reader::Present {
            let written = match &mut self.to {
                Target::Stdout(_) if self.buffer.is_empty() => Ok(Reader::Present),
                Target::Stdout(output) => output.write(&self.buffer),
                Target::File { path, overwrite, file } => write_file(path, *overwrite, file, &self.buffer),
            };
            // What could not be written is not tried again when the run is finished.
            self.reader = *written.as_ref().unwrap_or(&Reader::Gone);
            self.buffer.clear();
            self.buffer.shrink_to(2 * PIECE_BYTES);
            written?;
        } else {
            self.buffer.clear();
        }
        Ok(self.status())
    }
}

fn write_file(path: &Path, overwrite: bool, file: &mut Option<File>, bytes: &[u8]) -> Result<Reader, Box<Failure>> {
    let fail = |what: &str, error: io::Error| {
        Box::new(Failure::System(format!("cannot {what} `{}`: {}", path.display(), reason(&error))))
    };
    let file = match file {
        Some(file) => file,
        None => file.insert(create(path, overwrite).map_err(|error| fail("create", error))?),
    };
    match file.write_all(bytes) {
        Ok(()) => Ok(Reader::Present),
        // A pipe with a name whose reader left ends as standard output does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(fail("write to", error)),
    }
}

/// Opens the file to write to. What came into its place since the run began is not replaced unasked either; a device or a
/// pipe is there already and is not made.
fn create(path: &Path, overwrite: bool) -> io::Result<File> {
    let is_special = fs::metadata(path).is_ok_and(|existing| !existing.is_file());
    let mut options = OpenOptions::new();
    options.write(true);
    match (is_special, overwrite) {
        (true, _) => &mut options,
        (false, true) => options.create(true).truncate(true),
        (false, false) => options.create_new(true),
    }
    .open(path)
}
