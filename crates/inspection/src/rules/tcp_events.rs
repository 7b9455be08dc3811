//! Anomalies in the segments of a TCP connection (RFC 9293, 3.10), named as in `stream-event`: segments that do not fit
//! the phase, numbers outside the window, retransmissions. The module only reports them; the assembler of `tcp` decides
//! about segments.

use super::decode::Events;
use filters::tcp::segment::Segment;
use packet::tcp::is_after;

/// Most different SYNs, and answers to them, before a flood event.
const SYNS: usize = 10;
const ANSWERS: usize = 5;

/// The phase of a connection. Side 0 is the client; the closing phases are named from the server's view.
///
/// | From | Segment | To |
/// |---|---|---|
/// | `New`, `Closed` | SYN | `SynSent` |
/// | `New`, `Closed` | SYN with ACK: the SYN was missed | `SynReceived` |
/// | `New` | any other without FIN: the capture began midway | `Established` |
/// | `SynSent` | SYN with ACK that answers a SYN | `SynReceived` |
/// | `SynSent` | next number of a SYN's sender: both sides sent a SYN, or the answer was not captured | `Established` |
/// | `SynReceived` | fitting ACK of the client | `Established` |
/// | `Established` | FIN of the client, of the server | `CloseWait`, `FinWait1` |
/// | `CloseWait` | FIN of the server | `LastAck` |
/// | `LastAck` | ACK of that FIN | `Closed` |
/// | `FinWait1` | ACK of that FIN | `FinWait2` |
/// | `FinWait1` | FIN of the client, with or without that ACK | `TimeWait`, `Closing` |
/// | `FinWait2`; `Closing` | FIN of the client; ACK of the server's FIN | `TimeWait` |
/// | any closing phase | SYN of the client with a new number: reused ports | `SynSent` |
/// | any but `New` | RST with fitting numbers and no signature | `Closed` |
///
/// A segment that does not fit causes an event and no move: its receiver may ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    New,
    SynSent,
    SynReceived,
    Established,
    CloseWait,
    LastAck,
    FinWait1,
    FinWait2,
    Closing,
    TimeWait,
    Closed,
}

/// The sequence numbers of one side.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Initial sequence number, if the SYN was seen.
    first: Option<u32>,
    /// Behind the highest number used.
    next: u32,
    /// Highest number that the other side acknowledged.
    acked: u32,
    /// Receive window, scaled.
    window: u32,
    scale: u8,
    /// Its window scale is known, or known to be unused.
    is_scaled: bool,
    stamp: Option<u32>,
    /// `next` is known, perhaps only from the other side's ACKs.
    heard: bool,
    /// A segment of this side was seen.
    spoke: bool,
    /// It sent an RST that may be forged.
    reset: bool,
}

#[derive(Debug, Default)]
pub(super) struct TcpEvents {
    phase: Phase,
    sides: [Side; 2],
    /// Initial numbers of unanswered SYNs.
    syns: Vec<u32>,
    answers: Vec<u32>,
    /// Payload bytes of the SYN.
    syn_bytes: u32,
    is_simultaneous: bool,
    /// Data behind the handshake was acknowledged.
    is_confirmed: bool,
}

/// Events of one phase: segment outside the window, FIN outside the window, wrong ACK, wrong ACK with FIN, segment
/// before the last ACK.
struct Names {
    window: &'static str,
    fin: &'static str,
    ack: &'static str,
    fin_ack: &'static str,
    before: Option<&'static str>,
}

impl Phase {
    fn names(self) -> Option<Names> {
        let names = |window, fin, ack| Names { window, fin, ack, fin_ack: ack, before: None };
        Some(match self {
            Phase::Established => Names {
                fin_ack: "fin_invalid_ack",
                before: Some("est_pkt_before_last_ack"),
                ..names("est_packet_out_of_window", "fin_out_of_window", "est_invalid_ack")
            },
            Phase::CloseWait => Names {
                before: Some("closewait_pkt_before_last_ack"),
                ..names("closewait_ack_out_of_window", "closewait_fin_out_of_window", "closewait_invalid_ack")
            },
            Phase::FinWait1 => names("fin1_ack_wrong_seq", "fin1_fin_wrong_seq", "fin1_invalid_ack"),
            Phase::FinWait2 => names("fin2_ack_wrong_seq", "fin2_fin_wrong_seq", "fin2_invalid_ack"),
            Phase::Closing => names("closing_ack_wrong_seq", "closing_ack_wrong_seq", "closing_invalid_ack"),
            Phase::LastAck => names("lastack_ack_wrong_seq", "lastack_ack_wrong_seq", "lastack_invalid_ack"),
            Phase::TimeWait => names("timewait_ack_wrong_seq", "timewait_ack_wrong_seq", "timewait_invalid_ack"),
            _ => return None,
        })
    }
}

impl TcpEvents {
    /// Handles a segment of a side and adds its events. `options`: the TCP options.
    pub fn segment(&mut self, segment: &Segment, side: usize, options: &[u8], to: &mut Events) {
        let flags = segment.flags;
        if flags.syn() && flags.fin() {
            to.add("fin_syn");
        }
        if !flags.ack() && segment.acknowledgment != 0 {
            to.add("pkt_broken_ack");
        }
        if flags.rst() {
            return self.reset(segment, side, options, to);
        }
        if std::mem::take(&mut self.sides[side].reset) {
            to.add("suspected_rst_inject");
        }
        match (flags.syn(), flags.ack()) {
            (true, false) => self.syn(segment, side, to),
            (true, true) => self.syn_ack(segment, side, to),
            _ => self.other(segment, side, to),
        }
    }

    /// Swaps the sides: the assumed client is the server.
    pub fn turn(&mut self) {
        self.sides.swap(0, 1);
    }

    fn reset(&mut self, segment: &Segment, side: usize, options: &[u8], to: &mut Events) {
        if self.phase == Phase::New {
            return to.add("rst_but_no_session");
        }
        let other = &self.sides[1 - side];
        let answers = match self.phase {
            Phase::SynSent => segment.acknowledgment == other.next,
            _ => !other.heard || !is_after(segment.acknowledgment, other.next.max_after(other.acked)),
        };
        if segment.flags.ack() && !answers {
            return to.add("rst_invalid_ack");
        }
        // A receiver without the key ignores a signed RST (RFC 2385, RFC 5925). A receiver with the key may accept it.
        if is_signed(options) {
            self.sides[side].reset = true;
        } else {
            self.phase = Phase::Closed;
        }
    }

    fn begin(&mut self, segment: &Segment, side: usize) {
        let known = std::mem::take(&mut self.syns);
        *self = TcpEvents { syns: known, phase: Phase::SynSent, ..TcpEvents::default() };
        self.syn_bytes = segment.span;
        self.sides[side] = Side::of_syn(segment);
    }

    fn syn(&mut self, segment: &Segment, side: usize, to: &mut Events) {
        let is_same = self.sides[side].first == Some(segment.sequence);
        match self.phase {
            Phase::New | Phase::Closed => {
                self.syns.clear();
                self.begin(segment, side);
                self.syns.push(segment.sequence);
            }
            Phase::SynSent if self.sides[side].first.is_none() && self.sides[1 - side].first.is_some() => {
                self.is_simultaneous = true;
                self.sides[side] = Side::of_syn(segment);
            }
            Phase::SynSent if !self.syns.contains(&segment.sequence) => {
                let is_flood = self.syns.len() > SYNS;
                self.begin(segment, side);
                if is_flood {
                    to.add("3whs_syn_flood");
                } else {
                    self.syns.push(segment.sequence);
                }
            }
            Phase::SynSent => {}
            Phase::SynReceived if side == 1 => to.add("3whs_syn_toclient_on_syn_recv"),
            Phase::SynReceived if !is_same => to.add("3whs_syn_resend_diff_seq_on_syn_recv"),
            Phase::SynReceived => {}
            Phase::Established if side == 1 => to.add("est_syn_toclient"),
            Phase::Established if self.sides[side].first.is_some() && !is_same => to.add("est_syn_resend_diff_seq"),
            Phase::Established => to.add("est_syn_resend"),
            // The client reuses its ports.
            _ if !is_same && side == 0 => {
                self.syns.clear();
                self.begin(segment, side);
                self.syns.push(segment.sequence);
            }
            _ => to.add("shutdown_syn_resend"),
        }
    }

    fn syn_ack(&mut self, segment: &Segment, side: usize, to: &mut Events) {
        let own = self.sides[side];
        let other = self.sides[1 - side];
        match self.phase {
            // The capture began at the answer.
            Phase::New | Phase::Closed => {
                *self = TcpEvents { phase: Phase::SynReceived, ..TcpEvents::default() };
                self.sides[side] = Side::of_syn(segment);
                self.sides[1 - side].next = segment.acknowledgment;
                self.sides[1 - side].heard = true;
            }
            Phase::SynSent if self.is_simultaneous => {
                if own.first != Some(segment.sequence) {
                    return to.add("4whs_synack_with_wrong_syn");
                }
                if segment.acknowledgment != other.first.unwrap_or_default().wrapping_add(1) {
                    return to.add("4whs_synack_with_wrong_ack");
                }
                self.phase = Phase::SynReceived;
            }
            Phase::SynSent if own.first.is_some() => to.add("3whs_synack_in_wrong_direction"),
            Phase::SynSent => {
                let asked = |first: &&u32| {
                    let ahead = segment.acknowledgment.wrapping_sub(first.wrapping_add(1));
                    ahead <= self.syn_bytes
                };
                let Some(&first) = other.first.iter().chain(&self.syns).find(asked) else {
                    return to.add("3whs_synack_with_wrong_ack");
                };
                if self.syn_bytes > 0 && segment.acknowledgment == first.wrapping_add(1) {
                    to.add("3whs_synack_tfo_data_ignored");
                }
                let scale = other.is_scaled && segment.shift.is_some();
                self.sides[side] = Side::of_syn(segment);
                let client = &mut self.sides[1 - side];
                (client.first, client.next) = (Some(first), segment.acknowledgment);
                client.acked = segment.acknowledgment;
                if !scale {
                    // Window scaling needs both sides (RFC 7323, 2.2).
                    self.sides.iter_mut().for_each(|side| side.scale = 0);
                }
                self.sides.iter_mut().for_each(|side| side.is_scaled = true);
                self.phase = Phase::SynReceived;
                self.answers.push(segment.sequence);
            }
            Phase::SynReceived if side == 0 && !self.is_simultaneous => to.add("3whs_synack_toserver_on_syn_recv"),
            Phase::SynReceived => {
                if own.first.is_none() {
                    return;
                }
                if segment.acknowledgment != other.next {
                    to.add("3whs_synack_resend_with_different_ack");
                } else if own.first != Some(segment.sequence) {
                    if !self.answers.contains(&segment.sequence) {
                        if self.answers.len() >= ANSWERS {
                            return to.add("3whs_synack_flood");
                        }
                        self.answers.push(segment.sequence);
                    }
                    to.add("3whs_synack_resend_with_diff_seq");
                }
            }
            Phase::Established if side == 0 => to.add("est_synack_toserver"),
            Phase::Established => {
                let first = other.first.map(|first| first.wrapping_add(1));
                let answers = |first: u32| segment.acknowledgment.wrapping_sub(first) <= self.syn_bytes;
                if first.is_some_and(|first| !answers(first)) {
                    to.add("est_synack_resend_with_different_ack");
                } else if own.first.is_some_and(|first| first != segment.sequence) {
                    to.add("est_synack_resend_with_diff_seq");
                } else if self.is_confirmed {
                    to.add("est_synack_resend");
                }
            }
            _ => {}
        }
    }

    fn other(&mut self, segment: &Segment, side: usize, to: &mut Events) {
        let flags = segment.flags;
        match self.phase {
            Phase::New if flags.fin() => return to.add("fin_but_no_session"),
            Phase::New => {
                self.phase = Phase::Established;
                self.syns.clear();
            }
            Phase::SynSent if self.is_simultaneous => {
                let [own, other] = [self.sides[side], self.sides[1 - side]];
                if segment.sequence != own.next {
                    return to.add("4whs_wrong_seq");
                }
                if flags.ack() && segment.acknowledgment != other.next {
                    return to.add("4whs_invalid_ack");
                }
                self.phase = Phase::Established;
            }
            // The other direction is not captured.
            Phase::SynSent if self.sides[side].first.is_some() => {
                let next = self.sides[side].next;
                if segment.sequence != next && segment.sequence != next.wrapping_add(self.syn_bytes) {
                    return to.add("3whs_async_wrong_seq");
                }
                self.phase = Phase::Established;
            }
            Phase::SynSent => return,
            // The SYN was missed, and perhaps the whole side is.
            Phase::SynReceived if self.sides[0].first.is_none() => self.phase = Phase::Established,
            // The server may answer the SYN's data at once (RFC 7413, 4.2).
            Phase::SynReceived if side == 1 && !self.is_simultaneous && self.syn_bytes > 0 => {}
            Phase::SynReceived if side == 1 && !self.is_simultaneous => {
                to.add(if segment.span > 0 { "3whs_ack_data_inject" } else { "3whs_ack_in_wrong_dir" });
            }
            Phase::SynReceived => {
                let [own, other] = [self.sides[side], self.sides[1 - side]];
                let is_next = segment.sequence == own.next;
                let is_near = segment.sequence.wrapping_sub(own.next) <= other.window;
                let answers = !flags.ack() || !other.heard || segment.acknowledgment == other.next || {
                    // The server has sent more than this ACK covers.
                    !is_after(segment.acknowledgment, other.next) && is_after(segment.acknowledgment, other.acked)
                };
                match (is_next || is_near, answers) {
                    (true, true) if flags.ack() => self.phase = Phase::Established,
                    (true, true) => {}
                    (_, false) if is_next => return to.add("3whs_right_seq_wrong_ack_evasion"),
                    (false, false) => return to.add("3whs_wrong_seq_wrong_ack"),
                    _ => return,
                }
            }
            _ => {}
        }
        if let Some(names) = self.phase.names() {
            self.within(segment, side, &names, to);
        } else {
            self.learn(segment, side);
        }
    }

    /// Handles a segment of an open or closing connection.
    fn within(&mut self, segment: &Segment, side: usize, names: &Names, to: &mut Events) {
        let flags = segment.flags;
        let [own, other] = [self.sides[side], self.sides[1 - side]];
        let end = segment.sequence.wrapping_add(segment.span);
        if let (Some(known), Some(stamp)) = (own.stamp, segment.stamp)
            && is_after(known, stamp.value)
        {
            return to.add("pkt_invalid_timestamp");
        }
        // An unknown window counts as large as possible.
        let window = |of: &Side| if of.is_scaled && of.spoke { of.window } else { u32::MAX / 4 };
        if flags.ack() && other.spoke {
            let most = other.next.max_after(other.acked.wrapping_add(window(&own)));
            if is_after(segment.acknowledgment, most) {
                to.add("pkt_invalid_ack");
                return to.add(if flags.fin() { names.fin_ack } else { names.ack });
            }
        }
        if own.heard {
            let most = own.acked.max_after(own.next).wrapping_add(window(&other));
            if is_after(end, most) {
                return to.add(if flags.fin() { names.fin } else { names.window });
            }
            // One byte below `next` is a keep-alive probe (RFC 9293, 3.8.4).
            let is_probe = segment.span <= 1 && segment.sequence.wrapping_add(1) == own.next;
            if segment.span > 0 && !is_probe && !is_after(end, own.next) {
                to.add("pkt_retransmission");
                if !is_after(end, own.acked) {
                    to.add("pkt_spurious_retransmission");
                    to.add("reassembly_segment_before_base_seq");
                    names.before.into_iter().for_each(|name| to.add(name));
                }
            }
        }
        let new_window = u32::from(segment.window) << own.scale;
        let in_flight = other.next.wrapping_sub(other.acked);
        let is_bare = segment.span == 0 && !flags.fin() && flags.ack();
        if is_bare
            && own.is_scaled
            && self.is_confirmed
            && segment.sequence == own.next
            && segment.acknowledgment == other.acked
            && own.window.saturating_sub(new_window) > in_flight
        {
            to.add("pkt_bad_window_update");
        }
        self.learn(segment, side);
        self.close(segment, side);
    }

    /// Updates both sides' numbers from a segment.
    fn learn(&mut self, segment: &Segment, side: usize) {
        let flags = segment.flags;
        let end = segment.sequence.wrapping_add(segment.span).wrapping_add(u32::from(flags.fin()));
        let own = &mut self.sides[side];
        own.spoke = true;
        if !own.heard {
            (own.next, own.acked, own.heard) = (end, segment.sequence, true);
        }
        own.next = own.next.max_after(end);
        own.window = u32::from(segment.window) << own.scale;
        own.stamp = segment.stamp.map(|stamp| stamp.value).or(own.stamp);
        if flags.ack() {
            let other = &mut self.sides[1 - side];
            if !other.heard {
                (other.next, other.acked, other.heard) = (segment.acknowledgment, segment.acknowledgment, true);
            }
            let is_new = is_after(segment.acknowledgment, other.acked);
            other.acked = other.acked.max_after(segment.acknowledgment);
            other.next = other.next.max_after(segment.acknowledgment);
            let handshake = other.first.map(|first| first.wrapping_add(1));
            self.is_confirmed |= is_new && handshake != Some(segment.acknowledgment);
        }
    }

    /// Moves to the next closing phase.
    fn close(&mut self, segment: &Segment, side: usize) {
        let flags = segment.flags;
        // The segment's ACK covers the other side's FIN.
        let acknowledges = flags.ack() && self.sides[1 - side].acked == self.sides[1 - side].next;
        self.phase = match (self.phase, side, flags.fin()) {
            (Phase::Established, 0, true) => Phase::CloseWait,
            (Phase::Established, _, true) => Phase::FinWait1,
            (Phase::CloseWait, 1, true) => Phase::LastAck,
            (Phase::LastAck, 0, _) if acknowledges => Phase::Closed,
            (Phase::FinWait1, 0, true) => {
                if acknowledges {
                    Phase::TimeWait
                } else {
                    Phase::Closing
                }
            }
            (Phase::FinWait1, 0, false) if acknowledges => Phase::FinWait2,
            (Phase::FinWait2, 0, true) => Phase::TimeWait,
            (Phase::Closing, _, _) if acknowledges => Phase::TimeWait,
            (phase, ..) => phase,
        };
    }
}

impl Side {
    fn of_syn(segment: &Segment) -> Side {
        let next = segment.sequence.wrapping_add(1);
        Side {
            first: Some(segment.sequence),
            next,
            acked: next,
            window: segment.window.into(),
            // The largest shift is 14 (RFC 7323, 2.3).
            scale: segment.shift.unwrap_or(0).min(14),
            is_scaled: segment.shift.is_some(),
            stamp: segment.stamp.map(|stamp| stamp.value),
            heard: true,
            spoke: true,
            reset: false,
        }
    }
}

/// The later of two sequence numbers.
trait After {
    fn max_after(self, other: Self) -> Self;
}

impl After for u32 {
    fn max_after(self, other: u32) -> u32 {
        if is_after(other, self) { other } else { self }
    }
}

/// Whether the options include a signature (RFC 2385, RFC 5925).
fn is_signed(mut options: &[u8]) -> bool {
    loop {
        match *options {
            [] | [0, ..] | [_] => return false,
            [1, ref rest @ ..] => options = rest,
            [19 | 29, ..] => return true,
            [_, length, ..] if length >= 2 => options = options.get(usize::from(length)..).unwrap_or_default(),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filters::tcp::segment::{Checksum, Stamp};
    use packet::Flow;
    use packet::encapsulation::Vlans;
    use packet::tcp::Flags;
    use std::net::{IpAddr, Ipv4Addr};

    /// Flags as in tcpdump, sequence number, ACK number, payload length.
    fn segment(flags: &str, sequence: u32, acknowledgment: u32, span: u32) -> Segment {
        let bit = |letter: char| match letter {
            'S' => Flags::SYN.0,
            'F' => Flags::FIN.0,
            'R' => Flags::RST.0,
            _ => Flags::ACK.0,
        };
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Segment {
            flow: Flow { source: host, target: host, source_port: 1, target_port: 2, protocol: 6 },
            scope: 0,
            vlans: Vlans::default(),
            sequence,
            acknowledgment,
            flags: Flags(flags.chars().map(bit).fold(0, |all, bit| all | bit)),
            window: 1000,
            urgent: 0,
            stamp: None,
            shift: None,
            checksum: Checksum::Unknown,
            header: 0,
            offset: 0,
            len: span,
            span,
        }
    }

    type Step = (usize, &'static str, u32, u32, u32);

    /// Runs the handshake (client from 99, server from 499) and `steps`; returns the events of the last segment.
    fn behind_handshake(steps: &[Step]) -> Vec<&'static str> {
        let handshake = [(0, "S", 99, 0, 0), (1, "S.", 499, 100, 0), (0, ".", 100, 500, 0)];
        after(&[&handshake, steps].concat())
    }

    fn after(steps: &[Step]) -> Vec<&'static str> {
        let mut connection = TcpEvents::default();
        let mut events = Events::default();
        for (side, flags, sequence, acknowledgment, span) in steps {
            events.0.clear();
            connection.segment(&segment(flags, *sequence, *acknowledgment, *span), *side, &[], &mut events);
        }
        events.0
    }

    #[test]
    fn handshakes() {
        let syn = (0, "S", 99, 0, 0);
        let answer = (1, "S.", 499, 100, 0);
        let check = |steps: &[Step], expected: &[&str]| assert_eq!(after(steps), expected, "{steps:?}");
        check(&[syn, answer, (0, ".", 100, 500, 0)], &[]);
        check(&[syn, answer, (0, ".", 100, 500, 10)], &[]);
        check(&[syn, syn], &[]);
        check(&[syn, (1, "S.", 499, 77, 0)], &["3whs_synack_with_wrong_ack"]);
        check(&[syn, (0, "S.", 99, 1, 0)], &["3whs_synack_in_wrong_direction"]);
        check(&[syn, answer, answer], &[]);
        check(&[syn, answer, (1, "S.", 498, 100, 0)], &["3whs_synack_resend_with_diff_seq"]);
        check(&[syn, answer, (1, "S.", 499, 101, 0)], &["3whs_synack_resend_with_different_ack"]);
        check(&[syn, answer, (0, "S.", 99, 500, 0)], &["3whs_synack_toserver_on_syn_recv"]);
        check(&[syn, answer, (1, "S", 499, 0, 0)], &["3whs_syn_toclient_on_syn_recv"]);
        check(&[syn, answer, (0, "S", 98, 0, 0)], &["3whs_syn_resend_diff_seq_on_syn_recv"]);
        check(&[syn, answer, (0, ".", 100, 9999, 0)], &["3whs_right_seq_wrong_ack_evasion"]);
        check(&[syn, answer, (0, ".", 99_999, 9999, 0)], &["3whs_wrong_seq_wrong_ack"]);
        check(&[syn, answer, (1, ".", 500, 100, 0)], &["3whs_ack_in_wrong_dir"]);
        check(&[syn, answer, (1, ".", 500, 100, 9)], &["3whs_ack_data_inject"]);
        check(&[syn, (0, ".", 777, 1, 0)], &["3whs_async_wrong_seq"]);
        let both = (1, "S", 499, 0, 0);
        check(&[syn, both, (0, "S.", 99, 500, 0)], &[]);
        check(&[syn, both, (0, "S.", 98, 500, 0)], &["4whs_synack_with_wrong_syn"]);
        check(&[syn, both, (0, "S.", 99, 501, 0)], &["4whs_synack_with_wrong_ack"]);
        check(&[syn, both, (0, ".", 101, 500, 0)], &["4whs_wrong_seq"]);
        check(&[syn, both, (0, ".", 100, 501, 0)], &["4whs_invalid_ack"]);
        check(&[(0, "SF", 99, 0, 0)], &["fin_syn"]);
        check(&[(0, "F.", 99, 7, 0)], &["fin_but_no_session"]);
        check(&[(0, "R", 99, 0, 0)], &["rst_but_no_session"]);
    }

    #[test]
    fn one_side_alone_is_believed() {
        let check = |steps: &[Step]| assert_eq!(after(steps), [""; 0], "{steps:?}");
        check(&[(1, "S.", 499, 100, 0), (1, ".", 500, 9_000_000, 1000), (1, ".", 1500, 99_000_000, 1000)]);
        check(&[(1, ".", 500, 100, 1000), (1, ".", 1500, 99_000_000, 1000)]);
    }

    #[test]
    fn data() {
        let check = |steps: &[Step], expected: &[&str]| assert_eq!(behind_handshake(steps), expected, "{steps:?}");
        let data = (0, ".", 100, 500, 10);
        let taken = (1, ".", 500, 110, 0);
        check(&[data, taken], &[]);
        check(&[data, data], &["pkt_retransmission"]);
        let spurious = [
            "pkt_retransmission",
            "pkt_spurious_retransmission",
            "reassembly_segment_before_base_seq",
            "est_pkt_before_last_ack",
        ];
        check(&[data, taken, data], &spurious);
        check(&[data, taken, (0, ".", 109, 500, 1)], &[]);
        check(&[(0, "", 100, 5, 10)], &["pkt_broken_ack"]);
        check(&[(0, "S", 99, 0, 0)], &["est_syn_resend"]);
        check(&[(0, "S", 98, 0, 0)], &["est_syn_resend_diff_seq"]);
        check(&[(1, "S", 499, 0, 0)], &["est_syn_toclient"]);
        check(&[(0, "S.", 99, 500, 0)], &["est_synack_toserver"]);
        check(&[data, taken, (1, "S.", 499, 100, 0)], &["est_synack_resend"]);
        check(&[(1, "S.", 498, 100, 0)], &["est_synack_resend_with_diff_seq"]);
        check(&[(1, "S.", 499, 7, 0)], &["est_synack_resend_with_different_ack"]);
        check(&[(0, ".", 5000, 500, 10)], &["est_packet_out_of_window"]);
        check(&[(0, ".", 100, 50_000, 10)], &["pkt_invalid_ack", "est_invalid_ack"]);
        check(&[(0, "F.", 5000, 500, 0)], &["fin_out_of_window"]);
        check(&[(0, "F.", 100, 50_000, 0)], &["pkt_invalid_ack", "fin_invalid_ack"]);
        check(&[(1, "R.", 500, 50_000, 0)], &["rst_invalid_ack"]);
    }

    #[test]
    fn ends() {
        let check = |steps: &[Step], expected: &[&str]| assert_eq!(behind_handshake(steps), expected, "{steps:?}");
        let [fin, server_fin] = [(0, "F.", 100, 500, 0), (1, "F.", 500, 101, 0)];
        check(&[fin, server_fin, (0, ".", 101, 501, 0)], &[]);
        check(&[fin, (1, ".", 5000, 101, 9)], &["closewait_ack_out_of_window"]);
        check(&[fin, (1, "F.", 5000, 101, 0)], &["closewait_fin_out_of_window"]);
        check(&[fin, (1, ".", 500, 50_000, 0)], &["pkt_invalid_ack", "closewait_invalid_ack"]);
        check(&[fin, server_fin, (0, ".", 9000, 501, 0)], &["lastack_ack_wrong_seq"]);
        check(&[fin, server_fin, (0, ".", 101, 50_000, 0)], &["pkt_invalid_ack", "lastack_invalid_ack"]);
        check(&[fin, (0, "S", 99, 0, 0)], &["shutdown_syn_resend"]);
        let first = (1, "F.", 500, 100, 0);
        check(&[first, (0, ".", 9000, 501, 0)], &["fin1_ack_wrong_seq"]);
        check(&[first, (0, "F.", 9000, 501, 0)], &["fin1_fin_wrong_seq"]);
        let closed = (0, ".", 100, 501, 0);
        check(&[first, closed, (0, "F.", 9000, 501, 0)], &["fin2_fin_wrong_seq"]);
        check(&[first, closed, (0, "F.", 100, 501, 0), (1, ".", 9000, 101, 0)], &["timewait_ack_wrong_seq"]);
        check(&[first, (0, "F.", 100, 500, 0), (1, ".", 9000, 101, 0)], &["closing_ack_wrong_seq"]);
    }

    #[test]
    fn floods() {
        let syns: Vec<Step> = (0..11).map(|number| (0, "S", number * 100, 0, 0)).collect();
        assert_eq!(after(&syns), [""; 0]);
        assert_eq!(after(&[&syns[..], &[(0, "S", 9999, 0, 0)]].concat()), ["3whs_syn_flood"]);
        let mut steps: Vec<Step> = vec![(0, "S", 99, 0, 0)];
        steps.extend((0..5).map(|number| (1, "S.", number * 100, 100, 0)));
        assert_eq!(after(&steps), ["3whs_synack_resend_with_diff_seq"]);
        steps.push((1, "S.", 9999, 100, 0));
        assert_eq!(after(&steps), ["3whs_synack_flood"]);
    }

    #[test]
    fn a_signed_reset_whose_sender_goes_on() {
        let mut connection = TcpEvents::default();
        let mut events = Events::default();
        for (side, flags, sequence, acknowledgment) in [(0, "S", 99, 0), (1, "S.", 499, 100), (0, ".", 100, 500)] {
            connection.segment(&segment(flags, sequence, acknowledgment, 0), side, &[], &mut events);
        }
        connection.segment(&segment("R.", 100, 500, 0), 0, &[1, 1, 19, 18], &mut events);
        assert!(events.0.is_empty());
        connection.segment(&segment(".", 100, 500, 5), 0, &[], &mut events);
        assert_eq!(events.0, ["suspected_rst_inject"]);
    }

    #[test]
    fn timestamps_go_forward() {
        let mut connection = TcpEvents::default();
        let mut events = Events::default();
        for value in [10, 20, 15] {
            let stamp = Some(Stamp { value, echo: 0 });
            connection.segment(&Segment { stamp, ..segment(".", 100, 500, 0) }, 0, &[], &mut events);
        }
        assert_eq!(events.0, ["pkt_invalid_timestamp"]);
    }
}
