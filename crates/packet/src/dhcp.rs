//! DHCP messages (RFC 2131) and their options (RFC 2132). Reads single messages, without the state of an exchange.

use std::net::Ipv4Addr;

use crate::bytes::chunk_at;
use crate::malformed::Malformed;

/// Port of servers.
pub const SERVER_PORT: u16 = 67;
/// Port of clients.
pub const CLIENT_PORT: u16 = 68;

/// Operation of a client's message to servers.
pub const REQUEST: u8 = 1;
/// Operation of a server's message to a client.
pub const REPLY: u8 = 2;

/// The cookie before the options (RFC 2131, section 3).
pub const COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Codes of options.
pub mod code {
    /// Padding; has no length.
    pub const PAD: u8 = 0;
    /// Subnet mask.
    pub const SUBNET_MASK: u8 = 1;
    /// Routers, the preferred one first.
    pub const ROUTERS: u8 = 3;
    /// Name servers.
    pub const NAME_SERVERS: u8 = 6;
    /// The client's host name.
    pub const HOST_NAME: u8 = 12;
    /// The client's domain name.
    pub const DOMAIN_NAME: u8 = 15;
    /// MTU of the interface.
    pub const MTU: u8 = 26;
    /// The address that a client asks for.
    pub const REQUESTED_ADDRESS: u8 = 50;
    /// Time of the lease, s.
    pub const LEASE_TIME: u8 = 51;
    /// Options continue in the fields for names.
    pub const OVERLOAD: u8 = 52;
    /// The type of the message.
    pub const MESSAGE_TYPE: u8 = 53;
    /// The server's identifier.
    pub const SERVER: u8 = 54;
    /// Codes of the options that a client asks for.
    pub const PARAMETERS: u8 = 55;
    /// The longest message that a client accepts.
    pub const LONGEST_MESSAGE: u8 = 57;
    /// T1: when to renew, s.
    pub const RENEWAL_TIME: u8 = 58;
    /// T2: when to ask any server, s.
    pub const REBINDING_TIME: u8 = 59;
    /// The type of the client.
    pub const VENDOR_CLASS: u8 = 60;
    /// The client's identifier.
    pub const CLIENT: u8 = 61;
    /// Ends the options; has no length.
    pub const END: u8 = 255;
}

/// Message types: values of [`code::MESSAGE_TYPE`].
pub mod kind {
    /// A client looks for servers.
    pub const DISCOVER: u8 = 1;
    /// A server offers an address.
    pub const OFFER: u8 = 2;
    /// A client requests an address, or extends its lease.
    pub const REQUEST: u8 = 3;
    /// A client found that another host uses the address.
    pub const DECLINE: u8 = 4;
    /// A server assigns an address.
    pub const ACK: u8 = 5;
    /// A server refuses.
    pub const NAK: u8 = 6;
    /// A client releases its address.
    pub const RELEASE: u8 = 7;
}

/// The fields for names, in which options may continue.
const SERVER_NAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;

/// A message with all its fixed fields.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    fields: &'a [u8; Packet::FIXED_BYTES],
    options: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Length of the fixed fields with the cookie.
    pub const FIXED_BYTES: usize = 240;

    /// Checks length and cookie: BOOTP messages without options are refused.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (fields, options) = bytes.split_first_chunk().ok_or(Malformed::TruncatedDhcp)?;
        if fields[236..] != COOKIE {
            return Err(Malformed::OtherProtocol);
        }
        Ok(Self { fields, options })
    }

    /// [`REQUEST`] or [`REPLY`].
    pub fn operation(&self) -> u8 {
        self.fields[0]
    }

    /// The number of the exchange.
    pub fn exchange(&self) -> u32 {
        u32::from_be_bytes(self.chunk(4))
    }

    /// The client's address, if the client has one already.
    pub fn client(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.chunk::<4>(12))
    }

    /// The address that the server assigns ("your").
    pub fn given(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.chunk::<4>(16))
    }

    /// The server for the next step of the boot.
    pub fn next_server(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.chunk::<4>(20))
    }

    /// The relay that forwarded the message.
    pub fn relay(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.chunk::<4>(24))
    }

    /// The client's Ethernet address; `None`: its hardware address is of another type.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        (self.fields[1..3] == [1, 6]).then(|| self.chunk(28))
    }

    fn chunk<const N: usize>(&self, at: usize) -> [u8; N] {
        // All offsets lie inside the fixed fields.
        chunk_at(self.fields, at).copied().unwrap_or([0; N])
    }

    /// All options up to the first invalid length. Those in the fields for names come last (RFC 2131, section 4.1).
    pub fn options(&self) -> Options<'a> {
        let own = Options { rest: self.options, later: [&[]; 2] };
        let overload = own.clone().find(|(found, _)| *found == code::OVERLOAD);
        let overload = overload.and_then(|(_, bytes)| bytes.first()).copied().unwrap_or(0);
        let part = |bit: u8, range| if overload & bit != 0 { &self.fields[range] } else { &[][..] };
        Options { later: [part(1, FILE), part(2, SERVER_NAME)], ..own }
    }

    /// The bytes of the first option with this code.
    pub fn option(&self, code: u8) -> Option<&'a [u8]> {
        self.options().find(|(found, _)| *found == code).map(|(_, bytes)| bytes)
    }
}

/// Options: code and bytes.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
    /// The fields in which options continue.
    later: [&'a [u8]; 2],
}

impl<'a> Iterator for Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [code::PAD, ref rest @ ..] => self.rest = rest,
                [code::END, ..] | [] => {
                    let [next, after] = self.later;
                    if next.is_empty() && after.is_empty() {
                        self.rest = &[];
                        return None;
                    }
                    (self.rest, self.later) = (next, [after, &[]]);
                }
                [code, len, ref rest @ ..] if usize::from(len) <= rest.len() => {
                    let (bytes, rest) = rest.split_at(len.into());
                    self.rest = rest;
                    return Some((code, bytes));
                }
                // Truncated: no option behind it can be found.
                _ => self.rest = &[],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; Packet::FIXED_BYTES];
        bytes[..8].copy_from_slice(&[2, 1, 6, 0, 1, 2, 3, 4]);
        bytes[12..20].copy_from_slice(&[10, 0, 0, 7, 10, 0, 0, 9]);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 5]);
        bytes[44..50].copy_from_slice(&[3, 4, 10, 0, 0, 1]);
        bytes[108..112].copy_from_slice(&[0, 26, 2, 5]);
        bytes[112..114].copy_from_slice(&[0xdc, 255]);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend_from_slice(options);
        bytes
    }

    #[test]
    fn fields() {
        let bytes = message(&[]);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!((packet.operation(), packet.exchange()), (REPLY, 0x0102_0304));
        assert_eq!((packet.client(), packet.given()), (Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!(packet.hardware(), Some([2, 0, 0, 0, 0, 5]));
        let mut other = bytes.clone();
        other[1] = 6;
        assert_eq!(Packet::new_checked(&other).unwrap().hardware(), None);
        assert_eq!(Packet::new_checked(&bytes[..239]).unwrap_err(), Malformed::TruncatedDhcp);
        other[239] = 0;
        assert_eq!(Packet::new_checked(&other).unwrap_err(), Malformed::OtherProtocol);
    }

    #[test]
    fn options_of_any_form() {
        let check = |options: &[u8], expected: &[(u8, &[u8])]| {
            let bytes = message(options);
            let found: Vec<_> = Packet::new_checked(&bytes).unwrap().options().collect();
            assert_eq!(found, expected, "{options:?}");
        };
        check(&[], &[]);
        check(&[255], &[]);
        check(&[0, 0, 53, 1, 5, 0, 255, 1, 1, 1], &[(53, &[5])]);
        check(&[53, 1, 5, 7, 0], &[(53, &[5]), (7, &[])]);
        // Truncated in its length, or in its bytes.
        check(&[53, 1, 5, 1], &[(53, &[5])]);
        check(&[53, 1, 5, 1, 4, 255, 255], &[(53, &[5])]);
        // Options continue in the file name, in the server's name, and in both.
        check(&[52, 1, 1, 255], &[(52, &[1]), (26, &[5, 0xdc])]);
        check(&[52, 1, 2], &[(52, &[2]), (3, &[10, 0, 0, 1])]);
        check(&[52, 1, 3, 53, 1, 5], &[(52, &[3]), (53, &[5]), (26, &[5, 0xdc]), (3, &[10, 0, 0, 1])]);
        // Options continue although an end is missing or truncated.
        check(&[52, 1, 1, 9, 9], &[(52, &[1]), (26, &[5, 0xdc])]);
    }
}
