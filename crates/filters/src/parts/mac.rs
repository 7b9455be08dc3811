//! Ethernet addresses as requests write them.

/// Six bytes in hexadecimal, as `02:00:00:00:00:01`.
pub(crate) fn parse(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut address {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2) && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}
