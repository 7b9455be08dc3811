//! What a daemon is asked about interfaces and flows, and what it answers.

use buffer::flow::Geometry;
use buffer::{wire_enum, wire_struct};
use std::net::{IpAddr, SocketAddr};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Own this device. Only managers of the daemon may ask.
    Up(OpenInterface),
    /// Give this device up; its flows end.
    Down(String),
    /// A flow for this client.
    Open(OpenFlow),
    /// This client needs this channel no more; its number is that of [`Granted::channel`] or [`Listening::channel`]. The daemon
    /// resets a TCP connection that is not finished, and connections that wait at a listener.
    Close(u32),
    /// List the interfaces with their flows.
    State,
    /// Another share of the wire for the flow of this number, of the client's user; see [`OpenFlow::share`].
    Share(u64, String),
    /// A listener for this client: it takes TCP connections.
    Listen(OpenListener),
    /// The connections that wait at the listener of this channel, at most this many, and at most [`ACCEPTED`].
    Accept(u32, u32),
    /// The frames of the flow of this number, of the client's user, with so many bytes of each at most. The answer is a
    /// [`Granted`] with a channel of [`TRACE_GEOMETRY`](crate::TRACE_GEOMETRY) and doorbells of its own. The trace ends with the
    /// client.
    Trace(u64, u32),
    /// This client had flows at an earlier daemon, and is about to [claim](Question::Claim) them: file descriptors may be sent.
    Reclaim,
    /// The flows and listeners with the doorbells whose page is beside this, of a client whose daemon ended, are this client's: those
    /// with these channels. Others of that client end: their answers were lost. Once, before any other flow.
    Claim(Vec<u32>),
    /// An interface's process has lost its daemon. From the answer on it says other things (crate `net`).
    Adopt,
    /// Change this interface while it is up. Only managers of the daemon may ask.
    Change(String, Change),
    /// The first interface goes on on the second device: addresses, routes, flows and listeners. The daemon opens the device as it
    /// opened the first one. Only managers of the daemon may ask.
    Move(String, String),
}

/// A change of an interface that is up. It is done, or nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// One more address, with the length of its prefix in bits.
    AddAddress(IpAddr, u8),
    /// One address less. Flows and listeners there wait for its return, for a minute, and end with EADDRNOTAVAIL.
    RemoveAddress(IpAddr, u8),
    /// One more route. Its next hop, where it has one, is a neighbour.
    AddRoute(RouteState),
    /// One route less; next hop none: whatever it is. The routes of addresses go with them.
    RemoveRoute(RouteState),
}

/// Connections of one [`Answer::Accepted`] at most: two file descriptors of each fit beside one packet, and for the daemon two more.
pub const ACCEPTED: usize = buffer::control::packets::FDS / 4;

/// Connections that wait at one listener at most.
pub const BACKLOG: u32 = 1024;

/// What a daemon answers; a refusal is an answer of the socket's own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done as asked.
    Done,
    /// A flow.
    Granted(Granted),
    /// Interfaces there are.
    State(Vec<InterfaceState>),
    /// A listener.
    Listening(Listening),
    /// Connections that waited, the oldest first; none: no connection waits. Beside it go two segments for each, in this order.
    Accepted(Vec<Granted>),
}

/// A device for Streamline to own. The default has neither name nor addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenInterface {
    /// Name of the device.
    pub device: String,
    /// How to reach it: `af_xdp`, `af_packet`, `tuntap`; `loopback`: there is no device, and flows reach each other only; none: the
    /// daemon chooses.
    pub how: Option<String>,
    /// Its addresses, each with the length of its prefix in bits. Where one is of IPv6 and none link-local, the interface has such
    /// an address, too (RFC 4291 2.1).
    pub addresses: Vec<(IpAddr, u8)>,
    /// The next hops for addresses outside the prefixes, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Bits a second that the wire carries; none: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Does a frame take its preamble, checksum and gap (24 bytes) of that rate, too?
    pub count_gaps: bool,
    /// Is a DHCP server to be asked for an address, beside those named here?
    pub dhcp: bool,
    /// Does the device stay the host's? Its addresses, routes and neighbours are the host's then, and `addresses` and `gateways` empty.
    pub share: bool,
}

/// A flow to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    /// The interface; none: the one that routes to `remote`, or the only one there is.
    pub device: Option<String>,
    /// Protocol number: 17 for UDP, 6 for TCP. A flow of TCP connects: it needs `remote`.
    pub protocol: u8,
    /// Address and port of this side. Address 0.0.0.0: the interface's that suits `remote`; without `remote` the first one of IPv4, or
    /// of IPv6 where there is none. `::`: the first one of IPv6. Port 0: any that is free.
    pub local: SocketAddr,
    /// Address and port of the other side; none: packets from all, and to any.
    pub remote: Option<SocketAddr>,
    /// Its share of the wire: `4ms/100ms`, `4ms/100ms+slack`, `fair:3` or `background`; none: `fair`.
    pub share: Option<String>,
    /// Send records of the channel, a power of two.
    pub send_records: u32,
    /// Bytes to send that the channel holds, a power of two.
    pub send_bytes: u32,
    /// Receive buffers, a power of two.
    pub receive_buffers: u32,
    /// Bytes of a receive buffer, a power of two.
    pub buffer_bytes: u32,
}

impl OpenFlow {
    /// The size of the channel that is asked for.
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
    /// The interface; none: the one with the address of `local`, or the only one there is.
    pub device: Option<String>,
    /// Address and port of this side. Address 0.0.0.0: the interface's first one of IPv4, or of IPv6 where there is none; `::`: the
    /// first one of IPv6. Port 0: any that is free.
    pub local: SocketAddr,
    /// Connections that may wait to be accepted, 1 to [`BACKLOG`]; other numbers count as the nearest of these.
    pub backlog: u32,
    /// The window that the driver announces for the application when it answers a SYN, bytes.
    pub window: u16,
    /// The shift of later windows (RFC 7323 2.2), 0 to 14.
    pub window_shift: u8,
    /// The share of the wire of each accepted connection, as [`OpenFlow::share`].
    pub share: Option<String>,
    /// Of each accepted connection's channel, as [`OpenFlow::send_records`].
    pub send_records: u32,
    /// As [`OpenFlow::send_bytes`].
    pub send_bytes: u32,
    /// As [`OpenFlow::receive_buffers`].
    pub receive_buffers: u32,
    /// As [`OpenFlow::buffer_bytes`].
    pub buffer_bytes: u32,
}

impl OpenListener {
    /// The size of the channel of each accepted connection.
    pub fn geometry(&self) -> Geometry {
        let OpenListener { send_records, send_bytes, receive_buffers, buffer_bytes, .. } = *self;
        Geometry { send_records, send_bytes, receive_buffers, buffer_bytes }
    }
}

/// A listener that was opened. With the first flow or listener of a client the three handles of its doorbells go beside it. The
/// doorbell of its channel rings when a connection waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Number of the listener, for people; flows have others.
    pub listener: u64,
    /// Number of its channel among those of this client: its bit in the doorbells.
    pub channel: u32,
    /// The interface.
    pub device: String,
    /// Address and port, as chosen.
    pub local: SocketAddr,
    /// Are the doorbells' handles beside this?
    pub has_bells: bool,
}

/// A flow that was opened. Beside it go the channel's two segments (`buffer::flow::Application::attach`); with the first flow or
/// listener of a client also the three handles of its doorbells (`buffer::flow::Bells::attach`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Number of the flow, for people.
    pub flow: u64,
    /// Number of the channel among those of this client: its bit in the doorbells.
    pub channel: u32,
    /// The interface.
    pub device: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Length of the prefix of the local address, bits.
    pub prefix: u8,
    /// Bytes of the longest IP packet that the device takes.
    pub mtu: u32,
    /// Address and port of this side, as chosen.
    pub local: SocketAddr,
    /// Address and port of the other side, where there is one.
    pub remote: Option<SocketAddr>,
    /// May transport checksums of received packets be unfinished (a veth's peer that leaves them to the device)?
    pub unfinished_checksums: bool,
    /// Are the doorbells' handles beside this?
    pub has_bells: bool,
    /// Of TCP: the initial sequence number of this side. Where the flow connects, the Flow Manager chose it (RFC 6528). Where it was
    /// accepted, the driver sent it in the answer to the SYN. 0 for UDP.
    pub isn: u32,
}

/// An interface, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Name of the device.
    pub device: String,
    /// How it is reached, for people.
    pub how: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Bytes of the longest IP packet that it takes.
    pub mtu: u32,
    /// Its addresses, each with the length of its prefix in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Bits a second of the wire; none: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Does the device stay the host's? Then the host says what it routes to, and `routes` is empty.
    pub is_shared: bool,
    /// Why the interface carries nothing now; none: it carries packets.
    pub trouble: Option<String>,
    /// Addresses that it had, and that flows wait for.
    pub away: Vec<IpAddr>,
    /// The lease, where DHCP servers are asked.
    pub lease: Option<LeaseState>,
    /// Everything that is counted, by name: frames received and sent, and each reason for a drop.
    pub counters: Vec<(String, u64)>,
    /// Flows of this client's user; a manager of the daemon gets those of all users.
    pub flows: Vec<FlowState>,
    /// Listeners, of the same users.
    pub listeners: Vec<ListenerState>,
    /// Next hops known or asked for.
    pub neighbours: Vec<NeighbourState>,
    /// Routes, the most specific first.
    pub routes: Vec<RouteState>,
}

/// The lease of an interface that asks DHCP servers, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// What the client does, for people: `bound`, `asks for servers`.
    pub state: String,
    /// The address, with the length of its prefix in bits; none: there is no lease.
    pub address: Option<(IpAddr, u8)>,
    /// The server.
    pub server: Option<IpAddr>,
    /// The next hop for addresses that no other route holds.
    pub router: Option<IpAddr>,
    /// Time until the lease is over, ms; none: there is no lease, or one for ever.
    pub left_ms: Option<u64>,
    /// Time until the client asks for more time, ms; none as above.
    pub renewal_ms: Option<u64>,
    /// Why the interface cannot use it; none: it does.
    pub trouble: Option<String>,
}

/// A listener, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerState {
    /// Its number.
    pub listener: u64,
    /// Address and port.
    pub local: SocketAddr,
    /// Process that opened it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Connections that may wait.
    pub backlog: u32,
    /// Connections that wait.
    pub waiting: u32,
    /// Connections that its application accepted.
    pub accepted: u64,
    /// Segments dropped and connections reset, by reason; reasons without any are left out.
    pub drops: Vec<(String, u64)>,
}

/// A flow, as others see it. `received + the drops of received packets` is how many packets the device had for it, and one more
/// where it was accepted: the driver makes the SYN anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Its number.
    pub flow: u64,
    /// Protocol number.
    pub protocol: u8,
    /// Address and port of this side.
    pub local: SocketAddr,
    /// Address and port of the other side, where there is one.
    pub remote: Option<SocketAddr>,
    /// Process that opened it.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Packets delivered to it.
    pub received: u64,
    /// Their bytes, from the Ethernet header on.
    pub received_bytes: u64,
    /// Packets sent for it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Receive work charged to it, ns.
    pub receive_ns: u64,
    /// Its share of the wire.
    pub share: String,
    /// Time of the wire that it got, by name, without entries of 0.
    pub wire: Vec<(String, u64)>,
    /// Packets dropped, by reason; reasons without packets are left out.
    pub drops: Vec<(String, u64)>,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourState {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address; none: it was asked for, or did not answer.
    pub mac: Option<[u8; 6]>,
    /// For people: `reachable`, `asked`, `silent`.
    pub state: String,
    /// Time since it last said who it is, ms.
    pub age_ms: u64,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteState {
    /// Addresses that it is for, with the length of the prefix in bits.
    pub to: (IpAddr, u8),
    /// The next hop; none: the addresses are neighbours.
    pub via: Option<IpAddr>,
}

/// Bits of an address of this one's family: the longest prefix of it.
pub fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits that both addresses begin with; none: they are of two families.
pub fn common(one: IpAddr, other: IpAddr) -> Option<u8> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros() as u8),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros() as u8),
        _ => None,
    }
}

/// Is an address one of a prefix?
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
