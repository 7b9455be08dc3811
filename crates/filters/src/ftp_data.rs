//! Files out of FTP: one message for each direction of a data connection, with the command that requested it.
//!
//! Control connections announce the addresses of data connections and the commands that use them. One copy of the
//! filter sees all connections, because a data connection is matched across connections.

use crate::parts::class_table::ClassTable;
use crate::parts::eve::{begin_row, eve_fields};
use crate::parts::outlet::Outlet;
use base::limits::{FTP_EXPECTED, TEXT_BUFFERED_BYTES};
use filter::prelude::*;
use protocols::carry::Carried;
use protocols::conversation::{Run, Side, Talk};
use protocols::ftp::{Announced, Conversation, Transfer, Transfers};

static SCHEMA: Schema = Schema::new(
    "ftp_data",
    &eve_fields![Field::new("ftp_data.command", FieldType::Text), Field::new("ftp_data.filename", FieldType::Text)],
)
.summary(&["ftp_data.command", "ftp_data.filename"]);

/// What `ftp_data` is.
pub static KIND: Kind = Kind::new("ftp_data", "takes files out of the data connections of FTP", make)
    .help(
        "Reads FTP's control connections on any port, and gives what the data connections carry that are agreed on there \
         (PORT, EPRT, PASV, EPSV): one message for each, a record with `ftp_data.command` (RETR, STOR, LIST ...) and \
         `ftp_data.filename`, and then the bytes, not copied. All other connections are rejected, control connections \
         too. Of a passive server the address is that of the control connection, whatever its reply says.\n\n\
         Up to 16384 data connections are waited for; the one announced first makes room.",
    )
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&SCHEMA)
    .mode(Mode::Serial)
    .wants(&[(Type::Frame, "tcp"), (Type::Packet, "tcp")])
    .parses_payload()
    .examples(&[Example { request: "pcap ftp.pcap | ftp_data | json", output: A_FILE }]);

const A_FILE: &str = r#"{"timestamp":"2026-06-10T21:20:51.305713000Z","flow_id":193746439765198,"event_type":"ftp_data","src_ip":"172.23.0.2","src_port":20,"dest_ip":"172.23.0.3","dest_port":44671,"proto":"TCP","ftp_data":{"command":"NLST","length":25,"state":"complete"}}
{"timestamp":"2026-06-10T21:20:51.306495000Z","flow_id":399772187845073,"event_type":"ftp_data","src_ip":"172.23.0.2","src_port":20,"dest_ip":"172.23.0.3","dest_port":43585,"proto":"TCP","ftp_data":{"command":"RETR","filename":"index.html","length":39,"state":"complete"}}
{"timestamp":"2026-06-10T21:20:51.306659000Z","flow_id":4786550755516134,"event_type":"ftp_data","src_ip":"172.23.0.2","src_port":20,"dest_ip":"172.23.0.3","dest_port":43439,"proto":"TCP","ftp_data":{"command":"NLST","length":25,"state":"complete"}}
"#;

const _: () = assert!(FTP_EXPECTED == 16384, "the manual says so");

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(FtpData {
        row: RowWriter::new(&SCHEMA),
        carried: Carried::new(TEXT_BUFFERED_BYTES),
        connections: ClassTable::default(),
        transfers: Transfers::default(),
    }))
}

struct FtpData {
    row: RowWriter,
    /// Kept lines of all connections.
    carried: Carried,
    /// Key: the class of direction 0.
    connections: ClassTable<Connection>,
    transfers: Transfers,
}

struct Connection {
    /// Which connection with this number it is.
    epoch: u32,
    use_: Use,
    /// Directions that ended.
    ended: [bool; 2],
}

enum Use {
    Control(Box<Control>),
    /// The command, and the directions that have begun.
    Data(Transfer, [bool; 2]),
    Other,
}

#[derive(Default)]
struct Control {
    /// It, and the client's direction; `None` before the first bytes.
    conversation: Option<(Conversation, u8)>,
    announced: Announced,
}

impl Filter for FtpData {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.row.want(cx.wanted);
        Outlet::each(batch, cx, |block, outlet| self.block(block, outlet))
    }
}

impl FtpData {
    /// Reads a block; returns whether it belongs to a data connection.
    fn block(&mut self, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let direction = usize::from(block.class.direction());
        let key = Class::of_stream(block.class.connection(), 0);
        let epoch = outlet.epoch(key);
        let known = self.connections.remove(key).filter(|connection| connection.epoch == epoch);
        let mut connection =
            known.unwrap_or_else(|| Connection { epoch, use_: self.begin(key, outlet), ended: [false; 2] });
        let is_data = match &mut connection.use_ {
            Use::Data(transfer, begun) => {
                let has_begun = std::mem::replace(&mut begun[direction], true);
                self.data(transfer, has_begun, block, outlet);
                true
            }
            Use::Control(control) => {
                if !self.control(control, block, outlet) {
                    connection.use_ = Use::Other;
                }
                false
            }
            Use::Other => false,
        };
        connection.ended[direction] |= block.has(Flags::LAST);
        if connection.ended != [true; 2] {
            self.connections.get_or_insert(key, || connection);
            return is_data;
        }
        if let Use::Control(control) = connection.use_
            && let Control { conversation: Some((mut conversation, _)), mut announced } = *control
        {
            conversation.end(&self.carried, &mut announced);
        }
        is_data
    }

    /// Decides the use of a new connection.
    fn begin(&mut self, class: Class, outlet: &Outlet<'_>) -> Use {
        let Some(flow) = outlet.facts(class).map(|facts| facts.flow) else { return Use::Other };
        match self.transfers.take(&flow) {
            Some(transfer) => Use::Data(transfer, [false; 2]),
            None => Use::Control(Box::default()),
        }
    }

    /// Gives a block of a data connection; the first follows its record.
    fn data(&mut self, transfer: &Transfer, has_begun: bool, block: &Descriptor, outlet: &mut Outlet<'_>) {
        if !has_begun && block.len == 0 && block.gap() == 0 {
            return;
        }
        if !has_begun {
            begin_row(&mut self.row, block.time, block.class, outlet.facts(block.class));
            for (field, text) in [("ftp_data.command", &transfer.command), ("ftp_data.filename", &transfer.file)] {
                if !text.is_empty() {
                    self.row.text(field, text);
                }
            }
            outlet.meta(&self.row, block.time, block.class, Flags::NONE);
        }
        let mut piece = *block;
        piece.set_flags(block.flags().without(Flags::FIRST));
        outlet.push(piece);
    }

    /// Reads a block of a possible control connection; `false` once it is not one.
    fn control(&mut self, control: &mut Control, block: &Descriptor, outlet: &mut Outlet<'_>) -> bool {
        let run = Run { bytes: outlet.bytes(block), time: block.time };
        let (Some(sender), Some(facts)) = (Conversation::sender(run.bytes), outlet.facts(block.class)) else {
            return true;
        };
        let Control { conversation, announced } = control;
        let direction = block.class.direction();
        let (conversation, client) = conversation.get_or_insert_with(|| {
            let client = direction ^ u8::from(!sender.is_client());
            let flow = facts.directed(Class::of_stream(block.class.connection(), client));
            (Conversation::between(flow.source, flow.target, false), client)
        });
        let side = Side::to_server(direction == *client);
        if block.gap() > 0 {
            conversation.gap(side, block.gap(), &self.carried, announced);
        }
        conversation.feed(side, run, &self.carried, announced);
        for (address, transfer) in announced.list.drain(..) {
            if self.transfers.announce(address, transfer) {
                outlet.count("ftp data connections no longer waited for", 1);
            }
        }
        !conversation.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::handmade::{Piece, block, facts};
    use packet::Flow;
    use proptest::prelude::*;
    use testkit::{Chain, Outcome};

    fn piece(class: u32, bytes: &[u8]) -> Piece {
        block(class, Flags::NONE, bytes, 0)
    }

    /// A control connection (number 0), and a data connection to `port` (number 1). `is_passive`: the client opens it.
    fn run(pieces: Vec<Piece>, port: u16, is_passive: bool) -> Outcome {
        let control = facts(4000, 6, 0);
        let mut data = facts(20, 6, 0);
        data.flow = Flow { target_port: port, ..data.flow };
        if !is_passive {
            (data.flow.source, data.flow.target) = (data.flow.target, data.flow.source);
        }
        Chain::pieces(Type::Bytes, None, pieces).streams(&[control, data]).then(&KIND, &[]).run()
    }

    fn messages(outcome: &Outcome) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut messages = Vec::new();
        for block in &outcome.blocks {
            match Row::new(&SCHEMA, &block.bytes).filter(|_| block.descriptor.has(Flags::META)) {
                Some(row) => {
                    let text = |name| row.text(name).unwrap_or_default();
                    let command = [text("ftp_data.command"), b" ", text("ftp_data.filename")].concat();
                    messages.push((command, Vec::new()));
                }
                None => messages.last_mut().expect("a record first").1.extend_from_slice(&block.bytes),
            }
        }
        messages
    }

    #[test]
    fn files() {
        let check = |agreed: &[(u32, &[u8])], is_passive: bool, command: &[u8]| {
            let mut pieces = vec![piece(1, b"220 x\r\n"), piece(0, b"USER a\r\n")];
            pieces.extend(agreed.iter().map(|(class, bytes)| piece(*class, bytes)));
            let (first, last) = (Flags::FIRST, Flags::LAST);
            pieces.extend([block(2, first, b"ab", 0), block(2, last, b"c", 0), block(3, last, b"", 0)]);
            let outcome = run(pieces, 2000, is_passive);
            assert_eq!(messages(&outcome), [(command.to_vec(), b"abc".to_vec())]);
            assert!(outcome.blocks.last().unwrap().descriptor.has(Flags::LAST));
            assert_eq!(outcome.counters("ftp_data").blocks_rejected, 2 + agreed.len() as u64);
        };
        check(&[(0, b"PORT 10,0,0,1,7,208\r\nSTOR x y\r\n")], false, b"STOR x y");
        check(&[(0, b"EPRT |1|10.0.0.1|2000|\r\nLIST\r\n")], false, b"LIST ");
        check(&[(0, b"PASV\r\n"), (1, b"227 Ok (9,9,9,9,7,208)\r\n"), (0, b"RETR /a\r\n")], true, b"RETR /a");
        check(&[(0, b"EPSV\r\n"), (1, b"229 Ok (|||2000|)\r\n"), (0, b"RE"), (0, b"TR a\r\n")], true, b"RETR a");
    }

    #[test]
    fn what_was_not_agreed_on_is_rejected() {
        let pieces = vec![piece(0, b"USER a\r\nPORT 10,0,0,1,7,208\r\n"), piece(2, b"abc")];
        assert_eq!(run(pieces, 2001, false).counters("ftp_data").blocks_rejected, 2);
        let pieces = vec![piece(0, b"GET / HTTP/1.1\r\nPORT 10,0,0,1,7,208\r\n"), piece(2, b"abc")];
        assert_eq!(run(pieces, 2000, false).counters("ftp_data").blocks_rejected, 2);
    }

    proptest! {
        #[test]
        fn any_bytes(blocks in proptest::collection::vec((0u32..4, proptest::collection::vec(any::<u8>(), 0..60)), 0..6), like: bool) {
            let start: &[u8] = if like { b"USER x\r\nPORT 10,0,0,1,7,208\r\n" } else { b"" };
            let pieces = blocks.iter().map(|(class, bytes)| piece(*class, &[start, bytes].concat())).collect();
            prop_assert!(messages(&run(pieces, 2000, false)).len() <= 2);
        }
    }
}
