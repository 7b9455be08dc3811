//! TLS hellos out of the first packets of QUIC, as records: the host that a client asks for.
//!
//! `protocols::quic` reads packets and decrypts them. This file collects a flow's hello until it is complete,
//! and makes the record. Later packets use keys that only the peers have.

use crate::parts::class_table::ClassTable;
use crate::parts::eve::{NAME, begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::{QUIC_BUFFERED_BYTES, QUIC_FLOWS, QUIC_PIECES};
use filter::prelude::*;
use filter::record::list_push;
use protocols::carry::Carried;
use protocols::fingerprint::{self, Transport, append_ja4, append_md5};
use protocols::quic::keys::{Keys, Side};
use protocols::quic::{Crypto, Initial, VERSION_2, Version};
use protocols::tls::{self, ClientHello, HELLO_LIMIT};
use std::collections::VecDeque;
use std::io::Write;

static SCHEMA: Schema = Schema::new(
    "quic",
    &eve_fields![
        Field::new("quic.version", FieldType::Text),
        Field::new("quic.sni", FieldType::Text),
        Field::new("quic.client_alpns", FieldType::Rows(&NAME)),
        Field::new("quic.ja3.hash", FieldType::Text),
        Field::new("quic.ja3.string", FieldType::Text),
        Field::new("quic.ja4", FieldType::Text),
    ],
);

/// What `quic` is.
pub static KIND: Kind = Kind::new("quic", "reads the hellos of QUIC clients and gives a record of each", make)
    .help(
        "Finds QUIC in UDP on any port, by its Initial packets, which everybody can decrypt who sees them, and gives a record \
         of a client's hello: `quic.version` (1, 2 or draft-29), `quic.sni`, the host it asks for, `quic.client_alpns`, and \
         the fingerprints `quic.ja3` and `quic.ja4`. The hello may be spread over packets that come in any order, up to 64 \
         pieces of it. What servers say is not read, nor is what comes behind the hello.",
    )
    .takes(&[Type::Message])
    .rejects()
    .gives_records(&SCHEMA)
    .mode(Mode::Session(SessionKey::Class))
    .wants(&[(Type::Frame, "udp"), (Type::Packet, "udp")])
    .parses_payload()
    .examples(&[Example { request: "pcap quic.pcap | quic", output: HELLO }]);

const HELLO: &str = r#"{"timestamp":"2023-09-27T11:22:34.370843000Z","flow_id":778870160166460,"event_type":"quic","src_ip":"127.0.0.1","src_port":64629,"dest_ip":"127.0.0.1","dest_port":443,"proto":"UDP","quic":{"version":"2","client_alpns":["h3"],"ja3":{"hash":"ea0aece5703cb982b232a0684fc35b16","string":"771,4865-4866-4867,5-10-11-13-65281-23-16-18-43-51-57,29-23-24-25,0"},"ja4":"q13i0311h3_55b375c5d22e_c183556c78e2"}}
"#;

const _: () = assert!(QUIC_PIECES == 64, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let quic = Quic {
        row: RowWriter::new(&SCHEMA),
        name: RowWriter::new(&NAME),
        list: Vec::new(),
        text: Vec::new(),
        frames: Vec::new(),
        carried: Carried::new(QUIC_BUFFERED_BYTES),
        flows: ClassTable::default(),
        order: VecDeque::new(),
    };
    Ok(Instance::session(SessionKey::Class, quic))
}

struct Quic {
    row: RowWriter,
    name: RowWriter,
    list: Vec<u8>,
    text: Vec<u8>,
    /// The frames of a decrypted packet.
    frames: Vec<u8>,
    /// Copied parts of hellos of all flows.
    carried: Carried,
    /// Flows by the direction of their client. The engine's sessions end with each datagram.
    flows: ClassTable<Flow>,
    /// Their classes, oldest first.
    order: VecDeque<Class>,
}

/// The state of one direction of a flow.
struct Flow {
    /// Which flow of this class it is.
    epoch: u32,
    state: State,
}

enum State {
    Client(Box<Client>),
    /// The hello was found, or will not come.
    Done,
}

/// A client whose hello is incomplete.
struct Client {
    keys: Keys,
    version: Version,
    /// The beginning of the hello.
    hello: Vec<u8>,
    /// Later pieces behind missing bytes, with their offsets.
    pieces: Vec<(usize, Vec<u8>)>,
}

impl SessionFilter for Quic {
    type State = ();

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) {}

    fn run(&mut self, _session: &mut (), batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (place, block) in batch.iter() {
            outlet.place = place;
            if !self.datagram(block, &mut outlet) {
                outlet.reject_block();
            }
        }
        Ok(Status::Done)
    }

    fn close(&mut self, _session: (), _: Class, _: Closed, _cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        Ok(())
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        while let Some(class) = self.order.pop_front() {
            self.forget(class, &mut outlet);
        }
        Ok(Status::Done)
    }
}

impl Quic {
    /// Reads a datagram; returns whether it was part of a hello.
    fn datagram(&mut self, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let mut rest = outlet.bytes(block);
        let mut is_part = false;
        let epoch = outlet.epoch(block.class);
        while let Some((initial, end)) = Initial::parse(rest) {
            rest = &rest[end..];
            if self.flows.get_mut(block.class).is_some_and(|flow| flow.epoch != epoch) {
                self.forget(block.class, outlet);
            }
            let known = self.flows.get_mut(block.class).map(|flow| std::mem::replace(&mut flow.state, State::Done));
            let client = match known {
                Some(State::Done) => break,
                Some(State::Client(client)) => Some(client),
                None => None,
            };
            let is_known = client.is_some();
            // A packet that cannot be decrypted is a server's, or damaged.
            let (client, is_decrypted) = self.decrypted(client, &initial);
            let Some(mut client) = client else { continue };
            is_part |= is_decrypted;
            let is_over = is_decrypted && (!self.gather(&mut client, outlet) || self.give(&client, block, outlet));
            let state = if is_over {
                self.clear(&mut client);
                State::Done
            } else {
                State::Client(client)
            };
            if !is_known {
                self.remember(block.class, outlet);
            }
            if let Some(flow) = self.flows.get_or_insert(block.class, || Flow { epoch, state: State::Done }) {
                flow.state = state;
            }
        }
        is_part
    }

    /// Makes room for another flow.
    fn remember(&mut self, class: Class, outlet: &mut Outlet<'_>) {
        self.order.push_back(class);
        if self.order.len() > QUIC_FLOWS
            && let Some(oldest) = self.order.pop_front()
        {
            self.forget(oldest, outlet);
        }
    }

    fn forget(&mut self, class: Class, outlet: &mut Outlet<'_>) {
        if let Some(Flow { state: State::Client(mut client), .. }) = self.flows.remove(class) {
            outlet.count("quic hellos whose rest is missing", 1);
            self.clear(&mut client);
        }
    }

    /// Decrypts a packet into `frames` with the keys of the flow or, after a Retry, with new ones; `false` if it
    /// cannot.
    fn decrypted(&mut self, client: Option<Box<Client>>, initial: &Initial<'_>) -> (Option<Box<Client>>, bool) {
        if client.as_ref().is_some_and(|client| client.keys.decrypt(initial, &mut self.frames)) {
            return (client, true);
        }
        let keys = Keys::of(initial.version, initial.target, Side::Client);
        let Some(keys) = keys.filter(|keys| keys.decrypt(initial, &mut self.frames)) else { return (client, false) };
        if let Some(mut before) = client {
            self.clear(&mut before);
        }
        let new = Client { keys, version: initial.version, hello: Vec::new(), pieces: Vec::new() };
        (Some(Box::new(new)), true)
    }

    /// Adds the pieces in `frames` to the hello; `false` if it becomes too large.
    fn gather(&mut self, client: &mut Client, outlet: &mut Outlet<'_>) -> bool {
        for (offset, bytes) in Crypto::new(&self.frames) {
            let end = offset.saturating_add(bytes.len() as u64);
            if end > HELLO_LIMIT as u64 || client.pieces.len() == QUIC_PIECES {
                outlet.count("quic hellos with too many pieces or too long", 1);
                return false;
            }
            let offset = offset as usize;
            let kept = match bytes.get(client.hello.len().saturating_sub(offset)..) {
                Some(new) if offset <= client.hello.len() => self.carried.keep(&mut client.hello, new),
                Some(_) => {
                    let mut piece = Vec::new();
                    let kept = self.carried.keep(&mut piece, bytes);
                    client.pieces.push((offset, piece));
                    kept
                }
                None => true,
            };
            if !kept {
                outlet.count("quic hellos given up for want of memory", 1);
                return false;
            }
        }
        // Earlier pieces that now fit. Each turn removes one.
        while let Some(place) = client.pieces.iter().position(|(offset, _)| *offset <= client.hello.len()) {
            let (offset, mut piece) = client.pieces.swap_remove(place);
            let new = piece.get(client.hello.len() - offset..).unwrap_or_default().to_vec();
            self.carried.clear(&mut piece);
            if !self.carried.keep(&mut client.hello, &new) {
                return false;
            }
        }
        true
    }

    /// Gives the record if the hello is complete; returns whether the flow is finished.
    fn give(&mut self, client: &Client, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let Some((&[kind, high, middle, low], body)) = client.hello.split_first_chunk() else { return false };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_client_hello = kind == 1 && length <= HELLO_LIMIT;
        if is_client_hello && body.len() < length {
            return false;
        }
        let hello = body.get(..length).filter(|_| is_client_hello).and_then(ClientHello::parse);
        match hello {
            Some(hello) => {
                begin_row(&mut self.row, block.time, block.class, outlet.facts(block.class));
                self.fill(&hello, client.version);
                outlet.record(&self.row, block.time, block.class);
            }
            None => outlet.count("malformed quic hellos", 1),
        }
        true
    }

    fn fill(&mut self, hello: &ClientHello<'_>, version: Version) {
        self.text.clear();
        // Writing to a Vec cannot fail.
        match version.number {
            1 => self.text.push(b'1'),
            VERSION_2 => self.text.push(b'2'),
            draft => write!(self.text, "draft-{}", draft & 0xff).unwrap_or_default(),
        }
        self.row.text("quic.version", &self.text);
        if let Some(name) = hello.server_name() {
            self.text.clear();
            tls::append_name(&mut self.text, name);
            self.row.text("quic.sni", &self.text);
        }
        self.list.clear();
        for protocol in hello.application_protocols() {
            self.text.clear();
            tls::append_name(&mut self.text, protocol);
            self.name.begin();
            list_push(&mut self.list, self.name.text("", &self.text).row());
        }
        if !self.list.is_empty() {
            self.row.rows("quic.client_alpns", &self.list);
        }
        self.list.clear();
        fingerprint::append_ja3(&mut self.list, hello);
        self.text.clear();
        append_md5(&mut self.text, &self.list);
        self.row.text("quic.ja3.hash", &self.text).text("quic.ja3.string", &self.list);
        if let Some(ja4) = fingerprint::ja4(hello, Transport::Quic) {
            self.text.clear();
            append_ja4(&mut self.text, &ja4);
            self.row.text("quic.ja4", &self.text);
        }
    }

    fn clear(&mut self, client: &mut Client) {
        self.carried.clear(&mut client.hello);
        client.pieces.drain(..).for_each(|(_, mut piece)| self.carried.clear(&mut piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{block, facts};
    use proptest::prelude::*;
    use protocols::quic::keys::encrypt;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    /// A hello that asks for a.example, with its message header.
    fn hello() -> Vec<u8> {
        let prefixed = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        let name = prefixed(&[&[0][..], &prefixed(b"a.example")].concat());
        let extensions = [[0, 0].to_vec(), prefixed(&name), [0, 16].to_vec(), prefixed(&prefixed(b"\x02h3"))].concat();
        let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &prefixed(&extensions)].concat();
        [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat()
    }

    fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
        [&[6, 0x40, offset as u8, 0x40, bytes.len() as u8][..], bytes].concat()
    }

    fn run(datagrams: &[Vec<u8>]) -> Outcome {
        let pieces = datagrams.iter().map(|bytes| block(0, Flags::FIRST.with(Flags::LAST), bytes, 0)).collect();
        let chain = Chain::pieces(Type::Message, None, pieces).streams(&[facts(4000, 17, 0)]);
        chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
    }

    fn check(datagrams: &[Vec<u8>], records: usize, rejected: u64) {
        let outcome = run(datagrams);
        let expected = json!({
            "version": "1", "sni": "a.example", "client_alpns": ["h3"],
            "ja3": {"hash": "33b746a27502e1c870d11cfc1893be87", "string": "771,4865,0-16,,"},
            "ja4": "q12d0102h3_0f2cb44170f4_000000000000",
        });
        let found: Vec<Value> =
            outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["quic"].take()).collect();
        assert_eq!(found, vec![expected; records]);
        assert_eq!(outcome.counters("quic").blocks_rejected, rejected);
    }

    const TARGET: &[u8] = b"12345678";

    #[test]
    fn hellos() {
        let hello = hello();
        let whole = encrypt(TARGET, &crypto(0, &hello));
        check(std::slice::from_ref(&whole), 1, 0);
        // In any order, twice, and over several packets of one datagram.
        let (front, back) = (crypto(0, &hello[..20]), crypto(20, &hello[20..]));
        let turned = [crypto(40, &hello[40..]), crypto(0, &hello[..9]), crypto(9, &hello[9..50])].concat();
        check(&[encrypt(TARGET, &turned)], 1, 0);
        check(&[encrypt(TARGET, &back), encrypt(TARGET, &back), encrypt(TARGET, &front)], 1, 0);
        check(&[[encrypt(TARGET, &back), encrypt(TARGET, &front)].concat()], 1, 0);
        // After a Retry the keys are different.
        check(&[encrypt(TARGET, &front), encrypt(b"abcdefgh", &crypto(0, &hello))], 1, 0);
        check(&[encrypt(TARGET, &front), b"anything".to_vec(), whole[..100].to_vec()], 0, 2);
        let mut damaged = whole;
        damaged[60] ^= 1;
        check(&[damaged], 0, 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let frames: Vec<u8> = (0..QUIC_PIECES + 1).flat_map(|at| crypto(60 + 2 * at, b"x")).collect();
        let outcome = run(&[encrypt(TARGET, &frames)]);
        assert_eq!(outcome.counters("quic").events.get("quic hellos with too many pieces or too long"), 1);
    }

    proptest! {
        #[test]
        fn any_frames(frames in proptest::collection::vec(any::<u8>(), 20..120), like: bool) {
            let frames = if like { [&crypto(0, &hello()[..30])[..], &frames].concat() } else { frames };
            prop_assert!(run(&[encrypt(TARGET, &frames)]).stdout.lines().count() <= 1);
        }
    }
}
