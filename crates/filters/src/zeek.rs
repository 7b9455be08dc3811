//! Writes flows, HTTP, files, DNS and TLS as Zeek's logs.
//!
//! - `zeek/log.rs`: one line of a log, as tab-separated values or JSON.
//! - `zeek/rows.rs`: the columns of each log and their values.
//! - `zeek/state.rs`: the state of a connection.
//! - `zeek/values.rs`: the values of a record by name.
//!
//! The records come from other filters. If the input is frames, the planner inserts all of those filters.

mod log;
mod rows;
mod state;
mod values;

use crate::parts::ending;
use crate::parts::fields::Names;
use crate::parts::held_folder::HeldFolder;
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use crate::parts::services::Services;
use crate::parts::services::late::{LateFlow, LateFlows};
use crate::parts::system::reason;
use base::terminal;
use filter::prelude::*;
use log::{Format, Line, Log, append_end, append_head};
use std::path::Path;
use values::Values;

/// The kind `zeek`.
pub static KIND: Kind = Kind::new("zeek", "writes flows, HTTP, files, DNS and TLS as Zeek's logs", make)
    .also(&["bro", "connlog"])
    .help(
        "`pcap x | zeek logs` writes `conn.log`, `http.log`, `files.log`, `dns.log` and `ssl.log` into the folder `logs`, each \
         where there is something for it: with tabs, under the names and types that Zeek 7 has, or with `format=json` as JSON \
         lines. Before frames it stands for `{ flows + http | transactions + tls | transactions + dns | transactions } | zeek \
         logs`: write that out to give these filters parameters (`transactions hash=yes` for `sha256`), or to leave some out.\n\n\
         `uid` is the number that other records have as `flow_id`, and joins the logs. `conn.log` has a line for each flow of \
         `flows` when it ends; `service` has the protocols that were read in it: a flow without one waits for 61 s, for a request \
         without an answer, unless nothing but flows comes. `orig_bytes` and `resp_bytes` are bytes of \
         payload, each once. Private addresses are local. `mime_type` is what the head of the message \
         says. Columns for what is not read are unset: `qclass`, `status_msg`, `curve`, `resumed`, `established`, \
         certificates, tunnels.\n\n\
         A log that exists is refused unless overwrite=yes. `max-bytes` is for each log.",
    )
    .params(&[
        Param::new("out", ParamType::Path, "folder to write to; it is made if it does not exist").required().main(),
        Param::new("format", ParamType::Choice(&["tsv", "json"]), "how lines look").default("tsv"),
        Lines::OVERWRITE,
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record])
    .wants(&[(Type::Frame, RECORDS), (Type::Packet, RECORDS), (Type::Message, "transactions")])
    .mode(Mode::Serial)
    .sink()
    .completes(|params| ending::check_folder(params, "out"))
    .examples(&[Example { request: "pcap browse.pcap | zeek logs", output: "" }]);

/// The filters that make records from frames.
const RECORDS: &str = "{ flows + http | transactions + tls | transactions + dns | transactions }";

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let dir = Path::new(params.text("out").unwrap_or("."));
    let folder = HeldFolder::open_or_make(dir).map_err(|error| {
        let message = format!("cannot write to {}: {}", terminal::name(dir), reason(&error));
        ParamError { key: Some("out"), ..ParamError::system(message) }
    })?;
    let file = |log: &'static Log| -> Result<Written, ParamError> {
        let lines = Lines::at("out", &dir.join(format!("{}.log", log.path)), params)?;
        Ok(Written { log, lines, last: None })
    };
    Ok(Instance::filter(Zeek {
        folder,
        format: if params.text("format") == Some("json") { Format::Json } else { Format::Tsv },
        rows: Names::new(Vec::new(), env),
        services: Services::default(),
        late: LateFlows::of(params, &env.schemas),
        conn: file(&rows::CONN)?,
        http: file(&rows::HTTP)?,
        files: file(&rows::FILES)?,
        dns: file(&rows::DNS)?,
        ssl: file(&rows::SSL)?,
    }))
}

struct Written {
    log: &'static Log,
    lines: Lines,
    /// Time of the latest record. `None`: there is no line yet, and no file.
    last: Option<u64>,
}

impl Written {
    fn add(&mut self, format: Format, time: u64, fill: impl FnOnce(&mut Line<'_>)) -> Made {
        if self.last.is_none() && format == Format::Tsv {
            append_head(self.lines.buffer(), self.log, time);
            self.lines.line_done()?;
        }
        self.last = Some(time);
        let mut line = Line::begin(self.lines.buffer(), self.log, format);
        fill(&mut line);
        line.end();
        self.lines.line_done()
    }
}

struct Zeek {
    folder: HeldFolder,
    format: Format,
    rows: Names,
    services: Services,
    late: LateFlows,
    conn: Written,
    http: Written,
    files: Written,
    dns: Written,
    ssl: Written,
}

impl Zeek {
    fn record(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> Made {
        let bytes = cx.rings.bytes(block);
        let Some((row, _)) = self.rows.row(bytes) else {
            cx.drop(1, "not a record");
            return Ok(Status::Done);
        };
        let (values, format, time) = (Values(row), self.format, block.time);
        let flow_id = values.flow_id();
        let is_pair = row.named("answered").is_some();
        match row.schema().name {
            "flow" if values.number("flow.start").is_some() => {
                let services = self.services.take(flow_id);
                if !services.is_empty() {
                    return self.conn.add(format, time, |line| rows::conn(line, values, &services));
                }
                match self.late.keep(&row, bytes, time, cx.now, cx.counters) {
                    Some(longest) => self.late_flow(&longest),
                    None => Ok(Status::Done),
                }
            }
            "dns" if is_pair => {
                self.services.note(flow_id, "dns", cx.counters);
                self.dns.add(format, time, |line| rows::dns(line, values))
            }
            "tls" if is_pair => {
                self.services.note(flow_id, "ssl", cx.counters);
                self.ssl.add(format, time, |line| rows::ssl(line, values))
            }
            "http" if is_pair => {
                let depth = self.services.note(flow_id, "http", cx.counters);
                for file in values.rows("files") {
                    self.files.add(format, time, |line| rows::file(line, values, file, depth))?;
                }
                self.http.add(format, time, |line| rows::http(line, values, depth))
            }
            _ => {
                cx.drop(1, "no log of Zeek");
                Ok(Status::Done)
            }
        }
    }

    /// Writes the record of a flow that waited.
    fn late_flow(&mut self, late: &LateFlow) -> Made {
        let services = late.services(&mut self.services);
        let Some((row, _)) = self.rows.row(&late.row) else { return Ok(Status::Done) };
        self.conn.add(self.format, late.time, |line| rows::conn(line, Values(row), &services))
    }

    /// Writes records of flows that waited long enough.
    fn late_flows(&mut self, now: u64) -> Made {
        while let Some(late) = self.late.due(now) {
            self.late_flow(&late)?;
        }
        Ok(Status::Done)
    }

    fn logs(&mut self) -> impl Iterator<Item = &mut Written> {
        let logs = [&mut self.conn, &mut self.http, &mut self.files, &mut self.dns, &mut self.ssl];
        logs.into_iter().filter(|written| written.last.is_some())
    }
}

impl Filter for Zeek {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.folder.keep();
        for (_, block) in batch.iter() {
            self.record(block, cx)?;
        }
        cx.wake_at(self.late.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.late_flows(cx.now)?;
        cx.wake_at(self.late.next_due());
        Ok(Status::Done)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.logs().try_for_each(|written| written.lines.flush(cx).map(drop))?;
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.folder.keep();
        self.late_flows(u64::MAX)?;
        let is_table = self.format == Format::Tsv;
        for written in self.logs() {
            if let Some(last) = written.last.filter(|_| is_table) {
                append_end(written.lines.buffer(), last);
                written.lines.line_done()?;
            }
        }
        self.flush(cx)
    }
}
