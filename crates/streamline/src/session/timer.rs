//! The time after which a request ends (`set for=`).

use base::atomic::StopFlag;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// A thread that sets a flag after a time, unless this is dropped before.
pub(crate) struct Timer {
    /// The thread sees when it is gone.
    _alive: Sender<()>,
}

impl Timer {
    /// Starts the thread. If the system refuses it, the request ends at once: better than never.
    pub(crate) fn start(time: Duration, stop: &StopFlag) -> Timer {
        let (alive, gone) = mpsc::channel();
        let flag = stop.clone();
        let wait = move || {
            if gone.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                flag.stop();
            }
        };
        if std::thread::Builder::new().name("timer".into()).spawn(wait).is_err() {
            stop.stop();
        }
        Timer { _alive: alive }
    }
}
