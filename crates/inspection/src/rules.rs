//! Intrusion detection with rules in Suricata's language: reads frames, writes a record per alert.
//!
//! - `inspector` — inspects a frame and returns the verdict. Start reading there.
//! - `evaluation` — the rules of a packet and of the news of its flow, and the records of those that match.
//! - `frame` — a parsed frame; `decode`, `tcp_events` — anomalies of headers and segments; `connection` — the state of
//!   a flow; `transactions` — its exchanges.
//! - `application` — detects the protocol of a flow. One file per protocol fills its buffers: `http`, `http2`,
//!   `websocket`, `dcerpc`, `smb`, `dns`, `tls`, `smtp`, `mime`, `ftp`, `quic`, `small`,
//!   and `talks` for protocols with nothing but a table of facts. `http_events` finds anomalies. The crate `packet` reads
//!   headers.
//! - `midstream` — connections joined midway; `row` — the alert record; `reload` — rules that change while the filter runs.
//!
//! The crate `rules` has the language and the matching.

mod application;
mod connection;
mod dcerpc;
mod decode;
mod dns;
mod evaluation;
mod exchanges;
mod frame;
mod ftp;
mod http;
mod http2;
mod http_events;
pub(crate) mod inspector;
pub(crate) mod midstream;
mod mime;
#[cfg(feature = "quic")]
mod quic;
pub(crate) mod reload;
pub(crate) mod row;
mod small;
mod smb;
mod smtp;
mod talks;
mod tcp_events;
#[cfg(test)]
mod tests;
mod tls;
mod transactions;
mod websocket;

use ::rules::{Mistake, Options, Order, RuleSet};
use filter::batch::places;
use filter::kind::Example;
use filter::prelude::*;
use filters::decap::{self, Decap, Fate};
use filters::parts::origin::{self, Origins};
use filters::parts::select::Links;
use filters::tcp::URGENT;
use filters::tcp::settings::Urgent;
use inspector::{FragmentEvent, Inspector};
use midstream::{MIDSTREAM, Midstream};
use reload::Reloaded;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The filter kind `rules`.
pub static KIND: Kind = Kind::new("rules", "gives an alert for each match of a rule of intrusion detection", make)
    .also(&["suricata", "ids", "snort"])
    .help(
        "Takes frames or packets and gives a record of each alert, as Suricata's EVE has it. Rules are in Suricata's language; \
         what of it is not supported is refused with line, column and reason. `partial=yes` leaves such rules out and names them, \
         the first 20 in a notice, and all in the file that `refused=` names. `vars` sets variables: vars=EXTERNAL_NET=any; \
         `home-net=\"10.0.0.0/8,fd00::/8\"` is short for HOME_NET.\n\n\
         `threshold=FILE` reads limits on alerts as Suricata's threshold.config has them: `suppress`, `threshold`, `event_filter` and \
         `rate_filter`. `order=\"drop,pass,reject,alert\"` is the order in which rules are evaluated, by their action: what stands behind `pass` is not \
         evaluated for a packet that a rule passes.\n\n\
         An alert has objects as the events of `eve` have them (`http`, `dns`, `tls` ...), `files`, `tunnel`, which is the \
         outermost packet of one in tunnels, and `alert.metadata` of the rule. With `payload=yes` it has `payload` and \
         `packet` in base64, `payload_printable`, and `stream`: 1 where the payload is of a stream.\n\n\
         Nothing is stopped here, so `alert.action` is allowed also where a rule drops or rejects; what of that flow comes behind it is \
         looked at no further, as if it had been stopped. A rule that passes keeps what comes behind it, in that order, \
         from alerting.\n\n\
         Rules see frames as they came, and also the packets inside of tunnels and those that fragments make, as `decap` does without \
         parameters; `decap=no` leaves that out.\n\n\
         Streams are without urgent bytes, as Linux gives them to a program that does not ask for them; `urgent=inline` keeps them.\n\n\
         Thresholds, bits of hosts, fragments and announced FTP transfers concern several flows, so one thread runs all rules, \
         whatever `workers` is.\n\n\
         Rules see the first 1 MiB of each direction of a TCP stream, of which contents of one rule lie within 8 KiB, and the first 100 KiB \
         of each body or file. What was cut short by such a bound is counted where rules could not be tried to their end. \
         The file is looked at twice a second. When it has changed, its rules are loaded meanwhile and take over between two \
         batches; flows stay. A file with mistakes changes nothing, and is reported; so does one that is empty, gone, or no file.",
    )
    .params(&[
        Param::new("file", ParamType::Path, "file of rules").required().main(),
        PARTIAL,
        REFUSED,
        THRESHOLD,
        ORDER,
        HOME_NET,
        Param::new("decap", ParamType::Flag, "look into tunnels, and at packets put together from fragments").default("yes"),
        Param::new("vars", ParamType::List, "variables of the rules, each NAME=VALUE"),
        Param::new("payload", ParamType::Flag, "add to alerts what rules looked at, and the packet").default("no"),
        URGENT.default("oob"),
        MIDSTREAM,
        origin::TUNNEL,
        origin::VLAN,
    ])
    .takes(&[Type::Frame, Type::Packet])
    .gives_records(&row::SCHEMA)
    .sees_all()
    .touches(Parts::DATA.with(Parts::METADATA), Parts::STREAMS)
    .parses_payload()
    .examples(&[Example {
        request: "pcap ssh.pcap | rules example.rules | fields src_ip dest_port alert.signature_id alert.signature",
        output: ALERTS,
    }]);

const ALERTS: &str = "src_ip\tdest_port\talert.signature_id\talert.signature\n\
    10.11.3.225\t60063\t3\ta version of SSH\n\
    192.168.77.16\t22\t3\ta version of SSH\n\
    192.168.77.16\t22\t4\tpackets behind it\n";

pub(crate) const PARTIAL: Param =
    Param::new("partial", ParamType::Flag, "leave out rules that are wrong or not supported").default("no");
pub(crate) const REFUSED: Param =
    Param::new("refused", ParamType::Path, "with partial=yes: write there which rules are left out, and why");
pub(crate) const THRESHOLD: Param =
    Param::new("threshold", ParamType::Path, "file of limits on alerts, as Suricata's threshold.config");
pub(crate) const ORDER: Param = Param::new(
    "order",
    ParamType::List,
    "actions of rules in the order of their evaluation; pass,drop,reject,alert if not given",
);
pub(crate) const HOME_NET: Param = Param::new("home-net", ParamType::List, "networks that HOME_NET stands for");

/// The filter pauses after this many output blocks.
const ENOUGH: usize = 1000;

/// Most mistakes reported at once.
const TOLD_MISTAKES: usize = 20;

/// Loads the rules from the file that the parameter `key` names, as the other parameters say. Writes the file that
/// `refused` names.
pub(crate) fn load(key: &'static str, params: &Params) -> Result<RuleSet, ParamError> {
    let path = params.text(key).unwrap_or_default();
    let text = read(key, path)?;
    let folder = Path::new(path).parent().map(Path::to_path_buf);
    let options = Options {
        variables: variables(params)?,
        partial: params.flag("partial"),
        quic: cfg!(feature = "quic"),
        folder,
        order: order(params)?,
    };
    let refused = params.text("refused");
    if refused.is_some() && !options.partial {
        return Err(ParamError::new("refused", "without partial=yes no rule is left out"));
    }
    let mut set = RuleSet::read(&text, &options).map_err(|mistakes| ParamError::new(key, told(path, &mistakes)))?;
    if let Some(path) = params.text("threshold") {
        let limits = read("threshold", path)?;
        set.limit(&limits, &options).map_err(|mistakes| ParamError::new("threshold", told(path, &mistakes)))?;
    }
    if let Some(to) = refused {
        let lines: String = set.left_out().iter().map(|mistake| format!("{path}: {}\n", named(mistake))).collect();
        std::fs::write(to, lines).map_err(|error| {
            let message = format!("cannot write {to}: {}", filters::parts::system::reason(&error));
            ParamError { system: true, ..ParamError::new("refused", message) }
        })?;
    }
    Ok(set)
}

/// Reads a file of rules or of thresholds, which the parameter `key` names.
fn read(key: &'static str, path: &str) -> Result<String, ParamError> {
    let text = read_file(Path::new(path)).map_err(|error| {
        let message = format!("cannot read {path}: {}", filters::parts::system::reason(&error));
        ParamError { system: true, ..ParamError::new(key, message) }
    })?;
    text_of(&text).map_err(|line| {
        let message = format!("{path}: line {line}: a byte is no text (UTF-8)");
        ParamError::new(key, message).with_help("in a content write it as hexadecimal digits: |e9|")
    })
}

/// The variables of `vars` and `home-net`.
fn variables(params: &Params) -> Result<Vec<(String, String)>, ParamError> {
    let mut variables = Vec::new();
    for pair in params.list("vars") {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ParamError::new("vars", format!("{pair} is not NAME=VALUE")));
        };
        variables.push((name.trim_start_matches('$').to_string(), value.to_string()));
    }
    let home = params.list("home-net");
    if !home.is_empty() {
        variables.push(("HOME_NET".to_string(), format!("[{}]", home.join(","))));
    }
    Ok(variables)
}

fn order(params: &Params) -> Result<Order, ParamError> {
    let names = params.list("order");
    if names.is_empty() {
        return Ok(Order::USUAL);
    }
    let wrong = || ParamError::new("order", "the order names pass, drop, reject and alert, each once");
    // A list in quotes is one text.
    Order::of_names(names.iter().flat_map(|names| names.split(',')).map(str::trim)).ok_or_else(wrong)
}

/// A mistake behind the number of its rule.
fn named(mistake: &Mistake) -> String {
    match mistake.sid {
        Some(sid) => format!("sid {sid}, {mistake}"),
        None => mistake.to_string(),
    }
}

/// Reads a regular file. A FIFO or a device is an error: the one blocks, the other may have no end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    use rustix::fs::{FileType, Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
        _ => return Err(io::Error::other("it is a FIFO or a device, not a file")),
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Decodes a rule file, or returns the number of the first line that is not UTF-8. Comments may have any bytes.
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
    format!("{path}: {}", first(mistakes, Mistake::to_string))
}

/// The first mistakes, and how many more there are.
fn first(mistakes: &[Mistake], text: impl Fn(&Mistake) -> String) -> String {
    let mut parts: Vec<String> = mistakes.iter().take(TOLD_MISTAKES).map(text).collect();
    if mistakes.len() > TOLD_MISTAKES {
        parts.push(format!("and {} more", mistakes.len() - TOLD_MISTAKES));
    }
    parts.join("; ")
}

/// Says how many rules are left out, and which. `None`: no rule is.
pub(crate) fn left_out(set: &RuleSet) -> Option<String> {
    let mistakes = set.left_out();
    (!mistakes.is_empty()).then(|| format!("{} rules are left out: {}", mistakes.len(), first(mistakes, named)))
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    // It watches from before the first load on.
    let reloaded = Reloaded::new("file", params)?;
    let set = load("file", params)?;
    let left_out = left_out(&set);
    let urgent = Urgent::of(params.text(URGENT.key), false);
    let mut inspector = Inspector::new(Arc::new(set), Origins::new(params), urgent);
    inspector.midstream = Midstream::of(params);
    if params.flag("payload") {
        inspector.show_bytes();
    }
    let mut decap = params.flag("decap").then(decap::usual).transpose()?;
    decap.iter_mut().for_each(Decap::show_outer);
    Ok(Instance::filter(Rules { inspector, decap, links: Links::default(), dealt_with: 0, left_out, reloaded }))
}

struct Rules {
    inspector: Inspector,
    /// Opens tunnels and reassembles fragments. Rules also see the original frames.
    decap: Option<Decap>,
    links: Links,
    /// Bit `n`: block `n` of the current batch was inspected.
    dealt_with: u64,
    /// The notice about rules that were left out, until it is given.
    left_out: Option<String>,
    reloaded: Reloaded,
}

impl Rules {
    /// Shows rules a frame, and the packet that it carries or completes.
    fn frame(&mut self, frame: &Descriptor, cx: &mut Context<'_>) {
        let link = self.links.of(cx.rings, frame);
        let Some((decap, link)) = self.decap.as_mut().zip(link) else {
            self.inspector.frame(frame, cx);
            return;
        };
        let fate = decap.frame(link, frame, cx);
        let event = FragmentEvent::of(&fate, decap);
        for outer in decap.outer() {
            if outer.is_fragment {
                self.inspector.expect_fragment(event);
            }
            self.inspector.frame(&outer.block, cx);
        }
        if decap.unread() == Some(decap::TOO_DEEP) {
            self.inspector.expect_unread();
        }
        match fate {
            Fate::Passes => drop(self.inspector.frame(frame, cx)),
            Fate::Becomes(block) => drop(self.inspector.frame(&block, cx)),
            Fate::Kept => {}
            Fate::Dropped(reason) => cx.count(reason, 1),
        }
    }

    /// Asks for the next timer.
    fn wake(&self, cx: &mut Context<'_>) {
        let decap = self.decap.as_ref().map_or(u64::MAX, Decap::next_due);
        cx.wake_at(self.inspector.next_due().min(decap).min(self.reloaded.next_due(cx)));
    }

    /// Takes rules that changed.
    fn reload(&mut self, cx: &mut Context<'_>) {
        self.reloaded.apply("rules", &mut self.inspector, &mut self.left_out, cx);
    }
}

impl Filter for Rules {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.reload(cx);
        self.links = Links::default();
        self.inspector.begin_batch();
        for place in places(batch.live() & !self.dealt_with) {
            if cx.out.len() >= ENOUGH {
                return Ok(Status::More);
            }
            self.dealt_with |= 1 << place;
            self.frame(batch.block(place), cx);
        }
        self.dealt_with = 0;
        self.wake(cx);
        Ok(Status::Done)
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.reload(cx);
        self.decap.iter_mut().for_each(|decap| decap.expire(cx));
        let status = self.inspector.expire(ENOUGH, cx);
        self.wake(cx);
        Ok(status)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.wake(cx);
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.decap.iter_mut().for_each(|decap| decap.end(cx));
        Ok(self.inspector.finish(ENOUGH, cx))
    }
}
