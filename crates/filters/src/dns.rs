//! DNS messages as records: each message with its first question and its answers.
//!
//! `protocols::dns` finds and reads messages, as it does for `rules`. `dns/row.rs` writes the record.

pub mod row;
#[cfg(test)]
mod tests;

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::outlet::Outlet;
use base::limits::{DNS_BUFFERED_BYTES, DNS_ROWS};
use filter::prelude::*;
use packet::frame::protocol;
use protocols::carry::Carried;
use protocols::dns::stream::{Fed, Heard, Stream};
use protocols::dns::{PORTS, is_datagram};
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
         What is no message is passed over: on those three ports what has no header of DNS with at most 32 questions, on \
         others payload that does not look like DNS, and names of NetBIOS. In a TCP stream with missing bytes, reading goes on at \
         the next segment that begins with a message. Of a message that was cut, what is there is shown. At most 256 records \
         of a section are listed.",
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
        Dns { ports, row: MessageRow::default(), carried: Carried::new(DNS_BUFFERED_BYTES) },
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
    Datagrams([u16; 2]),
    Stream(Stream),
}

const NO_MESSAGE: &str = "lengths before something else than a dns message";

const TOO_MANY: &str = "too many unfinished dns messages";

impl SessionFilter for Dns {
    type State = Session;

    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Session {
        let wanted = |port: u16| self.ports.as_ref().is_none_or(|ports| ports.has(port.into()));
        let Some(flow) = cx.streams.get(class).map(|facts| facts.flow) else { return Session::Unwanted };
        let ports = [flow.source_port, flow.target_port];
        match flow.protocol {
            _ if !ports.into_iter().any(wanted) => Session::Unwanted,
            protocol::UDP => Session::Datagrams(ports),
            _ => Session::Stream(Stream::new(ports.iter().any(|port| PORTS.contains(port)))),
        }
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            self.block(session, block, &mut outlet);
        }
        Ok(Status::Done)
    }

    fn close(&mut self, session: Session, _: Class, _: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        if let Session::Stream(mut stream) = session {
            let outlet = &mut Outlet::new(cx);
            stream.end(&mut self.carried, &mut |heard| count(heard, outlet));
        }
        Ok(())
    }
}

impl Dns {
    fn block(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) {
        let bytes = outlet.bytes(block);
        match session {
            Session::Datagrams(ports) if is_datagram(*ports, bytes, block.wire()) => {
                give(&mut self.row, bytes, block, outlet)
            }
            Session::Stream(stream) => {
                let Dns { row, carried, .. } = self;
                let ear = &mut |heard: Heard<'_>| match heard {
                    Heard::Message(message) => give(row, message, block, outlet),
                    other => count(other, outlet),
                };
                if block.gap() > 0 {
                    stream.gap(carried, ear);
                }
                match stream.feed(bytes, carried, ear) {
                    Fed::Mine => {}
                    Fed::NotMine => outlet.reject_block(),
                    Fed::NoRoom => outlet.drop_block(TOO_MANY),
                }
            }
            Session::Datagrams(_) | Session::Unwanted => outlet.reject_block(),
        }
    }
}

fn give(row: &mut MessageRow, message: &[u8], block: &Descriptor, outlet: &mut Outlet<'_>) {
    let (fault, left_out) = row.fill(message, block, outlet.facts(block.class));
    if let Some(fault) = fault {
        outlet.count(fault.reason(), 1);
    }
    if left_out > 0 {
        outlet.count("dns records not listed", left_out);
    }
    outlet.record(row.row(), block.time, block.class);
}

/// Counts what is no message.
fn count(heard: Heard<'_>, outlet: &mut Outlet<'_>) {
    match heard {
        Heard::Message(_) => {}
        Heard::Other(_) => outlet.count(NO_MESSAGE, 1),
        Heard::Cut => outlet.count("dns messages whose rest is missing", 1),
    }
}
