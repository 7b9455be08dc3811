//! Makes the headers of a ring's blocks, from the stream facts that readers were told before.

use super::Continuity;
use base::limits::STREAMS;
use filter::prelude::*;
use filter::ring_header::{HEADER_BYTES, Header};

/// The streams whose blocks go into a ring.
pub(crate) struct Told {
    continuity: Continuity,
    /// By stream number. Grows with the highest number met.
    streams: Vec<Stream>,
    /// For blocks whose class is not a stream.
    of_no_stream: Stream,
}

impl Told {
    pub(crate) fn new(continuity: Continuity) -> Told {
        Told { continuity, streams: Vec::new(), of_no_stream: Stream::default() }
    }

    /// The header of `block`. It counts as given even if it is not written: readers then notice that it is missing.
    #[inline]
    pub(crate) fn header(&mut self, block: &Descriptor, cx: &Context<'_>) -> &[u8; HEADER_BYTES] {
        let number = block.class.connection() as usize;
        let is_frame = self.continuity == Continuity::Frames;
        let stream = if number < STREAMS && !is_frame {
            if self.streams.len() <= number {
                self.streams.resize((number + 1).next_power_of_two(), Stream::default());
            }
            &mut self.streams[number]
        } else {
            &mut self.of_no_stream
        };
        if !is_frame {
            stream.learn(cx.streams.epoch(block.class), cx.streams.get(block.class));
        }
        let link_type = if is_frame { cx.rings.link_type(block) } else { None };
        let at = &mut stream.at[usize::from(block.class.direction() & 1)];
        let wire = block.wire().max(block.len);
        let mut about = *block;
        about.set_wire(wire);
        Header::set_block(&mut stream.header, *at, &about, link_type);
        *at = at.wrapping_add(match self.continuity {
            Continuity::Bytes => u64::from(wire),
            Continuity::Messages | Continuity::Records | Continuity::Frames => 1,
        });
        &stream.header
    }
}

/// What readers were told of a stream.
#[derive(Clone)]
struct Stream {
    epoch: u32,
    version: u32,
    facts: Option<StreamFacts>,
    /// The stream's last header.
    header: [u8; HEADER_BYTES],
    /// The position of each direction.
    at: [u64; 2],
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { epoch: 0, version: 0, facts: None, header: [0; HEADER_BYTES], at: [0; 2] }
    }
}

impl Stream {
    /// Takes over new facts of the stream.
    fn learn(&mut self, epoch: u32, facts: Option<&StreamFacts>) {
        if self.epoch == epoch && self.facts.as_ref() == facts {
            return;
        }
        if self.epoch != epoch {
            *self = Stream { epoch, ..Stream::default() };
        }
        (self.version, self.facts) = (self.version.wrapping_add(1), facts.cloned());
        self.header = Header { at: 0, epoch, version: self.version, facts: self.facts.clone() }.to_bytes();
    }
}
