//! Sockets over flows for C: `libstreamline_net.so`, `libstreamline_net.a` and `include/streamline_net.h`, which is generated from
//! here.
//!
//! A library of its own beside those of `capi` and `capi-request`, so that a program which only has sockets loads no rings of
//! names and no filters. Nothing is decided here: each function checks its pointers, calls what [`socket::net`] has, and says
//! an error as a negative errno; `sl_net_error` has its text. No panic crosses into C: it becomes EIO.
//!
//! - [`sockets`] — the functions. Start reading here.
//! - [`options`] — how a socket is opened.
//! - `address`, `pieces` — addresses and buffers as C has them.
//! - `outcome` — results and errors as C has them.

mod address;
pub mod options;
mod outcome;
mod pieces;
pub mod sockets;
