//! A capture, and what else it could have been: without a packet, ended behind it, or with its data in two segments.

use filter::prelude::Descriptor;
use packet::capture::Stop;
use packet::capture_file::Reader;
use packet::frame::{self, protocol};
use packet::{Flow, LinkType};
use std::collections::BTreeMap;
use std::path::Path;

/// A frame with its time and its length on the wire.
pub type Piece = (Descriptor, Vec<u8>);

/// The frames of a capture of one link type.
pub struct Capture {
    pub link: LinkType,
    pub pieces: Vec<Piece>,
}

impl Capture {
    /// Frames with their times.
    pub fn of(link: LinkType, frames: &[(u64, Vec<u8>)]) -> Capture {
        let piece = |(time, bytes): &(u64, Vec<u8>)| {
            let mut descriptor = Descriptor { time: *time, ..Descriptor::default() };
            descriptor.set_wire(bytes.len() as u32);
            (descriptor, bytes.clone())
        };
        Capture { link, pieces: frames.iter().map(piece).collect() }
    }

    /// Reads a file up to its end, or to what is damaged in it. `None`: it has no packets.
    pub fn read(path: &Path) -> Option<Capture> {
        let bytes = std::fs::read(path).unwrap();
        let (mut reader, mut at) = Reader::open(&bytes).ok()?;
        let (mut link, mut pieces) = (None, Vec::new());
        loop {
            match reader.next(&bytes[at..]) {
                Ok(record) => {
                    link = link.or(reader.interface(record.interface).map(|interface| interface.link));
                    let mut descriptor = Descriptor { time: record.time_ns, ..Descriptor::default() };
                    descriptor.set_wire(record.wire_len);
                    pieces.push((descriptor, record.data(&bytes[at..]).to_vec()));
                    at += record.consumed;
                }
                Err(Stop::More { consumed, .. }) if consumed > 0 => at += consumed,
                Err(_) => return link.map(|link| Capture { link, pieces }),
            }
        }
    }

    /// Each connection of it alone.
    pub fn connections(&self) -> Vec<Capture> {
        let mut connections = BTreeMap::<_, Vec<Piece>>::new();
        for piece in &self.pieces {
            let frame = frame::parse(self.link, &piece.1, piece.0.wire()).ok();
            let ends = frame.map(|frame| {
                let flow = Flow::of(&frame, &piece.1).canonical();
                (flow.protocol, flow.source_port, flow.target_port)
            });
            connections.entry(ends).or_default().push(piece.clone());
        }
        connections.into_values().map(|pieces| Capture { link: self.link, pieces }).collect()
    }

    /// The capture itself, and what it could have been at every `step`-th packet, each with what was done.
    pub fn variants(&self, step: usize) -> Vec<(String, Vec<Piece>)> {
        let mut variants = vec![("as it is".to_string(), self.pieces.clone())];
        for at in (0..self.pieces.len()).step_by(step) {
            let mut without = self.pieces.clone();
            without.remove(at);
            variants.push((format!("without packet {at}"), without));
            variants.push((format!("up to packet {at}"), self.pieces[..=at].to_vec()));
            if let Some(halves) = self.halves(&self.pieces[at]) {
                let mut split = self.pieces.clone();
                split.splice(at..=at, halves);
                variants.push((format!("packet {at} in two"), split));
            }
        }
        variants
    }

    /// The data of a TCP segment over IPv4 in two segments. Their checksums are wrong.
    fn halves(&self, (descriptor, bytes): &Piece) -> Option<[Piece; 2]> {
        let frame = frame::parse(self.link, bytes, descriptor.wire()).ok()?;
        let tcp = frame.tcp(bytes).ok()?;
        let length = tcp.payload().len();
        if frame.version != 4 || frame.protocol != protocol::TCP || frame.is_cut() || length < 2 {
            return None;
        }
        let (ip_at, tcp_at) = (frame.network_offset as usize, frame.transport_offset as usize);
        let start = tcp_at + tcp.header_len() as usize;
        let part = |from: usize, to: usize| {
            let mut part = [&bytes[..start], &bytes[start + from..start + to]].concat();
            let total = (part.len() - ip_at) as u16;
            part[ip_at + 2..ip_at + 4].copy_from_slice(&total.to_be_bytes());
            let sequence = tcp.sequence_number().wrapping_add(from as u32);
            part[tcp_at + 4..tcp_at + 8].copy_from_slice(&sequence.to_be_bytes());
            let mut descriptor = *descriptor;
            descriptor.set_wire(part.len() as u32);
            (descriptor, part)
        };
        Some([part(0, length / 2), part(length / 2, length)])
    }
}
