//! Panics of this program that may go no further: into C, or out of an exit handler. None stays silent.

use std::any::Any;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Exit status of a Rust program that panicked.
pub const STATUS: i32 = 101;

/// The socket of the system log, for processes whose standard error leads nowhere.
const LOG: &str = "/dev/log";

/// Facility "daemon", severity "error" (RFC 5424, 6.2.1).
const PRIORITY: u8 = 3 << 3 | 3;

/// Runs `work`. `None`: it panicked, which is a fault of this program, and may be half done. A line on standard error
/// and in the system log names `place` and the panic. Takes no lock, so a forked copy may call it too.
pub fn contained<T>(place: &str, work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| tell(&line(place, &*panic))).ok()
}

fn line(place: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
    format!("streamline: a fault of this program, in {place}: {}", crate::terminal::line(text))
}

fn tell(line: &str) {
    // Another thread may have the lock of `stderr` for ever in a forked copy, so write to a descriptor of its own.
    if let Ok(error) = std::io::stderr().as_fd().try_clone_to_owned() {
        let _ = File::from(error).write_all(format!("{line}\n").as_bytes());
    }
    log(Path::new(LOG), line);
}

/// Sends the line to a system log. Where there is none, or it has no room, nothing happens.
fn log(socket: &Path, line: &str) {
    if let Ok(sender) = UnixDatagram::unbound()
        && sender.set_nonblocking(true).is_ok()
    {
        let _ = sender.send_to(format!("<{PRIORITY}>{line}").as_bytes(), socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_contained_and_told_with_its_place() {
        assert_eq!(contained("a test", || 7), Some(7));
        assert_eq!(contained("a test", || -> i32 { panic!("to be caught") }), None);
        let said = |panic: Box<dyn Any + Send>| line("a call", &*panic);
        assert_eq!(said(Box::new("no\x1b[1m")), "streamline: a fault of this program, in a call: no\\x1b[1m");
        assert_eq!(said(Box::new(String::from("a 7"))), "streamline: a fault of this program, in a call: a 7");
        assert_eq!(said(Box::new(7)), "streamline: a fault of this program, in a call: panic");
    }

    #[test]
    fn the_system_log_gets_one_line() {
        let socket = std::env::temp_dir().join(format!("streamline-log-{}", std::process::id()));
        let reader = UnixDatagram::bind(&socket).unwrap();
        log(&socket, "streamline: a line");
        let mut line = [0; 64];
        let count = reader.recv(&mut line).unwrap();
        std::fs::remove_file(&socket).unwrap();
        assert_eq!(&line[..count], b"<27>streamline: a line");
        log(&socket, "to nobody");
    }
}
