//! The application's side: its flows and listeners, and the doorbell that they share.

use crate::message::{Granted, Listening};
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

/// A listener: connections wait at it until the application accepts them (`Question::Accept`).
#[derive(Debug)]
pub struct Listener {
    /// The daemon's answer: address, device, channel.
    pub listening: Listening,
    bells: Arc<Bells>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Host {
    /// Takes a granted flow with the file descriptors of the answer. `geometry` is that of the question.
    ///
    /// # Errors
    ///
    /// `InvalidData`: the daemon gave something else than it says.
    pub fn adopt(&mut self, granted: Granted, geometry: Geometry, mut fds: Vec<OwnedFd>) -> io::Result<Flow> {
        let bells = self.bells_beside(granted.has_bells, 2, &mut fds)?;
        let segments = <[OwnedFd; 2]>::try_from(fds).map_err(|_| invalid("a flow has two segments".into()))?;
        let channel = Application::attach(geometry, segments).map_err(|error| invalid(error.to_string()))?;
        Ok(Flow { granted, channel, bells })
    }

    /// Takes a listener that the daemon opened, with the file descriptors of the answer.
    ///
    /// # Errors
    ///
    /// As for [`adopt`](Self::adopt).
    pub fn adopt_listener(&mut self, listening: Listening, mut fds: Vec<OwnedFd>) -> io::Result<Listener> {
        let bells = self.bells_beside(listening.has_bells, 0, &mut fds)?;
        Ok(Listener { listening, bells })
    }

    /// Takes accepted connections with the file descriptors of the answer. `geometry` is that of the listener's
    /// question.
    ///
    /// # Errors
    ///
    /// As for [`adopt`](Self::adopt).
    pub fn adopt_accepted(
        &mut self,
        granted: Vec<Granted>,
        geometry: Geometry,
        fds: Vec<OwnedFd>,
    ) -> io::Result<Vec<Flow>> {
        if fds.len() != 2 * granted.len() {
            return Err(invalid(format!("{} connections came with {} file descriptors", granted.len(), fds.len())));
        }
        let mut fds = fds.into_iter();
        granted.into_iter().map(|granted| self.adopt(granted, geometry, fds.by_ref().take(2).collect())).collect()
    }

    /// The doorbells, which are the last three of `fds` if `has_bells`; `others` file descriptors remain.
    fn bells_beside(&mut self, has_bells: bool, others: usize, fds: &mut Vec<OwnedFd>) -> io::Result<Arc<Bells>> {
        let expected = others + if has_bells { 3 } else { 0 };
        if fds.len() != expected {
            return Err(invalid(format!("an answer came with {} file descriptors, not {expected}", fds.len())));
        }
        if let Ok(handles) = <[OwnedFd; 3]>::try_from(fds.split_off(others)) {
            self.bells = Some(Arc::new(Bells::attach(handles).map_err(|error| invalid(error.to_string()))?));
        }
        self.bells.clone().ok_or_else(|| invalid("the first flow or listener came without doorbells".into()))
    }

    /// The doorbells. `None` before the first flow or listener.
    pub fn bells(&self) -> Option<&Arc<Bells>> {
        self.bells.as_ref()
    }
}

impl Flow {
    /// Sends a packet made of `pieces`, and rings the driver.
    ///
    /// # Errors
    ///
    /// [`Full`]: there is no room now.
    pub fn send(&mut self, pieces: &[&[u8]]) -> Result<(), Full> {
        self.channel.send(pieces)?;
        self.ring();
        Ok(())
    }

    /// Tells the driver that this flow has packets to send, or empty buffers.
    pub fn ring(&self) {
        self.bells.ring(self.granted.channel as usize);
    }

    /// Closes the flow. The driver still sends the packets in its channel, and then gives the channel's number to another flow.
    pub fn close(&mut self) {
        self.channel.close();
        self.ring();
    }

    /// Gives at most `most` received packets to `take`, and returns their number. Does not wait.
    pub fn receive(&mut self, most: usize, take: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.channel.receive(most, take)
    }
}

/// Sleep, for flows and listeners alike.
macro_rules! sleeps {
    ($type:ty) => {
        impl $type {
            /// Readable once the driver has rung while this side was [asleep](Self::fall_asleep), for `poll`. All flows
            /// and listeners of a host share it.
            pub fn fd(&self) -> BorrowedFd<'_> {
                self.bells.fd()
            }

            /// Announces a sleep on [`fd`](Self::fd). `false`: the driver has rung since the application was last
            /// [awake](Self::awake), so do not sleep. One thread sleeps for all flows and listeners of a host.
            pub fn fall_asleep(&self) -> bool {
                self.bells.fall_asleep()
            }

            /// Ends a sleep, and forgets earlier rings of the driver. Look for packets, room and connections after
            /// this.
            pub fn awake(&self) {
                self.bells.awake();
                self.bells.news(|_| {});
            }
        }
    };
}

sleeps!(Flow);
sleeps!(Listener);
