//! Every cap and every interval of an interface, each with its reason.

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

/// Packets that one flow sends before the next flow has its turn.
pub(crate) const FLOW_QUANTUM: usize = 16;

/// Packets that a flow sends at most after its application closed it.
pub(crate) const LAST_PACKETS: usize = 1024;

/// Answers (ARP, ICMP) that wait for room on the device; further ones are dropped and counted.
pub(crate) const ANSWERS: usize = 256;

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

/// A silent neighbour is asked again no earlier.
pub(crate) const ARP_SILENCE: u64 = SECOND;

/// A neighbour that just said its address does not change it: a forged answer that comes later is too late.
pub(crate) const ARP_LOCKED: u64 = SECOND;

/// Answers to ARP questions a second, and in a row.
pub(crate) const ARP_ANSWERS: (u64, u64) = (200, 100);

/// Answers to echo requests a second, and in a row.
pub(crate) const ECHO_ANSWERS: (u64, u64) = (1000, 200);

/// ICMP errors a second, and in a row (RFC 1812 4.3.2.8).
pub(crate) const ICMP_ERRORS: (u64, u64) = (100, 50);

/// Bytes of an ICMP error's packet at most (RFC 1812 4.3.2.3).
pub(crate) const ICMP_ERROR_BYTES: usize = 576;

/// A datagram in pieces is given up after this (RFC 1122 3.3.2).
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

/// A first fragment that is shorter is an attack: each link carries 68 bytes in one piece (RFC 791 3.2, RFC 1858 3).
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
