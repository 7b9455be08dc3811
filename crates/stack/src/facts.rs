//! What a stack needs from outside: facts about its device, and the environment of `bpf` and `tap` blocks.

use std::net::{IpAddr, Ipv4Addr};

use packet::LinkType;
use program::cbpf::Instruction;

/// Which checksums of received TCP and UDP packets are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumRule {
    /// Correct ones.
    #[default]
    Strict,
    /// Also those left to a device, as by peers on a veth pair: the field holds the folded sum of the pseudo header.
    Auto,
}

/// The device of a flow, and the flow's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The device's name.
    pub device: String,
    /// The device's link address.
    pub mac: [u8; 6],
    /// The flow's own address.
    pub address: IpAddr,
    /// Network bits of the address. A value above the address length means all bits.
    pub prefix: u8,
    /// The largest IP packet in bytes, without the link header.
    pub mtu: u16,
    /// Which received checksums are accepted.
    pub checksum: ChecksumRule,
    /// For `tcp` blocks only.
    pub tcp: TcpFacts,
}

/// What a `tcp` block needs to know about its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// This side's initial sequence number: the Flow Manager's (RFC 6528), or an accepted connection's SYN cookie.
    pub isn: u32,
    /// The driver already answered the SYN: the first packets are that SYN and the other side's acknowledgement.
    pub is_accepted: bool,
    /// Bytes of the receive buffer; 0: the block's usual size.
    pub receive_bytes: u32,
    /// Bytes of the send buffer; 0: the block's usual size.
    pub send_bytes: u32,
}

/// Fields of the IP header that an application changes while its flow runs. `None`: as the stack's text says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Type of service (RFC 791) or traffic class (RFC 8200): the codepoint, and the two bits of ECN.
    pub class: Option<u8>,
    /// Time to live or hop limit, from 1.
    pub hops: Option<u8>,
}

impl Facts {
    /// The network's broadcast address. `None` for IPv6, and if the prefix leaves no room for one (RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        let IpAddr::V4(address) = self.address else { return None };
        let host_bits = 32_u32.checked_sub(self.prefix.into())?;
        (host_bits >= 2).then(|| Ipv4Addr::from_bits(address.to_bits() | mask(host_bits)))
    }
}

fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits).unwrap_or(0)
}

/// Where a `tap` block writes.
pub trait TapSink: Send {
    /// Appends these parts one after the other. A sink that fails keeps the error for its owner: the flow continues.
    fn write(&mut self, parts: &[&[u8]]);
}

/// The sink of a `tap` block, and the clock for its records.
pub struct TapFile {
    /// Receives the capture file: its header, then a record per packet.
    pub sink: Box<dyn TapSink>,
    /// The time at which the stack's clock was 0, in ns since 1970-01-01 UTC.
    pub epoch_ns: u64,
}

/// What blocks need that requires I/O; the caller supplies it.
pub trait Env {
    /// The program of a `bpf` block. `expression` is the text after `bpf`; `None` if there is none. `link` is the
    /// header that packets begin with. The error is a sentence for the user.
    fn program(&mut self, expression: Option<&str>, link: LinkType) -> Result<Vec<Instruction>, String>;

    /// Opens the file of a `tap` block. The error is a sentence for the user.
    fn tap(&mut self, path: &str) -> Result<TapFile, String>;
}

/// An environment that refuses both `bpf` and `tap`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEnv;

impl Env for NoEnv {
    fn program(&mut self, _expression: Option<&str>, _link: LinkType) -> Result<Vec<Instruction>, String> {
        Err("this program takes no `bpf` blocks".into())
    }

    fn tap(&mut self, _path: &str) -> Result<TapFile, String> {
        Err("this program takes no `tap` blocks".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts() {
        let rows = [
            (24, Some([10, 1, 2, 255])),
            (8, Some([10, 255, 255, 255])),
            (30, Some([10, 1, 2, 7])),
            (0, Some([255; 4])),
            (31, None),
            (32, None),
            (200, None),
        ];
        for (prefix, expected) in rows {
            let address = IpAddr::from([10, 1, 2, 4]);
            let facts = Facts {
                device: String::new(),
                mac: [0; 6],
                address,
                prefix,
                mtu: 0,
                checksum: ChecksumRule::Strict,
                tcp: TcpFacts::default(),
            };
            assert_eq!(facts.broadcast().map(|address| address.octets()), expected, "{prefix}");
        }
    }
}
