//! Writes named fields of records as columns, one line for each record. `fields/format.rs` turns values into text.

mod format;

use crate::parts::ending;
use crate::parts::fields::{Names, known};
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use filter::prelude::*;
use format::{Format, Row as Cells};
use std::time::Instant;

/// What `fields` is.
pub static KIND: Kind = Kind::new("fields", "writes named fields of records as columns", make)
    .also(&["columns", "cut", "tsv", "csv", "print"])
    .help(
        "`fields NAME ...` writes a line for each record, to standard output or to `file`: the fields of these names, in this \
         order. Names are those that `json` prints, `http.status` or `src_ip`; `streamline schema` lists them. Of a message \
         its metadata are the record.\n\n\
         `format=tsv` puts tabs between fields; a tab, line feed or backslash in a text is written as `\\t`, `\\n`, `\\\\`. \
         `format=csv` is that of RFC 4180. `format=json` writes an object with the fields that are there. `format=table` \
         aligns columns, and widens them where a thousand further records need it, or fewer after a silence of 200 ms; on a \
         terminal its lines come at once, and are cut at its width. A field that a record has not is empty. Several values, such as \
         those of `dns.answers.rdata`, have commas between them. Bytes that are not UTF-8 are written as `\\xHH`. The first \
         line has the names, unless `header=no`.",
    )
    .params(&[
        Param::new("field", ParamType::List, "the fields").required().main(),
        Param::new("format", ParamType::Choice(&["tsv", "csv", "json", "table"]), "how lines look").default("tsv"),
        Param::new("header", ParamType::Flag, "the first line has the names").default("yes"),
        Param::new("file", ParamType::Path, "file to write to; standard output if not given, or if it is -"),
        Lines::OVERWRITE,
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record, Type::Message])
    .reads_fields(|params| params.list("field").to_vec())
    .sink()
    .completes(check_name)
    .restarts()
    .names_fields(check)
    .examples(&[
        Example { request: "pcap dns.pcap | dns | fields src_ip dns.type dns.rrname dns.answers.rdata", output: DNS },
        Example { request: "pcap browse.pcap | histogram width=1000 | fields low count format=csv", output: "low,count\n0,28\n1000,15\n" },
    ]);

const DNS: &str = "\
src_ip\tdns.type\tdns.rrname\tdns.answers.rdata
10.16.1.11\trequest\tsuricata.io\t
8.8.8.8\tresponse\tsuricata.io\t35.209.168.153
10.16.1.11\trequest\tsuricata.io\t
8.8.8.8\tresponse\tsuricata.io\t35.209.168.153
";

fn check(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    let mut at = 0;
    for name in params.list("field") {
        known(name, schemas, "field", at..at + name.len())?;
        at += name.len();
    }
    Ok(Vec::new())
}

fn check_name(params: &mut Params) -> Result<(), ParamError> {
    let endings: &[&str] = match params.text("format") {
        Some("csv") => &["csv"],
        Some("json") => ending::JSON,
        Some("table") => &[],
        _ => &["tsv", "tab"],
    };
    ending::check(params, "file", endings)
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let names = params.list("field").to_vec();
    let format = match params.text("format") {
        Some("csv") => Format::Csv,
        Some("json") => Format::Json,
        Some("table") => Format::table(names.len()),
        _ => Format::Tsv,
    };
    let header = params.flag("header") && !matches!(format, Format::Json);
    Ok(Instance::filter(Fields {
        lines: Lines::new(params, env)?,
        cells: Cells::new(&names, &format),
        names: Names::new(names, env),
        format,
        header,
        of_messages: env.input.has(Type::Message),
    }))
}

struct Fields {
    lines: Lines,
    names: Names,
    cells: Cells,
    format: Format,
    /// The line of names is not written yet.
    header: bool,
    /// Records are the metadata of messages.
    of_messages: bool,
}

impl Fields {
    /// Writes the line of names before the first record.
    fn begin(&mut self) -> Made {
        if !std::mem::take(&mut self.header) {
            return Ok(Status::Done);
        }
        if let Some(table) = self.format.as_table() {
            table.head(self.names.names().to_vec());
            return Ok(Status::Done);
        }
        self.cells.set_names();
        self.line()
    }

    fn line(&mut self) -> Made {
        self.format.line(&mut self.lines, &self.cells)
    }
}

impl Filter for Fields {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.begin()? == Status::Finished {
            return Ok(Status::Finished);
        }
        for (_, block) in batch.iter() {
            if self.of_messages && !block.has(Flags::META) {
                continue;
            }
            let Some((row, columns)) = self.names.row(cx.rings.bytes(block)) else {
                cx.drop(1, "not a record");
                continue;
            };
            self.cells.set(&row, columns);
            if self.line()? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        if let Some(table) = self.format.as_table() {
            table.batch_done(&mut self.lines)?;
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        if let Some(table) = self.format.as_table() {
            table.pause(&mut self.lines, Instant::now())?;
        }
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.begin()?;
        if let Some(table) = self.format.as_table() {
            table.settle(&mut self.lines)?;
        }
        self.lines.flush(cx)
    }
}
