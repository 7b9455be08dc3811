//! Every cap and every interval of an interface, each with its reason.

use std::time::Duration;

/// A second, in the unit of all times here.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Flows of one client: as many as its doorbells have bits.
pub(crate) const CLIENT_FLOWS: usize = buffer::flow::bells::CHANNELS;

/// Flows of one user on all interfaces.
pub(crate) const USER_FLOWS: usize = 4096;

/// Bytes of the channels of one user, on all interfaces together: of 4,096 flows with channels of the usual size, 1,000.
pub(crate) const USER_BYTES: usize = 1 << 30;

/// Receive batches in one turn, after which applications have their turn to send.
pub(crate) const RECEIVE_BATCHES: usize = 4;

/// Transmit batches in one turn, after which the receive side has its turn.
pub(crate) const TRANSMIT_BATCHES: usize = 4;

/// Frames of one transmit batch.
pub(crate) const SLOTS: usize = base::limits::BATCH_BLOCKS;

/// Traces of one flow at a time: each costs the driver a copy of each frame.
pub(crate) const FLOW_TRACES: usize = 4;

/// A flow that its application closed has so long to send the packets in its channel.
pub(crate) const CLOSE_TIME: u64 = SECOND;

/// Answers (ARP, ICMP) that wait for room on the device; further ones are dropped and counted.
pub(crate) const ANSWERS: usize = 256;

/// The least that each IPv4 link carries in one piece (RFC 791 3.2), and the most a packet can have.
pub(crate) const MTU: std::ops::RangeInclusive<u32> = 68..=65535;

/// Addresses of an interface, and its routes beside those of addresses: each packet is compared with them.
pub(crate) const ADDRESSES: usize = 64;
/// As above.
pub(crate) const ROUTES: usize = 64;

/// Flows of an address that was removed wait so long for its return (as long as `QUARANTINE_TIME`): a lease that is renewed late, or an
/// address that moves from one prefix to another, ends no connection.
pub(crate) const ADDRESS_TIME: u64 = 60 * SECOND;

/// A question to DHCP servers is repeated after this time, twice the time, and so on, up to the second one (RFC 2131, section 4.1).
pub(crate) const DHCP_FIRST: u64 = 4 * SECOND;
/// As above.
pub(crate) const DHCP_LONGEST: u64 = 64 * SECOND;

/// Requests to a server that offered an address and then says nothing: a minute in all.
pub(crate) const DHCP_ATTEMPTS: u32 = 4;

/// Probes for an address that a server gave, and the time for answers in all. Shorter than in RFC 5227, section 1.1, because the server
/// probes, too, and people wait.
pub(crate) const DHCP_PROBES: u32 = 3;
/// As above.
pub(crate) const DHCP_CHECK: u64 = SECOND;

/// After a DECLINE, the client begins again after this time (RFC 2131, section 3.1).
pub(crate) const DHCP_DECLINED: u64 = 10 * SECOND;

/// After a refusal, the client begins again after this time, twice the time after the next one, and so on.
pub(crate) const DHCP_REFUSED: u64 = SECOND;

/// A lease is asked for again no earlier than this (RFC 2131, section 4.4.5).
pub(crate) const DHCP_RENEW_LEAST: u64 = 60 * SECOND;

/// Neighbours that an interface remembers.
pub(crate) const NEIGHBOURS: usize = 1024;

/// Flows that wait for one neighbour.
pub(crate) const NEIGHBOUR_WAITERS: usize = USER_FLOWS;

/// Packets that wait for one neighbour after their flows were closed (RFC 1122 2.3.2.2 asks for one at least).
pub(crate) const PARKED: usize = 3;

/// Questions before a neighbour counts as silent, and the time between them (RFC 1122 2.3.2.1: at most one a second).
pub(crate) const ARP_TRIES: u32 = 3;
/// As above.
pub(crate) const ARP_INTERVAL: u64 = SECOND;

/// An answer is believed for so long; then the next use of it asks again (RFC 1122 2.3.2.1).
pub(crate) const ARP_FRESH: u64 = 30 * SECOND;

/// Announcements of each address when the interface comes up, and the time between them (RFC 5227 1.1).
pub(crate) const ANNOUNCEMENTS: u32 = 2;
/// As above.
pub(crate) const ANNOUNCE_INTERVAL: u64 = 2 * SECOND;

/// A silent neighbour is asked again no earlier.
pub(crate) const ARP_SILENCE: u64 = SECOND;

/// A neighbour that just said its address does not change it: a forged answer that comes later is too late.
pub(crate) const ARP_LOCKED: u64 = SECOND;

/// As `ARP_FRESH` where the host knows the next hops: to ask it costs no packet.
pub(crate) const SHARE_FRESH: u64 = SECOND;

/// Questions to the host that wait, and destinations that it is resolving at a time.
pub(crate) const SHARE_QUESTIONS: usize = NEIGHBOURS;
/// As above.
pub(crate) const SHARE_PENDING: usize = 128;

/// Answers to ARP questions a second, and in a row.
pub(crate) const ARP_ANSWERS: (u64, u64) = (200, 100);

/// Answers to echo requests a second, and in a row.
pub(crate) const ECHO_ANSWERS: (u64, u64) = (1000, 200);

/// ICMP errors a second, and in a row (RFC 1812 4.3.2.8).
pub(crate) const ICMP_ERRORS: (u64, u64) = (100, 50);

/// Bytes of an ICMP error's packet at most (RFC 1812 4.3.2.3), and of one of ICMPv6 (RFC 4443 2.4 c).
pub(crate) const ICMP_ERROR_BYTES: usize = 576;
/// As above.
pub(crate) const ICMP6_ERROR_BYTES: usize = PATH_MTU_V6 as usize;

/// A datagram in pieces is given up after this (RFC 1122 3.3.2; of IPv6, RFC 8200 4.5 has twice the time).
pub(crate) const FRAGMENT_TIME: u64 = 30 * SECOND;

/// Bytes that fragments of one source may take, and of all sources.
pub(crate) const FRAGMENT_SOURCE_BYTES: usize = 256 << 10;
/// As above.
pub(crate) const FRAGMENT_BYTES: usize = 4 << 20;

/// Datagrams in pieces of one source, and of all.
pub(crate) const FRAGMENT_SOURCE_DATAGRAMS: usize = 64;
/// As above.
pub(crate) const FRAGMENT_DATAGRAMS: usize = 1024;

/// Pieces of one datagram: 65,535 bytes in pieces of the 576 bytes that each link carries, rounded up.
pub(crate) const FRAGMENT_PIECES: usize = 128;

/// What a fragment takes beside its bytes.
pub(crate) const FRAGMENT_OVERHEAD: usize = 64;

/// Extension headers of a received IPv6 packet, and bytes of them, that are skipped: each kind that a host meets, once (RFC 8504 5.3).
pub(crate) const EXTENSION_HEADERS: usize = 3;
/// As above.
pub(crate) const EXTENSION_BYTES: usize = 256;

/// A first fragment of IPv4 that is shorter is an attack: each link carries 68 bytes in one piece (RFC 791 3.2, RFC 1858 3).
pub(crate) const FIRST_FRAGMENT_BYTES: usize = 68;

/// A device without room is tried again after this. Its file descriptor does not say: a packet socket whose device has a full
/// queue can be written to, and an AF_XDP socket does not tell when a frame was sent.
pub(crate) const NO_ROOM: u64 = 200_000;

/// A device that is down is looked at this often.
pub(crate) const DOWN_LOOK: u64 = SECOND / 10;

/// The thread asks the device for its counters at most this often.
pub(crate) const DEVICE_LOOK: u64 = SECOND / 2;

/// How far a shaped interface may catch up after the thread slept too long.
pub(crate) const CATCH_UP: u64 = SECOND / 500;

/// Receive work is shared out over a window of so long: shorter than a person or a protocol's timer notices, longer than many turns.
pub(crate) const OVERLOAD_WINDOW: u64 = SECOND / 100;

/// The limit of receive work keeps room for a flow that uses little of its share: so many times its use.
pub(crate) const OVERLOAD_ROOM: u64 = 4;

/// Answers are at most this, whatever the device takes.
pub(crate) const ANSWER_BYTES: usize = 2048;

/// Answers to strangers (ICMP) take at most this part of a wire with a rate: less than guarantees leave free.
pub(crate) const ANSWER_PART: u64 = 25;

/// Time of the wire that answers may take in a row, ns: a few long ones on a slow wire.
pub(crate) const ANSWER_BURST: u64 = SECOND / 200;

/// A SYN cookie is good for this long at least, and twice this at most: longer than the other side takes to answer.
pub(crate) const COOKIE_TIME: u64 = 60 * SECOND;

/// A connection that its application has not accepted after this is reset.
pub(crate) const ACCEPT_TIME: u64 = 60 * SECOND;

/// Connections that wait at all listeners of one user. Each holds two file descriptors.
pub(crate) const USER_WAITING: usize = 1024;

/// Answers that wait when listeners answer no further SYN: the rest is for ARP, ICMP and resets.
pub(crate) const SYN_ANSWERS: usize = ANSWERS / 2;

/// Resets of own connections and answers that wait together; further resets are dropped and counted. The other side is reset when it
/// sends data, then.
pub(crate) const RESETS: usize = 16 << 10;

/// The work of answering a SYN, in bytes that could be copied instead.
pub(crate) const SYN_WORK: usize = 1 << 10;

/// The work of making a channel for a connection, in the same unit: it takes some 20 system calls.
pub(crate) const CHANNEL_WORK: usize = 128 << 10;

/// The name of a TCP connection belongs to its user for this long after its end: Linux's TIME-WAIT (RFC 9293 asks for 2 MSL, 4 min).
pub(crate) const QUARANTINE_TIME: u64 = 60 * SECOND;

/// Ended connections that an interface remembers, and those of one user: fewer than there are ports that nobody chose.
pub(crate) const QUARANTINE: usize = 16 << 10;
/// As above.
pub(crate) const QUARANTINE_USER: usize = 4 << 10;

/// The thread sends resets for this long when its interface goes down.
pub(crate) const LAST_RESETS: u64 = SECOND / 2;

/// The least MTU of a path (RFC 1191 3, RFC 791 3.2), and of one of IPv6 (RFC 8200 5).
pub(crate) const PATH_MTU: u32 = 68;
/// As above.
pub(crate) const PATH_MTU_V6: u32 = 1280;

/// An interface's process that has no daemon looks for another one for this long, and so long the flows go on.
pub(crate) const ORPHAN: Duration = Duration::from_secs(5);

/// How often it looks, and looks which applications have gone.
pub(crate) const LONELY_LOOK: Duration = Duration::from_millis(50);

/// A process that follows another tries to open the device for this long: the kernel releases memory and queues on the side.
pub(crate) const REOPEN: Duration = Duration::from_secs(2);

/// Applications have this long to claim their flows from a daemon that has just come.
pub(crate) const CLAIM: Duration = Duration::from_secs(5);

/// An interface's process answers within this time, or is ended: it makes a channel in less than a millisecond.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How many processes of an interface may end within which time. After one more, the interface goes down.
pub(crate) const RESTARTS: (usize, Duration) = (5, Duration::from_secs(60));

/// A process has this long to end when its interface goes down: longer than it sends resets.
pub(crate) const END: Duration = Duration::from_secs(3);
