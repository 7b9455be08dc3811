//! A door by which a test has one call of the kernel fail, and then the next. Only in builds with the feature `faults`, which
//! no crate that ships asks for; `CRASH.md` says what is shown with it.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The call that is to fail, and the call that failed.
struct State {
    /// Calls until then, from 1; 0: none.
    ahead: u32,
    error: i32,
    failed: Option<libc::c_int>,
}

static STATE: Mutex<State> = Mutex::new(State { ahead: 0, error: 0, failed: None });

fn state() -> MutexGuard<'static, State> {
    // Numbers: nobody leaves them half changed.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the `call`-th call from here on (the first is 1) that makes or changes something fail with this error.
pub fn arm(call: u32, error: i32) {
    *state() = State { ahead: call, error, failed: None };
}

/// Has none fail any more; says which did.
pub fn disarm() -> Option<&'static str> {
    let mut state = state();
    state.ahead = 0;
    state.failed.take().and_then(name)
}

/// What a call is for, of those that make or change something.
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

/// A call is about to be made.
pub(crate) fn step(command: libc::c_int) -> io::Result<()> {
    if name(command).is_none() {
        return Ok(());
    }
    let mut state = state();
    // A program that was refused is offered again, to hear why: that is refused as well.
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
        // What follows a refused load is no load: it goes on.
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
