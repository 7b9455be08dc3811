//! A device's ring written by the kernel's program.

use super::Promiscuous;
use buffer::live::{Areas, Geometry};
use capture::{Device, Direction, ETHERNET, Expression, Trouble, Writer, writer::TroubleKind};
use driver::device::Device as DriverDevice;
use driver::namespace::Namespace;
use driver::watch::Watch;
use kernel::tap::{Tap, TapError, Way};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) struct KernelWriter {
    tap: Tap,
    device: Device,
    promiscuous: Promiscuous,
    watch: Mutex<Watch>,
    /// The watch's, to sleep by.
    events: OwnedFd,
}

impl KernelWriter {
    pub(crate) fn open(
        namespace: &Namespace,
        device: &DriverDevice,
        link_type: u16,
        ring_bytes: u64,
    ) -> Result<KernelWriter, Trouble> {
        let link = &device.link;
        let watch = Watch::new(namespace).map_err(super::opener::trouble)?;
        let mut tap = Tap::new(ring_bytes, link_type == ETHERNET).map_err(trouble)?;
        tap.attach(link.index, Way::In).map_err(trouble)?;
        // What is sent on a loopback device is received on it: once is enough.
        if !link.is_loopback() {
            tap.attach(link.index, Way::Out).map_err(trouble)?;
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
        Ok(KernelWriter { tap, device, promiscuous: Promiscuous::default(), watch: Mutex::new(watch), events })
    }
}

/// Of a program that the kernel did not take.
fn trouble(error: TapError) -> Trouble {
    let kind = match &error {
        TapError::System(_, error) if error.kind() == std::io::ErrorKind::PermissionDenied => TroubleKind::Denied,
        TapError::Load(error)
            if error.error.kind() == std::io::ErrorKind::PermissionDenied && error.reason.is_empty() =>
        {
            TroubleKind::Denied
        }
        TapError::System(..) => TroubleKind::System,
        TapError::Load(_) | TapError::Expression(..) | TapError::Verdict(_) | TapError::Code(_) => TroubleKind::Cannot,
    };
    Trouble::new(kind, error.to_string())
}

/// Of a program that was to choose what is taken away from the host: nobody does without, for that would take what nobody said.
pub(crate) fn cannot_choose(error: TapError) -> Trouble {
    match trouble(error) {
        denied @ Trouble { kind: TroubleKind::Denied, .. } => denied,
        Trouble { text, .. } => {
            let help = "`--no-push-down` takes everything, and chooses above";
            let text = format!("the kernel does not choose what is taken away from the host: {text}; {help}");
            Trouble::new(TroubleKind::System, text)
        }
    }
}

/// As the kernel's programs take it.
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
        self.tap.geometry()
    }

    fn areas(&self) -> Areas<BorrowedFd<'_>> {
        self.tap.areas()
    }

    fn set(&self, expressions: &[Expression]) -> Result<(), Trouble> {
        self.tap.set(&expressions.iter().map(to_kernel).collect::<Vec<_>>()).map_err(trouble)
    }

    fn grace(&self) -> fn() {
        kernel::sys::wait_for_runs
    }

    fn promiscuous(&self, wanted: bool) -> Result<(), Trouble> {
        self.promiscuous.set(self.device.index, wanted)
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }

    fn gone(&self) -> bool {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        // Everything there is to hear, so that the file descriptor is quiet again.
        while let Ok(Some(_)) = watch.next(Duration::ZERO) {}
        !watch.links().any(|link| link.index == self.device.index)
    }

    fn arm(&self, bits: u64) {
        self.tap.arm(bits);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.tap.bell()
    }

    fn rung(&self) -> u64 {
        self.tap.rung()
    }

    fn statistics(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
