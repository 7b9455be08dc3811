//! Writes records as files of Parquet.
//!
//! - here — which file a record goes to, and when a file is complete
//! - `parquet/layout.rs` — the folders: by day, by hour, by kind
//! - `parquet/open.rs` — one file under way

mod layout;
mod open;
#[cfg(test)]
mod tests;

use crate::parts::failure::Wrong;
use crate::parts::table::{Schemas, of_one_kind};
use base::terminal;
use filter::counter::{FILE_BYTES, FILES};
use filter::prelude::*;
use filters::parts::ending;
use filters::parts::held_folder::HeldFolder;
use filters::parts::room::Room;
use filters::parts::system::reason;
use layout::{Layout, Place};
use open::{Limits, Open};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// What `parquet` is.
pub static KIND: Kind = Kind::new("parquet", "writes records as files of Parquet", make)
    .beside("arrow", "writes a stream for a pipe")
    .help(
        "`parquet DIR` writes records into files `000001.parquet`, `000002.parquet` ... of the folder DIR, for DuckDB, polars, \
         pandas, Spark and others. Columns are those of `arrow`; they are compressed by Snappy. With `by=\"day,kind\"` the files of each day (of UTC) and each kind of record have a \
         folder of their own, named as Hive names them: `day=2026-11-28/kind=flow/000001.parquet`. `by` takes `day`, `hour` and `kind`, in \
         the order of the folders. Without `kind` only records of one kind may come. Of a message its metadata are the record.\n\n\
         A file gets its name when it is complete: until then it ends in `.part`, and if the run fails it is removed, so that a full \
         disk leaves whole files only. It is complete at the end of the input, at about `rotate-size` bytes, at `rotate-rows` rows, or \
         when `rotate-time` is over. At most 16 files are under way: beyond them the one without a row for longest is completed. Rows that \
         wait to be written take at most 64 MiB.\n\n\
         The folder may have files already: new ones get the next numbers, and several runs may write to one folder. No file is ever replaced. \
         An input without records leaves no file. Where `max-bytes` is reached, the files are completed, and nothing more is written.",
    )
    .params(&[
        Param::new("dir", ParamType::Path, "folder to write to; it is made if it does not exist").required().main(),
        Param::new("by", ParamType::Text, "folders for each day, hour or kind, outermost first: \"day,kind\""),
        Param::new("rotate-size", ParamType::Size, "complete a file at about this many bytes").default("128M"),
        Param::new("rotate-rows", ParamType::Number, "complete a file at this many rows").default("10M"),
        Param::new("rotate-time", ParamType::Duration, "complete files at every multiple of this time"),
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record, Type::Message])
    .mode(Mode::Serial)
    .sink()
    .completes(|params| ending::check_folder(params, "dir"))
    .names_fields(check)
    .examples(&[
        Example { request: "pcap dns.pcap | flows | parquet flows", output: "" },
        Example { request: "pcap browse.pcap | { flows + http | transactions } | parquet lake by=\"day,kind\"", output: "" },
    ]);

/// Files under way, at most.
const OPEN_MAX: usize = 16;

/// Bytes of rows that are not written yet, of all files.
const WAITING_BYTES: usize = 64 << 20;

fn check(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    let layout = Layout::new(params)?;
    if !layout.has_kind() {
        return of_one_kind(schemas).map_err(|error| error.with_help("`by=kind` gives each kind a folder of its own"));
    }
    for (at, schema) in schemas.iter().enumerate() {
        if schemas[..at].iter().any(|other| other.name == schema.name) {
            let message = format!("two kinds of records are called `{}`, and would share a folder", schema.name);
            return Err(
                ParamError::of_request(message).with_help("give each its own `parquet`, with a folder of its own")
            );
        }
    }
    Ok(Vec::new())
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let dir = Path::new(params.text("dir").unwrap_or("."));
    let failed = |error: std::io::Error| {
        let message = format!("cannot write to {}: {}", terminal::name(dir), reason(&error));
        ParamError { key: Some("dir"), ..ParamError::system(message) }
    };
    let folder = HeldFolder::open_or_make(dir).map_err(failed)?;
    folder.probe().map_err(failed)?;
    let room = Room::new(params);
    room.check("dir", folder.as_fd(), dir)?;
    let number = |key| params.number(key).unwrap_or(u64::MAX);
    let limits =
        Limits { bytes: number("rotate-size"), rows: number("rotate-rows"), time: params.number("rotate-time") };
    for key in ["rotate-size", "rotate-rows", "rotate-time"] {
        if params.number(key) == Some(0) {
            return Err(ParamError::new(key, "a file without rows is no file"));
        }
    }
    Ok(Instance::filter(Parquet {
        folder: Arc::new(folder),
        layout: Layout::new(params)?,
        limits,
        room,
        schemas: Schemas::new(env),
        open: Vec::new(),
        of_messages: env.input.has(Type::Message),
        whole: 0,
        told: (0, 0),
        is_over: false,
    }))
}

struct Parquet {
    folder: Arc<HeldFolder>,
    layout: Layout,
    limits: Limits,
    room: Room,
    schemas: Schemas,
    /// The files under way, the one used longest ago first.
    open: Vec<Open>,
    of_messages: bool,
    /// Files that are complete.
    whole: u64,
    /// Those that are not counted yet, and their bytes.
    told: (u64, u64),
    /// Nothing more is written.
    is_over: bool,
}

impl Parquet {
    fn record(&mut self, row: &Row<'_>, bytes: usize, time: u64) -> Result<(), Box<Failure>> {
        let at = self.find(self.layout.place(row.schema(), time), row.schema(), time)?;
        if self.open[at].push(row, bytes) { self.written(at) } else { Ok(()) }
    }

    /// The index of the file for this place, which is the last one.
    fn find(&mut self, place: Place, schema: &'static Schema, time: u64) -> Result<usize, Box<Failure>> {
        let is_over = |open: &Open| self.limits.time.is_some_and(|interval| open.until(interval) <= time);
        match self.open.iter().rposition(|open| open.place == place) {
            Some(at) if is_over(&self.open[at]) => self.close(at)?,
            Some(at) => self.open[at..].rotate_left(1),
            None if self.open.len() == OPEN_MAX => self.close(0)?,
            None => {}
        }
        if self.open.last().is_none_or(|open| open.place != place) {
            self.open.push(self.begin(place, schema, time)?);
        }
        let at = self.open.len() - 1;
        let known = self.open[at].schema();
        if known.id() != schema.id() {
            let text = format!(
                "records of `{}` and of `{}` would share a file; `by=kind` gives each kind a folder",
                known.name, schema.name
            );
            return Err(Box::new(Failure::Request(text)));
        }
        Ok(at)
    }

    fn begin(&self, place: Place, schema: &'static Schema, time: u64) -> Result<Open, Box<Failure>> {
        let begun = self.layout.folder(&self.folder, place, schema).map_err(Wrong::Io);
        begun
            .and_then(|folder| Open::begin(folder, place, schema, time))
            .map_err(|wrong| self.failure(&wrong, self.folder.path()))
    }

    fn failure(&self, wrong: &Wrong, path: &Path) -> Box<Failure> {
        let left = match self.whole {
            0 => "no file was made".to_string(),
            1 => "1 file is whole".to_string(),
            many => format!("{many} files are whole"),
        };
        wrong.failure(path, &left)
    }

    /// Encodes the rows of a full table, and completes its file at its limit.
    fn written(&mut self, at: usize) -> Result<(), Box<Failure>> {
        let waits: usize = self.open.iter().map(Open::waiting).sum();
        let open = &mut self.open[at];
        let before = open.bytes();
        // The one that is written to now is as good as any other to make room.
        let encoded = open.encode(waits > WAITING_BYTES);
        let (bytes, path) = (open.bytes().saturating_sub(before), open.path());
        encoded.map_err(|wrong| self.failure(&wrong, &path))?;
        self.room.take(bytes, 0, self.folder.as_fd(), self.folder.path())?;
        if self.room.left() < self.open[at].size() {
            self.is_over = true;
            return self.close_all();
        }
        if self.open[at].is_complete(&self.limits) { self.close(at) } else { Ok(()) }
    }

    /// Completes a file.
    fn close(&mut self, at: usize) -> Result<(), Box<Failure>> {
        let open = self.open.remove(at);
        let path = open.path();
        let bytes = open.close().map_err(|wrong| self.failure(&wrong, &path))?;
        self.whole += 1;
        self.told.0 += 1;
        self.told.1 += bytes;
        Ok(())
    }

    fn close_all(&mut self) -> Result<(), Box<Failure>> {
        while !self.open.is_empty() {
            self.close(0)?;
        }
        Ok(())
    }

    /// Completes the files whose time is over, and counts what is complete.
    fn settle(&mut self, cx: &mut Context<'_>) -> Made {
        if let Some(interval) = self.limits.time {
            while let Some(at) = self.open.iter().position(|open| open.until(interval) <= cx.now) {
                self.close(at).inspect_err(|_| self.open.clear())?;
            }
            self.open.iter().for_each(|open| cx.wake_at(open.until(interval)));
        }
        let (files, bytes) = std::mem::take(&mut self.told);
        cx.count(FILES, files);
        cx.count(FILE_BYTES, bytes);
        Ok(if self.is_over { Status::Finished } else { Status::Done })
    }
}

impl Filter for Parquet {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let of_messages = self.of_messages;
        for (_, block) in batch.iter().filter(|(_, block)| !of_messages || block.has(Flags::META)) {
            let bytes = cx.rings.bytes(block);
            match self.schemas.row(bytes) {
                None => cx.drop(1, "not a record"),
                Some(row) => {
                    let recorded = self.record(&row, bytes.len(), block.time);
                    // What a failed run has not completed goes.
                    recorded.inspect_err(|_| self.open.clear())?;
                }
            }
            if self.is_over {
                cx.notice(self.room.notice(self.folder.path()));
                break;
            }
        }
        self.settle(cx)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.settle(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.close_all()?;
        self.settle(cx)?;
        Ok(Status::Done)
    }
}
