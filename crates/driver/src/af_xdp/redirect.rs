//! Sends received frames to AF_XDP sockets, by a program (five instructions, or the caller's), a map from the device's
//! queues to sockets, and a link that holds the program on the device. Closing the link takes the program off.

use super::foreign;
use crate::error::Error;
use crate::link::{self, Link, XdpMode};
use bpf::{Instruction, MapKind};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

// `linux/bpf.h`.
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;

/// A program from the caller.
#[derive(Debug)]
pub struct Program {
    /// The loaded program, of the kind XDP. It decides about frames that it does not redirect.
    pub program: OwnedFd,
    /// The map of sockets by which it redirects: a key for each queue.
    pub sockets: OwnedFd,
    /// The link of a process that ended, which still holds that process's program on the device. Opening leaves that
    /// program in place; the caller exchanges it ([`replace`]). `None`: attach the program to a device without one.
    pub link: Option<OwnedFd>,
}

/// Replaces the program that this link holds on its device, between two frames.
///
/// # Errors
///
/// If it is not a link, or the program is of the wrong kind.
pub fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    bpf::Link::from(link.try_clone_to_owned()?).update(program)
}

/// A program on a device, and the map of sockets by which it redirects. Both go when this is dropped.
#[derive(Debug)]
pub(super) struct Redirect {
    // Dropped in this order: the link first, so that redirecting ends.
    link: bpf::Link,
    _program: OwnedFd,
    sockets: OwnedFd,
    mode: XdpMode,
}

impl Redirect {
    /// Attaches a program to a device without one, in the first of `modes` that works.
    pub(super) fn attach(device: &Link, program: Option<Program>, modes: &[XdpMode]) -> Result<Redirect, Error> {
        let name = &device.name;
        let doing = |what: &str| Error::doing(format!("{what} for `{name}`"));
        let Program { program, sockets, link } = match program {
            Some(program) => program,
            None => {
                let sockets = bpf::create_map(MapKind::Sockets, "sl_sockets", 4, device.receive_queues.max(1), 0)
                    .map_err(doing("make a map of sockets"))?;
                let program = load(sockets.as_fd()).map_err(doing("load an XDP program"))?;
                Program { program, sockets, link: None }
            }
        };
        if let Some(link) = link {
            let mode = device.xdp.map_or(XdpMode::Generic, |attached| attached.mode);
            return Ok(Redirect { link: link.into(), _program: program, sockets, mode });
        }
        check_free(device)?;
        let mut refused = Error::Invalid("an XDP program has to run somewhere".into());
        for &mode in modes {
            match bpf::Link::attach_xdp(program.as_fd(), device.index, mode == XdpMode::Generic) {
                Ok(link) => return Ok(Redirect { link, _program: program, sockets, mode }),
                // Another program was faster.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let now = link::find(name).ok().flatten().and_then(|link| link.xdp);
                    return Err(occupied(name, now.map(|foreign| foreign.program)));
                }
                Err(error) => refused = doing("attach an XDP program")(error),
            }
        }
        Err(refused)
    }

    /// Replaces the program, between two frames. The new one should use the same map: sockets are not moved.
    pub(super) fn exchange(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.link.update(program)
    }

    /// The link that holds the program on the device as long as it is open.
    pub(super) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    pub(super) fn mode(&self) -> XdpMode {
        self.mode
    }

    /// Sends a queue's received frames to this socket from now on.
    pub(super) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        bpf::update(self.sockets.as_fd(), queue, &socket.as_raw_fd().to_ne_bytes())
    }

    /// Leaves a queue's received frames to the host from now on.
    pub(super) fn remove(&self, queue: u32) -> io::Result<()> {
        match bpf::delete(self.sockets.as_fd(), queue) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Checks that a device has no XDP program; the error names the program that is there.
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

/// An instruction in the kernel's form: operation, registers, offset and constant.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// Loads the program: `return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)`.
fn load(sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let code = [
        // r2 = context->rx_queue_index
        instruction(0x61, 2, 1, 16, 0),
        // r1 = sockets, in two parts
        instruction(0x18, 1, 1, 0, sockets.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        // r3 = the action if there is no socket
        instruction(0xb7, 3, 0, 0, XDP_PASS),
        instruction(0x85, 0, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0, 0),
    ];
    bpf::load_xdp("streamline_xdp", &code).map_err(|refused| refused.error)
}
