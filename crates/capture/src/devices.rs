//! The trait that opens devices: a daemon's or this process's. The facade chooses one.

use crate::attachment::Device;
use crate::budget::Budget;
use crate::capture_request::{CaptureError, CaptureRequest, Partition};
use crate::reader::CaptureReader;

/// Opens devices for reading.
pub trait Devices: Send + Sync {
    /// Describes a device.
    fn device(&self, name: &str) -> Result<Device, CaptureError>;

    /// Opens a reader for this capture request.
    fn open(&self, asked: &CaptureRequest, partition: Option<Partition>) -> Result<CaptureReader, CaptureError>;

    /// Opens a reader that can take over from another one of the same device. The number is that of the first packet
    /// from which on it gets every packet that it wants.
    fn open_sure(
        &self,
        asked: &CaptureRequest,
        partition: Option<Partition>,
    ) -> Result<(CaptureReader, u64), CaptureError>;

    /// How much of a device's budget this user's expressions may take now. `None`: no limit, or no such device.
    fn budget(&self, _device: &str) -> Option<Budget> {
        None
    }

    /// Whether another process, as daemon, opens the devices.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Sets the purpose of the capture, in words for users.
    fn set_purpose(&self, _purpose: &str) {}
}
