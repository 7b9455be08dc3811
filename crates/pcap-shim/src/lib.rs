//! `libstreamline_pcap.so`: libpcap's functions over live rings, for programs that know nothing of them.
//!
//! ```text
//!   tcpdump -i sl:eth0          pcap_create("sl:eth0")  ─▶ ours   ─▶ capture::Tap ─▶ ring of the daemon's
//!                               pcap_create("eth0")     ─▶ libpcap's
//!                               pcap_open_offline(...)  ─▶ libpcap's
//! ```
//!
//! Preloaded (`LD_PRELOAD`, or `streamline pcap -- PROGRAM`), or under the name `libpcap.so.0.8` in its place: every symbol
//! of libpcap 1.10 is defined here. What is not about a device of ours is handed on to the libpcap that is installed, so are
//! expressions, files and names: for those, each handle of ours has one of libpcap's that is not live.
//!
//! - [`names`] — which devices are ours; [`host`] — who opens them; [`request`] — what is read instead of a device.
//! - [`live`] — an active handle: reading, waiting, filters. Start reading here.
//! - [`handle`] — what C holds a pointer to, and who may look at what in it; [`stop`] and [`meter`] — the two things signal
//!   handlers may use.
//! - [`exports`] — the functions, by what they are about; [`real`] — those that are handed on, and the libpcap they go to.
//!
//! What C promises is what libpcap asks of its callers, and no more is believed: pointers are handles or null, buffers for
//! errors have 256 bytes, a handle is used by one thread at a time. No panic crosses into C ([`guard`]).

pub mod abi;
pub mod data;
pub mod exports;
pub mod expression;
pub mod frames;
pub mod guard;
pub mod handle;
pub mod host;
pub mod inner;
pub mod live;
pub mod meter;
pub mod names;
pub mod real;
pub mod request;
pub mod selectable;
pub mod source;
pub mod stop;
