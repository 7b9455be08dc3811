//! DNS for rules: each message is a transaction. `protocols::dns` finds messages, as it does for the filter `dns`.

use super::transactions::Transactions;
use packet::Flow;
use protocols::carry::Carried;
use protocols::dns::stream::{self, Heard};
use protocols::dns::{Message, Name, Section, is_datagram};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Most bytes kept of the incomplete messages of both sides, which are no longer than this.
const KEPT_BYTES: usize = 2 * (2 + 65_535);

/// A connection of DNS or LLMNR (RFC 4795, 2.4).
#[derive(Debug)]
pub(super) struct Stream {
    app: App,
    /// It has shown a message, and its application is said.
    is_known: bool,
    sides: [stream::Stream; 2],
    kept: Carried,
}

impl Stream {
    /// `is_known`: its first bytes have shown the application.
    pub fn new(app: App, is_known: bool) -> Stream {
        let sides = [const { stream::Stream::new(true) }; 2];
        Stream { app, is_known, sides, kept: Carried::new(KEPT_BYTES) }
    }

    /// Reads the next bytes of a side. Returns the application with the first message, if it was not known.
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) -> Option<App> {
        let Stream { app, is_known, sides, kept } = self;
        let side = &mut sides[usize::from(!to_server)];
        let was_known = *is_known;
        let mut ear = |heard: Heard<'_>| match heard {
            Heard::Message(bytes) => {
                *is_known = true;
                message(*app, bytes, true, to_server, to);
            }
            Heard::Other(bytes) if *is_known => message(*app, bytes, false, to_server, to),
            Heard::Other(_) | Heard::Cut => {}
        };
        if gap {
            side.gap(kept, &mut ear);
        }
        side.feed(bytes, kept, &mut ear);
        (!was_known && *is_known).then_some(*app)
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }
}

/// Reads a datagram of a flow that has DNS or LLMNR.
pub(super) fn datagram(app: App, flow: &Flow, payload: &[u8], wire_len: u32, to_server: bool, to: &mut Transactions) {
    let fits = is_datagram([flow.source_port, flow.target_port], payload, wire_len);
    message(app, payload, fits, to_server, to);
}

/// Begins the transaction of a message. What is none (`fits`) is read as far as it goes, but no alert tells of it, as
/// the filter has no record of it.
fn message(app: App, bytes: &[u8], fits: bool, to_server: bool, to: &mut Transactions) {
    let message = Message::new_checked(bytes);
    if message.is_err() && app == App::Llmnr {
        return;
    }
    let one = to.begin(app);
    let id = one.id;
    one.complete = [true; 2];
    if fits {
        one.message = bytes.to_vec();
    }
    let mut request = to_server;
    match message {
        // LLMNR: the QR bit decides, because multicast has no sides. DNS: the direction decides.
        Ok(message) if app == App::Llmnr || message.is_response() != to_server => {
            request = !message.is_response();
            fill(one, app, &message, bytes, request);
        }
        Ok(_) => one.events.push((if to_server { "dns.not_a_request" } else { "dns.not_a_response" }, to_server)),
        Err(_) => one.events.push(("dns.malformed_data", to_server)),
    }
    to.change(id, request);
}

/// Adds a message carried by a transaction of another protocol.
pub(super) fn within(one: &mut Transaction, bytes: &[u8], to_server: bool) {
    match Message::new_checked(bytes) {
        Ok(message) => {
            one.message = bytes.to_vec();
            fill(one, App::Dns, &message, bytes, to_server);
        }
        Err(_) => one.events.push(("dns.malformed_data", to_server)),
    }
}

fn fill(one: &mut Transaction, app: App, message: &Message<'_>, bytes: &[u8], request: bool) {
    if message.opcode() >= 7 {
        one.events.push((if app == App::Dns { "dns.invalid_opcode" } else { "llmnr.invalid_opcode" }, request));
    }
    if bytes[3] & 0x40 != 0 && app == App::Dns {
        one.events.push(("dns.z_flag_set", request));
    }
    one.put_number(Number::DNS_OPCODE, request, message.opcode().into());
    if !request {
        one.put_number(Number::DNS_RCODE, request, message.response_code().into());
    }
    let names = if app == App::Dns { DNS } else { LLMNR };
    let mut text = Vec::new();
    let mut faulty = message.questions().any(|question| question.is_err());
    let mut sections = [0u16; 3];
    for question in message.questions().map_while(Result::ok) {
        if request {
            one.put_number(Number::DNS_RRTYPE, request, question.kind.into());
        }
        put_name(one, &mut text, question.name, request, &[names.query]);
        if request && app == App::Dns {
            one.put_copy(Buffer::DNS_QUERY, true, &text);
        }
        if !request {
            one.put_copy(names.response, false, &text);
        }
    }
    for record in message.records().map_while(Result::ok) {
        sections[record.section as usize] += 1;
        let section = match record.section {
            Section::Answer => names.answer,
            Section::Authority => names.authority,
            Section::Additional => names.additional,
        };
        put_name(one, &mut text, record.name, request, &[section]);
        if !request {
            one.put_copy(names.response, false, &text);
            if record.section == Section::Answer {
                one.put_number(Number::DNS_RRTYPE, request, record.kind.into());
            }
            if let protocols::dns::Data::Name(name) = record.data {
                put_name(one, &mut text, name, false, &[names.response]);
            }
        }
    }
    // The first section with too few records is the unreadable one.
    let all = [Section::Answer, Section::Authority, Section::Additional];
    let short = all.into_iter().find(|section| sections[*section as usize] < message.record_count(*section));
    match short.filter(|_| !faulty) {
        Some(Section::Authority) if app == App::Dns => one.events.push(("dns.invalid_authorities", request)),
        Some(Section::Additional) if app == App::Dns => one.events.push(("dns.invalid_additionals", request)),
        Some(Section::Answer) => faulty = true,
        _ => {}
    }
    if faulty && app == App::Dns {
        one.events.push(("dns.malformed_data", request));
    }
}

#[derive(Clone, Copy)]
struct Names {
    query: Buffer,
    answer: Buffer,
    authority: Buffer,
    additional: Buffer,
    response: Buffer,
}

const DNS: Names = Names {
    query: Buffer::DNS_QUERIES_RRNAME,
    answer: Buffer::DNS_ANSWERS_RRNAME,
    authority: Buffer::DNS_AUTHORITIES_RRNAME,
    additional: Buffer::DNS_ADDITIONALS_RRNAME,
    response: Buffer::DNS_RESPONSE_RRNAME,
};

const LLMNR: Names = Names {
    query: Buffer::LLMNR_QUERIES_RRNAME,
    answer: Buffer::LLMNR_ANSWERS_RRNAME,
    authority: Buffer::LLMNR_AUTHORITIES_RRNAME,
    additional: Buffer::LLMNR_ADDITIONALS_RRNAME,
    response: Buffer::LLMNR_RESPONSE_RRNAME,
};

fn put_name(one: &mut Transaction, text: &mut Vec<u8>, name: Name<'_>, request: bool, buffers: &[Buffer]) {
    text.clear();
    if name.append_to(text).is_err() {
        return;
    }
    for buffer in buffers {
        one.put_copy(*buffer, request, text);
    }
}
