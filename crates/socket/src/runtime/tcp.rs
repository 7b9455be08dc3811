//! One TCP connection: a flow, its stack, and the calls that wait for it.

use super::hub::Hub;
use super::waiters::{Sign, Waiters};
use crate::error::{ENETDOWN, SocketError};
use crate::facts::{Known, OnChange};
use buffer::flow::{Application, Facts, State};
use flow::Flow;
use stack::{Description, Line, Marks, NoEnv, Stack, Stream, StreamState, TcpFacts};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of the Ethernet header.
const ETHERNET: usize = 14;

/// Packets taken before the stack's turn: fewer than a stack queues.
const BATCH: usize = 64;

/// Turns of the stack in a row before other flows get theirs.
const TURNS: usize = 8;

/// How long a dropped connection continues at most: Linux's `tcp_fin_timeout`.
pub(crate) const LINGER: Duration = Duration::from_secs(60);

/// Buffers and stack of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) receive_bytes: u32,
    pub(crate) send_bytes: u32,
    /// The blocks below `tcp`.
    pub(crate) below: Option<String>,
    pub(crate) marks: Marks,
    pub(crate) on_change: Option<OnChange>,
}

#[derive(Debug)]
pub(crate) struct Tcp {
    pub(crate) channel: u32,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    inner: Mutex<Inner>,
    pub(crate) waiters: Waiters,
    /// Set while a read, or a check for errors, would not block.
    pub(crate) readable: Sign,
    /// Set while a write would not block.
    pub(crate) writable: Sign,
}

/// The part of a connection that its lock protects.
#[derive(Debug)]
pub(crate) struct Inner {
    flow: Flow,
    known: Known,
    stack: Stack,
    /// Holds the packet that the stack reads.
    scratch: Vec<u8>,
    /// Errors of the driver that the stack has seen.
    told: u64,
    /// Its time in the timers; `None` if it has none.
    timer: Option<u64>,
    /// The errno of the flow's end; permanent once set.
    pub(crate) down: Option<i32>,
    /// The errno of the connection's end, until a call reports it.
    error: Option<i32>,
    was_over: bool,
    /// Data or an end came that waiting calls have not been told of.
    pub(crate) has_news: bool,
    pub(crate) reads_no_more: bool,
    pub(crate) writes_no_more: bool,
    /// Set once the application dropped the connection: when to give up.
    pub(crate) dropped_until: Option<u64>,
}

/// Carries packets from a stack to the channel of its flow.
struct Way<'a> {
    channel: &'a mut Application,
    longest: usize,
    sent: bool,
}

impl Line for Way<'_> {
    fn has_room(&self) -> bool {
        self.channel.has_room(self.longest)
    }

    fn emit(&mut self, header: &[u8], payload: &[u8]) {
        // A stack that sends without asking for room loses the packet, as on a wire.
        self.sent |= self.channel.send(&[header, payload]).is_ok();
    }
}

/// Checks the text of the blocks below `tcp` before anything is opened.
pub(crate) fn check(below: Option<&str>) -> Result<(), SocketError> {
    let Some(below) = below else { return Ok(()) };
    Description::parse(below).map(drop).map_err(|error| SocketError::stack(error, below))
}

impl Tcp {
    /// The connection of a granted flow. `is_accepted`: the driver answered the SYN.
    pub(crate) fn new(
        flow: Flow,
        shape: &Shape,
        is_accepted: bool,
        connect_timeout: Option<Duration>,
    ) -> Result<Tcp, SocketError> {
        let granted = &flow.granted;
        let nowhere = || SocketError::Mismatch("the daemon granted a connection without another side".into());
        let (channel, local, peer) = (granted.channel, granted.local, granted.remote.ok_or_else(nowhere)?);
        let Shape { receive_bytes, send_bytes, .. } = *shape;
        let tcp = TcpFacts { isn: granted.isn, is_accepted, receive_bytes, send_bytes };
        let known = Known::new(granted, tcp, shape.on_change.clone());
        let below = shape.below.as_ref().map_or(String::new(), |below| format!(" | {below}"));
        let text = format!("tcp {} to={peer}{below}", local.port());
        let build = || Description::parse(&text)?.complete(&known.stack)?.build(&known.stack, &mut NoEnv);
        let mut stack = build().map_err(|error| SocketError::stack(error, &text))?;
        stack.set_marks(shape.marks);
        let Some(stream) = stack.stream() else {
            return Err(SocketError::Mismatch("the stack has no byte stream at its top".into()));
        };
        stream.set_connect_timeout(connect_timeout);
        let inner = Inner {
            scratch: vec![0; usize::from(known.stack.mtu) + ETHERNET],
            flow,
            known,
            stack,
            told: 0,
            timer: None,
            down: None,
            error: None,
            was_over: false,
            has_news: false,
            reads_no_more: false,
            writes_no_more: false,
            dropped_until: None,
        };
        let (waiters, readable, writable) = Default::default();
        Ok(Tcp { channel, local, peer, inner: Mutex::new(inner), waiters, readable, writable })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if it is free.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(std::sync::TryLockError::Poisoned(inner)) => Some(inner.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Takes packets, gives the stack its turns, and reports the results. Called under the lock after each change,
    /// ring or timer. `true`: a dropped connection is over.
    pub(crate) fn work(&self, hub: &Hub, inner: &mut Inner, timer_fired: bool) -> bool {
        if timer_fired {
            inner.timer = None;
        }
        if inner.down.is_none() {
            let next = inner.turn(hub.now());
            self.set_timer(hub, inner, next);
        }
        if inner.down.is_some()
            && let Some(before) = inner.timer.take()
        {
            hub.clear_timer(self.channel, before);
        }
        self.tell(inner);
        inner.dropped_until.is_some() && inner.is_done()
    }

    fn set_timer(&self, hub: &Hub, inner: &mut Inner, next: Option<u64>) {
        // If the time moved later, the timer stays: one turn in vain costs less than moving it with every packet.
        let next = [next, inner.dropped_until].into_iter().flatten().min();
        if let Some(next) = next
            && inner.timer.is_none_or(|timer| next < timer)
        {
            hub.set_timer(self.channel, inner.timer, next);
            inner.timer = Some(next);
        }
    }

    /// Wakes waiting calls and polling programs.
    fn tell(&self, inner: &mut Inner) {
        self.readable.set(inner.is_readable());
        self.writable.set(inner.is_writable());
        if std::mem::take(&mut inner.has_news) {
            self.waiters.tell();
        }
    }

    /// Marks the flow as ended, for the reason of this errno.
    pub(crate) fn end(&self, inner: &mut Inner, errno: i32) {
        inner.down.get_or_insert(errno);
        inner.has_news = true;
        self.tell(inner);
    }
}

/// Aborts a dropped connection when its time is over, or when bytes arrive that no call will read (RFC 2525, 2.17).
fn limit(stream: &mut dyn Stream, until: u64, now: u64) {
    if !matches!(stream.state(), StreamState::Closed(_)) && (now >= until || stream.readable() > 0) {
        stream.abort(now);
    }
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Inner {
    pub(crate) fn flow(&mut self) -> &mut Flow {
        &mut self.flow
    }

    pub(crate) fn set_marks(&mut self, marks: Marks) {
        self.stack.set_marks(marks);
    }

    pub(crate) fn stream(&mut self) -> Option<&mut dyn Stream> {
        self.stack.stream()
    }

    /// Takes packets and reports, and gives the stack its turns. Returns when the stack wants the next one.
    pub(crate) fn turn(&mut self, now: u64) -> Option<u64> {
        let there = self.flow.channel.receivable();
        self.learn(now);
        let Inner { flow, stack, scratch, .. } = self;
        let received = flow.channel.receive(there.min(BATCH), &mut |packet| {
            let len = packet.copy_to(scratch);
            // The stack counts discards.
            let _ = stack.receive(now, &scratch[..len], &mut |_| {});
        });
        self.has_news |= received > 0;
        let Inner { flow, .. } = self;
        let (count, errno, mtu) = flow.channel.errors();
        if count != self.told {
            self.told = count;
            if let Some(stream) = self.stack.stream() {
                stream.report(now, errno, u16::try_from(mtu).unwrap_or(0));
            }
        }
        let Inner { flow, known, stack, dropped_until, .. } = self;
        let longest = known.facts().mtu as usize + ETHERNET;
        let mut way = Way { channel: &mut flow.channel, longest, sent: false };
        for _ in 0..TURNS {
            stack.tend(now, &mut way, &mut |_| {});
            if let (Some(until), Some(stream)) = (*dropped_until, stack.stream()) {
                limit(stream, until, now);
            }
            if stack.next().is_none_or(|next| next > now) || !way.has_room() {
                break;
            }
        }
        let (sent, has_room) = (way.sent, way.has_room());
        if sent {
            flow.ring();
        }
        self.look_at_end();
        if self.flow.channel.has_received() {
            return Some(now);
        }
        // If the line has no room, the doorbell says when to go on.
        self.stack.next().filter(|next| *next > now || has_room)
    }

    /// Applies changes of the interface.
    fn learn(&mut self, now: u64) {
        let Inner { flow, known, stack, scratch, .. } = self;
        known.learn(now, &flow.granted, &flow.channel, stack);
        let longest = usize::from(known.stack.mtu) + ETHERNET;
        if scratch.len() < longest {
            scratch.resize(longest, 0);
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        self.known.facts()
    }

    /// Checks whether the connection or the flow has ended.
    fn look_at_end(&mut self) {
        if let Some(StreamState::Closed(end)) = self.stack.stream().map(|stream| stream.state())
            && !std::mem::replace(&mut self.was_over, true)
        {
            self.has_news = true;
            self.error = end.map(stack::End::errno).filter(|errno| *errno != 0);
        }
        // Packets that came before are read first.
        if let State::Closed(errno) = self.flow.channel.state()
            && !self.flow.channel.has_received()
        {
            self.has_news |= self.down.is_none();
            self.down.get_or_insert(if errno == 0 { ENETDOWN } else { errno });
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.was_over || self.down.is_some()
    }

    /// Whether a dropped connection is finished. In TIME-WAIT the driver answers for it and reserves its addresses and ports.
    pub(crate) fn is_done(&mut self) -> bool {
        self.is_over() || self.stream().is_some_and(|stream| stream.is_settled())
    }

    /// Whether the handshake is under way.
    pub(crate) fn is_connecting(&mut self) -> bool {
        !self.is_over() && self.stream().is_some_and(|stream| stream.state() == StreamState::Connecting)
    }

    /// The error of the end: once for the connection's, always for the flow's.
    pub(crate) fn take_error(&mut self) -> Option<i32> {
        self.error.take().or(self.down)
    }

    fn is_readable(&mut self) -> bool {
        self.is_over()
            || self.reads_no_more
            || self.stream().is_some_and(|stream| stream.readable() > 0 || stream.is_at_end())
    }

    fn is_writable(&mut self) -> bool {
        self.is_over()
            || self.writes_no_more
            || self.stream().is_some_and(|stream| stream.state() == StreamState::Open && stream.writable() > 0)
    }

    /// Reads with `take`, which returns how many bytes it got. `None`: wait.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(&mut dyn Stream) -> usize) -> Option<io::Result<usize>> {
        let stream = self.stack.stream()?;
        match take(stream) {
            0 if stream.is_at_end() || self.reads_no_more => Some(Ok(0)),
            0 if self.is_over() => Some(self.take_error().map_or(Ok(0), |errno| Err(error(errno)))),
            0 => None,
            count => Some(Ok(count)),
        }
    }

    /// How the handshake ended. `None`: wait.
    pub(crate) fn handshake(&mut self) -> Option<io::Result<()>> {
        (!self.is_connecting()).then(|| {
            let errno = if self.is_over() { self.take_error() } else { None };
            errno.map_or(Ok(()), |errno| Err(error(errno)))
        })
    }

    /// Writes with `put`, which returns how many bytes found room. `None`: wait.
    pub(crate) fn write(&mut self, put: &mut dyn FnMut(&mut dyn Stream) -> usize) -> Option<io::Result<usize>> {
        // A flow that ended just now must not take any bytes.
        self.look_at_end();
        if self.is_over() || self.writes_no_more {
            let errno = self.take_error();
            return Some(Err(errno.map_or_else(|| io::ErrorKind::BrokenPipe.into(), error)));
        }
        match put(self.stack.stream()?) {
            0 => None,
            count => Some(Ok(count)),
        }
    }

    /// Finishes a connection that the application drops. Unread bytes reset it (RFC 2525, 2.17), as does `resets`.
    pub(crate) fn give_up(&mut self, now: u64, resets: bool) {
        self.dropped_until = Some(now.saturating_add(LINGER.as_nanos() as u64));
        let Some(stream) = self.stack.stream() else { return };
        if resets || stream.readable() > 0 || stream.state() == StreamState::Connecting {
            stream.abort(now);
        } else {
            stream.finish(now);
        }
    }

    pub(crate) fn has_received(&self) -> bool {
        self.down.is_none() && self.flow.channel.has_received()
    }

    /// Whether all written bytes are acknowledged, or the connection is over.
    pub(crate) fn is_acknowledged(&mut self) -> bool {
        self.is_over() || self.stream().is_none_or(|stream| stream.unacknowledged() == 0)
    }
}
