//! A client of the daemon: a process of a user, and its flows on one interface.

use crate::answer::TCP;
use crate::error::{NetError, NetErrorKind};
use crate::networks::{Handle, Networks};
use crate::process::handle::{Answer, lock};
use crate::process::message::{Act, Order, Owner, Word};
use crate::share::ShareLimits;
use crate::sharing::keeper::Reservation;
use crate::users::Permit;
use flow::{ACCEPTED, Granted, Listening, OpenFlow, OpenListener};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A client's flows. They end when it is dropped.
pub struct Client {
    networks: Arc<Networks>,
    id: u64,
    process: i32,
    user: u32,
    /// The interface with its flows and doorbells. `None` before the first flow.
    interface: Option<Arc<Handle>>,
    /// The interfaces with its traces.
    traced: Vec<Arc<Handle>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("process", &self.process).field("user", &self.user).finish_non_exhaustive()
    }
}

fn absent(channel: u32) -> NetError {
    NetError::new(NetErrorKind::Absent, format!("this connection has no channel {channel}"))
}

/// The error if the process gives an unexpected answer.
fn strange() -> NetError {
    NetError::new(NetErrorKind::System, "the interface's process answers something else than was asked")
}

impl Client {
    pub(crate) fn new(networks: Arc<Networks>, id: u64, process: i32, user: u32) -> Client {
        Client { networks, id, process, user, interface: None, traced: Vec::new() }
    }

    /// Sets the interface of its flows.
    pub(crate) fn goes_on(&mut self, handle: &Arc<Handle>) {
        self.interface = Some(Arc::clone(handle));
    }

    fn owner(&self, limits: ShareLimits, reservation: Option<&Arc<Reservation>>) -> Owner {
        let (is_first, has_port) = (self.interface.is_none(), reservation.is_some());
        Owner { client: self.id, process: self.process, user: self.user, limits, is_first, has_port }
    }

    /// Opens a flow. `permit` says whether the user may have one on an interface, and which share of its wire. Returned
    /// beside the answer: the two segments of its channel; for the first flow also the doorbells' three handles.
    ///
    /// # Errors
    ///
    /// `Absent`: no such interface, no route. `InUse`: the port is taken. `Denied`: ports below 1024, or `permit` says so. `Full`: a quota is reached.
    /// `Request`: the flow makes no sense, or is on another interface than this client's others. `System`: the kernel failed.
    pub fn open(
        &mut self,
        open: &OpenFlow,
        permit: &dyn Fn(&str) -> Result<ShareLimits, NetError>,
    ) -> Result<(Granted, Vec<OwnedFd>), NetError> {
        open.geometry().check().map_err(|error| NetError::new(NetErrorKind::Request, error.to_string()))?;
        let handle = self.interface_for(open.device.as_deref(), open.local, open.remote)?;
        let limits = permit(&handle.process.device())?;
        let (into, out) = open.geometry().bytes();
        let permit = self.permit(&handle, into + out)?;
        let (local, reservation) = handle.admit(open.protocol, open.local, open.remote, self.user)?;
        let owner = self.owner(limits, reservation.as_ref());
        let asked = handle.process.ask(&Order::Open(owner, OpenFlow { local, ..open.clone() }))?;
        let Answer { word: Word::Answer(flow::Answer::Granted(granted)), fds } = asked else { return Err(strange()) };
        lock(&handle.process.ledger).give(granted.flow, Some(permit), reservation);
        self.interface = Some(handle);
        Ok((granted, fds))
    }

    /// Opens a listener; `permit` as for [`open`](Self::open). For the first flow or listener, the doorbells' three
    /// handles are returned beside the answer.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn listen(
        &mut self,
        open: &OpenListener,
        permit: &dyn Fn(&str) -> Result<ShareLimits, NetError>,
    ) -> Result<(Listening, Vec<OwnedFd>), NetError> {
        open.geometry().check().map_err(|error| NetError::new(NetErrorKind::Request, error.to_string()))?;
        if open.window_shift > 14 {
            return Err(NetError::new(NetErrorKind::Request, "the shift of a window is 0 to 14"));
        }
        let handle = self.interface_for(open.device.as_deref(), open.local, None)?;
        let limits = permit(&handle.process.device())?;
        let permit = self.permit(&handle, 0)?;
        let (local, reservation) = handle.admit(TCP, open.local, None, self.user)?;
        let owner = self.owner(limits, reservation.as_ref());
        let asked = handle.process.ask(&Order::Listen(owner, OpenListener { local, ..open.clone() }))?;
        let Answer { word: Word::Answer(flow::Answer::Listening(listening)), fds } = asked else {
            return Err(strange());
        };
        lock(&handle.process.ledger).give(listening.listener, Some(permit), reservation);
        self.interface = Some(handle);
        Ok((listening, fds))
    }

    /// Accepts waiting connections at the listener of this channel, at most `most` and at most [`flow::ACCEPTED`].
    /// Returned beside the answer: two segments for each connection, in this order.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such listener. `Full`: this client has all the channels that it may have, or a quota is reached.
    pub fn accept(&mut self, channel: u32, most: u32) -> Result<(Vec<Granted>, Vec<OwnedFd>), NetError> {
        let handle = self.interface.as_ref().ok_or_else(|| absent(channel))?;
        let (process, client) = (&handle.process, self.id);
        let (bytes, reservation) = {
            let ledger = lock(&process.ledger);
            (ledger.accepted_bytes(client, channel), ledger.port_of(client, channel))
        };
        // The process refuses unknown listeners.
        let (mut permits, bytes) = (Vec::new(), bytes.unwrap_or(0));
        for _ in 0..most.min(ACCEPTED as u32) {
            let permit = match permits.is_empty() {
                true => self.permit(handle, bytes)?,
                false => match self.networks.users.take(self.user, bytes) {
                    Ok(permit) => permit,
                    Err(_) => break,
                },
            };
            permits.push(permit);
        }
        let asked = process.ask(&Order::Act(Act::Accept(client, channel, permits.len() as u32)))?;
        let Answer { word: Word::Answer(flow::Answer::Accepted(granted)), fds } = asked else { return Err(strange()) };
        for (granted, permit) in granted.iter().zip(permits) {
            lock(&process.ledger).give(granted.flow, Some(permit), reservation.clone());
        }
        Ok((granted, fds))
    }

    /// A permit for another flow of this user with `bytes` of channel. It asks the process once for closed flows.
    fn permit(&self, handle: &Handle, bytes: usize) -> Result<Permit, NetError> {
        let take = || self.networks.users.take(self.user, bytes);
        take().or_else(|_| {
            handle.process.ask(&Order::Act(Act::Settle))?;
            take()
        })
    }

    /// The interface for a flow or listener: that of this client's others, if it still is there.
    fn interface_for(
        &mut self,
        device: Option<&str>,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<Arc<Handle>, NetError> {
        let handle = self.networks.choose(device, local, remote)?;
        // An interface that went down took the flows and doorbells of this client along.
        let current = self
            .interface
            .take()
            .filter(|own| self.networks.find(&own.process.device()).is_some_and(|listed| Arc::ptr_eq(own, &listed)));
        if let Some(own) = &current
            && !Arc::ptr_eq(own, &handle)
        {
            let (own, other) = (own.process.device(), handle.process.device());
            let text = format!("this connection's flows are on `{own}`; connect again for `{other}`");
            self.interface = current;
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        self.interface = current;
        Ok(handle)
    }

    /// Traces the flow of this number (`flow::Question::Trace`). `user`: it must be one of this user; none: of any. Beside the answer go
    /// the two segments of the trace's channel and its doorbells' three handles. The trace ends with this client, and with the flow.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such flow. `Full`: it has as many traces as it may have, or a quota is reached. `System`: the kernel failed.
    pub fn trace(&mut self, user: Option<u32>, flow: u64, snap: u32) -> Result<(Granted, Vec<OwnedFd>), NetError> {
        let mut absent = NetError::new(NetErrorKind::Absent, format!("there is no flow {flow} of yours"));
        let (into, out) = flow::TRACE_GEOMETRY.bytes();
        let permit = self.networks.users.take(self.user, into + out)?;
        for handle in self.networks.all() {
            let owner = self.owner(ShareLimits::NONE, None);
            match handle.process.ask(&Order::Trace(owner, user, flow, snap)) {
                Ok(Answer { word: Word::Tracing(granted, number), fds }) => {
                    lock(&handle.process.ledger).give(number, Some(permit), None);
                    self.traced.push(handle);
                    return Ok((granted, fds));
                }
                Ok(_) => return Err(strange()),
                Err(error) if error.kind == NetErrorKind::Absent => absent = error,
                Err(error) => return Err(error),
            }
        }
        Err(absent)
    }

    /// Closes a flow or a listener by the number of its channel. The packets in it still leave in their turns, within a second. Of
    /// those that wait for their neighbour, a few leave when it answers.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such channel.
    pub fn close(&mut self, channel: u32) -> Result<(), NetError> {
        let handle = self.interface.as_ref().ok_or_else(|| absent(channel))?;
        handle.process.ask(&Order::Act(Act::Close(self.id, channel))).map(drop)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for handle in self.interface.iter().chain(&self.traced) {
            handle.process.forget(self.id);
        }
    }
}
