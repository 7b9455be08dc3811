//! Protocols of which rules test only a few fields: NTP and DHCP.

use super::transactions::Transactions;
use rules::names::{App, Buffer, Number};

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
