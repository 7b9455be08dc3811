//! The facts that a stack takes from outside: its device, and the program or file for its `bpf` and `tap` blocks.

use std::net::{IpAddr, Ipv4Addr};

use packet::LinkType;
use program::cbpf::Instruction;

/// The rule for checksums of received TCP and UDP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumRule {
    /// Right checksums are those that add up.
    #[default]
    Strict,
    /// Also those that their sender left to a device: the field holds the folded sum of the pseudo header alone. Peers
    /// on a veth pair send such packets.
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
    /// Bits of network in the address. A larger number counts as all bits.
    pub prefix: u8,
    /// The largest IP packet in bytes, without the link header.
    pub mtu: u16,
    /// The rule for received checksums.
    pub checksum: ChecksumRule,
    /// Further facts for a `tcp` block. Other blocks ignore them.
    pub tcp: TcpFacts,
}

/// The facts of a connection for a `tcp` block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// The initial sequence number of this side: from the Flow Manager (RFC 6528), or the cookie of an accepted connection.
    pub isn: u32,
    /// The driver answered the SYN already: the first packets are that SYN and the acknowledgement of the peer.
    pub is_accepted: bool,
    /// Bytes of the receive buffer. 0 means the block's default size.
    pub receive_bytes: u32,
    /// Bytes of the send buffer. 0 means the block's default size.
    pub send_bytes: u32,
}

impl Facts {
    /// The broadcast address of the network. `None` if the prefix leaves no room for one (RFC 3021), and for IPv6,
    /// which has no broadcast.
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        let IpAddr::V4(address) = self.address else { return None };
        let host_bits = 32_u32.checked_sub(self.prefix.into())?;
        (host_bits >= 2).then(|| Ipv4Addr::from_bits(address.to_bits() | mask(host_bits)))
    }
}

fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits).unwrap_or(0)
}

/// The destination of a `tap` block's bytes.
pub trait TapSink: Send {
    /// Appends these parts, one after the other. A sink that fails keeps the error for its owner: the flow goes on.
    fn write(&mut self, parts: &[&[u8]]);
}

/// The sink of a `tap` block, and the clock of its records.
pub struct TapFile {
    /// Where the capture file goes: first its header, then a record for each packet.
    pub sink: Box<dyn TapSink>,
    /// The time at which the stack's clock was 0, in ns since 1970-01-01 UTC.
    pub epoch_ns: u64,
}

/// The parts of blocks that need I/O, which this crate does not do.
pub trait Env {
    /// The program of a `bpf` block. `expression` is the text after `bpf`; `None` means there is none. `link` is the
    /// header that packets begin with. The error is a sentence for the user.
    fn program(&mut self, expression: Option<&str>, link: LinkType) -> Result<Vec<Instruction>, String>;

    /// Opens the file of a `tap` block. The error is a sentence for the user.
    fn tap(&mut self, path: &str) -> Result<TapFile, String>;
}

/// The environment of stacks that have neither `bpf` nor `tap`: it refuses both.
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
