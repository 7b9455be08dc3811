//! Subcommands, one file each: its arguments and what it does.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod extcap;
pub(crate) mod filters;
pub(crate) mod fmt;
pub(crate) mod man;
pub(crate) mod net;
pub(crate) mod parser_process;
pub(crate) mod pcap;
pub(crate) mod pipe;
pub(crate) mod preload;
pub(crate) mod ps;
pub(crate) mod replace;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod top;
pub(crate) mod watch;
