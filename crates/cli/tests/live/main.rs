//! Live traffic as people read it, in namespaces of the tests' own; skipped where those cannot be made.
//!
//! - `net` — what they share; `requests` — `streamline run` with a daemon; `lowered` — what of it runs in the kernel;
//!   `devices` — devices that a request opens by itself; `consume` — the same, taking packets away; `shown` — what a policy's
//!   filter shows; `shared` — `run --share`; `told` — `explain` and `run` say the same; `programs` — `streamline pcap`; `watching`, `replacing`,
//!   `top` — `streamline watch`, `replace` and `top`.

mod consume;
mod devices;
mod lowered;
mod net;
mod programs;
mod replacing;
mod requests;
mod shared;
mod shown;
mod told;
mod top;
mod watching;
