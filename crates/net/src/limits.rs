//! Every limit and interval of an interface, with its reason.

use std::time::Duration;

/// A second, in the unit of all times here.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Flows of one client: as many as its doorbells have bits.
pub(crate) const CLIENT_FLOWS: usize = buffer::flow::bells::CHANNELS;

/// Flows of one user on all interfaces.
pub(crate) const USER_FLOWS: usize = 4096;

/// Bytes of the channels of one user on all interfaces. Of 4,096 flows with channels of the usual size, 1,000 fit.
pub(crate) const USER_BYTES: usize = 1 << 30;

/// Receive batches in one turn, after which applications have their turn to send.
pub(crate) const RECEIVE_BATCHES: usize = 4;

/// Transmit batches in one turn, after which the receive side has its turn.
pub(crate) const TRANSMIT_BATCHES: usize = 4;

/// Frames of one transmit batch.
pub(crate) const SLOTS: usize = base::limits::BATCH_BLOCKS;

/// Traces of one flow at a time: each costs the driver a copy of each frame.
pub(crate) const FLOW_TRACES: usize = 4;

/// How long a flow that its application closed may send the packets in its channel.
pub(crate) const CLOSE_TIME: u64 = SECOND;

/// Answers (ARP, ICMP) that wait for room on the device. Further ones are dropped and counted.
pub(crate) const ANSWERS: usize = 256;

/// The least that each IPv4 link carries unfragmented (RFC 791 3.2), and the most that a packet can have.
pub(crate) const MTU: std::ops::RangeInclusive<u32> = 68..=65535;

/// Addresses of an interface, and its routes besides those of addresses: each packet is compared with them.
pub(crate) const ADDRESSES: usize = 64;
/// As above.
pub(crate) const ROUTES: usize = 64;

/// How long flows of a removed address wait for its return (as long as `QUARANTINE_TIME`). So a late renewal of a
/// lease, or an address that moves from one prefix to another, ends no connection.
pub(crate) const ADDRESS_TIME: u64 = 60 * SECOND;

/// Time before a question to DHCP servers is repeated; doubled each time up to `DHCP_LONGEST` (RFC 2131, section 4.1).
pub(crate) const DHCP_FIRST: u64 = 4 * SECOND;
/// As above.
pub(crate) const DHCP_LONGEST: u64 = 64 * SECOND;

/// Requests to a server that offered an address and then does not answer: a minute in all.
pub(crate) const DHCP_ATTEMPTS: u32 = 4;

/// Probes for an address from a server, and the time for answers in all. Shorter than in RFC 5227, section 1.1, because
/// the server probes, too, and users wait.
pub(crate) const DHCP_PROBES: u32 = 3;
/// As above.
pub(crate) const DHCP_CHECK: u64 = SECOND;

/// The client begins again this long after a DECLINE (RFC 2131, section 3.1).
pub(crate) const DHCP_DECLINED: u64 = 10 * SECOND;

/// The client begins again this long after a refusal, twice as long after the next one, and so on.
pub(crate) const DHCP_REFUSED: u64 = SECOND;

/// The least time before a lease is renewed again (RFC 2131, section 4.4.5).
pub(crate) const DHCP_RENEW_LEAST: u64 = 60 * SECOND;

/// Neighbours that an interface remembers.
pub(crate) const NEIGHBOURS: usize = 1024;

/// Flows that wait for one neighbour.
pub(crate) const NEIGHBOUR_WAITERS: usize = USER_FLOWS;

/// Packets that wait for one neighbour after their flows were closed (RFC 1122 2.3.2.2 requires at least one).
pub(crate) const PARKED: usize = 3;

/// Questions before a neighbour counts as silent, and the time between them (RFC 1122 2.3.2.1: at most one a second).
pub(crate) const ARP_TRIES: u32 = 3;
/// As above.
pub(crate) const ARP_INTERVAL: u64 = SECOND;

/// How long an answer is valid. After that, its next use asks again (RFC 1122 2.3.2.1).
pub(crate) const ARP_FRESH: u64 = 30 * SECOND;

/// Announcements of each address when the interface comes up, and the time between them (RFC 5227 1.1).
pub(crate) const ANNOUNCEMENTS: u32 = 2;
/// As above.
pub(crate) const ANNOUNCE_INTERVAL: u64 = 2 * SECOND;

/// A silent neighbour is not asked again before this.
pub(crate) const ARP_SILENCE: u64 = SECOND;

/// A neighbour that just answered cannot change its address for this time: a forged answer comes too late.
pub(crate) const ARP_LOCKED: u64 = SECOND;

/// Like `ARP_FRESH`, if the host knows the next hops: asking it costs no packet.
pub(crate) const SHARE_FRESH: u64 = SECOND;

/// Waiting questions to the host, and destinations that it resolves at a time.
pub(crate) const SHARE_QUESTIONS: usize = NEIGHBOURS;
/// As above.
pub(crate) const SHARE_PENDING: usize = 128;

/// Answers to ARP questions: per second, and in a row.
pub(crate) const ARP_ANSWERS: (u64, u64) = (200, 100);

/// Answers to echo requests: per second, and in a row.
pub(crate) const ECHO_ANSWERS: (u64, u64) = (1000, 200);

/// ICMP errors: per second, and in a row (RFC 1812 4.3.2.8).
pub(crate) const ICMP_ERRORS: (u64, u64) = (100, 50);

/// The most bytes of an ICMP error's packet (RFC 1812 4.3.2.3), and of an ICMPv6 error's (RFC 4443 2.4 c).
pub(crate) const ICMP_ERROR_BYTES: usize = 576;
/// As above.
pub(crate) const ICMP6_ERROR_BYTES: usize = PATH_MTU_V6 as usize;

/// A fragmented datagram is given up after this (RFC 1122 3.3.2; RFC 8200 4.5 has twice the time for IPv6).
pub(crate) const FRAGMENT_TIME: u64 = 30 * SECOND;

/// Bytes of fragments of one source, and of all sources.
pub(crate) const FRAGMENT_SOURCE_BYTES: usize = 256 << 10;
/// As above.
pub(crate) const FRAGMENT_BYTES: usize = 4 << 20;

/// Fragmented datagrams of one source, and of all sources.
pub(crate) const FRAGMENT_SOURCE_DATAGRAMS: usize = 64;
/// As above.
pub(crate) const FRAGMENT_DATAGRAMS: usize = 1024;

/// Fragments of one datagram: 65,535 bytes in fragments of the 576 bytes that each link carries, rounded up.
pub(crate) const FRAGMENT_PIECES: usize = 128;

/// The overhead of a fragment besides its bytes.
pub(crate) const FRAGMENT_OVERHEAD: usize = 64;

/// Extension headers of a received IPv6 packet, and their bytes: each kind that a host meets, once (RFC 8504 5.3).
pub(crate) const EXTENSION_HEADERS: usize = 3;
/// As above.
pub(crate) const EXTENSION_BYTES: usize = 256;

/// A shorter first fragment of IPv4 is an attack: each link carries 68 bytes unfragmented (RFC 791 3.2, RFC 1858 3).
pub(crate) const FIRST_FRAGMENT_BYTES: usize = 68;

/// A device without room is retried after this. Its file descriptor does not tell: a packet socket is writable although
/// its device's queue is full, and an AF_XDP socket does not report sent frames.
pub(crate) const NO_ROOM: u64 = 200_000;

/// How often a device that is down is checked.
pub(crate) const DOWN_LOOK: u64 = SECOND / 10;

/// The least time between two reads of the device's counters.
pub(crate) const DEVICE_LOOK: u64 = SECOND / 2;

/// How much time a shaped interface may catch up after the thread slept too long.
pub(crate) const CATCH_UP: u64 = SECOND / 500;

/// The window over which receive work is divided: shorter than a user or a protocol's timer notices, longer than many turns.
pub(crate) const OVERLOAD_WINDOW: u64 = SECOND / 100;

/// The limit of receive work keeps room for flows that use little of their allowance: this multiple of their use.
pub(crate) const OVERLOAD_ROOM: u64 = 4;

/// The most bytes of an answer, whatever the device accepts.
pub(crate) const ANSWER_BYTES: usize = 2048;

/// The largest part (1/25) of a wire with a rate for answers to strangers (ICMP): less than guarantees leave free.
pub(crate) const ANSWER_PART: u64 = 25;

/// Time of the wire that answers may take in a row, ns: enough for a few long ones on a slow wire.
pub(crate) const ANSWER_BURST: u64 = SECOND / 200;

/// A SYN cookie is valid at least this long, and at most twice as long: longer than the peer takes to answer.
pub(crate) const COOKIE_TIME: u64 = 60 * SECOND;

/// A connection that its application has not accepted by then is reset.
pub(crate) const ACCEPT_TIME: u64 = 60 * SECOND;

/// Waiting connections at all listeners of one user. Each holds two file descriptors.
pub(crate) const USER_WAITING: usize = 1024;

/// With this many waiting answers, listeners answer no more SYNs: the rest is for ARP, ICMP and resets.
pub(crate) const SYN_ANSWERS: usize = ANSWERS / 2;

/// Waiting resets and answers together. Further resets are dropped and counted: the peer's next data gets one.
pub(crate) const RESETS: usize = 16 << 10;

/// The work of answering a SYN, in bytes that could be copied instead.
pub(crate) const SYN_WORK: usize = 1 << 10;

/// The work of making a channel for a connection, in the same unit: it takes about 20 system calls.
pub(crate) const CHANNEL_WORK: usize = 128 << 10;

/// How long the name of a TCP connection stays with its user after its end: Linux's TIME-WAIT (RFC 9293 requires 2 MSL, 4 min).
pub(crate) const QUARANTINE_TIME: u64 = 60 * SECOND;

/// Ended connections that an interface remembers, and those of one user: fewer than the ports that are chosen automatically.
pub(crate) const QUARANTINE: usize = 16 << 10;
/// As above.
pub(crate) const QUARANTINE_USER: usize = 4 << 10;

/// How long the thread sends resets when its interface goes down.
pub(crate) const LAST_RESETS: u64 = SECOND / 2;

/// The least MTU of a path (RFC 1191 3, RFC 791 3.2), and of an IPv6 path (RFC 8200 5).
pub(crate) const PATH_MTU: u32 = 68;
/// As above.
pub(crate) const PATH_MTU_V6: u32 = 1280;

/// How long an interface's process without a daemon waits for another one. The flows go on for that time.
pub(crate) const ORPHAN: Duration = Duration::from_secs(5);

/// How often it looks for a daemon, and for applications that have gone.
pub(crate) const LONELY_LOOK: Duration = Duration::from_millis(50);

/// How long the next process tries to open the device: the kernel releases memory and queues asynchronously.
pub(crate) const REOPEN: Duration = Duration::from_secs(2);

/// How long applications may take to claim their flows from a new daemon.
pub(crate) const CLAIM: Duration = Duration::from_secs(5);

/// How long the daemon waits for the states of all interfaces. One whose process is silent is listed as that.
pub(crate) const STATE: Duration = Duration::from_millis(500);

/// What each of them has of it at least, when those before it took all.
pub(crate) const STATE_LEAST: Duration = Duration::from_millis(100);

/// An interface's process that does not answer within this time is ended: it makes a channel in less than a millisecond.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How many processes of an interface may end within this time. After one more, the interface goes down.
pub(crate) const RESTARTS: (usize, Duration) = (5, Duration::from_secs(60));

/// How long a process may take to end when its interface goes down: longer than it sends resets.
pub(crate) const END: Duration = Duration::from_secs(3);
