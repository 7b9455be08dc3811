//! Devices through the daemon where there is one, else by this process itself.

use super::{LocalDevices, reader, sure};
use capture::client::Client;
use capture::{Budget, Device, Share, Tap, Trouble, Wish, writer::TroubleKind};
use filter::Devices;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Where devices are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// By the daemon that listens at the usual place, if there is one; else by this process.
    #[default]
    Anywhere,
    /// By the daemon that listens here.
    Daemon(PathBuf),
    /// By this process.
    Here,
}

/// Decides when a device is first asked for.
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

/// Why no daemon opens devices.
#[derive(Clone, Copy)]
enum NoDaemon {
    NotAsked,
    Absent,
    /// Its socket is there, and nobody listens.
    Dead,
}

impl NoDaemon {
    /// What this process may not do, a daemon might.
    fn explain(self, device: &str, trouble: Trouble) -> Trouble {
        if trouble.kind != TroubleKind::Denied {
            return trouble;
        }
        let path = capture::protocol::SOCKET;
        let daemon = match self {
            NoDaemon::NotAsked => "it was not to use one".to_string(),
            NoDaemon::Absent => format!("no daemon answers at {path}"),
            NoDaemon::Dead => format!("the daemon at {path} has died: only its socket is left"),
        };
        let text = format!(
            "this process may not capture `{device}` ({}): that takes root or a daemon, and {daemon}",
            trouble.text
        );
        Trouble { text, ..trouble }
    }
}

impl AutoDevices {
    pub(crate) fn new(place: Place) -> AutoDevices {
        AutoDevices { place, purpose: Mutex::default(), chosen: Mutex::default() }
    }

    /// The socket of the daemon that devices are opened by, where it is not this process that opens them.
    pub(crate) fn daemon(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Daemon(path) => Some(path.clone()),
            Place::Anywhere => Some(capture::protocol::SOCKET.into()).filter(|path: &PathBuf| path.exists()),
            Place::Here => None,
        }
    }

    fn choose(&self) -> Result<Chosen, Trouble> {
        // Nothing that panics under it leaves it half made.
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
                    return Err(Trouble::new(TroubleKind::System, text));
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
                    return Err(Trouble::new(TroubleKind::Denied, text));
                }
                Err(error) => {
                    let text = format!("the daemon at {} cannot be used: {error}", capture::protocol::SOCKET);
                    return Err(Trouble::new(TroubleKind::System, text));
                }
            },
        };
        *chosen = Some(new.clone());
        Ok(new)
    }
}

impl Devices for AutoDevices {
    fn device(&self, name: &str) -> Result<Device, Trouble> {
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

    fn open(&self, wish: &Wish, share: Option<Share>) -> Result<Tap, Trouble> {
        match self.choose()? {
            Chosen::Daemon(client) => {
                let mut tap = reader(client.open(wish)?, wish, share)?;
                // The connection is as long-lived as the reader.
                tap.keep(client);
                Ok(tap)
            }
            Chosen::Here(local, why) => {
                let mut tap = local.open(wish, share).map_err(|trouble| why.explain(&wish.device, trouble))?;
                // So are those who write its ring.
                tap.keep(local);
                Ok(tap)
            }
        }
    }

    fn open_sure(&self, wish: &Wish, share: Option<Share>) -> Result<(Tap, u64), Trouble> {
        match self.choose()? {
            Chosen::Daemon(client) => {
                let tap = reader(client.open(wish)?, wish, share)?;
                let exchange = client.exchange(tap.id(), &wish.program)?;
                let (mut tap, first) = sure(tap, exchange, wish)?;
                tap.keep(client);
                Ok((tap, first))
            }
            Chosen::Here(local, why) => {
                let opened = local.open_sure(wish, share);
                let (mut tap, first) = opened.map_err(|trouble| why.explain(&wish.device, trouble))?;
                tap.keep(local);
                Ok((tap, first))
            }
        }
    }

    fn is_elsewhere(&self) -> bool {
        matches!(self.choose(), Ok(Chosen::Daemon(_)))
    }

    /// A daemon is told what this process is for.
    fn set_purpose(&self, purpose: &str) {
        let purpose = purpose.split_whitespace().collect::<Vec<_>>().join(" ");
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(Chosen::Daemon(client)) = chosen {
            // For people: it does no harm if the daemon goes on to say what it was for before.
            let _ = client.set_purpose(&purpose);
        }
        *self.purpose.lock().unwrap_or_else(PoisonError::into_inner) = purpose;
    }
}
