//! smoltcp's device: one received packet, and the way down through the stack.
//!
//! smoltcp makes whole IPv4 packets between [`HERE`](super::HERE) and [`THERE`](super::THERE). This device strips the
//! IP header, since the block below writes the real one. It also orders the options of a SYN and writes the checksum.

use std::net::{IpAddr, SocketAddr};

use packet::checksum::Sum;
use packet::frame::protocol;
use packet::tcp::{Flags, Packet};
use packet::{ipv4, ipv6};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::options;
use crate::block::Out;
use crate::packets::Meta;
use crate::pseudo;

const IP_BYTES: usize = ipv4::Packet::HEADER_BYTES;

/// State of sent segments, and a buffer for the next one.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) address: IpAddr,
    pub(super) peer: SocketAddr,
    /// MTU of the path, in bytes.
    pub(super) mtu: u16,
    /// Do not send the next segment with exactly these flags.
    pub(super) swallow: Option<Flags>,
    /// SND.NXT of RFC 9293: the sequence number behind the last byte sent, not counting window probes.
    pub(super) next: u32,
    /// The other side's window is 0.
    pub(super) is_shut: bool,
    /// smoltcp sends on its own: it does not answer a segment.
    pub(super) is_own: bool,
    /// Window end that the last segment announced, if it was a SYN-ACK. `None` after any other segment.
    pub(super) syn_window_end: Option<u32>,
    /// The last segment was empty and repeated acknowledgement and window of the one before.
    pub(super) repeats: bool,
    /// Sequence number, acknowledgement number, offset, flags and window of the last segment.
    last: [u8; 12],
    scratch: Vec<u8>,
}

impl Sender {
    pub(super) fn new(address: IpAddr, peer: SocketAddr, mtu: u16, next: u32) -> Sender {
        Sender {
            address,
            peer,
            mtu,
            swallow: None,
            next,
            is_shut: false,
            is_own: false,
            syn_window_end: None,
            repeats: false,
            last: [0; 12],
            scratch: vec![0; mtu.into()],
        }
    }

    /// The MTU to tell smoltcp, which always assumes an IPv4 header: less the extra bytes of an IPv6 header.
    fn mtu_of_smoltcp(&self) -> usize {
        let longer = if self.address.is_ipv4() { 0 } else { ipv6::Packet::HEADER_BYTES - IP_BYTES };
        usize::from(self.mtu).saturating_sub(longer)
    }

    /// The window field of the last segment.
    pub(super) fn announced_window(&self) -> u16 {
        u16::from_be_bytes([self.last[10], self.last[11]])
    }

    /// The acknowledgement number of the last segment.
    pub(super) fn announced_acknowledgement(&self) -> u32 {
        u32::from_be_bytes([self.last[4], self.last[5], self.last[6], self.last[7]])
    }

    /// Sends the first `len` bytes of `scratch`, an IPv4 packet without checksums.
    fn send(&mut self, len: usize, out: &mut dyn Out) {
        let Some(segment) = self.scratch.get_mut(IP_BYTES..len) else { return };
        let Ok(wire_len) = u16::try_from(segment.len()) else { return };
        let Ok(read) = Packet::new_checked(segment, wire_len.into()) else { return };
        let (header_len, flags) = (read.header_len() as usize, read.flags());
        let (first, acknowledged, window) = (read.sequence_number(), read.acknowledgment_number(), read.window());
        let data_len = segment.len().saturating_sub(header_len) as u32;
        let end = first.wrapping_add(data_len + u32::from(flags.syn()) + u32::from(flags.fin()));
        // When smoltcp retransmits, it goes back to the first unacknowledged byte, and its bare acknowledgements carry
        // that number too. The other side ignores an acknowledgement from below its window. Two sides that both
        // retransmit would never hear each other. RFC 9293, section 3.10.7.4: an acknowledgement carries SND.NXT, and
        // so does the reset of an abort. Other resets carry a number that their receiver chose.
        let is_behind = |number: u32| (1..=i32::MAX as u32).contains(&self.next.wrapping_sub(number));
        let is_bare = data_len == 0 && (flags == Flags::ACK || flags.rst() && flags.ack() && self.is_own);
        if is_bare && is_behind(first) {
            let next = self.next.to_be_bytes();
            if let Some(number) = segment.get_mut(4..8) {
                number.copy_from_slice(&next);
            }
        } else if !flags.rst() && !self.is_shut && !is_behind(end) {
            self.next = end;
        }
        // smoltcp rounds its window down to the scale, so the window's end would move back and forth by a few bytes,
        // and smoltcp cuts off what the other side sent up to an earlier end. With one unit less, no end that was
        // announced is beyond the one that smoltcp keeps (RFC 7323, section 2.4).
        let window = if flags.syn() || flags.rst() { window } else { window.saturating_sub(1) };
        if let Some(field) = segment.get_mut(14..16) {
            field.copy_from_slice(&window.to_be_bytes());
        }
        let is_syn_ack = flags.syn() && flags.ack();
        self.syn_window_end = is_syn_ack.then(|| acknowledged.wrapping_add(window.into()));
        let said = segment.get(4..16).and_then(|said| said.first_chunk()).copied().unwrap_or_default();
        self.repeats = flags == Flags::ACK && data_len == 0 && said == self.last;
        self.last = said;
        if self.swallow == Some(flags) {
            self.swallow = None;
            return;
        }
        if flags.syn()
            && let Some(options) = segment.get_mut(Packet::HEADER_BYTES..header_len)
        {
            options::order_as_linux(options);
        }
        if let Some(field) = segment.get_mut(16..18) {
            field.fill(0);
        }
        let pseudo = pseudo::sum(self.address, self.peer.ip(), protocol::TCP, wire_len);
        let checksum = pseudo.and(Sum::of(segment)).checksum().to_be_bytes();
        if let Some(field) = segment.get_mut(16..18) {
            field.copy_from_slice(&checksum);
        }
        let (header, payload) = segment.split_at_checked(header_len).unwrap_or((segment, &[]));
        let meta = Meta { remote: Some(self.peer), protocol: protocol::TCP, ..Meta::default() };
        // A segment that a block below refuses counts as lost, and is sent again.
        _ = out.emit(meta, header, payload);
    }
}

/// The device for one call into smoltcp. If `out` is `None`, it only reports its capabilities.
pub(super) struct Way<'a> {
    pub(super) sender: &'a mut Sender,
    pub(super) packet: Option<&'a [u8]>,
    pub(super) out: Option<&'a mut dyn Out>,
}

impl Device for Way<'_> {
    type RxToken<'t>
        = Received<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Room<'t>
    where
        Self: 't;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Room<'_>)> {
        let packet = self.packet.take()?;
        let out = self.out.as_deref_mut()?;
        Some((Received(packet), Room { sender: self.sender, out }))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Room<'_>> {
        let out = self.out.as_deref_mut().filter(|out| out.has_room())?;
        Some(Room { sender: self.sender, out })
    }

    /// smoltcp must not check checksums: a peer on this machine may leave them out. The block checks them.
    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        (checksum.ipv4, checksum.tcp) = (Checksum::None, Checksum::None);
        let mut able = DeviceCapabilities::default();
        (able.medium, able.max_transmission_unit, able.checksum) = (Medium::Ip, self.sender.mtu_of_smoltcp(), checksum);
        able
    }
}

pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

pub(super) struct Room<'a> {
    sender: &'a mut Sender,
    out: &'a mut dyn Out,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        if self.sender.scratch.len() < len {
            self.sender.scratch.resize(len, 0);
        }
        let result = write(&mut self.sender.scratch[..len]);
        self.sender.send(len, self.out);
        result
    }
}
