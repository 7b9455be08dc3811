//! Questions to a daemon about interfaces and flows, and its answers.

use buffer::flow::Geometry;
use buffer::{wire_enum, wire_struct};
use std::net::{IpAddr, SocketAddr};

/// A client's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Own this device. Only managers of the daemon may ask.
    Up(OpenInterface),
    /// Give this device up; its flows end.
    Down(String),
    /// Open a flow for this client.
    Open(OpenFlow),
    /// Close this channel, whose number is [`Granted::channel`] or [`Listening::channel`]. The daemon resets a TCP
    /// connection that is not finished, and connections that wait at a listener.
    Close(u32),
    /// List the interfaces with their flows.
    State,
    /// Change the share of the wire of this flow, which belongs to the client's user; see [`OpenFlow::share`].
    Share(u64, String),
    /// Open a listener for this client, which accepts TCP connections.
    Listen(OpenListener),
    /// Take connections that wait at the listener of this channel: at most this number, and at most [`ACCEPTED`].
    Accept(u32, u32),
    /// Trace this flow of the client's user, with at most this number of bytes of each frame, until the client ends.
    /// The answer is a [`Granted`] with a channel of [`TRACE_GEOMETRY`](crate::TRACE_GEOMETRY) and its own doorbells.
    Trace(u64, u32),
    /// This client had flows at an earlier daemon and will [claim](Question::Claim) them. It may send file descriptors
    /// now.
    Reclaim,
    /// Take over these channels (flows, listeners) of a client whose daemon has ended. Its other channels end: their
    /// answers were lost. Its doorbell page comes beside this. Only once, and before any other flow.
    Claim(Vec<u32>),
    /// An interface's process has lost its daemon. After the answer it speaks another protocol (crate `net`).
    Adopt,
    /// Change this interface while it is up. Only managers of the daemon may ask.
    Change(String, Change),
    /// Move the first interface to the second device: addresses, routes, flows and listeners. The daemon opens the
    /// device as it opened the first one. Only managers of the daemon may ask.
    Move(String, String),
}

/// A change of an interface that is up. It is done completely, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add an address, with the length of its prefix in bits.
    AddAddress(IpAddr, u8),
    /// Remove an address. Flows and listeners there wait a minute for its return, and then end with EADDRNOTAVAIL.
    RemoveAddress(IpAddr, u8),
    /// Add a route. Its next hop, if it has one, must be a neighbour.
    AddRoute(RouteState),
    /// Remove a route; without a next hop: the one with any next hop. Routes of addresses go with the address.
    RemoveRoute(RouteState),
}

/// Most connections of one [`Answer::Accepted`]: a packet carries two file descriptors for each, and two more.
pub const ACCEPTED: usize = buffer::control::packets::FDS / 4;

/// Most connections that wait at one listener.
pub const BACKLOG: u32 = 1024;

/// A daemon's answer. A refusal is an answer of the socket's own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done as asked.
    Done,
    /// A flow.
    Granted(Granted),
    /// The interfaces.
    State(Vec<InterfaceState>),
    /// A listener.
    Listening(Listening),
    /// Waiting connections, oldest first; may be empty. Two segments for each come beside it, in this order.
    Accepted(Vec<Granted>),
}

/// A device for Streamline to own. The default has neither name nor addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenInterface {
    /// Name of the device.
    pub device: String,
    /// How to reach it: `af_xdp`, `af_packet`, `tuntap`; or `loopback`, without a device, where flows reach only each
    /// other. `None`: the daemon chooses.
    pub how: Option<String>,
    /// Its addresses, each with the length of its prefix in bits. An interface with IPv6 but without a link-local
    /// address gets one (RFC 4291 2.1).
    pub addresses: Vec<(IpAddr, u8)>,
    /// The next hops for addresses outside the prefixes; at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Bits a second of the wire. `None`: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Whether preamble, checksum and gap of a frame (24 bytes) count in that rate, too.
    pub count_gaps: bool,
    /// Whether a DHCP server should be asked for an address, besides those named here.
    pub dhcp: bool,
    /// Whether the device stays with the host. Its addresses, routes and neighbours are then those of the host, and
    /// `addresses` and `gateways` are empty.
    pub share: bool,
}

/// A flow to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    /// The interface. `None`: the one that routes to `remote`, or the only one.
    pub device: Option<String>,
    /// Protocol number: 17 for UDP, 6 for TCP. A TCP flow connects, so it needs `remote`.
    pub protocol: u8,
    /// Address and port of this side. Address 0.0.0.0: the interface's address that suits `remote`; without `remote`
    /// the first of IPv4, or of IPv6 if there is none. `::`: the first of IPv6. Port 0: any free one.
    pub local: SocketAddr,
    /// Address and port of the other side. `None`: packets from all, and to any.
    pub remote: Option<SocketAddr>,
    /// Its share of the wire: `4ms/100ms`, `4ms/100ms+slack`, `fair:3` or `background`. `None`: `fair`.
    pub share: Option<String>,
    /// Send records of the channel, a power of two.
    pub send_records: u32,
    /// Bytes of the channel for packets to send, a power of two.
    pub send_bytes: u32,
    /// Receive buffers, a power of two.
    pub receive_buffers: u32,
    /// Bytes of a receive buffer, a power of two.
    pub buffer_bytes: u32,
}

impl OpenFlow {
    /// The size of the channel.
    pub fn geometry(&self) -> Geometry {
        let OpenFlow { send_records, send_bytes, receive_buffers, buffer_bytes, .. } = *self;
        Geometry { send_records, send_bytes, receive_buffers, buffer_bytes }
    }

    /// A flow with a channel of the usual size.
    pub fn new(device: Option<String>, protocol: u8, local: SocketAddr, remote: Option<SocketAddr>) -> OpenFlow {
        let Geometry { send_records, send_bytes, receive_buffers, buffer_bytes } = Geometry::default();
        let share = None;
        OpenFlow { device, protocol, local, remote, share, send_records, send_bytes, receive_buffers, buffer_bytes }
    }
}

/// A listener to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenListener {
    /// The interface. `None`: the one with the address of `local`, or the only one.
    pub device: Option<String>,
    /// Address and port of this side. Address 0.0.0.0: the interface's first of IPv4, or of IPv6 if there is none.
    /// `::`: the first of IPv6. Port 0: any free one.
    pub local: SocketAddr,
    /// Most connections that wait to be accepted, 1 to [`BACKLOG`]; other numbers count as the nearest of these.
    pub backlog: u32,
    /// The window that the driver announces for the application when it answers a SYN, bytes.
    pub window: u16,
    /// The shift of later windows (RFC 7323 2.2), 0 to 14.
    pub window_shift: u8,
    /// The share of the wire of each accepted connection, as in [`OpenFlow::share`].
    pub share: Option<String>,
    /// For each accepted connection's channel, as in [`OpenFlow::send_records`].
    pub send_records: u32,
    /// As in [`OpenFlow::send_bytes`].
    pub send_bytes: u32,
    /// As in [`OpenFlow::receive_buffers`].
    pub receive_buffers: u32,
    /// As in [`OpenFlow::buffer_bytes`].
    pub buffer_bytes: u32,
}

impl OpenListener {
    /// The size of the channel of each accepted connection.
    pub fn geometry(&self) -> Geometry {
        let OpenListener { send_records, send_bytes, receive_buffers, buffer_bytes, .. } = *self;
        Geometry { send_records, send_bytes, receive_buffers, buffer_bytes }
    }
}

/// A listener that was opened. With a client's first flow or listener the three handles of its doorbells come beside
/// it. The doorbell of its channel rings when a connection waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Number of the listener, for people; flows have other numbers.
    pub listener: u64,
    /// Number of its channel among those of this client, which is its bit in the doorbells.
    pub channel: u32,
    /// The interface.
    pub device: String,
    /// Address and port that were chosen.
    pub local: SocketAddr,
    /// Whether the doorbells' handles come beside this.
    pub has_bells: bool,
}

/// A flow that was opened. The channel's two segments come beside it (`buffer::flow::Application::attach`). With a
/// client's first flow or listener the three handles of its doorbells come as well (`buffer::flow::Bells::attach`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Number of the flow, for people.
    pub flow: u64,
    /// Number of the channel among those of this client, which is its bit in the doorbells.
    pub channel: u32,
    /// The interface.
    pub device: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Length of the local address's prefix, in bits.
    pub prefix: u8,
    /// Bytes of the longest IP packet that the device takes.
    pub mtu: u32,
    /// Address and port of this side that were chosen.
    pub local: SocketAddr,
    /// Address and port of the other side. `None`: it has no fixed one.
    pub remote: Option<SocketAddr>,
    /// Whether received packets may have unfinished transport checksums (from a veth's peer that leaves them to the device).
    pub unfinished_checksums: bool,
    /// Whether the doorbells' handles come beside this.
    pub has_bells: bool,
    /// For TCP: this side's initial sequence number. For a connecting flow the Flow Manager chose it (RFC 6528). For an
    /// accepted one the driver sent it in its answer to the SYN. 0 for UDP.
    pub isn: u32,
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Name of the device.
    pub device: String,
    /// How it is reached, in words.
    pub how: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Bytes of the longest IP packet that it takes.
    pub mtu: u32,
    /// Its addresses, each with the length of its prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Bits a second of the wire. `None`: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Whether the device stays with the host. The host then knows the routes, and `routes` is empty.
    pub is_shared: bool,
    /// Why the interface carries no packets now. `None`: it does.
    pub trouble: Option<String>,
    /// Addresses that it has lost, and for which flows wait.
    pub away: Vec<IpAddr>,
    /// The lease. `None`: no DHCP servers are asked.
    pub lease: Option<LeaseState>,
    /// All counters, by name: frames received and sent, and each reason for a drop.
    pub counters: Vec<(String, u64)>,
    /// Flows of this client's user; for a manager of the daemon, those of all users.
    pub flows: Vec<FlowState>,
    /// Listeners, of the same users.
    pub listeners: Vec<ListenerState>,
    /// Next hops that are known or asked for.
    pub neighbours: Vec<NeighbourState>,
    /// Routes, the most specific first.
    pub routes: Vec<RouteState>,
}

/// The lease of an interface that asks DHCP servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// The state of the DHCP client, in words: `bound`, `asks for servers`.
    pub state: String,
    /// The address, with the length of its prefix in bits. `None`: there is no lease.
    pub address: Option<(IpAddr, u8)>,
    /// The server.
    pub server: Option<IpAddr>,
    /// The next hop for addresses that no other route covers.
    pub router: Option<IpAddr>,
    /// Time until the lease ends, in ms. `None`: there is no lease, or it does not end.
    pub left_ms: Option<u64>,
    /// Time until the client asks to renew the lease, in ms. `None`: as above.
    pub renewal_ms: Option<u64>,
    /// Why the interface cannot use the lease. `None`: it does.
    pub trouble: Option<String>,
}

/// The state of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerState {
    /// Its number.
    pub listener: u64,
    /// Address and port.
    pub local: SocketAddr,
    /// The process that opened it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Most connections that may wait.
    pub backlog: u32,
    /// Connections that wait.
    pub waiting: u32,
    /// Connections that its application accepted.
    pub accepted: u64,
    /// Dropped segments and reset connections, by reason, without zeros.
    pub drops: Vec<(String, u64)>,
}

/// The state of a flow. `received` plus the drops of received packets is the number of packets that the device had for
/// it. For an accepted flow that sum is one more, since the driver makes the SYN again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Its number.
    pub flow: u64,
    /// Protocol number.
    pub protocol: u8,
    /// Address and port of this side.
    pub local: SocketAddr,
    /// Address and port of the other side. `None`: it has no fixed one.
    pub remote: Option<SocketAddr>,
    /// The process that opened it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Packets delivered to it.
    pub received: u64,
    /// Their bytes, including the Ethernet header.
    pub received_bytes: u64,
    /// Packets sent for it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Receive work charged to it, in ns.
    pub receive_ns: u64,
    /// Its share of the wire.
    pub share: String,
    /// Wire time that it got, by name, without zeros.
    pub wire: Vec<(String, u64)>,
    /// Dropped packets, by reason, without zeros.
    pub drops: Vec<(String, u64)>,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourState {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address. `None`: it was asked for, or did not answer.
    pub mac: Option<[u8; 6]>,
    /// In words: `reachable`, `asked`, `silent`.
    pub state: String,
    /// Time since it last gave its address, in ms.
    pub age_ms: u64,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteState {
    /// The addresses that it covers, with the length of the prefix in bits.
    pub to: (IpAddr, u8),
    /// The next hop. `None`: the addresses are neighbours.
    pub via: Option<IpAddr>,
}

/// Bits of an address of this address's family, which is also its longest prefix.
pub fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Number of leading bits that both addresses share. `None`: they are of different families.
pub fn common(one: IpAddr, other: IpAddr) -> Option<u8> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros() as u8),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros() as u8),
        _ => None,
    }
}

/// Whether this prefix holds the address.
pub fn holds((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    common(network, address).is_some_and(|common| common >= length)
}

wire_struct!(OpenInterface { device, how, addresses, gateways, rate, count_gaps, dhcp, share }
    if |open| open.addresses.iter().all(|(address, length)| *length <= bits(*address)));
wire_struct!(OpenFlow { device, protocol, local, remote, share, send_records, send_bytes, receive_buffers, buffer_bytes }
    if |open| open.geometry().check().is_ok());
wire_struct!(Granted {
    flow,
    channel,
    device,
    mac,
    prefix,
    mtu,
    local,
    remote,
    unfinished_checksums,
    has_bells,
    isn,
} if |granted| granted.prefix <= bits(granted.local.ip()));
wire_struct!(OpenListener {
    device,
    local,
    backlog,
    window,
    window_shift,
    share,
    send_records,
    send_bytes,
    receive_buffers,
    buffer_bytes,
} if |open| open.window_shift <= 14 && open.geometry().check().is_ok());
wire_struct!(Listening { listener, channel, device, local, has_bells });
wire_struct!(ListenerState { listener, local, process, user, backlog, waiting, accepted, drops });
wire_struct!(InterfaceState {
    device,
    how,
    mac,
    mtu,
    addresses,
    rate,
    is_shared,
    trouble,
    away,
    lease,
    counters,
    flows,
    listeners,
    neighbours,
    routes,
});
wire_struct!(FlowState {
    flow,
    protocol,
    local,
    remote,
    process,
    user,
    received,
    received_bytes,
    sent,
    sent_bytes,
    receive_ns,
    share,
    wire,
    drops,
});
wire_struct!(LeaseState { state, address, server, router, left_ms, renewal_ms, trouble });
wire_struct!(NeighbourState { address, mac, state, age_ms });
wire_struct!(RouteState { to, via });
wire_enum!(Question {
    1 = Up(open),
    2 = Down(device),
    3 = Open(open),
    4 = Close(channel),
    5 = State,
    6 = Share(flow, share),
    7 = Listen(open),
    8 = Accept(channel, most),
    9 = Trace(flow, snap),
    10 = Reclaim,
    11 = Claim(channels),
    12 = Adopt,
    13 = Change(device, change),
    14 = Move(old, new),
});
wire_enum!(Change {
    1 = AddAddress(address, bits),
    2 = RemoveAddress(address, bits),
    3 = AddRoute(route),
    4 = RemoveRoute(route),
});
wire_enum!(Answer {
    1 = Done,
    2 = Granted(granted),
    3 = State(interfaces),
    4 = Listening(listening),
    5 = Accepted(granted),
});

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::control::codec::{In, Out, Wire};

    fn check<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let mut out = Out::default();
        value.put(&mut out);
        let read = |bytes| {
            let mut fields = In(bytes);
            T::get(&mut fields).filter(|_| fields.0.is_empty())
        };
        assert_eq!(read(&out.0).as_ref(), Some(value));
        assert!((0..out.0.len()).all(|cut| read(&out.0[..cut]).is_none()));
    }

    fn listener() -> OpenListener {
        let Geometry { send_records, send_bytes, receive_buffers, buffer_bytes } = Geometry::default();
        OpenListener {
            device: None,
            local: SocketAddr::new(IpAddr::from([0; 4]), 80),
            backlog: 128,
            window: 65535,
            window_shift: 2,
            share: Some("fair:2".into()),
            send_records,
            send_bytes,
            receive_buffers,
            buffer_bytes,
        }
    }

    #[test]
    fn everything_said_is_heard_and_what_is_cut_is_not() {
        let (address, six) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2]));
        let (local, remote) = (SocketAddr::new(address, 4000), Some(SocketAddr::new(address, 4001)));
        let open = OpenFlow::new(Some("v1".into()), 17, local, remote);
        let interface = OpenInterface {
            device: "v1".into(),
            how: Some("af_packet".into()),
            addresses: vec![(address, 24), (six, 64)],
            gateways: vec![address, six],
            rate: Some(100_000_000),
            count_gaps: true,
            dhcp: true,
            share: true,
        };
        for question in [
            Question::Up(interface),
            Question::Down("v1".into()),
            Question::Open(open),
            Question::Close(7),
            Question::State,
            Question::Share(7, "fair:3".into()),
            Question::Listen(listener()),
            Question::Accept(7, 16),
            Question::Trace(7, 96),
            Question::Reclaim,
            Question::Claim(vec![0, 7, 1023]),
            Question::Adopt,
            Question::Change("v1".into(), Change::AddAddress(address, 24)),
            Question::Change("v1".into(), Change::RemoveAddress(address, 24)),
            Question::Change("v1".into(), Change::AddRoute(RouteState { to: (address, 8), via: Some(address) })),
            Question::Change("v1".into(), Change::RemoveRoute(RouteState { to: (address, 8), via: None })),
            Question::Move("v1".into(), "v2".into()),
        ] {
            check(&question);
        }
        let mac = [2, 0, 0, 0, 0, 1];
        let granted = Granted {
            flow: 1,
            channel: 2,
            device: "v1".into(),
            mac,
            prefix: 24,
            mtu: 1500,
            local,
            remote,
            unfinished_checksums: true,
            has_bells: true,
            isn: 0xffff_fff0,
        };
        let listening = Listening { listener: 9, channel: 3, device: "v1".into(), local, has_bells: true };
        let listener = ListenerState {
            listener: 9,
            local,
            process: 3,
            user: 4,
            backlog: 128,
            waiting: 2,
            accepted: 5,
            drops: vec![("queue is full".into(), 1)],
        };
        let flow = FlowState {
            flow: 1,
            protocol: 17,
            local,
            remote: None,
            process: 3,
            user: 4,
            received: 5,
            received_bytes: 6,
            sent: 7,
            sent_bytes: 8,
            receive_ns: 9,
            share: "4ms/100ms".into(),
            wire: vec![("slice_ns".into(), 11)],
            drops: vec![("forged".into(), 10)],
        };
        let state = InterfaceState {
            device: "v1".into(),
            how: "a packet socket".into(),
            mac,
            mtu: 1500,
            addresses: vec![(address, 24), (six, 128)],
            rate: None,
            is_shared: true,
            trouble: Some("it is down".into()),
            away: vec![address],
            lease: Some(LeaseState {
                state: "bound".into(),
                address: Some((address, 24)),
                server: Some(address),
                router: None,
                left_ms: Some(5),
                renewal_ms: None,
                trouble: Some("no".into()),
            }),
            counters: vec![("received".into(), 1)],
            flows: vec![flow],
            listeners: vec![listener],
            neighbours: vec![NeighbourState { address, mac: Some(mac), state: "reachable".into(), age_ms: 5 }],
            routes: vec![RouteState { to: (six, 64), via: Some(address) }],
        };
        let accepted = Answer::Accepted(vec![granted.clone(); ACCEPTED]);
        for answer in
            [Answer::Done, Answer::Granted(granted), Answer::State(vec![state]), Answer::Listening(listening), accepted]
        {
            check(&answer);
        }
    }

    #[test]
    fn a_prefix_is_no_longer_than_its_address() {
        let heard = |address: IpAddr, length: u8| {
            let open = OpenInterface {
                device: "v1".into(),
                how: None,
                addresses: vec![(address, length)],
                gateways: vec![],
                rate: None,
                count_gaps: false,
                dhcp: false,
                share: false,
            };
            let mut out = Out::default();
            open.put(&mut out);
            OpenInterface::get(&mut In(&out.0)).is_some()
        };
        let (four, six) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2]));
        assert_eq!([heard(four, 32), heard(four, 33), heard(six, 128), heard(six, 129)], [true, false, true, false]);
    }

    #[test]
    fn a_listener_that_no_daemon_can_open_is_not_heard() {
        let heard = |open: &OpenListener| {
            let mut out = Out::default();
            open.put(&mut out);
            OpenListener::get(&mut In(&out.0)).is_some()
        };
        let open = listener();
        assert!(heard(&open));
        assert!(!heard(&OpenListener { window_shift: 15, ..open.clone() }), "RFC 7323 2.3");
        assert!(!heard(&OpenListener { receive_buffers: 3, ..open }));
    }
}
