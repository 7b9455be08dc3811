//! The source of a handle's packets: a device, opened by the daemon or the helper process, or a request.

use crate::cooked::Form;
use crate::expression::NOTHING;
use crate::host;
use crate::names::Target;
use crate::request::{self, Request};
use crate::settings::Settings;
use crate::shared::Shared;
use capture::attachment::Exchange;
use capture::client::Client;
use capture::{CaptureError, CaptureReader, CaptureRequest, Partition};
use driver::link::{self, Link};
use program::cbpf::Instruction;
use std::sync::Arc;

/// The owner of the ring.
pub enum Source {
    /// The daemon, or the helper process.
    Client(Arc<Client>),
    /// A thread of this process.
    Request(Request),
}

impl Source {
    /// Opens a reader whose expression rejects all packets so far.
    pub fn open(
        target: &Target,
        settings: &Settings,
        partition: Option<Partition>,
    ) -> Result<(Source, CaptureReader), CaptureError> {
        let name: &str = match target {
            Target::Device { name, .. } => name,
            Target::Request(text) => text,
            Target::Any => request::ANY,
        };
        let asked = CaptureRequest {
            device: name.into(),
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
            Target::Request(_) | Target::Any => {
                let form = if *target == Target::Any { Form::Cooked } else { Form::AsTheyCome };
                let request = Request::start(name, form, asked.ring_bytes)?;
                let attachment = request.registry().open(&asked, 0)?;
                (Source::Request(request), attachment)
            }
        };
        let reader = CaptureReader::new(attachment, None, partition);
        Ok((source, reader.map_err(|error| CaptureError::system("the ring cannot be mapped", &error))?))
    }

    /// Sets a reader's expression.
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

    /// The device, if this process can see it: the daemon may be in another network namespace.
    pub fn device(&self, reader: &CaptureReader) -> Option<Link> {
        if matches!(self, Source::Request(_)) {
            return None;
        }
        let device = reader.device();
        link::find(&device.name).ok().flatten().filter(|link| link.index == device.index)
    }

    /// Reports the reader's position, so that a waiting writer goes on.
    pub fn has_read(&self, position: u64) {
        if let Source::Request(request) = self {
            request.has_read(position);
        }
    }

    /// Whether the ring has all packets that will ever come.
    pub fn has_ended(&self) -> bool {
        matches!(self, Source::Request(request) if request.has_ended())
    }

    /// Why no more packets come, if that is known.
    pub fn failure(&self) -> Option<String> {
        match self {
            Source::Client(_) => None,
            Source::Request(request) => request.failure(),
        }
    }

    /// Counts packets that were lost before they came into the ring. `None` for a device.
    pub fn losses(&self) -> Option<Arc<Shared>> {
        match self {
            Source::Client(_) => None,
            Source::Request(request) => Some(request.losses()),
        }
    }
}
