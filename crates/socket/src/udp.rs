//! Datagrams over a flow and a stack in this process.

use crate::connection::Connection;
use crate::error::SocketError;
use crate::facts::{Known, OnChange};
use crate::net::plain;
use buffer::flow::{Drop as DropReason, State};
use flow::{Flow, OpenFlow};
use rustix::event::{PollFd, PollFlags, Timespec};
use stack::{ChecksumRule, Description, Env, Facts, Marks, Stack, TcpFacts};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// The flow that a socket needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpOptions {
    /// The interface. `None`: the one that routes to the peer, or the only one.
    pub device: Option<String>,
    /// The local address. `None`: the interface's; `::`: its first IPv6 address.
    pub address: Option<IpAddr>,
    /// The local port; 0: any free port.
    pub port: u16,
    /// The only peer. `None`: datagrams from and to anyone.
    pub peer: Option<SocketAddr>,
    /// The protocol stack. `None`: `udp PORT | ipv4 | ethernet DEVICE`, with `ipv6` for an IPv6 address.
    pub stack: Option<String>,
    /// The share of the wire: see [`OpenFlow::share`]. `None`: an equal part of the rest.
    pub share: Option<String>,
    /// Called after each change of the interface under the flow.
    pub on_change: Option<OnChange>,
}

impl UdpOptions {
    /// Checks the text of the stack, as far as possible without an interface.
    ///
    /// # Errors
    ///
    /// [`SocketError::Stack`] and [`SocketError::Mismatch`].
    pub fn check(&self) -> Result<(), SocketError> {
        self.stack.as_deref().map_or(Ok(()), |text| Stated::read(text, self).map(drop))
    }

    /// The text of the whole stack, as far as known without an interface. `device`: its name if the options have none.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn stack_text(&self, device: &str) -> Result<String, SocketError> {
        let text = self.stack.clone().unwrap_or_else(|| usual_stack(self.port));
        let description = Stated::read(&text, self)?.description;
        let facts = Facts {
            device: self.device.as_deref().unwrap_or(device).to_string(),
            mac: [0; 6],
            address: self.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            prefix: 0,
            mtu: 1500,
            checksum: ChecksumRule::Strict,
            tcp: TcpFacts::default(),
        };
        let complete = description.complete(&facts).map_err(|error| SocketError::stack(error, &text))?;
        Ok(complete.canonical())
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// Receive time at the device, in ns since 1970 UTC.
    pub time: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Counts of a socket's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent: handed to the driver.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Received packets that the driver dropped or the stack discarded, by reason. Only reasons with packets.
    pub not_received: Vec<(&'static str, u64)>,
    /// Packets that the driver took but did not send, by reason.
    pub not_sent: Vec<(&'static str, u64)>,
}

/// A UDP socket whose protocol stack runs in this process.
pub struct UdpSocket {
    connection: Arc<Connection>,
    flow: Flow,
    known: Known,
    stack: Stack,
    description: Description,
    /// The packet that the stack reads.
    scratch: Vec<u8>,
    began: Instant,
    sent: u64,
    received: u64,
    /// Errors of the driver that were reported to the application.
    told: u64,
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket").field("flow", &self.flow.granted).finish_non_exhaustive()
    }
}

fn usual_stack(port: u16) -> String {
    format!("udp {port}")
}

struct Stated {
    description: Description,
    port: u16,
    peer: Option<SocketAddr>,
}

impl Stated {
    /// Parses the text. Its port and peer must match those of the options, if they have any.
    fn read(text: &str, options: &UdpOptions) -> Result<Stated, SocketError> {
        let description = Description::parse(text).map_err(|error| SocketError::stack(error, text))?;
        let mismatch = |what: &str| SocketError::Mismatch(format!("the stack's text has another {what} than the flow"));
        let Some(udp) = description.given("udp") else {
            return Err(SocketError::Mismatch("the stack has no `udp`, and the flow is one of UDP".into()));
        };
        let port = u16::try_from(udp.number("port")).unwrap_or(0);
        let peer = udp.endpoint("to");
        if options.port != 0 && options.port != port {
            return Err(mismatch("port"));
        }
        if options.peer.is_some() && peer.is_some() && options.peer != peer {
            return Err(mismatch("peer"));
        }
        Ok(Stated { port, peer: options.peer.or(peer), description })
    }
}

impl UdpSocket {
    /// Opens a flow at this daemon, and builds its stack. `env` opens the files and programs that the stack's text
    /// names.
    ///
    /// # Errors
    ///
    /// [`SocketError::Stack`]: the text is no UDP stack. [`SocketError::Refused`]: the daemon refuses and says why.
    pub fn open(
        connection: Arc<Connection>,
        options: &UdpOptions,
        env: &mut dyn Env,
    ) -> Result<UdpSocket, SocketError> {
        // Reject wrong texts before asking the daemon for anything.
        let stated = options.stack.as_deref().map(|text| Stated::read(text, options)).transpose()?;
        let (port, peer) = stated.as_ref().map_or((options.port, options.peer), |stated| (stated.port, stated.peer));
        let peer = peer.map(plain);
        let local = SocketAddr::new(options.address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
        let open = OpenFlow { share: options.share.clone(), ..OpenFlow::new(options.device.clone(), UDP, local, peer) };
        let mut flow = connection.flow(&open)?;
        let granted = &flow.granted;
        let known = Known::new(granted, TcpFacts::default(), options.on_change.clone());
        let text = options.stack.clone().unwrap_or_else(|| usual_stack(granted.local.port()));
        let wrong = |error| SocketError::stack(error, &text);
        let build = || {
            let description = match stated {
                Some(stated) => stated.description,
                None => Description::parse(&text)?,
            };
            let description = description.complete(&known.stack)?;
            let stack = description.build(&known.stack, env)?;
            Ok((description, stack))
        };
        let (description, stack) = build().map_err(|error| {
            // No socket will use the flow.
            connection.close_flow(&mut flow);
            wrong(error)
        })?;
        // Room for the longest IP packet with its Ethernet header. The kernel backs only the pages that are touched.
        let scratch = vec![0; (1 << 16) + 14];
        Ok(UdpSocket {
            connection,
            flow,
            known,
            stack,
            description,
            scratch,
            began: Instant::now(),
            sent: 0,
            received: 0,
            told: 0,
        })
    }

    /// Address and port of this side.
    pub fn local_addr(&self) -> SocketAddr {
        self.flow.granted.local
    }

    /// Address and port of the only peer, if there is one.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.flow.granted.remote
    }

    /// Hardware address and MTU, as of the last send or receive.
    pub fn facts(&self) -> buffer::flow::Facts {
        self.known.facts()
    }

    /// MTU of the interface in bytes.
    pub fn mtu(&self) -> usize {
        self.facts().mtu as usize
    }

    /// Sets fields of the IP header of all later datagrams.
    pub fn set_marks(&mut self, marks: Marks) {
        self.stack.set_marks(marks);
    }

    /// Most payload bytes of one packet.
    pub fn longest(&self) -> usize {
        let header = if self.flow.granted.local.is_ipv4() { 20 } else { 40 };
        self.mtu().saturating_sub(header + 8)
    }

    /// The complete text of the running stack.
    pub fn stack_text(&self) -> String {
        self.description.canonical()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sends a datagram to `to`, or to the peer. Does not block.
    ///
    /// # Errors
    ///
    /// [`SocketError::Full`]: not sent; try again after a [`wait`](Self::wait). Other errors are final.
    pub fn send(&mut self, to: Option<SocketAddr>, payload: &[u8]) -> Result<(), SocketError> {
        self.check()?;
        let to = to.map(plain).or(self.flow.granted.remote);
        let now = self.now();
        self.learn(now);
        let flow = &mut self.flow;
        let mut sent = Ok(());
        let mut emit = |header: &[u8], payload: &[u8]| sent = flow.channel.send(&[header, payload]);
        self.stack.send(now, to, payload, &mut emit).map_err(|error| match error {
            stack::SendError::MessageTooLong => SocketError::TooLong,
            stack::SendError::NoDestination => SocketError::NoDestination,
            stack::SendError::Full => SocketError::Full,
            other => SocketError::NotSent(other),
        })?;
        sent.map_err(|_| SocketError::Full)?;
        self.sent += 1;
        self.flow.ring();
        Ok(())
    }

    /// Gives up to `most` waiting datagrams to `take`. Returns how many packets it looked at. Does not block.
    ///
    /// # Errors
    ///
    /// [`SocketError::Closed`] after the last datagram; [`SocketError::Reported`] once per report.
    pub fn receive(&mut self, most: usize, take: &mut dyn FnMut(Datagram<'_>)) -> Result<usize, SocketError> {
        let now = self.now();
        let there = self.flow.channel.receivable();
        self.learn(now);
        let (stack, scratch, received) = (&mut self.stack, &mut self.scratch, &mut self.received);
        let looked = self.flow.receive(most.min(there), &mut |packet| {
            let len = packet.copy_to(scratch);
            // The stack counts discards.
            let _ = stack.receive(now, &scratch[..len], &mut |delivery| {
                *received += 1;
                take(Datagram { from: delivery.from, time: packet.time, payload: delivery.payload });
            });
        });
        if looked == 0 {
            self.check()?;
        }
        Ok(looked)
    }

    /// Applies changes of the interface.
    fn learn(&mut self, now: u64) {
        self.known.learn(now, &self.flow.granted, &self.flow.channel, &mut self.stack);
    }

    /// Reports an error of the driver, each once, and the end of the flow.
    fn check(&mut self) -> Result<(), SocketError> {
        if let State::Closed(errno) = self.flow.channel.state() {
            return Err(SocketError::Closed(errno));
        }
        let (errors, errno, _) = self.flow.channel.errors();
        if errors != self.told {
            self.told = errors;
            return Err(SocketError::Reported(errno));
        }
        Ok(())
    }

    /// Packets that the driver took and has not finished.
    pub fn outstanding(&mut self) -> u64 {
        self.flow.channel.outstanding()
    }

    /// Sleeps until the driver has news, for at most `timeout`. A signal, or news of the connection's other flows,
    /// ends it too.
    ///
    /// # Errors
    ///
    /// [`SocketError::Closed`]: the daemon has gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), SocketError> {
        if !self.flow.fall_asleep() {
            self.flow.awake();
            return Ok(());
        }
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = [
            PollFd::from_borrowed_fd(self.flow.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.connection.line(), PollFlags::IN),
        ];
        // A signal or a doorbell: the caller looks.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let has_gone = is_over(&fds);
        self.flow.awake();
        if has_gone { Err(SocketError::GONE) } else { Ok(()) }
    }

    /// Whether the flow is open. It may still have lost daemon and driver: see [`has_gone`](Self::has_gone).
    pub fn is_open(&self) -> bool {
        self.flow.channel.state() == State::Open
    }

    /// Whether the daemon has gone, and the search for another failed. A killed daemon closes no flow.
    pub fn has_gone(&self) -> bool {
        let mut fds = [
            PollFd::from_borrowed_fd(self.flow.fd(), PollFlags::empty()),
            PollFd::from_borrowed_fd(self.connection.line(), PollFlags::IN),
        ];
        rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok() && is_over(&fds)
    }

    /// For sleeping with other descriptors: [`fall_asleep`](Self::fall_asleep) first, then [`awake`](Self::awake).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.flow.fd()
    }

    /// Readable once the daemon has gone and the search for another has failed.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.connection.line()
    }

    /// Announces a sleep on [`fd`](Self::fd). `false`: the driver rang since this side was last awake.
    pub fn fall_asleep(&self) -> bool {
        self.flow.fall_asleep()
    }

    /// Announces that this side is awake.
    pub fn awake(&self) {
        self.flow.awake();
    }

    /// Counts of the packets so far.
    pub fn counts(&self) -> Counts {
        let dropped = |received: bool| {
            let reasons = DropReason::ALL.into_iter().filter(move |why| why.was_received() == received);
            reasons.map(|why| (why.name(), self.flow.channel.dropped(why)))
        };
        let some = |(_, count): &(&str, u64)| *count > 0;
        Counts {
            sent: self.sent,
            received: self.received,
            not_received: dropped(true).chain(self.stack.discards()).filter(some).collect(),
            not_sent: dropped(false).filter(some).collect(),
        }
    }
}

/// Whether the flow has ended with its daemon. Without daemon and driver the doorbell hangs up.
pub(crate) fn is_over([bell, line]: &[PollFd<'_>; 2]) -> bool {
    bell.revents().intersects(PollFlags::HUP | PollFlags::ERR) || !line.revents().is_empty()
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.connection.close_flow(&mut self.flow);
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
