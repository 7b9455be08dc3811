//! The state of a connection, and the meaning of a SYN for it. `assembler.rs` turns its segments into blocks.

use super::direction::{Direction, NEAR, Start};
use super::piece::Piece;
use super::segment::Segment;
use filter::prelude::*;

/// The table's list that a connection is in. Each list has its own time of silence after which its connections end.
///
/// | from | to | when |
/// |---|---|---|
/// | (new) | `Opening`, `Open` | a SYN, or data without one |
/// | `Opening` | `Open` | data came, or the client acknowledged the server's SYN |
/// | `Opening`, `Open` | `Closing` | a reset, both FINs, or a FIN towards a side that was never seen |
/// | `Closing` | `Open` | later data, or a SYN, shows that the reset or FIN was forged |
/// | any | `Ended` | both FINs are acknowledged, silence, eviction, the next connection, the end of the run |
///
/// `Ended` is never left: the stream number may belong to another connection, which gets its own entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Only SYNs were seen.
    Opening = 0,
    Open = 1,
    /// Reset or ended by both sides, but not confirmed.
    Closing = 2,
    /// Ended. Kept to recognize late packets, and the next connection between the same ports.
    Ended = 3,
}

pub(super) const PHASES: usize = 4;

/// Direction 0 is from the client to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub number: u32,
    pub directions: [Direction; 2],
    /// When its last segment came, by the clock, ns.
    pub last_seen: u64,
    /// When that segment was captured, ns since 1970 UTC.
    pub last_time: u64,
    /// The run of blocks that it came in, where filters have partitions: [`filter::Order::sequence`].
    pub touched: u64,
    pub phase: Phase,
    /// By direction: its next data can be given at once, because both directions have begun, hold nothing and do not
    /// end.
    pub calm: [bool; 2],
    /// It was reset, and no data has come since.
    pub reset: bool,
    /// How many connections with the same addresses and ports came before.
    pub reuse: u32,
    /// The next connection, if it is confirmed.
    pub successor: Option<Successor>,
}

/// A possible new connection between the same ports. Its SYN or data came from outside the window, where anyone could
/// have forged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Successor {
    /// Its sender's side.
    pub side: usize,
    /// Sequence number of the byte after it.
    pub next: u32,
    /// It was a SYN.
    pub syn: bool,
}

/// The meaning of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syn {
    /// A repetition of the known SYN.
    Again,
    /// It tells where its direction begins.
    Begins,
    /// It came late: its direction has begun.
    Late,
    /// It begins another connection.
    Another,
    /// It may begin another connection or be forged: the endpoints would ignore it (RFC 5961, 4).
    Doubtful,
}

impl Connection {
    pub fn new(number: u32, reuse: u32, phase: Phase) -> Connection {
        Connection {
            number,
            directions: [Direction::default(); 2],
            last_seen: 0,
            last_time: 0,
            touched: 0,
            phase,
            calm: [false; 2],
            reset: false,
            reuse,
            successor: None,
        }
    }

    /// The direction of this side, and the other.
    #[inline]
    pub fn sides(&mut self, side: usize) -> (&mut Direction, &mut Direction) {
        let [client, server] = &mut self.directions;
        if side == 0 { (client, server) } else { (server, client) }
    }

    /// Gives the next piece of a side, without an urgent byte that waits. Bytes missing on the other side are told
    /// first, so that both are in order.
    pub fn give(&mut self, side: usize, piece: &Piece, out: &mut Vec<Descriptor>) {
        let [own_class, other_class] = [side, 1 - side].map(|side| Class::of_stream(self.number, side as u8));
        let (own, other) = self.sides(side);
        other.tell_lost(&piece.block, other_class, out);
        own.give_around_urgent(piece, own_class, out);
    }

    /// Applies a SYN: the start of this side's direction, and its options.
    pub fn begin_by(&mut self, side: usize, segment: &Segment) {
        let own = &mut self.directions[side];
        own.begin_at(segment.data_sequence());
        own.syn = true;
        own.stamp_anew(segment.stamp);
        self.reset = false;
        self.shift_by(side, segment.shift);
    }

    /// Notes the window shift in a SYN. Shifts count only if both sides offer them (RFC 7323, 2.2).
    pub fn shift_by(&mut self, side: usize, shift: Option<u8>) {
        self.directions[side].shift.said = shift;
        if self.directions.iter().all(|direction| direction.syn) {
            let both = self.directions.iter().all(|direction| direction.shift.said.is_some());
            for direction in &mut self.directions {
                direction.shift.bits = direction.shift.said.filter(|_| both).unwrap_or(0);
            }
        }
    }

    /// Whether both sides ended, or one reset.
    pub fn is_over(&self) -> bool {
        self.reset || self.directions.iter().all(|direction| direction.fin.is_some())
    }

    /// Notes a possible next connection.
    pub fn suspect(&mut self, successor: Successor) {
        self.successor = Some(successor);
        self.calm = [false; 2];
    }

    /// Computes [`calm`](Connection::calm).
    pub fn calm_down(&mut self) {
        let quiet =
            self.phase == Phase::Open && self.successor.is_none() && self.directions.iter().all(|it| it.is_quiet());
        let [client, server] = &self.directions;
        let begun =
            |direction: &Direction| direction.start == Start::Known && (direction.confirmed || direction.has_data());
        let can_be_acknowledged = |direction: &Direction| direction.start == Start::Acknowledged || begun(direction);
        self.calm = [
            quiet && begun(client) && can_be_acknowledged(server),
            quiet && begun(server) && can_be_acknowledged(client),
        ];
    }

    pub fn judge(&self, side: usize, segment: &Segment) -> Syn {
        let own = &self.directions[side];
        let first = segment.data_sequence();
        if segment.is_first_syn() && self.is_over() {
            return Syn::Another;
        }
        if own.syn && first == own.first as u32 {
            return Syn::Again;
        }
        match own.start {
            Start::Unknown => Syn::Begins,
            _ if !own.has_data() && !own.confirmed => Syn::Begins,
            Start::Known if !own.syn && (0..=NEAR).contains(&(own.first.wrapping_sub(own.position(first)) as i64)) => {
                Syn::Late
            }
            _ if self.is_confirmed_by(side, segment) => Syn::Another,
            _ if segment.is_first_syn() && segment.span > 0 && own.ahead(first).abs() > NEAR => Syn::Another,
            _ => Syn::Doubtful,
        }
    }

    /// Whether this segment confirms the successor. If both sides are seen, the other side has to answer it. If one is
    /// seen, it has to continue it.
    pub fn is_confirmed_by(&self, side: usize, segment: &Segment) -> bool {
        let Some(successor) = self.successor else { return false };
        if successor.side == side {
            let alone = !self.directions[1 - side].heard;
            return alone && !segment.flags.syn() && segment.sequence == successor.next;
        }
        let answers = i64::from(segment.acknowledgment.wrapping_sub(successor.next)) <= NEAR;
        let of_this = self.directions[successor.side].ahead(segment.acknowledgment).abs() <= NEAR;
        segment.flags.ack() && !segment.flags.rst() && answers && (segment.flags.syn() || !of_this)
    }

    /// Whether data with this sequence number continues the successor's SYN, and not this connection.
    pub fn is_of_successor(&self, side: usize, sequence: u32) -> bool {
        let follows = |successor: Successor| {
            let behind = i64::from(sequence.wrapping_sub(successor.next));
            successor.syn && successor.side == side && behind <= NEAR
        };
        self.successor.is_some_and(follows) && self.directions[side].ahead(sequence).abs() > NEAR
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides ended it, or one reset it.
    Over,
    /// Silence for too long.
    Idle,
    /// It makes room for another.
    Evicted,
    /// Another connection between the same ports begins.
    Replaced,
    /// The run is over.
    Finished,
}
