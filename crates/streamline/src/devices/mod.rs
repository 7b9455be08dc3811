//! Live devices in this process: which writer serves a device, and how readers reach it without a daemon.
//!
//! - `auto` — through the daemon or not; [`Place`].
//! - [`opener`] — chooses the writer for a device.
//! - `present` — devices as they come and go; [`Present`].
//! - `kernel_writer` — the kernel's program.
//! - `packet_writer` — a thread that copies from a packet socket.
//! - `consume_writer` — threads that take packets away.
//! - `error` — errors of a driver as errors of a capture.

pub(crate) mod auto;
mod consume_writer;
mod error;
mod kernel_writer;
pub mod opener;
mod packet_writer;
mod present;

pub use auto::Place;
pub(crate) use kernel_writer::cannot_choose;
pub use packet_writer::how as copied_from_socket;
pub use present::Present;

use capture::{
    CaptureError, CaptureErrorKind, CaptureReader, CaptureRegistry, CaptureRequest, Device, Devices, Partition,
};
use driver::af_packet::PacketSocket;
use opener::Opener;
use program::Interpreter;
use std::sync::{Mutex, PoisonError};

/// A socket that keeps a device in promiscuous mode for as long as a reader wants frames for other hosts.
#[derive(Default)]
struct Promiscuous(Mutex<Option<PacketSocket>>);

impl Promiscuous {
    fn set(&self, index: u32, wanted: bool) -> Result<(), CaptureError> {
        let mut holder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *holder = match wanted {
            false => None,
            true => {
                let socket = PacketSocket::new(index).map_err(error::capture_error)?;
                socket
                    .become_promiscuous()
                    .map_err(|error| CaptureError::system("the device does not become promiscuous", &error))?;
                Some(socket)
            }
        };
        Ok(())
    }
}

/// Devices that this process opens itself.
#[derive(Default)]
pub struct LocalDevices {
    registry: Mutex<Option<CaptureRegistry>>,
}

impl LocalDevices {
    /// Starts with no device open.
    pub fn new() -> LocalDevices {
        LocalDevices::default()
    }
}

impl Devices for LocalDevices {
    fn device(&self, name: &str) -> Result<Device, CaptureError> {
        opener::device(name)
    }

    fn open(&self, asked: &CaptureRequest, partition: Option<Partition>) -> Result<CaptureReader, CaptureError> {
        reader(self.with_registry(|registry| registry.open(asked, 0))?, asked, partition)
    }

    fn open_sure(
        &self,
        asked: &CaptureRequest,
        partition: Option<Partition>,
    ) -> Result<(CaptureReader, u64), CaptureError> {
        let reader = self.open(asked, partition)?;
        let exchange = self.with_registry(|registry| registry.exchange(reader.id(), &asked.program))?;
        sure(reader, exchange, asked)
    }
}

impl LocalDevices {
    fn with_registry<T>(
        &self,
        ask: impl FnOnce(&CaptureRegistry) -> Result<T, CaptureError>,
    ) -> Result<T, CaptureError> {
        // No panic under this lock leaves a half-made value.
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        ask(match &mut *registry {
            Some(registry) => registry,
            none => none.insert(CaptureRegistry::new(Box::new(Opener))?),
        })
    }
}

fn interpreter(asked: &CaptureRequest) -> Result<Option<Interpreter>, CaptureError> {
    match asked.program.as_slice() {
        [] => Ok(None),
        program => {
            let made = Interpreter::from_cbpf(program);
            made.map(Some).map_err(|error| CaptureError::new(CaptureErrorKind::Request, error.to_string()))
        }
    }
}

/// Makes the reader for a granted capture request.
pub fn reader(
    attachment: capture::Attachment,
    asked: &CaptureRequest,
    partition: Option<Partition>,
) -> Result<CaptureReader, CaptureError> {
    let reader = CaptureReader::new(attachment, interpreter(asked)?, partition);
    let reader = reader.map_err(|error| CaptureError::system("the ring cannot be mapped", &error))?;
    Ok(if asked.counts.is_some() { reader.that_counts() } else { reader })
}

/// Makes a reader whose expression was exchanged for it alone. When the exchange was answered, all running programs
/// knew the expression, so from there on the reader gets everything it wants. A program that did not know it may have
/// decided on packets that came meanwhile.
fn sure(
    mut reader: CaptureReader,
    exchange: capture::Exchange,
    asked: &CaptureRequest,
) -> Result<(CaptureReader, u64), CaptureError> {
    let first = exchange.first;
    reader.exchange(exchange, interpreter(asked)?);
    Ok((reader, first))
}
