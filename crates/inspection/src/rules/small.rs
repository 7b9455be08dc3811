//! Protocols of which rules test only a few fields: SNMP, NTP, TFTP, IKE, Kerberos, DHCP.

use super::prefixed::{Length, Prefixed};
use super::transactions::Transactions;
use protocols::der::{Der, tag};
use protocols::ike::{Message, kind};
use protocols::probe;
use rules::names::{App, Buffer, Number};

/// Handles an SNMP message (RFC 1157, RFC 3416, RFC 3412).
pub(super) fn snmp(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let mut message = Der(Der(payload).expect(tag::SEQUENCE).unwrap_or_default());
    let Some(&[version]) = message.expect(tag::INTEGER) else { return };
    let one = to.begin(App::Snmp);
    let id = one.id;
    one.complete = [true; 2];
    one.put_number(Number::SNMP_VERSION, to_server, if version == 3 { 3 } else { u64::from(version) + 1 });
    let pdu = if version == 3 {
        // Global data, then the security parameters, a DER string: engine, boots, time, user.
        let security = message.nth(1).and_then(|(_, security)| Der(security).next());
        if let Some((_, user)) = security.and_then(|(_, parameters)| Der(parameters).nth(3)) {
            one.put_copy(Buffer::SNMP_USM, to_server, user);
        }
        message.expect(tag::SEQUENCE).and_then(|scoped| Der(scoped).nth(2))
    } else {
        if let Some((_, community)) = message.next() {
            one.put_copy(Buffer::SNMP_COMMUNITY, to_server, community);
        }
        message.next()
    };
    if let Some((tag, pdu)) = pdu {
        one.put_number(Number::SNMP_PDU_TYPE, to_server, u64::from(tag & 0x1f));
        // Enterprise, agent, generic trap.
        if let Some((_, &[trap])) = Der(pdu).nth(2).filter(|_| version != 3 && tag & 0x1f == 4) {
            one.put_number(Number::SNMP_TRAP_TYPE, to_server, trap.into());
        }
    }
    to.change(id, to_server);
}

/// Handles an NTP message (RFC 5905).
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

pub(super) fn ike(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let Some(message) = Message::parse(payload) else { return };
    let one = to.begin(App::Ike);
    let id = one.id;
    one.complete = [true; 2];
    let hex = |bytes: &[u8]| {
        let mut digits = Vec::new();
        packet::text::append_hex(&mut digits, bytes);
        digits
    };
    // Rules test each side by its own SPI.
    match to_server {
        true => one.put_copy(Buffer::IKE_INIT_SPI, true, &hex(&message.initiator)),
        false => one.put_copy(Buffer::IKE_RESP_SPI, false, &hex(&message.responder)),
    }
    one.put_number(Number::IKE_EXCHTYPE, to_server, message.exchange.into());
    for (kind, contents) in message.payloads {
        // In version 2 a group and two bytes precede the value (RFC 7296, 3.4).
        let value = contents.get(4..).filter(|_| message.version == 2).unwrap_or(contents);
        if kind::VENDOR.contains(&kind) && to_server {
            one.put_copy(Buffer::IKE_VENDOR, to_server, &hex(contents));
        } else if kind::KEY_EXCHANGE.contains(&kind) {
            one.put_copy(Buffer::IKE_KEY_EXCHANGE_PAYLOAD, to_server, value);
            one.put_number(Number::IKE_KEY_EXCHANGE_PAYLOAD_LENGTH, to_server, value.len() as u64);
        } else if kind::NONCE.contains(&kind) {
            one.put_copy(Buffer::IKE_NONCE_PAYLOAD, to_server, contents);
            one.put_number(Number::IKE_NONCE_PAYLOAD_LENGTH, to_server, contents.len() as u64);
        } else if kind::NOTIFY.contains(&kind) {
            // In version 1 a domain comes first (RFC 2408, 3.14).
            let at = if message.version == 1 { 6 } else { 2 };
            if let Some([high, low]) = contents.get(at..).and_then(|rest| rest.first_chunk()).copied() {
                one.put_number(Number::IKE_NOTIFY_TYPE, to_server, u16::from_be_bytes([high, low]).into());
            }
        }
    }
    to.change(id, to_server);
}

/// Handles the first TFTP message; later ones use another port.
pub(super) fn tftp(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let one = to.begin(App::Tftp);
    let id = one.id;
    one.complete = [true; 2];
    one.message = payload.to_vec();
    to.change(id, to_server);
}

/// Longest message that is read.
const WAITING_BYTES: usize = 64 << 10;

/// Kerberos over TCP: each message follows its length.
#[derive(Debug, Default)]
pub(super) struct Krb5 {
    sides: [Prefixed; 2],
}

impl Krb5 {
    pub fn feed(&mut self, bytes: &[u8], to_server: bool, gap: bool, to: &mut Transactions) {
        // The first bit of the length is reserved (RFC 4120, 7.2.2).
        let length = |bytes: &[u8]| match bytes.first_chunk::<4>() {
            Some([0x80..=0xff, ..]) => Length::No,
            Some(length) => Length::Is((u32::from_be_bytes(*length) as usize).saturating_add(4)),
            None => Length::More,
        };
        self.sides[usize::from(!to_server)].feed(bytes, gap, WAITING_BYTES, length, to, |message, to| {
            krb5(message.get(4..).unwrap_or_default(), to_server, to);
        });
    }

    pub fn kept_bytes(&self) -> usize {
        self.sides.iter().map(Prefixed::kept_bytes).sum()
    }
}

pub(super) fn krb5(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let Some((tag, _)) = Der(payload).next().filter(|_| probe::is_krb5(payload)) else { return };
    let one = to.begin(App::Krb5);
    let id = one.id;
    one.complete = [true; 2];
    one.put_number(Number::KRB5_MSG_TYPE, to_server, u64::from(tag & 0x1f));
    to.change(id, to_server);
}

/// Handles a DHCP message (RFC 2131): its lease times.
pub(super) fn dhcp(payload: &[u8], to_server: bool, to: &mut Transactions) {
    let Some(mut options) = payload.get(240..) else { return };
    let one = to.begin(App::Dhcp);
    let id = one.id;
    one.message = payload.to_vec();
    one.complete = [true; 2];
    while let &[kind, ref rest @ ..] = options {
        if kind == 0 {
            options = rest;
            continue;
        }
        if kind == 255 {
            break;
        }
        let Some((length, behind)) = rest.split_first() else {
            one.events.push(("dhcp.truncated_options", to_server));
            break;
        };
        let Some((value, behind)) = behind.split_at_checked(usize::from(*length)) else {
            one.events.push(("dhcp.truncated_options", to_server));
            break;
        };
        let number = match kind {
            51 => Some(Number::DHCP_LEASETIME),
            58 => Some(Number::DHCP_RENEWAL_TIME),
            59 => Some(Number::DHCP_REBINDING_TIME),
            _ => None,
        };
        if let Some(number) = number {
            match value.first_chunk::<4>() {
                Some(value) => one.put_number(number, to_server, u32::from_be_bytes(*value).into()),
                None => one.events.push(("dhcp.malformed_options", to_server)),
            }
        }
        options = behind;
    }
    to.change(id, to_server);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_kerberos_behind_a_long_one() {
        let long = [&100_000u32.to_be_bytes()[..], &b"\0\0\0\x04".repeat(25_000)].concat();
        let (mut stream, mut to) = (Krb5::default(), Transactions::default());
        for piece in [&long[..], b"\0\0\0\x04\x6c\x02\x30\0"].concat().chunks(1400) {
            stream.feed(piece, true, false, &mut to);
        }
        let one = to.last().unwrap();
        assert_eq!(one.numbers(Number::KRB5_MSG_TYPE, true).collect::<Vec<_>>(), [12]);
        assert_eq!((one.id, to.given_up, to.unseen), (0, 1, true));
    }
}
