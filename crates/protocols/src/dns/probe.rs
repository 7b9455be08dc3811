//! The probe of DNS.

use super::{Fault, HEADER_BYTES, Message};
use crate::app::App;
use crate::fit::Fit;
use packet::Flow;

/// Ports on which a payload may be DNS, multicast DNS or LLMNR. Check it with [`is_datagram`].
pub const PORTS: [u16; 3] = [53, 5353, 5355];

/// Whether `payload` can be DNS. For ports that often carry DNS: random bytes pass less than once in 10^14 times.
///
/// `wire_len` is the payload's length on the wire, so a packet cut by the capture can still pass.
pub fn is_plausible(payload: &[u8], wire_len: u32) -> bool {
    const OPCODES: [u8; 6] = [0, 1, 2, 4, 5, 6];
    const CLASSES: [u16; 5] = [1, 3, 4, 254, 255];
    let Ok(message) = Message::new_checked(payload) else { return false };
    let reserved = message.word(1) & 0x0040 != 0;
    let query_with_code = !message.is_response() && message.response_code() != 0;
    if reserved || query_with_code || !OPCODES.contains(&message.opcode()) {
        return false;
    }
    let questions = u64::from(message.question_count());
    let records: u64 = (3..6).map(|index| u64::from(message.word(index))).sum();
    // The shortest question is 5 bytes, the shortest record 11.
    let least = HEADER_BYTES as u64 + 5 * questions + 11 * records;
    if questions + records == 0 || least > u64::from(wire_len) {
        return false;
    }
    let is_cut = (payload.len() as u64) < u64::from(wire_len);
    let readable = |fault: Option<Fault>| match fault {
        None => true,
        Some(Fault::Truncated) => is_cut || message.is_truncated(),
        Some(_) => false,
    };
    match message.questions().next() {
        Some(Ok(question)) => {
            let fault = question.name.labels().find_map(Result::err);
            CLASSES.contains(&(question.class & 0x7fff)) && readable(fault)
        }
        Some(Err(fault)) => readable(Some(fault)),
        None => readable(message.records().next().and_then(Result::err)),
    }
}

/// Most questions of a message. Programs send one; multicast DNS a few.
const QUESTIONS: u16 = 32;

/// Whether it is a header with few questions, and what is behind it. That is a message on a port of DNS, or in a stream where
/// messages begin is known, however odd; elsewhere use [`is_plausible`].
pub fn is_message(payload: &[u8]) -> bool {
    Message::new_checked(payload).is_ok_and(|message| message.question_count() <= QUESTIONS)
}

/// Whether a datagram between these ports is a message. Names of NetBIOS (RFC 1002, 4.2) have the same format, and are none.
pub fn is_datagram(ports: [u16; 2], payload: &[u8], wire_len: u32) -> bool {
    const NETBIOS: u16 = 137;
    match ports.iter().any(|port| PORTS.contains(port)) {
        true => is_message(payload),
        false => !ports.contains(&NETBIOS) && is_plausible(payload, wire_len),
    }
}

/// Whether it is a response.
pub fn is_response(payload: &[u8]) -> bool {
    is_message(payload) && Message::new_checked(payload).is_ok_and(|message| message.is_response())
}

/// The protocol of these ports. `None`: neither is one of [`PORTS`].
pub fn of_ports(flow: &Flow) -> Option<App> {
    const LLMNR: u16 = 5355;
    let port = [flow.source_port, flow.target_port].into_iter().find(|port| PORTS.contains(port))?;
    Some(if port == LLMNR { App::Llmnr } else { App::Dns })
}

/// Whether a stream begins with a length and a message, or with the beginning of them.
pub fn probe(bytes: &[u8]) -> Fit {
    match bytes.split_first_chunk() {
        Some((length, message)) if message.len() >= HEADER_BYTES => {
            Fit::of(usize::from(u16::from_be_bytes(*length)) >= HEADER_BYTES && is_message(message))
        }
        _ => Fit::More,
    }
}
