//! Sockets over flows for C: `libstreamline_net.so`, `libstreamline_net.a` and `include/streamline_net.h`, which is
//! generated from this crate.
//!
//! This library is separate from those of `capi` and `capi-request`, so that a program with sockets only loads no named
//! rings and no filters. It makes no decisions: each function checks its pointers, calls [`socket::net`], and gives an
//! error as a negative errno; `sl_net_error` has its text. A panic does not cross into C: it becomes EIO.
//!
//! - [`sockets`] — the functions. Start reading here.
//! - [`options`] — options for opening a socket.
//! - `address`, `pieces` — addresses and buffers in C's form.
//! - `outcome` — results and errors in C's form.

mod address;
pub mod options;
mod outcome;
mod pieces;
pub mod sockets;
