//! The messages between the daemon and an interface process. Each order has a number, which its answer repeats; a word with the number 0
//! answers nothing.
//!
//! Beside a word go file descriptors: first those for the application that asked, then those of each [`Record`], which the daemon keeps.

use crate::dhcp::Lease;
use crate::error::NetErrorKind;
use crate::routes::Routes;
use crate::share::ShareLimits;
use buffer::control::Message;
use buffer::{wire_codes, wire_enum, wire_struct};
use flow::{Change, Granted, InterfaceState, Listening, OpenFlow, OpenInterface, OpenListener, RouteState};
use std::net::{IpAddr, Ipv4Addr};

/// The longest message, bytes: as those of the control socket.
pub(crate) const BYTES: usize = 192 << 10;

/// An order of the daemon, with its number.
#[derive(Debug)]
pub(crate) struct Asked(pub(crate) u64, pub(crate) Order);

/// What the daemon orders.
#[derive(Debug)]
pub(crate) enum Order {
    /// Open the device. Beside it goes the handle that an earlier process left, where there is one.
    Up(Start),
    /// Go on with something that an earlier process had. Its file descriptors go beside it.
    Restore(Record),
    /// Everything is restored: packets may move.
    Begin,
    /// A flow.
    Open(Owner, OpenFlow),
    /// A listener.
    Listen(Owner, OpenListener),
    /// Connections that wait at the listener of this client's channel, at most as many as the third number says.
    Accept(u64, u32, u32),
    /// This channel of this client is closed.
    Close(u64, u32),
    /// What applications closed so far is closed before the answer.
    Settle,
    /// This client is gone.
    Leave(u64),
    /// Another share for the flow of this number, of this user; none: of any.
    Share(Option<u32>, u64, String, ShareLimits),
    /// A trace of the flow of this number, of this user (none: of any), with this many bytes of each frame at most.
    Trace(Owner, Option<u32>, u64, u32),
    /// How it is, with the flows of this user; none: of all.
    State(Option<u32>),
    /// The host says where packets to this address go; none: it does not reach it.
    NextHop(IpAddr, Option<[u8; 6]>),
    /// Addresses or routes change.
    Change(Change),
    /// The process ends, and another one goes on with everything, on another device.
    HandOver,
    /// The interface goes down, and the process ends.
    Down,
}

/// How an interface begins, and goes on in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) open: OpenInterface,
    /// Its addresses and routes as they are now; a shared device has those of the host.
    pub(crate) table: Table,
    /// The hardware address that it had in an earlier process; none: this is the first one on this device.
    pub(crate) mac: Option<[u8; 6]>,
    /// Of sequence numbers and cookies.
    pub(crate) secret: (u64, u64),
    /// Where the process finds its numbers for flows: no other has the same.
    pub(crate) block: u64,
    /// Processes that it had before and that ended.
    pub(crate) restarts: u64,
    /// The daemon's control socket; empty: there is no way to find another daemon.
    pub(crate) control: String,
}

impl Start {
    /// Addresses and routes as they are now; a link-local address where the device is known and takes one.
    pub(crate) fn routes(&self) -> Routes {
        let routes = Routes::of_table(&self.table);
        match self.mac {
            Some(mac) => routes.on_device(mac),
            None => routes,
        }
    }
}

/// Addresses of an interface, with the lengths of their prefixes, its routes beside those of addresses, and the lease that brought one of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) routes: Vec<RouteState>,
    pub(crate) lease: Option<HeldLease>,
}

/// A lease of a DHCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    /// The name of the client: it stays the same on another device.
    pub(crate) id: [u8; 6],
    /// The router that is in use; none: there is none, or people named another one.
    pub(crate) router: Option<Ipv4Addr>,
}

/// A device, once it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    /// How it is reached: a word of `OpenInterface::how`.
    pub(crate) via: String,
    /// Number and addresses of a device that is shared with the host.
    pub(crate) shared: Option<(u32, Vec<(IpAddr, u8)>)>,
}

/// Whose flow or listener it is, and what the daemon decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) client: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    pub(crate) limits: ShareLimits,
    /// It has no doorbells yet.
    pub(crate) is_first: bool,
    /// On a shared device: the daemon holds the port.
    pub(crate) has_port: bool,
}

/// Something that outlives the process: the daemon keeps it, with its file descriptors, for a process that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of a flow, listener or trace; 0 for doorbells.
    pub(crate) number: u64,
    pub(crate) client: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// Of a flow or listener.
    pub(crate) channel: u32,
    pub(crate) what: Kept,
}

/// What it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The doorbells of a client: page, the driver's end to be rung by, its end to ring by.
    Bells,
    /// A flow, with the address and port that it has: both segments, the application's first.
    Flow(OpenFlow),
    /// A listener, with the address and port that it has.
    Listener(OpenListener, ShareLimits),
    /// A trace of the flow of this number, with so many bytes of each frame: its segments, and its doorbells.
    Trace(u64, u32),
}

impl Record {
    /// File descriptors that go with it.
    pub(crate) fn fds(&self) -> usize {
        match self.what {
            Kept::Bells => 3,
            Kept::Flow(_) => 2,
            Kept::Listener(..) => 0,
            Kept::Trace(..) => 5,
        }
    }
}

/// A word of the process, the number of the order that it answers, and what the daemon is to keep.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) number: u64,
    pub(crate) word: Word,
    pub(crate) records: Vec<Record>,
}

/// What the process says.
#[derive(Debug)]
pub(crate) enum Word {
    /// The device is open. Its handle goes beside it, where it has one.
    Opened(Facts),
    /// Done as ordered.
    Done,
    /// A flow.
    Granted(Granted),
    /// A trace, and its own number.
    Tracing(Granted, u64),
    /// A listener.
    Listening(Listening),
    /// Connections that waited.
    Accepted(Vec<Granted>),
    /// How it is.
    State(InterfaceState),
    /// Not done, and why.
    Refused(NetErrorKind, String),
    /// The flow, listener or trace of this number ended.
    Ended(u64),
    /// This client is gone: its doorbells hung up.
    Left(u64),
    /// Addresses or routes are others now.
    Routes(Table),
    /// Where do packets to this address go?
    AskHop(IpAddr),
    /// Why the process ends.
    Fails(String),
    /// To a daemon that has just come: how this interface began.
    Began(Start),
    /// To a daemon that has just come: it has been told everything.
    Ready,
    /// Nothing but what is to be kept.
    Keep,
}

wire_struct!(ShareLimits { slices_ppm, weight });
wire_struct!(Table { addresses, routes, lease });
wire_struct!(HeldLease { lease, id, router });
wire_struct!(Lease { address, bits, router, mtu, server, renew, rebind, end });
wire_struct!(Start { open, table, mac, secret, block, restarts, control });
wire_struct!(Facts { mac, mtu, via, shared });
wire_struct!(Owner { client, process, user, limits, is_first, has_port });
wire_struct!(Record { number, client, process, user, channel, what });
wire_struct!(Said { number, word, records });
wire_enum!(Kept {
    1 = Bells,
    2 = Flow(open),
    3 = Listener(open, limits),
    4 = Trace(flow, snap),
});
wire_enum!(Order {
    1 = Up(start),
    2 = Restore(record),
    3 = Begin,
    4 = Open(owner, open),
    5 = Listen(owner, open),
    6 = Accept(client, channel, most),
    7 = Close(client, channel),
    8 = Leave(client),
    9 = Share(user, flow, share, limits),
    10 = Trace(owner, user, flow, snap),
    11 = State(user),
    12 = NextHop(address, mac),
    13 = Down,
    14 = Change(change),
    15 = HandOver,
    16 = Settle,
});
wire_enum!(Word {
    1 = Opened(facts),
    2 = Done,
    3 = Granted(granted),
    4 = Listening(listening),
    5 = Accepted(granted),
    6 = State(state),
    7 = Refused(kind, text),
    8 = Ended(number),
    9 = Left(client),
    10 = AskHop(address),
    11 = Fails(text),
    12 = Began(start),
    13 = Ready,
    14 = Keep,
    15 = Tracing(granted, number),
    16 = Routes(table),
});
wire_codes!(NetErrorKind { Absent = 0, InUse = 1, Denied = 2, Full = 3, Request = 4, System = 5 });

impl buffer::control::codec::Wire for Asked {
    fn put(&self, out: &mut buffer::control::codec::Out) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(fields: &mut buffer::control::codec::In<'_>) -> Option<Asked> {
        Some(Asked(u64::get(fields)?, Order::get(fields)?))
    }
}

impl Message for Asked {
    const BYTES: usize = BYTES;
}

impl Message for Said {
    const BYTES: usize = BYTES;
}
