//! Where a handle's packets come from: a device, by whoever opens devices for this process.

use crate::expression::NOTHING;
use crate::host;
use crate::inner::Settings;
use crate::names::Target;
use capture::client::Client;
use capture::handout::Exchange;
use capture::writer::TroubleKind;
use capture::{Share, Tap, Trouble, Wish};
use driver::link::{self, Link};
use program::cbpf::Instruction;
use std::sync::Arc;

/// Who owns the ring.
pub enum Source {
    /// The daemon, or a process made in its place.
    Client(Arc<Client>),
}

impl Source {
    /// A reader that nothing has been found for yet.
    pub fn open(target: &Target, settings: &Settings, share: Option<Share>) -> Result<(Source, Tap), Trouble> {
        let Target::Device { name, .. } = target else {
            return Err(Trouble::new(TroubleKind::Cannot, "requests cannot be read as devices"));
        };
        let wish = Wish {
            device: name.clone(),
            program: NOTHING.to_vec(),
            sample: 1,
            promiscuous: settings.promiscuous,
            ring_bytes: u64::try_from(settings.buffer_bytes).unwrap_or(0),
            ..Wish::default()
        };
        let client = host::client()?;
        let handout = client.open(&wish)?;
        let tap =
            Tap::new(handout, None, share).map_err(|error| Trouble::system("the ring cannot be mapped", &error))?;
        Ok((Source::Client(client), tap))
    }

    /// Gives a reader another expression.
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, Trouble> {
        match self {
            Source::Client(client) => client.exchange(id, program),
        }
    }

    /// The device as this process sees it, if it does: the daemon may be in another network namespace.
    pub fn device(&self, tap: &Tap) -> Option<Link> {
        let device = tap.device();
        link::find(&device.name).ok().flatten().filter(|link| link.index == device.index)
    }

    /// Was all there is to read read?
    pub fn has_ended(&self) -> bool {
        false
    }
}
