//! Live traffic as people read it, in namespaces of the tests' own; skipped where those cannot be made.
//!
//! - `net` — what they share; `requests` — `streamline run`; `programs` — `streamline pcap`.

mod net;
mod programs;
mod requests;
