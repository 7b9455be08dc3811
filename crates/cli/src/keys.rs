//! Single keys from the terminal, while a command shows views on it.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use std::io::IsTerminal;
use std::time::Duration;

/// The terminal gives each key at once and does not echo it, until this is dropped.
pub(crate) struct Keys {
    before: Termios,
}

impl Keys {
    /// `None`: standard input or output is no terminal, or another program has it in the foreground.
    pub(crate) fn listen() -> Option<Keys> {
        let stdin = rustix::stdio::stdin();
        // A terminal that controls no program has no foreground.
        let is_ours = || tcgetpgrp(stdin).map_or(true, |group| group == rustix::process::getpgrp());
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() || !is_ours() {
            return None;
        }
        let before = tcgetattr(stdin).ok()?;
        let mut each_key = before.clone();
        each_key.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        each_key.special_codes[SpecialCodeIndex::VMIN] = 0;
        each_key.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin, OptionalActions::Now, &each_key).ok()?;
        Some(Keys { before })
    }

    /// The next key within `wait`.
    pub(crate) fn pressed(&self, wait: Duration) -> Option<u8> {
        let stdin = rustix::stdio::stdin();
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let ready = rustix::event::poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)).ok()?;
        let mut key = [0];
        match rustix::io::read(stdin, &mut key) {
            Ok(1) => return Some(key[0]),
            // The terminal has gone: it is always ready, and has no keys.
            _ if ready > 0 => std::thread::sleep(wait),
            _ => {}
        }
        None
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
