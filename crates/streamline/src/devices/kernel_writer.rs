//! Has the kernel's program write a device's ring.

use super::Promiscuous;
use buffer::live::{Areas, Geometry};
use capture::{CaptureError, CaptureErrorKind, Device, Direction, ETHERNET, Expression, Writer};
use driver::device::Device as DriverDevice;
use driver::namespace::Namespace;
use driver::watch::Watch;
use kernel::capture_program::{CaptureProgram, Way};
use kernel::program_error::ProgramError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) struct KernelWriter {
    capture: CaptureProgram,
    device: Device,
    promiscuous: Promiscuous,
    watch: Mutex<Watch>,
    /// The watch's file descriptor, to sleep on.
    events: OwnedFd,
}

impl KernelWriter {
    pub(crate) fn open(
        namespace: &Namespace,
        device: &DriverDevice,
        link_type: u16,
        ring_bytes: u64,
    ) -> Result<KernelWriter, CaptureError> {
        let link = &device.link;
        let watch = Watch::new(namespace).map_err(super::error::capture_error)?;
        let mut capture = CaptureProgram::new(ring_bytes, link_type == ETHERNET).map_err(capture_error)?;
        capture.attach(link.index, Way::In).map_err(capture_error)?;
        // A loopback device receives what it sends: one direction is enough.
        if !link.is_loopback() {
            capture.attach(link.index, Way::Out).map_err(capture_error)?;
        }
        let device = Device {
            name: link.name.clone(),
            index: link.index,
            link_type,
            mtu: link.mtu,
            how: "written by the kernel's program on the device (TCX)".into(),
            copied: false,
        };
        let events = capture::writer::own(watch.as_fd())?;
        Ok(KernelWriter { capture, device, promiscuous: Promiscuous::default(), watch: Mutex::new(watch), events })
    }
}

fn capture_error(error: ProgramError) -> CaptureError {
    let kind = match &error {
        ProgramError::System(_, error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            CaptureErrorKind::Denied
        }
        ProgramError::Load(error)
            if error.error.kind() == std::io::ErrorKind::PermissionDenied && error.reason.is_empty() =>
        {
            CaptureErrorKind::Denied
        }
        ProgramError::System(..) => CaptureErrorKind::System,
        ProgramError::Load(_) | ProgramError::Expression(..) | ProgramError::Verdict(_) | ProgramError::Code(_) => {
            CaptureErrorKind::Cannot
        }
    };
    CaptureError::new(kind, error.to_string())
}

/// Converts the error of a program that was to choose what is taken from the host. There is no way without it: that
/// would take packets that no request named.
pub(crate) fn cannot_choose(error: ProgramError) -> CaptureError {
    match capture_error(error) {
        denied @ CaptureError { kind: CaptureErrorKind::Denied, .. } => denied,
        CaptureError { text, .. } => {
            let help = "`--no-push-down` takes everything, and chooses above";
            let text = format!("the kernel does not choose what is taken away from the host: {text}; {help}");
            CaptureError::new(CaptureErrorKind::System, text)
        }
    }
}

pub(crate) fn to_kernel(expression: &Expression) -> kernel::Expression {
    kernel::Expression {
        bit: expression.bit,
        program: expression.program.clone(),
        incoming: expression.direction != Direction::Out,
        outgoing: expression.direction != Direction::In,
        sample: expression.sample,
        counts: expression.counts,
    }
}

impl Writer for KernelWriter {
    fn device(&self) -> Device {
        self.device.clone()
    }

    fn geometry(&self) -> Geometry {
        self.capture.geometry()
    }

    fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.capture.areas()
    }

    fn set(&self, expressions: &[Expression]) -> Result<(), CaptureError> {
        self.capture.set(&expressions.iter().map(to_kernel).collect::<Vec<_>>()).map_err(capture_error)
    }

    fn grace(&self) -> fn() {
        kernel::sys::wait_for_runs
    }

    fn promiscuous(&self, wanted: bool) -> Result<(), CaptureError> {
        self.promiscuous.set(self.device.index, wanted)
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn gone(&self) -> bool {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        // Read all events, so that the file descriptor is quiet again.
        while let Ok(Some(_)) = watch.next(Duration::ZERO) {}
        !watch.links().any(|link| link.index == self.device.index)
    }

    fn arm(&self, bits: u64) {
        self.capture.arm(bits);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.capture.bell()
    }

    fn rung(&self) -> u64 {
        self.capture.rung()
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
