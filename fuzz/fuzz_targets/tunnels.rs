//! Any frame of any link type carries something that lies in it, as deep as its tunnels go, or an error that has a name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::link::LinkType;
use packet::tunnel::ports::Ports;
use packet::tunnel::{Carries, is_plain, look, not_opened};

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (link, cut, mut bytes) = input;
    let (mut link, ports) = (LinkType(link), Ports::default());
    let mut wire_len = bytes.len() as u32 + u32::from(cut);
    loop {
        let carries = look(link, bytes, wire_len, &ports);
        if is_plain(link, bytes, &ports) {
            assert_eq!(carries, Ok(Carries::Nothing));
        }
        match carries {
            Ok(Carries::Inner(inner)) => {
                let inside = inner.offset as usize..(inner.offset + inner.len) as usize;
                // Each tunnel takes bytes: so this ends.
                assert!(inside.len() < bytes.len());
                (link, bytes, wire_len) = (inner.link, &bytes[inside], inner.wire_len);
            }
            Ok(Carries::Fragment(frame)) => {
                let _ = not_opened(&frame, bytes);
                return;
            }
            Ok(Carries::Nothing) | Err(_) => return,
        }
    }
});
