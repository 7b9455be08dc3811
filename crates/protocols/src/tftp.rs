//! Requests of TFTP (RFC 1350). The transfer itself uses another port.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, Kind, Over, Protocol, Run, Side, Talk};
use crate::fit::Fit;
use packet::Flow;

/// A fact about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// `read` or `write`.
    Packet,
    /// The name of the file.
    File,
    /// `netascii`, `octet` or `mail`.
    Mode,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("tftp.packet", "tftp.packet", Kind::Text),
        About::both("tftp.file", "tftp.file", Kind::Name),
        About::both("tftp.mode", "tftp.mode", Kind::Name),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A flow of datagrams. Each request is an exchange.
#[derive(Debug, Default)]
pub struct Conversation {
    next: u64,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| Fit::of(first.flow.target_port == 69 && is_request(first.bytes))),
        summary: &["tftp.packet", "tftp.mode", "tftp.file"],
        does: "reads TFTP requests and gives a record of each",
        help: "Gives a record of each request to port 69: `tftp.packet` is read or write, `tftp.file` the file and `tftp.mode` the \
               mode. The file itself comes from another port, and is not read.",
        example: ("pcap talks.pcap | udp | tftp", EXAMPLE),
        is_of_sender: true,
        ..Protocol::of(App::Tftp, Over::Datagrams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, _kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        if !is_request(run.bytes) {
            return Fed::NotMine;
        }
        conversation::message(&mut self.next, side, ear, |id, ear| {
            ear.fact(id, Fact::Packet, if run.bytes[1] == 1 { b"read" } else { b"write" });
            for (fact, word) in [Fact::File, Fact::Mode].into_iter().zip(run.bytes[2..].split(|byte| *byte == 0)) {
                ear.fact(id, fact, word);
            }
        });
        Fed::Mine
    }
}

/// Whether it is a request: read or write, a name, a mode.
fn is_request(payload: &[u8]) -> bool {
    matches!(payload, [0, 1 | 2, rest @ ..] if rest.iter().filter(|byte| **byte == 0).count() >= 2)
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.290000000Z","flow_id":7526527878683939,"event_type":"tftp","src_ip":"192.0.2.1","src_port":40100,"dest_ip":"192.0.2.2","dest_port":69,"proto":"UDP","tftp":{"packet":"read","file":"boot.img","mode":"octet"}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_datagrams;

    #[test]
    fn requests() {
        let check =
            |bytes: &[u8], expected: &[&str]| check_datagrams::<Conversation>(&[(Side::Client, bytes)], expected);
        check(b"\0\x01a\0octet\0", &["Packet=read", "File=a", "Mode=octet", "Complete"]);
        check(b"\0\x02a\0octet\0blksize\x008\0", &["Packet=write", "File=a", "Mode=octet", "Complete"]);
        check(b"\0\x01a\0octet", &[]);
        check(b"\0\x03\0\x01\0\0", &[]);
    }
}
