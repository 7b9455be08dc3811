//! Live traffic as people read it, in namespaces of the tests' own; skipped where those cannot be made.
//!
//! - `net` — what they share; `requests` — `streamline run` with a daemon; `lowered` — what of it runs in the kernel;
//!   `selections` — typed selectors and boolean selection there; `rejects` — what a filter rejects;
//!   `devices` — devices that a request opens by itself; `consume` — the same, taking packets away; `forwarding` — from one device to another; `bridging` — a request between two hosts; `preventing` — rules that decide there; `around` — ways around them; `shown` — what a policy's
//!   filter shows; `shared` — `run --share`; `told` — `explain` and `run` say the same; `programs` — `streamline pcap`; `watching`, `replacing`,
//!   `top`, `stopping` — `streamline watch`, `replace`, `top`, and `ps` and `stop`; `budget` — what expressions may cost;
//!   `net_commands`, `flows` — `streamline net`, and flows on its interfaces; `connections` — TCP on them; `c_sockets` — both from C; `loopback` — without a device;
//!   `changing` — addresses, routes and devices that change under them; `leases` — addresses of a DHCP server;
//!   `restarts` — flows that outlive processes of interfaces, and the daemon; `unmodified`, `pitfalls` — unmodified programs whose sockets are flows.

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
mod sharing;
mod shown;
mod stopping;
mod told;
mod top;
mod unmodified;
mod watching;
