//! Protocols of datagrams of which rules look at a few fields: SNMP, NTP, TFTP.

use super::der::node;
use super::transactions::Transactions;
use rules::names::{App, Buffer, Number};

/// Is it a message of SNMP: a sequence that begins with a version?
pub(super) fn is_snmp(payload: &[u8]) -> bool {
    node(payload).is_some_and(|(tag, inner, _)| {
        tag == 0x30 && node(inner).is_some_and(|(tag, version, _)| tag == 2 && matches!(version, [0 | 1 | 3]))
    })
}

/// A message of SNMP (RFC 1157, RFC 3416, RFC 3412).
pub(super) fn snmp(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let Some((0x30, inner, _)) = node(payload) else { return };
    let Some((2, &[version], rest)) = node(inner) else { return };
    let one = to.begin(App::Snmp);
    let id = one.id;
    one.complete = [true; 2];
    one.put_number(Number::SNMP_VERSION, to_server, if version == 3 { 3 } else { u64::from(version) + 1 });
    if version == 3 {
        if let Some((_, security)) = node(rest).and_then(|(_, _, rest)| node(rest)).map(|(tag, inner, _)| (tag, inner))
            && let Some((_, parameters, _)) = node(security)
        {
            // Engine, boots, time, user.
            let user = node(parameters).and_then(|(_, _, rest)| node(rest)).and_then(|(_, _, rest)| node(rest));
            if let Some((_, user, _)) = user.and_then(|(_, _, rest)| node(rest)) {
                one.put_copy(Buffer::SNMP_USM, to_server, user);
            }
        }
        if let Some((0x30, scoped, _)) =
            node(rest).and_then(|(_, _, rest)| node(rest)).and_then(|(_, _, rest)| node(rest))
            && let Some((tag, _, _)) =
                node(scoped).and_then(|(_, _, rest)| node(rest)).and_then(|(_, _, rest)| node(rest))
        {
            one.put_number(Number::SNMP_PDU_TYPE, to_server, u64::from(tag & 0x1f));
        }
    } else if let Some((_, community, rest)) = node(rest) {
        one.put_copy(Buffer::SNMP_COMMUNITY, to_server, community);
        if let Some((tag, pdu, _)) = node(rest) {
            one.put_number(Number::SNMP_PDU_TYPE, to_server, u64::from(tag & 0x1f));
            if tag & 0x1f == 4 {
                // Enterprise, agent, generic trap.
                let trap = node(pdu).and_then(|(_, _, rest)| node(rest)).and_then(|(_, _, rest)| node(rest));
                if let Some((_, &[trap], _)) = trap {
                    one.put_number(Number::SNMP_TRAP_TYPE, to_server, trap.into());
                }
            }
        }
    }
    to.change(id, to_server);
}

/// A message of NTP (RFC 5905).
pub(super) fn ntp(payload: &[u8], to_server: bool, to: &mut Transactions) {
    if payload.len() < 48 {
        return;
    }
    let one = to.begin(App::Ntp);
    let id = one.id;
    one.complete = [true; 2];
    one.put_number(Number::NTP_VERSION, to_server, u64::from(payload[0] >> 3 & 7));
    one.put_number(Number::NTP_MODE, to_server, u64::from(payload[0] & 7));
    one.put_number(Number::NTP_STRATUM, to_server, u64::from(payload[1]));
    one.put_copy(Buffer::NTP_REFERENCE_ID, to_server, &payload[12..16]);
    to.change(id, to_server);
}

/// A request of TFTP (RFC 1350): to read or to write, a name, a mode.
pub(super) fn is_tftp(payload: &[u8]) -> bool {
    matches!(payload, [0, 1 | 2, rest @ ..] if rest.iter().filter(|byte| **byte == 0).count() >= 2)
}
