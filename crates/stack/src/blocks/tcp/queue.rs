//! Queue of received segments that wait for a turn, as packets that smoltcp reads, in one buffer.

use base::limits::STACK_TCP_QUEUE_BYTES;
use packet::frame::protocol;
use packet::ipv4;

use super::{HERE, THERE};
use crate::outcome::Discard;

/// Bytes of the header in front of each segment. The block below removed the packet's own.
const IP_BYTES: usize = ipv4::Packet::HEADER_BYTES;

/// Packets in the order of arrival. Reuses its memory.
#[derive(Debug, Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    /// Where the first packet begins.
    start: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Appends a segment behind a header for smoltcp: lengths, protocol and addresses.
    pub(super) fn push(&mut self, segment: &[u8]) -> Result<(), Discard> {
        let total = u16::try_from(segment.len() + IP_BYTES).map_err(|_| Discard::TcpTruncated)?;
        if self.bytes.len() - self.start + usize::from(total) > STACK_TCP_QUEUE_BYTES {
            return Err(Discard::TcpQueueFull);
        }
        if self.start > STACK_TCP_QUEUE_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let mut header = [0; IP_BYTES];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[8] = 64;
        header[9] = protocol::TCP;
        header[12..16].copy_from_slice(&THERE.octets());
        header[16..20].copy_from_slice(&HERE.octets());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(segment);
        Ok(())
    }

    pub(super) fn first(&self) -> Option<&[u8]> {
        let rest = self.bytes.get(self.start..)?;
        let [_, _, high, low, ..] = *rest else { return None };
        rest.get(..usize::from(u16::from_be_bytes([high, low])))
    }

    /// Drops the first packet.
    pub(super) fn pop(&mut self) {
        self.start += self.first().map_or(0, <[u8]>::len);
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_came_in_and_memory_has_a_limit() {
        let mut queue = Queue::default();
        let (mut pushed, mut popped, mut most) = (0_u32, 0_u32, 0);
        for round in 0..40_000_u32 {
            let segment = vec![pushed as u8; 20 + pushed as usize % 1_400];
            match queue.push(&segment) {
                Ok(()) => pushed += 1,
                Err(why) => assert_eq!(why, Discard::TcpQueueFull),
            }
            assert!(queue.push(&vec![0; 65_516]).is_err());
            if round % 3 != 0 {
                let first = queue.first().unwrap();
                assert_eq!(first.len(), 40 + popped as usize % 1_400);
                assert!(first[20..].iter().all(|byte| *byte == popped as u8));
                queue.pop();
                popped += 1;
            }
            most = most.max(queue.bytes.len());
            assert!(pushed >= popped);
        }
        assert!(most <= 2 * STACK_TCP_QUEUE_BYTES + 1_440, "{most}");
        while !queue.is_empty() {
            queue.pop();
            popped += 1;
        }
        assert_eq!((pushed, queue.first()), (popped, None));
    }
}
