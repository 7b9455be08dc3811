//! Gives an interface its address from a DHCP server (RFC 2131). The driver itself sends and receives the messages:
//! from 0.0.0.0, while the interface has no address.
//!
//! - here — messages in frames, and the changes that a lease makes. They are the same as a user's changes
//!   (`changes.rs`), so flows survive a renewal, and wait if a lease is lost.
//! - [`client`] — the exchange, without sockets and clock
//! - [`lease`] — leases
//! - [`message`] — the content of messages

mod client;
pub(crate) mod lease;
mod message;

use crate::answer;
use crate::counters::{End, Event};
use crate::interface::Core;
use crate::neighbours::Known;
use crate::receive::BROADCAST;
use crate::routes::Hop;
use crate::template::UDP;
use client::{Act, Client};
use flow::{Change, LeaseState, RouteState};
use lease::{HeldLease, Lease};
use packet::checksum::Sum;
use packet::dhcp::{CLIENT_PORT, SERVER_PORT};
use packet::{arp, ipv4, pseudo, udp};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

const UDP_HEADER: usize = udp::Packet::HEADER_BYTES;

/// Not the number of a flow: the client's frames wait for neighbours under it.
const NO_FLOW: u64 = 0;

/// The client of an interface.
#[derive(Debug)]
pub(crate) struct Dhcp {
    client: Client,
    /// The parts of its lease that the interface uses: the address, and the default router.
    used: Option<(Ipv4Addr, u8, Option<Ipv4Addr>)>,
    /// The hardware address of the last message from a server.
    server_mac: Option<[u8; 6]>,
    /// Why the last lease could not be used. `None`: it could.
    trouble: Option<String>,
}

impl Dhcp {
    /// A client that begins at once.
    pub(crate) fn new(mac: [u8; 6]) -> Dhcp {
        // The system chose the hasher's keys at random.
        Dhcp::with_seed(mac, RandomState::new().hash_one(mac))
    }

    fn with_seed(mac: [u8; 6], seed: u64) -> Dhcp {
        Dhcp { client: Client::new(mac, seed), used: None, server_mac: None, trouble: None }
    }

    /// A client that continues with the lease of an earlier process.
    pub(crate) fn resume(mac: [u8; 6], HeldLease { lease, id, router }: HeldLease, now: u64) -> Dhcp {
        let client = Client::resume(mac, id, lease, RandomState::new().hash_one(mac), now);
        Dhcp { client, used: Some((lease.address, lease.bits, router)), server_mac: None, trouble: None }
    }

    /// The lease, for the next process.
    pub(crate) fn held(&self) -> Option<HeldLease> {
        let (_, _, router) = self.used?;
        Some(HeldLease { lease: *self.client.lease()?, id: self.client.id(), router })
    }

    /// When it needs its next turn.
    pub(crate) fn next(&self) -> Option<u64> {
        self.client.next()
    }

    /// The server's MTU.
    pub(crate) fn mtu(&self) -> Option<u32> {
        self.client.lease()?.mtu.map(u32::from)
    }

    /// For people.
    pub(crate) fn state(&self, now: u64) -> LeaseState {
        let left = |until: u64| (until != u64::MAX).then(|| until.saturating_sub(now) / 1_000_000);
        let lease = self.client.lease();
        LeaseState {
            state: self.client.state().into(),
            address: lease.map(|lease| (lease.address.into(), lease.bits)),
            server: lease.map(|lease| lease.server.into()),
            router: lease.and_then(|lease| lease.router).map(Into::into),
            left_ms: lease.and_then(|lease| left(lease.end)),
            renewal_ms: lease.and_then(|lease| left(lease.renew)),
            trouble: self.trouble.clone(),
        }
    }
}

/// The server's message in this packet, if it is one for a client. `bytes`: the bytes behind the packet's header.
fn message_in<'a>(packet: &ipv4::Packet<'_>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    if packet.protocol() != UDP || packet.more_fragments() || packet.fragment_offset() != 0 {
        return None;
    }
    let datagram = udp::Packet::new_checked(bytes, bytes.len() as u32).ok()?;
    if (datagram.source_port(), datagram.target_port()) != (SERVER_PORT, CLIENT_PORT) {
        return None;
    }
    let sum = pseudo::sum(packet.source().into(), packet.target().into(), UDP, bytes.len() as u16).and(Sum::of(bytes));
    // 0 means no checksum (RFC 768).
    (bytes[6..8] == [0, 0] || sum.folded() == 0xffff).then(|| datagram.payload())
}

impl Core {
    /// Gives the client its turn if it is due and the device has a link: the client restarts with the device.
    pub(crate) fn tend_dhcp(&mut self, now: u64) {
        if self.trouble.is_none()
            && let Some(dhcp) = &mut self.dhcp
            && dhcp.next().is_some_and(|next| next <= now)
        {
            let acts = dhcp.client.tick(now);
            self.act(acts, now);
        }
    }

    /// When the client needs its next turn.
    pub(crate) fn dhcp_due(&self) -> Option<u64> {
        self.dhcp.as_ref().filter(|_| self.trouble.is_none()).and_then(|dhcp| dhcp.next())
    }

    /// Handles a packet from this host if it is a server's message to this client. `bytes`: those behind its header.
    pub(crate) fn hear_dhcp(&mut self, packet: &ipv4::Packet<'_>, bytes: &[u8], mac: [u8; 6], now: u64) -> Option<End> {
        let dhcp = self.dhcp.as_mut()?;
        let message = message_in(packet, bytes)?;
        let Some(acts) = dhcp.client.hear(message, now) else { return Some(End::DhcpIgnored) };
        dhcp.server_mac = Some(mac);
        self.act(acts, now);
        Some(End::DhcpHeard)
    }

    /// Handles an ARP packet of another host, which may have the address that the client is checking.
    pub(crate) fn hear_dhcp_conflict(&mut self, packet: &arp::Packet<'_>, now: u64) {
        let ((mac, sender), (_, target)) = (packet.sender(), packet.target());
        if mac == self.mac {
            return;
        }
        // The other host has the address, or also wants to have it (RFC 5227, section 2.1.1).
        let address = if sender.is_unspecified() && packet.operation() == arp::REQUEST { target } else { sender };
        if let Some(acts) = self.dhcp.as_mut().and_then(|dhcp| dhcp.client.conflict(address, now)) {
            self.counters.event(Event::DhcpDeclined);
            self.act(acts, now);
        }
    }

    /// The device has a link again, or is another one.
    pub(crate) fn restart_dhcp(&mut self, now: u64) {
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.client.restart(self.mac, now);
        }
    }

    /// The interface goes down: returns the lease.
    pub(crate) fn release_dhcp(&mut self, now: u64) {
        if let Some(acts) = self.dhcp.as_mut().map(|dhcp| dhcp.client.release()) {
            self.act(acts, now);
        }
        self.dhcp = None;
    }

    fn act(&mut self, acts: Vec<Act>, now: u64) {
        for act in acts {
            match act {
                Act::Send { message, from, to } => self.send_dhcp(&message, from, to, now),
                Act::Probe(address) => {
                    self.ask_by_arp(Ipv4Addr::UNSPECIFIED, address);
                }
                Act::Use(lease) => self.use_lease(lease, now),
                Act::Lose => {
                    self.counters.event(Event::DhcpLost);
                    self.use_none(now);
                }
            }
        }
    }

    fn send_dhcp(&mut self, message: &[u8], from: Ipv4Addr, to: Ipv4Addr, now: u64) {
        let len = (UDP_HEADER + message.len()) as u16;
        let mut frame = answer::packet(BROADCAST, UDP, from.into(), to.into(), len);
        let datagram = &mut frame[answer::headers(from.into())..];
        datagram[..2].copy_from_slice(&CLIENT_PORT.to_be_bytes());
        datagram[2..4].copy_from_slice(&SERVER_PORT.to_be_bytes());
        datagram[4..6].copy_from_slice(&len.to_be_bytes());
        datagram[UDP_HEADER..].copy_from_slice(message);
        // A checksum of 0 is sent as 0xffff (RFC 768).
        let checksum = pseudo::sum(from.into(), to.into(), UDP, len).and(Sum::of(datagram)).checksum();
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        self.counters.event(Event::DhcpSent);
        if to == Ipv4Addr::BROADCAST {
            return self.answer(frame);
        }
        let Hop::Neighbour(neighbour) = self.routes.hop(to.into()) else {
            // The server is this host, or no route leads there: later the client asks all servers.
            return self.counters.event(Event::AnswersDropped);
        };
        let mut ask = false;
        let known = self.neighbours.find(neighbour, NO_FLOW, now, &mut || ask = true);
        if ask {
            self.ask(neighbour, now);
        }
        let heard = self.dhcp.as_ref().and_then(|dhcp| dhcp.server_mac);
        match (known, heard) {
            (Known::Mac(mac), _) | (_, Some(mac)) => {
                frame[..6].copy_from_slice(&mac);
                self.answer(frame);
            }
            _ if self.neighbours.park(neighbour, frame) => (),
            _ => self.counters.event(Event::AnswersDropped),
        }
    }

    /// Changes the interface according to a lease.
    fn use_lease(&mut self, lease: Lease, now: u64) {
        self.counters.event(Event::DhcpLeases);
        let Lease { address, bits, router, .. } = lease;
        let before = self.dhcp.as_ref().and_then(|dhcp| dhcp.used);
        let mut trouble = None;
        if before != Some((address, bits, router)) {
            let is_same = before.is_some_and(|(has, had_bits, _)| (has, had_bits) == (address, bits));
            if !is_same {
                self.use_none(now);
                trouble = self.change(&Change::AddAddress(address.into(), bits), now).err().map(|error| error.text);
            } else if let Some((.., Some(router))) = before {
                // A user may have removed it.
                let _ = self.change(&Change::RemoveRoute(default_by(router)), now);
            }
            // A user's gateway has precedence.
            let router = router.filter(|router| self.change(&Change::AddRoute(default_by(*router)), now).is_ok());
            if let Some(dhcp) = &mut self.dhcp {
                dhcp.used = trouble.is_none().then_some((address, bits, router));
            }
        }
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.trouble = trouble;
        }
        self.routes_changed = true;
        self.fit_mtu();
    }

    /// Removes everything that a lease brought.
    fn use_none(&mut self, now: u64) {
        let Some((address, bits, router)) = self.dhcp.as_mut().and_then(|dhcp| dhcp.used.take()) else { return };
        // A user may have removed them.
        if let Some(router) = router {
            let _ = self.change(&Change::RemoveRoute(default_by(router)), now);
        }
        let _ = self.change(&Change::RemoveAddress(address.into(), bits), now);
        self.fit_mtu();
    }
}

fn default_by(router: Ipv4Addr) -> RouteState {
    RouteState { to: (Ipv4Addr::UNSPECIFIED.into(), 0), via: Some(router.into()) }
}
