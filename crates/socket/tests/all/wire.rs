//! A test daemon. It grants TCP flows and listeners to any client over a control socket, and carries packets between
//! flows. It has one interface and one address per family, and trusts all requests.

use buffer::control;
use buffer::flow::{Bells, Driver, Geometry};
use capture::CaptureErrorKind;
use capture::protocol::{Answer, PROTOCOL, Question};
use flow::{Granted, Listening, OpenListener};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

pub(crate) struct Wire {
    folder: tempfile::TempDir,
    state: Arc<State>,
}

struct State {
    switch: Mutex<Switch>,
    is_over: AtomicBool,
    /// Channels that each client may have.
    channels: usize,
}

#[derive(Default)]
struct Switch {
    flows: Vec<Flow>,
    listeners: Vec<Listener>,
    /// Answered SYNs by remote and local address: the frame, and the sequence number of the answer.
    half_open: HashMap<(SocketAddr, SocketAddr), (Vec<u8>, u32)>,
    clients: u64,
    bells: HashMap<u64, Bells>,
    numbers: u64,
    packets: u64,
    /// Drops every n-th packet; 0: none.
    loses: u64,
}

struct Flow {
    client: u64,
    channel: Option<u32>,
    driver: Driver,
    local: SocketAddr,
    remote: SocketAddr,
    isn: u32,
}

struct Listener {
    client: u64,
    channel: u32,
    open: OpenListener,
    local: SocketAddr,
    waiting: VecDeque<(Flow, [OwnedFd; 2])>,
}

impl Wire {
    pub(crate) fn new() -> Wire {
        Wire::with_channels(1024)
    }

    pub(crate) fn with_channels(channels: usize) -> Wire {
        let folder = tempfile::tempdir().unwrap();
        let listener =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(folder.path().join("control")).unwrap()).unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        let (switch, is_over) = Default::default();
        let state = Arc::new(State { switch, is_over, channels });
        let carrier = Arc::clone(&state);
        std::thread::spawn(move || carrier.carry());
        let doorman = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Ok((socket, _)) = control::accept(&listener, SocketFlags::empty()) {
                let server = Arc::clone(&doorman);
                std::thread::spawn(move || server.serve(&socket));
            }
        });
        Wire { folder, state }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Drops every `every`-th packet from now on; 0: none.
    pub(crate) fn lose(&self, every: u64) {
        self.state.lock().loses = every;
    }

    pub(crate) fn clients(&self) -> usize {
        self.state.lock().bells.len()
    }

    pub(crate) fn flows(&self) -> usize {
        self.state.lock().flows.len()
    }

    pub(crate) fn packets(&self) -> u64 {
        self.state.lock().packets
    }

    /// Closes all flows, as `net down` does.
    pub(crate) fn down(&self) {
        let mut switch = self.state.lock();
        for mut flow in std::mem::take(&mut switch.flows) {
            flow.driver.close(100);
            switch.ring(flow.client, flow.channel);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap()
    }

    fn serve(&self, socket: &OwnedFd) {
        let client = {
            let mut switch = self.lock();
            switch.clients += 1;
            switch.clients
        };
        while let Ok(Some((question, _))) = control::receive::<Question>(socket) {
            let (answer, fds) = match question {
                Question::Hello(..) => (Answer::Hello(PROTOCOL), vec![]),
                Question::Flows(question) => match self.lock().answer(client, question, self.channels) {
                    Ok((answer, fds)) => (Answer::Flows(answer), fds),
                    Err((kind, text)) => (Answer::Refused(kind, text.into()), vec![]),
                },
                _ => (Answer::Refused(CaptureErrorKind::Cannot, "not here".into()), vec![]),
            };
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if control::send(socket, &answer, &fds).is_err() {
                break;
            }
        }
        let mut switch = self.lock();
        switch.bells.remove(&client);
        // Unfinished connections are reset.
        let (gone, flows) = std::mem::take(&mut switch.flows).into_iter().partition(|flow| flow.client == client);
        switch.flows = flows;
        switch.listeners.retain(|listener| listener.client != client);
        drop(switch);
        drop::<Vec<Flow>>(gone);
    }

    /// Carries packets until the test is over.
    fn carry(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut switch = self.lock();
            let is_idle = !switch.carry();
            drop(switch);
            if is_idle {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

type Answered = Result<(flow::Answer, Vec<OwnedFd>), (CaptureErrorKind, &'static str)>;

impl Switch {
    /// Carries waiting packets; returns whether there were any.
    fn carry(&mut self) -> bool {
        let mut frames = vec![];
        for flow in &mut self.flows {
            for _ in 0..32 {
                let Some(outgoing) = flow.driver.take().unwrap() else { break };
                let mut frame = vec![0; outgoing.len()];
                flow.driver.copy_out(&outgoing, 0, &mut frame);
                flow.driver.done(1);
                frames.push(frame);
            }
        }
        // A closed flow first sends the packets in its channel.
        self.flows.retain(|flow| !flow.driver.is_closed() || flow.driver.waiting() > 0);
        let is_some = !frames.is_empty();
        for mut frame in frames {
            self.packets += 1;
            if self.loses == 0 || !self.packets.is_multiple_of(self.loses) {
                frame[..6].copy_from_slice(&MAC);
                self.route(frame);
            }
        }
        if is_some {
            // An application may be waiting for room.
            let flows: Vec<_> = self.flows.iter().map(|flow| (flow.client, flow.channel)).collect();
            flows.into_iter().for_each(|(client, channel)| self.ring(client, channel));
        }
        is_some
    }

    fn ring(&self, client: u64, channel: Option<u32>) {
        if let (Some(bells), Some(channel)) = (self.bells.get(&client), channel) {
            bells.ring(channel as usize);
        }
    }

    fn channel(&self, client: u64) -> u32 {
        let flows = self.flows.iter().filter(|flow| flow.client == client).filter_map(|flow| flow.channel);
        let listeners = self.listeners.iter().filter(|listener| listener.client == client).map(|each| each.channel);
        let taken: Vec<u32> = flows.chain(listeners).collect();
        (0..).find(|channel| !taken.contains(channel)).unwrap()
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn bells(&mut self, client: u64) -> Vec<OwnedFd> {
        if self.bells.contains_key(&client) {
            return vec![];
        }
        let (bells, handles) = Bells::create().unwrap();
        self.bells.insert(client, bells);
        handles.into()
    }

    /// The address of this side. 0.0.0.0 becomes one of the peer's family, as in the real daemon.
    fn local(&mut self, asked: SocketAddr, remote: Option<SocketAddr>) -> SocketAddr {
        let port = if asked.port() == 0 { 40_000 + self.number() as u16 } else { asked.port() };
        SocketAddr::new(ADDRESSES[usize::from(remote.unwrap_or(asked).is_ipv6())], port)
    }

    fn answer(&mut self, client: u64, question: flow::Question, channels: usize) -> Answered {
        let full = Err((CaptureErrorKind::Full, "this connection has as many flows as it may have"));
        // Handle earlier closes first.
        self.carry();
        match question {
            flow::Question::Open(_) if self.channel(client) as usize >= channels => full,
            flow::Question::Open(open) => {
                let geometry = open.geometry();
                let (driver, segments) = Driver::create(geometry).unwrap();
                let (channel, local, isn) =
                    (self.channel(client), self.local(open.local, open.remote), self.number() as u32 * 77_777);
                let flow = Flow { client, channel: Some(channel), driver, local, remote: open.remote.unwrap(), isn };
                let mut fds = Vec::from(segments);
                fds.extend(self.bells(client));
                let granted = granted(&flow, channel, fds.len() > 2);
                self.flows.push(flow);
                Ok((flow::Answer::Granted(granted), fds))
            }
            flow::Question::Listen(open) => {
                let (channel, local) = (self.channel(client), self.local(open.local, None));
                if self.listeners.iter().any(|listener| listener.local.port() == local.port()) {
                    return Err((CaptureErrorKind::Cannot, "the port is taken"));
                }
                let fds = self.bells(client);
                let listening = Listening {
                    listener: self.number(),
                    channel,
                    device: "test0".into(),
                    local,
                    has_bells: !fds.is_empty(),
                };
                self.listeners.push(Listener { client, channel, open, local, waiting: VecDeque::new() });
                Ok((flow::Answer::Listening(listening), fds))
            }
            flow::Question::Accept(channel, most) => {
                let at = self.listeners.iter().position(|each| (each.client, each.channel) == (client, channel));
                let Some(at) = at else { return Err((CaptureErrorKind::Absent, "no such listener")) };
                let (mut all, mut fds) = (vec![], vec![]);
                if self.channel(client) as usize >= channels {
                    return full;
                }
                for _ in 0..most {
                    if self.channel(client) as usize >= channels {
                        break;
                    }
                    let Some((mut flow, segments)) = self.listeners[at].waiting.pop_front() else { break };
                    let channel = self.channel(client);
                    flow.channel = Some(channel);
                    all.push(granted(&flow, channel, false));
                    fds.extend(segments);
                    self.flows.push(flow);
                }
                Ok((flow::Answer::Accepted(all), fds))
            }
            flow::Question::Close(channel) => {
                self.flows.retain(|flow| (flow.client, flow.channel) != (client, Some(channel)));
                let is_it = |each: &mut Listener| (each.client, each.channel) == (client, channel);
                for listener in self.listeners.extract_if(.., is_it).collect::<Vec<_>>() {
                    for (flow, _) in listener.waiting {
                        let (from, to, isn) = (flow.remote, flow.local, flow.isn);
                        let waits = Segment { from, to, flags: ACK, sequence: 0, acknowledgement: isn + 1, length: 0 };
                        self.give_back(waits.answer(isn + 1, RST, 0, &[]), from, to);
                    }
                }
                Ok((flow::Answer::Done, vec![]))
            }
            _ => Err((CaptureErrorKind::Cannot, "not here")),
        }
    }

    /// Gives a packet to its flow or to a listener, or answers with a reset.
    fn route(&mut self, frame: Vec<u8>) {
        let segment = Segment::read(&frame);
        let names = |flow: &Flow| (flow.local, flow.remote) == (segment.to, segment.from);
        if let Some(at) = self.flows.iter().position(names) {
            let flow = &mut self.flows[at];
            flow.driver.deliver(&[&frame], 1).unwrap();
            let (client, channel) = (flow.client, flow.channel);
            return self.ring(client, channel);
        }
        let waits = |listener: &&mut Listener| listener.waiting.iter().any(|(flow, _)| names(flow));
        if let Some(listener) = self.listeners.iter_mut().find(waits) {
            if let Some((flow, _)) = listener.waiting.iter_mut().find(|(flow, _)| names(flow)) {
                flow.driver.deliver(&[&frame], 1).unwrap();
            }
            return;
        }
        let key = (segment.from, segment.to);
        let listener = self.listeners.iter_mut().find(|listener| listener.local == segment.to);
        match listener {
            Some(listener) if segment.flags & (SYN | ACK | RST) == SYN => {
                let shift = listener.open.window_shift;
                // IPv6 has a longer header, so its segments are shorter.
                let segment_low = if segment.to.is_ipv4() { 180 } else { 160 };
                let options = [2, 4, 5, segment_low, 1, 1, 4, 2, 1, 3, 3, shift];
                let isn = self.half_open.len() as u32 * 99_991 + 5;
                let (_, isn) = self.half_open.entry(key).or_insert((frame, isn));
                let answer = segment.answer(*isn, SYN | ACK, listener.open.window, &options);
                self.give_back(answer, segment.from, segment.to);
            }
            Some(listener) if segment.flags & (SYN | RST) == 0 && self.half_open.contains_key(&key) => {
                let Some((syn, isn)) = self.half_open.remove(&key) else { return };
                let OpenListener { send_records, send_bytes, receive_buffers, buffer_bytes, .. } = listener.open;
                let geometry = Geometry { send_records, send_bytes, receive_buffers, buffer_bytes };
                let (mut driver, segments) = Driver::create(geometry).unwrap();
                driver.deliver(&[&syn], 1).unwrap();
                driver.deliver(&[&frame], 1).unwrap();
                let flow = Flow { client: listener.client, channel: None, driver, local: key.1, remote: key.0, isn };
                listener.waiting.push_back((flow, segments));
                let (client, channel) = (listener.client, listener.channel);
                self.ring(client, Some(channel));
            }
            _ if segment.flags & RST == 0 => {
                let answer = segment.answer(segment.acknowledgement, RST | ACK, 0, &[]);
                self.give_back(answer, segment.from, segment.to);
            }
            _ => {}
        }
    }

    fn give_back(&mut self, frame: Vec<u8>, local: SocketAddr, remote: SocketAddr) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| (flow.local, flow.remote) == (local, remote)) {
            flow.driver.deliver(&[&frame], 1).unwrap();
            let (client, channel) = (flow.client, flow.channel);
            self.ring(client, channel);
        }
    }
}

fn granted(flow: &Flow, channel: u32, has_bells: bool) -> Granted {
    Granted {
        flow: u64::from(channel),
        channel,
        device: "test0".into(),
        mac: MAC,
        prefix: if flow.local.is_ipv4() { 24 } else { 64 },
        mtu: 1500,
        local: flow.local,
        remote: Some(flow.remote),
        unfinished_checksums: false,
        has_bells,
        isn: flow.isn,
    }
}

/// The fields of a segment that the wire needs.
struct Segment {
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    /// Sequence numbers that it occupies.
    length: u32,
}

impl Segment {
    fn read(frame: &[u8]) -> Segment {
        let (ip, tcp) = frame[14..].split_at(if frame[12] == 8 { 20 } else { 40 });
        let v4 = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
        let v6 = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
        let (from, to): (IpAddr, IpAddr) = if ip.len() == 20 { (v4(12), v4(16)) } else { (v6(8), v6(24)) };
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let number = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let payload = tcp.len() - usize::from(tcp[12] >> 4) * 4;
        Segment {
            from: SocketAddr::new(from, port(0)),
            to: SocketAddr::new(to, port(2)),
            flags: tcp[13],
            sequence: number(4),
            acknowledgement: number(8),
            length: payload as u32 + u32::from(tcp[13] & SYN > 0) + u32::from(tcp[13] & 1),
        }
    }

    /// A segment that answers this one.
    fn answer(&self, sequence: u32, flags: u8, window: u16, options: &[u8]) -> Vec<u8> {
        let length = 20 + options.len() as u16;
        let mut tcp = vec![];
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(sequence.to_be_bytes());
        tcp.extend(self.sequence.wrapping_add(self.length).to_be_bytes());
        tcp.extend([((length / 4) << 4) as u8, flags]);
        tcp.extend(window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        let addresses = [self.to, self.from].map(|end| match end.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        });
        let addresses = addresses.concat();
        let pseudo = [&addresses[..], &[0, 6, 0, length as u8], &tcp].concat();
        let sum = checksum(&pseudo);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        if self.to.is_ipv6() {
            let ip = [&[0x60, 0, 0, 0, 0, length as u8, 6, 64], &addresses[..]].concat();
            return [&MAC[..], &MAC, &[0x86, 0xdd], &ip, &tcp].concat();
        }
        let mut ip = [&[0x45, 0, 0, (length + 20) as u8, 0, 0, 0x40, 0, 64, 6, 0, 0], &addresses[..]].concat();
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        [&MAC[..], &MAC, &[8, 0], &ip, &tcp].concat()
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
