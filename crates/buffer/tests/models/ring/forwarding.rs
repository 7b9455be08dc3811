//! Blocks whose bytes lie in another ring than their descriptor.

use super::{about, check, reader, ring, write};
use base::id::RingId;
use buffer::ring::layout::Layout;
use buffer::ring::{OnFull, RingKind, Signalling};
use loom::thread;

/// A reader of a descriptor sees its bytes, or finds that they were overwritten: no reader holds their ring.
#[test]
fn bytes_in_another_ring_are_whole_or_known_not_to_be() {
    for kind in [RingKind::C, RingKind::P, RingKind::D] {
        check(move || {
            let (mut bytes_ring, mut source) = ring(kind, 1, Signalling::Never);
            let (mut names_ring, mut names) = ring(RingKind::D, 2, Signalling::Never);
            let mut reader = reader(&mut names_ring, &mut names, OnFull::Wait);
            let map = bytes_ring.view().unwrap();
            let thread = thread::spawn(move || {
                write(&mut source, 1);
                let named = buffer::Descriptor { ring: RingId(1), len: 1, ..about(1) };
                names.try_forward(&named).unwrap();
                write(&mut source, 2);
            });
            let seen = loop {
                match reader.peek() {
                    Ok(seen) => break seen,
                    Err(_) => thread::yield_now(),
                }
            };
            assert!(seen.elsewhere);
            let (pos, len) = (seen.block.pos, u64::from(seen.block.len));
            let bytes = map.payload.at(pos, len).copy_to_vec();
            if map.payload_intact(pos, len) {
                assert_eq!(bytes, [1], "{:?}", map.layout.kind());
            }
            reader.take(&seen).unwrap();
            thread.join().unwrap();
        });
    }
}
