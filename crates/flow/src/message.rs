//! What a daemon is asked about interfaces and flows, and what it answers.

use buffer::flow::Geometry;
use buffer::{wire_enum, wire_struct};
use std::net::{Ipv4Addr, SocketAddrV4};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Own this device. Only managers of the daemon may ask.
    Up(OpenInterface),
    /// Give this device up; its flows end.
    Down(String),
    /// A flow for this client.
    Open(OpenFlow),
    /// This client needs this channel no more; its number is that of [`Granted::channel`].
    Close(u32),
    /// List the interfaces with their flows.
    State,
    /// Another share of the wire for the flow of this number, of the client's user; see [`OpenFlow::share`].
    Share(u64, String),
}

/// What a daemon answers; a refusal is an answer of the socket's own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done as asked.
    Done,
    /// A flow.
    Granted(Granted),
    /// Interfaces there are.
    State(Vec<InterfaceState>),
}

/// A device for Streamline to own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInterface {
    /// Name of the device.
    pub device: String,
    /// How to reach it: `af_xdp`, `af_packet`, `tuntap`; none: the daemon chooses.
    pub how: Option<String>,
    /// Its addresses, each with the length of its prefix in bits.
    pub addresses: Vec<(Ipv4Addr, u8)>,
    /// The next hop for addresses outside the prefixes.
    pub gateway: Option<Ipv4Addr>,
    /// Bits a second that the wire carries; none: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Does a frame take its preamble, checksum and gap (24 bytes) of that rate, too?
    pub count_gaps: bool,
}

/// A flow to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    /// The interface; none: the one that routes to `remote`, or the only one there is.
    pub device: Option<String>,
    /// Protocol number: 17 for UDP.
    pub protocol: u8,
    /// Address and port of this side. Address 0.0.0.0: the interface's. Port 0: any that is free.
    pub local: SocketAddrV4,
    /// Address and port of the other side; none: packets from all, and to any.
    pub remote: Option<SocketAddrV4>,
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
    pub fn new(device: Option<String>, protocol: u8, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> OpenFlow {
        let Geometry { send_records, send_bytes, receive_buffers, buffer_bytes } = Geometry::default();
        let share = None;
        OpenFlow { device, protocol, local, remote, share, send_records, send_bytes, receive_buffers, buffer_bytes }
    }
}

/// A flow that was opened. Beside it go the channel's two segments (`buffer::flow::Application::attach`); with the first flow of
/// a client also the three handles of its doorbells (`buffer::flow::Bells::attach`).
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
    pub local: SocketAddrV4,
    /// Address and port of the other side, where there is one.
    pub remote: Option<SocketAddrV4>,
    /// May transport checksums of received packets be unfinished (a veth's peer that leaves them to the device)?
    pub unfinished_checksums: bool,
    /// Are the doorbells' handles beside this?
    pub has_bells: bool,
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
    pub addresses: Vec<(Ipv4Addr, u8)>,
    /// Bits a second of the wire; none: as fast as the device takes frames.
    pub rate: Option<u64>,
    /// Why it carries nothing now; none: it does.
    pub trouble: Option<String>,
    /// Everything that is counted, by name: frames received and sent, and each reason for a drop.
    pub counters: Vec<(String, u64)>,
    /// Flows of this client's user; a manager of the daemon gets those of all users.
    pub flows: Vec<FlowState>,
    /// Next hops known or asked for.
    pub neighbours: Vec<NeighbourState>,
    /// Routes, the most specific first.
    pub routes: Vec<RouteState>,
}

/// A flow, as others see it. `received + the drops of received packets` is how many packets the device had for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Its number.
    pub flow: u64,
    /// Protocol number.
    pub protocol: u8,
    /// Address and port of this side.
    pub local: SocketAddrV4,
    /// Address and port of the other side, where there is one.
    pub remote: Option<SocketAddrV4>,
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
    pub address: Ipv4Addr,
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
    pub to: (Ipv4Addr, u8),
    /// The next hop; none: the addresses are neighbours.
    pub via: Option<Ipv4Addr>,
}

wire_struct!(OpenInterface { device, how, addresses, gateway, rate, count_gaps }
    if |open| open.addresses.iter().all(|(_, bits)| *bits <= 32));
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
} if |granted| granted.prefix <= 32);
wire_struct!(InterfaceState { device, how, mac, mtu, addresses, rate, trouble, counters, flows, neighbours, routes });
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
wire_struct!(NeighbourState { address, mac, state, age_ms });
wire_struct!(RouteState { to, via });
wire_enum!(Question {
    1 = Up(open),
    2 = Down(device),
    3 = Open(open),
    4 = Close(channel),
    5 = State,
    6 = Share(flow, share),
});
wire_enum!(Answer {
    1 = Done,
    2 = Granted(granted),
    3 = State(interfaces),
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

    #[test]
    fn everything_said_is_heard_and_what_is_cut_is_not() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        let (local, remote) = (SocketAddrV4::new(address, 4000), Some(SocketAddrV4::new(address, 4001)));
        let open = OpenFlow::new(Some("v1".into()), 17, local, remote);
        let interface = OpenInterface {
            device: "v1".into(),
            how: Some("af_packet".into()),
            addresses: vec![(address, 24)],
            gateway: Some(address),
            rate: Some(100_000_000),
            count_gaps: true,
        };
        for question in [
            Question::Up(interface),
            Question::Down("v1".into()),
            Question::Open(open),
            Question::Close(7),
            Question::State,
            Question::Share(7, "fair:3".into()),
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
            addresses: vec![(address, 24)],
            rate: None,
            trouble: Some("it is down".into()),
            counters: vec![("received".into(), 1)],
            flows: vec![flow],
            neighbours: vec![NeighbourState { address, mac: Some(mac), state: "reachable".into(), age_ms: 5 }],
            routes: vec![RouteState { to: (address, 24), via: None }],
        };
        for answer in [Answer::Done, Answer::Granted(granted), Answer::State(vec![state])] {
            check(&answer);
        }
    }
}
