//! Prints one line for each block, for people: time, addresses, type and first bytes.
//!
//! `parts/frame_line.rs` describes frames, `inspect/row.rs` rows. Not a dissector: it shows bytes behind the transport
//! header. Scripts should read `json`.

mod columns;
mod row;

use crate::parts::ending;
use crate::parts::frame_line::{self, say};
use crate::parts::lines::Lines;
use crate::parts::printable::{dump, quoted};
use crate::parts::room::Room;
use columns::Summaries;
use filter::prelude::*;
use packet::LinkType;

/// What `inspect` is.
pub static KIND: Kind = Kind::new("inspect", "prints one line for each block, for people to read", make)
    .also(&["print", "show", "cat", "less", "dump", "tcpdump", "display", "stdout"])
    .help(
        "A frame or packet is shown with its time (UTC), VLANs, addresses, ports, what its transport header says, its length \
         on the wire, and how its payload begins. A piece of a stream or message has the number of its connection and \
         its direction (c>s is from client to server) in front, and says where bytes are missing; a record is shown as \
         its fields. At most `bytes` bytes of payload are shown, as text; hex=yes shows that many bytes of the whole block \
         below the line instead. Nothing from the traffic is printed that is not printable ASCII: the rest is escaped.\n\n\
         `format=table` shows records, and the heads of messages, as aligned columns with a head: the time (since the first record for `packets`, \
         else of the day, UTC), source and destination, and the fields that people read most; all fields, if there is no such \
         choice. Columns become wider when cells need it. Records of several kinds share columns, and the last one has the rest. On \
         a terminal the last column is cut at its width. A request that ends in records or messages on a terminal ends so, and one that ends in frames in those of `packets`.\n\n\
         A `file` that exists is refused unless overwrite=yes.\n\n\
         The form of the lines may change from version to version; for scripts there is `json`.",
    )
    .params(PARAMS)
    .sink()
    .completes(|params| ending::check(params, "file", &[]))
    .restarts()
    .examples(&[Example { request: "pcap dns.pcap | proto udp | inspect bytes=14", output: UDP_LINES }]);

const UDP_LINES: &str = r#"2022-02-08T18:47:25.872520000Z 10.16.1.11:38550 > 8.8.8.8:53 UDP len 52, 94 bytes "\xd2\xdc\x01 \x00\x01\x00\x00\x00\x00\x00\x01\x08s"...
2022-02-08T18:47:25.940949000Z 8.8.8.8:53 > 10.16.1.11:38550 UDP len 56, 98 bytes "\xd2\xdc\x81\x80\x00\x01\x00\x01\x00\x00\x00\x01\x08s"...
"#;

const PARAMS: &[Param] = &[
    Param::new("bytes", ParamType::Size, "how many bytes to show of each block").default("60"),
    Param::new("hex", ParamType::Flag, "show bytes in lines of hexadecimal digits and text").default("no"),
    Param::new("format", ParamType::Choice(&["line", "table"]), "how a record is shown").default("line"),
    Param::new("file", ParamType::Path, "file to write to; standard output if not given, or if it is -"),
    Lines::OVERWRITE,
    Room::MAX_BYTES,
    Room::MIN_FREE,
];

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let of = if Types::of(&[Type::Bytes, Type::Message]).has_all(env.input) {
        Type::Bytes
    } else {
        let mut types = env.input.iter();
        match (types.next(), types.next()) {
            (Some(of), None) => of,
            _ if Types::of(&[Type::Frame, Type::Packet]).has_all(env.input) => Type::Frame,
            _ => {
                let message = format!("{} come here, and cannot be told apart", env.input);
                return Err(ParamError::of_request(message)
                    .with_help("end each branch with its own inspect: { a | inspect + b | inspect }"));
            }
        }
    };
    let columns = match params.text("format") {
        // Messages without metadata have lines.
        Some("table") if of == Type::Record || !params.come().is_empty() => Some(Summaries::new(params, env)),
        _ => None,
    };
    if params.text("format") == Some("table") && !Types::of(&[Type::Record, Type::Message]).has_all(env.input) {
        let error = format!("`format=table` is for records and messages, and {} come here", env.input);
        return Err(ParamError::new("format", error));
    }
    let shown = params.number("bytes").unwrap_or(0).min(u64::from(u32::MAX)) as usize;
    Ok(Instance::filter(Inspect {
        lines: Lines::new(params, env)?,
        env: env.clone(),
        of,
        columns,
        shown,
        hex: params.flag("hex"),
    }))
}

struct Inspect {
    lines: Lines,
    env: Env,
    of: Type,
    /// Records become columns, and of messages the records that they begin with.
    columns: Option<Summaries>,
    /// Bytes to show of each block.
    shown: usize,
    hex: bool,
}

impl Inspect {
    fn line(&mut self, block: &Descriptor, cx: &Context<'_>) {
        let out = self.lines.buffer();
        let bytes = cx.rings.bytes(block);
        let payload = match self.of {
            Type::Frame | Type::Packet => {
                let link = cx.rings.link_type(block).map_or(LinkType::RAW, LinkType);
                time(out, block.time);
                frame_line::append(out, link, bytes, block)
            }
            Type::Bytes | Type::Message => {
                time(out, block.time);
                who(out, block, cx.streams.get(block.class));
                if block.has(Flags::META) {
                    row::append_meta(out, &self.env, bytes);
                    return;
                }
                how_long(out, block);
                bytes
            }
            Type::Record => {
                row::append(out, &self.env, bytes);
                return;
            }
        };
        if self.hex {
            dump(out, &bytes[..bytes.len().min(self.shown)]);
        } else if !payload.is_empty() && self.shown > 0 {
            out.push(b' ');
            quoted(out, &payload[..payload.len().min(self.shown)]);
            if payload.len() > self.shown {
                out.extend_from_slice(b"...");
            }
        }
    }
}

fn time(out: &mut Vec<u8>, ns: u64) {
    out.extend_from_slice(&packet::time::rfc3339(ns));
    out.push(b' ');
}

/// The connection's number, the block's direction, and the addresses in that direction.
fn who(out: &mut Vec<u8>, block: &Descriptor, facts: Option<&StreamFacts>) {
    let direction = if block.class.direction() == 0 { "c>s" } else { "s>c" };
    say(out, format_args!("#{} {direction} ", block.class.connection()));
    if let Some(facts) = facts {
        say(out, format_args!("{} ", facts.directed(block.class)));
    }
}

/// The block's length, its place in the stream or message, and missing bytes.
fn how_long(out: &mut Vec<u8>, block: &Descriptor) {
    say(out, format_args!("{} bytes", block.len));
    if block.gap() > 0 {
        say(out, format_args!(" after {} missing", block.gap()));
    }
    let words =
        [(Flags::FIRST, " first"), (Flags::LAST, " last"), (Flags::TRUNCATED, " cut"), (Flags::LIMITED, " by a limit")];
    for (flag, word) in words {
        if block.has(flag) {
            out.extend_from_slice(word.as_bytes());
        }
    }
}

impl Filter for Inspect {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if let Some(columns) = &mut self.columns {
            let is_record = |block: &Descriptor| self.of == Type::Record || block.has(Flags::META);
            for (_, block) in batch.iter().filter(|(_, block)| is_record(block)) {
                let Some(made) = columns.line(&mut self.lines, cx.rings.bytes(block)) else {
                    cx.drop(1, "not a record");
                    continue;
                };
                if made? == Status::Finished {
                    return Ok(Status::Finished);
                }
            }
            columns.batch_done(&mut self.lines)?;
            return self.lines.batch_done(cx);
        }
        for (_, block) in batch.iter() {
            self.line(block, cx);
            if self.lines.line_done()? == Status::Finished {
                return Ok(Status::Finished);
            }
        }
        self.lines.batch_done(cx)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        if let Some(columns) = &mut self.columns {
            columns.pause(&mut self.lines)?;
        }
        self.lines.flush(cx)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if let Some(columns) = &mut self.columns {
            columns.settle(&mut self.lines)?;
        }
        self.lines.flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count;
    use crate::parts::handmade::{MESSAGES, Piece, block, facts, meta};
    use proptest::prelude::*;
    use testkit::{Chain, packets};

    fn check(chain: Chain, given: &[(&str, &str)], expected: &[&str]) {
        assert_eq!(chain.then(&KIND, given).run().stdout.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn frames() {
        let frames = [(1, packets::udp(packets::CLIENT, packets::SERVER, b"hello\x1b[31m\n"))];
        let chain = || Chain::frames(1, &frames);
        let line = "1970-01-01T00:00:00.000000001Z 10.0.0.1:40000 > 10.0.0.2:80 UDP len 11, 53 bytes";
        check(chain(), &[], &[&format!(r#"{line} "hello\x1b[31m\n""#)]);
        check(chain(), &[("bytes", "5")], &[&format!(r#"{line} "hello"..."#)]);
        check(chain(), &[("bytes", "0")], &[line]);
        let row = "    00000000  02 00 00 00 00 02 02 00  00 00 00 01 08 00 45 00  ..............E.";
        check(chain(), &[("bytes", "16"), ("hex", "yes")], &[line, row]);
    }

    #[test]
    fn streams_and_messages() {
        let first = Flags::FIRST;
        let pieces: Vec<Piece> = vec![
            block(0, first, b"GET /", 0),
            block(1, Flags::GAP_BEFORE, b"OK", 100),
            block(1, Flags::LAST.with(Flags::TRUNCATED), b"", 0),
            block(500, Flags::NONE, b"?", 0),
        ];
        let time = "1970-01-01T00:00:00.000000000Z";
        check(
            Chain::pieces(Type::Bytes, None, pieces).streams(&[facts(7, 6, 0)]),
            &[],
            &[
                &format!(r#"{time} #0 c>s 10.0.0.1:7 > 10.0.0.2:80 5 bytes first "GET /""#),
                &format!(r#"{time} #0 s>c 10.0.0.2:80 > 10.0.0.1:7 2 bytes after 100 missing "OK""#),
                &format!("{time} #0 s>c 10.0.0.2:80 > 10.0.0.1:7 0 bytes last cut"),
                &format!(r#"{time} #250 c>s 1 bytes "?""#),
            ],
        );
        let pieces = vec![block(1, first.with(Flags::META), &meta("/a b\x1b", "text/html"), 0)];
        let fields = r#"direction=response url="/a b\x1b" status=200 http_content_type=text/html"#;
        check(
            Chain::pieces(Type::Message, None, pieces).streams(&[facts(7, 6, 0)]).then(&MESSAGES, &[]),
            &[],
            &[&format!("{time} #0 s>c 10.0.0.2:80 > 10.0.0.1:7 http {fields}")],
        );
    }

    #[test]
    fn records() {
        let frames = [(0, vec![0; 60])];
        check(Chain::frames(1, &frames).then(&count::KIND, &[]), &[], &["count blocks=1 bytes=60 wire_bytes=60"]);
        let strange = Chain::pieces(Type::Record, None, vec![block(0, Flags::NONE, b"abc", 0)]);
        check(strange, &[], &["a record of no known schema, 3 bytes"]);
    }

    /// Two kinds of records: of exchanges, with a summary, and a measure, with none.
    static SEEN: Schema = Schema::new(
        "web",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("flow_id", FieldType::Number),
            Field::new("src_ip", FieldType::Address),
            Field::new("src_port", FieldType::Number),
            Field::new("proto", FieldType::Text),
            Field::new("web.bytes_toserver", FieldType::Number),
            Field::new("web.bytes_toclient", FieldType::Number),
            Field::new("web.url", FieldType::Text),
        ],
    )
    .summary(&["proto", "web.bytes_toserver", "web.bytes_toclient", "web.url"]);
    static MEASURE: Schema =
        Schema::new("measure", &[Field::new("proto", FieldType::Text), Field::new("count", FieldType::Number)]);

    fn seen(time: u64, source: &str, bytes: u64, url: &str) -> Piece {
        let mut row = RowWriter::new(&SEEN);
        row.time("timestamp", time).number("flow_id", 7).address("src_ip", source.parse().unwrap());
        row.number("src_port", 40_000).text("proto", "TCP").number("web.bytes_toserver", bytes).text("web.url", url);
        block(0, Flags::NONE, row.row(), 0)
    }

    fn measure(count: u64) -> Piece {
        block(0, Flags::NONE, RowWriter::new(&MEASURE).text("proto", "UDP").number("count", count).row(), 0)
    }

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn records_on_a_terminal_are_columns_of_the_fields_that_people_read() {
        let rows = || {
            vec![
                seen(HOUR, "10.0.0.1", 5, "TCP /a"),
                seen(HOUR + 1_500_000, "2001:db8:1:2:3:4:5:6", 1_000_000, "/a/long/text\x1b\n"),
                seen(25 * HOUR, "10.0.0.1", 5, ""),
            ]
        };
        let chain = || Chain::pieces(Type::Record, None, rows()).schema(&SEEN);
        let table = [("format", "table")];
        check(
            chain(),
            &table,
            &[
                "1970-01-01               src_ip:port                   proto  bytes_toserver  bytes_toclient  url",
                "01:00:00.000             10.0.0.1:40000                TCP                 5                  /a",
                "01:00:00.001             [2001:db8:1:2:3:4:5:6]:40000  TCP           1000000                  /a/long/text\\x1b\\n",
                "1970-01-02 01:00:00.000  10.0.0.1:40000                TCP                 5",
            ],
        );
        check(
            chain().terminal(70),
            &table,
            &[
                "1970-01-01               src_ip:port   proto  byt…ver  byt…nt  url",
                "01:00:00.000             10.0.0…40000  TCP          5          /a",
                "01:00:00.001             [2001:…40000  TCP    1000000          /a/lon…",
                "1970-01-02 01:00:00.000  10.0.0…40000  TCP          5",
            ],
        );
    }

    #[test]
    fn records_without_a_summary_show_all_fields() {
        let chain = Chain::pieces(Type::Record, None, vec![measure(5), measure(1000)]).schema(&MEASURE);
        check(chain, &[("format", "table")], &["proto  count", "UDP        5", "UDP     1000"]);
    }

    #[test]
    fn records_of_several_schemas_share_columns() {
        let rows = vec![seen(HOUR, "10.0.0.1", 5, "/a b"), measure(5), seen(HOUR, "10.0.0.2", 5, "/")];
        let chain = Chain::pieces(Type::Record, None, rows).schema(&SEEN).schema(&MEASURE);
        check(
            chain,
            &[("format", "table")],
            &[
                "1970-01-01    src_ip:port      proto  bytes_toserver  bytes_toclient  url",
                "01:00:00.000  10.0.0.1:40000   TCP                 5                  /a b",
                "1970-01-01    src_ip:port      dest_ip:port     type     fields",
                "                                                measure  proto=UDP count=5",
                "01:00:00.000  10.0.0.2:40000                    web      proto=TCP bytes_toserver=5 url=/",
            ],
        );
    }

    proptest! {
        /// No content of a frame can control a terminal.
        #[test]
        fn only_printable_characters_are_printed(
            link in prop_oneof![Just(1u16), Just(101), Just(113), Just(0), any::<u16>()],
            head in prop_oneof![Just(Vec::new()), Just(packets::udp(packets::CLIENT, packets::SERVER, b""))],
            tail in proptest::collection::vec(any::<u8>(), 0..80),
            hex in any::<bool>(),
        ) {
            let frames = [(0, [head, tail].concat())];
            let hex = if hex { "yes" } else { "no" };
            let stdout = Chain::frames(link, &frames).then(&KIND, &[("hex", hex)]).run().stdout;
            prop_assert!(stdout.chars().all(|one| one == '\n' || (' '..='~').contains(&one)), "{stdout:?}");
            prop_assert!(stdout.lines().count() == 1 || hex == "yes");
        }
    }
}
