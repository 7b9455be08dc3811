//! The application's side: its flows, and the doorbell that they share.

use crate::message::Granted;
use buffer::flow::{Application, Bells, Full, Geometry, Received};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An application's flows at one daemon: one for each connection to it.
#[derive(Debug, Default)]
pub struct Host {
    bells: Option<Arc<Bells>>,
}

/// One flow.
#[derive(Debug)]
pub struct Flow {
    /// The daemon's grant: addresses, device, sizes.
    pub granted: Granted,
    /// The application's half of its channel.
    pub channel: Application,
    bells: Arc<Bells>,
}

impl Host {
    /// Takes a flow that the daemon granted, with the file descriptors that came beside the answer. `geometry` is the one that was
    /// asked for.
    ///
    /// # Errors
    ///
    /// `InvalidData`: the daemon gave something else than it says.
    pub fn adopt(&mut self, granted: Granted, geometry: Geometry, mut fds: Vec<OwnedFd>) -> io::Result<Flow> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let expected = if granted.has_bells { 5 } else { 2 };
        if fds.len() != expected {
            return Err(invalid(format!("a flow came with {} file descriptors, not {expected}", fds.len())));
        }
        if let Ok(handles) = <[OwnedFd; 3]>::try_from(fds.split_off(2)) {
            self.bells = Some(Arc::new(Bells::attach(handles).map_err(|error| invalid(error.to_string()))?));
        }
        let bells = self.bells.clone().ok_or_else(|| invalid("the first flow came without doorbells".into()))?;
        let segments = <[OwnedFd; 2]>::try_from(fds).map_err(|_| invalid("a flow has two segments".into()))?;
        let channel = Application::attach(geometry, segments).map_err(|error| invalid(error.to_string()))?;
        Ok(Flow { granted, channel, bells })
    }

    /// The doorbells; none before the first flow.
    pub fn bells(&self) -> Option<&Arc<Bells>> {
        self.bells.as_ref()
    }
}

impl Flow {
    /// Sends a packet that lies in `pieces`, and rings the driver.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room now.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Full> {
        self.channel.send(pieces)?;
        self.ring();
        Ok(())
    }

    /// Says to the driver that this flow has packets to send, or empty buffers.
    pub fn ring(&self) {
        self.bells.ring(self.granted.channel as usize);
    }

    /// Gives at most `most` received packets to `take`; says how many there were. Does not wait.
    pub fn receive(&mut self, most: usize, take: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.channel.receive(most, take)
    }

    /// Readable once the driver rang while this side was [asleep](Self::fall_asleep): for `poll`. All flows of a host share it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bells.fd()
    }

    /// Says that the application is about to sleep on [`fd`](Self::fd). `false`: the driver rang since the application was last
    /// [awake](Self::awake), do not sleep. One thread sleeps for all flows of a host.
    pub fn fall_asleep(&self) -> bool {
        self.bells.fall_asleep()
    }

    /// Says that the application is awake, and forgets what the driver rang for so far: look for packets and room after this.
    pub fn awake(&self) {
        self.bells.awake();
        self.bells.news(|_| {});
    }
}
