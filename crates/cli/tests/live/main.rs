//! Live traffic, in namespaces of the tests. Skipped where those cannot be made.
//!
//! - `net` — shared helpers
//! - `requests` — `streamline run` with a daemon; `lowered` — the parts of it that run in the kernel
//! - `selections` — typed selectors and boolean selections in the kernel; `rejects` — rejected packets
//! - `devices` — devices that a request opens itself; `consume` — packets taken from the host
//! - `forwarding` — from one device to another; `bridging` — a request between two hosts; `preventing` — rules that
//!   decide there; `around` — ways around them
//! - `shown` — a policy's filter; `shared` — `run --share`; `told` — `explain` and `run` agree
//! - `programs` — `streamline pcap`
//! - `watching`, `replacing`, `top`, `stopping` — `streamline watch`, `replace`, `top`, and `ps` and `stop`
//! - `budget` — the cost of expressions
//! - `net_commands`, `flows` — `streamline net`, and flows on its interfaces; `connections` — TCP on them; `c_sockets`
//!   — both from C
//! - `loopback` — interfaces without a device; `changing` — addresses, routes and devices that change; `leases` — DHCP
//! - `restarts` — flows that outlive processes of interfaces, and the daemon
//! - `tutorials` — the pages of the guide that show a first half hour
//! - `unmodified`, `pitfalls`, `servers` — unmodified programs whose sockets are flows

mod around;
mod bridging;
mod budget;
mod c_sockets;
mod changing;
mod connections;
mod consume;
mod devices;
mod flows;
mod forwarding;
mod hiding;
mod ipv6;
mod leases;
mod loopback;
mod lowered;
mod net;
mod net_commands;
mod parser;
mod pitfalls;
mod preventing;
mod programs;
mod rejects;
mod replacing;
mod requests;
mod restarts;
mod selections;
mod servers;
mod sharing;
mod shown;
mod stopping;
mod told;
mod top;
mod tutorials;
mod unmodified;
mod watching;
