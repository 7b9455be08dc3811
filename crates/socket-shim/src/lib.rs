//! `libstreamline_sockets.so`: the C library's socket calls over flows, for programs that know nothing of them.
//!
//! ```text
//!  socket()                      the kernel's, as ever
//!  connect(fd, 10.0.0.1:80)      does an interface of Streamline route there? Then `fd` becomes one end of a pair of unix
//!                                sockets, whose other end the host (crate socket-host) copies to and from a flow
//!  read, write, poll, epoll ...  the kernel's, on that end
//! ```
//!
//! Preloaded (`LD_PRELOAD`, or `streamline net run -- PROGRAM`). Here is only what a unix socket cannot say by itself: addresses,
//! options and errors of TCP and UDP. All that moves bytes or waits is the kernel's, so `epoll`, `dup`, `fork`, `exec`, `sendfile`
//! and `io_uring` need nothing from here, and a program that goes round this library loses nothing but addresses.
//!
//! - `exports` — the functions. Start reading here.
//! - `host` — one question to the host; `ends` — what a file descriptor is, and how it becomes another.
//! - `epoll` — sockets that a program waits for before it connects them; `options` — socket options; `kernel` — the calls below.
//!
//! No function allocates, takes a lock that it waits for, or calls one that does: programs call these in signal handlers and
//! between `fork` and `exec`. `errno` changes only where a call fails.

mod ends;
mod epoll;
mod exports;
mod host;
mod kernel;
mod options;
