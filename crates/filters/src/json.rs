//! Writes records and messages as JSON, one object a line.
//!
//! This file decides what a line is: a record, or a message after its last block. `parts/json_row.rs` and
//! `parts/json_text.rs` turn a row into text.

use crate::parts::class_table::ClassTable;
use crate::parts::ending;
use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::json_row::{MessageEnd, RowShapes};
use crate::parts::kept::{Budget, Charge, Shortener};
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use base::limits::META_KEPT_BYTES;
use filter::prelude::*;

/// What `json` is.
pub static KIND: Kind = Kind::new("json", "writes records and messages as JSON, one object a line", make)
    .also(&["jq", "jsonl"])
    .help(
        "Each record becomes one line, written to standard output or to `file`. A file that exists is \
         refused unless overwrite=yes, one whose name ends as another format's (`x.csv`, `x.parquet`) always; devices and pipes with a name are written to as they are. Names, and \
         how they nest, are those of Suricata's EVE format where it has them; times are RFC 3339, UTC, with nanoseconds. \
         \n\n\
         A message becomes one line when it ends: its metadata with `length`, the bytes of its body that are there, and \
         `state`: `complete`, `gap` (bytes are missing inside) or `truncated` (its end is missing; \
         `reason` is `limit` where a limit of the request cut it off). A datagram of `udp` is \
         a line of type `datagram` with its addresses and `size`.\n\n\
         Of a text in metadata (a URL, say) the first 16 KiB are written, and how much there was more. Of messages that \
         are not over yet 64 MiB of metadata are kept; the line of a further one has only its flow, `length` and \
         `state`. Both are counted.\n\n\
         Bytes in a text that are not UTF-8 are written as `\\xHH`, and a backslash before an x as `\\x5c`. If the \
         reader of standard output stops reading, the run ends quietly.",
    )
    .params(PARAMS)
    .takes(&[Type::Message, Type::Record])
    .sink()
    .completes(|params| ending::check(params, "file", ending::JSON))
    .restarts()
    .examples(&[Example { request: "pcap dns.pcap | count | json", output: DNS_COUNT }]);

const DNS_COUNT: &str = "{\"blocks\":12,\"bytes\":980,\"wire_bytes\":980}\n";

const PARAMS: &[Param] = &[
    Param::new("file", ParamType::Path, "file to write to; standard output if not given, or if it is -").main(),
    Lines::OVERWRITE,
    Room::MAX_BYTES,
    Room::MIN_FREE,
];

/// The schema of a datagram's line. Datagrams have no row of their own.
static DATAGRAM: Schema =
    Schema::new("datagram", &eve_fields![Field::new("size", FieldType::Number), Field::new("state", FieldType::Text)]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let (messages, records) = (env.input.has(Type::Message), env.input.has(Type::Record));
    if messages && records {
        let error = "both messages and records come here, and their lines cannot be told apart";
        return Err(
            ParamError::of_request(error).with_help("end each branch with its own json: { a | json + b | json }")
        );
    }
    let lines = Lines::new(params, env)?;
    if !messages {
        return Ok(Instance::filter(Records { lines, shapes: RowShapes::new(env) }));
    }
    let schemas = env.schemas.iter().copied().chain([&DATAGRAM]).collect();
    let shapes = RowShapes::new(&Env { schemas, ..env.clone() });
    Ok(Instance::filter(Messages {
        lines,
        shapes,
        open: ClassTable::default(),
        shortener: Shortener::new(env),
        budget: Budget::new(META_KEPT_BYTES),
        spare: Vec::new(),
        datagram: RowWriter::new(&DATAGRAM),
    }))
}

/// Input of records: every block is a row.
struct Records {
    lines: Lines,
    shapes: RowShapes,
}

impl Filter for Records {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            if !self.shapes.append(self.lines.buffer(), cx.rings.bytes(block), None) {
                cx.drop(1, "not a record");
            } else if self.lines.line_done()? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }
}

/// Input of messages: a run of blocks of one class. The filter writes a message's line after its last block.
struct Messages {
    lines: Lines,
    shapes: RowShapes,
    open: ClassTable<OpenMessage>,
    shortener: Shortener,
    /// Bounds the metadata of open messages.
    budget: Budget,
    /// Buffers of ended messages, for new ones.
    spare: Vec<Vec<u8>>,
    datagram: RowWriter,
}

/// Limit of buffers kept for new messages.
const SPARE_ROWS: usize = 1024;

/// Limit of a kept buffer, in bytes.
const SPARE_ROW_BYTES: usize = 4 << 10;

/// Buffer sizes are multiples of this, so that more messages can reuse them.
const ROW_STEP_BYTES: usize = 128;

#[derive(Debug, Default)]
struct OpenMessage {
    meta: Kept,
    length: u64,
    gap: bool,
    truncated: bool,
    limited: bool,
}

/// The metadata kept of an open message.
#[derive(Debug, Default)]
enum Kept {
    #[default]
    Nothing,
    /// A copy of the row.
    Row(Vec<u8>, Charge),
    /// There was no room for the row. Only its schema and its time are kept.
    LeftOut(&'static Schema, u64),
}

impl OpenMessage {
    fn end(&self) -> MessageEnd {
        let state = match self {
            OpenMessage { truncated: true, .. } => "truncated",
            OpenMessage { gap: true, .. } => "gap",
            _ => "complete",
        };
        MessageEnd { length: self.length, state, limited: self.limited }
    }

    fn add(&mut self, block: &Descriptor) {
        if !block.has(Flags::META) {
            self.length += u64::from(block.len);
        }
        self.gap |= block.gap() > 0;
        self.truncated |= block.has(Flags::TRUNCATED);
        self.limited |= block.has(Flags::LIMITED);
    }
}

impl Messages {
    fn message(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Made {
        if block.has(Flags::FIRST)
            && let Some(before) = self.open.remove(block.class)
        {
            self.write(block.class, OpenMessage { truncated: true, ..before }, cx.streams)?;
        }
        if block.has(Flags::FIRST.with(Flags::LAST)) && !block.has(Flags::META) {
            return self.write_datagram(block, cx);
        }
        if block.has(Flags::META.with(Flags::FIRST).with(Flags::LAST)) {
            let mut message = OpenMessage::default();
            message.add(block);
            let row = self.shortener.shorten(cx.rings.bytes(block), cx.counters);
            let rendered = self.shapes.append(self.lines.buffer(), row, Some(message.end()));
            return if rendered { self.lines.line_done() } else { Ok(Status::Done) };
        }
        let Some(message) = self.open.get_or_insert(block.class, OpenMessage::default) else {
            cx.drop(1, "no stream class");
            return Ok(Status::Done);
        };
        message.add(block);
        if block.has(Flags::META) {
            let row = self.shortener.shorten(cx.rings.bytes(block), cx.counters);
            let mut kept = self.spare.pop().unwrap_or_default();
            kept.reserve_exact(row.len().next_multiple_of(ROW_STEP_BYTES));
            message.meta = match self.budget.take(kept.capacity(), cx.counters) {
                Some(charge) => {
                    kept.extend_from_slice(row);
                    Kept::Row(kept, charge)
                }
                None => {
                    let schema = self.shortener.schema(cx.rings.bytes(block));
                    schema.map_or(Kept::Nothing, |schema| Kept::LeftOut(schema, block.time))
                }
            };
        }
        if block.has(Flags::LAST)
            && let Some(message) = self.open.remove(block.class)
        {
            return self.write(block.class, message, cx.streams);
        }
        Ok(Status::Done)
    }

    /// Writes a message's line. A message without metadata has none.
    fn write(&mut self, class: Class, message: OpenMessage, streams: &StreamTable) -> Made {
        let end = Some(message.end());
        let rendered = match message.meta {
            Kept::Nothing => false,
            Kept::LeftOut(schema, time) => {
                let mut row = RowWriter::new(schema);
                begin_row(&mut row, time, class, streams.get(class));
                self.shapes.append(self.lines.buffer(), row.row(), end)
            }
            Kept::Row(mut row, _charge) => {
                let rendered = self.shapes.append(self.lines.buffer(), &row, end);
                if self.spare.len() < SPARE_ROWS && row.capacity() <= SPARE_ROW_BYTES {
                    row.clear();
                    self.spare.push(row);
                }
                rendered
            }
        };
        if rendered { self.lines.line_done() } else { Ok(Status::Done) }
    }

    fn write_datagram(&mut self, block: &Descriptor, cx: &Context<'_>) -> Made {
        let mut message = OpenMessage::default();
        message.add(block);
        let end = message.end();
        begin_row(&mut self.datagram, block.time, block.class, cx.streams.get(block.class));
        self.datagram.number("size", end.length).text("state", end.state);
        self.shapes.append(self.lines.buffer(), self.datagram.row(), None);
        self.lines.line_done()
    }
}

impl Filter for Messages {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            if self.message(block, cx)? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        while let Some((class, message)) = self.open.pop() {
            self.write(class, OpenMessage { truncated: true, ..message }, cx.streams)?;
        }
        self.lines.flush(cx)
    }

    fn restart(&mut self, cx: &mut Context<'_>) -> Made {
        self.finish(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count;
    use crate::parts::handmade::{MESSAGES, Piece, block, facts, meta};
    use std::io::{self, Write};
    use std::sync::Arc;
    use testkit::Chain;

    fn check(pieces: Vec<Piece>, expected: &[&str]) {
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&[facts(7, 17, 0)]);
        let outcome = chain.then(&MESSAGES, &[]).then(&KIND, &[]).run();
        assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_message_is_a_line_when_it_ends() {
        const FIRST: Flags = Flags::META.with(Flags::FIRST);
        let meta = |url| meta(url, "text/html");
        let line = |url: &str, end: &str| {
            let time = r#"{"timestamp":"1970-01-01T00:00:00.000000000Z","event_type":"http","#;
            let http = r#""http":{"direction":"response","url":"URL","status":200,"http_content_type":"text/html","#;
            format!("{time}{}{end}}}}}", http.replace("URL", url))
        };
        let gap = Flags::GAP_BEFORE;
        check(
            vec![
                block(2, FIRST, &meta("/a"), 0),
                block(3, FIRST.with(Flags::LAST), &meta("/none"), 0),
                block(2, Flags::NONE, b"abc", 0),
                block(4, FIRST, &meta("/cut"), 0),
                block(2, Flags::LAST, b"de", 0),
                block(2, FIRST, &meta("/gap"), 0),
                block(2, gap.with(Flags::LAST), b"xyz", 10),
                block(4, Flags::LAST.with(Flags::TRUNCATED), b"x", 0),
                block(2, FIRST, &meta("/replaced"), 0),
                block(2, FIRST, &meta("/unfinished"), 0),
            ],
            &[
                &line("/none", r#""length":0,"state":"complete""#),
                &line("/a", r#""length":5,"state":"complete""#),
                &line("/gap", r#""length":3,"state":"gap""#),
                &line("/cut", r#""length":1,"state":"truncated""#),
                &line("/replaced", r#""length":0,"state":"truncated""#),
                &line("/unfinished", r#""length":0,"state":"truncated""#),
            ],
        );
    }

    /// 2,500 open messages, each with two texts of 20 kB: their kept metadata is bounded.
    #[test]
    fn metadata_of_open_messages_is_bounded() {
        const OPEN: usize = 2500;
        let long = meta(&"u".repeat(20_000), &"t".repeat(20_000));
        let begun = (0..OPEN as u32).map(|class| block(class, Flags::META.with(Flags::FIRST), &long, 0));
        let ended = (0..OPEN as u32).map(|class| block(class, Flags::LAST, b"body", 0));
        let pieces = begun.chain(ended).collect();
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&vec![facts(7, 6, 0); OPEN / 2]);
        let outcome = chain.then(&MESSAGES, &[]).then(&KIND, &[]).run();
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert_eq!(lines.len(), OPEN);
        assert!(lines.iter().all(|line| line.ends_with(r#""length":4,"state":"complete"}}"#)));
        let (with, without): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.contains(r#""url":"uuu"#));
        assert!(with.iter().all(|line| line.contains(r#"uu...[3616 bytes more]","status":200"#)));
        assert!((META_KEPT_BYTES / 34_000..=META_KEPT_BYTES / 32_768).contains(&with.len()), "{}", with.len());
        assert!(without.iter().all(|line| line.contains(r#""src_ip":"10.0.0."#) && line.len() < 300));
        let events = &outcome.counters("json").events;
        assert_eq!(events.get("metadata left out"), without.len() as u64);
        assert_eq!(events.get("metadata texts shortened"), 2 * OPEN as u64);
    }

    #[test]
    fn a_datagram_is_a_line() {
        let whole = Flags::FIRST.with(Flags::LAST);
        let id = crate::parts::eve::flow_id(&facts(7, 17, 0)).to_string();
        let flow = r#""flow_id":FLOW,"event_type":"datagram","src_ip":"10.0.0.2","src_port":80,"dest_ip":"10.0.0.1","#;
        let flow = format!(r#"{}"dest_port":7,"proto":"UDP","#, flow.replace("FLOW", &id));
        let time = r#"{"timestamp":"1970-01-01T00:00:00.000000000Z","#;
        check(
            vec![block(1, whole, b"abcd", 0), block(900, whole.with(Flags::TRUNCATED), b"abcd", 0)],
            &[
                &format!(r#"{time}{flow}"size":4,"state":"complete"}}"#),
                &format!(r#"{time}"event_type":"datagram","size":4,"state":"truncated"}}"#),
            ],
        );
    }

    #[test]
    fn a_class_that_no_stream_has_is_dropped() {
        let chain = Chain::pieces(Type::Message, None, vec![block(u32::MAX, Flags::NONE, b"x", 0)]);
        let outcome = chain.then(&KIND, &[]).run();
        assert_eq!(outcome.counters("json").drops.get("no stream class"), 1);
    }

    #[test]
    fn records_go_to_standard_output_or_a_file() {
        let frames = [(0, vec![0; 60]), (1, vec![0; 40])];
        let line = "{\"blocks\":2,\"bytes\":100,\"wire_bytes\":100}\n";
        let run = |given: &[(&str, &str)]| Chain::frames(1, &frames).then(&count::KIND, &[]).then(&KIND, given).run();
        assert_eq!(run(&[]).stdout, line);
        assert_eq!(run(&[("file", "-")]).stdout, line);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        std::fs::write(&path, "old, and longer than the new content will be, so that replacing shows").unwrap();
        assert_eq!(run(&[("file", path.to_str().unwrap()), ("overwrite", "yes")]).stdout, "");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), line);
        let named = folder.path().join("new.json");
        assert_eq!(run(&[("file", named.to_str().unwrap())]).stdout, "");
        assert_eq!(std::fs::read_to_string(&named).unwrap(), line);
        assert_eq!(run(&[("file", "/dev/null")]).failure, None);
    }

    #[test]
    fn a_file_that_exists_is_not_replaced_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |path: &std::path::Path| {
            let chain = Chain::frames(1, &[]).then(&count::KIND, &[]).then(&KIND, &[("file", path.to_str().unwrap())]);
            chain.refusal().unwrap()
        };
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, "precious").unwrap();
        let error = refusal(&path);
        assert_eq!((error.key, error.help.as_deref()), (Some("file"), Some("overwrite=yes replaces it")));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let missing = folder.path().join("none/out.json");
        assert_eq!(refusal(&missing).message, format!("cannot write {}: No such file or directory", missing.display()));
    }

    #[test]
    fn a_file_that_comes_during_the_run_is_not_replaced_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let stdout = Output::new(Box::new(io::sink()), false);
        let env = Env {
            input: Types::of(&[Type::Record]),
            stdout,
            compiler: Arc::new(NoCompiler),
            schemas: [].into(),
            wait: filter::Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        };
        let params = testkit::chain::params(&KIND, &[("file", path.to_str().unwrap())]);
        let mut lines = Lines::new(&params, &env).unwrap();
        std::fs::write(&path, "precious").unwrap();
        let failure = lines.write_out().unwrap_err().to_string();
        assert_eq!(failure, format!("cannot create `{}`: File exists", path.display()));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn what_is_no_record_is_dropped() {
        let outcome = Chain::pieces(Type::Record, None, vec![block(0, Flags::NONE, b"abc", 0)]).then(&KIND, &[]).run();
        assert_eq!(outcome.counters("json").drops.get("not a record"), 1);
    }

    /// A writer that fails after `left` bytes, as a pipe does whose reader left.
    struct Broken {
        left: usize,
        error: io::ErrorKind,
    }

    impl Write for Broken {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.left);
            self.left -= taken;
            if taken == 0 { Err(self.error.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_reads_any_more() {
        let check = |error: io::ErrorKind, expected: Result<Status, &str>| {
            let stdout = Output::new(Box::new(Broken { left: 10, error }), false);
            let compiler = Arc::new(NoCompiler);
            let env = Env {
                input: Types::of(&[Type::Record]),
                stdout,
                compiler,
                schemas: [].into(),
                wait: filter::Wait::default(),
                latency: None,
                make_ring: [].into(),
                daemon: None,
            };
            let mut lines = Lines::new(&Params::new(), &env).unwrap();
            lines.buffer().extend_from_slice(&[b'x'; 100]);
            assert_eq!(lines.line_done(), Ok(Status::Done), "too little to be written yet");
            let written = lines.write_out().map_err(|failure| failure.to_string());
            match expected {
                Ok(status) => assert_eq!(written, Ok(status)),
                Err(text) => assert!(written.unwrap_err().starts_with(text)),
            }
            assert_eq!(lines.write_out(), Ok(Status::Finished), "not tried again");
        };
        check(io::ErrorKind::BrokenPipe, Ok(Status::Finished));
        check(io::ErrorKind::StorageFull, Err("cannot write to standard output: "));
    }

    struct NoCompiler;

    impl program::compile::Compile for NoCompiler {
        fn compile(
            &self,
            _: &str,
            _: u16,
            _: u32,
        ) -> Result<Vec<program::cbpf::Instruction>, program::compile::CompileError> {
            Err(program::compile::CompileError::unavailable("none"))
        }

        fn describe(&self) -> String {
            "none".into()
        }
    }

    #[test]
    fn messages_and_records_do_not_mix() {
        let stdout = Output::new(Box::new(io::sink()), false);
        let input = Types::of(&[Type::Record, Type::Message]);
        let env = Env {
            input,
            stdout,
            compiler: Arc::new(NoCompiler),
            schemas: [].into(),
            wait: filter::Wait::default(),
            latency: None,
            make_ring: [].into(),
            daemon: None,
        };
        let error = make(&Params::new(), &env).unwrap_err();
        assert!(error.help.unwrap().contains("its own json"));
    }
}
