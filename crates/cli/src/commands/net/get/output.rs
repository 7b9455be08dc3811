//! Where `net get` writes: standard output, or a file that gets its final name once it is complete.

use crate::exit::{CommandError, Outcome};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(super) enum Output {
    /// Programs get the bytes unchanged; a terminal gets only characters that it can show.
    Stdout {
        shown: Option<Vec<u8>>,
    },
    File(Part),
}

/// A file in progress: `FILE.part` until it is complete. A later command can complete what an aborted one left.
pub(super) struct Part {
    file: File,
    part: PathBuf,
    path: PathBuf,
    len: u64,
}

impl Output {
    pub(super) fn stdout() -> Output {
        Output::Stdout { shown: io::stdout().is_terminal().then(Vec::new) }
    }

    /// Opens a file for the bytes from `first` on. 0: the whole file.
    pub(super) fn file(path: &Path, first: u64) -> Result<Output, CommandError> {
        let failed = |error: io::Error| CommandError::Failed(format!("{}: {error}", path.display()));
        if path.is_dir() || path.file_name().is_none() {
            return Err(CommandError::Wrong(format!(
                "{}: this is a folder; -o takes the name of a file",
                path.display()
            )));
        }
        let mut name = path.as_os_str().to_os_string();
        name.push(".part");
        let part = PathBuf::from(name);
        // Other users can guess this name: a symlink under it must not lead the bytes elsewhere.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let mut file = File::from(rustix::fs::open(&part, flags, mode).map_err(|errno| failed(errno.into()))?);
        if file.try_lock().is_err() {
            return Err(CommandError::Failed(format!("{}: another process writes it", part.display())));
        }
        let there = file.metadata().map_err(failed)?.len();
        // The range continues the file if the file has `first` bytes. An absent file gets the bytes of the range alone.
        let len = if first > 0 && there == first { there } else { 0 };
        if first > 0 && there != 0 && len == 0 {
            return Err(CommandError::Failed(format!("{} has {there} bytes, not {first}", part.display()))
                .with_help(&format!("`--range {there}-` goes on with it; without the file, the range stands alone")));
        }
        file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len))).map_err(failed)?;
        Ok(Output::File(Part { file, part, path: path.into(), len }))
    }

    /// Writes. `false`: the reader of standard output closed it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<bool, CommandError> {
        let (written, name) = match self {
            Output::Stdout { shown: None } => (io::stdout().write_all(bytes), "standard output".to_string()),
            Output::Stdout { shown: Some(cut) } => {
                cut.extend(bytes);
                let text = whole(cut);
                (io::stdout().write_all(base::terminal::text(&text).as_bytes()), "standard output".to_string())
            }
            Output::File(part) => {
                part.len += bytes.len() as u64;
                (part.file.write_all(bytes), part.part.display().to_string())
            }
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(CommandError::Failed(format!("{name}: {error}"))),
        }
    }

    /// All bytes were written: gives the file its name.
    pub(super) fn complete(self) -> Outcome {
        match self {
            Output::Stdout { .. } => match io::stdout().flush() {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(CommandError::Failed(format!("standard output: {error}")))
                }
                _ => Ok(()),
            },
            Output::File(Part { part, path, .. }) => std::fs::rename(&part, &path)
                .map_err(|error| CommandError::Failed(format!("{} to {}: {error}", part.display(), path.display()))),
        }
    }

    /// Bytes are missing. Keeps the file and says how to go on; removes an empty file.
    pub(super) fn abandon(&self) -> Option<String> {
        match self {
            Output::File(Part { part, len: 0, .. }) => {
                let _ = std::fs::remove_file(part);
                None
            }
            Output::File(Part { part, len, .. }) => {
                Some(format!("{} has {len} bytes; the same with `--range {len}-` goes on", part.display()))
            }
            Output::Stdout { .. } => None,
        }
    }
}

/// Takes complete UTF-8 text out of the bytes. An incomplete character at the end stays.
fn whole(bytes: &mut Vec<u8>) -> String {
    let cut = (1..=bytes.len().min(3)).find(|len| {
        let tail = &bytes[bytes.len() - len..];
        matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
    });
    let rest = bytes.split_off(bytes.len() - cut.unwrap_or(0));
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_in_two_pieces_stays_one() {
        let mut cut = Vec::new();
        let mut text = String::new();
        for byte in "aä€😀\u{1}".bytes() {
            cut.push(byte);
            text.push_str(&whole(&mut cut));
        }
        assert_eq!(text, "aä€😀\u{1}");
        cut.extend(b"a\xff\xffb\xe2");
        assert_eq!((whole(&mut cut).as_str(), &cut[..]), ("a\u{fffd}\u{fffd}b", &b"\xe2"[..]));
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let part = folder.path().join("f.part");
        let mut output = Output::file(&path, 0).unwrap();
        assert!(output.write(b"01234").unwrap());
        assert!(Output::file(&path, 0).is_err_and(|error| format!("{error:?}").contains("another process")));
        assert!(output.abandon().unwrap().contains("--range 5-"));
        drop(output);
        assert!(!path.exists());
        assert!(Output::file(&path, 3).is_err_and(|error| format!("{error:?}").contains("--range 5-")));
        let mut output = Output::file(&path, 5).unwrap();
        output.write(b"56789").unwrap();
        output.complete().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        assert!(!part.exists());
        let mut output = Output::file(&path, 7).unwrap();
        output.write(b"789").unwrap();
        output.complete().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"789");
        std::os::unix::fs::symlink(&path, &part).unwrap();
        assert!(Output::file(&path, 0).is_err());
        assert!(Output::file(folder.path(), 0).is_err());
    }
}
