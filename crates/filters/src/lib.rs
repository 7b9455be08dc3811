//! The library of filters: one file each, and one line below. The file's stem is the filter's name in requests.
//!
//! Read [`count`] first: every filter has its skeleton — what it is, its `KIND`, its state, what it does, its tests.
//! `parts` holds what several filters share; [`parser`] is how blocks get from a process that runs filters for several requests
//! to those, [`embedding`] how they get to a program and from it. Nothing here knows the engine, the control plane or the request language.

#![forbid(unsafe_code)]

pub mod embedding;
pub mod parser;
mod parts;

pub use parts::live::source;

/// Declares one module for each filter and lists their kinds.
macro_rules! filters {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every filter there is.
        pub static KINDS: &[&filter::Kind] = &[$(&$name::KIND),*];

        /// Every filter that there is in a session whose program takes and pushes blocks.
        pub static EMBEDDED_KINDS: &[&filter::Kind] = &[
            $(&$name::KIND,)*
            &embedding::give::KIND,
            &embedding::push::FRAMES,
            &embedding::push::BYTES,
            &embedding::push::MESSAGES,
        ];
    };
}

filters! {
    af_packet,
    af_xdp,
    anonymize,
    bpf,
    bridge,
    by,
    conflicts,
    count,
    decap,
    destport,
    dhcp,
    dns,
    drop,
    ether,
    ethernet,
    eve,
    fields,
    files,
    flow,
    flows,
    ftp,
    generate,
    head,
    histogram,
    host,
    http,
    icmp,
    inspect,
    ip,
    ip6,
    ips,
    join,
    json,
    r#match,
    net,
    ntp,
    packets,
    pcap,
    plot,
    port,
    proto,
    rewrite,
    ring,
    rules,
    sample,
    save,
    send,
    sequence,
    sip,
    smtp,
    sort,
    sourceport,
    split,
    ssh,
    tcp,
    time,
    tls,
    transactions,
    tuntap,
    udp,
    vlan,
    r#where,
    work,
    zeek,
}
