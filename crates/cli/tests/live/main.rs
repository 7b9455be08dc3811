//! Live traffic as people read it, in namespaces of the tests' own; skipped where those cannot be made.
//!
//! - `net` — what they share; `requests` — `streamline run` with a daemon; `devices` — devices that a request opens by itself;
//!   `consume` — the same, taking packets away; `programs` — `streamline pcap`.

mod consume;
mod devices;
mod net;
mod programs;
mod requests;
