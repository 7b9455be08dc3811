//! DNS messages as records: each message with its first question and its answers.
//!
//! `protocols::dns` reads the message. This file finds messages in datagrams and in TCP streams, where a length precedes
//! each (RFC 1035, 4.2.2). `dns/row.rs` writes the record.

pub(crate) mod row;
#[cfg(test)]
mod tests;

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::outlet::Outlet;
use base::limits::{DNS_BUFFERED_BYTES, DNS_ROWS};
use filter::prelude::*;
use packet::frame::protocol;
use protocols::carry::Carried;
use protocols::dns::{is_plausible, split_tcp};
use row::{MessageRow, SCHEMA};

/// What `dns` is.
pub static KIND: Kind = Kind::new("dns", "reads DNS messages and gives a record of each", make)
    .help(
        "Reads DNS over UDP and TCP: what goes from or to port 53, 5353 (multicast DNS) or 5355 (LLMNR), or others \
         if `ports` says so. Each message becomes one record: \
         `dns.type` is request or response, `dns.rrname` and `dns.rrtype` are the name and type of its first question \
         (`dns.queries` lists all of them where there are more), `dns.rcode` the result, and `dns.answers` and \
         `dns.authorities` the records of those sections, with `name`, `rrtype`, `ttl` in seconds and `rdata`. Bytes of \
         names that are not printable are written as \\DDD; a dot may also be part of a label. Record data of types without a common text form is written \
         as \\# LENGTH HEX (RFC 3597).\n\n\
         What does not look like DNS is passed over. In a TCP stream with missing bytes, reading goes on at the next \
         segment that begins with a message. Of a message that was cut, what is there is shown. At most 256 records of a \
         section are listed.",
    )
    .params(&[Param::new("ports", ParamType::Text, "a port, a range, or a list in quotes").default("53,5353,5355")])
    .takes(&[Type::Bytes, Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Class))
    .wants(&[(Type::Frame, "{ udp + tcp }"), (Type::Packet, "{ udp + tcp }")])
    .parses_payload()
    .examples(&[Example { request: "pcap dns.pcap | udp | dns", output: UDP_MESSAGES }]);

const UDP_MESSAGES: &str = r#"{"timestamp":"2022-02-08T18:47:25.872520000Z","flow_id":7519411823625972,"event_type":"dns","src_ip":"10.16.1.11","src_port":38550,"dest_ip":"8.8.8.8","dest_port":53,"proto":"UDP","dns":{"type":"request","id":53980,"flags":"120","rd":true,"opcode":0,"rrname":"suricata.io","rrtype":"A"}}
{"timestamp":"2022-02-08T18:47:25.940949000Z","flow_id":7519411823625972,"event_type":"dns","src_ip":"8.8.8.8","src_port":53,"dest_ip":"10.16.1.11","dest_port":38550,"proto":"UDP","dns":{"type":"response","id":53980,"flags":"8180","rd":true,"ra":true,"opcode":0,"rcode":"NOERROR","rrname":"suricata.io","rrtype":"A","answers":[{"name":"suricata.io","rrtype":"A","ttl":600,"rdata":"35.209.168.153"}]}}
"#;

const _: () = assert!(DNS_ROWS == 256, "the manual says so");

const PORT: Meaning = Meaning { what: "a port", max: 65_535, names: &[] };

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let ports = Numbers::from_param(params, "ports", PORT)?;
    Ok(Instance::session(
        SessionKey::Class,
        Dns { ports, row: MessageRow::new(), carried: Carried::new(DNS_BUFFERED_BYTES) },
    ))
}

struct Dns {
    ports: Option<Numbers>,
    row: MessageRow,
    /// Copied parts of messages of all streams.
    carried: Carried,
}

/// The state of one direction of a connection or flow.
enum Session {
    /// The port is not one of DNS.
    Unwanted,
    Datagrams,
    Stream(Stream),
}

#[derive(Default)]
struct Stream {
    /// A copy of the beginning of an unfinished message, from its length on.
    part: Vec<u8>,
    /// Message boundaries are unknown; a block may begin with a message.
    lost: bool,
}

/// The length before each message.
const LENGTH_BYTES: usize = 2;

const NO_MESSAGE: &str = "lengths before something else than a dns message";

const TOO_MANY: &str = "too many unfinished dns messages";

const HEADER_BYTES: usize = 12;

impl SessionFilter for Dns {
    type State = Session;

    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Session {
        let wanted = |port: u16| self.ports.as_ref().is_none_or(|ports| ports.has(port.into()));
        match cx.streams.get(class).map(|facts| facts.flow) {
            Some(flow) if !wanted(flow.source_port) && !wanted(flow.target_port) => Session::Unwanted,
            Some(flow) if flow.protocol == protocol::UDP => Session::Datagrams,
            Some(_) => Session::Stream(Stream::default()),
            None => Session::Unwanted,
        }
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            self.block(session, block, &mut outlet);
        }
        Ok(Status::Done)
    }

    fn close(&mut self, session: Session, _: Class, _: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        if let Session::Stream(mut stream) = session {
            self.forget(&mut stream, &mut Outlet::new(cx));
        }
        Ok(())
    }
}

impl Dns {
    fn block(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) {
        if let Session::Stream(stream) = session
            && block.gap() > 0
        {
            self.forget(stream, outlet);
            stream.lost = true;
        }
        let bytes = outlet.bytes(block);
        match session {
            Session::Datagrams if is_plausible(bytes, block.wire()) => self.give(bytes, block, outlet),
            Session::Stream(stream) => self.segment(stream, block, bytes, outlet),
            Session::Datagrams | Session::Unwanted => outlet.reject_block(),
        }
    }

    fn give(&mut self, message: &[u8], block: &Descriptor, outlet: &mut Outlet<'_>) {
        let (fault, left_out) = self.row.fill(message, block, outlet.facts(block.class));
        if let Some(fault) = fault {
            outlet.count(fault.reason(), 1);
        }
        if left_out > 0 {
            outlet.count("dns records not listed", left_out);
        }
        outlet.record(self.row.row(), block.time, block.class);
    }

    /// Reads a piece of a stream: the rest of an unfinished message, whole messages, the beginning of another.
    fn segment(&mut self, stream: &mut Stream, block: &Descriptor, bytes: &[u8], outlet: &mut Outlet<'_>) {
        let mut rest = bytes;
        while !stream.part.is_empty() && !rest.is_empty() {
            // The part is incomplete, or it would not have been kept.
            let need = split_tcp(&stream.part).err().unwrap_or(0);
            let (more, behind) = rest.split_at(need.saturating_sub(stream.part.len()).min(rest.len()));
            if !self.keep_copy(stream, more) {
                return outlet.drop_block(TOO_MANY);
            }
            rest = behind;
            match split_tcp(&stream.part) {
                Err(need) if may_begin(&stream.part, need, stream.lost) => {}
                whole => {
                    stream.lost = match whole {
                        Ok((message, _)) if is_plausible(message, message.len() as u32) => {
                            self.give(message, block, outlet);
                            false
                        }
                        Ok(_) if !stream.lost => {
                            outlet.count(NO_MESSAGE, 1);
                            false
                        }
                        _ => true,
                    };
                    self.carried.clear(&mut stream.part);
                }
            }
        }
        while !rest.is_empty() {
            match split_tcp(rest) {
                Ok((message, behind)) if is_plausible(message, message.len() as u32) => {
                    self.give(message, block, outlet);
                    stream.lost = false;
                    rest = behind;
                }
                // Its length still says where the next one begins.
                Ok((_, behind)) if !stream.lost => {
                    outlet.count(NO_MESSAGE, 1);
                    rest = behind;
                }
                Err(need) if may_begin(rest, need, stream.lost) => {
                    if !self.keep_copy(stream, rest) {
                        outlet.drop_block(TOO_MANY);
                    }
                    return;
                }
                _ => {
                    stream.lost = true;
                    outlet.reject_block();
                    return;
                }
            }
        }
    }

    /// Appends a copy of `bytes` to the unfinished message; `false` when the limit of all streams is reached.
    fn keep_copy(&mut self, stream: &mut Stream, bytes: &[u8]) -> bool {
        let kept = self.carried.keep(&mut stream.part, bytes);
        if !kept {
            self.carried.clear(&mut stream.part);
            stream.lost = true;
        }
        kept
    }

    /// Drops an unfinished message whose rest will not come.
    fn forget(&mut self, stream: &mut Stream, outlet: &mut Outlet<'_>) {
        if !stream.part.is_empty() {
            outlet.count("dns messages whose rest is missing", 1);
        }
        self.carried.clear(&mut stream.part);
    }
}

/// Can a message that announces `need - 2` bytes begin with `bytes`? If boundaries are unknown (`lost`), only a whole
/// plausible header counts. If they are known, something too short for a header is waited for: the next message follows.
fn may_begin(bytes: &[u8], need: usize, lost: bool) -> bool {
    match bytes.get(LENGTH_BYTES..) {
        Some(message) if message.len() >= HEADER_BYTES => is_plausible(message, (need - LENGTH_BYTES) as u32),
        _ => !lost,
    }
}
