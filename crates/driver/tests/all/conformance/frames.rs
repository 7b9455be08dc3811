//! Distinguishable frames: each carries its number, and bytes that follow from it.

/// Addresses of the frames: to all hosts, so that every device takes them.
const ADDRESSES: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];

/// A protocol for local experiments (IEEE 802, 9.2.3), which no host understands.
const PROTOCOL: u16 = 0x88b5;

/// An Ethernet frame of `len` bytes, 14 at least, with as much of its number as fits.
pub fn numbered(number: u64, len: usize) -> Vec<u8> {
    of_protocol(PROTOCOL, number, len)
}

pub fn of_protocol(protocol: u16, number: u64, len: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(len);
    frame.extend_from_slice(&ADDRESSES);
    frame.extend_from_slice(&protocol.to_be_bytes());
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..len.max(22)).map(|at| (at as u64).wrapping_mul(31).wrapping_add(number) as u8));
    frame.truncate(len);
    frame
}

/// Adds a tag after a frame's addresses.
pub fn tagged(mut frame: Vec<u8>, protocol: u16, tag: u16) -> Vec<u8> {
    let ([p0, p1], [t0, t1]) = (protocol.to_be_bytes(), tag.to_be_bytes());
    frame.splice(12..12, [p0, p1, t0, t1]);
    frame
}

pub fn number(frame: &[u8]) -> u64 {
    u64::from_be_bytes(*frame[14..].first_chunk().expect("these frames are long enough"))
}

/// Pseudo-random sizes from `least` to `most`.
pub fn sizes(least: usize, most: usize) -> impl Iterator<Item = usize> {
    let mut state = 7_u64;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(least + (state >> 33) as usize % (most - least + 1))
    })
}
