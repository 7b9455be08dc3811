//! From bytes to meaning: one file per protocol, each a pure function of its bytes. No I/O, no clock, no state between
//! packets, and no allocation per packet.
//!
//! - A frame: start at [`frame`]. Below it are [`link`], [`encapsulation`], [`ethernet`], above it [`tcp`], [`udp`],
//!   [`icmp`], beside it [`arp`] and [`ndp`]. [`tunnel`] finds packets inside packets, [`flow`] names the
//!   conversation, [`malformed`] says why a frame was refused.
//! - Capture files: [`sniff`] tells them apart, [`capture`] reads both formats, [`pcap_file`] and [`pcapng`].
//! - Messages: [`dns`], [`tls`], [`dhcp`], [`ntp`], [`ssh`], [`sip`], [`http2`] with [`hpack`], [`quic`] and
//!   [`gquic`], [`websocket`], [`dcerpc`], [`smb`], [`ike`]. [`fingerprint`] names programs by their TLS hellos,
//!   [`x509`] reads certificates, in the encoding [`der`].
//! - Lines of text: [`smtp`], [`ftp`], and [`reply`] for both.
//! - For all of them: [`checksum`], [`pseudo`]; [`offload`] does the work of network devices.
//! - [`time`] writes timestamps.
//!
//! View types (`Packet<'a>`) check lengths once in `new_checked`; their accessors cannot fail. Any input gives a
//! result or an error value. No code here panics, loops without bound, or lets its input decide how much to allocate.

#![forbid(unsafe_code)]

mod arcnet;
mod bytes;
mod link_layer;
mod nflog;
mod ppp;
mod sll;
mod text;
mod wlan;

pub mod arp;
pub mod capture;
pub mod checksum;
pub mod dcerpc;
pub mod der;
pub mod dhcp;
pub mod dns;
pub mod encapsulation;
pub mod ethernet;
pub mod fingerprint;
pub mod flow;
pub mod frame;
pub mod ftp;
pub mod gquic;
pub mod hpack;
pub mod http2;
pub mod icmp;
pub mod ike;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod malformed;
pub mod ndp;
pub mod ntp;
pub mod offload;
pub mod pcap_file;
pub mod pcapng;
pub mod pseudo;
pub mod quic;
pub mod reply;
pub mod sip;
pub mod smb;
pub mod smtp;
pub mod sniff;
pub mod ssh;
pub mod tcp;
pub mod time;
pub mod tls;
pub mod tunnel;
pub mod udp;
pub mod websocket;
pub mod x509;

pub use flow::Flow;
pub use frame::Frame;
pub use link::LinkType;
pub use malformed::Malformed;
