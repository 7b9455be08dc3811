//! Live devices, by trait: who may open them, and how, is known to the facade, which hands this in.

use base::id::Class;
use capture::{Budget, CaptureError, CaptureReader, CaptureRequest, Device, Share, writer::CaptureErrorKind};
use packet::malformed::Malformed;

/// Opens devices for reading.
pub trait Devices: Send + Sync {
    /// What is known of a device.
    fn device(&self, name: &str) -> Result<Device, CaptureError>;

    /// A reader for what is wished.
    fn open(&self, asked: &CaptureRequest, share: Option<Share>) -> Result<CaptureReader, CaptureError>;

    /// A reader that can take over from another one of the same device, and the number of the first packet from which on
    /// nothing that it wants passes it by.
    fn open_sure(&self, asked: &CaptureRequest, share: Option<Share>) -> Result<(CaptureReader, u64), CaptureError>;

    /// What of a device's budget this user's expressions may take now; none where they may cost any number of instructions, or
    /// where the device is not there.
    fn budget(&self, _device: &str) -> Option<Budget> {
        None
    }

    /// Does another process, a daemon, open them?
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// What the capture is used for, in words for people.
    fn set_purpose(&self, _purpose: &str) {}
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

/// Has no devices: for tests, and where only files are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDevices;

fn nowhere(name: &str) -> CaptureError {
    CaptureError::new(CaptureErrorKind::Cannot, format!("there are no devices here, and so no `{name}`"))
}

impl Devices for NoDevices {
    fn device(&self, name: &str) -> Result<Device, CaptureError> {
        Err(nowhere(name))
    }

    fn open(&self, asked: &CaptureRequest, _share: Option<Share>) -> Result<CaptureReader, CaptureError> {
        Err(nowhere(&asked.device))
    }

    fn open_sure(&self, asked: &CaptureRequest, _share: Option<Share>) -> Result<(CaptureReader, u64), CaptureError> {
        Err(nowhere(&asked.device))
    }
}
