//! All interfaces of a daemon, each in its own process. The daemon checks permissions, and holds ports of the host.

use crate::client::Client;
use crate::cookies::Secret;
use crate::error::{NetError, NetErrorKind};
use crate::limits::{CLAIM, STATE, STATE_LEAST};
use crate::open::LOOPBACK;
use crate::process::handle::{Process, Starter, lock};
use crate::process::ledger::{Claimed, Held, identity};
use crate::process::message::{Act, Order, Start, Word};
use crate::process::news::{Line, News};
use crate::process::talk::Running;
use crate::routes::Routes;
use crate::share::ShareLimits;
use crate::sharing::gate::{self, Gate};
use crate::sharing::keeper::{PortKeeper, Reservation};
use crate::users::Users;
use driver::counters::{LinkCounters, SoftnetCounters};
use driver::link::{self, Link};
use driver::namespace::Namespace;
use flow::{Change, InterfaceState, OpenInterface};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a new daemon waits for interfaces of an earlier one, before it makes a device an interface.
const SETTLE: Duration = Duration::from_millis(500);

/// An interface as the daemon sees it.
pub(crate) struct Handle {
    pub(crate) process: Arc<Process>,
    /// For a device that the host keeps.
    pub(crate) gate: Option<Gate>,
    /// The device's counters when it came up, and the namespace to read them in. `None`: the kernel does not tell.
    before: Mutex<Option<Before>>,
}

struct Before {
    namespace: Namespace,
    link: Link,
    softnet: Option<SoftnetCounters>,
}

/// All interfaces of a daemon. Their processes outlive it for a while, and connect to the next daemon.
pub struct Networks {
    interfaces: Mutex<Vec<Arc<Handle>>>,
    /// Held while an interface comes or goes.
    changing: Mutex<()>,
    pub(crate) users: Users,
    /// Starts interface processes. `None`: there are no interfaces.
    starter: Option<Arc<dyn Starter>>,
    /// Holds ports of the host. `None`: no device can be shared.
    keeper: Option<Arc<PortKeeper>>,
    /// Where processes find this daemon and the next one. Empty: nowhere.
    control: String,
    clients: AtomicU64,
    blocks: Arc<AtomicU64>,
    began: Instant,
    news: Arc<News>,
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|handle| handle.process.device())).finish()
    }
}

impl Default for Networks {
    fn default() -> Networks {
        Networks::new()
    }
}

impl Networks {
    /// No interfaces, and no way to make any.
    pub fn new() -> Networks {
        Networks {
            interfaces: Mutex::default(),
            changing: Mutex::default(),
            users: Users::default(),
            starter: None,
            keeper: None,
            control: String::new(),
            // Clients of an earlier daemon have other numbers.
            clients: AtomicU64::new(RandomState::new().hash_one(0) >> 1),
            blocks: Arc::default(),
            began: Instant::now(),
            news: Arc::default(),
        }
    }

    /// No interfaces yet. `starter` starts their processes. `keeper` holds ports for flows on shared devices; `None`:
    /// there are no such devices. `control`: the daemon's socket, by which processes find the next daemon.
    pub fn with(starter: Arc<dyn Starter>, keeper: Option<Arc<PortKeeper>>, control: &Path) -> Networks {
        let control = control.to_str().unwrap_or_default().into();
        Networks { starter: Some(starter), keeper, control, ..Networks::new() }
    }

    /// Takes ownership of a device in the namespace where processes start, and starts a process for it. Switches the
    /// device on. If a packet socket reads it, also switches off its offloads, which would join packets.
    /// [`down`](Self::down) undoes neither.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such device. `InUse`: it is already up, or has addresses in the kernel. `Denied`: this
    /// needs rights. `Request`: addresses, gateway, rate or `how` are invalid. `System`: the kernel failed.
    pub fn up(&self, open: &OpenInterface) -> Result<(), NetError> {
        if !self.control.is_empty() {
            // The device may belong to a process that is about to connect.
            std::thread::sleep(SETTLE.saturating_sub(self.began.elapsed()));
        }
        let _changing = lock(&self.changing);
        let table = self.check(open)?.map(|routes| routes.table()).unwrap_or_default();
        let Some(starter) = &self.starter else {
            return Err(NetError::new(NetErrorKind::System, "this daemon starts no processes for interfaces"));
        };
        if open.share && self.keeper.is_none() {
            return Err(NetError::new(NetErrorKind::System, "there is no process that holds ports of the host"));
        }
        let secret = Secret::default();
        let start = Start {
            open: open.clone(),
            table,
            mac: None,
            secret: (secret.0, secret.1),
            block: self.blocks.fetch_add(1, Ordering::Relaxed),
            restarts: 0,
            control: self.control.clone(),
        };
        let process = Process::start(starter, start, &self.news, &self.blocks)?;
        self.put(process, open)
    }

    /// Takes over the interface of a process that lost its daemon. `socket` is its connection. The process reports
    /// everything, and its applications have some seconds to claim their flows.
    ///
    /// If the device already is an interface, or the report is invalid, its flows end, and the administrator is told.
    pub fn adopt(&self, socket: OwnedFd) {
        if let Err(error) = self.try_adopt(socket) {
            self.news.tell(format!("an interface's process that came from another daemon is refused: {}", error.text));
        }
    }

    fn try_adopt(&self, socket: OwnedFd) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let Some(starter) = &self.starter else {
            return Err(NetError::new(NetErrorKind::System, "this daemon starts no processes for interfaces"));
        };
        let process = buffer::control::peer::process(socket.as_fd()).ok();
        let process = Process::adopt(Running { socket, process }, starter, &self.control, &self.news, &self.blocks)?;
        let open = process.open();
        if let Err(error) = self.check_free(&open.device).and_then(|()| self.put(Arc::clone(&process), &open)) {
            process.down();
            return Err(error);
        }
        self.blocks.fetch_max(process.block() + 1, Ordering::Relaxed);
        let flows = self.take_back(&process);
        self.news.tell(format!(
            "{}: the interface goes on from an earlier daemon, with {flows} flows and listeners",
            open.device
        ));
        let late = Arc::clone(&process);
        let thread = std::thread::Builder::new().name("net claims".into());
        let wait = move || {
            std::thread::sleep(CLAIM);
            let unclaimed = lock(&late.ledger).unclaimed();
            for client in unclaimed {
                late.forget(client);
            }
        };
        thread.spawn(wait).map_err(|error| NetError::system("start a thread", error))?;
        Ok(())
    }

    /// Gives the flows of such a process places in their users' quotas, and ports of the host. Returns their number.
    fn take_back(&self, process: &Process) -> usize {
        let handle = self.find(&process.device());
        let gate = handle.as_ref().and_then(|handle| handle.gate.as_ref());
        let held = lock(&process.ledger).held();
        let count = held.len();
        for Held { number, user, bytes, port } in held {
            let permit = self.users.take_all_the_same(user, bytes);
            let reservation = gate.zip(port).and_then(|(gate, (protocol, local))| match gate.hold(protocol, local) {
                Ok(reservation) => Some(reservation),
                Err(error) => {
                    let text = format!("{}: flow {number} goes on without its port: {}", process.device(), error.text);
                    self.news.tell_of_flow(text);
                    None
                }
            });
            lock(&process.ledger).give(number, Some(permit), reservation);
        }
        count
    }

    /// The interface's addresses and routes. `None`: those of the host, which keeps the device.
    fn check(&self, open: &OpenInterface) -> Result<Option<Routes>, NetError> {
        let routes = if open.share { None } else { Some(Routes::new(open)?) };
        if open.share && !(open.addresses.is_empty() && open.gateways.is_empty()) {
            let text = "a shared device has the addresses and routes of the host; leave out addresses and gateways";
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        if open.dhcp && (open.share || open.how.as_deref() == Some(LOOPBACK)) {
            let text =
                "no server gives addresses to a shared device or to an interface without a device; leave out --dhcp";
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        if open.rate == Some(0) {
            return Err(NetError::new(
                NetErrorKind::Request,
                "a rate is at least 1 bit a second; leave it out for none",
            ));
        }
        self.check_free(&open.device)?;
        Ok(routes)
    }

    fn check_free(&self, device: &str) -> Result<(), NetError> {
        match self.find(device) {
            None => Ok(()),
            Some(_) => {
                let text = format!("`{device}` is up; take it down first: streamline net down {device}");
                Err(NetError::new(NetErrorKind::InUse, text))
            }
        }
    }

    /// Lists the interface of a process.
    fn put(&self, process: Arc<Process>, open: &OpenInterface) -> Result<(), NetError> {
        let gate = match (&process.shared, &self.keeper) {
            (None, _) => Ok(None),
            (Some((index, _)), Some(keeper)) => Gate::new(&open.device, *index, Arc::clone(keeper)).map(Some),
            (Some(_), None) => {
                let text = "there is no process that holds ports of the host";
                Err(NetError::new(NetErrorKind::System, text))
            }
        };
        let gate = gate.inspect_err(|_| process.down())?;
        let before = Mutex::new(Before::now(&open.device));
        lock(&self.interfaces).push(Arc::new(Handle { process, gate, before }));
        Ok(())
    }

    /// Gives a device back. Its flows end with ENETDOWN.
    ///
    /// # Errors
    ///
    /// `Absent`: it is not up.
    pub fn down(&self, device: &str) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let handle = self.find_up(device)?;
        lock(&self.interfaces).retain(|other| !Arc::ptr_eq(other, &handle));
        handle.process.down();
        Ok(())
    }

    /// Changes addresses or routes of an interface. Its flows go on. Flows of a removed address wait a minute for its return.
    ///
    /// # Errors
    ///
    /// `Absent`: the interface is not up. `Request`: the change is invalid, or the host has the addresses and routes.
    pub fn change(&self, device: &str, change: &Change) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        self.find_up(device)?.process.ask(&Order::Act(Act::Change(change.clone()))).map(drop)
    }

    /// Moves an interface to another device, with addresses, routes, flows and listeners. The interface opens `other`
    /// in the same way as `device`, which the host gets back. An error changes nothing.
    ///
    /// # Errors
    ///
    /// As [`up`](Self::up). `Absent`: the interface is not up. `Request`: it shares its device with the host.
    pub fn move_to(&self, device: &str, other: &str) -> Result<(), NetError> {
        let _changing = lock(&self.changing);
        let handle = self.find_up(device)?;
        if handle.gate.is_some() {
            let text = format!(
                "`{device}` is shared with the host, whose addresses stay there; an interface of its own can move"
            );
            return Err(NetError::new(NetErrorKind::Request, text));
        }
        self.check_free(other)?;
        handle.process.move_to(other)?;
        *lock(&handle.before) = Before::now(other);
        Ok(())
    }

    /// A client: a process of a user, which may have flows on one interface.
    pub fn client(self: &Arc<Self>, process: i32, user: u32) -> Client {
        let id = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        Client::new(Arc::clone(self), id, process, user)
    }

    /// The client of an earlier daemon whose doorbell page is `page`: a returning application proves by this descriptor
    /// that the flows are its own. It keeps those of its channels that it lists.
    ///
    /// # Errors
    ///
    /// `Absent`: no flows of this user with such doorbells are unclaimed; their process may still connect. `Denied`:
    /// `permit` refuses.
    pub fn claim(
        self: &Arc<Self>,
        process: i32,
        user: u32,
        page: &OwnedFd,
        known: &[u32],
        permit: &dyn Fn(&str) -> Result<ShareLimits, NetError>,
    ) -> Result<Client, NetError> {
        let absent =
            || NetError::new(NetErrorKind::Absent, "no flows of yours with these doorbells wait to be claimed");
        let page = identity(page).ok_or_else(absent)?;
        for handle in self.all() {
            let Some(Claimed { client, channels }) = lock(&handle.process.ledger).claim(page, user) else { continue };
            let mut claimed = Client::new(Arc::clone(self), client, process, user);
            claimed.goes_on(&handle);
            // If the policy now forbids the flows, they end with the client.
            permit(&handle.process.device())?;
            for channel in channels.into_iter().filter(|channel| !known.contains(channel)) {
                // The answer about it was lost with the earlier daemon.
                let _ = claimed.close(channel);
            }
            return Ok(claimed);
        }
        Err(absent())
    }

    /// Gives a flow of this user another share of the wire (`flow::OpenFlow::share`). `user`: `None`: a flow of any
    /// user. `permit` returns the user's limits on an interface; `None`: the user has no flows there.
    ///
    /// # Errors
    ///
    /// `Absent`: there is no such flow. `Request`: the text is no share. `Full`: the wire has too little left, or the
    /// user's limit is reached; the flow keeps its share.
    pub fn share(
        &self,
        user: Option<u32>,
        flow: u64,
        share: &str,
        permit: &dyn Fn(&str) -> Option<ShareLimits>,
    ) -> Result<(), NetError> {
        let mut absent = Err(NetError::new(NetErrorKind::Absent, format!("there is no flow {flow} of yours")));
        for handle in self.all() {
            let Some(limits) = permit(&handle.process.device()) else { continue };
            match handle.process.ask(&Order::Act(Act::Share(user, flow, share.into(), limits))) {
                Err(error) if error.kind == NetErrorKind::Absent => absent = Err(error),
                done => return done.map(drop),
            }
        }
        absent
    }

    /// All interfaces, in the order in which they came up. `user`: only this user's flows; `None`: all flows.
    pub fn state(&self, user: Option<u32>) -> Vec<InterfaceState> {
        // They share the time: several that do not answer cost little more than one.
        let deadline = Instant::now() + STATE;
        let ask = |handle: &Arc<Handle>| handle.state(user, deadline.max(Instant::now() + STATE_LEAST));
        self.all().iter().filter_map(ask).collect()
    }

    /// Lines for the administrator since the last call.
    pub fn news(&self) -> Vec<Line> {
        self.news.take()
    }

    /// Readable while there are [news](Self::news). `None`: there is no such descriptor.
    pub fn news_fd(&self) -> Option<BorrowedFd<'_>> {
        self.news.fd()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        let mut interfaces = lock(&self.interfaces);
        interfaces.retain(|handle| !handle.process.is_over());
        interfaces.clone()
    }

    fn find_up(&self, device: &str) -> Result<Arc<Handle>, NetError> {
        self.find(device).ok_or_else(|| NetError::new(NetErrorKind::Absent, format!("`{device}` is not up")))
    }

    pub(crate) fn find(&self, device: &str) -> Option<Arc<Handle>> {
        self.all().into_iter().find(|handle| handle.process.device() == device)
    }

    /// Chooses the interface for a flow or listener.
    pub(crate) fn choose(
        &self,
        device: Option<&str>,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<Arc<Handle>, NetError> {
        let is_ipv6 = local.is_ipv6() || remote.is_some_and(|remote| remote.is_ipv6());
        let absent = |text: String| {
            let all = self.all();
            let shared = all.iter().find(|handle| handle.gate.is_some()).filter(|_| is_ipv6);
            match shared.filter(|_| !all.iter().any(|handle| handle.process.routes().has_ipv6())) {
                Some(shared) => gate::no_ipv6(&shared.process.device()),
                None => NetError::new(NetErrorKind::Absent, text),
            }
        };
        if let Some(device) = device {
            return self.find(device).ok_or_else(|| {
                absent(format!("`{device}` is not up; as root: streamline net up {device} --addr ADDRESS/BITS"))
            });
        }
        let mut all = self.all();
        let has_family = |handle: &Arc<Handle>| handle.process.routes().has_family(local.ip());
        match local.ip() {
            own if !own.is_unspecified() => all.retain(|handle| handle.process.routes().is_own(own)),
            // An unspecified IPv4 address stands for one that suits the peer, or for an IPv6 address if there is no other.
            IpAddr::V4(_) if remote.is_some() || !all.iter().any(has_family) => {}
            _ => all.retain(has_family),
        }
        if let Some(remote) = remote {
            let best = |handle: &Arc<Handle>| handle.process.routes().best(remote.ip());
            let found = all.into_iter().filter(|handle| best(handle).is_some()).max_by_key(best);
            return found.ok_or_else(|| absent(format!("no interface routes to {}; give one a gateway", remote.ip())));
        }
        match <[Arc<Handle>; 1]>::try_from(all) {
            Ok([only]) => Ok(only),
            Err(none) if none.is_empty() => Err(absent(match local.ip() {
                own if !own.is_unspecified() => format!("no interface has the address {own}"),
                IpAddr::V6(_) if !self.all().is_empty() => {
                    "no interface has an address of IPv6; give one when it comes up (--addr)".into()
                }
                _ => "no interface is up; as root: streamline net up DEVICE --addr ADDRESS/BITS".into(),
            })),
            Err(_) => {
                Err(NetError::new(NetErrorKind::Request, "several interfaces are up; say which one: device or address"))
            }
        }
    }
}

impl Before {
    /// The counters in this thread's network namespace.
    fn now(device: &str) -> Option<Before> {
        let namespace = Namespace::current().ok()?;
        let link = link::find(device).ok()??;
        Some(Before { namespace, link, softnet: SoftnetCounters::read().ok() })
    }

    /// The kernel's counters since then.
    fn counters(&self) -> Vec<(String, u64)> {
        let links = self.namespace.enter(link::list).and_then(|links| links).unwrap_or_default();
        let now = links.into_iter().find(|link| link.index == self.link.index).map(|link| link.counters);
        let since = |now: LinkCounters| now.since(&self.link.counters).all().collect::<Vec<_>>();
        let softnet = self.softnet.as_ref().zip(SoftnetCounters::read().ok());
        let softnet = softnet.into_iter().flat_map(|(before, now)| now.since(before).all());
        let counters = now.into_iter().flat_map(since).chain(softnet);
        counters.map(|counter| (counter.name.to_string(), counter.value)).collect()
    }
}

impl Handle {
    /// The final address and port of a flow or listener. On a shared device also the reservation of the port.
    pub(crate) fn admit(
        &self,
        protocol: u8,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        user: u32,
    ) -> Result<(SocketAddr, Option<Arc<Reservation>>), NetError> {
        match &self.gate {
            Some(gate) => gate.admit(protocol, local, remote, &self.process.routes(), user),
            None => Ok((local, None)),
        }
    }

    /// The state of an interface whose process does not answer, as far as the daemon knows it.
    fn silent(&self) -> InterfaceState {
        let (open, routes) = (self.process.open(), self.process.routes());
        InterfaceState {
            device: open.device,
            how: open.how.unwrap_or_default(),
            mac: self.process.mac().unwrap_or_default(),
            mtu: 0,
            addresses: routes.addresses().to_vec(),
            rate: open.rate,
            is_shared: open.share,
            trouble: Some(
                "its process does not answer now; if it does not come back, take the interface down and up".into(),
            ),
            away: Vec::new(),
            lease: None,
            counters: Vec::new(),
            flows: Vec::new(),
            listeners: Vec::new(),
            neighbours: Vec::new(),
            routes: routes.state(),
        }
    }

    /// The process's state, with two counts of the daemon: the device's own counters, and the processes that ended.
    fn state(&self, user: Option<u32>, deadline: Instant) -> Option<InterfaceState> {
        let asked = self.process.ask_until(&Order::Act(Act::State(user)), deadline);
        let mut state = match asked.map(|answer| answer.word) {
            Some(Word::Answer(flow::Answer::State(mut state))) => state.pop()?,
            Some(_) => return None,
            None if self.process.is_over() => return None,
            None => self.silent(),
        };
        state.counters.push(("process.restarts".into(), self.process.restarts()));
        state.counters.extend(lock(&self.before).iter().flat_map(Before::counters));
        Some(state)
    }
}
