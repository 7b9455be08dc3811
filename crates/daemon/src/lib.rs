//! The daemon: owns devices and their rings, and shares them with readers. It runs only drivers, programs and copying.
//! Its clients parse payload, write files and talk to terminals; they need no right except to connect.
//!
//! - [`policy`] — which users may do what, from a file; without one, root and the group `streamline` may capture.
//! - [`server`] — the control socket: a thread for each client answers its questions. Start reading here.
//! - `flows` — questions about interfaces and flows; crate `net` has these.
//! - `journal` — lines for the administrator.
//! - [`maps`] — which clients get no kernel maps.
//! - `standing` — rings that the policy keeps without readers.
//! - [`interfaces`] — interface processes, and the process that starts them.
//! - [`ports`] — the process that holds ports of the host for flows on shared devices.
//! - [`confine`] — the rights that the daemon gives up before it listens; [`account`] — the user it becomes.
//!
//! Its messages are in [`capture::protocol`], its rings in [`capture::CaptureRegistry`], its interfaces in
//! [`net::Networks`].

#![forbid(unsafe_code)]

pub mod account;
pub mod confine;
mod flows;
pub mod interfaces;
mod journal;
pub mod maps;
pub mod policy;
pub mod ports;
pub mod server;
mod standing;

pub use account::Account;
pub use policy::Policy;
pub use server::{Helpers, Listening, MayConnect, Server};
