//! `libstreamline_pcap.so`: libpcap's functions over live rings, for unmodified programs.
//!
//! ```text
//!   tcpdump -i sl:eth0          pcap_create("sl:eth0")  ─▶ ours   ─▶ capture::Tap ─▶ ring of the daemon's
//!                               pcap_create("eth0")     ─▶ libpcap's
//!                               pcap_open_offline(...)  ─▶ libpcap's
//! ```
//!
//! The library is preloaded (`LD_PRELOAD`, or `streamline pcap -- PROGRAM`), or takes libpcap's place under the name
//! `libpcap.so.0.8`. It defines every symbol of libpcap 1.10. Calls that do not concern our devices go to the installed
//! libpcap. So do expressions, files and names: for those, each of our handles has an inactive handle of libpcap's.
//!
//! - [`names`] — which devices are ours; [`host`] — opens them; [`request`] — a request in the place of a device; [`cooked`] — the form of `any`
//! - [`live`] — an active handle: reading, waiting, filters. Start reading here
//! - [`handle`] — the object that C points to, and which threads may use which parts; [`stop`] and [`meter`] — the two
//!   parts for signal handlers
//! - [`exports`] — the functions, by subject; [`real`] — functions that are only forwarded, and the libpcap they go to
//!
//! The code relies only on the rules that libpcap has for its callers: pointers are handles or null, buffers for errors
//! have 256 bytes, and one thread at a time uses a handle. No panic crosses into C ([`guard`]).

pub mod abi;
pub mod cooked;
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
pub mod settings;
pub mod shared;
pub mod source;
pub mod stop;
