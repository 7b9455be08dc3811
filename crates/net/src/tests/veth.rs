//! veth
