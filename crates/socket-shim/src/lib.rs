//! `libstreamline_sockets.so`: the C library's socket calls over flows, for unmodified programs.
//!
//! ```text
//!  socket()                      the kernel's, as ever
//!  connect(fd, 10.0.0.1:80)      if an interface of Streamline routes there, `fd` becomes one end of a pair of unix
//!                                sockets, whose other end the host (crate socket-host) copies to and from a flow
//!  read, write, poll, epoll ...  the kernel's, on that end
//! ```
//!
//! The library is preloaded (`LD_PRELOAD`, or `streamline net run -- PROGRAM`). It only handles what a unix socket cannot do
//! itself: addresses, options and errors of TCP and UDP. The kernel moves all bytes and does all waiting, so `epoll`, `dup`,
//! `fork`, `exec`, `sendfile` and `io_uring` work without it. A program that bypasses this library loses only addresses.
//!
//! - `exports` — the functions. Start reading here
//! - `host` — one question to the host; `ends` — the kinds of file descriptors, `replacement` — of a kernel socket by one
//! - `epoll` — sockets that a program waits for before it connects them; `options` — socket options; `kernel` — system calls
//! - `confined` — processes whose seccomp filter permits few calls
//!
//! No function allocates, or waits for a lock, or calls a function that does: programs call these in signal handlers,
//! and between `fork` and `exec`. `errno` changes only if a call fails.

mod confined;
mod ends;
mod epoll;
mod exports;
mod host;
mod kernel;
mod options;
mod replacement;
