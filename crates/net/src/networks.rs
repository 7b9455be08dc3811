//! All interfaces of a daemon, and the clients that have flows on them.

use crate::error::{NetError, NetErrorKind};
use crate::interface::Interface;
use crate::manager::Opening;
use crate::open::{self, Opened};
use crate::routes::Routes;
use crate::thread::{self, Command, Line};
use crate::users::Users;
use buffer::flow::{Bells, Driver};
use flow::{Granted, InterfaceState, OpenFlow, OpenInterface};
use std::fmt;
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
    flows: AtomicU64,
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

impl Networks {
    /// No interfaces.
    pub fn new() -> Networks {
        Networks::default()
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

    fn check(&self, open: &OpenInterface) -> Result<Routes, NetError> {
        let routes = Routes::new(open)?;
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

    fn start(&self, open: &OpenInterface, routes: Routes, device: Opened) -> Result<(), NetError> {
        if !MTU.contains(&device.mtu) || device.mac[0] & 1 != 0 || device.mac == [0; 6] {
            let text = format!("`{}` has no MTU from 68 to 65535, or no hardware address of a host", open.device);
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        let (line, desk) = thread::line().map_err(|error| NetError::system("make an eventfd", error))?;
        let interface = Interface::new(open, routes.clone(), device);
        // Names of threads have 15 bytes.
        let thread = std::thread::Builder::new().name(format!("net {}", open.device).chars().take(15).collect());
        let thread = thread.spawn(move || thread::run(interface, &desk));
        let thread = thread.map_err(|error| NetError::system("start a thread", error))?;
        let handle = Handle { device: open.device.clone(), routes, line, thread: Mutex::new(Some(thread)) };
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
        Client { networks: Arc::clone(self), id, process, user, interface: None }
    }

    /// Gives a flow of this user another share of the wire (`flow::OpenFlow::share`). `user`: none: a flow of any user.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such flow. `Request`: the text is no share. `Full`: the wire has not so much left; the flow keeps its
    /// share.
    pub fn share(&self, user: Option<u32>, flow: u64, share: &str) -> Result<(), NetError> {
        let mut absent = Err(NetError::new(NetErrorKind::Absent, format!("there is no flow {flow} of yours")));
        for handle in self.all() {
            let share = share.to_string();
            match handle.line.ask(|reply| Command::Share { user, flow, share, reply }) {
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

    fn all(&self) -> Vec<Arc<Handle>> {
        lock(&self.interfaces).clone()
    }

    fn find(&self, device: &str) -> Option<Arc<Handle>> {
        lock(&self.interfaces).iter().find(|handle| handle.device == device).cloned()
    }

    /// The interface for a flow.
    fn choose(&self, open: &OpenFlow) -> Result<Arc<Handle>, NetError> {
        let absent = |text: String| NetError::new(NetErrorKind::Absent, text);
        if let Some(device) = &open.device {
            return self.find(device).ok_or_else(|| {
                absent(format!("`{device}` is not up; as root: streamline net up {device} --addr ADDRESS/BITS"))
            });
        }
        let mut all = self.all();
        if !open.local.ip().is_unspecified() {
            all.retain(|handle| handle.routes.is_own(*open.local.ip()));
        }
        if let Some(remote) = open.remote {
            let best = |handle: &Arc<Handle>| handle.routes.best(*remote.ip());
            let found = all.into_iter().filter(|handle| best(handle).is_some()).max_by_key(best);
            return found.ok_or_else(|| absent(format!("no interface routes to {}; give one a gateway", remote.ip())));
        }
        match <[Arc<Handle>; 1]>::try_from(all) {
            Ok([only]) => Ok(only),
            Err(none) if none.is_empty() => Err(absent(match open.local.ip().is_unspecified() {
                true => "no interface is up; as root: streamline net up DEVICE --addr ADDRESS/BITS".into(),
                false => format!("no interface has the address {}", open.local.ip()),
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
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("process", &self.process).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a flow. Beside the answer go the two segments of its channel; with the first flow also the doorbells' three handles.
    ///
    /// # Errors
    ///
    /// `Absent`: no such interface, no route. `InUse`: the port is taken. `Denied`: ports below 1024. `Full`: a quota is reached.
    /// `Request`: the flow makes no sense, or is on another interface than this client's others. `System`: the kernel failed.
    pub fn open(&mut self, open: &OpenFlow) -> Result<(Granted, Vec<OwnedFd>), NetError> {
        open.geometry().check().map_err(|error| NetError::new(NetErrorKind::Request, error.to_string()))?;
        let handle = self.networks.choose(open)?;
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
        let (into, out) = open.geometry().bytes();
        let place = self.networks.users.take(self.user, into + out)?;
        let system = |error| NetError::system("make a channel", error);
        let (driver, segments) = Driver::create(open.geometry()).map_err(system)?;
        let mut fds = Vec::from(segments);
        let bells = match &self.interface {
            Some(_) => None,
            None => {
                let (bells, handles) = Bells::create().map_err(|error| NetError::system("make doorbells", error))?;
                fds.extend(handles);
                Some(bells)
            }
        };
        let opening = Opening {
            open: open.clone(),
            client: self.id,
            process: self.process,
            user: self.user,
            number: self.networks.flows.fetch_add(1, Ordering::Relaxed) + 1,
            driver,
            bells,
            place,
        };
        let granted = handle.line.ask(|reply| Command::Open(Box::new(opening), reply));
        let granted = granted.ok_or_else(|| ended(&handle.device))??;
        self.interface = Some(handle);
        Ok((granted, fds))
    }

    /// Closes a flow by the number of its channel. The driver sends the packets in it before, as far as the device has room, and a
    /// few more when their neighbour answers.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such channel.
    pub fn close(&mut self, channel: u32) -> Result<(), NetError> {
        let absent = || NetError::new(NetErrorKind::Absent, format!("this connection has no channel {channel}"));
        let handle = self.interface.as_ref().ok_or_else(absent)?;
        let client = self.id;
        let closed = handle.line.ask(|reply| Command::Close { client, channel, reply });
        closed.unwrap_or_else(|| Err(ended(&handle.device)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(handle) = &self.interface {
            let client = self.id;
            // The interface may be down: then the flows ended with it.
            let _ = handle.line.ask(|reply| Command::Leave { client, reply });
        }
    }
}
