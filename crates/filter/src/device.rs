//! Live devices, by trait: who may open them, and how, is known to the facade, which hands this in.

use capture::{Device, Share, Tap, Trouble, Wish, writer::TroubleKind};

/// Opens devices for reading.
pub trait Devices: Send + Sync {
    /// What is known of a device.
    fn device(&self, name: &str) -> Result<Device, Trouble>;

    /// A reader for what is wished.
    fn open(&self, wish: &Wish, share: Option<Share>) -> Result<Tap, Trouble>;

    /// A reader that can take over from another one of the same device, and the number of the first packet from which on
    /// nothing that it wants passes it by.
    fn open_sure(&self, wish: &Wish, share: Option<Share>) -> Result<(Tap, u64), Trouble>;

    /// Does another process, a daemon, open them?
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// What the capture is used for, in words for people.
    fn set_purpose(&self, _purpose: &str) {}
}

/// Has no devices: for tests, and where only files are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDevices;

fn nowhere(name: &str) -> Trouble {
    Trouble::new(TroubleKind::Cannot, format!("there are no devices here, and so no `{name}`"))
}

impl Devices for NoDevices {
    fn device(&self, name: &str) -> Result<Device, Trouble> {
        Err(nowhere(name))
    }

    fn open(&self, wish: &Wish, _share: Option<Share>) -> Result<Tap, Trouble> {
        Err(nowhere(&wish.device))
    }

    fn open_sure(&self, wish: &Wish, _share: Option<Share>) -> Result<(Tap, u64), Trouble> {
        Err(nowhere(&wish.device))
    }
}
