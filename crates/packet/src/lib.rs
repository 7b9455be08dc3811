//! From bytes to meaning: one file per protocol, each a pure function of its bytes. No I/O, no clock, no state between
//! packets, and no allocation per packet.
//!
//! - A frame: start at [`frame`]. Below it are [`link`], [`encapsulation`], [`ethernet`], above it [`tcp`], [`udp`],
//!   [`icmp`], beside it [`arp`] and [`ndp`]. [`tunnel`] finds packets inside packets, [`flow`] names the
//!   conversation, [`malformed`] says why a frame was refused.
//! - Capture files: [`sniff`] tells them apart, [`capture`] reads both formats, [`pcap_file`] and [`pcapng`].
//! - [`dhcp`], which interfaces speak. The crate `protocols` reads the messages of applications.
//! - For all of them: [`checksum`], [`pseudo`], [`bytes`], [`text`]; [`offload`] does the work of network devices.
//! - [`time`] writes timestamps.
//!
//! View types (`Packet<'a>`) check lengths once in `new_checked`; their accessors cannot fail. Any input gives a
//! result or an error value. No code here panics, loops without bound, or lets its input decide how much to allocate.

#![forbid(unsafe_code)]

mod arcnet;
mod layer;
mod link_layer;
mod nflog;
mod ppp;
mod sll;
mod wlan;

pub mod arp;
pub mod bytes;
pub mod capture;
pub mod capture_file;
pub mod checksum;
pub mod dhcp;
pub mod encapsulation;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod malformed;
pub mod ndp;
pub mod offload;
pub mod pcap_file;
pub mod pcapng;
pub mod pseudo;
pub mod sniff;
pub mod tcp;
pub mod text;
pub mod time;
pub mod tunnel;
pub mod udp;

pub use flow::Flow;
pub use frame::Frame;
pub use link::LinkType;
pub use malformed::Malformed;
