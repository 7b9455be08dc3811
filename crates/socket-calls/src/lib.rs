//! The protocol between an unmodified program's socket calls and the process that keeps its sockets.
//!
//! ```text
//!  program                                        host (crate socket-host)
//!  connect(fd) ─ libstreamline_sockets.so ─ Ask ─▶ opens a flow, makes a pair of unix sockets
//!              ◀── Answer, one end of the pair ──  keeps the other end
//!  read, write, epoll ... on that end ══ bytes ══▶ copied to and from the flow's stack
//! ```
//!
//! Each question is one connection to the host: the program may close, copy or inherit any file descriptor at any time,
//! so the library keeps none. A socket is named by the inode of the program's end, which `dup`, `fork` and `exec`
//! preserve. The library only uses the C library, so this crate has no dependencies.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Environment variable with an abstract unix address of the host and a secret in hexadecimal digits.
pub const VARIABLE: &str = "STREAMLINE_SOCKETS";

/// Bytes of the secret that every question begins with.
pub const SECRET: usize = 16;

/// Bytes of a question.
pub const ASK: usize = SECRET + 16 + ADDRESS + 16;

/// Bytes of an answer.
pub const ANSWER: usize = 16 + ADDRESS;

/// Bytes of an address with its family and port.
pub const ADDRESS: usize = 24;

/// Bytes of the message that announces an accepted connection to a listening socket: both addresses, the program's first.
pub const ACCEPTED: usize = 2 * ADDRESS;

/// The bytes before each datagram of a socket without a peer, in both directions: address and port of the other side.
pub const ENVELOPE: usize = ADDRESS;

/// The `SO_PRIORITY` of the program's end marks its kind: the kernel keeps this value, whatever happens to the process.
pub mod mark {
    /// A TCP socket with an address, which has neither a connection nor a backlog yet. The lowest mark.
    pub const BOUND: i32 = 2;
    /// The bytes of one connection.
    pub const STREAM: i32 = 4;
    /// A listening socket: one message of [`super::ACCEPTED`] bytes for each connection.
    pub const LISTENER: i32 = 5;
    /// Datagrams with an [`super::ENVELOPE`].
    pub const ENVELOPES: i32 = 6;
    /// Datagrams to and from one peer, without envelopes.
    pub const DATAGRAMS: i32 = 3;
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// Connect a TCP socket to `address`. With an inode: the socket that was bound. `number` 1: do not wait. `value`: see
    /// [`marks`].
    Connect = 2,
    /// Bind a TCP socket to `address`. `value`: bits of [`form`].
    Bind = 3,
    /// Make the bound socket listen, with a backlog of `number`.
    Listen = 4,
    /// Return the own address of a socket.
    Name = 5,
    /// Return the peer's address of a socket.
    Peer = 6,
    /// Return the error of a socket, and clear it (`SO_ERROR`).
    Error = 7,
    /// Set the [`Setting`] `number` of a socket to `value`. ENOPROTOOPT: a socket of this family has no such option.
    Set = 8,
    /// Bind a UDP socket to `address`; port 0: any. `number` 1: leave it unbound, for a datagram to `address`. `value`
    /// as for [`Bind`](Self::Bind).
    Datagrams = 9,
    /// Give the UDP socket of this inode, or a new one, the peer `address`. Its end is replaced.
    Peered = 10,
    /// Return a TCP socket's state in [`Answer::number`]; `number` 1 asks whether it is IPv6 only. The address has its family.
    Info = 11,
    /// Return why a read of this socket gave no bytes: 0 for the end of the stream or an empty datagram, or the errno
    /// of the failure. EAGAIN: the error was already fetched by another call, so read again.
    Ended = 12,
    /// Return the [`Setting`] `number` of a socket in [`Answer::number`].
    Get = 13,
}

impl Call {
    const ALL: [Call; 12] = [
        Call::Connect,
        Call::Bind,
        Call::Listen,
        Call::Name,
        Call::Peer,
        Call::Error,
        Call::Set,
        Call::Datagrams,
        Call::Peered,
        Call::Info,
        Call::Ended,
        Call::Get,
    ];
}

/// Bits that say how a socket is bound.
pub mod form {
    /// For IPv6 only (`IPV6_V6ONLY`).
    pub const V6_ONLY: i64 = 1;
    /// The port may have further listeners of this kind (`SO_REUSEPORT`).
    pub const SHARES_PORT: i64 = 2;
}

/// An option that the host keeps for a socket. A connection begins with those of its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Send small segments at once: 0 or 1.
    NoDelay,
    /// Hold an incomplete segment back for a while: 0 or 1.
    Cork,
    /// Probe a quiet connection: 0 or 1.
    KeepAlive,
    /// Seconds between these probes.
    KeepIdle,
    /// How long a closed socket may send its remaining bytes, in ms; negative: the default; 0: reset.
    Linger,
    /// The port may have further listeners: 0 or 1.
    SharesPort,
    /// Type of service of IPv4 packets.
    Service,
    /// Time to live of IPv4 packets.
    Ttl,
    /// Traffic class of IPv6 packets.
    Class,
    /// Hop limit of IPv6 packets.
    Hops,
}

impl Setting {
    /// All, in the order of their numbers.
    pub const ALL: [Setting; 10] = [
        Setting::NoDelay,
        Setting::Cork,
        Setting::KeepAlive,
        Setting::KeepIdle,
        Setting::Linger,
        Setting::SharesPort,
        Setting::Service,
        Setting::Ttl,
        Setting::Class,
        Setting::Hops,
    ];

    /// Those of the IP header, in the order of [`marks`].
    pub const MARKS: [Setting; 4] = [Setting::Service, Setting::Ttl, Setting::Class, Setting::Hops];

    /// The value that a socket begins with (tcp(7), ip(7), ipv6(7)).
    pub const fn usual(self) -> i64 {
        match self {
            Setting::KeepIdle => 7200,
            Setting::Linger => -1,
            Setting::Ttl | Setting::Hops => 64,
            _ => 0,
        }
    }
}

/// The [`Setting::MARKS`] of a socket as one number: a byte for each, the first one lowest.
pub fn marks(values: [u8; 4]) -> i64 {
    i64::from(u32::from_le_bytes(values))
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// From [`VARIABLE`].
    pub secret: [u8; SECRET],
    /// The question.
    pub call: Call,
    /// The socket. 0: none yet.
    pub inode: u64,
    /// As the call says, in the program's form: an IPv4 address in an IPv6 socket keeps its IPv6 form (RFC 4291 2.5.5.2).
    pub address: SocketAddr,
    /// As the call says.
    pub number: i64,
    /// As the call says.
    pub value: i64,
}

/// The host's answer. If the call makes a file descriptor, it goes beside the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 0, or the error.
    pub errno: i32,
    /// For [`Call::Info`]: the state in the kernel's numbers, or 0 or 1.
    pub number: i64,
    /// The requested address, if there is one.
    pub address: SocketAddr,
}

/// Address 0.0.0.0, port 0.
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Answer {
    /// A refusal for this reason.
    pub const fn no(errno: i32) -> Answer {
        Answer { errno, number: 0, address: NOWHERE }
    }

    /// Success without data.
    pub const YES: Answer = Answer::no(0);

    /// The answer in bytes.
    pub fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[0..4].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&address_bytes(self.address));
        bytes
    }

    /// Parses the bytes of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8; ANSWER]) -> Answer {
        Answer {
            errno: i32::from_le_bytes(part(bytes, 0)),
            number: i64::from_le_bytes(part(bytes, 8)),
            address: address(part(bytes, 16)),
        }
    }
}

impl Ask {
    /// The question in bytes.
    pub fn encode(&self) -> [u8; ASK] {
        let mut bytes = [0; ASK];
        bytes[..SECRET].copy_from_slice(&self.secret);
        let rest = &mut bytes[SECRET..];
        rest[0..4].copy_from_slice(&(self.call as u32).to_le_bytes());
        rest[8..16].copy_from_slice(&self.inode.to_le_bytes());
        rest[16..24].copy_from_slice(&self.number.to_le_bytes());
        rest[24..32].copy_from_slice(&self.value.to_le_bytes());
        rest[32..].copy_from_slice(&address_bytes(self.address));
        bytes
    }

    /// Parses the bytes of [`encode`](Self::encode). `None`: the call is unknown.
    pub fn decode(bytes: &[u8; ASK]) -> Option<Ask> {
        let number = u32::from_le_bytes(part(bytes, SECRET));
        Some(Ask {
            secret: part(bytes, 0),
            call: Call::ALL.into_iter().find(|call| *call as u32 == number)?,
            inode: u64::from_le_bytes(part(bytes, SECRET + 8)),
            number: i64::from_le_bytes(part(bytes, SECRET + 16)),
            value: i64::from_le_bytes(part(bytes, SECRET + 24)),
            address: address(part(bytes, SECRET + 32)),
        })
    }
}

/// `N` bytes from `at` on, with zeros beyond the end.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The bytes of an address: 4 or 6 for its family, a zero, the port, the address, and zeros.
pub fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[4..20].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// Parses the bytes of [`address_bytes`].
pub fn address(bytes: [u8; ADDRESS]) -> SocketAddr {
    let ip = match bytes[0] {
        6 => IpAddr::V6(Ipv6Addr::from(part::<16>(&bytes, 4))),
        _ => IpAddr::V4(Ipv4Addr::from(part::<4>(&bytes, 4))),
    };
    SocketAddr::new(ip, u16::from_be_bytes(part(&bytes, 2)))
}

/// The value of [`VARIABLE`] for a host with this abstract address (without the leading zero byte).
pub fn variable(name: &str, secret: [u8; SECRET]) -> String {
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}:{secret}")
}

/// The name and secret in a value of [`variable`].
pub fn read_variable(value: &[u8]) -> Option<(&[u8], [u8; SECRET])> {
    let colon = value.iter().rposition(|byte| *byte == b':')?;
    let (name, digits) = (value.get(..colon)?, value.get(colon + 1..)?);
    let mut secret = [0; SECRET];
    if name.is_empty() || name.len() > 100 || digits.len() != 2 * SECRET {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| (*pair.get(at)? as char).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some((name, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let addresses = ["10.0.0.7:4711", "[fd00::7]:4711", "[::ffff:10.0.0.7]:4711"].map(|text| text.parse().unwrap());
        for (call, address) in Call::ALL.into_iter().zip(addresses.into_iter().cycle()) {
            let ask = Ask { secret: [7; SECRET], call, inode: 1 << 40, address, number: -5, value: i64::MIN };
            assert_eq!(Ask::decode(&ask.encode()), Some(ask));
            let answer = Answer { errno: 111, number: 9, address };
            assert_eq!(Answer::decode(&answer.encode()), answer);
        }
        let mut none = [0; ASK];
        assert_eq!(Ask::decode(&none), None);
        none[SECRET] = 14;
        assert_eq!(Ask::decode(&none), None);
        let secret = std::array::from_fn(|at| at as u8 * 16 + 3);
        let text = variable("streamline-12", secret);
        assert_eq!(read_variable(text.as_bytes()), Some((&b"streamline-12"[..], secret)));
        for wrong in ["", ":", "a:", "a:zz", &text[1..text.len() - 1], &text.replace('3', "g")] {
            assert_eq!(read_variable(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
