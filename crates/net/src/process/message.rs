//! The messages between the daemon and an interface process. Each order has a number, which its answer repeats. A
//! message with the number 0 answers no order.
//!
//! File descriptors beside a message: first those for the asking application, then those of each [`Record`].

use crate::dhcp::lease::{HeldLease, Lease};
use crate::error::NetErrorKind;
use crate::routes::{Routes, Table};
use crate::share::ShareLimits;
use buffer::control::Message;
use buffer::{wire_codes, wire_enum, wire_struct};
use flow::{Answer, Change, Granted, OpenFlow, OpenInterface, OpenListener};
use std::net::IpAddr;

/// The longest message, bytes: as on the control socket.
pub(crate) const BYTES: usize = 192 << 10;

/// An order of the daemon, with its number.
#[derive(Debug)]
pub(crate) struct Asked(pub(crate) u64, pub(crate) Order);

/// An order of the daemon.
#[derive(Debug)]
pub(crate) enum Order {
    /// Open the device. The handle that an earlier process left goes beside it, if there is one.
    Up(Start),
    /// Restore something of an earlier process. Its file descriptors go beside it.
    Restore(Record),
    /// Everything is restored: packets may move.
    Begin,
    /// A flow.
    Open(Owner, OpenFlow),
    /// A listener.
    Listen(Owner, OpenListener),
    /// Trace the flow of this number, of this user (`None`: of any), with at most this number of bytes of each frame.
    Trace(Owner, Option<u32>, u64, u32),
    /// Something that the interface's thread does without anything that must be made first.
    Act(Act),
    /// End, so that another process continues with everything, on another device.
    HandOver,
    /// Take the interface down, and end.
    Down,
}

/// What the daemon orders and the interface's thread does as it is said.
#[derive(Debug)]
pub(crate) enum Act {
    /// Accept at most this number (the third) of connections that wait at the listener of this client's channel.
    Accept(u64, u32, u32),
    /// This channel of this client is closed.
    Close(u64, u32),
    /// Close everything that applications have closed, as before each order, then answer.
    Settle,
    /// This client has gone.
    Leave(u64),
    /// Give another share to the flow of this number, of this user (`None`: of any).
    Share(Option<u32>, u64, String, ShareLimits),
    /// Report the state, with the flows of this user; `None`: of all.
    State(Option<u32>),
    /// The host's next hop for packets to this address. `None`: the host cannot reach it.
    NextHop(IpAddr, Option<[u8; 6]>),
    /// Change addresses or routes.
    Change(Change),
}

/// The beginning of an interface, or its continuation in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) open: OpenInterface,
    /// Its present addresses and routes. A shared device has the host's.
    pub(crate) table: Table,
    /// Its hardware address in an earlier process. `None`: this is the first process on this device.
    pub(crate) mac: Option<[u8; 6]>,
    /// The secret for sequence numbers and cookies.
    pub(crate) secret: (u64, u64),
    /// The block of flow numbers of this process. No other process has the same.
    pub(crate) block: u64,
    /// Earlier processes that ended.
    pub(crate) restarts: u64,
    /// The daemon's control socket. Empty: another daemon cannot be found.
    pub(crate) control: String,
}

impl Start {
    /// The present addresses and routes, with a link-local address if the device is known and takes one.
    pub(crate) fn routes(&self) -> Routes {
        let routes = Routes::of_table(&self.table);
        match self.mac {
            Some(mac) => routes.on_device(mac),
            None => routes,
        }
    }
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

/// The owner of a flow or listener, and the daemon's decisions about it.
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

/// Something that outlives the process. The daemon keeps it with its file descriptors, for the next process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of a flow, listener or trace. 0 for doorbells.
    pub(crate) number: u64,
    pub(crate) client: u64,
    pub(crate) process: i32,
    pub(crate) user: u32,
    /// For a flow or listener.
    pub(crate) channel: u32,
    pub(crate) what: Kept,
}

/// The kind of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The doorbells of a client: the page, the handle by which the driver is rung, the handle by which it rings.
    Bells,
    /// A flow with its final address and port, and its user's weight: both segments, the application's first.
    Flow(OpenFlow, u32),
    /// A listener with its final address and port.
    Listener(OpenListener, ShareLimits),
    /// A trace of the flow of this number, with at most this many bytes of each frame: its segments, and its doorbells.
    Trace(u64, u32),
}

impl Record {
    /// The number of its file descriptors.
    pub(crate) fn fds(&self) -> usize {
        match self.what {
            Kept::Bells => 3,
            Kept::Flow(..) => 2,
            Kept::Listener(..) => 0,
            Kept::Trace(..) => 5,
        }
    }
}

/// A message of the process, the number of the order that it answers, and records for the daemon.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) number: u64,
    pub(crate) word: Word,
    pub(crate) records: Vec<Record>,
}

/// A message of the process.
#[derive(Debug)]
pub(crate) enum Word {
    /// The device is open. Its handle goes beside it, if it has one.
    Opened(Facts),
    /// The order was carried out; what an application or a command asked for has this answer.
    Answer(Answer),
    /// A trace, and its own number.
    Tracing(Granted, u64),
    /// The order was refused, for this reason.
    Refused(NetErrorKind, String),
    /// The flow, listener or trace of this number ended.
    Ended(u64),
    /// This client has gone: its doorbells hung up.
    Left(u64),
    /// Addresses or routes have changed.
    Routes(Table),
    /// Asks for the next hop of packets to this address.
    AskHop(IpAddr),
    /// The reason why the process ends.
    Fails(String),
    /// To a new daemon: how this interface began.
    Began(Start),
    /// To a new daemon: it has everything now.
    Ready,
    /// Only records to keep.
    Keep,
}

wire_struct!(ShareLimits { slices_ppm, weight, user_weight });
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
    2 = Flow(open, user_weight),
    3 = Listener(open, limits),
    4 = Trace(flow, snap),
});
wire_enum!(Order {
    1 = Up(start),
    2 = Restore(record),
    3 = Begin,
    4 = Open(owner, open),
    5 = Listen(owner, open),
    6 = Trace(owner, user, flow, snap),
    7 = Act(act),
    8 = HandOver,
    9 = Down,
});
wire_enum!(Act {
    1 = Accept(client, channel, most),
    2 = Close(client, channel),
    3 = Settle,
    4 = Leave(client),
    5 = Share(user, flow, share, limits),
    6 = State(user),
    7 = NextHop(address, mac),
    8 = Change(change),
});
wire_enum!(Word {
    1 = Opened(facts),
    2 = Answer(answer),
    3 = Tracing(granted, number),
    4 = Refused(kind, text),
    5 = Ended(number),
    6 = Left(client),
    7 = Routes(table),
    8 = AskHop(address),
    9 = Fails(text),
    10 = Began(start),
    11 = Ready,
    12 = Keep,
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
