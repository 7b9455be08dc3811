//! A small binding of bpf(2) by raw system calls: no clang, no ELF, no library. Each structure is the part of `union
//! bpf_attr` (linux/bpf.h) that its command reads.
//!
//! - here: maps, programs, test runs and links, and errors that name the instruction the verifier refused.
//! - [`inventory`]: the kernel's programs, maps and links of all processes.

#[cfg(debug_assertions)]
pub mod faults;
pub mod inventory;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) const MAP_CREATE: libc::c_int = 0;
pub(crate) const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
pub(crate) const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
pub(crate) const MAP_FREEZE: libc::c_int = 22;
pub(crate) const LINK_CREATE: libc::c_int = 28;
pub(crate) const LINK_UPDATE: libc::c_int = 29;

const PROG_TYPE_SOCKET_FILTER: u32 = 1;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;

/// The licence of the programs. Some helpers are for GPL-compatible programs only.
const LICENCE: &CStr = c"Dual MIT/GPL";

const LOG_BYTES: usize = 1 << 20;

/// One instruction, in the kernel's layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Class, source and operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high four.
    pub registers: u8,
    /// Offset of a jump or memory access.
    pub offset: i16,
    /// Constant operand.
    pub immediate: i32,
}

/// Kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Hash table with a limited number of entries.
    Hash = 1,
    /// Array of values by index, shared by all processors.
    Array = 2,
    /// As `Hash`; when full, a new key replaces the least recently used one.
    LruHash = 9,
    /// Devices as targets of redirects.
    Devices = 14,
    /// AF_XDP sockets by queue.
    Sockets = 17,
    /// Records from programs to a process.
    RingBuffer = 27,
}

/// Map flag: the values can be mapped into memory.
pub const MMAPABLE: u32 = 1 << 10;

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// Incoming packets, after the driver.
    TcxIngress = 46,
    /// Outgoing packets, before the queueing discipline.
    TcxEgress = 47,
    /// Incoming packets, before the rest of the kernel, in the driver if possible. At most one program per device.
    Xdp = 37,
}

/// Attach in front of the existing programs.
const BEFORE: u32 = 1 << 3;

/// Why a program was not loaded.
#[derive(Debug)]
pub struct LoadError {
    /// The kernel's error.
    pub error: io::Error,
    /// The decisive line of the verifier's log; empty without a log.
    pub reason: String,
    /// The whole log of the verifier.
    pub log: String,
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.error.kind(), self.reason.as_str()) {
            (io::ErrorKind::PermissionDenied, "") => {
                f.write_str("loading programs into the kernel needs CAP_BPF and CAP_NET_ADMIN")
            }
            (_, "") => write!(f, "the kernel did not take the program: {}", self.error),
            (_, reason) => write!(f, "the kernel's verifier did not take the program: {reason}"),
        }
    }
}

impl std::error::Error for LoadError {}

pub(crate) fn call<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_int> {
    #[cfg(debug_assertions)]
    crate::faults::step(command)?;
    // SAFETY: `attr` is one of the structures below or in `inventory`. They begin as `union bpf_attr` does for their
    // command, and the size is passed along. Addresses in them point to memory that lives during the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

pub(crate) fn fd(result: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just created it for this call, so no other code owns it. bpf(2) sets close-on-exec.
    unsafe { OwnedFd::from_raw_fd(result) }
}

pub(crate) fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// The first 15 bytes of a name, zero-terminated.
fn name_of(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// Creates a map with 4-byte integer keys, or without keys for a ring buffer.
pub fn create_map(kind: MapKind, name: &str, value_bytes: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let key_bytes = if kind == MapKind::RingBuffer { 0 } else { 4 };
    create(kind, name, [key_bytes, value_bytes], entries, flags)
}

fn create(
    kind: MapKind,
    name: &str,
    [key_size, value_size]: [u32; 2],
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        map_name: [u8; 16],
    }
    let mut attr = Attr {
        map_type: kind as u32,
        key_size,
        value_size,
        max_entries: entries,
        map_flags: flags,
        inner_map_fd: 0,
        numa_node: 0,
        map_name: name_of(name),
    };
    call(MAP_CREATE, &mut attr).map(fd)
}

#[repr(C)]
struct Element {
    map_fd: u64,
    key: u64,
    value: u64,
    flags: u64,
}

/// Sets a value by key: in an array, a map of devices (their indices) or a map of sockets (their descriptors).
pub fn update(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    set(map, &key.to_ne_bytes(), value)
}

/// Removes a value from a map. Error of kind `NotFound`: it is not there.
pub fn delete(map: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    unset(map, &key.to_ne_bytes())
}

/// A map with keys and values of fixed lengths in bytes.
#[derive(Debug)]
pub struct HashMap<const KEY: usize, const VALUE: usize>(OwnedFd);

impl<const KEY: usize, const VALUE: usize> HashMap<KEY, VALUE> {
    /// Creates an empty map. When full, it replaces the oldest entry (`oldest_goes`) or refuses new ones.
    pub fn create(name: &str, entries: u32, oldest_goes: bool) -> io::Result<HashMap<KEY, VALUE>> {
        let kind = if oldest_goes { MapKind::LruHash } else { MapKind::Hash };
        create(kind, name, [KEY as u32, VALUE as u32], entries, 0).map(HashMap)
    }

    /// Sets the value of a key.
    pub fn insert(&self, key: &[u8; KEY], value: &[u8; VALUE]) -> io::Result<()> {
        set(self.0.as_fd(), key, value)
    }

    /// Removes a key. Error of kind `NotFound`: it is not there.
    pub fn remove(&self, key: &[u8; KEY]) -> io::Result<()> {
        unset(self.0.as_fd(), key)
    }
}

impl<const KEY: usize, const VALUE: usize> AsFd for HashMap<KEY, VALUE> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `key` and `value` must have the lengths that the map was created with.
fn set(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
    call(MAP_UPDATE_ELEM, &mut Element { map_fd: raw(map).into(), key, value, flags: 0 }).map(drop)
}

/// `key` must have the length that the map was created with.
fn unset(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let key = key.as_ptr() as u64;
    call(MAP_DELETE_ELEM, &mut Element { map_fd: raw(map).into(), key, value: 0, flags: 0 }).map(drop)
}

/// Makes the map read-only for processes, by calls and by mappings. Programs can still write it.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        map_fd: u32,
    }
    call(MAP_FREEZE, &mut Attr { map_fd: raw(map) }).map(drop)
}

/// Loads a program for the TCX hooks.
pub fn load(name: &str, code: &[Instruction]) -> Result<OwnedFd, LoadError> {
    load_kind(PROG_TYPE_SCHED_CLS, name, code)
}

/// Loads a program for [`Hook::Xdp`].
pub fn load_xdp(name: &str, code: &[Instruction]) -> Result<OwnedFd, LoadError> {
    load_kind(PROG_TYPE_XDP, name, code)
}

/// Loads a program that filters a socket.
pub fn load_socket_filter(name: &str, code: &[Instruction]) -> Result<OwnedFd, LoadError> {
    load_kind(PROG_TYPE_SOCKET_FILTER, name, code)
}

fn load_kind(kind: u32, name: &str, code: &[Instruction]) -> Result<OwnedFd, LoadError> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
    }
    let mut attr = Attr {
        prog_type: kind,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: name_of(name),
        prog_ifindex: 0,
        expected_attach_type: 0,
    };
    let error = match call(PROG_LOAD, &mut attr) {
        Ok(program) => return Ok(fd(program)),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error() == Some(libc::EPERM) {
        return Err(LoadError { error, reason: String::new(), log: String::new() });
    }
    // Load it once more to get the log.
    let mut log = vec![0u8; LOG_BYTES];
    (attr.log_level, attr.log_size, attr.log_buf) = (1, log.len() as u32, log.as_mut_ptr() as u64);
    if let Ok(program) = call(PROG_LOAD, &mut attr) {
        return Ok(fd(program));
    }
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]).into_owned();
    let reason = reason(&log);
    Err(LoadError { error, reason, log })
}

/// The line of the verifier's log that gives the reason: the last one that is neither statistics nor an instruction.
/// With the number of the instruction before it.
fn reason(log: &str) -> String {
    let is_instruction = |line: &&str| {
        let digits = line.trim_start().split(':').next().unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty() && !line.starts_with("processed ")).collect();
    let Some(at) = lines.iter().rposition(|line| !is_instruction(line)) else { return String::new() };
    let number = lines[..at].iter().rev().find(|line| is_instruction(line));
    match number.and_then(|line| line.trim_start().split(':').next()) {
        Some(number) => format!("{} (at instruction {number})", lines[at]),
        None => lines[at].to_string(),
    }
}

/// The result of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's return value.
    pub result: i32,
    /// Duration of one run, ns.
    pub duration_ns: u32,
}

/// Runs a program on a frame, `repeat` times. No frame is sent; the program's writes to maps take effect.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
    run(program, frame, repeat, 0)
}

/// Runs an XDP program on a frame as if it had been received, `repeat` times. Redirected frames are sent.
pub fn live_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    run(program, frame, repeat, LIVE_FRAMES).map(drop)
}

fn run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32, flags: u32) -> io::Result<TestRun> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        ctx_size_in: u32,
        ctx_size_out: u32,
        ctx_in: u64,
        ctx_out: u64,
        flags: u32,
        cpu: u32,
        batch_size: u32,
        pad: u32,
    }
    let mut attr = Attr {
        prog_fd: raw(program),
        retval: 0,
        data_size_in: frame.len() as u32,
        data_size_out: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat,
        duration: 0,
        ctx_size_in: 0,
        ctx_size_out: 0,
        ctx_in: 0,
        ctx_out: 0,
        flags,
        cpu: 0,
        batch_size: 0,
        pad: 0,
    };
    call(PROG_TEST_RUN, &mut attr)?;
    Ok(TestRun { result: attr.retval as i32, duration_ns: attr.duration })
}

/// A program attached to a hook, until all copies of this file descriptor are closed, also in other processes.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl From<OwnedFd> for Link {
    /// A link that another process made. A descriptor of something else fails at its first use.
    fn from(link: OwnedFd) -> Link {
        Link(link)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Link {
    /// Attaches a program in front of the existing ones. On [`Hook::Xdp`] there must be none.
    pub fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<Link> {
        Link::create(program, interface, hook, if hook == Hook::Xdp { 0 } else { BEFORE })
    }

    /// Attaches an XDP program where there is none: after the driver (`generic`), or only in the driver.
    pub fn attach_xdp(program: BorrowedFd<'_>, interface: u32, generic: bool) -> io::Result<Link> {
        // `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` (linux/if_link.h).
        Link::create(program, interface, Hook::Xdp, if generic { 1 << 1 } else { 1 << 2 })
    }

    fn create(program: BorrowedFd<'_>, interface: u32, hook: Hook, flags: u32) -> io::Result<Link> {
        #[repr(C)]
        struct Attr {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
            relative: u32,
            pad: u32,
            expected_revision: u64,
        }
        let mut attr = Attr {
            prog_fd: raw(program),
            target_ifindex: interface,
            attach_type: hook as u32,
            flags,
            relative: 0,
            pad: 0,
            expected_revision: 0,
        };
        call(LINK_CREATE, &mut attr).map(|link| Link(fd(link)))
    }

    /// Replaces the attached program between two packets.
    pub fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Attr {
            link_fd: u32,
            new_prog_fd: u32,
            flags: u32,
            old_prog_fd: u32,
        }
        let mut attr = Attr { link_fd: raw(self.0.as_fd()), new_prog_fd: raw(program), flags: 0, old_prog_fd: 0 };
        call(LINK_UPDATE, &mut attr).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_words_are_found() {
        let log = "func#0 @0\n0: R1=ctx() R10=fp0\n0: (b7) r0 = 0\n1: (61) r2 = *(u32 *)(r1 +500)\n\
                   invalid bpf_context access off=500 size=4\nprocessed 2 insns (limit 1000000)\n";
        assert_eq!(reason(log), "invalid bpf_context access off=500 size=4 (at instruction 1)");
        assert_eq!(reason(""), "");
    }
}
