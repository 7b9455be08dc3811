//! Sources that read a network device: the kind says how, so that no other file names the source. The facade opens the
//! device.
//!
//! A new device takes one file and one line, like any filter: `crates/filters/src/NAME.rs` with a kind that has a
//! [`DeviceAccess`], and `NAME` in the list in `crates/filters/src/lib.rs`. Examples are `ethernet`, `af_packet`,
//! `af_xdp` and `tuntap`.

use crate::capture_request::{CaptureRequest, Partition};
use crate::env::Env;
use crate::param::{ParamError, Params};
use crate::run::Instance;
use base::id::Class;
use packet::malformed::Malformed;
use std::os::fd::OwnedFd;

/// How a source gets the packets of a device, and whether it shares them.
#[derive(Clone, Copy, Debug)]
pub enum DeviceAccess {
    /// The device's owner captures it once, for all readers.
    Shared(Shared),
    /// The request has the capture to itself.
    Exclusive(Exclusive),
    /// The request makes the device; the kind's `make` opens it.
    Made,
}

/// A device whose readers share one capture.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Makes the request to the owner from the parameters, without the selectors that follow.
    pub asked: CaptureRequests,
    /// Checks that a capture request, with the selectors that follow, asks no more than the parameters say.
    pub permits: fn(&CaptureRequest, &Params) -> Result<(), ParamError>,
}

/// A device that one request has to itself.
#[derive(Clone, Copy, Debug)]
pub struct Exclusive {
    /// LINKTYPE number of the device's frames.
    pub link_type: fn(&Params) -> Result<u16, ParamError>,
    /// The kind of program that chooses packets, and how the device is opened.
    pub choice: Choice,
}

/// The program that chooses packets of an exclusive device. Without a program all packets come.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The filter of a packet socket. The host sees every packet as before.
    SocketFilter {
        /// Whether incoming and outgoing packets are wanted.
        ways: fn(&Params) -> (bool, bool),
        /// Opens the device; the file descriptor is that of a loaded program.
        open: Opens<OwnedFd>,
    },
    /// An XDP program. The host does not see the packets that it takes.
    Xdp {
        /// The most queues that the device can have.
        queues: fn(&Params) -> Result<u32, ParamError>,
        /// Opens the device.
        open: Opens<XdpProgram>,
    },
}

/// Makes a capture request from parameters, and the part of the device's flows that the reader takes.
pub type CaptureRequests = fn(&Params) -> Result<(CaptureRequest, Option<Partition>), ParamError>;

/// Opens a device with a loaded program that chooses packets. `None`: all packets come.
pub type Opens<P> = fn(&Params, Option<(P, Left)>) -> Result<Instance, ParamError>;

/// A loaded XDP program and its map of sockets.
#[derive(Debug)]
pub struct XdpProgram {
    /// The program.
    pub program: OwnedFd,
    /// The map of sockets, one key for each queue.
    pub sockets: OwnedFd,
}

/// A word for the packets that a program left out, and their number so far.
pub type Left = (&'static str, Box<dyn Fn() -> u64 + Send>);

/// Bytes kept of each packet, as the request says; 0 = all.
pub fn snap_len(params: &Params) -> u32 {
    params.number("snaplen").unwrap_or(0).min(u64::from(u32::MAX)) as u32
}

/// Makes no instance: a shared device's owner opens it.
pub fn opened_by_owner(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::new("device", "only the space `kernel` or the space `daemon` opens a shared device"))
}

/// A selector behind a device, run by the device's reader. The device's program cannot decide about all packets, so the
/// reader decides about every packet that the program let through.
pub trait Decides: Send {
    /// Decides by a packet's ports (source << 16 | destination) alone.
    ///
    /// - `Some(Some(class))`: the packet passes, with this class.
    /// - `Some(None)`: it does not pass.
    /// - `None`: the ports do not tell.
    fn by_ports(&self, _ports: u32) -> Option<Option<Class>> {
        None
    }

    /// Decides by a frame of this link type, as the filter itself does. `wire_len` is the frame's length on the wire;
    /// `class` comes from the selectors before this one. Gives the class of a frame that passes, `None` for one that
    /// does not.
    ///
    /// # Errors
    /// The frame could not be read; it does not pass.
    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32, class: Class) -> Result<Option<Class>, Malformed>;
}
