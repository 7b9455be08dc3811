//! Lets a test make chosen calls of bpf(2) fail. Only in builds with assertions for debugging, which are not
//! shipped. `CRASH.md` says which properties are tested with it.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which call will fail, and which one failed.
struct State {
    /// Number of calls until the failing one, from 1; 0 = none will fail.
    ahead: u32,
    error: i32,
    failed: Option<libc::c_int>,
}

static STATE: Mutex<State> = Mutex::new(State { ahead: 0, error: 0, failed: None });

fn state() -> MutexGuard<'static, State> {
    // Plain numbers: a panic cannot leave them half changed.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the `call`-th call from here on (1 = the next) that creates or changes an object fail with `error`.
pub fn arm(call: u32, error: i32) {
    *state() = State { ahead: call, error, failed: None };
}

/// Lets all calls succeed again. Returns the call that failed.
pub fn disarm() -> Option<&'static str> {
    let mut state = state();
    state.ahead = 0;
    state.failed.take().and_then(name)
}

/// The name of a command that creates or changes an object; `None` for other commands.
fn name(command: libc::c_int) -> Option<&'static str> {
    Some(match command {
        crate::MAP_CREATE => "map",
        crate::MAP_UPDATE_ELEM => "value",
        crate::MAP_FREEZE => "freeze",
        crate::PROG_LOAD => "load",
        crate::LINK_CREATE => "attach",
        crate::LINK_UPDATE => "exchange",
        _ => return None,
    })
}

/// Counts a call that is about to be made; returns the error if it must fail.
pub(crate) fn step(command: libc::c_int) -> io::Result<()> {
    if name(command).is_none() {
        return Ok(());
    }
    let mut state = state();
    // After a refused load the program is loaded once more for the verifier's log. Refuse that too.
    let again = state.failed == Some(crate::PROG_LOAD) && command == crate::PROG_LOAD && state.ahead == 1;
    if again {
        state.ahead = 0;
        return Err(io::Error::from_raw_os_error(state.error));
    }
    match state.ahead {
        0 => return Ok(()),
        1 if state.failed.is_none() => {
            state.failed = Some(command);
            state.ahead = u32::from(command == crate::PROG_LOAD && state.error != libc::EPERM);
        }
        // The call after the refused load is not a second load: let it succeed.
        1 => {
            state.ahead = 0;
            return Ok(());
        }
        _ => {
            state.ahead -= 1;
            return Ok(());
        }
    }
    Err(io::Error::from_raw_os_error(state.error))
}
