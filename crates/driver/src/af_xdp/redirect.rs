//! The program that sends what a device receives to AF_XDP sockets: five instructions, or one that somebody else made.
//!
//! `bpf(2)` by hand, as far as this takes: a map from a device's queues to sockets, a program, and the link that holds it on
//! the device. Closing the link takes the program off.

use super::foreign;
use crate::error::Error;
use crate::link::{self, Link, XdpMode};
use crate::sys::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// `linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const SOCKET_MAP: u32 = 17;
pub(super) const XDP_PROGRAM: u32 = 6;
const XDP_ATTACHMENT: u32 = 37;
const XDP_PASS: u32 = 2;
const REDIRECT_MAP: u32 = 51;
// `linux/if_link.h`.
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// A program that the caller brings along.
#[derive(Debug)]
pub struct Program {
    /// Loaded, of the kind XDP. What it does not redirect goes where it says.
    pub program: OwnedFd,
    /// The map of sockets it redirects by: a key for each queue.
    pub sockets: OwnedFd,
}

/// A program on a device, and the map of sockets it redirects by. Both go when this is dropped.
#[derive(Debug)]
pub(super) struct Redirect {
    // In this order: first nothing is redirected any more.
    link: OwnedFd,
    _program: OwnedFd,
    sockets: OwnedFd,
    mode: XdpMode,
}

impl Redirect {
    /// Attaches a program to a device that has none, in the first of `modes` that it can.
    pub(super) fn attach(device: &Link, program: Option<Program>, modes: &[XdpMode]) -> Result<Redirect, Error> {
        let name = &device.name;
        check_free(device)?;
        let doing = |what: &str| Error::doing(format!("{what} for `{name}`"));
        let Program { program, sockets } = match program {
            Some(program) => program,
            None => {
                let sockets = create_map(device.receive_queues.max(1)).map_err(doing("make a map of sockets"))?;
                let program = load(sockets.as_fd()).map_err(doing("load an XDP program"))?;
                Program { program, sockets }
            }
        };
        let mut refused = Error::Invalid("an XDP program has to run somewhere".into());
        for &mode in modes {
            match attach(program.as_fd(), device.index, mode) {
                Ok(link) => return Ok(Redirect { link, _program: program, sockets, mode }),
                // Somebody was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let now = link::find(name).ok().flatten().and_then(|link| link.xdp);
                    return Err(occupied(name, now.map(|foreign| foreign.program)));
                }
                Err(error) => refused = doing("attach an XDP program")(error),
            }
        }
        Err(refused)
    }

    /// Puts another program in the place of the one that is there, between two frames. It should redirect by the same map:
    /// sockets are not moved.
    pub(super) fn exchange(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut update = Update {
            link: self.link.as_raw_fd() as u32,
            program: program.as_raw_fd() as u32,
            flags: 0,
            expected_program: 0,
        };
        // SAFETY: no pointers.
        unsafe { bpf(LINK_UPDATE, &mut update) }.map(|_| ())
    }

    /// Where the program runs.
    pub(super) fn mode(&self) -> XdpMode {
        self.mode
    }

    /// What a queue receives goes to this socket from now on.
    pub(super) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let mut attributes = Element::new(self.sockets.as_fd(), &queue, std::ptr::from_ref(&value) as u64);
        // SAFETY: key and value are four bytes each and live for the call.
        unsafe { bpf(MAP_UPDATE, &mut attributes) }.map(|_| ())
    }

    /// What a queue receives goes to the host from now on.
    pub(super) fn remove(&self, queue: u32) -> io::Result<()> {
        let mut attributes = Element::new(self.sockets.as_fd(), &queue, 0);
        // SAFETY: as above.
        match unsafe { bpf(MAP_DELETE, &mut attributes) } {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Has a device no XDP program as yet? An error says whose it is.
pub fn check_free(device: &Link) -> Result<(), Error> {
    device.xdp.map_or(Ok(()), |foreign| Err(occupied(&device.name, Some(foreign.program))))
}

fn occupied(name: &str, program: Option<u32>) -> Error {
    let whose = program.map_or("another XDP program".into(), |program| match foreign::name(program) {
        Some(called) => format!("XDP program {program} (`{called}`)"),
        None => format!("XDP program {program}"),
    });
    Error::Invalid(format!("{whose} is attached to `{name}`; a device has one: detach it, or use a packet socket"))
}

#[repr(C)]
struct Map {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct Element {
    map: u64,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn new(map: BorrowedFd<'_>, key: &u32, value: u64) -> Element {
        Element { map: map.as_raw_fd() as u64, key: std::ptr::from_ref(key) as u64, value, flags: 0 }
    }
}

#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log: [u64; 2],
    version_and_flags: u64,
}

#[repr(C)]
struct Attach {
    program: u32,
    device: u32,
    attachment: u32,
    flags: u32,
}

#[repr(C)]
struct Update {
    link: u32,
    program: u32,
    flags: u32,
    expected_program: u32,
}

/// # Safety
///
/// What `attributes` points to is as the command wants it.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let (pointer, bytes) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: the caller's; the attributes live for the call, and the kernel takes what is missing for zero.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, pointer, bytes) } as libc::c_int)
}

pub(super) fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: just made by the kernel for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn create_map(queues: u32) -> io::Result<OwnedFd> {
    let mut map = Map { kind: SOCKET_MAP, key_bytes: 4, value_bytes: 4, entries: queues, flags: 0 };
    // SAFETY: no pointers.
    unsafe { bpf(MAP_CREATE, &mut map) }.map(owned)
}

/// An instruction: operation, registers, offset and constant, as the kernel takes them.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let (offset, constant) = (offset as u16 as u64, constant as u32 as u64);
    code as u64 | (to as u64 | (from as u64) << 4) << 8 | offset << 16 | constant << 32
}

/// Loads the program: `return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)`.
fn load(sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let code = [
        // r2 = context->rx_queue_index
        instruction(0x61, 2, 1, 16, 0),
        // r1 = sockets, in two parts
        instruction(0x18, 1, 1, 0, sockets.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = what to do where there is no socket
        instruction(0xb7, 3, 0, 0, XDP_PASS as i32),
        instruction(0x85, 0, 0, 0, REDIRECT_MAP as i32),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let licence = c"Dual MIT/GPL";
    let mut load = Load {
        kind: XDP_PROGRAM,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        log: [0; 2],
        version_and_flags: 0,
    };
    // SAFETY: instructions and licence live for the call.
    unsafe { bpf(PROGRAM_LOAD, &mut load) }.map(owned)
}

fn attach(program: BorrowedFd<'_>, device: u32, mode: XdpMode) -> io::Result<OwnedFd> {
    let flags = if mode == XdpMode::Generic { FLAG_GENERIC } else { FLAG_NATIVE };
    let mut attach = Attach { program: program.as_raw_fd() as u32, device, attachment: XDP_ATTACHMENT, flags };
    // SAFETY: no pointers.
    unsafe { bpf(LINK_CREATE, &mut attach) }.map(owned)
}
