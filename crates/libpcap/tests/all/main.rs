//! The system's libpcap, loaded: what it compiles, and how many packets of the shared captures that passes.

mod captures;
mod compile;
