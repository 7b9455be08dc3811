//! Which side of a connection is the client, decided at the first packet that is seen.
//!
//! A SYN tells it. Where none was seen, the bytes may tell who sends them; else the server has a known port, or the lower
//! port, or did not come first. That is a guess: records and alerts agree on it, since all ask here.

use packet::Flow;
use packet::tcp::Flags;
use protocols::probe;

/// Ports of the TCP servers that hosts run most, sorted. Not in it: 20, from which FTP servers open connections.
#[rustfmt::skip]
const SERVERS: &[u16] = &[
    21, 22, 23, 25, 43, 53, 80, 88, 102, 110, 111, 119, 135, 139, 143, 179, 389, 443, 445, 465, 502, 514, 515, 548, 554,
    587, 631, 636, 853, 873, 989, 990, 993, 995, 1080, 1194, 1433, 1521, 1723, 1883, 2049, 2181, 2375, 2376, 2404, 3128,
    3268, 3269, 3306, 3389, 4369, 4840, 5060, 5061, 5222, 5269, 5355, 5432, 5671, 5672, 5900, 5985, 5986, 6379, 6443,
    6667, 8000, 8008, 8080, 8081, 8443, 8883, 8888, 9000, 9092, 9200, 9418, 11211, 20000, 25565, 27017, 44818, 50051,
];

const FTP_DATA: u16 = 20;

/// The flow of a TCP connection in the direction of its client. `first`: the flow of the first packet that was seen,
/// from its sender; `flags` and `payload` are those of that packet. A SYN needs no payload.
pub(crate) fn of_client<'a>(first: Flow, flags: Flags, payload: impl FnOnce() -> &'a [u8]) -> Flow {
    let is_from_server = if flags.syn() {
        flags.ack()
    } else {
        let by_port = || rank(first.source_port) < rank(first.target_port);
        probe::sender(payload()).map_or_else(by_port, |side| side == 1)
    };
    if is_from_server { first.reversed() } else { first }
}

/// The lower one is the server's.
fn rank(port: u16) -> (u8, u16) {
    let rank = match port {
        FTP_DATA => 2,
        port if SERVERS.binary_search(&port).is_ok() => 0,
        _ => 1,
    };
    (rank, port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::protocol;
    use std::net::{IpAddr, Ipv4Addr};

    const ACK: Flags = Flags(0x10);

    fn turns(source_port: u16, target_port: u16, flags: Flags) -> bool {
        let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let first = Flow { source: address(1), target: address(2), source_port, target_port, protocol: protocol::TCP };
        of_client(first, flags, || b"") != first
    }

    #[test]
    fn a_connection_without_a_syn_has_the_known_or_lower_port_as_server() {
        assert!(SERVERS.is_sorted());
        let check = |source: u16, target: u16, expected: bool| {
            assert_eq!(turns(source, target, ACK), expected, "{source} > {target}");
        };
        check(80, 40_000, true);
        check(40_000, 80, false);
        // A known port before a lower one, from which a privileged client connects.
        check(2049, 1000, true);
        check(1000, 2049, false);
        // Neither is known, or both are.
        check(7000, 40_000, true);
        check(40_000, 7000, false);
        check(80, 8080, true);
        // FTP's data connections are opened from port 20.
        check(20, 40_000, false);
        check(40_000, 20, true);
        // Equal: the sender of the first packet.
        check(7000, 7000, false);
        check(179, 179, false);
    }

    #[test]
    fn bytes_tell_more_than_ports() {
        let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let first = Flow {
            source: address(1),
            target: address(2),
            source_port: 80,
            target_port: 40_000,
            protocol: protocol::TCP,
        };
        for (payload, turns) in [(&b""[..], true), (b"GET / HTTP/1.1\r\n", false), (b"HTTP/1.1 200 OK\r\n", true)] {
            assert_eq!(of_client(first, ACK, || payload) != first, turns, "{}", payload.escape_ascii());
        }
    }

    #[test]
    fn a_syn_tells_more_than_ports() {
        assert!(!turns(80, 40_000, Flags::SYN));
        assert!(turns(40_000, 80, Flags(Flags::SYN.0 | Flags::ACK.0)));
    }
}
