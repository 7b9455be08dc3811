//! The library: one file for each block, and the list of all blocks.

/// Declares one module for each block and lists their kinds.
macro_rules! blocks {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every block that a text can name.
        pub static KINDS: &[&crate::kind::Kind] = &[$(&$name::KIND),*];
    };
}

blocks! {
    arp,
    bpf,
    dummy,
    ethernet,
    icmp,
    ipv4,
    ipv6,
    ndp,
    tap,
    tcp,
    udp,
}
