//! What is kept of one connection, and what a SYN means for it. How its segments become blocks is `assembler.rs`.

use super::direction::{Direction, NEAR, Start};
use super::segment::Segment;

/// Which list of the table a connection stands in: each has a time of its own after which the silent are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Only SYNs were seen.
    Opening = 0,
    /// Under way.
    Open = 1,
    /// Reset, or both sides are done, but nothing confirms it.
    Closing = 2,
    /// Over: kept to know late packets, and the next connection between the same ports.
    Ended = 3,
}

pub(super) const PHASES: usize = 4;

/// One connection. Direction 0 is from the client to the server.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its stream number.
    pub number: u32,
    pub directions: [Direction; 2],
    /// When its latest segment came, by the clock, ns.
    pub last_seen: u64,
    /// The time that segment was captured, ns since 1970 UTC.
    pub last_time: u64,
    pub phase: Phase,
    /// By direction: it has begun, and nothing is held and nothing ends in either, so that data that is next can be given
    /// at once.
    pub calm: [bool; 2],
    /// It was reset, and no data has come since.
    pub reset: bool,
    /// How many connections with the same addresses and ports came before it.
    pub reuse: u32,
    /// A SYN that may begin the next connection, if somebody confirms it: direction and sequence number of what follows.
    pub successor: Option<(usize, u32)>,
}

/// What a SYN means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syn {
    /// The one that is known, once more.
    Again,
    /// It says where its direction begins.
    Begins,
    /// It came late: its direction has begun.
    Late,
    /// It begins another connection.
    Another,
    /// It may begin another connection, or be forged: the endpoints would ignore it (RFC 5961, 4).
    Doubtful,
}

impl Connection {
    pub fn new(number: u32, reuse: u32, phase: Phase) -> Connection {
        Connection {
            number,
            directions: [Direction::default(); 2],
            last_seen: 0,
            last_time: 0,
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

    /// Has everything been said that both sides have to say?
    pub fn is_over(&self) -> bool {
        self.reset || self.directions.iter().all(|direction| direction.fin.is_some())
    }

    /// Works out [`calm`](Connection::calm).
    pub fn calm_down(&mut self) {
        let quiet = self.phase == Phase::Open
            && self.successor.is_none()
            && self.directions.iter().all(|direction| direction.fin.is_none() && direction.held == 0);
        let [client, server] = &self.directions;
        let begun =
            |direction: &Direction| direction.start == Start::Known && (direction.confirmed || direction.has_data());
        let can_be_acknowledged = |direction: &Direction| direction.start == Start::Acknowledged || begun(direction);
        self.calm = [
            quiet && begun(client) && can_be_acknowledged(server),
            quiet && begun(server) && can_be_acknowledged(client),
        ];
    }

    /// What does this SYN mean?
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

    /// Does this segment say that the successor is real: by what its sender goes on with, or by an answer to it?
    pub fn is_confirmed_by(&self, side: usize, segment: &Segment) -> bool {
        match self.successor {
            Some((of, first)) if of == side => !segment.flags.syn() && segment.sequence == first,
            Some((_, first)) => segment.flags.ack() && !segment.flags.rst() && segment.acknowledgment == first,
            None => false,
        }
    }
}
