//! Resets to the ends of a stopped TCP connection. They are built from the stopped frame, and the bridge's devices
//! send them after the earlier frames that passed.

use base::limits::BATCH_BLOCKS;
use driver::Transmit;
use driver::af_packet::{Sender, SenderOptions};
use filter::prelude::*;
use filters::parts::edit;
use filters::parts::received;
use filters::parts::sending::{self, Patience};
use packet::frame;
use packet::link::LinkType;
use packet::tcp;
use std::time::Duration;

/// Maximum resets that wait; more are left out and counted.
const WAITING: usize = 2 * BATCH_BLOCKS;

/// How long resets wait for room in a device.
const PATIENCE: Patience = Patience { room: Duration::from_millis(1), all: Duration::from_millis(5) };

const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Resets, and the devices that send them.
pub(super) struct Resets {
    ways: Vec<(String, Sender)>,
    /// The device's index and the frame.
    waiting: Vec<(usize, Vec<u8>)>,
}

impl Resets {
    /// Opens these devices. With none, as behind a capture file, no resets are sent.
    pub fn open(devices: &[String]) -> Result<Resets, ParamError> {
        if devices.is_empty() {
            return Ok(Resets { ways: Vec::new(), waiting: Vec::new() });
        }
        let namespace = received::namespace()?;
        let open = |name: &String| {
            let sender = Sender::open(&namespace, name, SenderOptions::default()).map_err(received::refusal)?;
            Ok((name.clone(), sender))
        };
        Ok(Resets { ways: devices.iter().map(open).collect::<Result<_, ParamError>>()?, waiting: Vec::new() })
    }

    /// Queues resets that answer a TCP segment. `ends`: to its sender, to its receiver.
    #[cold]
    pub fn add(&mut self, block: &Descriptor, link: LinkType, ends: [bool; 2], cx: &mut Context<'_>) {
        let name = cx.rings.interface(block).and_then(|interface| interface.name.as_deref());
        let came_by = self.ways.iter().position(|(way, _)| Some(way.as_str()) == name);
        let Some(came_by) = came_by.filter(|_| link == LinkType::ETHERNET) else { return };
        for (end, _) in ends.into_iter().enumerate().filter(|(_, told)| *told) {
            let goes_by = if end == 0 { Some(came_by) } else { (0..self.ways.len()).find(|way| *way != came_by) };
            let Some((goes_by, frame)) = goes_by.zip(reset(cx.rings.bytes(block), end == 0)) else { continue };
            if self.waiting.len() < WAITING {
                self.waiting.push((goes_by, frame));
            } else {
                cx.count("resets left out", 1);
            }
        }
    }

    #[inline]
    pub fn send(&mut self, cx: &mut Context<'_>) {
        if !self.waiting.is_empty() {
            self.send_waiting(cx);
        }
    }

    #[cold]
    fn send_waiting(&mut self, cx: &mut Context<'_>) {
        for (goes_by, frame) in self.waiting.drain(..) {
            let Some((_, sender)) = self.ways.get_mut(goes_by) else { continue };
            let sender: &mut dyn Transmit = sender;
            let event = match sending::send(sender, &[&frame], PATIENCE) {
                Ok(None) => "resets sent",
                Ok(Some(_)) | Err(_) => "resets not sent",
            };
            cx.count(event, 1);
        }
    }
}

/// The reset that answers a TCP segment (`back`), or that replaces it. `None` for other frames and for resets.
fn reset(bytes: &[u8], back: bool) -> Option<Vec<u8>> {
    let read = frame::parse(LinkType::ETHERNET, bytes, bytes.len() as u32).ok()?;
    let segment = read.tcp(bytes).ok().filter(|segment| !segment.flags().rst())?;
    let (network, transport) = (read.network_offset as usize, read.transport_offset as usize);
    // IPv6 without extensions only: extension headers may not be valid for the other direction.
    if read.version == 6 && transport != network + 40 {
        return None;
    }
    let mut frame = bytes[..transport].to_vec();
    frame.resize(transport + tcp::Packet::HEADER_BYTES, 0);
    let (ports, flags) = ([segment.source_port(), segment.target_port()], segment.flags());
    let length = segment.payload_wire_len() + u32::from(flags.syn()) + u32::from(flags.fin());
    let end = segment.sequence_number().wrapping_add(length);
    let (ports, sequence, acknowledgment) = match back {
        false => (ports, segment.sequence_number(), segment.acknowledgment_number()),
        true if flags.ack() => ([ports[1], ports[0]], segment.acknowledgment_number(), end),
        true => ([ports[1], ports[0]], 0, end),
    };
    if back {
        let (targets, sources) = frame[..12].split_at_mut(6);
        targets.swap_with_slice(sources);
        let (at, width) = if read.version == 4 { (network + 12, 4) } else { (network + 8, 16) };
        let (sources, targets) = frame[at..at + 2 * width].split_at_mut(width);
        sources.swap_with_slice(targets);
    }
    let header = &mut frame[transport..];
    header[..2].copy_from_slice(&ports[0].to_be_bytes());
    header[2..4].copy_from_slice(&ports[1].to_be_bytes());
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
    (header[12], header[13]) = (5 << 4, if back || flags.ack() { RST | ACK } else { RST });
    let length = frame.len() - network;
    if read.version == 4 {
        frame[network + 2..network + 4].copy_from_slice(&(length as u16).to_be_bytes());
    } else {
        frame[network + 4..network + 6].copy_from_slice(&(length as u16 - 40).to_be_bytes());
    }
    let read = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).ok()?;
    edit::sum_up(&mut frame, &read);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{checksum::Sum, pseudo};

    /// TCP from 10.0.0.1:1000 to 10.0.0.2:80, sequence 100, acknowledgement 500, with a VLAN tag and `payload` bytes.
    fn segment(flags: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 0, 0x45, 0];
        frame.extend((40 + payload as u16).to_be_bytes());
        frame.extend([0, 9, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([3, 0xe8, 0, 80, 0, 0, 0, 100, 0, 0, 1, 0xf4, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + payload, 7);
        frame
    }

    #[test]
    fn resets_fit_the_segment() {
        // Flags; back: sequence, acknowledgement; on: sequence, acknowledgement, flags.
        for (flags, back, on) in [
            (0x18, (500, 110), (100, 500, 0x14)),
            (0x11, (500, 111), (100, 500, 0x14)),
            (0x02, (0, 111), (100, 500, 0x04)),
        ] {
            let bytes = segment(flags, 10);
            for is_back in [true, false] {
                let frame = reset(&bytes, is_back).unwrap();
                let read = frame::parse(LinkType::ETHERNET, &frame, frame.len() as u32).unwrap();
                let got = read.tcp(&frame).unwrap();
                let numbers = (got.sequence_number(), got.acknowledgment_number());
                let ports = (got.source_port(), got.target_port());
                let expected = if is_back { (back, 0x14, (80, 1000)) } else { ((on.0, on.1), on.2, (1000, 80)) };
                assert_eq!((numbers, got.flags().0, ports), expected, "{flags:x} {is_back}");
                assert_eq!((frame[5], frame[11], frame.len()), if is_back { (1, 2, 58) } else { (2, 1, 58) });
                let segment = read.payload_of(&frame);
                let sum = pseudo::sum(read.source, read.target, 6, segment.len() as u16).and(Sum::of(segment));
                assert_eq!((sum.checksum(), Sum::of(&frame[18..38]).checksum()), (0, 0));
            }
        }
        assert_eq!(reset(&segment(0x14, 0), true), None, "a reset is not answered");
        for cut in 0..58 {
            assert_eq!(reset(&segment(0x18, 0)[..cut], true), None);
        }
    }
}
