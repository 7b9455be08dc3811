//! The driver's knowledge of a TCP connection, from the headers that pass. It is enough to reset the connection when
//! its application is gone, and to tell a real ICMP error from a forged one. The application runs the connection.
//!
//! The driver trusts neither side. An application's segments only affect its own connection. Received segments were not
//! verified here, so each counts only if it fits the known numbers. The worst effect of a forged segment: the driver
//! omits a reset, or resets a side that has already finished.

use packet::tcp::{self, is_after};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    /// The oldest unacknowledged number (SND.UNA) and the next one to send (SND.NXT). `None`: no segment was sent.
    sent: Option<(u32, u32)>,
    /// The last acknowledgement sent (RCV.NXT as the peer knows it).
    acknowledged: Option<u32>,
    /// The number after this side's FIN, and the number after the peer's.
    fin: Option<u32>,
    far_fin: Option<u32>,
    is_reset: bool,
    /// The initial sequence number of an accepted connection.
    pub(crate) isn: u32,
    /// The hardware address that an accepted connection came from.
    pub(crate) mac: Option<[u8; 6]>,
}

impl Connection {
    /// A connection whose SYN the driver answered with `isn`; `sequence` is the number of that SYN.
    pub(crate) fn accepted(isn: u32, sequence: u32, mac: [u8; 6]) -> Connection {
        let next = isn.wrapping_add(1);
        Connection {
            sent: Some((next, next)),
            acknowledged: Some(sequence.wrapping_add(1)),
            isn,
            mac: Some(mac),
            ..Connection::default()
        }
    }

    /// A segment leaves. `header`: the first 20 bytes of TCP; `payload`: the bytes behind header and options.
    pub(crate) fn sent(&mut self, header: &tcp::Packet<'_>, payload: u32) {
        let (flags, sequence) = (header.flags(), header.sequence_number());
        if flags.rst() {
            self.is_reset = true;
            return;
        }
        let end = sequence.wrapping_add(payload).wrapping_add(u32::from(flags.syn()) + u32::from(flags.fin()));
        self.sent = Some(match self.sent {
            None => (sequence, end),
            Some((oldest, next)) => (oldest, if is_after(end, next) { end } else { next }),
        });
        let acknowledgment = header.acknowledgment_number();
        if flags.ack() && self.acknowledged.is_none_or(|known| is_after(acknowledgment, known)) {
            self.acknowledged = Some(acknowledgment);
        }
        if flags.fin() {
            self.fin = Some(end);
        }
    }

    /// A segment was delivered to the application.
    pub(crate) fn received(&mut self, segment: &tcp::Packet<'_>) {
        let (flags, sequence) = (segment.flags(), segment.sequence_number());
        let Some((oldest, next)) = self.sent else { return };
        let acknowledgment = segment.acknowledgment_number();
        if flags.rst() {
            // Only segments that every TCP accepts as a reset (RFC 5961 3.2; while connecting RFC 9293 3.10.7.3).
            self.is_reset |= match self.acknowledged {
                Some(expected) => sequence == expected,
                None => flags.ack() && acknowledgment == next,
            };
            return;
        }
        if flags.ack() && is_after(acknowledgment, oldest) && !is_after(acknowledgment, next) {
            self.sent = Some((acknowledgment, next));
        }
        let end = sequence.wrapping_add(segment.payload_wire_len()).wrapping_add(1);
        if flags.fin() && self.acknowledged.is_some_and(|known| is_after(end, known)) {
            self.far_fin = Some(end);
        }
    }

    /// Whether both sides have finished, and each FIN was acknowledged.
    pub(crate) fn ended_in_order(&self) -> bool {
        let is_acknowledged = self.fin.is_some() && self.fin == self.sent.map(|(oldest, _)| oldest);
        is_acknowledged && self.far_fin.is_some() && self.far_fin == self.acknowledged
    }

    /// Whether this side has sent nothing yet, so that the peer does not know the connection.
    pub(crate) fn is_unheard(&self) -> bool {
        self.sent.is_none()
    }

    /// Whether the peer need be told nothing more.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_unheard() || self.is_reset || self.ended_in_order()
    }

    /// The next number to send, and the last acknowledgement sent.
    pub(crate) fn numbers(&self) -> (u32, Option<u32>) {
        (self.sent.map_or(0, |(_, next)| next), self.acknowledged)
    }

    /// Whether a segment with this number can be in flight (RFC 5927 4.1).
    pub(crate) fn is_under_way(&self, sequence: u32) -> bool {
        self.sent.is_some_and(|(oldest, next)| !is_after(oldest, sequence) && !is_after(sequence, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;

    fn header(sequence: u32, acknowledgment: u32, flags: u8) -> [u8; 20] {
        let mut header = [0; 20];
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        header[12..14].copy_from_slice(&[0x50, flags]);
        header
    }

    fn send(connection: &mut Connection, sequence: u32, acknowledgment: u32, flags: u8, payload: u32) {
        let header = header(sequence, acknowledgment, flags);
        connection.sent(&tcp::Packet::new_checked(&header, 20).expect("a header"), payload);
    }

    fn receive(connection: &mut Connection, sequence: u32, acknowledgment: u32, flags: u8, payload: u32) {
        let header = header(sequence, acknowledgment, flags);
        connection.received(&tcp::Packet::new_checked(&header, 20 + payload).expect("a header"));
    }

    /// A connection whose numbers cross the end of sequence space.
    fn connected() -> Connection {
        let mut connection = Connection::default();
        send(&mut connection, u32::MAX, 0, SYN, 0);
        receive(&mut connection, 1000, 0, SYN | ACK, 0);
        send(&mut connection, 0, 1001, ACK, 0);
        connection
    }

    #[test]
    fn a_connection_is_finished_when_both_sides_are() {
        assert!(Connection::default().is_finished());
        let mut one = connected();
        send(&mut one, 0, 1001, ACK, 100);
        assert_eq!((one.numbers(), one.is_finished()), ((100, Some(1001)), false));
        send(&mut one, 100, 1001, FIN | ACK, 0);
        receive(&mut one, 1001, 101, ACK, 0);
        assert!(!one.is_finished(), "half closed");
        receive(&mut one, 1001, 101, FIN | ACK, 7);
        assert!(!one.is_finished(), "the FIN is not acknowledged");
        send(&mut one, 101, 1008, ACK, 0);
        assert!(!one.is_finished(), "nor are all bytes before it");
        send(&mut one, 101, 1009, ACK, 0);
        assert!(one.ended_in_order() && one.is_finished());
        assert_eq!(one.numbers(), (101, Some(1009)));
    }

    #[test]
    fn a_retransmission_takes_nothing_back() {
        let mut one = connected();
        send(&mut one, 0, 1001, ACK, 3000);
        send(&mut one, 0, 900, ACK, 1000);
        assert_eq!(one.numbers(), (3000, Some(1001)));
        receive(&mut one, 1001, 2000, ACK, 0);
        receive(&mut one, 1001, 1000, ACK, 0);
        receive(&mut one, 1001, 3001, ACK, 0);
        let under_way = [1999, 2000, 3000, 3001].map(|sequence| one.is_under_way(sequence));
        assert_eq!(under_way, [false, true, true, false]);
    }

    #[test]
    fn only_a_reset_that_fits_exactly_counts() {
        for (sequence, is_finished) in [(1000, false), (1001, true), (1002, false)] {
            let mut one = connected();
            receive(&mut one, sequence, 0, RST, 0);
            assert_eq!(one.is_finished(), is_finished, "{sequence}");
        }
        for (acknowledgment, flags, is_finished) in [(8, RST | ACK, true), (7, RST | ACK, false), (8, RST, false)] {
            let mut connecting = Connection::default();
            send(&mut connecting, 7, 0, SYN, 0);
            receive(&mut connecting, 0, acknowledgment, flags, 0);
            assert_eq!(connecting.is_finished(), is_finished);
        }
        let mut one = connected();
        send(&mut one, 0, 1001, RST | ACK, 0);
        assert!(one.is_finished());
    }

    #[test]
    fn a_forged_fin_ends_nothing() {
        let mut one = connected();
        send(&mut one, 0, 1001, FIN | ACK, 0);
        receive(&mut one, 1001, 1, FIN | ACK, 9);
        // The application sends on: it knows better.
        send(&mut one, 1, 1500, ACK, 0);
        assert!(!one.is_finished());
    }
}
