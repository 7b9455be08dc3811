//! Standing rings: the policy has them keep every packet of a device that their readers may see, for readers that look
//! back. They run from the start of the daemon or the device. Each belongs to the trust group that may read it, like
//! any ring.

use crate::journal::{Cause, Journal};
use crate::maps;
use crate::policy::Policy;
use capture::{By, CaptureError, CaptureRegistry};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use streamline::devices::Present;

/// Most standing rings: each holds memory, and other users can make devices come and go.
const RINGS: usize = 64;

#[derive(Debug)]
pub(crate) struct Standing {
    present: Present,
    /// Index and name of the device, and the trust group.
    held: BTreeSet<(u32, String, u32)>,
    /// Reasons why some rings do not stand, as far as they were reported.
    told: BTreeSet<String>,
}

impl Standing {
    /// `None`: the policy has no standing rings.
    pub(crate) fn new(policy: &Policy) -> Result<Option<Standing>, CaptureError> {
        if !policy.keeps() {
            return Ok(None);
        }
        Ok(Some(Standing { present: Present::new()?, held: BTreeSet::new(), told: BTreeSet::new() }))
    }

    /// Opens the rings that the policy wants for each device. A failed one is tried again when something changes.
    pub(crate) fn see_to(&mut self, policy: &Policy, registry: &CaptureRegistry, journal: &mut Journal<'_>) {
        let devices = self.present.look();
        // All readers of such a ring get the same writer.
        let by = if maps::everybody_loads() { By::PacketSocket } else { By::WhatIsBest };
        self.held.retain(|(index, name, _)| devices.iter().any(|device| (device.0, &device.1) == (*index, name)));
        let mut untold = BTreeSet::new();
        for (index, name) in devices {
            for (right, bytes) in policy.kept(&name) {
                let place = (index, name.clone(), right.group);
                if self.held.contains(&place) {
                    continue;
                }
                let kept = match self.held.len() < RINGS {
                    true => registry.keep(&name, by, bytes, right).map_err(|error| error.text),
                    false => Err(format!("{RINGS} are kept already, as many as there may be")),
                };
                match kept {
                    Ok(()) => drop(self.held.insert(place)),
                    Err(text) => drop(untold.insert(format!("packets of `{name}` are not kept: {text}"))),
                }
            }
        }
        let now = Instant::now();
        untold.difference(&self.told).for_each(|line| journal.tell(Cause::Keeping, now, line.clone()));
        self.told = untold;
    }
}

/// Readable when devices may have changed.
impl AsFd for Standing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.present.as_fd()
    }
}
