//! Who opens devices, by trait: a daemon, or this process. The facade knows which, and hands it in.

use crate::attachment::Device;
use crate::budget::Budget;
use crate::capture_request::{CaptureError, CaptureRequest, Share};
use crate::reader::CaptureReader;

/// Opens devices for reading.
pub trait Devices: Send + Sync {
    /// What is known of a device.
    fn device(&self, name: &str) -> Result<Device, CaptureError>;

    /// A reader for this capture request.
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
