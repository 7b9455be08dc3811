//! All interfaces of a daemon, and the clients that have flows on them.

use crate::accept::OpeningListener;
use crate::answer::TCP;
use crate::error::{NetError, NetErrorKind};
use crate::interface::Interface;
use crate::manager::Opening;
use crate::open::{self, Opened};
use crate::routes::Routes;
use crate::share::ShareLimits;
use crate::sharing::Sharing;
use crate::sharing::gate::Gate;
use crate::sharing::keeper::{PortKeeper, Reservation};
use crate::thread::{self, Command, Line};
use crate::trace::Tracing;
use crate::users::Users;
use buffer::flow::{Bells, Driver};
use flow::{Granted, InterfaceState, Listening, OpenFlow, OpenInterface, OpenListener};
use std::fmt;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The least that each IPv4 link carries in one piece (RFC 791 3.2), and the most a packet can have.
const MTU: std::ops::RangeInclusive<u32> = 68..=65535;

/// An interface, from outside its thread.
struct Handle {
    device: String,
    routes: Routes,
    /// Of a device that stays the host's.
    gate: Option<Gate>,
    line: Line,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// All interfaces that this process owns. Each has a thread. When it is dropped, all go down.
#[derive(Default)]
pub struct Networks {
    interfaces: Mutex<Vec<Arc<Handle>>>,
    /// Held while an interface comes or goes.
    changing: Mutex<()>,
    users: Users,
    /// Holds ports of the host; none: no device can be shared.
    keeper: Option<Arc<PortKeeper>>,
    /// Flows and listeners that there were.
    flows: Arc<AtomicU64>,
    clients: AtomicU64,
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|handle| &handle.device)).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is whole before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(device: &str) -> NetError {
    NetError::new(NetErrorKind::Absent, format!("the interface `{device}` went down; it takes a new `up`"))
}

fn absent(channel: u32) -> NetError {
    NetError::new(NetErrorKind::Absent, format!("this connection has no channel {channel}"))
}

impl Networks {
    /// No interfaces.
    pub fn new() -> Networks {
        Networks::default()
    }

    /// No interfaces. `keeper` holds ports for flows on shared devices.
    pub fn with_ports(keeper: Arc<PortKeeper>) -> Networks {
        let mut networks = Networks::default();
        networks.keeper = Some(keeper);
        networks
    }

    /// Owns a device of this thread's network namespace and starts its thread. Switches the device on; where a packet socket reads
    /// it, also switches its offloads off, which would join packets. Neither is taken back by [`down`](Self::down).
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such device. `InUse`: it is up already, or has addresses in the kernel. `Denied`: it takes rights.
    /// `Request`: addresses, gateway, rate or `how` make no sense. `System`: the kernel failed.
    pub fn up(&self, open: &OpenInterface) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let routes = self.check(open)?;
        let device = open::open(open)?;
        self.start(open, routes, device)
    }

    /// As [`up`](Self::up), on a device that is open already.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn up_on(&self, open: &OpenInterface, device: Opened) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let routes = self.check(open)?;
        self.start(open, routes, device)
    }

    /// The routes that are asked for; none: those of the host, which keeps the device.
    fn check(&self, open: &OpenInterface) -> Result<Option<Routes>, NetError> {
        let routes = if open.share { None } else { Some(Routes::new(open)?) };
        if open.share && !(open.addresses.is_empty() && open.gateway.is_none()) {
            let text = "a shared device has the addresses and routes of the host; leave out addresses and gateway";
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        if open.rate == Some(0) {
            return Err(NetError::new(
                NetErrorKind::Request,
                "a rate is at least 1 bit a second; leave it out for none",
            ));
        }
        if self.find(&open.device).is_some() {
            let text = format!("`{0}` is up; take it down first: streamline down {0}", open.device);
            return Err(NetError::new(NetErrorKind::InUse, text));
        }
        Ok(routes)
    }

    fn start(&self, open: &OpenInterface, routes: Option<Routes>, mut device: Opened) -> Result<(), NetError> {
        if !MTU.contains(&device.mtu) || device.mac[0] & 1 != 0 || device.mac == [0; 6] {
            let text = format!("`{}` has no MTU from 68 to 65535, or no hardware address of a host", open.device);
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        let (line, desk) = thread::line().map_err(|error| NetError::system("make an eventfd", error))?;
        let (routes, gate, sharing) = match (routes, device.share.take()) {
            (Some(routes), None) => (routes, None, None),
            (None, Some(shared)) => {
                let Some(keeper) = &self.keeper else {
                    return Err(NetError::new(
                        NetErrorKind::System,
                        "there is no process that holds ports of the host",
                    ));
                };
                let gate = Gate::new(&open.device, shared.index, Arc::clone(keeper))?;
                let routes = Routes::of_host(&shared.addresses);
                (routes, Some(gate), Some(Sharing::start(shared, line.clone())?))
            }
            _ => return Err(NetError::new(NetErrorKind::Request, "this device cannot be opened as asked for")),
        };
        let interface = Interface::new(open, routes.clone(), device, sharing);
        // Names of threads have 15 bytes.
        let thread = std::thread::Builder::new().name(format!("net {}", open.device).chars().take(15).collect());
        let thread = thread.spawn(move || thread::run(interface, &desk));
        let thread = thread.map_err(|error| NetError::system("start a thread", error))?;
        let handle = Handle { device: open.device.clone(), routes, gate, line, thread: Mutex::new(Some(thread)) };
        lock(&self.interfaces).push(Arc::new(handle));
        Ok(())
    }

    /// Gives a device up. Its flows end with ENETDOWN.
    ///
    /// # Errors
    ///
    /// `Absent`: it is not up.
    pub fn down(&self, device: &str) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let mut interfaces = lock(&self.interfaces);
        let Some(at) = interfaces.iter().position(|handle| handle.device == device) else {
            return Err(NetError::new(NetErrorKind::Absent, format!("`{device}` is not up")));
        };
        let handle = interfaces.remove(at);
        drop(interfaces);
        handle.stop();
        Ok(())
    }

    /// A client: a process of a user, which may have flows on one interface.
    pub fn client(self: &Arc<Self>, process: i32, user: u32) -> Client {
        let id = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        Client { networks: Arc::clone(self), id, process, user, interface: None, traced: Vec::new() }
    }

    /// Gives a flow of this user another share of the wire (`flow::OpenFlow::share`). `user`: none: a flow of any user. `permit`
    /// says what the user may take of the wire of an interface; none: the user has no flows there.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such flow. `Request`: the text is no share. `Full`: the wire has not so much left, or the user's limit
    /// is reached; the flow keeps its share.
    pub fn share(
        &self,
        user: Option<u32>,
        flow: u64,
        share: &str,
        permit: &dyn Fn(&str) -> Option<ShareLimits>,
    ) -> Result<(), NetError> {
        let mut absent = Err(NetError::new(NetErrorKind::Absent, format!("there is no flow {flow} of yours")));
        for handle in self.all() {
            let (share, Some(limits)) = (share.to_string(), permit(&handle.device)) else { continue };
            match handle.line.ask(|reply| Command::Share { user, flow, share, limits, reply }) {
                Some(Err(error)) if error.kind == NetErrorKind::Absent => absent = Err(error),
                Some(done) => return done,
                None => {}
            }
        }
        absent
    }

    /// All interfaces, in the order in which they came up. `user`: with flows of this user only; none: with all.
    pub fn state(&self, user: Option<u32>) -> Vec<InterfaceState> {
        let ask = |handle: Arc<Handle>| handle.line.ask(|reply| Command::State { user, reply });
        self.all().into_iter().filter_map(ask).collect()
    }

    /// Flows and traces of all users.
    #[cfg(test)]
    pub(crate) fn flows_of_all(&self) -> usize {
        self.users.flows()
    }

    fn all(&self) -> Vec<Arc<Handle>> {
        lock(&self.interfaces).clone()
    }

    fn find(&self, device: &str) -> Option<Arc<Handle>> {
        lock(&self.interfaces).iter().find(|handle| handle.device == device).cloned()
    }

    /// The interface for a flow or listener.
    fn choose(
        &self,
        device: Option<&str>,
        local: SocketAddrV4,
        remote: Option<SocketAddrV4>,
    ) -> Result<Arc<Handle>, NetError> {
        let absent = |text: String| NetError::new(NetErrorKind::Absent, text);
        if let Some(device) = device {
            return self.find(device).ok_or_else(|| {
                absent(format!("`{device}` is not up; as root: streamline net up {device} --addr ADDRESS/BITS"))
            });
        }
        let mut all = self.all();
        if !local.ip().is_unspecified() {
            all.retain(|handle| handle.routes.is_own(*local.ip()));
        }
        if let Some(remote) = remote {
            let best = |handle: &Arc<Handle>| handle.routes.best(*remote.ip());
            let found = all.into_iter().filter(|handle| best(handle).is_some()).max_by_key(best);
            return found.ok_or_else(|| absent(format!("no interface routes to {}; give one a gateway", remote.ip())));
        }
        match <[Arc<Handle>; 1]>::try_from(all) {
            Ok([only]) => Ok(only),
            Err(none) if none.is_empty() => Err(absent(match local.ip().is_unspecified() {
                true => "no interface is up; as root: streamline net up DEVICE --addr ADDRESS/BITS".into(),
                false => format!("no interface has the address {}", local.ip()),
            })),
            Err(_) => {
                Err(NetError::new(NetErrorKind::Request, "several interfaces are up; say which one: device or address"))
            }
        }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for handle in lock(&self.interfaces).drain(..) {
            handle.stop();
        }
    }
}

impl Handle {
    /// Address and port of a flow or listener as they will be, and on a shared device what holds the port.
    fn admit(
        &self,
        protocol: u8,
        local: SocketAddrV4,
        remote: Option<SocketAddrV4>,
        user: u32,
    ) -> Result<(SocketAddrV4, Option<Arc<Reservation>>), NetError> {
        match &self.gate {
            Some(gate) => gate.admit(protocol, local, remote, &self.routes, user),
            None => Ok((local, None)),
        }
    }

    fn stop(&self) {
        let _ = self.line.tell(Command::Down);
        if let Some(thread) = lock(&self.thread).take() {
            // It panicked: there is nothing left of it to stop.
            let _ = thread.join();
        }
    }
}

/// A client's flows. They end when it is dropped.
pub struct Client {
    networks: Arc<Networks>,
    id: u64,
    process: i32,
    user: u32,
    /// Where its flows and doorbells are; none before the first.
    interface: Option<Arc<Handle>>,
    /// Where its traces are.
    traced: Vec<Arc<Handle>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("process", &self.process).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a flow. `permit` says whether the user may have one on an interface, and what of its wire. Beside the answer go the two segments of its channel; with the first flow also the doorbells' three handles.
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
        let limits = permit(&handle.device)?;
        let (into, out) = open.geometry().bytes();
        let place = self.networks.users.take(self.user, into + out)?;
        let (local, reservation) = handle.admit(open.protocol, open.local, open.remote, self.user)?;
        let system = |error| NetError::system("make a channel", error);
        let (driver, segments) = Driver::create(open.geometry()).map_err(system)?;
        let (bells, handles) = self.bells()?;
        let fds = segments.into_iter().chain(handles).collect();
        let opening = Opening {
            open: OpenFlow { local, ..open.clone() },
            client: self.id,
            process: self.process,
            user: self.user,
            limits,
            number: self.number(),
            driver,
            bells,
            place,
            reservation,
        };
        let granted = handle.line.ask(|reply| Command::Open(Box::new(opening), reply));
        let granted = granted.ok_or_else(|| ended(&handle.device))??;
        self.interface = Some(handle);
        Ok((granted, fds))
    }

    /// Opens a listener; `permit` as for [`open`](Self::open). With the first flow or listener the doorbells' three handles go beside the answer.
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
        let limits = permit(&handle.device)?;
        let place = self.networks.users.take(self.user, 0)?;
        let (local, reservation) = handle.admit(TCP, open.local, None, self.user)?;
        let (bells, fds) = self.bells()?;
        let opening = OpeningListener {
            open: OpenListener { local, ..open.clone() },
            client: self.id,
            process: self.process,
            user: self.user,
            limits,
            number: self.number(),
            bells,
            place,
            reservation,
            users: self.networks.users.clone(),
            numbers: Arc::clone(&self.networks.flows),
        };
        let listening = handle.line.ask(|reply| Command::Listen(Box::new(opening), reply));
        let listening = listening.ok_or_else(|| ended(&handle.device))??;
        self.interface = Some(handle);
        Ok((listening, fds))
    }

    /// Accepts connections that wait at the listener of this channel, at most `most` and at most [`flow::ACCEPTED`]. Beside the answer
    /// go two segments for each, in this order.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such listener. `Full`: this client has all the channels that it may have.
    pub fn accept(&mut self, channel: u32, most: u32) -> Result<(Vec<Granted>, Vec<OwnedFd>), NetError> {
        let handle = self.interface.as_ref().ok_or_else(|| absent(channel))?;
        let client = self.id;
        let accepted = handle.line.ask(|reply| Command::Accept { client, channel, most, reply });
        let accepted = accepted.ok_or_else(|| ended(&handle.device))??;
        let (granted, segments): (_, Vec<_>) = accepted.into_iter().unzip();
        Ok((granted, segments.into_iter().flatten().collect()))
    }

    /// The interface for a flow or listener: that of this client's others, if it still is there.
    fn interface_for(
        &mut self,
        device: Option<&str>,
        local: SocketAddrV4,
        remote: Option<SocketAddrV4>,
    ) -> Result<Arc<Handle>, NetError> {
        let handle = self.networks.choose(device, local, remote)?;
        // An interface that went down took the flows and doorbells of this client along.
        let current = self
            .interface
            .take()
            .filter(|own| self.networks.find(&own.device).is_some_and(|listed| Arc::ptr_eq(own, &listed)));
        if let Some(own) = &current
            && !Arc::ptr_eq(own, &handle)
        {
            let text =
                format!("this connection's flows are on `{}`; connect again for `{}`", own.device, handle.device);
            self.interface = current;
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        self.interface = current;
        Ok(handle)
    }

    /// Doorbells, before the first flow or listener of this client, and what its application gets of them.
    fn bells(&self) -> Result<(Option<Bells>, Vec<OwnedFd>), NetError> {
        if self.interface.is_some() {
            return Ok((None, Vec::new()));
        }
        let (bells, handles) = Bells::create().map_err(|error| NetError::system("make doorbells", error))?;
        Ok((Some(bells), Vec::from(handles)))
    }

    fn number(&self) -> u64 {
        self.networks.flows.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Traces the flow of this number (`flow::Question::Trace`). `user`: it must be one of this user; none: of any. Beside the answer go
    /// the two segments of the trace's channel and its doorbells' three handles. The trace ends with this client, and with the flow.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such flow. `Full`: it has as many traces as it may have, or a quota is reached. `System`: the kernel failed.
    pub fn trace(&mut self, user: Option<u32>, flow: u64, snap: u32) -> Result<(Granted, Vec<OwnedFd>), NetError> {
        let geometry = flow::TRACE_GEOMETRY;
        let (into, out) = geometry.bytes();
        let mut absent = NetError::new(NetErrorKind::Absent, format!("there is no flow {flow} of yours"));
        for handle in self.networks.all() {
            let place = self.networks.users.take(self.user, into + out)?;
            let system = |error| NetError::system("make a channel", error);
            let (driver, segments) = Driver::create(geometry).map_err(system)?;
            let (bells, handles) = Bells::create().map_err(|error| NetError::system("make doorbells", error))?;
            let snap = snap as usize;
            let tracing = Box::new(Tracing { flow, user, client: self.id, snap, driver, bells, place });
            match handle.line.ask(|reply| Command::Trace(tracing, reply)) {
                Some(Ok(granted)) => {
                    self.traced.push(handle);
                    return Ok((granted, segments.into_iter().chain(handles).collect()));
                }
                Some(Err(error)) if error.kind == NetErrorKind::Absent => absent = error,
                Some(Err(error)) => return Err(error),
                None => (),
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
        let client = self.id;
        let closed = handle.line.ask(|reply| Command::Close { client, channel, reply });
        closed.unwrap_or_else(|| Err(ended(&handle.device)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for handle in self.interface.iter().chain(&self.traced) {
            let client = self.id;
            // The interface may be down: then the flows ended with it.
            let _ = handle.line.ask(|reply| Command::Leave { client, reply });
        }
    }
}
