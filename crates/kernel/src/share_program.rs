//! The XDP program on a device that takes the packets of known flows to AF_XDP sockets. All other frames go to the
//! host: ARP, the host's connections, frames with a tag or options, and every frame that the program cannot classify.
//! The crate `driver` has the sockets and the device, and attaches the program.
//!
//! Flows are entries of two hash maps. One is keyed by protocol, both addresses and both ports; the other by protocol,
//! local address and port. Opening or closing a flow changes one entry, and the program stays. The first fragment of a
//! flow's datagram puts the datagram into a third map, which finds later fragments. A later fragment that arrives
//! before the first one goes to the host. ICMP errors are found by the header that they quote, only in the first map.
//!
//! | register | contents |
//! |---|---|
//! | `R6` | the context (`struct xdp_md`) |
//! | `R7` | this processor's place: the frame's beginning, then the keys (`place`) |
//! | `R8` | bytes of the frame, then the IPv4 total length, at the end the verdict |
//! | `R9` | at the end: the reason |

use crate::code::{Alu, Code, Compare, Helper, Instruction, Label, Register, Width};
use crate::program_error::ProgramError;
use crate::sys::{self, MMAPABLE, MapKind};
use crate::wire::{PerCpu, add_constant};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9};
use base::atomic::{AtomicU64, Ordering};
use bpf::HashMap;
use buffer::shared::segment::{Access, Mapping, PAGE_BYTES};
use buffer::shared::words::{Shared, Words};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most flows in each of the two maps.
pub const FLOWS: u32 = 16 << 10;

/// The most fragmented datagrams that are remembered.
const DATAGRAMS: u32 = 4 << 10;

/// A fragment that comes this long after the first one goes to the host, in ns. Linux collects fragments for the same time.
const FRAGMENT_TIME: u64 = 30_000_000_000;

// Verdicts (`linux/bpf.h`): drop it; pass it to the host; redirect it by a map.
const DROP: i32 = 1;
const PASS: i32 = 2;
const REDIRECT: i32 = 4;
/// Offset in `struct xdp_md`.
const QUEUE: i16 = 16;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

const ETHERNET: i32 = 14;
const HEADERS: i32 = ETHERNET + 20;

/// The reason for a frame's verdict, in the order of [`REASONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Reason {
    Exact,
    Bound,
    Fragment,
    Error,
    Short,
    OtherMac,
    NotIpv4,
    Header,
    Truncated,
    OtherProtocol,
    NoFlow,
    StrayFragment,
    StrayError,
    NoSocket,
}

/// Names of the counters: frames taken for flows, then frames left to the host, and last frames of flows without a
/// socket. The program drops the latter, because the host would answer them with a reset.
pub const REASONS: [&str; 14] = [
    "taken.flow",
    "taken.local_port",
    "taken.fragment",
    "taken.icmp_error",
    "left.short",
    "left.other_hardware_address",
    "left.not_ipv4",
    "left.ipv4_header",
    "left.truncated",
    "left.other_protocol",
    "left.no_flow",
    "left.fragment_of_no_flow",
    "left.icmp",
    "dropped.no_socket",
];

/// The counts of one processor, by [`Reason`].
#[repr(C, align(128))]
struct CpuCounts {
    by_reason: [AtomicU64; 16],
}

// SAFETY: repr(C), atomics only, and all zero bytes are a valid value.
unsafe impl Words for CpuCounts {}

/// Offsets of one processor's place: the frame's beginning is at 0, its keys follow.
mod place {
    pub const KEY: i16 = 80;
    pub const BOUND: i16 = 96;
    pub const FRAGMENT: i16 = 112;
    pub const TIME: i16 = 128;
    pub const REASON: i16 = 136;
    pub const BYTES: u32 = 256;
}

/// What names a flow to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// 6 (TCP) or 17 (UDP).
    pub protocol: u8,
    /// Address and port of this side.
    pub local: SocketAddrV4,
    /// Address and port of the peer. `None`: packets from all peers.
    pub remote: Option<SocketAddrV4>,
}

fn exact_key(protocol: u8, local: SocketAddrV4, remote: SocketAddrV4) -> [u8; 16] {
    let mut key = [0; 16];
    key[0] = protocol;
    key[4..8].copy_from_slice(&local.ip().octets());
    key[8..12].copy_from_slice(&remote.ip().octets());
    key[12..14].copy_from_slice(&local.port().to_be_bytes());
    key[14..].copy_from_slice(&remote.port().to_be_bytes());
    key
}

fn bound_key(protocol: u8, local: SocketAddrV4) -> [u8; 12] {
    let mut key = [0; 12];
    key[0] = protocol;
    key[4..8].copy_from_slice(&local.ip().octets());
    key[8..10].copy_from_slice(&local.port().to_be_bytes());
    key
}

/// A program, loaded and attached to nothing, with no flow and no socket.
pub struct ShareProgram {
    program: OwnedFd,
    sockets: OwnedFd,
    exact: HashMap<16, 4>,
    bound: HashMap<12, 4>,
    cpus: Vec<Shared<CpuCounts>>,
}

impl std::fmt::Debug for ShareProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareProgram").field("program", &self.program).finish_non_exhaustive()
    }
}

impl ShareProgram {
    /// A program for a device with this hardware address and number of queues.
    ///
    /// # Errors
    ///
    /// The kernel refused a map or the program: that needs CAP_BPF and CAP_NET_ADMIN.
    pub fn new(mac: [u8; 6], queues: u32) -> Result<ShareProgram, ProgramError> {
        let system = |what| move |error| ProgramError::System(what, error);
        let no_map = || system("the kernel gave no map");
        if sys::is_realtime() {
            let why = io::Error::new(io::ErrorKind::Unsupported, "this is a real-time kernel (PREEMPT_RT)");
            return Err(ProgramError::System("programs could interrupt each other", why));
        }
        let cpus = sys::possible_cpus();
        let count_bytes = (cpus as usize * size_of::<CpuCounts>()).next_multiple_of(PAGE_BYTES);
        let counts = sys::create_map(MapKind::Array, "sl_shared", count_bytes as u32, 1, MMAPABLE).map_err(no_map())?;
        let mapping = Mapping::of(counts.as_fd(), count_bytes, Access::Read);
        let mapping = mapping.map_err(system("the counters were not mapped"))?;
        let page = |cpu: u32| Shared::in_mapping(&mapping, cpu as usize * size_of::<CpuCounts>());
        let heads = sys::create_map(MapKind::Array, "sl_head", place::BYTES * cpus, 1, 0).map_err(no_map())?;
        let sockets = sys::create_map(MapKind::Sockets, "sl_sockets", 4, queues.max(1), 0).map_err(no_map())?;
        let exact = HashMap::create("sl_flows", FLOWS, false).map_err(no_map())?;
        let bound = HashMap::create("sl_ports", FLOWS, false).map_err(no_map())?;
        let fragments: HashMap<12, 8> = HashMap::create("sl_fragments", DATAGRAMS, true).map_err(no_map())?;
        let maker = Maker {
            mac,
            counts: PerCpu { map: counts.as_fd(), at: 0, bytes: size_of::<CpuCounts>() as u32, cpus },
            heads: PerCpu { map: heads.as_fd(), at: 0, bytes: place::BYTES, cpus },
            sockets: sockets.as_fd(),
            exact: exact.as_fd(),
            bound: bound.as_fd(),
            fragments: fragments.as_fd(),
        };
        let program = sys::load_xdp("streamline_xdp", &maker.code()?).map_err(ProgramError::Load)?;
        // The kernel keeps the program's maps.
        let cpus = (0..cpus).filter_map(page).collect();
        Ok(ShareProgram { program, sockets, exact, bound, cpus })
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The map of sockets: a key for each queue.
    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    /// Takes the packets of this flow from now on.
    ///
    /// # Errors
    ///
    /// The map is full, or the kernel has no memory.
    pub fn insert(&self, flow: &FlowKey) -> io::Result<()> {
        match flow.remote {
            Some(remote) => self.exact.insert(&exact_key(flow.protocol, flow.local, remote), &[0; 4]),
            None => self.bound.insert(&bound_key(flow.protocol, flow.local), &[0; 4]),
        }
    }

    /// Leaves the packets of this flow to the host from now on. An unknown flow is no error.
    ///
    /// # Errors
    ///
    /// The kernel failed.
    pub fn remove(&self, flow: &FlowKey) -> io::Result<()> {
        let removed = match flow.remote {
            Some(remote) => self.exact.remove(&exact_key(flow.protocol, flow.local, remote)),
            None => self.bound.remove(&bound_key(flow.protocol, flow.local)),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    /// Counts by the names of [`REASONS`]. Each frame of the device counts once.
    pub fn counted(&self) -> [u64; REASONS.len()] {
        std::array::from_fn(|at| {
            self.cpus.iter().fold(0, |sum: u64, cpu| sum.wrapping_add(cpu.by_reason[at].load(Ordering::Relaxed)))
        })
    }

    /// Runs the program on a frame, and counts it. Without a socket no frame is taken: it counts as `dropped.no_socket`.
    ///
    /// # Errors
    ///
    /// The kernel cannot run the program on this frame: frames without a link header.
    pub fn test_run(&self, frame: &[u8]) -> io::Result<i32> {
        sys::test_run(self.program(), frame, 1).map(|run| run.result)
    }
}

struct Maker<'a> {
    mac: [u8; 6],
    counts: PerCpu<'a>,
    heads: PerCpu<'a>,
    sockets: BorrowedFd<'a>,
    exact: BorrowedFd<'a>,
    bound: BorrowedFd<'a>,
    fragments: BorrowedFd<'a>,
}

#[derive(Clone, Copy)]
struct Ends {
    take: Label,
    leave: Label,
    /// Passes the frame uncounted. The verifier requires this path, which never runs.
    pass: Label,
}

impl Maker<'_> {
    fn code(&self) -> Result<Vec<Instruction>, ProgramError> {
        let mut code = Code::fetching_by(Helper::XdpLoadBytes);
        let ends = Ends { take: code.label(), leave: code.label(), pass: code.label() };
        let (later, icmp, counted) = (code.label(), code.label(), code.label());
        code.copy(R6, R1);
        code.call(Helper::XdpBufferLength);
        code.copy(R8, R0);
        self.heads.this(&mut code, R7, ends.pass);
        self.head(&mut code, ends);
        // The fragment's offset, and whether more fragments follow.
        code.load(Width::Two, R1, R7, 20);
        code.big_endian(R1, 16);
        code.jump_if(Compare::AnyBit, R1, 0x1fff, later);
        code.load(Width::One, R2, R7, 23);
        code.jump_if(Compare::Equal, R2, ICMP.into(), icmp);
        self.transport(&mut code, ends);
        code.place(later);
        self.later_fragment(&mut code, ends);
        code.place(icmp);
        self.icmp(&mut code, ends);
        code.place(ends.take);
        code.load(Width::Four, R2, R6, QUEUE);
        code.set_map(R1, self.sockets);
        code.set(R3, DROP);
        code.call(Helper::RedirectMap);
        code.copy(R8, R0);
        code.jump_if(Compare::Equal, R8, REDIRECT, counted);
        self.because(&mut code, Reason::NoSocket);
        code.jump(counted);
        code.place(ends.leave);
        code.set(R8, PASS);
        code.place(counted);
        self.counts.this(&mut code, R1, ends.pass);
        code.load(Width::Eight, R9, R7, place::REASON);
        // The verifier requires a bound.
        code.jump_if(Compare::Greater, R9, REASONS.len() as i32 - 1, ends.pass);
        code.alu(Alu::ShiftLeft, R9, 3);
        code.alu_register(Alu::Add, R1, R9);
        add_constant(&mut code, R1, 0, 1);
        code.copy(R0, R8);
        code.exit();
        code.place(ends.pass);
        code.set(R0, PASS);
        code.exit();
        code.finish().map_err(ProgramError::Code)
    }

    fn because(&self, code: &mut Code, reason: Reason) {
        // Stored in memory: a register would have different values on different paths, which the verifier refuses
        // without CAP_PERFMON.
        code.store_constant(Width::Eight, R7, place::REASON, reason as i32);
    }

    /// Loads bytes of the frame to the same offset of the processor's place.
    fn fetch(&self, code: &mut Code, from: i32, len: i32, ends: Ends) {
        code.copy(R1, R6);
        code.set(R2, from);
        code.copy(R3, R7);
        code.alu(Alu::Add, R3, from);
        code.set(R4, len);
        code.load_bytes();
        code.jump_if(Compare::NotEqual, R0, 0, ends.leave);
    }

    /// Requires a complete IPv4 header without options, to this host's hardware address. Sets `R8` to the packet's length.
    fn head(&self, code: &mut Code, ends: Ends) {
        self.because(code, Reason::Short);
        code.jump_if(Compare::Less, R8, HEADERS, ends.leave);
        self.fetch(code, 0, HEADERS, ends);
        self.because(code, Reason::OtherMac);
        let [a, b, c, d, e, f] = self.mac;
        code.load(Width::Four, R1, R7, 0);
        let first = code.label();
        code.jump_if_32(Compare::Equal, R1, u32::from_ne_bytes([a, b, c, d]), first);
        code.jump(ends.leave);
        code.place(first);
        code.load(Width::Two, R1, R7, 4);
        code.jump_if(Compare::NotEqual, R1, u16::from_ne_bytes([e, f]).into(), ends.leave);
        self.because(code, Reason::NotIpv4);
        code.load(Width::Two, R1, R7, 12);
        code.big_endian(R1, 16);
        code.jump_if(Compare::NotEqual, R1, 0x0800, ends.leave);
        self.because(code, Reason::Header);
        code.load(Width::One, R1, R7, 14);
        code.jump_if(Compare::NotEqual, R1, 0x45, ends.leave);
        self.because(code, Reason::Truncated);
        code.alu(Alu::Subtract, R8, ETHERNET);
        code.load(Width::Two, R1, R7, 16);
        code.big_endian(R1, 16);
        code.jump_if_register(Compare::Greater, R1, R8, ends.leave);
        code.copy(R8, R1);
    }

    /// Builds the key of a fragment's datagram.
    fn fragment_key(&self, code: &mut Code) {
        code.load(Width::One, R1, R7, 23);
        code.store(Width::Two, R7, place::FRAGMENT, R1);
        for (width, from, to) in [(Width::Two, 18, 2), (Width::Four, 26, 4), (Width::Four, 30, 8)] {
            code.load(width, R1, R7, from);
            code.store(width, R7, place::FRAGMENT + to, R1);
        }
    }

    /// Looks a key up. `R0` = its value, or 0.
    fn look_up(&self, code: &mut Code, map: BorrowedFd<'_>, key: i16) {
        code.set_map(R1, map);
        code.copy(R2, R7);
        code.alu(Alu::Add, R2, key.into());
        code.call(Helper::MapLookup);
    }

    /// An unfragmented packet, or a first fragment. `R2` holds the protocol.
    fn transport(&self, code: &mut Code, ends: Ends) {
        let (udp, found) = (code.label(), code.label());
        self.because(code, Reason::Truncated);
        code.jump_if(Compare::Equal, R2, UDP.into(), udp);
        self.because(code, Reason::OtherProtocol);
        code.jump_if(Compare::NotEqual, R2, TCP.into(), ends.leave);
        self.because(code, Reason::Truncated);
        code.jump_if(Compare::Less, R8, 40, ends.leave);
        code.place(udp);
        code.jump_if(Compare::Less, R8, 28, ends.leave);
        self.fetch(code, HEADERS, 4, ends);
        code.load(Width::One, R1, R7, 23);
        code.store(Width::Four, R7, place::KEY, R1);
        code.store(Width::Four, R7, place::BOUND, R1);
        code.load(Width::Four, R1, R7, 30);
        code.store(Width::Four, R7, place::KEY + 4, R1);
        code.store(Width::Four, R7, place::BOUND + 4, R1);
        code.load(Width::Four, R1, R7, 26);
        code.store(Width::Four, R7, place::KEY + 8, R1);
        code.load(Width::Two, R1, R7, 36);
        code.store(Width::Two, R7, place::KEY + 12, R1);
        code.store(Width::Four, R7, place::BOUND + 8, R1);
        code.load(Width::Two, R1, R7, 34);
        code.store(Width::Two, R7, place::KEY + 14, R1);
        self.because(code, Reason::Exact);
        self.look_up(code, self.exact, place::KEY);
        code.jump_if(Compare::NotEqual, R0, 0, found);
        self.because(code, Reason::Bound);
        self.look_up(code, self.bound, place::BOUND);
        code.jump_if(Compare::NotEqual, R0, 0, found);
        self.because(code, Reason::NoFlow);
        self.more_follow(code, ends.leave);
        // An earlier datagram of a flow may have had this number.
        self.fragment_key(code);
        code.set_map(R1, self.fragments);
        code.copy(R2, R7);
        code.alu(Alu::Add, R2, place::FRAGMENT.into());
        code.call(Helper::MapDelete);
        code.jump(ends.leave);
        code.place(found);
        self.more_follow(code, ends.take);
        self.fragment_key(code);
        code.call(Helper::KtimeGetNs);
        code.store(Width::Eight, R7, place::TIME, R0);
        code.set_map(R1, self.fragments);
        code.copy(R2, R7);
        code.alu(Alu::Add, R2, place::FRAGMENT.into());
        code.copy(R3, R7);
        code.alu(Alu::Add, R3, place::TIME.into());
        code.set(R4, 0);
        code.call(Helper::MapUpdate);
        code.jump(ends.take);
    }

    /// Falls through if more fragments follow; else jumps to `end`.
    fn more_follow(&self, code: &mut Code, end: Label) {
        let more = code.label();
        code.load(Width::One, R1, R7, 20);
        code.jump_if(Compare::AnyBit, R1, 0x20, more);
        code.jump(end);
        code.place(more);
    }

    fn later_fragment(&self, code: &mut Code, ends: Ends) {
        self.because(code, Reason::StrayFragment);
        self.fragment_key(code);
        code.call(Helper::KtimeGetNs);
        code.store(Width::Eight, R7, place::TIME, R0);
        self.look_up(code, self.fragments, place::FRAGMENT);
        code.jump_if(Compare::Equal, R0, 0, ends.leave);
        code.load(Width::Eight, R1, R0, 0);
        code.load(Width::Eight, R2, R7, place::TIME);
        code.alu_register(Alu::Subtract, R2, R1);
        code.set_64(R3, FRAGMENT_TIME);
        code.jump_if_register(Compare::Greater, R2, R3, ends.leave);
        self.because(code, Reason::Fragment);
        code.jump(ends.take);
    }

    /// An unfragmented ICMP error that quotes a packet of a flow (RFC 792): unreachable, time exceeded, parameter problem.
    fn icmp(&self, code: &mut Code, ends: Ends) {
        let (quotes, known) = (code.label(), code.label());
        self.because(code, Reason::StrayError);
        code.jump_if(Compare::AnyBit, R1, 0x2000, ends.leave);
        code.jump_if(Compare::Less, R8, 56, ends.leave);
        self.fetch(code, HEADERS, 36, ends);
        code.load(Width::One, R1, R7, 34);
        for kind in [3, 11, 12] {
            code.jump_if(Compare::Equal, R1, kind, quotes);
        }
        code.jump(ends.leave);
        code.place(quotes);
        code.load(Width::One, R1, R7, 42);
        code.jump_if(Compare::NotEqual, R1, 0x45, ends.leave);
        code.load(Width::Two, R1, R7, 48);
        code.big_endian(R1, 16);
        code.jump_if(Compare::AnyBit, R1, 0x1fff, ends.leave);
        code.load(Width::One, R1, R7, 51);
        code.jump_if(Compare::Equal, R1, UDP.into(), known);
        code.jump_if(Compare::NotEqual, R1, TCP.into(), ends.leave);
        code.place(known);
        code.store(Width::Four, R7, place::KEY, R1);
        // The error must be addressed to the source of the quoted packet.
        code.load(Width::Four, R1, R7, 54);
        code.load(Width::Four, R2, R7, 30);
        code.jump_if_register(Compare::NotEqual, R1, R2, ends.leave);
        code.store(Width::Four, R7, place::KEY + 4, R1);
        code.load(Width::Four, R1, R7, 58);
        code.store(Width::Four, R7, place::KEY + 8, R1);
        code.load(Width::Four, R1, R7, 62);
        code.store(Width::Four, R7, place::KEY + 12, R1);
        self.look_up(code, self.exact, place::KEY);
        code.jump_if(Compare::Equal, R0, 0, ends.leave);
        self.because(code, Reason::Error);
        code.jump(ends.take);
    }
}

#[cfg(test)]
mod tests;
