//! Writes records as a stream of Arrow, for a program at the other end of a pipe.

use crate::parts::failure::Wrong;
use crate::parts::table::{Schemas, Table, of_one_kind};
use crate::parts::whole::Whole;
use arrow_ipc::writer::StreamWriter;
use filter::env::Reader;
use filter::prelude::*;
use filters::parts::ending;
use filters::parts::held_folder::HeldFolder;
use filters::parts::room::Room;
use filters::parts::target::{Existing, Target, open_special};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `arrow` is.
pub static KIND: Kind = Kind::new("arrow", "writes records as a stream of Arrow, for programs that read columns", make)
    .also(&["ipc", "feather"])
    .beside("parquet", "writes files that are kept")
    .help(
        "`arrow -` writes records to standard output in the streaming format of Arrow IPC, which pandas, polars and DuckDB read \
         from a pipe; `arrow FILE` writes the same to a file, which gets its name when it is complete. There is one schema in \
         a stream, so records of one kind must come. It is the record's own, with the names that `json` prints: a name before a dot is a struct, \
         a list a list, an object a struct. Numbers are unsigned, of 64 bits, and durations with a fraction are floating-point seconds. Times are timestamps in nanoseconds of UTC. Addresses \
         and texts are UTF-8; as in `json`, a byte that is not UTF-8 is `\\xHH`. A field that a record has not is null. Of a message its metadata are the \
         record.\n\n\
         Rows are written 8,192 at a time, or when the input pauses. If the reader stops reading, the run ends quietly. A \
         file that exists is refused unless overwrite=yes; devices and pipes with a name are written to as they are. Where `max-bytes` would be exceeded, the stream ends before.",
    )
    .params(&[
        Param::new("file", ParamType::Path, "the file to write, or - for standard output").required().main(),
        Param::new("overwrite", ParamType::Flag, "replace a file that exists").default("no"),
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record, Type::Message])
    .mode(Mode::Serial)
    .sink()
    .completes(|params| ending::check(params, "file", &["arrow", "arrows", "ipc"]))
    .names_fields(check)
    .examples(&[Example { request: "pcap dns.pcap | flows | arrow flows.arrow", output: "" }]);

fn check(_params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    of_one_kind(schemas)
        .map_err(|error| error.with_help("end each branch with its own `arrow`, or use `parquet DIR by=kind`"))
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let room = Room::new(params);
    let overwrite = params.flag("overwrite");
    let name = params.text("file").unwrap_or("-");
    let path = PathBuf::from(name);
    let to = if name == "-" {
        if env.stdout.eager() {
            return Err(ParamError::new("file", "standard output is a terminal, and Arrow is no text")
                .with_help("pipe it into a program: `... | arrow -' | python3 report.py`"));
        }
        To::Stdout(env.stdout.clone())
    } else {
        let existing = if overwrite { Existing::Replaced } else { Existing::Stays };
        match Target::check("file", Path::new(name), existing, &room)? {
            Target::Special(path) => To::Special(path, None),
            Target::In(folder, name) => To::File { folder: Arc::new(folder), name, overwrite, open: None },
        }
    };
    let schemas = Schemas::new(env);
    let known = schemas.only(params.come());
    Ok(Instance::filter(Arrow {
        to,
        path,
        room,
        schemas,
        known,
        stream: None,
        of_messages: env.input.has(Type::Message),
        reader: Reader::Present,
    }))
}

/// Where the stream goes.
enum To {
    Stdout(Output),
    Special(PathBuf, Option<File>),
    File { folder: Arc<HeldFolder>, name: OsString, overwrite: bool, open: Option<Whole> },
}

impl To {
    fn write(&mut self, bytes: &[u8]) -> Result<Reader, Box<Failure>> {
        match self {
            To::Stdout(output) => output.write(bytes),
            To::Special(path, open) => {
                let written = match open {
                    Some(file) => file.write_all(bytes),
                    None => open_special(path).and_then(|file| open.insert(file).write_all(bytes)),
                };
                match written {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
                    written => written
                        .map(|()| Reader::Present)
                        .map_err(|error| Wrong::Io(error).failure(path, "the stream is not complete")),
                }
            }
            To::File { folder, name, open, .. } => {
                let written = match open {
                    Some(file) => file.write_all(bytes),
                    None => Whole::create(Arc::clone(folder), name).and_then(|file| open.insert(file).write_all(bytes)),
                };
                let path = folder.path_of(name);
                written.map(|()| Reader::Present).map_err(|error| Wrong::Io(error).failure(&path, "it was not made"))
            }
        }
    }

    /// Gives a file its name.
    fn keep(&mut self) -> Result<(), Box<Failure>> {
        let To::File { folder, name, overwrite, open: Some(file) } = self else { return Ok(()) };
        file.keep(name, *overwrite).map_err(|error| Wrong::Io(error).failure(&folder.path_of(name), "it was not made"))
    }
}

/// A stream under way. The encoder writes into memory, a table at a time.
struct Stream {
    table: Table,
    encoder: StreamWriter<Vec<u8>>,
}

impl Stream {
    fn new(schema: &'static Schema) -> Result<Stream, Wrong> {
        let table = Table::new(schema);
        let encoder = StreamWriter::try_new(Vec::new(), &table.arrow())?;
        Ok(Stream { table, encoder })
    }

    /// Encodes the rows so far.
    fn encode(&mut self) -> Result<(), Wrong> {
        self.table.take()?.map_or(Ok(()), |batch| Ok(self.encoder.write(&batch)?))
    }
}

struct Arrow {
    to: To,
    path: PathBuf,
    room: Room,
    schemas: Schemas,
    /// The only schema that may come. `None`: several may, or it is not known.
    known: Option<&'static Schema>,
    stream: Option<Stream>,
    of_messages: bool,
    reader: Reader,
}

impl Arrow {
    fn wrong(&self, wrong: &Wrong) -> Box<Failure> {
        wrong.failure(&self.path, "the stream is not complete")
    }

    fn stream(&mut self, schema: &'static Schema) -> Result<&mut Stream, Box<Failure>> {
        if self.stream.is_none() {
            self.stream = Some(Stream::new(schema).map_err(|wrong| self.wrong(&wrong))?);
        }
        self.stream.as_mut().ok_or_else(|| unreachable!("it was set above"))
    }

    fn record(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Made {
        let bytes = cx.rings.bytes(block);
        let Some(row) = self.schemas.row(bytes) else {
            cx.drop(1, "not a record");
            return Ok(Status::Done);
        };
        let stream = self.stream(row.schema())?;
        if stream.table.schema.id() != row.schema().id() {
            let (one, other) = (stream.table.schema.name, row.schema().name);
            self.reader = Reader::Gone;
            return Err(Box::new(Failure::Request(format!(
                "a stream of Arrow has one schema, and records of `{one}` and of `{other}` come; end each branch with its own `arrow`"
            ))));
        }
        if stream.table.push(&row, bytes.len()) { self.write_out(cx) } else { Ok(Status::Done) }
    }

    /// Writes the rows so far.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Made {
        let Some(stream) = &mut self.stream else { return Ok(Status::Done) };
        let encoded = stream.encode();
        let bytes = std::mem::take(stream.encoder.get_mut());
        encoded.map_err(|wrong| self.wrong(&wrong))?;
        self.put(&bytes, cx)
    }

    fn put(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Made {
        if bytes.len() as u64 > self.room.left() {
            cx.notice(self.room.notice(&self.path));
            return self.end();
        }
        if self.reader == Reader::Present && !bytes.is_empty() {
            match &self.to {
                To::File { folder, name, .. } => {
                    let full = self.room.take(bytes.len() as u64, 0, folder.as_fd(), &folder.path_of(name));
                    full.inspect_err(|_| self.reader = Reader::Gone)?;
                }
                _ => self.room.add(bytes.len() as u64),
            }
            let written = self.to.write(bytes);
            // A failed write is not tried again at the end of the run.
            self.reader = *written.as_ref().unwrap_or(&Reader::Gone);
            written?;
        }
        Ok(if self.reader == Reader::Gone { Status::Finished } else { Status::Done })
    }

    /// Ends the stream.
    fn end(&mut self) -> Made {
        let Some(mut stream) = self.stream.take().filter(|_| self.reader == Reader::Present) else {
            return Ok(Status::Finished);
        };
        stream.encoder.get_mut().clear();
        stream.encoder.finish().map_err(|error| self.wrong(&error.into()))?;
        self.reader = self.to.write(stream.encoder.get_ref())?;
        self.to.keep()?;
        self.reader = Reader::Gone;
        Ok(Status::Finished)
    }
}

impl Filter for Arrow {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let of_messages = self.of_messages;
        for (_, block) in batch.iter().filter(|(_, block)| !of_messages || block.has(Flags::META)) {
            if self.reader == Reader::Gone || self.record(block, cx)? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        Ok(Status::Done)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.write_out(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if let Some(schema) = self.known.filter(|_| self.reader == Reader::Present) {
            self.stream(schema)?;
        }
        self.write_out(cx)?;
        self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_ipc::reader::StreamReader;
    use buffer::Descriptor;
    use testkit::{Chain, Outcome};

    static SEEN: Schema =
        Schema::new("seen", &[Field::new("timestamp", FieldType::Time), Field::new("size", FieldType::Number)]);

    fn run(rows: u64, given: &[(&str, &str)]) -> Outcome {
        let row = |size| RowWriter::new(&SEEN).number("size", size).row().to_vec();
        let pieces = (0..rows).map(|size| (Descriptor::default(), row(size))).collect();
        Chain::pieces(Type::Record, None, pieces).schema(&SEEN).then(&KIND, given).run()
    }

    fn rows(stream: &[u8]) -> Vec<usize> {
        StreamReader::try_new(stream, None).unwrap().map(|batch| batch.unwrap().num_rows()).collect()
    }

    #[test]
    fn rows_come_in_tables() {
        let outcome = run(10_000, &[("file", "-")]);
        assert_eq!(outcome.failure, None);
        assert_eq!(rows(&outcome.stdout_bytes), [8192, 1808]);
        let outcome = run(10_000, &[("file", "-"), ("max-bytes", "200k")]);
        assert_eq!(rows(&outcome.stdout_bytes), [8192]);
        assert_eq!(outcome.notices, ["max-bytes is reached: nothing more is written to `-`"]);
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.arrow");
        let name = path.to_str().unwrap();
        assert_eq!(run(3, &[("file", name)]).failure, None);
        assert_eq!(rows(&std::fs::read(&path).unwrap()), [3]);
        assert_eq!(run(4, &[("file", name), ("overwrite", "yes")]).failure, None);
        assert_eq!(rows(&std::fs::read(&path).unwrap()), [4]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let chain = Chain::pieces(Type::Record, None, Vec::new()).then(&KIND, &[("file", name)]);
        assert!(chain.refusal().unwrap().message.ends_with("x.arrow exists"));
    }

    /// A device without room: /dev/full.
    #[test]
    fn a_full_device_is_an_error() {
        let failure = run(3, &[("file", "/dev/full")]).failure.unwrap().to_string();
        assert_eq!(failure, "cannot write `/dev/full`: No space left on device; make room; the stream is not complete");
    }
}
