//! The shared captures, and how the programs that made their expectations read them.

pub use testkit::shared::{sorted, whole};

/// Connections with the same addresses and ports in different VLANs or tunnels count as one, as in the programs that
/// made the expectations.
pub const JOINED: &[(&str, &str)] = &[("vlan", "ignore"), ("tunnel", "ignore")];
