//! The messages of a client: its questions, and the answers that it accepts.

use crate::routes::is_host;
use packet::dhcp::{COOKIE, Packet, REPLY, REQUEST, code, kind};
use std::net::Ipv4Addr;

/// The least bytes of a message, as servers and relays of BOOTP require (RFC 1542, section 2.1).
const LEAST: usize = 300;

/// The smallest MTU that a server can set: every host accepts it (RFC 791). Below it, packets would be all headers.
const LEAST_MTU: u16 = 576;

/// A lease of fewer seconds would have to be renewed all the time.
const LEAST_LEASE: u32 = 10;

/// A question of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// A value of [`packet::dhcp::kind`].
    pub(crate) kind: u8,
    pub(crate) exchange: u32,
    /// Seconds since the exchange began.
    pub(crate) seconds: u16,
    pub(crate) mac: [u8; 6],
    /// Identifies the client: stays the same on another device.
    pub(crate) id: [u8; 6],
    /// Its own address, at which it can be reached.
    pub(crate) has: Option<Ipv4Addr>,
    /// The address that it asks for.
    pub(crate) wants: Option<Ipv4Addr>,
    /// The server that it asks.
    pub(crate) server: Option<Ipv4Addr>,
}

impl Ask {
    /// The message.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Packet::FIXED_BYTES];
        bytes[..3].copy_from_slice(&[REQUEST, 1, 6]);
        bytes[4..8].copy_from_slice(&self.exchange.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.has.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes[236..].copy_from_slice(&COOKIE);
        let mut option = |code: u8, value: &[u8]| {
            // All options have only a few bytes.
            bytes.extend_from_slice(&[code, value.len() as u8]);
            bytes.extend_from_slice(value);
        };
        option(code::MESSAGE_TYPE, &[self.kind]);
        option(code::CLIENT, &[&[1], &self.id[..]].concat());
        for (code, address) in [(code::REQUESTED_ADDRESS, self.wants), (code::SERVER, self.server)] {
            if let Some(address) = address {
                option(code, &address.octets());
            }
        }
        if matches!(self.kind, kind::DISCOVER | kind::REQUEST) {
            let wanted = [
                code::SUBNET_MASK,
                code::ROUTERS,
                code::MTU,
                code::LEASE_TIME,
                code::RENEWAL_TIME,
                code::REBINDING_TIME,
            ];
            option(code::PARAMETERS, &wanted);
            // The length that every host accepts (RFC 791).
            option(code::LONGEST_MESSAGE, &LEAST_MTU.to_be_bytes());
        }
        bytes.push(code::END);
        bytes.resize(bytes.len().max(LEAST), code::PAD);
        bytes
    }
}

/// An answer of a server to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Offer(Terms),
    Ack(Terms),
    /// From the server that refuses.
    Nak(Option<Ipv4Addr>),
}

/// The terms of a lease that a server gives or offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) address: Ipv4Addr,
    pub(crate) bits: u8,
    /// `None`: an ACK need not name it.
    pub(crate) server: Option<Ipv4Addr>,
    pub(crate) router: Option<Ipv4Addr>,
    pub(crate) mtu: Option<u16>,
    /// Seconds. `u32::MAX`: unlimited.
    pub(crate) lease: u32,
    /// Seconds until this server is asked to extend the lease, and until any server is. `None`: the server does not say.
    pub(crate) renewal: Option<u32>,
    pub(crate) rebinding: Option<u32>,
}

/// Reads an answer to this exchange of this hardware address. `None`: it is for another exchange, or invalid.
pub(crate) fn read(bytes: &[u8], exchange: u32, mac: [u8; 6]) -> Option<Answer> {
    let packet = Packet::new_checked(bytes).ok()?;
    if packet.operation() != REPLY || packet.exchange() != exchange || packet.hardware() != Some(mac) {
        return None;
    }
    let number = |code| packet.option(code)?.try_into().ok().map(u32::from_be_bytes);
    let server = number(code::SERVER).map(Ipv4Addr::from).filter(|server| is_host((*server).into()));
    match *packet.option(code::MESSAGE_TYPE)? {
        [kind::OFFER] => Some(Answer::Offer(terms(&packet, server)?)),
        [kind::ACK] => Some(Answer::Ack(terms(&packet, server)?)),
        [kind::NAK] => Some(Answer::Nak(server)),
        _ => None,
    }
}

fn terms(packet: &Packet<'_>, server: Option<Ipv4Addr>) -> Option<Terms> {
    let number = |code| packet.option(code)?.try_into().ok().map(u32::from_be_bytes);
    let address = packet.given();
    let bits = match number(code::SUBNET_MASK) {
        Some(mask) if mask.leading_ones() == mask.count_ones() => mask.leading_ones() as u8,
        Some(_) => return None,
        None => usual_bits(address),
    };
    let host = u32::from(address) & u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    let last = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    // In a prefix of more than two addresses, the first and the last belong to no host (RFC 3021).
    if !is_host(address.into()) || bits == 0 || bits < 31 && (host == 0 || host == last) {
        return None;
    }
    let routers = packet.option(code::ROUTERS).unwrap_or_default();
    let mut routers =
        routers.chunks_exact(4).filter_map(|router| router.first_chunk::<4>()).map(|router| Ipv4Addr::from(*router));
    let is_neighbour = |router: &Ipv4Addr| {
        is_host((*router).into()) && *router != address && (u32::from(*router) ^ u32::from(address)) & !last == 0
    };
    let mtu = packet.option(code::MTU).and_then(|mtu| mtu.try_into().ok()).map(u16::from_be_bytes);
    Some(Terms {
        address,
        bits,
        server,
        router: routers.find(is_neighbour),
        mtu: mtu.filter(|mtu| *mtu >= LEAST_MTU),
        lease: number(code::LEASE_TIME).filter(|lease| *lease >= LEAST_LEASE)?,
        renewal: number(code::RENEWAL_TIME),
        rebinding: number(code::REBINDING_TIME),
    })
}

/// The network bits if a server does not give them: those of the address's class (RFC 950).
fn usual_bits(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// An answer with these options behind its kind.
    fn answer(kind: u8, address: [u8; 4], options: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; Packet::FIXED_BYTES];
        bytes[..8].copy_from_slice(&[2, 1, 6, 0, 0, 0, 0, 7]);
        bytes[16..20].copy_from_slice(&address);
        bytes[28..34].copy_from_slice(&MAC);
        bytes[236..].copy_from_slice(&COOKIE);
        bytes.extend_from_slice(&[53, 1, kind]);
        bytes.extend(options.concat());
        bytes
    }

    #[test]
    fn a_question_is_a_message_of_300_bytes_at_least() {
        let ask = Ask {
            kind: kind::REQUEST,
            exchange: 7,
            seconds: 9,
            mac: MAC,
            id: [3; 6],
            has: None,
            wants: Some(Ipv4Addr::new(10, 0, 0, 9)),
            server: Some(Ipv4Addr::new(10, 0, 0, 1)),
        };
        let bytes = ask.bytes();
        let packet = Packet::new_checked(&bytes).expect("it is sound");
        assert_eq!((bytes.len(), packet.operation(), packet.exchange(), packet.hardware()), (300, 1, 7, Some(MAC)));
        let options: Vec<_> = packet.options().map(|(code, _)| code).collect();
        assert_eq!(options, [53, 61, 50, 54, 55, 57]);
        assert_eq!(packet.option(50), Some(&[10, 0, 0, 9][..]));
        let release = Ask { kind: kind::RELEASE, has: ask.wants, wants: None, ..ask }.bytes();
        let packet = Packet::new_checked(&release).expect("it is sound");
        assert_eq!((packet.client(), packet.options().count()), (Ipv4Addr::new(10, 0, 0, 9), 3));
    }

    #[test]
    fn answers_that_make_sense_and_those_that_do_not() {
        let (mask, server): (&[u8], &[u8]) = (&[1, 4, 255, 255, 255, 0], &[54, 4, 10, 0, 0, 1]);
        let hour: &[u8] = &[51, 4, 0, 0, 14, 16];
        let check = |kind, address, options: &[&[u8]], expected: Option<(u8, Option<u8>, Option<u16>)>| {
            let read = read(&answer(kind, address, options), 7, MAC);
            let terms = match read {
                Some(Answer::Offer(terms) | Answer::Ack(terms)) => Some(terms),
                _ => None,
            };
            let found = terms.map(|terms| (terms.bits, terms.router.map(|router| router.octets()[3]), terms.mtu));
            assert_eq!(found, expected, "{kind} {address:?} {options:?}");
        };
        check(5, [10, 0, 0, 9], &[mask, server, hour], Some((24, None, None)));
        check(2, [10, 0, 0, 9], &[server, hour], Some((8, None, None)));
        // The first listed router that is a neighbour and another host.
        check(5, [10, 0, 0, 9], &[mask, hour, &[3, 4, 10, 0, 0, 254]], Some((24, Some(254), None)));
        check(
            5,
            [10, 0, 0, 9],
            &[mask, hour, &[3, 13, 10, 0, 1, 1, 10, 0, 0, 9, 10, 0, 0, 3, 1]],
            Some((24, Some(3), None)),
        );
        check(5, [10, 0, 0, 9], &[mask, hour, &[3, 3, 10, 0, 0]], Some((24, None, None)));
        for (mtu, expected) in [([5, 120], Some(1400)), ([2, 64], Some(576)), ([2, 63], None)] {
            check(5, [10, 0, 0, 9], &[mask, hour, &[26, 2, mtu[0], mtu[1]]], Some((24, None, expected)));
        }
        check(5, [10, 0, 0, 9], &[mask, hour, &[26, 1, 5]], Some((24, None, None)));
        // A mask with gaps, an address that no host has, no lease time, and a lease that is too short.
        check(5, [10, 0, 0, 9], &[&[1, 4, 255, 0, 255, 0], hour], None);
        check(5, [10, 0, 0, 9], &[&[1, 4, 0, 0, 0, 0], hour], None);
        for last in [0, 255] {
            check(5, [10, 0, 0, last], &[mask, hour], None);
        }
        check(5, [10, 0, 0, 0], &[&[1, 4, 255, 255, 255, 254], hour], Some((31, None, None)));
        check(5, [224, 0, 0, 9], &[mask, hour], None);
        check(5, [0, 0, 0, 0], &[mask, hour], None);
        check(5, [10, 0, 0, 9], &[mask], None);
        check(5, [10, 0, 0, 9], &[mask, &[51, 4, 0, 0, 0, 9]], None);
        for kind in [0, 1, 3, 4, 7, 8] {
            check(kind, [10, 0, 0, 9], &[mask, hour], None);
        }
        let whole = answer(5, [10, 0, 0, 9], &[mask, server, hour]);
        assert!(read(&whole, 7, MAC).is_some() && read(&whole, 8, MAC).is_none() && read(&whole, 7, [2; 6]).is_none());
        let mut question = whole.clone();
        question[0] = 1;
        assert_eq!(read(&question, 7, MAC), None);
        let nak = answer(6, [0; 4], &[server]);
        assert_eq!(read(&nak, 7, MAC), Some(Answer::Nak(Some(Ipv4Addr::new(10, 0, 0, 1)))));
    }
}
