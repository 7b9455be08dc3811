//! What is special about a source that reads a network device: its kind says it, and no other file asks for its name. How the
//! device is opened then is for the facade.
//!
//! A new device is one file and one line, as any filter is: `crates/filters/src/NAME.rs` with a kind that has a
//! [`DeviceAccess`], and `NAME` in the list in `crates/filters/src/lib.rs`. `ethernet`, `af_packet`, `af_xdp` and `tuntap`
//! are one of each.

use crate::capture_request::{CaptureRequest, Share};
use crate::env::Env;
use crate::param::{ParamError, Params};
use crate::run::Instance;
use base::id::Class;
use packet::malformed::Malformed;
use std::os::fd::OwnedFd;

/// How a source comes by the packets of a device, and who else does.
#[derive(Clone, Copy, Debug)]
pub enum DeviceAccess {
    /// The device's owner captures it once, for all readers.
    Shared(Shared),
    /// The request has the capture for itself.
    Exclusive(Exclusive),
    /// The request makes the device; the kind's `make` opens it.
    Made,
}

/// A device whose readers share one capture.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// What the parameters ask the owner for, before any selector that follows.
    pub asked: CaptureRequests,
    /// Why such a capture request, with the selectors that follow, is more than the parameters say.
    pub permits: fn(&CaptureRequest, &Params) -> Result<(), ParamError>,
}

/// A device that one request reads for itself.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive {
    /// LINKTYPE number of the device's frames.
    pub link_type: fn(&Params) -> Result<u16, ParamError>,
    /// What chooses among its packets, and how it is opened.
    pub choice: Choice,
}

/// What chooses among the packets of a device that one request has for itself. Without a program all packets come.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The filter of a packet socket. The host sees every packet as before.
    SocketFilter {
        /// Do packets that come matter, and those that go?
        ways: fn(&Params) -> (bool, bool),
        /// Opens the device; the descriptor is that of a loaded program.
        open: Opens<OwnedFd>,
    },
    /// An XDP program. The host does not see what it takes.
    Xdp {
        /// How many queues the device can have.
        queues: fn(&Params) -> Result<u32, ParamError>,
        /// Opens the device.
        open: Opens<XdpProgram>,
    },
}

/// Makes of parameters what the device's owner is asked for, and the part of its flows that the reader takes.
pub type CaptureRequests = fn(&Params) -> Result<(CaptureRequest, Option<Share>), ParamError>;

/// Opens a device with a loaded program that chooses packets; without one all come.
pub type Opens<P> = fn(&Params, Option<(P, Left)>) -> Result<Instance, ParamError>;

/// A loaded XDP program and its map of sockets.
#[derive(Debug)]
pub struct XdpProgram {
    /// The program.
    pub program: OwnedFd,
    /// The map: a key for each queue.
    pub sockets: OwnedFd,
}

/// What a program did not choose: a word for it, and how many packets that are up to now.
pub type Left = (&'static str, Box<dyn Fn() -> u64 + Send>);

/// Bytes kept of each packet, as a request says; 0 for all.
pub fn snap_len(params: &Params) -> u32 {
    params.number("snaplen").unwrap_or(0).min(u64::from(u32::MAX)) as u32
}

/// Makes no instance: the owner of a shared device opens it.
pub fn opened_by_owner(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::new("device", "only the space `kernel` or the space `daemon` opens a shared device"))
}

/// A selector behind a device, as the reader of the device asks it: it decides about every packet that the device's program
/// let through, because the program cannot tell about all of them.
pub trait Decides: Send {
    /// Decides by a packet's ports (source << 16 | destination), without its bytes: the class with which it passes, or `None`
    /// within where it does not pass. `None` where ports do not tell.
    fn by_ports(&self, _ports: u32) -> Option<Option<Class>> {
        None
    }

    /// Decides by a frame of this link type, which had so many bytes on the wire, as the filter itself does. `class` is what
    /// the selectors before this one gave it; gives the class with which it passes, `None` where it does not.
    ///
    /// # Errors
    /// Why the frame could not be read: it does not pass.
    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32, class: Class) -> Result<Option<Class>, Malformed>;
}
