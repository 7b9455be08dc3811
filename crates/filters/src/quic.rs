//! QUIC's hellos as records: the host that a client asks for.
//!
//! `protocols::quic::conversation` finds and reads the hellos. This file keeps the flows, and makes the records.

use crate::parts::class_table::ClassTable;
use crate::parts::fact_fields::FactFields;
use crate::parts::heard::{Facts, Heads};
use crate::parts::outlet::Outlet;
use base::limits::{QUIC_BUFFERED_BYTES, QUIC_FLOWS, QUIC_PIECES};
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Fact as _, Fed, Side};
use protocols::quic;
use protocols::quic::conversation::{CONNECTIONS, Conversation, Fact};
use std::collections::VecDeque;

static SCHEMA: Schema = const { &FactFields::record(Fact::ALL) }.schema("quic").summary(&[
    "quic.version",
    "quic.sni",
    "quic.client_alpns",
    "quic.ja4",
]);

/// What `quic` is.
pub static KIND: Kind = Kind::new("quic", "reads the hellos of QUIC clients and gives a record of each", make)
    .help(
        "Finds QUIC in UDP on any port, by its Initial packets, which any observer can decrypt, and gives a record \
         of each client's hello: `quic.version` (1, 2, draft-29 or Q046), `quic.sni`, the host it asks for, \
         `quic.client_alpns`, and the fingerprints `quic.ja3` and `quic.ja4`. The hello may be spread over packets that come \
         in any order, up to 64 pieces of it, and a pair of ports may have four connections at a time. A hello of Google's \
         QUIC (Q044 to Q046) has `quic.ua`, the client's program, and the fingerprint `quic.cyu` instead. What servers say \
         is not read, nor is what comes behind the hello.",
    )
    .takes(&[Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Connection))
    .wants(&[(Type::Frame, "udp"), (Type::Packet, "udp")])
    .parses_payload()
    .examples(&[Example { request: "pcap quic.pcap | quic", output: HELLO }]);

const HELLO: &str = r#"{"timestamp":"2023-09-27T11:22:34.370843000Z","flow_id":778870160166460,"event_type":"quic","src_ip":"127.0.0.1","src_port":64629,"dest_ip":"127.0.0.1","dest_port":443,"proto":"UDP","quic":{"version":"2","client_alpns":["h3"],"ja3":{"hash":"ea0aece5703cb982b232a0684fc35b16","string":"771,4865-4866-4867,5-10-11-13-65281-23-16-18-43-51-57,29-23-24-25,0"},"ja4":"q13i0311h3_55b375c5d22e_c183556c78e2"}}
"#;

const _: () = assert!(QUIC_PIECES == 64 && CONNECTIONS == 4, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let quic = Quic {
        row: RowWriter::new(&SCHEMA),
        facts: Facts::default(),
        carried: Carried::new(QUIC_BUFFERED_BYTES),
        flows: ClassTable::default(),
        order: VecDeque::new(),
    };
    Ok(Instance::session(SessionKey::Connection, quic))
}

struct Quic {
    row: RowWriter,
    /// What the current packet says.
    facts: Facts<Fact>,
    /// Copied parts of hellos of all flows.
    carried: Carried,
    /// Flows by their first direction. The engine's sessions end with each datagram.
    flows: ClassTable<Flow>,
    /// Their classes, oldest first.
    order: VecDeque<Class>,
}

struct Flow {
    /// Which flow of this class it is.
    epoch: u32,
    conversation: Conversation,
}

impl SessionFilter for Quic {
    type State = ();

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) {}

    fn run(&mut self, _session: &mut (), batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        Outlet::each(batch, cx, |block, outlet| self.datagram(block, outlet) != Fed::NotMine)
    }

    fn close(&mut self, _session: (), _: Class, _: Closed, _cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        Ok(())
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let (now, mut outlet) = (cx.now, Outlet::new(cx));
        while !self.order.is_empty() {
            self.forget_oldest(now, &mut outlet);
        }
        Ok(Status::Done)
    }
}

impl Quic {
    fn datagram(&mut self, block: &Descriptor, outlet: &mut Outlet<'_>) -> Fed {
        let (class, time, bytes) = (block.class, block.time, outlet.bytes(block));
        let flow_class = Class::of_stream(class.connection(), 0);
        if !quic::begins(bytes) || !ClassTable::<Flow>::is_stream(class) {
            return Fed::NotMine;
        }
        if self.flows.get_mut(flow_class).is_none() {
            if self.order.len() == QUIC_FLOWS {
                self.forget_oldest(time, outlet);
            }
            self.order.push_back(flow_class);
        }
        let epoch = outlet.epoch(class);
        let Quic { row, facts, carried, flows, .. } = self;
        let new = || Flow { epoch, conversation: Conversation::default() };
        let Some(flow) = flows.get_or_insert(flow_class, new) else { return Fed::NotMine };
        let mut ear = Heads { row, facts, carried, outlet, class, time };
        if flow.epoch != epoch {
            std::mem::replace(flow, new()).conversation.end(carried, &mut ear);
        }
        flow.conversation.feed(Side::to_server(class.direction() == 0), bytes, carried, &mut ear)
    }

    fn forget_oldest(&mut self, time: u64, outlet: &mut Outlet<'_>) {
        let Quic { row, facts, carried, flows, order } = self;
        if let Some(class) = order.pop_front()
            && let Some(mut flow) = flows.remove(class)
        {
            flow.conversation.end(carried, &mut Heads { row, facts, carried, outlet, class, time });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{block, facts};
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    /// A client's packet of Google's QUIC.
    fn googles() -> Vec<u8> {
        let hello = [&b"CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x07\0\0\0"[..], b"a.orgme"].concat();
        let frame = [&[0xa0, 1, 0, hello.len() as u8][..], &hello].concat();
        [&[0xc3][..], b"Q046\x50", &[7; 8], &[0, 0, 0, 1], &[9; 12], &frame].concat()
    }

    fn run(datagrams: &[(u32, &[u8])]) -> Outcome {
        let whole = Flags::FIRST.with(Flags::LAST);
        let pieces = datagrams.iter().map(|(class, bytes)| block(*class, whole, bytes, 0)).collect();
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&[facts(4000, 17, 0)]);
        chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
    }

    fn records(outcome: &Outcome) -> Vec<Value> {
        outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["quic"].take()).collect()
    }

    #[test]
    fn a_hello_of_google() {
        let expected = json!({
            "version": "Q046", "sni": "a.org", "ua": "me",
            "cyu": {"hash": "3ee85c355061ebe189ec4ca49623e324", "string": "46,SNI-UAID"},
        });
        let outcome = run(&[(0, &googles()), (0, b"anything"), (1, &googles()[..40]), (1, &googles())]);
        assert_eq!(
            (records(&outcome), outcome.counters("quic").blocks_rejected),
            (vec![expected.clone(), expected], 2)
        );
    }

    #[test]
    fn what_no_key_decrypts_is_counted() {
        let initial = [&[0xc3, 0, 0, 0, 1, 1, 7, 0, 0, 30][..], &[9; 30]].concat();
        let outcome = run(&[(0, &initial)]);
        assert_eq!(outcome.counters("quic").events.get("quic packets without a known key"), 1);
        assert_eq!(outcome.counters("quic").blocks_rejected, 1);
    }
}
