//! The facade: a request's text goes in, a data path runs. The only crate that names concrete filters.
//!
//! ```no_run
//! use streamline::{Session, StopFlag};
//!
//! let session = Session::new();
//! let job = session.prepare("pcap trace.pcap | http | files dir=out", &Default::default())?;
//! let finished = job.run(&StopFlag::new(), &mut |_worker| {})?;
//! println!("{} blocks read", finished.report.nodes[0].counters.blocks_made);
//! # Ok::<(), streamline::Error>(())
//! ```
//!
//! [`session`] is the way in; [`stream`] is for a program that wants the blocks itself.
//!
//! - `app_space` — the space that runs filters in this process.
//! - `live` — the two spaces that run their programs in the kernel and in the daemon; `compiled` caches compiled
//!   expressions.
//! - [`parser`] — the space that runs filters once for several requests, and the process that does it.
//! - [`devices`] — how live devices are reached.
//! - [`net`] — sockets over flows, in the manner of `std::net`.
//! - [`isolate`] — filters in processes of their own.
//! - [`frames`] — a request's frames as a capture.
//! - [`running`] — how other processes look at a running request, replace it and end it.

#![forbid(unsafe_code)]

mod app_space;
mod compiled;
pub mod devices;
mod error;
pub mod frames;
pub mod isolate;
mod kept_ring;
mod left;
mod live;
pub mod parser;
mod rest;
pub mod running;
pub mod session;
mod space;
pub mod stream;

pub use base::atomic::StopFlag;
pub use base::id::Class;
pub use buffer::Flags;
pub use control::explain;
pub use engine::{End, Report, Worker};
pub use error::Error;
pub use filter::record::{FieldValue, Row};
pub use filter::{Kind, Output, StreamFacts, Type, Types};
pub use session::{Finished, Job, Session, registry};
pub use socket::net;
pub use stream::{Block, OpenEnd, Push, Stream};

/// The compiler of tcpdump's expressions: the system's libpcap, loaded when it is first asked.
pub fn compiler() -> impl program::Compile {
    libpcap::Lazy::new()
}

/// Names the compiler of tcpdump's expressions and its version, or says that it is missing.
pub fn describe_compiler() -> String {
    program::Compile::describe(&compiler())
}

/// Checks that `bpf` takes this expression for frames of this link type. The error says why not.
pub fn check_expression(expression: &str, link_type: u16) -> Result<(), String> {
    let compiled = program::Compile::compile(&compiler(), expression, link_type, 0);
    compiled.map(drop).map_err(|error| error.message)
}

/// The request language.
pub mod language {
    pub use request::{Diagnostic, FilterCall, Span, Text, parse, print, print_paper};
}

/// Compiles and runs the guide's examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/embedding.md")]
#[doc = include_str!("../../../docs/guide/net.md")]
mod guide {}
