//! Live devices, by trait: who may open them, and how, is known to the facade, which hands this in.

use base::id::Class;
use capture::{Device, Share, Tap, Trouble, Wish, writer::TroubleKind};
use packet::malformed::Malformed;

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

/// What a selector by ports makes of packets of a device; none where it does not want one.
pub trait ByPorts: Send {
    /// Of one whose ports (source << 16 | destination) are known.
    fn known(&self, ports: u32) -> Option<Class>;

    /// Of any other: a frame of this link type, so long on the wire. As the filter itself decides.
    fn read(&self, link_type: u16, bytes: &[u8], wire_len: u32) -> Result<Option<Class>, Malformed>;
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
