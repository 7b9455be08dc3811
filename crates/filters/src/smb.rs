//! Commands of SMB, and the files that it carries.
//!
//! The conversation is in `protocols::smb`. This file finds the client's side, and gives what it hears: a command is a
//! message without a body. Files are open side by side, so each gets a stream number of its own.

use crate::parts::eve::begin_row;
use crate::parts::fact_fields::FactFields;
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::{TALK_ITEMS, TEXT_BUFFERED_BYTES};
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Body, Ear, Fact as _, Fed, How, Id, Run, Side};
use protocols::dcerpc;
use protocols::smb::{Conversation, Fact, Header, Hears, PREFIX_BYTES};
use std::collections::BTreeMap;

static SCHEMA: Schema = const {
    let fields = FactFields::record(Fact::ALL).and(&[Field::new("smb.access", FieldType::Text)]);
    &fields.facts(dcerpc::Fact::ALL)
}
.schema("smb")
.summary(&["smb.command", "smb.status", "smb.share", "smb.filename"]);

/// What `smb` is.
pub static KIND: Kind = Kind::new("smb", "reads SMB: a record of each command, and the files", make)
    .help(
        "Finds SMB 1, 2 and 3 on any port, by its first message, and gives a record of each command when its response has come, with Suricata's \
         names: `smb.command`, `smb.status` and `smb.status_code`, `smb.session_id`, `smb.tree_id`, `smb.dialect`, `smb.filename` to \
         open, and `smb.share` or `smb.named_pipe`. A file that is written or read is a message in place of the commands that do so: a \
         record with `smb.filename` and `smb.access` (read or write), and then its bytes, not copied, for each direction. `smb | files` writes them; a record without \
         a body makes no file.\n\n\
         A file ends where it is closed. Bytes that were not asked for or not captured are missing in it. Pieces in another order than \
         that of the file leave such a gap, too, and are counted when they come. Encrypted and compressed messages are not read. \
         At most 1024 files of a connection are open, and 8192 commands wait for a response.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .class(ClassUse::Sets("stream * 2 + direction"))
    .mode(Mode::Session(SessionKey::Connection))
    .touches(Parts::DATA.with(Parts::METADATA).with(Parts::STREAMS), Parts::STREAMS)
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap smb.pcap | smb | json", output: COMMANDS }]);

const COMMANDS: &str = r#"{"timestamp":"2004-01-06T12:38:58.145444000Z","flow_id":3718129569732356,"event_type":"smb","src_ip":"205.227.227.226","src_port":49467,"dest_ip":"205.227.227.243","dest_port":445,"proto":"TCP","smb":{"command":"SMB1_COMMAND_CLOSE","status":"STATUS_SUCCESS","status_code":"0x0","session_id":2048,"tree_id":2048,"length":0,"state":"complete"}}
{"timestamp":"2004-01-06T12:38:58.147701000Z","flow_id":3718129569732356,"event_type":"smb","src_ip":"205.227.227.226","src_port":49467,"dest_ip":"205.227.227.243","dest_port":445,"proto":"TCP","smb":{"command":"SMB1_COMMAND_NT_CREATE_ANDX","status":"STATUS_SUCCESS","status_code":"0x0","session_id":2048,"tree_id":2048,"filename":"\\lsarpc","length":0,"state":"complete"}}
{"timestamp":"2004-01-06T12:38:58.149558000Z","flow_id":3718129569732356,"event_type":"smb","src_ip":"205.227.227.226","src_port":49467,"dest_ip":"205.227.227.243","dest_port":445,"proto":"TCP","dcerpc":{"request":"BIND","response":"BINDACK","call_id":29,"interfaces":["3919286a-b10c-11d0-9ba8-00c04fd92ef5 v0"],"req":{"frag_cnt":1,"stub_data_size":0},"res":{"frag_cnt":1,"stub_data_size":0}},"smb":{"length":0,"state":"complete"}}
{"timestamp":"2004-01-06T12:38:58.151937000Z","flow_id":3718129569732356,"event_type":"smb","src_ip":"205.227.227.226","src_port":49467,"dest_ip":"205.227.227.243","dest_port":445,"proto":"TCP","dcerpc":{"request":"REQUEST","response":"RESPONSE","call_id":30,"interfaces":["3919286a-b10c-11d0-9ba8-00c04fd92ef5 v0"],"req":{"opnum":0,"frag_cnt":1,"stub_data_size":2},"res":{"frag_cnt":1,"stub_data_size":80}},"smb":{"length":0,"state":"complete"}}
"#;

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let smb = Smb { row: RowWriter::new(&SCHEMA), carried: Carried::new(TEXT_BUFFERED_BYTES) };
    Ok(Instance::session(SessionKey::Connection, smb))
}

struct Smb {
    row: RowWriter,
    /// Kept messages and names of all connections.
    carried: Carried,
}

#[derive(Default)]
struct Session {
    conversation: Conversation,
    /// The client's direction; `None` before the first bytes.
    client: Option<u8>,
    told: BTreeMap<u64, Exchange>,
    calls: Calls,
}

/// What was said of calls that are not over, by their pipes and exchanges.
type Calls = BTreeMap<(u64, u64), Facts<dcerpc::Fact>>;

/// Most calls of a connection that are not over.
const CALLS: usize = 1024;

/// What was told of a command, or of a file.
#[derive(Default)]
struct Exchange {
    facts: Facts<Fact>,
    is_file: bool,
    /// The file's stream number, and for each side whether its message is open, and the bytes missing before the next ones.
    stream: Option<u32>,
    is_open: [bool; 2],
    gap: [u32; 2],
}

/// Makes messages of what it hears.
struct Listener<'a, 'b> {
    told: &'a mut BTreeMap<u64, Exchange>,
    calls: &'a mut Calls,
    row: &'a mut RowWriter,
    carried: &'a Carried,
    outlet: &'a mut Outlet<'b>,
    /// What is read.
    block: Descriptor,
    client: u8,
}

impl Listener<'_, '_> {
    fn direction(&self, side: Side) -> u8 {
        if side.is_client() { self.client } else { 1 - self.client }
    }

    fn keep(&mut self, id: Id, fact: Fact, value: &[u8]) {
        if fact.about().field[id.side.index()].is_empty() {
            return;
        }
        let exchange = self.told.entry(id.exchange).or_default();
        if !exchange.facts.keep(fact, id.side, value, self.carried) {
            self.outlet.count("smb texts left out for want of memory", 1);
        }
    }

    fn give_record(&mut self, facts: &Facts<Fact>, of_file: Option<Side>, class: Class, flags: Flags) {
        begin_row(self.row, self.block.time, class, self.outlet.facts(class));
        facts.write(self.row);
        if let Some(side) = of_file {
            self.row.text("smb.access", if side.is_client() { "write" } else { "read" });
        }
        self.outlet.meta(self.row, self.block.time, class, flags);
    }

    /// Gives a block of a file.
    fn give(&mut self, id: Id, mut piece: Descriptor) {
        let direction = self.direction(id.side);
        let Some(exchange) = self.told.get_mut(&id.exchange) else { return };
        let (Some(stream), at) = (exchange.stream, id.side.index()) else { return };
        if !exchange.is_open[at] {
            return;
        }
        let gap = std::mem::take(&mut exchange.gap[at]);
        piece.class = Class::of_stream(stream, direction);
        if gap > 0 {
            piece.set_wire(gap.saturating_add(piece.len));
            piece.add_flags(Flags::GAP_BEFORE);
        }
        self.outlet.push(piece);
    }
}

impl Ear<Fact> for Listener<'_, '_> {
    fn begin(&mut self, id: Id) {
        self.told.entry(id.exchange).or_default();
    }

    fn fact(&mut self, id: Id, fact: Fact, value: &[u8]) {
        self.keep(id, fact, value);
    }

    fn number(&mut self, id: Id, fact: Fact, value: u64) {
        self.keep(id, fact, &value.to_be_bytes());
    }

    fn head_done(&mut self, id: Id) {
        let Some(mut exchange) = self.told.remove(&id.exchange) else { return };
        exchange.is_file = true;
        exchange.stream = exchange.stream.or_else(|| self.outlet.open_stream(self.block.class));
        match exchange.stream {
            Some(stream) => {
                exchange.is_open[id.side.index()] = true;
                let class = Class::of_stream(stream, self.direction(id.side));
                self.give_record(&exchange.facts, Some(id.side), class, Flags::NONE);
            }
            None => self.outlet.count("smb files not given for want of stream numbers", 1),
        }
        self.told.insert(id.exchange, exchange);
    }

    fn body(&mut self, id: Id, piece: Body<'_>) {
        match piece {
            Body::Range(range) => {
                let mut block = self.block.part(range.start as u32, range.len() as u32);
                block.set_flags(Flags::NONE);
                self.give(id, block);
            }
            Body::Kept(bytes, time) => {
                for bytes in bytes.chunks(KEPT_BLOCK_BYTES) {
                    if let Some(block) = self.outlet.copied(bytes, time, self.block.class) {
                        self.give(id, block);
                    }
                }
            }
            Body::Missing(missing) => {
                if let Some(exchange) = self.told.get_mut(&id.exchange) {
                    let gap = &mut exchange.gap[id.side.index()];
                    *gap = gap.saturating_add(missing);
                }
            }
        }
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.outlet.count(what, 1);
    }

    fn end(&mut self, id: Id, how: How) {
        let Some(mut exchange) = self.told.remove(&id.exchange) else { return };
        let at = id.side.index();
        if exchange.is_open[at] {
            let mut end = self.outlet.nothing(self.block.time, self.block.class);
            let flags = if how == How::Cut { Flags::LAST.with(Flags::TRUNCATED) } else { Flags::LAST };
            end.set_flags(flags);
            self.told.insert(id.exchange, exchange);
            self.give(id, end);
            exchange = self.told.remove(&id.exchange).unwrap_or_default();
            exchange.is_open[at] = false;
        } else if !exchange.is_file && !id.side.is_client() {
            let class = Class::of_stream(self.block.class.connection(), self.client);
            self.give_record(&exchange.facts, None, class, Flags::LAST);
            return exchange.facts.clear(self.carried);
        }
        match exchange.stream {
            stream if exchange.is_file && exchange.is_open == [false; 2] => {
                stream.into_iter().for_each(|stream| self.outlet.close_stream(stream));
                exchange.facts.clear(self.carried);
            }
            _ => _ = self.told.insert(id.exchange, exchange),
        }
    }
}

impl Hears for Listener<'_, '_> {
    fn pipe(&mut self, pipe: u64, _bytes: &[u8], tell: &mut dyn FnMut(&mut dyn Ear<dcerpc::Fact>)) {
        tell(&mut Caller { pipe, to: self });
    }
}

/// Makes records of the calls in a pipe.
struct Caller<'a, 'b, 'c> {
    pipe: u64,
    to: &'a mut Listener<'b, 'c>,
}

impl Ear<dcerpc::Fact> for Caller<'_, '_, '_> {
    fn begin(&mut self, id: Id) {
        if self.to.calls.len() < CALLS {
            self.to.calls.insert((self.pipe, id.exchange), Facts::default());
        } else {
            self.to.outlet.count("exchanges not listed", 1);
        }
    }

    fn fact(&mut self, id: Id, fact: dcerpc::Fact, value: &[u8]) {
        let Some(facts) = self.to.calls.get_mut(&(self.pipe, id.exchange)) else { return };
        let (about, count) = (fact.about(), facts.count(fact, id.side));
        if about.field[id.side.index()].is_empty() || !about.kind.is_item() && count > 0 {
            return;
        }
        if count == TALK_ITEMS {
            self.to.outlet.count("items not listed", 1);
        } else if !facts.keep(fact, id.side, value, self.to.carried) {
            self.to.outlet.count("smb texts left out for want of memory", 1);
        }
    }

    fn number(&mut self, id: Id, fact: dcerpc::Fact, value: u64) {
        self.fact(id, fact, &value.to_be_bytes());
    }

    fn lost(&mut self, _id: Id, what: &'static str) {
        self.to.outlet.count(what, 1);
    }

    fn count(&mut self, what: &'static str, times: u64) {
        self.to.outlet.count(what, times);
    }

    fn end(&mut self, _id: Id, _how: How) {}

    fn over(&mut self, exchange: u64) {
        let Some(mut facts) = self.to.calls.remove(&(self.pipe, exchange)) else { return };
        let class = Class::of_stream(self.to.block.class.connection(), self.to.client);
        begin_row(self.to.row, self.to.block.time, class, self.to.outlet.facts(class));
        facts.write(self.to.row);
        self.to.outlet.meta(self.to.row, self.to.block.time, class, Flags::LAST);
        facts.clear(self.to.carried);
    }
}

/// Longest block of bytes that were kept.
const KEPT_BLOCK_BYTES: usize = 32 << 10;

impl SessionFilter for Smb {
    type State = Session;

    fn open(&mut self, _class: Class, _cx: &mut Context<'_>) -> Session {
        Session::default()
    }

    fn run(&mut self, session: &mut Session, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        Outlet::each(batch, cx, |block, outlet| self.block(session, block, outlet))
    }

    fn close(
        &mut self,
        session: Session,
        class: Class,
        _why: Closed,
        cx: &mut Context<'_>,
    ) -> Result<(), Box<Failure>> {
        let time = cx.now;
        let mut outlet = Outlet::new(cx);
        let Session { mut conversation, client, mut told, mut calls } = session;
        let client = client.unwrap_or(0);
        let block = outlet.nothing(time, Class::of_stream(class.connection(), client));
        let Smb { row, carried } = self;
        let heard = (&mut told, &mut calls);
        let mut ear = Listener { told: heard.0, calls: heard.1, row, carried, outlet: &mut outlet, block, client };
        conversation.end(time, carried, &mut ear);
        told.into_values().for_each(|mut exchange| exchange.facts.clear(carried));
        calls.into_values().for_each(|mut facts| facts.clear(carried));
        Ok(())
    }
}

impl Smb {
    /// Reads a block; returns whether it was SMB.
    fn block(&mut self, session: &mut Session, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let run = Run { bytes: outlet.bytes(block), time: block.time };
        let direction = block.class.direction();
        let Session { conversation, client, told, calls } = session;
        let client = *client.get_or_insert_with(|| match run.bytes.get(PREFIX_BYTES..).and_then(Header::parse) {
            Some(header) if header.is_response => 1 - direction,
            Some(_) => direction,
            None => 0,
        });
        let side = Side::to_server(direction == client);
        let Smb { row, carried } = self;
        let mut ear = Listener { told, calls, row, carried, outlet, block: *block, client };
        if block.gap() > 0 {
            conversation.gap(side, block.gap(), block.time, carried, &mut ear);
        }
        conversation.feed(side, run, carried, &mut ear) == Fed::Mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::parts::handmade::{Piece, block, facts};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use testkit::{Chain, Outcome};

    fn message(command: u8, id: u8, class: u32, file: u8, body: &[u8]) -> Piece {
        let mut header = [&b"\xfeSMB"[..], &[0; 60]].concat();
        (header[12], header[16], header[24]) = (command, class as u8, id);
        let body: Vec<u8> = body.iter().map(|byte| if *byte == FILE { file } else { *byte }).collect();
        let length = (header.len() + body.len()) as u32;
        block(class, Flags::NONE, &[&length.to_be_bytes()[..], &header, &body].concat(), 0)
    }

    /// Stands for the number of a file.
    const FILE: u8 = 0xee;

    fn open(file: u8, name: &[u8; 4]) -> [Piece; 2] {
        let ask = [&[57, 0][..], &[0; 42], &[120, 0, 4, 0], &[0; 8], name].concat();
        let answer = [&[89, 0][..], &[0; 62], &[FILE; 16]].concat();
        [message(5, file, 0, file, &ask), message(5, file, 1, file, &answer)]
    }

    fn write(file: u8, offset: u8, data: &[u8]) -> Piece {
        let start = [49, 0, 112, 0, data.len() as u8, 0, 0, 0, offset, 0, 0, 0, 0, 0, 0, 0];
        message(9, 9, 0, file, &[&start[..], &[FILE; 16], &[0; 16], data].concat())
    }

    fn close(file: u8) -> Piece {
        message(6, 8, 0, file, &[&[24, 0, 0, 0, 0, 0, 0, 0][..], &[FILE; 16]].concat())
    }

    fn chain(pieces: Vec<Piece>) -> Chain {
        Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(4000, 6, 0)]).then(&KIND, &[])
    }

    fn records(pieces: Vec<Piece>) -> Vec<Value> {
        let text = chain(pieces).then(&json::KIND, &[]).run().stdout;
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["smb"].take()).collect()
    }

    /// The bodies of messages with one, by class.
    fn bodies(outcome: &Outcome) -> Vec<String> {
        let mut bodies: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for block in outcome.blocks.iter().filter(|block| !block.descriptor.has(Flags::META)) {
            let (at, bytes) = (block.descriptor.class.0, &block.bytes);
            bodies.entry(at).or_default().extend_from_slice(bytes);
        }
        bodies.into_values().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
    }

    #[test]
    fn files_that_are_open_side_by_side_stay_apart() {
        let pieces = [open(1, b"a\0b\0"), open(2, b"c\0d\0")].concat();
        let writes = [write(1, 0, b"one "), write(2, 0, b"three "), write(1, 4, b"two"), write(2, 6, b"four")];
        let pieces = [&pieces[..], &writes, &[close(1), close(2)]].concat();
        assert_eq!(bodies(&chain(pieces.clone()).run()), ["one two", "three four"]);
        let found = records(pieces);
        let of = |name: &str| json!({"filename": name, "access": "write", "length": if name == "ab" { 7 } else { 10 }, "state": "complete"});
        assert!(found.contains(&of("ab")) && found.contains(&of("cd")), "{found:?}");
        let create = found.iter().find(|one| one["command"] == "SMB2_COMMAND_CREATE").unwrap();
        assert_eq!((&create["filename"], &create["status"]), (&json!("ab"), &json!("STATUS_SUCCESS")));
    }

    #[test]
    fn pieces_out_of_order_end_a_file_as_a_gap() {
        let pieces =
            [&open(1, b"a\0b\0")[..], &[write(1, 0, b"one"), write(1, 6, b"x"), write(1, 3, b"two"), close(1)]]
                .concat();
        let outcome = chain(pieces.clone()).run();
        assert_eq!(
            (bodies(&outcome), outcome.counters("smb").events.get("smb pieces of files out of order")),
            (vec!["onex".to_string()], 1)
        );
        assert!(records(pieces).contains(&json!({"filename": "ab", "access": "write", "length": 4, "state": "gap"})));
    }

    #[test]
    fn what_is_not_smb_is_rejected() {
        let outcome = chain(vec![block(0, Flags::NONE, b"GET / HTTP/1.1\r\n", 0)]).run();
        assert_eq!((outcome.blocks.len(), outcome.counters("smb").blocks_rejected), (0, 1));
    }

    proptest! {
        #[test]
        fn any_bytes(said in proptest::collection::vec(
            (0u8..12, 0u8..3, 0u32..2, proptest::collection::vec(any::<u8>(), 0..90)), 0..20)) {
            let pieces = said.iter().map(|(command, id, class, body)| message(*command, *id, *class, 1, body));
            prop_assert!(records(pieces.collect()).len() <= 2 * said.len());
        }
    }
}
