//! Writes each stream, message, frame or record to a file of its own, and an index of the files. This file decides which
//! blocks belong to which file.
//!
//! - `files/outgoing.rs` — one file under way: holds blocks until a write is worth its system call.
//! - `files/disk.rs` — the write path: when files are written, with few files open at a time.
//! - `files/round.rs` — two threads write and hash the bytes of several files.
//! - `files/folder.rs` — the folder and its `index.jsonl`, and the files that `overwrite=yes` may remove.
//! - `files/store.rs` — the other kind of folder: each content once, named by its hash, with side-cars.
//! - `files/title.rs` — a file's name and index fields. A name takes no byte from the wire.

mod disk;
mod folder;
mod outgoing;
mod round;
mod store;
#[cfg(test)]
mod tests;
mod title;

use crate::parts::class_table::ClassTable;
use crate::parts::ending;
use crate::parts::json_row::RowShapes;
use crate::parts::room::Room;
use disk::{Disk, Outcome};
use filter::kind::Example;
use filter::prelude::*;
use folder::Folder;
use outgoing::Outgoing;
use title::{MetaFields, Title};

/// What `files` is.
pub static KIND: Kind = Kind::new("files", "writes each stream or message to a file of its own", make)
    .also(&["extract", "export", "tcpflow"])
    .help(
        "Each direction of a connection becomes one file, named as tcpflow does: sender, then receiver, as in \
         192.168.101.102.02345-010.011.012.013.45103. IPv6 addresses are written with dots in place of colons. `--6` behind \
         the name is a VLAN, `c1`, `c2` ... are later connections with the same addresses and ports. Each body of an HTTP \
         message becomes a file such as http-00000001-response-SENDER-RECEIVER.html, numbered in the order in which their \
         first bytes came; each datagram, frame, packet or record one such as datagram-00000001-SENDER-RECEIVER. \
         Records are written as JSON. What is empty gets no file. No name contains anything that was taken from the \
         traffic but addresses and ports.\n\n\
         index.jsonl in the same folder has one line for each file: `file`, `kind`, `timestamp` (of the first block), `src_ip`, \
         `src_port`, `dest_ip`, `dest_port` (src_ip sent what is in the file), `size` in bytes, `sha256`, `state` and `gaps`. The \
         state is `complete`, `gap` where bytes inside were not captured, or `truncated` where the end was not seen or \
         a limit was reached; then `reason` is `limit`. Missing bytes are not filled: the file closes up over each gap, \
         and `gaps` lists them as [offset in the file, missing bytes], the first 1000 of a file. Files of HTTP have \
         `direction`, `http_method`, `hostname`, `url`, `status`, `http_content_type` and `content_encoding` as well; of a longer text the first 16 KiB, \
         and for files under way at the same time as long as 64 MiB hold them.\n\n\
         The folder is made, and tried, before the run begins, and held from then on: what comes into its place meanwhile \
         gets nothing. An input without any blocks leaves a folder with an empty index. A folder that has an index already \
         is refused, unless overwrite=yes: then the files which that index lists are removed first, and nothing else. A file that is there and in no index is never touched: the new one \
         gets a number behind its name.\n\n\
         With `store` in place of `dir`, a file is named by its SHA-256: ab/abcdef.... A content that is there already, from this run or \
         an earlier one, is not kept twice, and counted as `files stored already`. Beside it lies a side-car \
         for each time it was seen, abcdef....SECONDS.NUMBER.json: what the index would say of it, and `magic`, its media type \
         by its first bytes, where they show one. A store has no index, and any number of runs may share it.\n\n\
         Where `max-bytes` is reached, what is open ends there (`reason` is `limit`) and nothing more is written. Where \
         less than `min-free` would stay free of the file system, the run ends with an error; files and index are whole up \
         to there.\n\n\
         At most 64 files are open at a time, however many streams there are.",
    )
    .params(PARAMS)
    .sink()
    .completes(check_names)
    .restarts()
    .examples(&[
        Example { request: "pcap web.pcap | tcp | files streams", output: "" },
        Example { request: "pcap web.pcap | http | files bodies hash=no", output: "" },
    ]);

const PARAMS: &[Param] = &[
    Param::new("dir", ParamType::Path, "folder to write to; it is made if it does not exist").main(),
    Param::new(
        "store",
        ParamType::Path,
        "folder to write to in place of `dir`: each content once, named by its SHA-256",
    ),
    Param::new("hash", ParamType::Flag, "put the SHA-256 of each file into the index").default("yes"),
    Param::new("overwrite", ParamType::Flag, "replace what an earlier run wrote to the same folder").default("no"),
    Param::new("max-size", ParamType::Size, "keep this many bytes of each stream or message; no limit if not given"),
    Room::MAX_BYTES,
    Room::MIN_FREE,
];

fn check_names(params: &mut Params) -> Result<(), ParamError> {
    ["dir", "store"].iter().try_for_each(|key| ending::check_folder(params, key))
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let open = || match (params.text("dir"), params.text("store")) {
        (Some(dir), None) => Folder::open(dir, params.flag("overwrite"), Room::new(params)),
        (None, Some(store)) => {
            let of_index = if params.flag("overwrite") { Some("overwrite") } else { None };
            let without = of_index.or((!params.flag("hash")).then_some("hash"));
            without.map_or(Ok(()), |key| Err(ParamError::new(key, "a store keeps every content once, by its hash")))?;
            Folder::open_store(store, Room::new(params))
        }
        (None, None) => Err(ParamError::new("dir", "a folder is missing: `dir`, or `store`")),
        (Some(_), Some(_)) => Err(ParamError::new("store", "`dir` is another folder: only one of them is possible")),
    };
    let streams = Types::of(&[Type::Bytes, Type::Message]);
    if streams.has_all(env.input) {
        let bytes_possible = env.input.has(Type::Bytes);
        let size_max = params.number("max-size").unwrap_or(u64::MAX);
        let meta_fields = MetaFields::new(env);
        return Ok(Instance::filter(Streams {
            disk: Disk::new(open()?, params.flag("hash")),
            open: ClassTable::default(),
            ready: Vec::new(),
            bytes_possible,
            size_max,
            meta_fields,
        }));
    }
    let mut types = env.input.iter();
    match (types.next(), types.next()) {
        (Some(of), None) => {
            let disk = Disk::new(open()?, params.flag("hash"));
            Ok(Instance::filter(Blocks { disk, of, shapes: RowShapes::new(env), text: Vec::new() }))
        }
        _ => {
            let message = format!("{} come here, and their files would get mixed up", env.input);
            Err(ParamError::of_request(message)
                .with_help("end each branch with its own files: { a | files dir=a + b | files dir=b }"))
        }
    }
}

/// Input whose blocks belong together by class, from FIRST to LAST.
struct Streams {
    disk: Disk,
    open: ClassTable<Outgoing>,
    /// Classes of files that became ready for writing. Some files may have ended since.
    ready: Vec<Class>,
    /// Byte streams may come. `false`: all blocks belong to messages.
    bytes_possible: bool,
    size_max: u64,
    meta_fields: MetaFields,
}

impl Streams {
    fn block(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        let Streams { disk, open, ready, size_max, .. } = self;
        if block.has(Flags::FIRST)
            && let Some(mut before) = open.remove(block.class)
        {
            before.truncate();
            disk.end(before, cx.rings)?;
        }
        let begin = || Outgoing::new(title_of(block, self.bytes_possible, cx.streams));
        if block.has(Flags::FIRST.with(Flags::LAST)) {
            let mut file = begin();
            self.meta_fields.read_into(file.title_mut(), block, cx.rings, cx.counters);
            disk.add(&mut file, &block_within(block, 0, *size_max), cx.rings);
            return disk.end(file, cx.rings);
        }
        let Some(file) = open.get_or_insert(block.class, begin) else {
            cx.drop(1, "no stream class");
            return Ok(());
        };
        if block.has(Flags::META) {
            self.meta_fields.read_into(file.title_mut(), block, cx.rings, cx.counters);
        }
        let part = block_within(block, file.size(), *size_max);
        if disk.add(file, &part, cx.rings) {
            ready.push(block.class);
        }
        if !block.has(Flags::LAST) {
            return Ok(());
        }
        open.remove(block.class).map_or(Ok(()), |file| disk.end(file, cx.rings))
    }

    /// Writes the files that are ready. They leave the table meanwhile, because one call writes several of them.
    fn write_ready(&mut self, rings: &buffer::BlockTable) -> Outcome {
        let Streams { disk, open, ready, .. } = self;
        let mut files: Vec<(Class, Outgoing)> = Vec::with_capacity(ready.len());
        for class in ready.drain(..) {
            // The file may have ended since, and its class may have begun another.
            if open.get_mut(class).is_some_and(|file| file.ready) {
                files.extend(open.remove(class).map(|file| (class, file)));
            }
        }
        let outcome = disk.write_ready(files.iter_mut().map(|(_, file)| file), rings);
        for (class, file) in files {
            open.get_or_insert(class, || file);
        }
        outcome
    }
}

/// The title of a file that begins with this block.
fn title_of(block: &Descriptor, bytes_possible: bool, streams: &StreamTable) -> Title {
    let facts = streams.get(block.class);
    let is_udp = facts.is_some_and(|facts| facts.flow.protocol == packet::frame::protocol::UDP);
    let kind = if bytes_possible && !is_udp { "stream" } else { "datagram" };
    Title::of_stream(kind, block, facts)
}

/// The part of a block that still goes into a file of `size` bytes.
fn block_within(block: &Descriptor, size: u64, size_max: u64) -> Descriptor {
    let room = size_max.saturating_sub(size);
    let mut part = *block;
    if block.has(Flags::META) {
        (part.len, part.wire_and_flags) = (0, 0);
        part.set_flags(block.flags());
    } else if u64::from(block.len) > room || (block.gap() > 0 && room == 0) {
        part.len = room as u32;
        // Bytes behind the limit are not kept, so they are not missing.
        part.set_wire(if room == 0 { 0 } else { part.len.saturating_add(block.gap()) });
        part.add_flags(Flags::TRUNCATED.with(Flags::LIMITED));
    }
    part
}

impl Streams {
    /// Finishes if the request's limit was reached: ends the open files, and accepts no more blocks.
    fn unless_limited(&mut self, cx: &mut Context<'_>) -> Made {
        let Some(notice) = self.disk.take_limit_notice() else { return Ok(Status::Done) };
        self.end_all(cx)?;
        self.disk.flush_index()?;
        cx.notice(notice);
        Ok(Status::Finished)
    }

    /// Ends the open files. Goes on after a failure: the other files and the index should be whole.
    fn end_all(&mut self, cx: &mut Context<'_>) -> Outcome {
        let mut outcome = Ok(());
        while let Some((_, mut file)) = self.open.pop() {
            file.truncate();
            outcome = outcome.and(self.disk.end(file, cx.rings));
        }
        outcome.and(self.disk.write_ready(std::iter::empty(), cx.rings))
    }
}

impl Filter for Streams {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            self.block(block, cx)?;
        }
        if self.disk.holds_enough(cx.rings) {
            self.disk.write_all(self.open.states_mut(), cx.rings)?;
        } else if self.disk.is_round() {
            self.write_ready(cx.rings)?;
        }
        self.unless_limited(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.disk.write_all(self.open.states_mut(), cx.rings)?;
        self.disk.flush_index()?;
        self.unless_limited(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let outcome = self.end_all(cx);
        cx.notices.extend(self.disk.take_limit_notice());
        outcome.and(self.disk.finish(cx.counters))?;
        Ok(Status::Done)
    }

    fn restart(&mut self, cx: &mut Context<'_>) -> Made {
        self.end_all(cx)?;
        self.flush(cx)
    }
}

/// Input whose every block becomes a file.
struct Blocks {
    disk: Disk,
    of: Type,
    shapes: RowShapes,
    text: Vec<u8>,
}

impl Filter for Blocks {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            let mut bytes = cx.rings.bytes(block);
            if self.of == Type::Record {
                self.text.clear();
                if !self.shapes.append(&mut self.text, bytes, None) {
                    cx.drop(1, "not a record");
                    continue;
                }
                self.text.push(b'\n');
                bytes = &self.text;
            }
            let extension = if self.of == Type::Record { "json" } else { "" };
            self.disk.write_whole(
                Title::of_block(self.of.name(), extension, block),
                bytes,
                block.has(Flags::TRUNCATED),
                cx.rings,
            )?;
        }
        let Some(notice) = self.disk.take_limit_notice() else { return Ok(Status::Done) };
        self.disk.flush_index()?;
        cx.notice(notice);
        Ok(Status::Finished)
    }

    fn flush(&mut self, _cx: &mut Context<'_>) -> Made {
        self.disk.flush_index()
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.disk.finish(cx.counters)?;
        Ok(Status::Done)
    }
}
