//! The scripted exchanges of `testkit` against the block, in virtual time: every time is exact.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use stack::{End, Stack, StreamState};
use testkit::script::{self, Host, Kind, Moment, State, Tolerance, Why};

use super::wire::*;
use crate::support::*;

const ETHERNET_BYTES: usize = 14;

/// A stack, with the driver's part of an accepted connection.
struct Block {
    stack: Option<Stack>,
    /// 0 connects, 1 accepts.
    host: usize,
    now: Moment,
    left: VecDeque<(Moment, Vec<u8>)>,
    has_answered: bool,
}

impl Block {
    fn new() -> Block {
        Block { stack: None, host: 0, now: 5 * S, left: VecDeque::new(), has_answered: false }
    }

    fn begin(&mut self, host: usize) -> Result<[SocketAddrV4; 2], String> {
        self.host = host;
        self.stack = Some(build_with(TEXTS[host], &tcp_facts(host, host == 1)));
        let ends = ["10.0.0.1:40000", "10.0.0.2:80"].map(|text| text.parse().unwrap());
        Ok([ends[host], ends[1 - host]])
    }

    fn stack(&mut self) -> Result<&mut Stack, String> {
        self.stack.as_mut().ok_or("there is no connection yet".into())
    }

    /// Collects what the block sends now.
    fn turn(&mut self) -> Result<(), String> {
        let (now, to) = (self.now, 1 - self.host);
        let frames = turn(self.stack()?, now, to);
        self.left.extend(frames.into_iter().map(|frame| (now, frame[ETHERNET_BYTES..].to_vec())));
        Ok(())
    }
}

impl Host for Block {
    fn kind(&self) -> Kind {
        Kind::Block
    }

    fn tolerance(&self) -> Tolerance {
        Tolerance { early: 0, late: 0, patience: 1_000 * S }
    }

    fn now(&mut self) -> Moment {
        self.now
    }

    fn next_packet(&mut self, until: Moment) -> Result<Option<(Moment, Vec<u8>)>, String> {
        for _ in 0..10_000 {
            if let Some(left) = self.left.pop_front() {
                return Ok(Some(left));
            }
            let next = self.stack.as_ref().and_then(Stack::next).filter(|next| *next <= until);
            self.now = next.unwrap_or(until).max(self.now);
            if next.is_none() {
                return Ok(None);
            }
            self.turn()?;
        }
        Err("the block takes one turn after the other".into())
    }

    fn receive(&mut self, packet: &[u8]) -> Result<(), String> {
        let (now, host) = (self.now, self.host);
        let frame = [&MACS[host][..], &MACS[1 - host], &[8, 0], packet].concat();
        receive(self.stack()?, now, &frame);
        let is_syn = read(&frame).2 == 2;
        if host == 1 && is_syn && !std::mem::replace(&mut self.has_answered, true) {
            // The driver answers the SYN.
            self.left.push_back((now, syn_ack(&frame)[ETHERNET_BYTES..].to_vec()));
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<[SocketAddrV4; 2], String> {
        self.begin(0)
    }

    fn listen(&mut self) -> Result<[SocketAddrV4; 2], String> {
        self.begin(1)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let now = self.now;
        match stream(self.stack()?).write(now, bytes) {
            taken if taken == bytes.len() => Ok(()),
            taken => Err(format!("only {taken} bytes are taken")),
        }
    }

    fn read(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let now = self.now;
        let mut bytes = vec![0; count];
        let taken = stream(self.stack()?).read(now, &mut bytes);
        bytes.truncate(taken);
        Ok(bytes)
    }

    fn is_at_end(&mut self) -> Result<bool, String> {
        Ok(stream(self.stack()?).is_at_end())
    }

    fn close(&mut self) -> Result<(), String> {
        let now = self.now;
        stream(self.stack()?).finish(now);
        Ok(())
    }

    fn abort(&mut self) -> Result<(), String> {
        let now = self.now;
        stream(self.stack()?).abort(now);
        Ok(())
    }

    fn state(&mut self) -> Result<State, String> {
        Ok(match stream(self.stack()?).state() {
            StreamState::Connecting => State::Connecting,
            StreamState::Open => State::Open,
            StreamState::Ending => State::Ending,
            StreamState::TimeWait => State::TimeWait,
            StreamState::Closed(Some(End::Finished)) => State::Closed(Why::Finished),
            StreamState::Closed(Some(End::Reset)) => State::Closed(Why::Reset),
            StreamState::Closed(Some(End::TimedOut)) => State::Closed(Why::TimedOut),
            StreamState::Closed(Some(End::Aborted)) => State::Closed(Why::Aborted),
            StreamState::Closed(Some(End::Reported(111))) => State::Closed(Why::Refused),
            other => return Err(format!("the connection is {other:?}")),
        })
    }
}

#[test]
fn the_block_keeps_to_every_script() {
    let mut failed = Vec::new();
    for script in script::all() {
        match script.left_out(Kind::Block) {
            Some(reason) => eprintln!("{}: left out: {reason}", script.name),
            None => failed.extend(script.run(&mut Block::new()).err()),
        }
    }
    assert!(failed.is_empty(), "{} scripts fail\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_script_that_the_block_does_not_keep_to_fails() {
    let open = "# RFC 9293\nconnect\n> S 0:0 win * <*>\n< S. 0:0 ack 1 win 9 <mss 1000>\n> . 1:1 ack 1 win *\n";
    let rows = [
        ("", ""),
        ("+1 expect open", ""),
        ("+1 expect ending", "it is open"),
        ("+0 write 5\n+0 > . 1:6 ack 1 win *", ""),
        ("+0 write 5\n+0 > . 1:5 ack 1 win *", "the host sent"),
        ("+0 write 5\n+0.1 > . 1:6 ack 1 win *", "the host sent"),
        ("+0 write 5\n+0.1 expect open", "before this"),
        ("+0 write 5\n+0 ?> F. 1:6 ack 1 win *\n+0 > . 1:6 ack 1 win *", ""),
        ("+0 > . 1:6 ack 1 win *", "sent nothing"),
        ("* > . 1:6 ack 1 win *", "sent nothing"),
        ("+0 ?> . 1:6 ack 1 win *", ""),
        ("+0 < . 1:6 ack 1 win 9\n+0.01 > . 1:1 ack 6 win *\nread 4", "5 bytes"),
        ("+0 < . 1:6 ack 1 win 9\n+0.01 > . 1:1 ack 6 win *\nread 5\nread 0\nblock: eof", "not at its end"),
        ("kernel: eof", ""),
    ];
    for (text, expected) in rows {
        let script = script::Script::parse("a", &format!("{open}{text}")).unwrap();
        let ended = script.run(&mut Block::new());
        match ended {
            Ok(()) => assert_eq!(expected, "", "{text}"),
            Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{text}: {error}"),
        }
    }
}
