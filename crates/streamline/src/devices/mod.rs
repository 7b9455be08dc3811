//! Live devices in this process: which writer serves a device, and readers' way to it without a daemon.
//!
//! - `auto` — through the daemon or not; [`Place`].
//! - [`opener`] — chooses the writer for a device.
//! - `present` — devices as they come and go; [`Present`].
//! - `kernel_writer` — the kernel's program; `packet_writer` — a thread that copies from a packet socket;
//!   `consume_writer` — threads that take packets away.

pub(crate) mod auto;
mod consume_writer;
mod kernel_writer;
pub mod opener;
mod packet_writer;
mod present;

pub use auto::Place;
pub(crate) use kernel_writer::cannot_choose;
pub use packet_writer::how as copied_from_socket;
pub use present::Present;

use capture::{Device, Share, Tap, Taps, Trouble, Wish, writer::TroubleKind};
use driver::af_packet::PacketSocket;
use filter::Devices;
use opener::Opener;
use program::Interpreter;
use std::sync::{Mutex, PoisonError};

/// The socket by which a device receives what is for others, too, as long as that is wanted.
#[derive(Default)]
struct Promiscuous(Mutex<Option<PacketSocket>>);

impl Promiscuous {
    fn set(&self, index: u32, wanted: bool) -> Result<(), Trouble> {
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *holder = match wanted {
            false => None,
            true => {
                let socket = PacketSocket::new(index).map_err(opener::trouble)?;
                socket
                    .become_promiscuous()
                    .map_err(|error| Trouble::system("the device does not become promiscuous", &error))?;
                Some(socket)
            }
        };
        Ok(())
    }
}

/// Devices opened by this process itself.
#[derive(Default)]
pub struct LocalDevices {
    taps: Mutex<Option<Taps>>,
}

impl LocalDevices {
    /// None is open yet.
    pub fn new() -> LocalDevices {
        LocalDevices::default()
    }
}

impl Devices for LocalDevices {
    fn device(&self, name: &str) -> Result<Device, Trouble> {
        opener::device(name)
    }

    fn open(&self, wish: &Wish, share: Option<Share>) -> Result<Tap, Trouble> {
        reader(self.with_taps(|taps| taps.open(wish, 0))?, wish, share)
    }

    fn open_sure(&self, wish: &Wish, share: Option<Share>) -> Result<(Tap, u64), Trouble> {
        let tap = self.open(wish, share)?;
        let exchange = self.with_taps(|taps| taps.exchange(tap.id(), &wish.program))?;
        sure(tap, exchange, wish)
    }
}

impl LocalDevices {
    fn with_taps<T>(&self, ask: impl FnOnce(&Taps) -> Result<T, Trouble>) -> Result<T, Trouble> {
        // Nothing that panics under it leaves it half made.
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        ask(match &mut *taps {
            Some(taps) => taps,
            none => none.insert(Taps::new(Box::new(Opener))?),
        })
    }
}

fn interpreter(wish: &Wish) -> Result<Option<Interpreter>, Trouble> {
    match wish.program.as_slice() {
        [] => Ok(None),
        program => {
            let made = Interpreter::from_cbpf(program);
            made.map(Some).map_err(|error| Trouble::new(TroubleKind::Wish, error.to_string()))
        }
    }
}

/// The reader's half of what a wish was granted.
pub fn reader(handout: capture::Handout, wish: &Wish, share: Option<Share>) -> Result<Tap, Trouble> {
    let tap = Tap::new(handout, interpreter(wish)?, share);
    let tap = tap.map_err(|error| Trouble::system("the ring cannot be mapped", &error))?;
    Ok(if wish.counts.is_some() { tap.that_counts() } else { tap })
}

/// A reader whose expression was exchanged for itself: when that was answered, no program that did not know it was running
/// any more, so from there on it gets everything it wants. A packet that came meanwhile may have been decided on by one.
fn sure(mut tap: Tap, exchange: capture::Exchange, wish: &Wish) -> Result<(Tap, u64), Trouble> {
    let first = exchange.first;
    tap.exchange(exchange, interpreter(wish)?);
    Ok((tap, first))
}
