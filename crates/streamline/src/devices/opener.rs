//! Chooses the writer for a device: the kernel's program where it sees what a packet socket would see.

use super::consume_writer::ConsumeWriter;
use super::error::capture_error;
use super::kernel_writer::KernelWriter;
use super::packet_writer::{self, PacketWriter};
use capture::{By, CaptureError, CaptureErrorKind, Mode, Opened, Writer};
use driver::device::{self, Device};
use driver::namespace::Namespace;
use program::Program;

/// Why a device is copied from a packet socket although the kernel would take the program.
const CUTS: &str = "the kernel cuts what is sent into segments behind its programs";

/// Opens devices of the network namespace this process is in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opener;

/// Finds a device, its network namespace, and the LINKTYPE number of its frames.
fn find(name: &str) -> Result<(Namespace, Device, u16), CaptureError> {
    let namespace = Namespace::current()
        .map_err(|error| CaptureError::system("this process's network namespace cannot be found", &error))?;
    let device = device::find(&namespace, name).map_err(capture_error)?;
    match device.link.link_type() {
        Some(link_type) => Ok((namespace, device, link_type)),
        None => {
            let text = format!("frames of `{name}` are of a kind that no capture file has a number for");
            Err(CaptureError::new(CaptureErrorKind::Request, text))
        }
    }
}

/// Describes a device before it is opened.
pub fn device(name: &str) -> Result<capture::Device, CaptureError> {
    let (_, device, link_type) = find(name)?;
    let copied = !sees_segments_alike(&device);
    let how = if copied { packet_writer::how(CUTS) } else { String::new() };
    let driver::link::Link { name, index, mtu, .. } = device.link;
    Ok(capture::Device { name, index, link_type, mtu, how, copied })
}

impl Opened for Opener {
    fn index(&self, name: &str) -> Result<u32, CaptureError> {
        let link =
            driver::link::find(name).map_err(|error| CaptureError::system("devices cannot be listed", &error))?;
        link.map(|link| link.index).ok_or_else(|| capture_error(driver::Error::Absent(name.into())))
    }

    fn cost(&self, program: Option<&Program>, sample: u32) -> u32 {
        kernel::cost(program, sample)
    }

    fn open(&self, name: &str, ring_bytes: u64, mode: Mode, by: By) -> Result<Box<dyn Writer>, CaptureError> {
        let (namespace, device, link_type) = find(name)?;
        if mode == Mode::Consume {
            return Ok(Box::new(ConsumeWriter::open(&namespace, &device, link_type, ring_bytes)?));
        }
        let by_kernel = || {
            let writer = KernelWriter::open(&namespace, &device, link_type, ring_bytes)?;
            Ok::<Box<dyn Writer>, CaptureError>(Box::new(writer))
        };
        let by_copying = |why: &str| {
            let writer = PacketWriter::open(&namespace, &device, link_type, ring_bytes, why)?;
            Ok::<Box<dyn Writer>, CaptureError>(Box::new(writer))
        };
        match by {
            By::Kernel => by_kernel(),
            By::PacketSocket => by_copying("by=socket"),
            By::WhatIsBest if !sees_segments_alike(&device) => by_copying(CUTS),
            // A packet socket may do what the kernel's program cannot or may not: it takes other rights.
            By::WhatIsBest => by_kernel()
                .or_else(|error| by_copying(&format!("no program of the kernel: {}", error.text)).map_err(|_| error)),
        }
    }
}

/// Remembers the names of other processes' programs now, since the right to ask for them may be given up later.
pub fn remember_foreign_programs() {
    driver::af_xdp::foreign::remember();
}

/// Whether the kernel's programs see outgoing frames as a packet socket would.
///
/// The program stands before segmentation. Where the kernel cuts TCP for a device that cannot, a packet socket sees the
/// pieces and the program does not. Of a loopback device the program sees what is received.
pub fn sees_segments_alike(device: &Device) -> bool {
    device.link.is_loopback() || device.offloads.tso || !device.offloads.gso
}
