//! DNS for rules: each message is a transaction. Over TCP each message follows its length.

use super::transactions::Transactions;
use protocols::dns::{Message, Name, Section};
use rules::Transaction;
use rules::names::{App, Buffer, Number};

/// Most bytes kept of an incomplete message.
const WAITING_BYTES: usize = 2 + 65_535;

/// A connection of DNS or LLMNR (RFC 4795, 2.4), with the incomplete message of each side.
#[derive(Debug)]
pub(super) struct Stream {
    app: App,
    waiting: [Vec<u8>; 2],
    /// By side: bytes are missing, so message boundaries are unknown.
    lost: [bool; 2],
}

impl Stream {
    pub fn new(app: App) -> Stream {
        Stream { app, waiting: Default::default(), lost: [false; 2] }
    }

    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        let side = usize::from(!to_server);
        self.lost[side] |= gap;
        if self.lost[side] {
            return;
        }
        let waiting = &mut self.waiting[side];
        waiting.extend_from_slice(bytes);
        let mut from = 0;
        while let Ok((one, rest)) = protocols::dns::split_tcp(&waiting[from..]) {
            message(self.app, one, to_server, to);
            from = waiting.len() - rest.len();
        }
        waiting.drain(..from);
        waiting.truncate(WAITING_BYTES);
    }

    pub fn kept_bytes(&self) -> usize {
        self.waiting.iter().map(Vec::capacity).sum()
    }
}

pub(super) fn message(app: App, bytes: &[u8], to_server: bool, to: &mut Transactions) {
    let malformed = |to: &mut Transactions| {
        if app == App::Dns {
            let one = to.begin(app);
            let id = one.id;
            one.complete = [true; 2];
            one.message = bytes.to_vec();
            one.events.push(("dns.malformed_data", to_server));
            to.change(id, to_server);
        }
    };
    let Ok(message) = Message::new_checked(bytes) else { return malformed(to) };
    // LLMNR: the QR bit decides, because multicast has no sides. DNS: the direction decides.
    let request = !message.is_response();
    let turned = request != to_server && app == App::Dns;
    let request = if turned { to_server } else { request };
    let one = to.begin(app);
    let id = one.id;
    one.complete = [true; 2];
    one.message = bytes.to_vec();
    if turned {
        one.events.push((if to_server { "dns.not_a_request" } else { "dns.not_a_response" }, to_server));
        return to.change(id, to_server);
    }
    fill(one, app, &message, bytes, request);
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
