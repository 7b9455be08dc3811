//! Opens devices through the daemon if there is one, else in this process.

use super::{LocalDevices, reader, sure};
use capture::client::Client;
use capture::{Budget, CaptureError, CaptureErrorKind, CaptureReader, CaptureRequest, Device, Devices, Partition};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Where devices are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The daemon at the usual place opens devices if it listens; else this process does.
    #[default]
    Anywhere,
    /// The daemon that listens at this path.
    Daemon(PathBuf),
    /// This process.
    Here,
}

/// Opens devices through a daemon or here; it decides when the first device is asked for.
pub(crate) struct AutoDevices {
    place: Place,
    purpose: Mutex<String>,
    chosen: Mutex<Option<Chosen>>,
}

#[derive(Clone)]
enum Chosen {
    Daemon(Arc<Client>),
    Here(Arc<LocalDevices>, NoDaemon),
}

#[derive(Clone, Copy)]
enum NoDaemon {
    NotAsked,
    Absent,
    /// The daemon's socket is there, and no process listens.
    Dead,
}

impl NoDaemon {
    /// Adds to a refusal that a daemon might be allowed what this process is not.
    fn explain(self, device: &str, error: CaptureError) -> CaptureError {
        if error.kind != CaptureErrorKind::Denied {
            return error;
        }
        let path = capture::protocol::SOCKET;
        let daemon = match self {
            NoDaemon::NotAsked => "it was not to use one".to_string(),
            NoDaemon::Absent => format!("no daemon answers at {path}"),
            NoDaemon::Dead => format!("the daemon at {path} has died: only its socket is left"),
        };
        let text = format!(
            "this process may not capture `{device}` ({}): that takes root or a daemon, and {daemon}",
            error.text
        );
        CaptureError { text, ..error }
    }
}

impl AutoDevices {
    pub(crate) fn new(place: Place) -> AutoDevices {
        AutoDevices { place, purpose: Mutex::default(), chosen: Mutex::default() }
    }

    /// The socket of the daemon that opens devices. `None`: this process opens them.
    pub(crate) fn daemon(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Daemon(path) => Some(path.clone()),
            Place::Anywhere => Some(capture::protocol::SOCKET.into()).filter(|path: &PathBuf| path.exists()),
            Place::Here => None,
        }
    }

    fn choose(&self) -> Result<Chosen, CaptureError> {
        // No panic under this lock leaves a half-made value.
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = &*chosen {
            return Ok(chosen.clone());
        }
        let purpose = self.purpose.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let here = |why| Chosen::Here(Arc::new(LocalDevices::new()), why);
        let new = match &self.place {
            Place::Here => here(NoDaemon::NotAsked),
            Place::Daemon(path) => match Client::connect(path, &purpose) {
                Ok(client) => Chosen::Daemon(Arc::new(client)),
                Err(error) => {
                    let text = format!("no daemon can be reached at {}: {error}", path.display());
                    return Err(CaptureError::new(CaptureErrorKind::System, text));
                }
            },
            Place::Anywhere => match Client::connect(capture::protocol::SOCKET.as_ref(), &purpose) {
                Ok(client) => Chosen::Daemon(Arc::new(client)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => here(NoDaemon::Absent),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => here(NoDaemon::Dead),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let text = format!(
                        "the daemon at {} lets only root and the group `streamline` in: {error}",
                        capture::protocol::SOCKET
                    );
                    return Err(CaptureError::new(CaptureErrorKind::Denied, text));
                }
                Err(error) => {
                    let text = format!("the daemon at {} cannot be used: {error}", capture::protocol::SOCKET);
                    return Err(CaptureError::new(CaptureErrorKind::System, text));
                }
            },
        };
        *chosen = Some(new.clone());
        Ok(new)
    }
}

impl Devices for AutoDevices {
    fn device(&self, name: &str) -> Result<Device, CaptureError> {
        match self.choose()? {
            Chosen::Daemon(client) => client.device(name),
            Chosen::Here(local, _) => local.device(name),
        }
    }

    fn budget(&self, device: &str) -> Option<Budget> {
        match self.choose().ok()? {
            Chosen::Daemon(client) => client.budget(device).ok()?,
            Chosen::Here(..) => None,
        }
    }

    fn open(&self, asked: &CaptureRequest, partition: Option<Partition>) -> Result<CaptureReader, CaptureError> {
        match self.choose()? {
            Chosen::Daemon(client) => {
                let mut reader = reader(client.open(asked)?, asked, partition)?;
                reader.keep(client);
                Ok(reader)
            }
            Chosen::Here(local, why) => {
                let mut reader = local.open(asked, partition).map_err(|error| why.explain(&asked.device, error))?;
                reader.keep(local);
                Ok(reader)
            }
        }
    }

    fn open_sure(
        &self,
        asked: &CaptureRequest,
        partition: Option<Partition>,
    ) -> Result<(CaptureReader, u64), CaptureError> {
        match self.choose()? {
            Chosen::Daemon(client) => {
                let reader = reader(client.open(asked)?, asked, partition)?;
                let exchange = client.exchange(reader.id(), &asked.program)?;
                let (mut reader, first) = sure(reader, exchange, asked)?;
                reader.keep(client);
                Ok((reader, first))
            }
            Chosen::Here(local, why) => {
                let opened = local.open_sure(asked, partition);
                let (mut reader, first) = opened.map_err(|error| why.explain(&asked.device, error))?;
                reader.keep(local);
                Ok((reader, first))
            }
        }
    }

    fn is_elsewhere(&self) -> bool {
        matches!(self.choose(), Ok(Chosen::Daemon(_)))
    }

    fn set_purpose(&self, purpose: &str) {
        let purpose = purpose.split_whitespace().collect::<Vec<_>>().join(" ");
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(Chosen::Daemon(client)) = chosen {
            // The daemon shows this text to people. If telling fails, it keeps showing the old one, which does no
            // harm.
            let _ = client.set_purpose(&purpose);
        }
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner) = purpose;
    }
}
