//! Packets of MQTT (3.1.1 and 5.0, section 2).

/// Whether it is a CONNECT packet that names the protocol.
pub fn is_connect(bytes: &[u8]) -> bool {
    packet(bytes).is_some_and(|(first, body)| {
        first == 0x10 && text(body).is_some_and(|(name, _)| name == b"MQTT" || name == b"MQIsdp")
    })
}

/// Whether it is a CONNACK packet.
pub fn is_answer(bytes: &[u8]) -> bool {
    packet(bytes).is_some_and(|(first, body)| first == 0x20 && matches!(body, [0 | 1, ..]))
}

/// Reads a variable-length integer; returns it, and the bytes behind it.
pub fn variable(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(4) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

/// Reads a packet; returns its first byte, and its body.
pub fn packet(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (length, rest) = variable(bytes.get(1..)?)?;
    Some((bytes[0], rest.get(..length)?))
}

/// Reads a length and a text; returns the text, and the bytes behind it.
pub fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}
