//! The daemon: owns devices and their rings, and lets others read them. It runs drivers, programs and copying only; what
//! parses payload, writes files or talks to terminals is in its clients, who need no rights but to connect.
//!
//! - [`policy`] — who may do what, from a file; without one, root and the group `streamline` may capture.
//! - [`server`] — the control socket: one thread a client, asked and answered. Start reading here.
//! - `flows` — the same questions about interfaces and flows, which crate `net` has.
//! - `journal` — lines for the administrator.
//! - [`maps`] — which clients get no maps of the kernel's.
//! - `standing` — rings that the policy keeps without readers.
//! - [`interfaces`] — the processes of interfaces, and the one that starts them; [`ports`] — the process that holds ports of the host for
//!   flows on shared devices.
//! - [`confine`] — what the daemon gives up before it listens; [`account`] — the user it becomes.
//!
//! What is said is in [`capture::protocol`]; the rings are [`capture::CaptureRegistry`], the interfaces [`net::Networks`].

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
