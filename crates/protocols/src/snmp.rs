//! Messages of SNMP, versions 1 (RFC 1157), 2c (RFC 3416) and 3 (RFC 3412). Those that are encrypted tell their user.

use crate::app::App;
use crate::carry::Carried;
use crate::conversation::{self, About, Ear, Fed, Id, Kind, Over, Protocol, Run, Side, Talk, Words};
use crate::der::{Der, append_object, tag};
use crate::fit::Fit;
use packet::Flow;

/// Most variables of a message that are told.
const VARIABLES: usize = 64;

/// The names of messages, by their numbers.
pub const TYPES: Words = &[
    ("get_request", 0),
    ("get_next_request", 1),
    ("response", 2),
    ("set_request", 3),
    ("trap_v1", 4),
    ("get_bulk_request", 5),
    ("inform_request", 6),
    ("trap_v2", 7),
    ("report", 8),
];

/// The type of a trap of version 1.
const TRAP_V1: u8 = 4;

/// The names of traps of version 1, by their numbers.
pub const TRAPS: Words = &[
    ("cold_start", 0),
    ("warm_start", 1),
    ("link_down", 2),
    ("link_up", 3),
    ("authentication_failure", 4),
    ("egp_neighbor_loss", 5),
    ("enterprise_specific", 6),
];

/// A fact about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// 1, 2 (2c) or 3.
    Version,
    /// The password of versions 1 and 2c.
    Community,
    /// The user of version 3.
    User,
    /// The type.
    Type,
    /// The reason of a trap of version 1.
    Trap,
    /// The names of variables.
    Variable,
}

impl conversation::Fact for Fact {
    const ALL: &'static [About] = &[
        About::both("snmp.version", "snmp.version", Kind::Number),
        About::both("snmp.community", "snmp.community", Kind::Text),
        About::both("snmp.usm", "snmp.usm", Kind::Text),
        About::both("snmp.pdu_type", "snmp.pdu_type", Kind::Word(TYPES)),
        About::both("snmp.trap_type", "snmp.trap_type", Kind::Word(TRAPS)),
        About::both("snmp.vars", "snmp.vars", Kind::Item),
    ];

    fn number(self) -> usize {
        self as usize
    }
}

/// A flow of datagrams. Each message is an exchange.
#[derive(Debug, Default)]
pub struct Conversation {
    next: u64,
}

impl Talk for Conversation {
    type Fact = Fact;

    const PROTOCOL: Protocol = Protocol {
        probe: Some(|first| Fit::of((first.has_port(161) || first.has_port(162)) && is_message(first.bytes))),
        summary: &["snmp.version", "snmp.community", "snmp.pdu_type", "snmp.vars"],
        does: "reads SNMP messages and gives a record of each",
        help: "Gives a record of each message from or to port 161 or 162: `snmp.version` (1, 2 or 3), `snmp.community` or, in \
               version 3, the user `snmp.usm`; `snmp.pdu_type` such as get_request, `snmp.trap_type` of traps of version 1, and \
               `snmp.vars`, the names of up to 64 variables. Of an encrypted message there is the user alone.",
        example: ("pcap talks.pcap | udp | snmp", EXAMPLE),
        is_of_sender: true,
        ..Protocol::of(App::Snmp, Over::Datagrams, <Fact as conversation::Fact>::ALL)
    };

    fn new(_flow: &Flow) -> Conversation {
        Conversation::default()
    }

    fn feed(&mut self, side: Side, run: Run<'_>, _kept: &Carried, ear: &mut dyn Ear<Fact>) -> Fed {
        let mut message = Der(Der(run.bytes).expect(tag::SEQUENCE).unwrap_or_default());
        let Some(&[version]) = message.expect(tag::INTEGER) else { return Fed::NotMine };
        conversation::message(&mut self.next, side, ear, |id, ear| {
            ear.number(id, Fact::Version, if version == 3 { 3 } else { u64::from(version) + 1 });
            let unit = if version == 3 {
                // Global data, then the security parameters, a DER string: engine, boots, time, user.
                let security = message.nth(1).and_then(|(_, security)| Der(security).next());
                if let Some((_, user)) = security.and_then(|(_, parameters)| Der(parameters).nth(3)) {
                    ear.fact(id, Fact::User, user);
                }
                message.expect(tag::SEQUENCE).and_then(|scoped| Der(scoped).nth(2))
            } else {
                if let Some((_, community)) = message.next() {
                    ear.fact(id, Fact::Community, community);
                }
                message.next()
            };
            if let Some((tag, unit)) = unit {
                tell(tag & 0x1f, unit, version, id, ear);
            }
        });
        Fed::Mine
    }
}

fn tell(kind: u8, unit: &[u8], version: u8, id: Id, ear: &mut dyn Ear<Fact>) {
    ear.number(id, Fact::Type, kind.into());
    let mut unit = Der(unit);
    // A trap of version 1: enterprise, agent, trap, its own number, time. Others: number, error, and where.
    let before = if kind == TRAP_V1 { 5 } else { 3 };
    if let Some((_, &[trap])) = unit.nth(2).filter(|_| kind == TRAP_V1 && version != 3) {
        ear.number(id, Fact::Trap, trap.into());
    }
    let variables = unit.nth(before - 3).filter(|(tag, _)| *tag == tag::SEQUENCE);
    for (at, (_, variable)) in variables.into_iter().flat_map(|(_, list)| Der(list)).enumerate() {
        if at == VARIABLES {
            return ear.lost(id, "snmp variables not read");
        }
        if let Some(object) = Der(variable).expect(tag::OBJECT) {
            let mut name = Vec::new();
            append_object(&mut name, object);
            ear.fact(id, Fact::Variable, &name);
        }
    }
}

/// Whether it is a message: a sequence that begins with a version.
fn is_message(payload: &[u8]) -> bool {
    let version = Der(payload).expect(tag::SEQUENCE).and_then(|inner| Der(inner).expect(tag::INTEGER));
    matches!(version, Some([0 | 1 | 3]))
}

const EXAMPLE: &str = r#"{"timestamp":"2026-05-28T20:26:40.300000000Z","flow_id":7893355632730887,"event_type":"snmp","src_ip":"192.0.2.1","src_port":40101,"dest_ip":"192.0.2.2","dest_port":161,"proto":"UDP","snmp":{"version":2,"community":"public","pdu_type":"get_request","vars":["1.3.6.1.2.1.1.5.0"]}}
{"timestamp":"2026-05-28T20:26:40.310000000Z","flow_id":7893355632730887,"event_type":"snmp","src_ip":"192.0.2.2","src_port":161,"dest_ip":"192.0.2.1","dest_port":40101,"proto":"UDP","snmp":{"version":2,"community":"public","pdu_type":"response","vars":["1.3.6.1.2.1.1.5.0"]}}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::heard::check_datagrams;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        [&[tag, contents.len() as u8], contents].concat()
    }

    #[test]
    fn messages() {
        let check = |parts: &[Vec<u8>], expected: &[&str]| {
            let message = der(tag::SEQUENCE, &parts.concat());
            check_datagrams::<Conversation>(&[(Side::Client, &message)], &[expected, &["Complete"]].concat());
        };
        let number = |value: u8| der(tag::INTEGER, &[value]);
        let variable = der(tag::SEQUENCE, &[der(tag::OBJECT, &[0x2b, 6, 1]), der(5, b"")].concat());
        let list = || der(tag::SEQUENCE, &variable);
        let get = der(0xa0, &[number(7), number(0), number(0), list()].concat());
        let public = || der(tag::OCTETS, b"public");
        check(&[number(1), public(), get], &["Version=2", "Community=public", "Type=0", "Variable=1.3.6.1"]);
        let trap = [der(tag::OBJECT, &[0x2b]), der(0x40, &[1; 4]), number(3), number(0), der(0x43, &[1]), list()];
        let said = ["Version=1", "Community=public", "Type=4", "Trap=3", "Variable=1.3.6.1"];
        check(&[number(0), public(), der(0xa4, &trap.concat())], &said);
        let security = [der(tag::OCTETS, b"engine"), number(1), number(2), der(tag::OCTETS, b"bob")].concat();
        let parts = [number(3), der(tag::SEQUENCE, b""), der(tag::OCTETS, &der(tag::SEQUENCE, &security))];
        check(&[&parts[..], &[der(tag::OCTETS, b"encrypted")]].concat(), &["Version=3", "User=bob"]);
        let report = der(tag::SEQUENCE, &[der(tag::OCTETS, b""), der(tag::OCTETS, b""), der(0xa8, b"")].concat());
        check(&[&parts[..], &[report]].concat(), &["Version=3", "User=bob", "Type=8"]);
    }
}
