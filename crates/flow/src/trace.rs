//! Traces of flows: the frames of one flow, in the receive half of a channel. A [`TraceHead`] comes before each frame.

use buffer::flow::Geometry;

/// The channel of a trace: 2,048 frames of usual length may wait for the application. Its send half is not used.
pub const TRACE_GEOMETRY: Geometry =
    Geometry { send_records: 1, send_bytes: 4096, receive_buffers: 2048, buffer_bytes: 2048 };

/// The direction of a traced frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device received it for the flow.
    Received,
    /// The flow sent it.
    Sent,
}

/// The head before each frame of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHead {
    /// The frame's direction.
    pub direction: Direction,
    /// Bytes of the frame; the trace may have kept fewer.
    pub bytes: u32,
}

impl TraceHead {
    /// Bytes of a head.
    pub const BYTES: usize = 8;

    /// The head's bytes in the channel.
    pub fn to_bytes(self) -> [u8; TraceHead::BYTES] {
        let direction = u32::from(self.direction == Direction::Sent);
        (u64::from(direction) << 32 | u64::from(self.bytes)).to_le_bytes()
    }

    /// Reads the head of a traced packet, and gives the frame behind it, too. `None`: the driver is broken.
    pub fn read(packet: &[u8]) -> Option<(TraceHead, &[u8])> {
        let (head, frame) = packet.split_first_chunk()?;
        let word = u64::from_le_bytes(*head);
        let direction = match word >> 32 {
            0 => Direction::Received,
            1 => Direction::Sent,
            _ => return None,
        };
        Some((TraceHead { direction, bytes: word as u32 }, frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_written_and_read() {
        assert_eq!(TRACE_GEOMETRY.check(), Ok(()));
        for direction in [Direction::Received, Direction::Sent] {
            let head = TraceHead { direction, bytes: 70_000 };
            assert_eq!(TraceHead::read(&[&head.to_bytes()[..], b"frame"].concat()), Some((head, &b"frame"[..])));
        }
        assert!(TraceHead::read(&[0; 7]).is_none() && TraceHead::read(&[0xff; 9]).is_none());
    }
}
