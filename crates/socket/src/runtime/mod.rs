//! Shared by all TCP sockets of a process: connections to daemons, and the threads that work for them.
//!
//! ```text
//!  net::TcpStream ── Tcp ─┐                        ┌─ bells, line ── daemon
//!  net::TcpStream ── Tcp ─┼─ Hub ── seat, timers ──┤
//!  net::TcpListener ─ Listening ─┘                 └─ nudge
//! ```
//!
//! - [`hub`] — the flows of one connection to a daemon, and the work for them. Start reading here.
//! - [`seat`] — which thread works: a call that waits, or the connection's own thread.
//! - [`timers`] — when flows want a turn without a packet.
//! - [`tcp`], [`listening`] — one connection of TCP, one listener.
//! - [`waiters`] — how calls and polling programs learn of news.
//! - [`exit`] — unfinished connections at process exit.

pub(crate) mod exit;
pub(crate) mod hub;
pub(crate) mod listening;
pub(crate) mod seat;
pub(crate) mod tcp;
pub(crate) mod timers;
pub(crate) mod waiters;

use crate::error::SocketError;
use crate::net::plain;
use buffer::flow::Geometry;
use buffer::flow::bells::CHANNELS;
use capture::CaptureErrorKind;
use flow::{OpenFlow, OpenListener};
use hub::{Hub, Member};
use listening::Listening;
use stack::{TCP_WINDOW, TCP_WINDOW_SHIFT};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tcp::{Shape, Tcp};

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// What to open, apart from addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) device: Option<String>,
    pub(crate) share: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) connect_timeout: Option<Duration>,
}

/// Connections to daemons, by path of the daemon's socket.
static HUBS: Mutex<Vec<(PathBuf, Arc<Hub>)>> = Mutex::new(Vec::new());

fn hubs() -> MutexGuard<'static, Vec<(PathBuf, Arc<Hub>)>> {
    HUBS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by the thread that connects to a daemon.
static CONNECTS: Mutex<()> = Mutex::new(());

/// How long a thread waits for another one to connect. In a forked copy that other thread may be missing.
const OTHER_CONNECTS: Duration = Duration::from_secs(2);

/// Waits, for a while at most, until no other thread connects to a daemon.
fn connects_alone() -> Option<MutexGuard<'static, ()>> {
    let deadline = Instant::now() + OTHER_CONNECTS;
    loop {
        match CONNECTS.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Opens something at a connection to this daemon that `suits` and has room: its flows are on one interface, at most
/// 1,024. Connects again if there is no such connection.
fn open<T>(
    daemon: &Path,
    suits: fn(&Hub) -> bool,
    open: &mut dyn FnMut(&Arc<Hub>) -> Result<T, SocketError>,
) -> Result<(Arc<Hub>, T), SocketError> {
    let mut tried = Vec::new();
    if let Some(opened) = open_at_known(daemon, suits, open, &mut tried)? {
        return Ok(opened);
    }
    // Another thread may be connecting, and its connection may have room for this too.
    let _alone = connects_alone();
    if let Some(opened) = open_at_known(daemon, suits, open, &mut tried)? {
        return Ok(opened);
    }
    let hub = Hub::open(daemon, "tcp")?;
    let opened = open(&hub)?;
    exit::prepare().map_err(SocketError::Daemon)?;
    hubs().push((daemon.to_path_buf(), Arc::clone(&hub)));
    Ok((hub, opened))
}

/// Opens something at a known connection that is not in `tried`. `None`: they have no room.
fn open_at_known<T>(
    daemon: &Path,
    suits: fn(&Hub) -> bool,
    open: &mut dyn FnMut(&Arc<Hub>) -> Result<T, SocketError>,
    tried: &mut Vec<Arc<Hub>>,
) -> Result<Option<(Arc<Hub>, T)>, SocketError> {
    let known: Vec<Arc<Hub>> = {
        let mut hubs = hubs();
        hubs.retain(|(_, hub)| !hub.is_gone());
        hubs.iter().filter(|(path, hub)| path == daemon && hub.is_own()).map(|(_, hub)| Arc::clone(hub)).collect()
    };
    // A connection whose daemon has gone gets no new flows: a new connection may find another daemon.
    let has_room = |hub: &Arc<Hub>| (hub.members() as usize) < CHANNELS && hub.connection.has_daemon();
    for hub in known {
        if tried.iter().any(|other| Arc::ptr_eq(other, &hub)) || !has_room(&hub) || !suits(&hub) {
            continue;
        }
        match open(&hub) {
            Ok(opened) => return Ok(Some((hub, opened))),
            // Another connection may answer differently: its flows may be on this interface, and it may have room.
            Err(SocketError::Refused(CaptureErrorKind::Full | CaptureErrorKind::Request, _)) => tried.push(hub),
            // The daemon is ending.
            Err(_) if !hub.connection.has_daemon() => tried.push(hub),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Opens a connection and starts its handshake.
pub(crate) fn connect(
    daemon: &Path,
    wanted: &Wanted,
    local: Option<SocketAddr>,
    peer: SocketAddr,
) -> Result<(Arc<Hub>, Arc<Tcp>), SocketError> {
    tcp::check(wanted.shape.below.as_deref())?;
    // The daemon makes it an IPv6 address if the peer has one.
    let local = local.map_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), plain);
    let peer = plain(peer);
    let asked =
        OpenFlow { share: wanted.share.clone(), ..OpenFlow::new(wanted.device.clone(), TCP, local, Some(peer)) };
    // Not beside a listener, which needs the room for accepted connections: outgoing ones would take it.
    open(daemon, |hub| !hub.listens(), &mut |hub| {
        let flow = hub.connection.flow(&asked)?;
        let channel = flow.granted.channel;
        let add = || {
            let tcp = Arc::new(Tcp::new(flow, &wanted.shape, false, wanted.connect_timeout)?);
            hub.add(Member::Tcp(Arc::clone(&tcp))).map_err(SocketError::Daemon)?;
            Ok(tcp)
        };
        add().inspect_err(|_: &SocketError| hub.connection.close(channel))
    })
}

/// Opens a listener.
pub(crate) fn listen(
    daemon: &Path,
    wanted: &Wanted,
    local: SocketAddr,
    backlog: u32,
) -> Result<(Arc<Hub>, Arc<Listening>), SocketError> {
    tcp::check(wanted.shape.below.as_deref())?;
    let geometry = Geometry::default();
    let Geometry { send_records, send_bytes, receive_buffers, buffer_bytes } = geometry;
    let (window, window_shift) = window(wanted.shape.receive_bytes);
    let (device, share) = (wanted.device.clone(), wanted.share.clone());
    let asked = OpenListener {
        device,
        local: plain(local),
        backlog,
        window,
        window_shift,
        share,
        send_records,
        send_bytes,
        receive_buffers,
        buffer_bytes,
    };
    open(daemon, |hub| hub.members() == 0, &mut |hub| {
        let listener = hub.connection.listen(&asked)?;
        let (channel, local) = (listener.listening.channel, listener.listening.local);
        let listening = Arc::new(Listening::new(channel, local, geometry, wanted.shape.clone()));
        match hub.add(Member::Listening(Arc::clone(&listening))) {
            Ok(()) => Ok(listening),
            Err(error) => {
                hub.connection.close(channel);
                Err(SocketError::Daemon(error))
            }
        }
    })
}

/// Window and shift that a SYN announces for a receive buffer of `receive_bytes` (0: the usual size). The driver sends
/// it, because the stack does not exist yet.
fn window(receive_bytes: u32) -> (u16, u8) {
    if receive_bytes == 0 {
        return (TCP_WINDOW, TCP_WINDOW_SHIFT);
    }
    let bits = u32::BITS - receive_bytes.leading_zeros();
    (u16::try_from(receive_bytes).unwrap_or(u16::MAX), bits.saturating_sub(u16::BITS) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_stack() {
        let rows = [
            (0, (TCP_WINDOW, TCP_WINDOW_SHIFT)),
            (256 << 10, (TCP_WINDOW, TCP_WINDOW_SHIFT)),
            (4096, (4096, 0)),
            (65_535, (65_535, 0)),
            (65_536, (65_535, 1)),
        ];
        for (bytes, expected) in rows {
            assert_eq!(window(bytes), expected, "{bytes}");
        }
    }
}
