//! The library of filters: one file for each filter, and one line below. The file's stem is the filter's name in requests.
//!
//! Read [`count`] first: every filter has its parts in this order: purpose, `KIND`, state, work, tests.
//! - [`conversations`]: the filters of protocols that are read whole in `protocols`, such as `ssh` and `ftp`.
//! - `parts`: code that several filters share.
//! - [`parser`]: passes blocks from a process that runs filters for several requests to those requests.
//! - [`embedding`]: passes blocks from a request to the program that embeds it, and back.
//!
//! Nothing here knows the engine, the control plane or the request language.

#![forbid(unsafe_code)]

pub mod conversations;
pub mod embedding;
pub mod parser;
pub mod parts;

pub use parts::live::source;

filter::filters! {
    af_packet,
    af_xdp,
    anonymize,
    bpf,
    bridge,
    by,
    conflicts,
    count,
    decap,
    #[cfg(feature = "decrypt")]
    decrypt,
    destport,
    dhcp,
    dialogue,
    dns,
    drop,
    enrich,
    ether,
    ethernet,
    eve,
    fields,
    files,
    flow,
    flows,
    ftp_data,
    generate,
    head,
    histogram,
    host,
    http,
    http2,
    icmp,
    inspect,
    ip,
    ip6,
    join,
    json,
    r#match,
    match_up,
    net,
    ntp,
    packets,
    pcap,
    plot,
    port,
    proto,
    #[cfg(feature = "quic")]
    quic,
    rewrite,
    ring,
    sample,
    save,
    send,
    sequence,
    smb,
    smtp,
    sort,
    sourceport,
    split,
    tcp,
    time,
    tls,
    transactions,
    tuntap,
    udp,
    vlan,
    websocket,
    r#where,
    work,
    zeek,
}
