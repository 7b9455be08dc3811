//! Where a handle's packets come from: a device, by whoever opens devices for this process, or a request.

use crate::expression::NOTHING;
use crate::host;
use crate::inner::Settings;
use crate::names::Target;
use crate::request::{Request, Shared};
use capture::attachment::Exchange;
use capture::client::Client;
use capture::{CaptureError, CaptureReader, CaptureRequest, Share};
use driver::link::{self, Link};
use program::cbpf::Instruction;
use std::sync::Arc;

/// Who owns the ring.
pub enum Source {
    /// The daemon, or a process made in its place.
    Client(Arc<Client>),
    /// A thread of this process.
    Request(Request),
}

impl Source {
    /// A reader that nothing has been found for yet.
    pub fn open(
        target: &Target,
        settings: &Settings,
        share: Option<Share>,
    ) -> Result<(Source, CaptureReader), CaptureError> {
        let name = match target {
            Target::Device { name, .. } => name,
            Target::Request(text) => text,
        };
        let asked = CaptureRequest {
            device: name.clone(),
            program: NOTHING.to_vec(),
            sample: 1,
            promiscuous: settings.promiscuous,
            ring_bytes: u64::try_from(settings.buffer_bytes).unwrap_or(0),
            ..CaptureRequest::default()
        };
        let (source, attachment) = match target {
            Target::Device { .. } => {
                let client = host::client()?;
                let attachment = client.open(&asked)?;
                (Source::Client(client), attachment)
            }
            Target::Request(text) => {
                let request = Request::start(text, asked.ring_bytes)?;
                let attachment = request.registry().open(&asked, 0)?;
                (Source::Request(request), attachment)
            }
        };
        let reader = CaptureReader::new(attachment, None, share);
        Ok((source, reader.map_err(|error| CaptureError::system("the ring cannot be mapped", &error))?))
    }

    /// Gives a reader another expression.
    pub fn exchange(&self, id: u64, program: &[Instruction]) -> Result<Exchange, CaptureError> {
        match self {
            Source::Client(client) => client.exchange(id, program),
            Source::Request(request) => {
                let exchange = request.registry().exchange(id, program)?;
                request.want();
                Ok(exchange)
            }
        }
    }

    /// The device as this process sees it, if it does: the daemon may be in another network namespace.
    pub fn device(&self, reader: &CaptureReader) -> Option<Link> {
        if matches!(self, Source::Request(_)) {
            return None;
        }
        let device = reader.device();
        link::find(&device.name).ok().flatten().filter(|link| link.index == device.index)
    }

    /// The reader has come to this packet: who waits for it goes on.
    pub fn has_read(&self, position: u64) {
        if let Source::Request(request) = self {
            request.has_read(position);
        }
    }

    /// Is all that will ever come in the ring?
    pub fn has_ended(&self) -> bool {
        matches!(self, Source::Request(request) if request.has_ended())
    }

    /// Why nothing comes any more, where that is known.
    pub fn failure(&self) -> Option<String> {
        match self {
            Source::Client(_) => None,
            Source::Request(request) => request.failure(),
        }
    }

    /// Who knows of packets that were lost before they came into the ring.
    pub fn losses(&self) -> Option<Arc<Shared>> {
        match self {
            Source::Client(_) => None,
            Source::Request(request) => Some(request.losses()),
        }
    }
}
