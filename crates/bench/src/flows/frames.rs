//! Frames made by hand: datagrams whose payload begins with a number, fragments without an end, SYN segments without an
//! end, and questions of ARP and ping.

use crate::capture::field::send_each;
use packet::checksum::Sum;
use std::io;
use std::str::FromStr;

/// The shortest frame without its check sequence: 64 bytes on the wire.
pub const SHORTEST: usize = 60;

const FRAGMENT_FRAME: usize = 14 + 20 + 1000;

/// The address of the side that sends these frames; [`NEAR`] is that of the measured side.
pub const FAR: [u8; 4] = [10, 0, 0, 1];
/// See [`FAR`].
pub const NEAR: [u8; 4] = [10, 0, 0, 2];

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = ();

    /// Parses an address such as `02:00:00:00:00:01`.
    fn from_str(text: &str) -> Result<Mac, ()> {
        let bytes: Result<Vec<u8>, ()> = text.split(':').map(|two| u8::from_str_radix(two, 16).map_err(drop)).collect();
        <[u8; 6]>::try_from(bytes?).map(Mac).map_err(drop)
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let two: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&two.join(":"))
    }
}

/// A kind of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Datagrams in frames of 64 bytes, numbered.
    Short,
    /// Datagrams in frames of 1,000 bytes, numbered.
    Long,
    /// First fragments, each of another datagram, without any further fragment.
    Fragments,
    /// SYN segments, each of another connection, without any further segment.
    Syns,
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Kind, ()> {
        match text {
            "short" => Ok(Kind::Short),
            "long" => Ok(Kind::Long),
            "fragments" => Ok(Kind::Fragments),
            "syns" => Ok(Kind::Syns),
            _ => Err(()),
        }
    }
}

impl Kind {
    /// Its name as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Short => "short",
            Kind::Long => "long",
            Kind::Fragments => "fragments",
            Kind::Syns => "syns",
        }
    }

    /// A frame of this kind, to be numbered.
    fn model(self, to: Mac, port: u16) -> Vec<u8> {
        match self {
            Kind::Short => datagram(to, port, SHORTEST),
            Kind::Long => datagram(to, port, LONG),
            Kind::Fragments => {
                let mut frame = datagram(to, port, FRAGMENT_FRAME);
                // More fragments.
                frame[20] = 0x20;
                frame
            }
            Kind::Syns => syn(to, port),
        }
    }

    fn number(self, frame: &mut [u8], number: u64) {
        match self {
            Kind::Short | Kind::Long => frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes()),
            Kind::Fragments => {
                frame[18..20].copy_from_slice(&(number as u16).to_be_bytes());
                seal(frame);
            }
            Kind::Syns => {
                let port = 1024 + (number % 64_000) as u16;
                frame[34..36].copy_from_slice(&port.to_be_bytes());
                frame[38..42].copy_from_slice(&(number as u32).to_be_bytes());
                seal_segment(frame);
            }
        }
    }
}

/// Bytes of a long frame.
pub const LONG: usize = 1000;

fn ipv4(to: Mac, protocol: u8, packet_bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; 14 + packet_bytes];
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe]);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&(packet_bytes as u16).to_be_bytes());
    (frame[22], frame[23]) = (64, protocol);
    frame[26..30].copy_from_slice(&FAR);
    frame[30..34].copy_from_slice(&NEAR);
    seal(&mut frame);
    frame
}

fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = Sum::of(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// A datagram without a checksum, in a frame of `frame_bytes` bytes. Its payload begins at [`NUMBER`].
fn datagram(to: Mac, port: u16, frame_bytes: usize) -> Vec<u8> {
    let mut frame = ipv4(to, 17, frame_bytes - 14);
    frame[34..36].copy_from_slice(&FROM.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&((frame_bytes - 34) as u16).to_be_bytes());
    frame
}

/// A segment that opens a connection (RFC 9293, section 3.5), with the option for the largest segment.
fn syn(to: Mac, port: u16) -> Vec<u8> {
    let mut frame = ipv4(to, TCP, 44);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    // Header of six words, SYN, the window; then the option.
    frame[46..50].copy_from_slice(&[0x60, 0x02, 0xff, 0xff]);
    frame[54..58].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    frame
}

fn seal_segment(frame: &mut [u8]) {
    frame[50..52].fill(0);
    let lengths = Sum::number(u32::from(TCP) + (frame.len() - 34) as u32);
    let checksum = Sum::of(&frame[26..34]).and(lengths).and(Sum::of(&frame[34..])).checksum();
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
}

const TCP: u8 = 6;

const NUMBER: usize = 42;

/// Sends `count` frames (0 = until standard input ends), pinned to the first processor, at `rate` frames a second (0 =
/// as fast as possible).
pub fn send(device: &str, to: Mac, kind: Kind, port: u16, count: u64, rate: u64) -> Result<(), String> {
    let model = kind.model(to, port);
    if count == 0 {
        // Standard input is the only sign that the parent has been killed.
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let count = if count == 0 { u64::MAX } else { count };
    send_each(device, count, rate, |number, frame| {
        frame.clear();
        frame.extend_from_slice(&model);
        kind.number(frame, number);
    })
}

/// An echo request with this number.
pub fn ping(from: Mac, to: Mac, number: u16) -> Vec<u8> {
    let mut frame = ipv4(to, 1, 28);
    frame[6..12].copy_from_slice(&from.0);
    frame[34] = 8;
    frame[38..40].copy_from_slice(&PING.to_be_bytes());
    frame[40..42].copy_from_slice(&number.to_be_bytes());
    let checksum = Sum::of(&frame[34..42]).checksum();
    frame[36..38].copy_from_slice(&checksum.to_be_bytes());
    frame
}

const PING: u16 = 0x7e57;

/// The number of the ping that this frame answers. `None`: it answers none.
pub fn ping_answered(frame: &[u8]) -> Option<u16> {
    let is_answer = frame.len() >= 42 && frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 0;
    (is_answer && frame[38..40] == PING.to_be_bytes()).then(|| u16::from_be_bytes([frame[40], frame[41]]))
}

/// An ARP request for the measured side, to all.
pub fn who_has(from: Mac) -> Vec<u8> {
    let parts: [&[u8]; 6] = [&[0xff; 6], &from.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &from.0, &FAR, &[0; 6]];
    [&parts.concat()[..], &NEAR].concat()
}

/// Whether this is the measured side's answer to such a request.
pub fn is_at(frame: &[u8]) -> bool {
    frame.len() >= 42 && frame[12..14] == [8, 6] && frame[20..22] == [0, 2] && frame[28..32] == NEAR
}

/// The target port of a datagram in a frame. `None`: the frame has none.
pub fn port(frame: &[u8]) -> Option<u16> {
    let is_datagram = frame.len() >= 38 && frame[12..15] == [8, 0, 0x45] && frame[23] == 17;
    is_datagram.then(|| u16::from_be_bytes([frame[36], frame[37]]))
}

/// The UDP port of our senders and of the kernel's.
pub const FROM: u16 = 4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_what_they_are() {
        let (one, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let frame = datagram(one, 5201, SHORTEST);
        assert_eq!((frame.len(), port(&frame), ping_answered(&frame)), (60, Some(5201), None));
        assert_eq!(Sum::of(&frame[14..34]).folded(), 0xffff);
        let mut wanted = Kind::Syns.model(one, 80);
        Kind::Syns.number(&mut wanted, 3);
        let segment = packet::tcp::Packet::new_checked(&wanted[34..], 24).unwrap();
        assert_eq!((segment.source_port(), segment.target_port(), segment.sequence_number()), (1027, 80, 3));
        assert_eq!(segment.flags(), packet::tcp::Flags::SYN);
        let pseudo = Sum::of(&wanted[26..34]).and(Sum::number(6 + 24));
        assert_eq!(pseudo.and(Sum::of(&wanted[34..])).folded(), 0xffff);
        let mut answer = ping(other, one, 7);
        assert_eq!((answer.len(), port(&answer), ping_answered(&answer)), (42, None, None));
        answer[34] = 0;
        assert_eq!(ping_answered(&answer), Some(7));
        let mut question = who_has(other);
        assert!(question.len() == 42 && !is_at(&question));
        question[20..22].copy_from_slice(&[0, 2]);
        question[28..32].copy_from_slice(&NEAR);
        assert!(is_at(&question));
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!("02:00".parse::<Mac>(), Err(()));
    }
}
