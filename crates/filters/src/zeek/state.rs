//! `conn_state`: Zeek's name for the state of a connection (its `determine_conn_state`), from the history of a flow.

use super::values::Values;

/// The state of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Inactive,
    /// Sent a SYN that was not answered, or a SYN-ACK without a SYN before it.
    Opening,
    /// Took part in the handshake.
    Established,
    Closed,
    Reset,
    /// Sent other segments only.
    Partial,
}

pub(super) fn connection_state(values: Values<'_>) -> &'static str {
    let of = |name: &str| values.number(name).unwrap_or(0);
    let packets = (of("flow.pkts_toserver"), of("flow.pkts_toclient"));
    let payload = of("flow.payload_toserver") + of("flow.payload_toclient");
    match values.text("proto") {
        Some(b"TCP") => state_of_tcp(values.text("flow.history").unwrap_or_default(), packets, payload),
        Some(b"ICMP" | b"IPv6-ICMP") => "OTH",
        _ => match packets {
            (1.., 1..) => "SF",
            (1.., 0) => "S0",
            (0, 1..) => "SHR",
            (0, 0) => "OTH",
        },
    }
}

fn state_of_tcp(history: &[u8], packets: (u64, u64), payload: u64) -> &'static str {
    use End::{Closed, Established, Inactive, Opening, Partial, Reset};
    // A reset behind both FINs ends what has ended.
    let place = |letter: u8| history.iter().position(|known| *known == letter);
    let over = place(b'F').zip(place(b'f')).map_or(history.len(), |(client, server)| client.max(server) + 1);
    let history = &history[..over];
    let has = |letter: u8| history.contains(&letter);
    let is_answered = has(b'S') && has(b'h');
    let end = |syn: u8, fin: u8, reset: u8, packets: u64| match packets {
        0 => Inactive,
        _ if has(reset) => Reset,
        _ if has(fin) => Closed,
        _ if is_answered => Established,
        _ if has(syn) => Opening,
        _ => Partial,
    };
    let (client, server) = (end(b'S', b'F', b'R', packets.0), end(b'h', b'f', b'r', packets.1));
    let was_rejected = !is_answered && has(b'S') && client == Opening || client == Reset && payload == 0;
    match (client, server) {
        (_, Reset) if was_rejected => "REJ",
        (Inactive, Reset) => "RSTRH",
        (_, Reset) => "RSTR",
        (Reset, Inactive) => "RSTOS0",
        (Reset, _) => "RSTO",
        (Closed, Closed) => "SF",
        (Closed, Inactive) => "SH",
        (Closed, _) => "S2",
        (Inactive, Closed) => "SHR",
        (_, Closed) => "S3",
        (Opening, Inactive) => "S0",
        (Established, Established) => "S1",
        _ => "OTH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        for (history, packets, payload, expected) in [
            ("S", (1, 0), 0, "S0"),
            ("Sr", (1, 1), 0, "REJ"),
            ("ShADd", (3, 2), 9, "S1"),
            ("ShADadFf", (5, 5), 9, "SF"),
            ("ShADadF", (5, 4), 9, "S2"),
            ("ShADadf", (5, 4), 9, "S3"),
            ("ShADadFfR", (6, 5), 9, "SF"),
            ("ShADadfFr", (5, 6), 9, "SF"),
            ("ShADadFr", (5, 5), 9, "RSTR"),
            ("ShADadfR", (5, 5), 9, "RSTO"),
            ("ShADadFRf", (6, 5), 9, "RSTO"),
            ("ShADadR", (5, 4), 9, "RSTO"),
            ("ShADadr", (5, 4), 9, "RSTR"),
            ("SR", (2, 0), 0, "RSTOS0"),
            ("^hr", (0, 2), 0, "RSTRH"),
            ("SF", (2, 0), 0, "SH"),
            ("^hf", (0, 2), 0, "SHR"),
            ("Dd", (2, 2), 9, "OTH"),
            ("^h", (0, 1), 0, "OTH"),
        ] {
            assert_eq!(state_of_tcp(history.as_bytes(), packets, payload), expected, "{history}");
        }
    }
}
