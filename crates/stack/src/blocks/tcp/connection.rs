//! The life of a connection around smoltcp: segments in and out, timeouts, the reason of its end, and ICMP errors.

use std::net::SocketAddr;
use std::time::Duration;

use base::limits::STACK_TCP_BUFFER_BYTES;
use packet::tcp::{Flags, Packet};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::blind::{self, Bare, Numbers, Verdict};
use super::clock::{Clock, delay};
use super::device::{Sender, Way};
use super::queue::Queue;
use super::{HERE, THERE, USUAL_BYTES, report, sequence};
use crate::block::Out;
use crate::facts::TcpFacts;
use crate::outcome::Discard;
use crate::stream::{End, Stream, StreamState, errno};

/// Time limit of a handshake if the application sets none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long written bytes may stay unacknowledged: roughly Linux's 15 retransmissions (`tcp_retries2`). RFC 1122,
/// section 4.2.3.5, asks for at least 100 s. Each segment that announces a window of 0 counts as progress.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Silent keep-alive intervals that end a connection: one until the first probe, then Linux's nine probes.
const KEEP_ALIVE_INTERVALS: u32 = 10;

/// How long an acknowledgement may wait for data to carry it. Linux waits 40 ms, but not at the beginning of a
/// connection. RFC 9293, section 3.8.6.3, permits up to 500 ms.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(10);

/// Assumed handshake time of an accepted connection, in µs of the fast clock: the driver made the handshake. The first
/// retransmission timeout is three times this value, one second of real time (RFC 6298, section 2.1).
const ASSUMED_HANDSHAKE_US: u64 = 1_667_000;

/// How long the block rests when smoltcp starts to repeat an unprovoked acknowledgement, in ns.
const REST_NS: u64 = 200_000_000;

pub(super) struct Connection {
    /// Segments for the next turn.
    pub(super) queue: Queue,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    sender: Sender,
    clock: Clock,
    isn: u32,
    /// When smoltcp wants a turn, in ns.
    wake: Option<u64>,
    /// smoltcp's state at the last `look`.
    before: State,
    /// The handshake has completed.
    was_open: bool,
    /// The other side's FIN was received.
    was_finished: bool,
    /// Finish as soon as that is possible: see `may_close`.
    finishes: bool,
    end: Option<End>,
    /// An ICMP error to report if the connection times out (RFC 1122, section 4.2.3.9).
    soft: Option<i32>,
    /// When the handshake began.
    began: Option<u64>,
    connect_timeout: Duration,
    /// When the last SYN went out.
    syn_time: u64,
    /// When the last segment came. `None`: set at the next turn.
    heard: Option<u64>,
    keep_alive: Option<Duration>,
    /// A keep-alive is due that the application did not ask for: see `settle`.
    is_nudged: bool,
    /// smoltcp has data in flight and no timer: see `settle`.
    is_stuck: bool,
    /// The last segment that was heard, without options and data.
    last_heard: Bare,
    /// Bytes written so far.
    written: u64,
    /// Sequence number of the other side's first byte.
    first: u32,
    /// Bytes that smoltcp handed out so far, to the application or to `kept`.
    given: u32,
    /// Unacknowledged bytes, plus 1 for an unacknowledged FIN.
    outstanding: usize,
    /// When `outstanding` last fell or was 0.
    progress: u64,
    /// smoltcp gets no turn before this time.
    rest: Option<u64>,
    /// Received bytes that smoltcp would drop at the end of TIME-WAIT.
    kept: Vec<u8>,
    kept_read: usize,
}

fn interface(sender: &mut Sender, isn: u32) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = sequence::seed(isn);
    let address = IpCidr::new(IpAddress::Ipv4(HERE), 32);
    let mut way = Way { sender, packet: None, out: None };
    let mut interface = Interface::new(config, &mut way, smoltcp::time::Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        // Cannot fail: the list has room for two addresses.
        _ = addresses.push(address);
    });
    interface
}

fn buffer(bytes: u32) -> SocketBuffer<'static> {
    let bytes = if bytes == 0 { USUAL_BYTES } else { bytes };
    SocketBuffer::new(vec![0; bytes.clamp(STACK_TCP_BUFFER_BYTES.0, STACK_TCP_BUFFER_BYTES.1) as usize])
}

fn add(time: u64, timeout: Duration) -> u64 {
    time.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

impl Connection {
    /// A connection that begins with its first turn. `None` if smoltcp refuses the addresses.
    pub(super) fn new(local: SocketAddr, peer: SocketAddr, mtu: u16, facts: TcpFacts) -> Option<Connection> {
        let mut sender = Sender::new(local.ip(), peer, mtu, facts.isn);
        let mut interface = interface(&mut sender, facts.isn);
        let mut socket = Socket::new(buffer(facts.receive_bytes), buffer(facts.send_bytes));
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.set_ack_delay(Some(delay(ACKNOWLEDGEMENT_DELAY)));
        let address = IpAddress::Ipv4(HERE);
        if facts.is_accepted {
            // The driver already sent the SYN-ACK.
            sender.swallow = Some(Flags(Flags::SYN.0 | Flags::ACK.0));
            socket.listen((address, local.port())).ok()?;
        } else {
            let to = (IpAddress::Ipv4(THERE), peer.port());
            socket.connect(interface.context(), to, (address, local.port())).ok()?;
        }
        let before = socket.state();
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Some(Connection {
            queue: Queue::default(),
            interface,
            sockets,
            handle,
            sender,
            clock: Clock::default(),
            isn: facts.isn,
            wake: Some(0),
            before,
            was_open: false,
            was_finished: false,
            finishes: false,
            end: None,
            soft: None,
            began: None,
            connect_timeout: CONNECT_TIMEOUT,
            syn_time: 0,
            heard: None,
            keep_alive: None,
            is_nudged: false,
            is_stuck: false,
            last_heard: [0; size_of::<Bare>()],
            written: 0,
            first: 0,
            given: 0,
            outstanding: 0,
            progress: 0,
            rest: None,
            kept: Vec::new(),
            kept_read: 0,
        })
    }

    /// Makes segments fit packets of `mtu` bytes from now on. The connection tries a larger MTU (RFC 1191, section
    /// 6.3); a router that cannot carry it reports so.
    pub(super) fn set_mtu(&mut self, now: u64, mtu: u16) {
        if mtu == self.sender.mtu {
            return;
        }
        self.sender.mtu = mtu;
        // smoltcp cannot change an interface's MTU, so a new interface replaces the old one. The connection's state is
        // in the socket, and the seed gives the new interface the same initial sequence number.
        self.interface = interface(&mut self.sender, self.isn);
        self.settle(now);
    }

    fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// When the connection wants a turn, in ns.
    pub(super) fn next(&self) -> Option<u64> {
        match self.queue.is_empty() {
            true => [self.wake, self.deadline()].into_iter().flatten().min(),
            false => Some(0),
        }
    }

    /// The connection's turn: sends segments, then takes queued ones while the line has room for their answers.
    pub(super) fn tend(&mut self, now: u64, out: &mut dyn Out) {
        let now = self.clock.real_now(now);
        self.began.get_or_insert(now);
        self.heard.get_or_insert(now);
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            let end = self.soft.map_or(End::TimedOut, End::Reported);
            self.give_up(now, end);
        }
        if std::mem::take(&mut self.is_stuck) {
            self.send_again(now, out);
        }
        let mut queue = std::mem::take(&mut self.queue);
        loop {
            self.send(now, out);
            if !out.has_room() {
                break;
            }
            let Some(packet) = queue.first() else { break };
            self.receive(now, packet, out);
            queue.pop();
        }
        self.queue = queue;
        self.settle(now);
    }

    /// Lets smoltcp send, only while the line has room: smoltcp loses a fast retransmission that finds none.
    fn send(&mut self, now: u64, out: &mut dyn Out) {
        if self.rest.is_some_and(|rest| rest > now) {
            return;
        }
        self.rest = None;
        (self.sender.repeats, self.sender.is_own) = (false, true);
        while out.has_room() {
            let at = self.clock.now(now);
            let is_syn = matches!(self.before, State::SynSent | State::SynReceived);
            let mut way = Way { sender: &mut self.sender, packet: None, out: Some(&mut *out) };
            let sent = self.interface.poll_egress(at, &mut way, &mut self.sockets);
            self.look(now, false);
            if sent == PollResult::None {
                return;
            }
            if is_syn {
                self.syn_time = now;
            }
            if std::mem::take(&mut self.is_nudged) {
                let interval = self.keep_alive.map(delay);
                self.socket_mut().set_keep_alive(interval);
            }
            if self.sender.repeats {
                // After an acknowledged FIN, smoltcp would probe a window of 0 for ever, without a pause.
                self.rest = Some(now.saturating_add(REST_NS));
                return;
            }
        }
    }

    /// Gives smoltcp one packet. The line has room for the answer.
    fn receive(&mut self, now: u64, packet: &[u8], out: &mut dyn Out) {
        let Some(segment) = packet.get(20..) else { return };
        let Ok(read) = Packet::new_checked(segment, segment.len() as u32) else { return };
        let (flags, state) = (read.flags(), self.before);
        // smoltcp scales the unscaled window of its SYN-ACK, and would accept bytes that its buffer cannot hold.
        let end = read.sequence_number().wrapping_add(read.payload().len() as u32);
        if let Some(window_end) = self.sender.syn_window_end
            && !read.payload().is_empty()
            && end.wrapping_sub(window_end).wrapping_sub(1) < i32::MAX as u32
        {
            out.discard(Discard::TcpWindow);
            return;
        }
        let mut amended = Vec::new();
        let packet = match self.judge(&read) {
            Verdict::Take => packet,
            Verdict::Acknowledges(number) => {
                amended.extend_from_slice(packet);
                blind::acknowledge(&mut amended, number);
                &amended
            }
            Verdict::Challenge => {
                let probe = blind::probe(packet, self.receive_next(), self.acknowledged());
                return self.say(now, &probe, out);
            }
        };
        let next = self.receive_next();
        if self.was_open && self.sender.announced_window() == 0 && blind::is_beyond_shut_window(&read, next) {
            let window = read.window();
            let bare = blind::bare(packet, next, read.acknowledgment_number());
            self.sender.is_shut = window == 0;
            self.heard = Some(now);
            self.say(now, &bare, out);
            if read.payload().is_empty() && !flags.fin() {
                return;
            }
        }
        let answers_syn = flags.ack() && read.acknowledgment_number() == self.isn.wrapping_add(1);
        match state {
            State::SynSent if answers_syn && flags.syn() => self.clock.quicken(self.syn_time, 0),
            State::SynReceived if answers_syn && self.sender.syn_window_end.is_some() => {
                self.clock.quicken(now, ASSUMED_HANDSHAKE_US);
            }
            _ => {}
        }
        self.heard = Some(now);
        self.last_heard = blind::bare(packet, 0, 0);
        self.rest = None;
        self.sender.is_own = false;
        self.sender.is_shut = flags.ack() && read.window() == 0;
        if self.sender.is_shut {
            self.progress = now;
        }
        // smoltcp takes the FIN of a segment also where it cuts off the last bytes, as beyond its rounded window.
        let splits = flags.fin() && flags.ack() && state != State::SynSent && !read.payload().is_empty();
        let split = splits.then(|| blind::split_fin(packet, end));
        let data = split.as_ref().map_or(packet, |(data, _)| data);
        let at = self.clock.now(now);
        let mut way = Way { sender: &mut self.sender, packet: Some(data), out: Some(out) };
        let received = self.interface.poll_ingress_single(at, &mut way, &mut self.sockets);
        debug_assert_ne!(received, PollIngressSingleResult::None, "it was given a packet");
        if flags.syn() && matches!(state, State::Listen | State::SynSent) {
            self.first = read.sequence_number().wrapping_add(1);
        }
        self.look(now, flags.rst());
        if let Some((_, fin)) = split.filter(|_| self.receive_next() == end) {
            self.say(now, &fin, out);
        }
    }

    /// Judges a segment for blind attacks. During the handshake smoltcp judges alone.
    fn judge(&self, read: &Packet<'_>) -> Verdict {
        match self.before {
            State::Closed | State::Listen | State::SynSent | State::SynReceived => Verdict::Take,
            _ => blind::judge(
                read,
                &Numbers {
                    receive_next: self.receive_next(),
                    receive_window: (self.socket().recv_capacity() - self.socket().recv_queue()) as u32,
                    acknowledged: self.acknowledged(),
                    send_window: self.socket().send_capacity() as u32,
                },
            ),
        }
    }

    /// Gives smoltcp a packet that the block made. smoltcp limits its answers to them as to any unacceptable segment.
    fn say(&mut self, now: u64, made: &[u8], out: &mut dyn Out) {
        self.sender.is_own = false;
        let at = self.clock.now(now);
        let mut way = Way { sender: &mut self.sender, packet: Some(made), out: Some(out) };
        self.interface.poll_ingress_single(at, &mut way, &mut self.sockets);
        self.look(now, false);
    }

    /// RCV.NXT of RFC 9293: the next sequence number of the other side.
    fn receive_next(&self) -> u32 {
        let received = self.given.wrapping_add(self.socket().recv_queue() as u32);
        self.first.wrapping_add(received).wrapping_add(self.was_finished.into())
    }

    /// SND.UNA of RFC 9293: the first sequence number that the other side has not acknowledged.
    fn acknowledged(&self) -> u32 {
        if !self.was_open {
            return self.isn;
        }
        let fin = matches!(self.before, State::FinWait2 | State::TimeWait);
        let count = (self.written - self.unacknowledged() as u64) as u32;
        self.isn.wrapping_add(1).wrapping_add(count).wrapping_add(fin.into())
    }

    /// Follows a change of smoltcp's state. `was_reset`: the last segment had RST set.
    fn look(&mut self, now: u64, was_reset: bool) {
        let (state, before) = (self.socket().state(), self.before);
        self.before = state;
        let is_connecting = matches!(state, State::Listen | State::SynSent | State::SynReceived);
        if !is_connecting && state != State::Closed && !self.was_open {
            self.was_open = true;
            self.clock.quicken(now, 0);
            self.progress = now;
        }
        if self.finishes && self.may_close() {
            self.finishes = false;
            self.socket_mut().close();
            self.before = self.socket().state();
        }
        match state {
            State::CloseWait | State::LastAck | State::Closing => self.was_finished = true,
            State::TimeWait => {
                self.was_finished = true;
                self.keep_unread();
            }
            // smoltcp listens again, because the other side reset the handshake. This block accepts only once.
            State::Listen if before == State::SynReceived => {
                self.end.get_or_insert(End::Reported(errno::ECONNREFUSED));
                self.socket_mut().abort();
                self.before = State::Closed;
            }
            State::Closed if self.end.is_none() => {
                self.end = match before {
                    State::TimeWait => Some(End::Finished),
                    _ if was_reset && self.was_open => Some(End::Reset),
                    _ if was_reset => Some(End::Reported(errno::ECONNREFUSED)),
                    State::LastAck => Some(End::Finished),
                    _ => None,
                };
            }
            _ => {}
        }
        let outstanding = self.outstanding_now();
        if outstanding < self.outstanding || self.outstanding == 0 {
            self.progress = now;
            self.soft = self.soft.filter(|_| outstanding >= self.outstanding);
        }
        self.outstanding = outstanding;
    }

    /// Whether the connection may send its FIN. In LAST-ACK smoltcp reads no window of an acknowledgement that
    /// acknowledges nothing, and would not learn that a shut window opened: it stays in CLOSE-WAIT until the other side
    /// has room for all its data. The window counts without its scale, so less may fit than there is room.
    fn may_close(&self) -> bool {
        let has_room = self.unacknowledged() <= usize::from(blind::window(&self.last_heard));
        self.was_open && (self.before != State::CloseWait || has_room)
    }

    /// Copies the unread bytes, which smoltcp drops at the end of TIME-WAIT. No bytes can follow them.
    fn keep_unread(&mut self) {
        let len = self.socket().recv_queue();
        if len > 0 {
            let mut kept = vec![0; len];
            let taken = self.socket_mut().recv_slice(&mut kept).unwrap_or(0);
            kept.truncate(taken);
            self.given = self.given.wrapping_add(taken as u32);
            self.kept = kept;
        }
    }

    fn outstanding_now(&self) -> usize {
        let fin = matches!(self.before, State::FinWait1 | State::Closing | State::LastAck);
        self.unacknowledged() + usize::from(fin)
    }

    /// When the connection times out, in ns.
    fn deadline(&self) -> Option<u64> {
        match self.before {
            State::Closed | State::TimeWait => None,
            _ if !self.was_open => self.began.map(|began| add(began, self.connect_timeout)),
            _ => {
                let unacknowledged = (self.outstanding > 0).then(|| add(self.progress, UNACKNOWLEDGED_TIMEOUT));
                let keep_alive = self.keep_alive.zip(self.heard);
                let keep_alive =
                    keep_alive.map(|(interval, heard)| add(heard, interval.saturating_mul(KEEP_ALIVE_INTERVALS)));
                [unacknowledged, keep_alive].into_iter().flatten().min()
            }
        }
    }

    /// Ends the connection from this side.
    fn give_up(&mut self, now: u64, end: End) {
        if self.before == State::Closed {
            return;
        }
        if self.before == State::SynSent {
            // RFC 9293, section 3.10.5: a SYN-SENT connection sends no reset.
            self.sender.swallow = Some(Flags(Flags::RST.0 | Flags::ACK.0));
        }
        self.end = Some(end);
        self.socket_mut().abort();
        self.look(now, false);
        self.settle(now);
    }

    /// Asks smoltcp for its next time; called after every change that may have moved it.
    ///
    /// smoltcp stops its retransmission timer for good after three duplicate acknowledgements of everything but the
    /// FIN. A keep-alive restarts it: smoltcp sends the FIN in place of the probe. It also stops the timer when a
    /// window shuts and opens while data is in flight. There a keep-alive must not restart it: its byte would be taken
    /// for data that has not arrived.
    fn settle(&mut self, now: u64) {
        let at = self.clock.now(now);
        let has_no_timer = self.was_open && self.outstanding > 0 && self.interface.poll_at(at, &self.sockets).is_none();
        self.is_stuck = has_no_timer && self.unacknowledged() > 0;
        if self.is_stuck {
            self.wake = Some(now);
            return;
        }
        if has_no_timer {
            let interval = self.keep_alive.unwrap_or(CONNECT_TIMEOUT);
            self.socket_mut().set_keep_alive(Some(delay(interval)));
            self.is_nudged = true;
        }
        let wake = self.interface.poll_at(at, &self.sockets).map(|instant| self.clock.real(instant));
        self.wake = wake.map(|wake| wake.max(self.rest.unwrap_or(0)));
    }

    /// Makes smoltcp send the first bytes in flight again, or probe a shut window. Three duplicate acknowledgements do
    /// it (RFC 5681, section 3.2); smoltcp counts them anew behind an acknowledgement with another window.
    fn send_again(&mut self, now: u64, out: &mut dyn Out) {
        let mut again = blind::bare(&self.last_heard, self.receive_next(), self.acknowledged());
        let window = blind::window(&again);
        for window in [window ^ 1, window, window, window, window] {
            blind::set_window(&mut again, window);
            self.say(now, &again, out);
        }
    }

    fn wrote(&mut self, now: u64, taken: usize) -> usize {
        if taken > 0 {
            self.written += taken as u64;
            self.look(now, false);
            self.settle(now);
        }
        taken
    }

    fn took(&mut self, now: u64, taken: usize) -> usize {
        if taken > 0 {
            self.given = self.given.wrapping_add(taken as u32);
            // The window may have grown: smoltcp may want to announce it.
            self.settle(now);
        }
        taken
    }

    /// Accounts for `taken` bytes that the application read from `kept`.
    fn took_kept(&mut self, taken: usize) {
        self.kept_read += taken;
        if self.kept_read == self.kept.len() {
            self.kept = Vec::new();
            self.kept_read = 0;
        }
    }

    /// Whether this sequence number was sent, and not acknowledged.
    pub(super) fn is_in_flight(&self, sequence: u32) -> bool {
        let acknowledged = self.acknowledged();
        sequence.wrapping_sub(acknowledged) < self.sender.next.wrapping_sub(acknowledged)
    }
}

impl Stream for Connection {
    fn state(&self) -> StreamState {
        match self.before {
            State::Closed => StreamState::Closed(self.end),
            State::Listen | State::SynSent | State::SynReceived => StreamState::Connecting,
            State::CloseWait if self.finishes => StreamState::Ending,
            State::Established | State::CloseWait => StreamState::Open,
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => StreamState::Ending,
            State::TimeWait => StreamState::TimeWait,
        }
    }

    fn write(&mut self, now: u64, bytes: &[u8]) -> usize {
        let taken = self.socket_mut().send_slice(bytes).unwrap_or(0);
        self.wrote(now, taken)
    }

    fn write_with(&mut self, now: u64, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let fill = |room: &mut [u8]| match room.len() {
            0 => (0, 0),
            len => {
                let taken = fill(room).min(len);
                (taken, taken)
            }
        };
        let taken = self.socket_mut().send(fill).unwrap_or(0);
        self.wrote(now, taken)
    }

    fn read(&mut self, now: u64, to: &mut [u8]) -> usize {
        if self.kept_read < self.kept.len() {
            let taken = self.peek(to);
            self.took_kept(taken);
            return taken;
        }
        let taken = self.socket_mut().recv_slice(to).unwrap_or(0);
        self.took(now, taken)
    }

    fn read_with(&mut self, now: u64, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        if let Some(kept) = self.kept.get(self.kept_read..).filter(|kept| !kept.is_empty()) {
            let taken = take(kept).min(kept.len());
            self.took_kept(taken);
            return taken;
        }
        let take = |bytes: &mut [u8]| match bytes.len() {
            0 => (0, 0),
            len => {
                let taken = take(bytes).min(len);
                (taken, taken)
            }
        };
        let taken = self.socket_mut().recv(take).unwrap_or(0);
        self.took(now, taken)
    }

    fn peek(&mut self, to: &mut [u8]) -> usize {
        if let Some(kept) = self.kept.get(self.kept_read..).filter(|kept| !kept.is_empty()) {
            let len = kept.len().min(to.len());
            to[..len].copy_from_slice(&kept[..len]);
            return len;
        }
        self.socket_mut().peek_slice(to).unwrap_or(0)
    }

    fn readable(&self) -> usize {
        self.kept.len() - self.kept_read + self.socket().recv_queue()
    }

    fn writable(&self) -> usize {
        let socket = self.socket();
        if socket.may_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    fn unacknowledged(&self) -> usize {
        self.socket().send_queue()
    }

    fn is_at_end(&self) -> bool {
        self.was_finished && self.readable() == 0
    }

    fn is_settled(&self) -> bool {
        self.before == State::TimeWait && self.sender.announced_acknowledgement() == self.receive_next()
    }

    fn finish(&mut self, now: u64) {
        self.finishes |= matches!(self.before, State::Established | State::CloseWait) || !self.was_open;
        if self.was_open {
            self.look(now, false);
            self.settle(now);
        }
    }

    fn abort(&mut self, now: u64) {
        // In TIME-WAIT both sides already have everything.
        if self.before == State::TimeWait {
            return;
        }
        self.give_up(now, End::Aborted);
    }

    /// While connecting, any error ends the connection, as in Linux (`tcp_v4_err`) and RFC 5461, section 4.1. An open
    /// connection only remembers the error (RFC 1122, section 4.2.3.9).
    fn report(&mut self, now: u64, errno: i32, mtu: u16) {
        if errno == errno::EMSGSIZE {
            if let Some(smaller) = report::smaller_mtu(self.sender.mtu, mtu, self.sender.address) {
                self.set_mtu(now, smaller);
            }
        } else if self.was_open {
            self.soft = Some(errno);
        } else {
            self.give_up(now, End::Reported(errno));
        }
    }

    fn set_no_delay(&mut self, on: bool) {
        self.socket_mut().set_nagle_enabled(!on);
        self.wake = Some(0);
    }

    fn set_keep_alive(&mut self, interval: Option<Duration>) {
        // An interval of 0 would send probes without a pause.
        let interval = interval.map(|interval| interval.max(Duration::from_secs(1)));
        // Silence before the first probe does not count.
        (self.keep_alive, self.heard) = (interval, None);
        self.socket_mut().set_keep_alive(interval.map(delay));
        self.wake = Some(0);
    }

    fn set_connect_timeout(&mut self, timeout: Option<Duration>) {
        self.connect_timeout = timeout.unwrap_or(CONNECT_TIMEOUT);
    }
}
