//! The library of filters: one file each, and one line below. The file's stem is the filter's name in requests.
//!
//! Read [`count`] first: every filter has its skeleton — what it is, its `KIND`, its state, what it does, its tests.
//! `parts` holds what several filters share; [`shared`] is how blocks get from a process that runs filters for several requests
//! to those. Nothing here knows the engine, the control plane or the request language.

#![forbid(unsafe_code)]

pub mod parser;
mod parts;

pub use parts::live::source;

/// Declares one module for each filter and lists their kinds.
macro_rules! filters {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every filter there is.
        pub static KINDS: &[&filter::Kind] = &[$(&$name::KIND),*];
    };
}

filters! {
    af_packet,
    af_xdp,
    anonymize,
    bpf,
    count,
    destport,
    dns,
    drop,
    ether,
    ethernet,
    files,
    generate,
    head,
    histogram,
    host,
    http,
    icmp,
    inspect,
    ip,
    ip6,
    json,
    r#match,
    net,
    pcap,
    port,
    proto,
    rewrite,
    ring,
    sample,
    save,
    send,
    sequence,
    sourceport,
    tcp,
    tls,
    tuntap,
    udp,
    vlan,
    work,
}
