//! Scripted TCP exchanges: segments of the peer, calls of the application, and the segments that a TCP must send, with
//! times.
//!
//! - Here — the language, parsed by `script/parse.rs`; [`all`] gives the scripts of `tcp-scripts/`.
//! - `script/run.rs` — plays the peer against a [`Host`]: one TCP, in virtual or in real time.
//! - `script/wire.rs` — packets.
//!
//! A line is a time and an event; `#` begins a comment. The first comment names the RFC section that decides.
//!
//! ```text
//! connect                                        # the application connects
//! +0 > S 0:0 win * <mss 1460,*>                  # the host must send this now
//! +0 < S. 0:0 ack 1 win 8000 <mss 1000>          # the peer sends this now
//! +0 > . 1:1 ack 1 win *
//! +0 write 100
//! +0 > . 1:101 ack 1 win *
//! +0.2~0.25 > . 1:101 ack 1 win *                # again, 200 to 250 ms later
//! ```
//!
//! *Time.* `+0.2` is 200 ms after the event before; without a time it is `+0`. A segment that the host must send may
//! come in a range, `+0.1~0.3`, or at any time, `*`. An unexpected segment fails the script.
//!
//! *Segments.* Flags (`S`, `F`, `R`, `P`, `U`, and `.` for ACK), `from:to` in sequence numbers, `ack`, `win`, `urg` and
//! options. Numbers count from the sender's initial sequence number, and acknowledgements from the receiver's. `*`
//! leaves a value of an expected segment open; in `<...>` it leaves open all options that are not named. PSH of an
//! expected segment is always open: RFC 9293, section 3.9.1.2, leaves it to the sender. `?>` is a segment that the host
//! may send or not.
//!
//! *Application.* `connect`, `listen`, `write N`, `read N` (exactly `N` bytes are there; `read 0`: none), `close` (its
//! write side), `abort`, `eof` (the peer has finished, and all was read), `expect STATE` with one of `connecting`,
//! `open`, `ending`, `timewait`, `closed finished`, `closed reset`, `closed refused`, `closed timeout`, `closed
//! aborted`.
//!
//! *Hosts.* `only block: REASON` or `only kernel: REASON` on a line of its own: other hosts skip the script. `block:
//! LINE` or `kernel: LINE`: other hosts skip the line.

mod parse;
mod run;
mod wire;

pub use run::{Host, Moment, Tolerance};
pub use wire::{IP_BYTES, pattern};

use std::fmt;
use std::path::Path;

/// The TCP that a script is played against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The block `tcp` of a stack.
    Block,
    /// The kernel's TCP.
    Kernel,
}

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its file, without folder and ending.
    pub name: String,
    /// The only host it is for, and why.
    pub only: Option<(Kind, String)>,
    lines: Vec<Line>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Its line number, from 1.
    number: usize,
    text: String,
    /// The only host it is for.
    only: Option<Kind>,
    time: Time,
    event: Event,
}

/// When an event comes, in ns after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Between(u64, u64),
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// The peer sends.
    Arrives(Segment),
    /// The host must send.
    Leaves(Segment),
    /// The host may send.
    MayLeave(Segment),
    Connect,
    Listen,
    Write(usize),
    Read(usize),
    Close,
    Abort,
    EndOfStream,
    Expect(State),
}

/// A segment; `None` leaves a value open.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    flags: u8,
    /// First sequence number, and the number of bytes.
    data: Option<(u32, u32)>,
    acknowledged: Option<u32>,
    window: Option<u16>,
    urgent: u16,
    options: Vec<Named>,
    /// Other options may be present.
    is_open: bool,
}

/// An option; `None` leaves its value open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    MaximumSegmentSize(Option<u16>),
    WindowScale(Option<u8>),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
}

/// The state of a connection, as an application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The handshake is not over.
    Connecting,
    /// This side can write.
    Open,
    /// This side has finished, but the connection is not over.
    Ending,
    /// Both sides have finished; late segments are still answered.
    TimeWait,
    /// Over, and why.
    Closed(Why),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Both sides finished.
    Finished,
    /// The peer reset an open connection.
    Reset,
    /// The peer reset a connection that was not open yet.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// The application aborted.
    Aborted,
}

const STATES: [(&str, State); 9] = [
    ("connecting", State::Connecting),
    ("open", State::Open),
    ("ending", State::Ending),
    ("timewait", State::TimeWait),
    ("closed finished", State::Closed(Why::Finished)),
    ("closed reset", State::Closed(Why::Reset)),
    ("closed refused", State::Closed(Why::Refused)),
    ("closed timeout", State::Closed(Why::TimedOut)),
    ("closed aborted", State::Closed(Why::Aborted)),
];

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = STATES.iter().find(|(_, state)| state == self);
        f.write_str(found.map_or("?", |(name, _)| name))
    }
}

/// All scripts of `tcp-scripts/`, by name. An unreadable one fails the test.
pub fn all() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tcp-scripts");
    let entries = std::fs::read_dir(&folder).expect("the scripts are there");
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a script can be read");
        scripts.push(Script::parse(&name, &text).unwrap_or_else(|error| panic!("{error}")));
    }
    scripts.sort_by(|one, other| one.name.cmp(&other.name));
    scripts
}
