//! Plays a script against one TCP: the peer's part, the application's part, and the judge's.

use super::wire;
use super::{Event, Kind, Script, Segment, State, Time};
use packet::tcp::Packet;
use std::net::SocketAddrV4;

/// The peer's initial sequence number, close to the end of the number space, so that its data wraps.
const PEER_ISN: u32 = 0xffff_ff00;

/// A time in ns, from any moment on.
pub type Moment = u64;

/// How far a time may be from the script's, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Sooner.
    pub early: u64,
    /// Later.
    pub late: u64,
    /// How long to wait for a segment that may come at any time.
    pub patience: u64,
}

/// One TCP with one connection, and its application. Errors say why a step failed.
pub trait Host {
    /// The kind of TCP, which decides which lines are for it.
    fn kind(&self) -> Kind;

    /// The precision of its time.
    fn tolerance(&self) -> Tolerance;

    /// The time.
    fn now(&mut self) -> Moment;

    /// The next IPv4 packet that leaves by `until`, and its time. `None`: none left by then.
    fn next_packet(&mut self, until: Moment) -> Result<Option<(Moment, Vec<u8>)>, String>;

    /// An IPv4 packet arrives.
    fn receive(&mut self, packet: &[u8]) -> Result<(), String>;

    /// The application connects. Gives both ends; the port of its own end is 0 if only the first segment will tell it.
    fn connect(&mut self) -> Result<[SocketAddrV4; 2], String>;

    /// The application waits for one connection. Gives both ends.
    fn listen(&mut self) -> Result<[SocketAddrV4; 2], String>;

    /// The application writes all bytes, without waiting.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// The application reads at most `count` bytes, without waiting. An empty list: no bytes, or the end.
    fn read(&mut self, count: usize) -> Result<Vec<u8>, String>;

    /// Whether the peer has finished, and everything was read.
    fn is_at_end(&mut self) -> Result<bool, String>;

    /// The application ends its write side.
    fn close(&mut self) -> Result<(), String>;

    /// The application gives the connection up.
    fn abort(&mut self) -> Result<(), String>;

    /// The state of the connection.
    fn state(&mut self) -> Result<State, String>;
}

impl Script {
    /// Why this host skips the script. `None`: it does not.
    pub fn left_out(&self, kind: Kind) -> Option<&str> {
        self.only.as_ref().filter(|(only, _)| *only != kind).map(|(_, reason)| reason.as_str())
    }

    /// Plays the script. An error names the line, and lists the events before.
    pub fn run(&self, host: &mut dyn Host) -> Result<(), String> {
        let mut play = Play {
            at: host.now(),
            host,
            ends: None,
            isn: None,
            pending: None,
            written: 0,
            read: 0,
            told: String::new(),
        };
        for line in &self.lines {
            if line.only.is_some_and(|only| only != play.host.kind()) {
                continue;
            }
            if let Err(why) = play.event(line.time, &line.event) {
                return Err(format!("{}:{}: {}: {why}\n{}", self.name, line.number, line.text, play.told));
            }
        }
        Ok(())
    }
}

struct Play<'a> {
    host: &'a mut dyn Host,
    /// The time of the last event.
    at: Moment,
    /// The host's end, and the peer's.
    ends: Option<[SocketAddrV4; 2]>,
    /// The host's initial sequence number, once known.
    isn: Option<u32>,
    /// A packet that has left, and that no line has matched yet.
    pending: Option<(Moment, Vec<u8>)>,
    written: u32,
    read: u32,
    /// A log of the events.
    told: String,
}

impl Play<'_> {
    fn event(&mut self, time: Time, event: &Event) -> Result<(), String> {
        if let Event::Leaves(segment) | Event::MayLeave(segment) = event {
            return self.leaves(time, segment, matches!(event, Event::MayLeave(_)));
        }
        let Time::Between(_, after) = time else { return Err("it has no time".into()) };
        self.pass(self.at + after)?;
        match event {
            Event::Arrives(segment) => {
                let [host, peer] = self.ends()?;
                let packet = wire::build(segment, peer, host, PEER_ISN, self.isn.unwrap_or(0));
                self.tell('<', &packet[wire::IP_BYTES..]);
                self.host.receive(&packet)
            }
            Event::Connect => self.host.connect().map(|ends| self.ends = Some(ends)),
            Event::Listen => self.host.listen().map(|ends| self.ends = Some(ends)),
            Event::Write(count) => {
                let first = self.written + 1;
                self.written += *count as u32;
                let bytes: Vec<u8> = (first..=self.written).map(wire::pattern).collect();
                self.host.write(&bytes)
            }
            Event::Read(count) => {
                // Try to read one byte more, which must not be there.
                let read = self.host.read(count + 1)?;
                if read.len() != *count {
                    return Err(format!("{} bytes are there", read.len()));
                }
                let first = self.read + 1;
                self.read += *count as u32;
                let expected = (first..=self.read).map(wire::pattern);
                if read.into_iter().eq(expected) { Ok(()) } else { Err("other bytes than the peer's".into()) }
            }
            Event::EndOfStream => match self.host.is_at_end()? {
                true => Ok(()),
                false => Err("the stream is not at its end".into()),
            },
            Event::Close => self.host.close(),
            Event::Abort => self.host.abort(),
            Event::Expect(expected) => match self.host.state()? {
                state if state == *expected => Ok(()),
                state => Err(format!("it is {state}")),
            },
            Event::Leaves(_) | Event::MayLeave(_) => Ok(()),
        }
    }

    fn ends(&self) -> Result<[SocketAddrV4; 2], String> {
        self.ends.ok_or("there is no connection yet".into())
    }

    fn next(&mut self, until: Moment) -> Result<Option<(Moment, Vec<u8>)>, String> {
        match self.pending.take() {
            Some(pending) => Ok(Some(pending)),
            None => self.host.next_packet(until),
        }
    }

    /// Lets time go on to `until`; the host must not send meanwhile.
    fn pass(&mut self, until: Moment) -> Result<(), String> {
        if let Some((time, packet)) = self.next(until)? {
            let after = time.saturating_sub(self.at);
            let text = self.read(&packet)?.1;
            return Err(format!("before this, after {}, the host sent {text}", seconds(after)));
        }
        self.at = until.max(self.host.now());
        Ok(())
    }

    fn leaves(&mut self, time: Time, expected: &Segment, is_optional: bool) -> Result<(), String> {
        let Tolerance { early, late, patience } = self.host.tolerance();
        let (from, to) = match time {
            Time::Between(from, to) => (from.saturating_sub(early), to + late),
            Time::Any => (0, patience),
        };
        let Some((time, packet)) = self.next(self.at + to)? else {
            return if is_optional { Ok(()) } else { Err("the host sent nothing".into()) };
        };
        let after = time.saturating_sub(self.at);
        let (is_expected, text) = {
            let (read, text) = self.read(&packet)?;
            let isn = self.isn.unwrap_or_else(|| read.sequence_number());
            (wire::matches(expected, &read, isn, PEER_ISN), text)
        };
        if is_expected && (from..=to).contains(&after) {
            self.tell('>', &packet[wire::IP_BYTES..]);
            self.at = time;
            return Ok(());
        }
        if is_optional {
            self.pending = Some((time, packet));
            return Ok(());
        }
        Err(format!("after {} the host sent {text}", seconds(after)))
    }

    /// The segment in a packet of the host, and its text. The first packet tells the host's port and initial number.
    fn read<'p>(&mut self, packet: &'p [u8]) -> Result<(Packet<'p>, String), String> {
        let [mut host, peer] = self.ends()?;
        if host.port() == 0 {
            host.set_port(packet.get(20..22).map_or(0, |port| u16::from_be_bytes([port[0], port[1]])));
            self.ends = Some([host, peer]);
        }
        let read = wire::read(packet, host, peer)?;
        if read.flags().syn() {
            self.isn.get_or_insert(read.sequence_number());
        }
        let text = wire::text(&read, self.isn.unwrap_or(0), PEER_ISN);
        Ok((read, text))
    }

    fn tell(&mut self, way: char, segment: &[u8]) {
        let Ok(read) = Packet::new_checked(segment, segment.len() as u32) else { return };
        let isn = self.isn.unwrap_or(0);
        let (own, their) = if way == '>' { (isn, PEER_ISN) } else { (PEER_ISN, isn) };
        let text = wire::text(&read, own, their);
        self.told += &format!("  {} {way} {text}\n", seconds(self.host.now()));
    }
}

fn seconds(nanoseconds: u64) -> String {
    format!("{:.6} s", nanoseconds as f64 / 1e9)
}
