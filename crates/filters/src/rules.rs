//! Intrusion detection by rules in Suricata's language: frames in, a record for each alert out.
//!
//! - `inspector` — takes a frame, and says what matched. Start reading there.
//! - `frame` — a frame as rules see it; `connection` — what is kept of a flow; `transactions` — of its exchanges.
//! - `application` — which protocol a flow speaks; `http`, `uri`, `dns`, `tls`, `ssh`, `smtp`, `mime`, `ftp`, `sip`, `mqtt`, `rfb`, `small` —
//!   their buffers, by the parsers of the crate `packet`.
//! - `row` — the record.
//!
//! The language and the matching are the crate `rules`.

mod application;
mod connection;
mod dns;
mod frame;
mod ftp;
mod http;
pub(crate) mod inspector;
mod mime;
mod mqtt;
pub(crate) mod reload;
mod rfb;
pub(crate) mod row;
mod sip;
mod small;
mod smtp;
mod ssh;
#[cfg(test)]
mod tests;
mod tls;
mod transactions;
mod uri;

use crate::parts::origin::{self, Origins};
use ::rules::{Mistake, Options, RuleSet};
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use inspector::Inspector;
use reload::Reloaded;
use std::sync::Arc;

/// What `rules` is.
pub static KIND: Kind = Kind::new("rules", "gives an alert for each match of a rule of intrusion detection", make)
    .also(&["suricata", "ids", "snort"])
    .help(
        "Takes frames or packets and gives a record of each alert, as Suricata's EVE has it. Rules are in Suricata's language; \
         what of it is not supported is refused with line, column and reason. `partial=yes` leaves such rules out, and says how \
         many. `vars` sets variables: vars=HOME_NET=10.0.0.0/8.\n\n\
         An alert has objects as the events of `eve` have them (`http`, `dns`, `tls` ...), `files`, `tunnel`, which is the \
         outermost packet of one in tunnels, and `alert.metadata` of the rule. With `payload=yes` it has `payload` and \
         `packet` in base64, `payload_printable`, and `stream`: 1 where the payload is of a stream.\n\n\
         `alert.action` is blocked where a rule drops or rejects, and what of that flow comes behind it is looked at no further; the \
         packets themselves go nowhere. A rule that passes keeps what comes behind it, in the order pass, drop, reject, alert, \
         from alerting.\n\n\
         Rules see the first 1 MiB of each direction of a TCP stream, of which contents of one rule lie within 8 KiB, and the first 100 KiB \
         of each body or file. What was cut short by such a bound is counted where rules could not be tried to their end. \
         The file is looked at twice a second. When it has changed, its rules are loaded meanwhile and take over between two \
         batches; flows stay. A file with mistakes changes nothing, and is reported.",
    )
    .params(&[
        Param::new("file", ParamType::Path, "file of rules").required().main(),
        Param::new("partial", ParamType::Flag, "leave out rules that are wrong or not supported").default("no"),
        Param::new("vars", ParamType::List, "variables of the rules, each NAME=VALUE"),
        Param::new("payload", ParamType::Flag, "add to alerts what rules looked at, and the packet").default("no"),
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .gives_records(&row::SCHEMA)
    .mode(Mode::Serial)
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .behind("decap")
    .examples(&[Example {
        request: "pcap ssh.pcap | rules example.rules | fields src_ip dest_port alert.signature_id alert.signature",
        output: ALERTS,
    }]);

const ALERTS: &str = "src_ip\tdest_port\talert.signature_id\talert.signature\n\
    10.11.3.225\t60063\t3\ta version of SSH\n\
    192.168.77.16\t22\t3\ta version of SSH\n\
    192.168.77.16\t22\t4\tpackets behind it\n";

/// Blocks given before they are sent on.
const ENOUGH: usize = 1000;

/// Mistakes that are told at once.
const TOLD_MISTAKES: usize = 20;

/// The rules of the file that the parameter `key` names.
pub(crate) fn load(key: &'static str, params: &Params) -> Result<RuleSet, ParamError> {
    let path = params.text(key).unwrap_or_default();
    let text = std::fs::read(path).map_err(|error| {
        let message = format!("cannot read {path}: {}", crate::parts::system::reason(&error));
        ParamError { system: true, ..ParamError::new(key, message) }
    })?;
    let text = text_of(&text).map_err(|line| {
        let message = format!("{path}: line {line}: a byte is no text (UTF-8)");
        ParamError::new(key, message).with_help("in a content write it as hexadecimal digits: |e9|")
    })?;
    let mut variables = Vec::new();
    for pair in params.list("vars") {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ParamError::new("vars", format!("{pair} is not NAME=VALUE")));
        };
        variables.push((name.trim_start_matches('$').to_string(), value.to_string()));
    }
    let options = Options { variables, partial: params.flag("partial") };
    RuleSet::read(&text, &options).map_err(|mistakes| ParamError::new(key, told(path, &mistakes)))
}

/// The text of a file of rules; else the number of the line that is none. Comments may be anything.
fn text_of(bytes: &[u8]) -> Result<String, usize> {
    let mut text = String::with_capacity(bytes.len());
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        match std::str::from_utf8(line) {
            Ok(line) => text.push_str(line),
            Err(_) if line.trim_ascii_start().starts_with(b"#") => text.push_str(&String::from_utf8_lossy(line)),
            Err(_) => return Err(number),
        }
    }
    Ok(text)
}

fn told(path: &str, mistakes: &[Mistake]) -> String {
    let mut parts: Vec<String> = mistakes.iter().take(TOLD_MISTAKES).map(Mistake::to_string).collect();
    if mistakes.len() > TOLD_MISTAKES {
        parts.push(format!("and {} more", mistakes.len() - TOLD_MISTAKES));
    }
    format!("{path}: {}", parts.join("; "))
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let set = load("file", params)?;
    let left_out = set.left_out().len();
    let mut inspector = Inspector::new(Arc::new(set), Origins::new(params));
    if params.flag("payload") {
        inspector.show_bytes();
    }
    Ok(Instance::filter(Rules { inspector, dealt_with: 0, left_out, reloaded: Reloaded::new("file", params)? }))
}

struct Rules {
    inspector: Inspector,
    /// Blocks of the batch under way that are done with, one bit each.
    dealt_with: u64,
    /// Rules that were left out, until it was said.
    left_out: usize,
    reloaded: Reloaded,
}

impl Rules {
    /// Goes on with rules that were loaded meanwhile.
    fn reload(&mut self, cx: &mut Context<'_>) {
        match self.reloaded.take() {
            None => {}
            Some(Ok(set)) => {
                cx.notice(format!("rules: the file has changed: {} rules", set.len()));
                cx.count("times rules were loaded", 1);
                self.left_out = set.left_out().len();
                self.inspector.replace(Arc::new(set));
            }
            Some(Err(why)) => {
                cx.notice(format!("rules: the rules stay as they are: {why}"));
                cx.count("files of rules refused", 1);
            }
        }
        if self.left_out > 0 {
            cx.notice(format!("rules: {} rules are left out", self.left_out));
            self.left_out = 0;
        }
    }
}

impl Filter for Rules {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.reload(cx);
        self.inspector.begin_batch();
        for place in places(batch.live() & !self.dealt_with) {
            if cx.out.len() >= ENOUGH {
                return Ok(Status::More);
            }
            self.dealt_with |= 1 << place;
            self.inspector.frame(batch.block(place), cx);
        }
        self.dealt_with = 0;
        cx.wake_at(self.inspector.next_due());
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        let status = self.inspector.expire(ENOUGH, cx);
        cx.wake_at(self.inspector.next_due());
        Ok(status)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        Ok(self.inspector.finish(ENOUGH, cx))
    }
}
