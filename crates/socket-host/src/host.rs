//! The host: answers questions, and gives each socket its turn.

use crate::address::HostAddress;
use crate::asks::{Asker, Desk, send};
use crate::datagrams::{self, LONGEST, Packets};
use crate::doors::{self, Came, Door};
use crate::ends::{drain, fill, has_hung_up, pair};
use crate::families::{Own, any, plain};
use crate::interfaces::Interfaces;
use crate::policy::{Policy, Protocol};
use crate::poll::Poll;
use crate::proxy::{Proxy, Pumped};
use crate::remains::Remains;
use crate::settings::Settings;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use socket::errno_of;
use socket::net::{Options, TcpStream};
use socket_calls::{ADDRESS, Answer, Ask, Call, NOWHERE, Setting, address_bytes, form};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Numbers of watched descriptors. Sockets and questions have the following numbers.
const DESK: u64 = 0;
const PROGRAM: u64 = 1;
const FIRST: u64 = 2;

/// How long a host without sockets stays after its program ended: a daemon may be about to open some.
const GRACE: Duration = Duration::from_secs(10);

/// How soon a listener without room for a connection is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// How often a host without events looks for questions.
const LONG: Duration = Duration::from_secs(5);

/// How often the host looks for interfaces that a socket on all addresses is to join.
const LOOK: Duration = Duration::from_millis(400);

/// The most sockets.
const SOCKETS: usize = 1 << 16;

/// A socket of a program.
#[derive(Debug)]
struct Socket {
    inode: u64,
    /// Its own address, as far as it has one, in the program's form.
    own: Own,
    role: Role,
    settings: Settings,
    /// Bytes that keep its end unwritable.
    filled: usize,
}

/// The state of a socket.
#[derive(Debug)]
enum Role {
    /// It has an address. If the program asked for any port, it also holds the chosen one.
    Bound(OwnedFd, Vec<Door>),
    /// Its handshake is running. If the asking program waits for it, `waits` has it, and the program's end.
    Connecting { stream: TcpStream, end: OwnedFd, waits: Option<(Asker, Option<OwnedFd>)> },
    /// It carries bytes.
    Open(Box<Proxy>),
    /// It passes connections of a port to the program.
    Listening { port: u64, end: OwnedFd },
    /// It carries datagrams.
    Datagrams(Box<Packets>),
}

/// A port at which a program listens, by one socket or several (`SO_REUSEPORT`).
#[derive(Debug)]
struct Port {
    own: Own,
    options: Options,
    /// Its sockets; the next connection is for the first one.
    members: VecDeque<u64>,
    /// By number.
    doors: Vec<(u64, Door)>,
    /// For no socket of the port has room.
    held: Option<Came>,
}

/// The host.
#[derive(Debug)]
pub struct Host {
    desk: Desk,
    poll: Poll,
    interfaces: Interfaces,
    options: Options,
    sockets: HashMap<u64, Socket>,
    by_inode: HashMap<u64, u64>,
    /// Sockets with more work than one turn.
    busy: VecDeque<u64>,
    /// Sockets that hold bytes back for a while.
    holding: Vec<u64>,
    ports: HashMap<u64, Port>,
    /// The port of each door.
    doors: HashMap<u64, u64>,
    looked: Instant,
    remains: Remains,
    /// Buffer for a datagram.
    space: Vec<u8>,
    next: u64,
    /// Try listeners, or questions, again after a while.
    again: bool,
    /// Readable once the program has ended.
    _program: OwnedFd,
    /// When the program ended.
    ended: Option<Instant>,
}

impl Host {
    /// A host at an address, for the process of this handle (pidfd). The policy selects the sockets that become flows.
    ///
    /// # Errors
    ///
    /// Errors of the kernel and of the daemon.
    pub fn new(
        address: &HostAddress,
        listener: OwnedFd,
        program: OwnedFd,
        options: Options,
        policy: Policy,
    ) -> io::Result<Host> {
        // Each socket takes four file descriptors. If the higher limit is refused, the present one must do.
        let files = rustix::process::getrlimit(Resource::Nofile);
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
        let poll = Poll::new()?;
        let desk = Desk::new(listener, address.secret);
        poll.add(desk.fd(), DESK)?;
        poll.add(program.as_fd(), PROGRAM)?;
        Ok(Host {
            desk,
            poll,
            interfaces: Interfaces::new(&options.daemon, options.device.clone(), policy),
            options,
            sockets: HashMap::new(),
            by_inode: HashMap::new(),
            busy: VecDeque::new(),
            holding: Vec::new(),
            ports: HashMap::new(),
            doors: HashMap::new(),
            looked: Instant::now(),
            remains: Remains::default(),
            space: vec![0; LONGEST],
            next: FIRST,
            again: false,
            _program: program,
            ended: None,
        })
    }

    /// Serves until the program has ended and has no socket left. The runtime sends the remaining bytes of flows. It
    /// may keep this process alive for at most a minute (`socket::net`).
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn run(&mut self) -> io::Result<()> {
        let mut keys = Vec::new();
        loop {
            let timeout = match (self.busy.is_empty(), self.ended) {
                (false, _) => Some(Duration::ZERO),
                (true, Some(ended)) if self.sockets.is_empty() => {
                    if ended.elapsed() >= GRACE {
                        return Ok(());
                    }
                    Some(GRACE.saturating_sub(ended.elapsed()))
                }
                _ => None,
            };
            let is_soon = self.again || !self.holding.is_empty();
            let timeout = if is_soon { timeout.unwrap_or(AGAIN).min(AGAIN) } else { timeout.unwrap_or(LONG) };
            let joins = self.ports.values().any(|port| port.own.is_any());
            let timeout = if joins { timeout.min(LOOK) } else { timeout };
            self.poll.wait(&mut keys, Some(timeout))?;
            if joins && self.looked.elapsed() >= LOOK {
                self.join();
            }
            // Accept even without an event: the last attempt may have lacked a file descriptor.
            self.accept_questions();
            if std::mem::take(&mut self.again) {
                keys.extend(self.doors.keys());
            }
            self.busy.extend(self.holding.drain(..));
            for key in keys.drain(..) {
                match key {
                    DESK => {}
                    PROGRAM => self.ended = self.ended.or(Some(Instant::now())),
                    door if self.doors.contains_key(&door) => self.give(door),
                    key => match self.desk.read(key) {
                        Some((ask, asker)) => self.answer(&ask, asker),
                        None => self.turn(key),
                    },
                }
            }
            for _ in 0..self.busy.len() {
                if let Some(key) = self.busy.pop_front() {
                    self.turn(key);
                }
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn accept_questions(&mut self) {
        loop {
            let number = self.number();
            let Some(line) = self.desk.accept(number) else { return };
            // If the question has already come, the first look of `epoll` finds it.
            if self.poll.add(line, number).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, ask: &Ask, asker: Asker) {
        let known = self.by_inode.get(&ask.inode).copied();
        match (ask.call, known) {
            (Call::Connect, key) => self.connect(ask, key, asker),
            (Call::Bind, _) => self.bind(ask, asker),
            (Call::Listen, Some(key)) => {
                let answer = self.listen(key, ask.number).map_or_else(Answer::no, |()| Answer::YES);
                asker.answer(answer, None);
            }
            (Call::Datagrams, _) => self.give_datagrams(ask, None, asker),
            (Call::Peered, Some(key)) => self.change_peer(key, ask.address, asker),
            (Call::Peered, None) if ask.inode == 0 => self.give_datagrams(ask, Some(ask.address), asker),
            (_, Some(key)) => {
                let answer = self.about(key, ask);
                asker.answer(answer, None);
            }
            (Call::Error | Call::Ended, None) => asker.answer(Answer::no(self.remains.take(ask.inode)), None),
            (_, None) => asker.answer(Answer::no(Errno::NOTCONN.raw_os_error()), None),
        }
    }

    /// Answers a question about an existing socket.
    fn about(&mut self, key: u64, ask: &Ask) -> Answer {
        let Some(socket) = self.sockets.get_mut(&key) else { return Answer::no(Errno::BADF.raw_os_error()) };
        match ask.call {
            Call::Name => match socket.name(&self.options, &mut self.interfaces) {
                Ok(address) => Answer { address, ..Answer::YES },
                Err(error) => Answer::no(errno_of(&error)),
            },
            Call::Peer => {
                let peer = match &socket.role {
                    Role::Open(proxy) => proxy.stream.peer_addr().ok(),
                    Role::Datagrams(packets) => packets.peer,
                    _ => None,
                };
                let no = Answer::no(Errno::NOTCONN.raw_os_error());
                peer.map_or(no, |peer| Answer { address: socket.own.form(peer), ..Answer::YES })
            }
            Call::Error => match &mut socket.role {
                Role::Datagrams(packets) => Answer::no(packets.take_error()),
                _ => Answer::YES,
            },
            Call::Ended => match &mut socket.role {
                Role::Open(proxy) => Answer::no(proxy.errno()),
                Role::Datagrams(packets) => Answer::no(packets.ended()),
                _ => Answer::YES,
            },
            Call::Set | Call::Get => {
                let Some(setting) = socket.setting(ask.number) else {
                    return Answer::no(Errno::NOPROTOOPT.raw_os_error());
                };
                if ask.call == Call::Get {
                    return Answer { number: socket.settings.get(setting), ..Answer::YES };
                }
                socket.settings.set(setting, ask.value);
                socket.apply();
                // It may have held bytes back.
                self.busy.push_back(key);
                Answer::YES
            }
            Call::Info => {
                let number = if ask.number == 1 { i64::from(socket.own.is_v6_only) } else { socket.state() };
                Answer { number, address: socket.own.address, ..Answer::YES }
            }
            _ => Answer::YES,
        }
    }

    /// Gives a UDP socket: bound to this address, or with this peer.
    fn give_datagrams(&mut self, ask: &Ask, peer: Option<SocketAddr>, asker: Asker) {
        let no = |asker: Asker, errno: i32| asker.answer(Answer::no(errno), None);
        let is_bound = peer.is_none() && ask.number != 1;
        let device = self.interfaces.route(Protocol::Udp, ask.address).filter(|_| !is_bound);
        let own = Own {
            address: if is_bound { ask.address } else { any(ask.address) },
            is_v6_only: ask.value & form::V6_ONLY != 0,
        };
        if if is_bound { !self.interfaces.have(Protocol::Udp, own) } else { device.is_none() } {
            return no(asker, Errno::NOSYS.raw_os_error());
        }
        if self.sockets.len() >= SOCKETS {
            return no(asker, Errno::NOBUFS.raw_os_error());
        }
        let opened = self.open_datagrams(device, own, peer, Settings::default()).map_err(|error| errno_of(&error));
        asker.answer(
            opened.as_ref().map_or_else(|errno| Answer::no(*errno), |_| Answer::YES),
            opened.as_ref().ok().map(AsFd::as_fd),
        );
    }

    /// Opens flows for datagrams. Returns the program's end.
    fn open_datagrams(
        &mut self,
        device: Option<String>,
        own: Own,
        peer: Option<SocketAddr>,
        settings: Settings,
    ) -> io::Result<OwnedFd> {
        let locals = match peer {
            Some(peer) => Vec::from_iter(own.facing(peer)),
            None => self.interfaces.behind(own, device.as_deref()),
        };
        let sockets = datagrams::open(&self.options, device.as_deref(), &locals, peer)?;
        let pair = pair(false)?;
        let packets = Packets::new(sockets, own, device, peer, pair.ours);
        let local = packets.local().unwrap_or(NOWHERE);
        // As in the kernel, an unconnected socket that was bound to no address has none.
        let address = if peer.is_some() { own.form(local) } else { SocketAddr::new(own.address.ip(), local.port()) };
        let key = self.number();
        let socket = Socket::new(pair.inode, Own { address, ..own }, Role::Datagrams(Box::new(packets)));
        self.insert(key, Socket { settings, ..socket });
        Ok(pair.theirs)
    }

    /// Gives a UDP socket another peer, or none, with a new end and flow: only a flow with a peer gets errors.
    fn change_peer(&mut self, key: u64, peer: SocketAddr, asker: Asker) {
        let no = |asker: Asker, errno: i32| asker.answer(Answer::no(errno), None);
        let peer = Some(peer).filter(|peer| *peer != NOWHERE);
        let known = self.sockets.get(&key).map(|socket| (&socket.role, socket.settings));
        let Some((Role::Datagrams(packets), settings)) = known else {
            return no(asker, Errno::INVAL.raw_os_error());
        };
        if packets.peer == peer.map(plain) {
            return asker.answer(Answer::YES, None);
        }
        let Some(local) = packets.local() else { return no(asker, Errno::INVAL.raw_os_error()) };
        let own = Own { address: SocketAddr::new(packets.own.address.ip(), local.port()), ..packets.own };
        // The route to a peer determines the interface.
        let device = packets.device.clone().filter(|_| peer.is_none());
        if let Some(peer) = peer
            && own.facing(peer).is_none()
        {
            return no(asker, Errno::AFNOSUPPORT.raw_os_error());
        }
        // If it had this peer before, the earlier flow may be about to end.
        let is_it = |socket: &Socket| matches!(&socket.role, Role::Datagrams(packets) if packets.peer == peer.map(plain) && packets.local() == Some(local));
        let earlier: Vec<u64> = self.sockets.iter().filter(|(_, socket)| is_it(socket)).map(|(key, _)| *key).collect();
        earlier.into_iter().for_each(|key| self.turn(key));
        // The old flow goes on until the program has closed the old end everywhere, and everything is sent.
        match self.open_datagrams(device, own, peer, settings) {
            Ok(theirs) => asker.answer(Answer::YES, Some(theirs.as_fd())),
            Err(error) => no(asker, errno_of(&error)),
        }
    }

    fn connect(&mut self, ask: &Ask, key: Option<u64>, asker: Asker) {
        let no = |asker: Asker, errno: Errno| asker.answer(Answer::no(errno.raw_os_error()), None);
        let waits = ask.number == 0;
        let (mut own, mut bound, mut settings) = (Own::towards(ask.address), None, Settings::with_marks(ask.value));
        if let Some(key) = key {
            let Some(socket) = self.sockets.get_mut(&key) else { return no(asker, Errno::BADF) };
            match &mut socket.role {
                Role::Open(_) => return no(asker, Errno::ISCONN),
                Role::Listening { .. } => return no(asker, Errno::ISCONN),
                Role::Connecting { waits: None, .. } if !waits => return no(asker, Errno::ALREADY),
                Role::Connecting { waits: waiting @ None, .. } => {
                    *waiting = Some((asker, None));
                    return;
                }
                Role::Connecting { .. } => return no(asker, Errno::ALREADY),
                Role::Datagrams(_) => return no(asker, Errno::INVAL),
                Role::Bound(_, reserved) => {
                    (own, bound, settings) = (socket.own, Some(key), socket.settings);
                    reserved.clear();
                }
            }
        } else {
            // Its connection failed. That is reported once, and then it may try again.
            match self.remains.take(ask.inode) {
                0 => {}
                errno => return asker.answer(Answer::no(errno), None),
            }
            if self.interfaces.route(Protocol::Tcp, ask.address).is_none() {
                return no(asker, if ask.inode == 0 { Errno::NOSYS } else { Errno::NETUNREACH });
            }
        }
        let Some(local) = own.facing(ask.address) else { return no(asker, Errno::AFNOSUPPORT) };
        let given = self.options.local.filter(|given| bound.is_none() && given.is_ipv4() == local.is_ipv4());
        let marks = settings.marks(local.is_ipv4());
        let options = Options { local: given.or(Some(local)), marks, ..self.options.clone() };
        let stream = match TcpStream::start(&options, ask.address) {
            Ok(stream) => stream,
            // After all no interface reaches it.
            Err(error) if bound.is_none() && error.kind() == io::ErrorKind::AddrNotAvailable => {
                return no(asker, Errno::NOSYS);
            }
            Err(error) => return asker.answer(Answer::no(errno_of(&error)), None),
        };
        if let Some(key) = bound {
            let Some(mut socket) = self.sockets.remove(&key) else { return no(asker, Errno::BADF) };
            let Role::Bound(end, _) = socket.role else { return no(asker, Errno::INVAL) };
            let waits = if waits {
                Some((asker, None))
            } else {
                no(asker, Errno::INPROGRESS);
                None
            };
            socket.own.address = own.form(local_of(&stream));
            socket.role = Role::Connecting { stream, end, waits };
            return self.insert(key, socket);
        }
        let pair = match pair(true) {
            Ok(pair) => pair,
            Err(error) => return asker.answer(Answer::no(errno_of(&error)), None),
        };
        let filled = fill(pair.theirs.as_fd());
        let waits = if waits {
            Some((asker, Some(pair.theirs)))
        } else {
            asker.answer(Answer::no(Errno::INPROGRESS.raw_os_error()), Some(pair.theirs.as_fd()));
            None
        };
        let key = self.number();
        let role = Role::Connecting { stream, end: pair.ours, waits };
        self.insert(key, Socket { filled, settings, ..Socket::new(pair.inode, own, role) });
    }

    fn bind(&mut self, ask: &Ask, asker: Asker) {
        let own = Own { address: ask.address, is_v6_only: ask.value & form::V6_ONLY != 0 };
        if !self.interfaces.have(Protocol::Tcp, own) {
            return asker.answer(Answer::no(Errno::NOSYS.raw_os_error()), None);
        }
        let pair = match pair(true) {
            Ok(pair) if self.sockets.len() < SOCKETS => pair,
            _ => return asker.answer(Answer::no(Errno::NOBUFS.raw_os_error()), None),
        };
        let filled = fill(pair.theirs.as_fd());
        asker.answer(Answer::YES, Some(pair.theirs.as_fd()));
        let key = self.number();
        let mut socket = Socket { filled, ..Socket::new(pair.inode, own, Role::Bound(pair.ours, Vec::new())) };
        socket.settings.set(Setting::SharesPort, i64::from(ask.value & form::SHARES_PORT != 0));
        self.insert(key, socket);
    }

    fn listen(&mut self, key: u64, backlog: i64) -> Result<(), i32> {
        let Some(mut socket) = self.sockets.remove(&key) else { return Err(Errno::BADF.raw_os_error()) };
        let Role::Bound(end, reserved) = socket.role else {
            self.sockets.insert(key, socket);
            return Err(Errno::INVAL.raw_os_error());
        };
        let backlog = u32::try_from(backlog).unwrap_or(0).clamp(1, 1024);
        let options = Options { backlog, ..self.options.clone() };
        let shared = self.shared_port(&socket.own, &socket.settings);
        let doors = match reserved.is_empty() {
            true if shared.is_some() => Ok(Vec::new()),
            true => doors::open(&options, &mut self.interfaces, socket.own, &socket.settings),
            false => Ok(reserved),
        };
        let (role, done) = match doors {
            Ok(doors) => {
                // Some programs ask which port they got.
                if let Some(port) = port_of(&doors) {
                    socket.own.address.set_port(port);
                }
                let number = shared.unwrap_or_else(|| self.number());
                let port = self.ports.entry(number).or_insert(Port {
                    own: socket.own,
                    options,
                    members: VecDeque::new(),
                    doors: Vec::new(),
                    held: None,
                });
                port.members.push_back(key);
                self.add_doors(number, doors);
                drain(end.as_fd(), std::mem::take(&mut socket.filled));
                (Role::Listening { port: number, end }, Ok(()))
            }
            Err(error) => (Role::Bound(end, Vec::new()), Err(errno_of(&error))),
        };
        socket.role = role;
        self.insert(key, socket);
        done
    }

    /// The port that a socket shares with earlier ones, if all of them asked for that (`SO_REUSEPORT`).
    fn shared_port(&self, own: &Own, settings: &Settings) -> Option<u64> {
        let shares = |key: &u64| self.sockets.get(key).is_some_and(|socket| socket.settings.is_on(Setting::SharesPort));
        let is_it = |port: &Port| port.own == *own && port.members.iter().all(shares);
        let mut same = self.ports.iter().filter(|(_, port)| settings.is_on(Setting::SharesPort) && is_it(port));
        same.next().map(|(number, _)| *number)
    }

    /// Adds doors to a port, and watches them. One that cannot be watched is closed.
    fn add_doors(&mut self, port: u64, doors: Vec<Door>) {
        for door in doors {
            let number = self.number();
            if self.poll.add(door.fd(), number).is_ok()
                && let Some(known) = self.ports.get_mut(&port)
            {
                known.doors.push((number, door));
                self.doors.insert(number, port);
            }
        }
    }

    /// Opens doors of sockets on all addresses at interfaces, or addresses, that came later.
    fn join(&mut self) {
        self.looked = Instant::now();
        let numbers: Vec<u64> =
            self.ports.iter().filter(|(_, port)| port.own.is_any()).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(port) = self.ports.get(&number) else { continue };
            let first = port.members.front().and_then(|key| self.sockets.get(key));
            let settings = first.map(|socket| socket.settings).unwrap_or_default();
            let doors = doors::join(&port.options, &mut self.interfaces, port.own, &settings, &port.doors);
            self.add_doors(number, doors);
        }
    }

    /// Adds a socket, and watches it.
    fn insert(&mut self, key: u64, mut socket: Socket) {
        socket.apply();
        let is_new = self.by_inode.insert(socket.inode, key) != Some(key);
        if is_new {
            self.remains.forget(socket.inode);
        }
        // The end of a bound socket is already watched when it connects or listens.
        let end = |end: &OwnedFd| if is_new { self.poll.add(end.as_fd(), key) } else { Ok(()) };
        let watched = match &socket.role {
            Role::Bound(own, _) => end(own),
            Role::Datagrams(packets) => {
                packets.bells().try_for_each(|bell| self.poll.add(bell, key)).and_then(|()| end(packets.end()))
            }
            Role::Connecting { stream, end: own, .. } => watch(&self.poll, stream, key).and_then(|()| end(own)),
            Role::Open(proxy) => watch(&self.poll, &proxy.stream, key).and_then(|()| end(proxy.end())),
            // It was watched when it was bound, and so are its doors.
            Role::Listening { .. } => Ok(()),
        };
        self.sockets.insert(key, socket);
        match watched {
            Ok(()) => self.busy.push_back(key),
            Err(_) => self.end(key, Errno::NOBUFS.raw_os_error()),
        }
    }

    /// Gives a socket its turn.
    fn turn(&mut self, key: u64) {
        let Some(socket) = self.sockets.get_mut(&key) else { return };
        match &mut socket.role {
            Role::Bound(end, _) => {
                if has_hung_up(end) {
                    self.end(key, 0);
                }
            }
            Role::Datagrams(packets) => match packets.pump(&mut self.space) {
                Pumped::Rests => {}
                Pumped::More => self.busy.push_back(key),
                Pumped::Over => {
                    let errno = packets.broken();
                    self.end(key, errno);
                }
            },
            Role::Connecting { .. } => self.connected(key),
            Role::Open(proxy) => match proxy.pump(&socket.settings) {
                Pumped::Rests if proxy.holds_back() => self.holding.push(key),
                Pumped::Rests => {}
                Pumped::More => self.busy.push_back(key),
                Pumped::Over => {
                    let errno = proxy.errno();
                    if proxy.was_dropped() {
                        let _ = proxy.stream.set_linger(Some(Duration::ZERO));
                    }
                    self.end(key, errno);
                }
            },
            Role::Listening { port, end } => match has_hung_up(end) {
                true => self.end(key, 0),
                // There may be room again.
                false => {
                    let port = self.ports.get(port);
                    let doors: Vec<u64> =
                        port.into_iter().flat_map(|port| &port.doors).map(|(number, _)| *number).collect();
                    doors.into_iter().for_each(|door| self.give(door));
                }
            },
        }
    }

    /// Checks the state of a handshake.
    fn connected(&mut self, key: u64) {
        let Some(mut socket) = self.sockets.remove(&key) else { return };
        let Role::Connecting { stream, end, waits } = socket.role else { return };
        match stream.handshake() {
            None if has_hung_up(&end) && waits.is_none() => {
                // The program closed it.
                let _ = stream.set_linger(Some(Duration::ZERO));
                self.by_inode.remove(&socket.inode);
            }
            None => {
                socket.role = Role::Connecting { stream, end, waits };
                self.sockets.insert(key, socket);
            }
            Some(Ok(())) => {
                drain(end.as_fd(), std::mem::take(&mut socket.filled));
                socket.own.address = socket.own.form(local_of(&stream));
                if let Some((asker, theirs)) = waits {
                    asker.answer(Answer::YES, theirs.as_ref().map(|fd| fd.as_fd()));
                }
                socket.role = Role::Open(Box::new(Proxy::new(stream, end)));
                socket.apply();
                self.sockets.insert(key, socket);
                self.busy.push_back(key);
            }
            Some(Err(error)) => {
                let errno = errno_of(&error);
                self.by_inode.remove(&socket.inode);
                match waits {
                    Some((asker, _)) => asker.answer(Answer::no(errno), None),
                    None => self.remains.put(socket.inode, errno),
                }
            }
        }
    }

    /// Passes the connections that came by a door to the program, as far as there is room.
    fn give(&mut self, door: u64) {
        while let Some(number) = self.doors.get(&door).copied()
            && let Some(port) = self.ports.get_mut(&number)
        {
            if port.held.is_none() {
                let Some((_, open)) = port.doors.iter().find(|(known, _)| *known == door) else { return };
                port.held = match open.accept() {
                    Ok(came) => Some(came),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    Err(error) if doors::is_shut(&error) => return self.shut(door),
                    // No room for another connection now: try again later.
                    Err(_) => return self.again = true,
                };
            }
            if !self.pass(number) {
                return;
            }
        }
    }

    /// Passes a port's held connection to the first of its sockets that has room. `false`: every socket is full.
    fn pass(&mut self, number: u64) -> bool {
        let members = self.ports.get(&number).map_or(0, |port| port.members.len());
        for _ in 0..members {
            let Some(port) = self.ports.get_mut(&number) else { return false };
            let (Some(key), Some(came)) = (port.members.front().copied(), port.held.take()) else { return true };
            port.members.rotate_left(1);
            let Some(socket) = self.sockets.get(&key) else { continue };
            let Role::Listening { end, .. } = &socket.role else { continue };
            let (own, settings) = (socket.own, socket.settings);
            match came.pass_to(end, own, &settings) {
                Passed::Done(proxied) => {
                    if let Some(proxied) = proxied {
                        let number = self.number();
                        self.insert(number, *proxied);
                    }
                    return true;
                }
                Passed::Later(came) => {
                    if let Some(port) = self.ports.get_mut(&number) {
                        port.held = Some(came);
                    }
                }
            }
        }
        false
    }

    /// A door's interface has gone. A socket without any door keeps waiting for connections: if it hung up, the program
    /// would call accept again and again.
    fn shut(&mut self, door: u64) {
        let Some(number) = self.doors.remove(&door) else { return };
        if let Some(port) = self.ports.get_mut(&number) {
            port.doors.retain(|(known, _)| *known != door);
        }
    }

    /// Ends a socket. The runtime sends the remaining bytes of its flow.
    fn end(&mut self, key: u64, errno: i32) {
        let Some(socket) = self.sockets.remove(&key) else { return };
        self.by_inode.remove(&socket.inode);
        if errno != 0 {
            self.remains.put(socket.inode, errno);
        }
        if let Role::Listening { port, .. } = socket.role {
            self.leave(port, key);
        }
    }

    /// A socket leaves its port. The last one closes all doors.
    fn leave(&mut self, number: u64, key: u64) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.members.retain(|member| *member != key);
        if port.members.is_empty() {
            self.ports.remove(&number);
            self.doors.retain(|_, port| *port != number);
        }
    }
}

/// What became of a connection on its way to the program.
enum Passed {
    /// The program has it, or it is lost: no file descriptor, or no program. A flow goes on as this socket.
    Done(Option<Box<Socket>>),
    /// There is no room.
    Later(Came),
}

impl Came {
    /// Passes a connection to the program by the end of a listening socket.
    fn pass_to(self, end: &OwnedFd, own: Own, settings: &Settings) -> Passed {
        let announce = |local: SocketAddr, peer: SocketAddr, fd: &OwnedFd| {
            let mut message = [0; socket_calls::ACCEPTED];
            message[..ADDRESS].copy_from_slice(&address_bytes(local));
            message[ADDRESS..].copy_from_slice(&address_bytes(peer));
            send(end.as_fd(), &message, Some(fd.as_fd()))
        };
        match self {
            Came::Kernel { socket, own, peer } => {
                settings.apply_to_kernel(&socket, own.is_ipv6());
                match announce(own, peer, &socket) {
                    Err(errno) if crate::ends::is_later(errno) => Passed::Later(Came::Kernel { socket, own, peer }),
                    _ => Passed::Done(None),
                }
            }
            Came::Flow(stream) => {
                // Out of file descriptors: this connection is reset.
                let Ok(pair) = pair(true) else { return Passed::Done(None) };
                let _ = stream.set_nonblocking(true);
                let of_it = Own { address: own.form(local_of(&stream)), ..own };
                match announce(of_it.address, of_it.form(peer_of(&stream)), &pair.theirs) {
                    Ok(_) => {
                        let role = Role::Open(Box::new(Proxy::new(stream, pair.ours)));
                        Passed::Done(Some(Box::new(Socket {
                            settings: *settings,
                            ..Socket::new(pair.inode, of_it, role)
                        })))
                    }
                    Err(errno) if crate::ends::is_later(errno) => Passed::Later(Came::Flow(stream)),
                    Err(_) => Passed::Done(None),
                }
            }
        }
    }
}

impl Socket {
    fn new(inode: u64, own: Own, role: Role) -> Socket {
        Socket { inode, own, role, filled: 0, settings: Settings::default() }
    }

    /// Its own address. A socket that was bound to any port gets one now, and keeps it for a later listen.
    fn name(&mut self, options: &Options, interfaces: &mut Interfaces) -> io::Result<SocketAddr> {
        if let Role::Bound(_, reserved) = &mut self.role
            && self.own.address.port() == 0
        {
            *reserved = doors::open(options, interfaces, self.own, &self.settings)?;
            if let Some(port) = port_of(reserved) {
                self.own.address.set_port(port);
            }
        }
        Ok(self.own.address)
    }

    /// Its state in the kernel's numbers (`TCP_INFO`).
    fn state(&self) -> i64 {
        match &self.role {
            Role::Open(_) => 1,
            Role::Connecting { .. } => 2,
            Role::Bound(..) | Role::Datagrams(_) => 7,
            Role::Listening { .. } => 10,
        }
    }

    /// The option of this number, if a socket of this family has it: an IPv6 socket may reach IPv4, too.
    fn setting(&self, number: i64) -> Option<Setting> {
        let setting = usize::try_from(number).ok().and_then(|number| Setting::ALL.get(number).copied())?;
        let is_of_v6 = matches!(setting, Setting::Class | Setting::Hops);
        (!is_of_v6 || self.own.address.is_ipv6()).then_some(setting)
    }

    /// Sets the options of its flows, if it has some.
    fn apply(&mut self) {
        match &mut self.role {
            Role::Connecting { stream, .. } => self.settings.apply(stream),
            Role::Open(proxy) => self.settings.apply(&proxy.stream),
            Role::Datagrams(packets) => packets.apply(&self.settings),
            Role::Bound(..) | Role::Listening { .. } => {}
        }
    }
}

/// Watches each change of a socket's stream.
fn watch(poll: &Poll, stream: &TcpStream, key: u64) -> io::Result<()> {
    poll.add(stream.as_fd(), key)?;
    poll.add(stream.writable_fd(), key)
}

/// The port of the first door.
fn port_of(doors: &[Door]) -> Option<u16> {
    doors.first().map(|door| door.local().port())
}

fn local_of(stream: &TcpStream) -> SocketAddr {
    stream.local_addr().unwrap_or(NOWHERE)
}

fn peer_of(stream: &TcpStream) -> SocketAddr {
    stream.peer_addr().unwrap_or(NOWHERE)
}
