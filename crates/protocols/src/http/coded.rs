//! Decodes a coded body piece by piece, for callers that store bodies. `body` decodes bodies that become blocks.

use super::decode::{Decoder, Spares};
use super::head::Coding;
use super::step::Then;
use base::limits::HTTP_CODINGS;

/// Maximum decoded bytes for one call of `each`.
const PIECE_BYTES: usize = 4 << 10;

/// Output bytes of all codings together, for each body byte that the caller keeps.
const STAGES: u64 = HTTP_CODINGS as u64;

#[derive(Debug)]
pub struct Coded {
    decoder: Decoder,
    /// Output bytes still allowed.
    left: u64,
}

impl Coded {
    /// A body in these codings, in the order in which they are undone, of which the caller keeps `most` bytes. `first` is the
    /// body's first byte. Allocates.
    pub fn of(codings: &[Coding], first: u8, most: usize) -> Coded {
        let bytes = Decoder::memory_bytes(codings, first);
        let decoder = Decoder::new(codings, bytes, &mut Spares::default());
        Coded { decoder, left: most as u64 * STAGES }
    }

    /// Maximum memory.
    pub fn bytes(&self) -> usize {
        self.decoder.bytes()
    }

    /// Decodes more of the body; `false` once no more output can come.
    pub fn take(&mut self, mut input: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        let mut room = [0; PIECE_BYTES];
        loop {
            let (step, spent) = self.decoder.run(input, &mut room, self.left);
            self.left = self.left.saturating_sub(spent);
            each(&room[..step.made]);
            input = &input[step.used..];
            match step.then {
                Then::Input => return true,
                Then::Room => {}
                Then::End | Then::Damaged | Then::Budget => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decoded(codings: &[Coding], bytes: &[u8], most: usize) -> Vec<u8> {
        let (mut coded, mut out) = (Coded::of(codings, bytes[0], most), Vec::new());
        for piece in bytes.chunks(7) {
            coded.take(piece, |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    #[test]
    fn bodies() {
        let text = b"a body of some words, a body of some words";
        assert_eq!(decoded(&[Coding::Gzip], &gzip(text), 1000), text);
        assert_eq!(decoded(&[Coding::Gzip; 2], &gzip(&gzip(text)), 1000), text);
    }

    #[test]
    fn it_is_bounded() {
        let made = decoded(&[Coding::Gzip], &gzip(&vec![0; 1 << 20]), 1000).len();
        assert!(made <= 1000 * STAGES as usize && made >= 1000, "{made}");
    }
}
