//! Checks `http` on conversations, with their bytes cut into blocks in every way.

use filter::prelude::*;
use packet::flow::Flow;
use proptest::prelude::*;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use testkit::{Chain, Outcome};

/// A piece of a conversation.
#[derive(Clone, Debug)]
enum Turn {
    Say(u8, Vec<u8>),
    /// This many bytes are missing on this side.
    Gap(u8, u32),
}

fn client(text: impl AsRef<[u8]>) -> Turn {
    Turn::Say(0, text.as_ref().to_vec())
}

fn server(text: impl AsRef<[u8]>) -> Turn {
    Turn::Say(1, text.as_ref().to_vec())
}

/// The turns as blocks. Each turn's bytes are cut at `cuts`, which repeat.
fn blocks(turns: &[Turn], cuts: &[usize], ended: bool) -> Vec<(Descriptor, Vec<u8>)> {
    let mut cuts = cuts.iter().copied().cycle();
    let mut blocks = Vec::new();
    let mut begun = [false; 2];
    let mut push = |direction: u8, bytes: &[u8], gap: u32, mut flags: Flags| {
        if !std::mem::replace(&mut begun[usize::from(direction)], true) {
            flags = flags.with(Flags::FIRST);
        }
        let mut block = Descriptor { class: Class::of_stream(0, direction), time: 1_000, ..Descriptor::default() };
        block.set_wire(gap + bytes.len() as u32);
        block.set_flags(if gap > 0 { flags.with(Flags::GAP_BEFORE) } else { flags });
        blocks.push((block, bytes.to_vec()));
    };
    for turn in turns {
        match turn {
            Turn::Gap(direction, gap) => push(*direction, b"", *gap, Flags::NONE),
            Turn::Say(direction, bytes) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
                    push(*direction, now, 0, Flags::NONE);
                    rest = later;
                }
            }
        }
    }
    for direction in [0, 1] {
        push(direction, b"", 0, if ended { Flags::LAST } else { Flags::LAST.with(Flags::TRUNCATED) });
    }
    blocks
}

fn facts(state: StreamState) -> StreamFacts {
    let [source, target] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    let flow = Flow { source, target, source_port: 40_000, target_port: 80, protocol: 6 };
    StreamFacts::new(flow, 0, state)
}

fn run(blocks: Vec<(Descriptor, Vec<u8>)>, state: StreamState, params: &[(&str, &str)]) -> Outcome {
    Chain::pieces(Type::Bytes, Some(1), blocks).streams(&[facts(state)]).then(&filters::http::KIND, params).run()
}

/// A message in the output: `method url` or `status method url`, body, missing bytes, whether its end is missing.
type Message = (String, Body, u32, bool);

/// A body, shortened when printed.
#[derive(Clone, Default, PartialEq)]
struct Body(Vec<u8>);

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes {:?}", self.0.len(), self.0[..self.0.len().min(40)].escape_ascii().to_string())
    }
}

fn messages(outcome: &Outcome) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut open: [Option<usize>; 2] = [None; 2];
    for block in &outcome.blocks {
        let direction = usize::from(block.descriptor.class.direction());
        if block.descriptor.has(Flags::META) {
            assert!(block.descriptor.has(Flags::FIRST) && open[direction].is_none(), "a message begins in another");
            let row = Row::new(filters::http::KIND.schema.unwrap(), &block.bytes).expect("a row");
            let text = |name: &str| String::from_utf8_lossy(row.text(name).unwrap_or(b"?")).into_owned();
            assert_eq!(row.number("src_port"), Some(if direction == 0 { 40_000 } else { 80 }));
            let mut name = format!("{} {}", text("http.http_method"), text("http.url"));
            if text("http.direction") == "response" {
                name = format!("{} {name}", row.number("http.status").unwrap_or(0));
            }
            open[direction] = Some(messages.len());
            messages.push((name, Body::default(), 0, false));
        }
        let message = &mut messages[open[direction].expect("a block outside of a message")];
        if !block.descriptor.has(Flags::META) {
            message.1.0.extend_from_slice(&block.bytes);
            message.2 += block.descriptor.gap();
        }
        if block.descriptor.has(Flags::LAST) {
            message.3 = block.descriptor.has(Flags::TRUNCATED);
            open[direction] = None;
        }
    }
    assert_eq!(open, [None; 2], "a message without an end");
    messages
}

fn expected(rows: &[(&str, &[u8], u32, bool)]) -> Vec<Message> {
    rows.iter().map(|(name, body, gap, cut)| (name.to_string(), Body(body.to_vec()), *gap, *cut)).collect()
}

/// Checks with every turn whole, cut into single bytes, and cut in two at every place.
fn check(turns: &[Turn], rows: &[(&str, &[u8], u32, bool)]) {
    check_with(turns, StreamState::Established, &[], rows);
}

fn check_with(turns: &[Turn], state: StreamState, params: &[(&str, &str)], rows: &[(&str, &[u8], u32, bool)]) {
    let longest = turns.iter().map(|turn| if let Turn::Say(_, bytes) = turn { bytes.len() } else { 0 }).max();
    let longest = longest.unwrap_or(0);
    let step = (longest / 300).max(1);
    for cut in (0..longest).step_by(step) {
        let cuts = [if cut == 0 { usize::MAX } else { cut }, usize::MAX];
        let outcome = run(blocks(turns, &cuts, true), state, params);
        assert_eq!(messages(&outcome), expected(rows), "cut at {cut}");
    }
    for size in [1, 7] {
        let outcome = run(blocks(turns, &[size], true), state, params);
        assert_eq!(messages(&outcome), expected(rows), "blocks of {size}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Brotli with uncompressed metablocks (RFC 7932 section 9.2) of at most 16 KiB each.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    // WBITS 16 is one bit 0; then ISLAST 0, MNIBBLES 00 (four), MLEN - 1 in 16 bits, ISUNCOMPRESSED 1, padding.
    for (index, piece) in bytes.chunks(1 << 14).enumerate() {
        let shift = u32::from(index == 0);
        let head = ((piece.len() as u32 - 1) << 3 | 1 << 19) << shift;
        coded.extend_from_slice(&head.to_le_bytes()[..3]);
        coded.extend_from_slice(piece);
    }
    // ISLAST 1, ISLASTEMPTY 1 (directly after WBITS if the body is empty).
    coded.push(if bytes.is_empty() { 0b110 } else { 0b11 });
    coded
}

fn chunked(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for chunk in bytes.chunks(size) {
        text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        text.extend_from_slice(chunk);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

fn response(fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes(), body].concat()
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n";

#[test]
fn requests_and_responses() {
    check(
        &[
            client("POST /form HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\na=b&c"),
            server("HTTP/1.1 100 Continue\r\n\r\n"),
            server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
            client("\r\nHEAD /x HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\n\r\nGET /z HTTP/1.0\r\n\r\n"),
            server(
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            ),
            server("HTTP/1.0 200 OK\r\n\r\nup to the end"),
        ],
        &[
            ("POST /form", b"a=b&c", 0, false),
            ("100 POST /form", b"", 0, false),
            ("200 POST /form", b"hello", 0, false),
            ("HEAD /x", b"", 0, false),
            ("GET /y", b"", 0, false),
            ("GET /z", b"", 0, false),
            ("200 HEAD /x", b"", 0, false),
            ("304 GET /y", b"", 0, false),
            ("200 GET /z", b"up to the end", 0, false),
        ],
    );
}

#[test]
fn heads_as_they_are_met() {
    let rows = [
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n \nok",
        "HTTP/1.1 200 OK\r\nServer: x\n\t\nok",
        "HTTP/1.1 200 OK\r\nServer: x\r\n\r\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n1;x=y\no\n1\nk\n0\nX-Trailer: y\n\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: identity, Chunked ; q=1\r\n\r\n02\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n Transfer-Encoding: chunked\r\n\r\nok",
        " \t\r\0HTTP/1.1 200 OK\rContent-Length: 2\r\r\n\r\nok",
        "HHTTP/1.1\t200\r\n\r\nok",
        "ICY 200 OK\r\nicy-name: x\r\n\r\nok",
        "SIP/2.0 200 ok\r\nHTTP/1.1 200 ok\r\nContent-Length: 2\r\n\r\nok",
    ];
    for row in rows {
        check(&[client(GET), server(row)], &[("GET /a", b"", 0, false), ("200 GET /a", b"ok", 0, false)]);
    }
}

/// The values of the records that these turns become; `-`: the record lacks it.
fn values(turns: &[Turn], names: &[&str]) -> Vec<String> {
    let outcome = run(blocks(turns, &[usize::MAX], true), StreamState::Established, &[]);
    let heads = outcome.blocks.iter().filter(|block| block.descriptor.has(Flags::META));
    let text = |bytes: &[u8]| {
        let row = Row::new(filters::http::KIND.schema.unwrap(), bytes).expect("a row");
        let value = |name: &&str| String::from_utf8_lossy(row.text(name).unwrap_or(b"-")).into_owned();
        names.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    heads.map(|block| text(&block.bytes)).collect()
}

/// A value that a gap or the snap length cuts was given as if it were whole.
#[test]
fn a_cut_value_is_named_and_left_out() {
    let names = ["http.http_method", "http.url", "http.hostname", "http.http_user_agent", "http.cut"];
    let rows = [
        ("GET /lon", "GET - - - url"),
        ("POST http://a/x", "POST - - - url"),
        ("GET /a HTT", "GET /a - - protocol"),
        ("GET /a HTTP/1.1\r\n", "GET /a - - head"),
        ("GET /a HTTP/1.1\r\nHo", "GET /a - - head"),
        ("GET /a HTTP/1.1\r\nHost: exam", "GET /a - - hostname"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: Mo", "GET /a a - http_user_agent"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nUser-Agent: M\r\nAccept: x", "GET /a a M head"),
    ];
    for (text, expected) in rows {
        for last in [vec![], vec![Turn::Gap(0, 100), client("the rest")]] {
            let turns = [vec![client(text)], last].concat();
            assert_eq!(values(&turns, &names), [expected], "{text:?}");
        }
        // A response answers a request whose value is cut, and does not have the value either.
        let turns = [client(text), Turn::Gap(0, 100), server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")];
        let both = values(&turns, &["http.http_method", "http.url", "http.direction"]);
        assert_eq!(both.len(), 2, "{text:?}");
    }
    let rows = [
        ("HTTP/1.1 20", "HTTP/1.1 status"),
        ("HTTP/1.1 200 O", "HTTP/1.1 head"),
        ("HTTP/1.1 200 OK\r\nServer: x", "HTTP/1.1 head"),
    ];
    for (text, expected) in rows {
        let found = values(&[client(GET), server(text)], &["http.protocol", "http.cut"]);
        assert_eq!(found[1], expected, "{text:?}");
    }
    // Other text is none of HTTP.
    for text in ["USER /anonymous", "RETR /file", "GET ", "HTTP/1.1"] {
        assert_eq!(values(&[client(text)], &names), [""; 0], "{text:?}");
    }
}

#[test]
fn a_record_says_why_clients_disagree() {
    let rows = [
        ("200 OK\r\nContent-Length: 2", "-"),
        ("200 OK\r\nContent-Length: 2\r\nContent-Length: 2", "-"),
        ("200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip", "-"),
        ("304 Same\r\nContent-Length: 2", "-"),
        ("200 OK\r\nContent-Length: 2\r\nContent-Length: 3", "length"),
        ("200 OK\r\nContent-Length: 2x", "length"),
        ("200 OK\r\nTransfer-Encoding : chunked", "transfer coding"),
        ("200 OK\r\nTransfer-Encoding:\r\n chunked", "transfer coding"),
        ("200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2", "transfer coding"),
        ("200 OK\r\nContent-Encoding: gzip, gzip", "content coding"),
        ("200 OK\r\nContent-Encoding: x\r\nContent-Length: two", "length, content coding"),
        ("204 None\r\nContent-Length: 2", "body of this status"),
    ];
    for (head, expected) in rows {
        let head = format!("HTTP/1.1 {head}\r\n\r\n");
        assert_eq!(values(&[client(GET), server(&head)], &["http.ambiguous"]), ["-", expected], "{head:?}");
    }
}

/// libhtp and browsers take the first bytes of a server that begin no response for the body of one.
#[test]
fn a_response_of_http_0_9_is_its_body() {
    for body in ["ok", "<html>\r\nHTTP/1.1 is not this\r\n", "no line end", "a\n\nb"] {
        check(&[client(GET), server(body)], &[("GET /a", b"", 0, false), ("0 GET /a", body.as_bytes(), 0, false)]);
    }
    let cut = [client(GET), server("<html>"), Turn::Gap(1, 9), server("</html>")];
    check(&cut, &[("GET /a", b"", 0, false), ("0 GET /a", b"<html></html>", 9, false)]);
}

#[test]
fn codings() {
    let text: Vec<u8> = (0..2000u32).flat_map(|n| format!("line {}\n", n % 37).into_bytes()).collect();
    let crooked = {
        // A header with extra field, name, comment and checksum, then a second member with bytes behind it.
        let plain = gzip(&text[..500]);
        let mut coded = vec![0x1f, 0x8b, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 3, 3, 0, 1, 2, 3];
        coded.extend_from_slice(b"name\0comment\0hc");
        coded.extend_from_slice(&plain[10..]);
        coded.extend_from_slice(&gzip(&text[500..]));
        coded.extend_from_slice(b"behind");
        coded
    };
    let rows: [(&str, Vec<u8>); 15] = [
        ("Content-Encoding: gzip", gzip(&text)),
        ("Content-Encoding: gzip, gzip, deflate, gzip, gzip", gzip(&gzip(&deflate(&gzip(&gzip(&text)))))),
        ("Content-Encoding: X-GZip", crooked),
        ("Content-Encoding: deflate", zlib(&text)),
        ("Content-Encoding: deflate", deflate(&text)),
        ("Content-Encoding: br", brotli(&text)),
        ("Content-Encoding: gzip, br", brotli(&gzip(&text))),
        ("Content-Encoding: br\r\nContent-Encoding: deflate", zlib(&brotli(&text))),
        ("Content-Encoding: gzip, gzip, deflate", deflate(&gzip(&gzip(&text)))),
        ("Content-Encoding: gzip", text.clone()),
        ("Content-Encoding: gzip, gzip", gzip(&text)),
        ("Content-Encoding: deflate", gzip(&text)),
        ("Content-Encoding: x gzip", text.clone()),
        ("Content-Encoding: identity", text.clone()),
        ("Content-Encoding: unheard-of, gzip", gzip(&text)),
    ];
    let answer: &[(&str, &[u8], u32, bool)] = &[("GET /a", b"", 0, false), ("200 GET /a", &text, 0, false)];
    for (fields, coded) in rows {
        let length = format!("{fields}\r\nContent-Length: {}", coded.len());
        check(&[client(GET), server(response(&length, &coded))], answer);
        let chunks = format!("{fields}\r\nTransfer-Encoding: chunked");
        check(&[client(GET), server(response(&chunks, &chunked(&coded, 61)))], answer);
        check(&[client(GET), server(response(fields, &coded))], answer);
    }
    let both = "Content-Encoding: br\r\nTransfer-Encoding: gzip, chunked";
    check(&[client(GET), server(response(both, &chunked(&gzip(&brotli(&text)), 1000)))], answer);
    let coded = gzip(&text);
    check_with(
        &[client(GET), server(response(both, &chunked(&gzip(&coded), 1000)))],
        StreamState::Established,
        &[("decode", "no")],
        &[("GET /a", b"", 0, false), ("200 GET /a", &coded, 0, false)],
    );
}

/// Frames one after the other, with one to skip between them; within another coding; not coded at all.
#[test]
fn zstandard_was_no_known_coding() {
    let text: Vec<u8> = (0..200u32).flat_map(|n| format!("line {}\n", n % 37).into_bytes()).collect();
    let zstd = |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    let framed = [zstd(&text[..900]), b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(&text[900..])].concat();
    let rows = [("zstd", framed), ("gzip, zstd", zstd(&gzip(&text))), ("zstd", text.clone())];
    let answer: &[(&str, &[u8], u32, bool)] = &[("GET /a", b"", 0, false), ("200 GET /a", &text, 0, false)];
    for (coding, coded) in rows {
        let length = format!("Content-Encoding: {coding}\r\nContent-Length: {}", coded.len());
        let turns = [client(GET), server(response(&length, &coded))];
        for size in [1, 7, 100, usize::MAX] {
            let outcome = run(blocks(&turns, &[size], true), StreamState::Established, &[]);
            assert_eq!(messages(&outcome), expected(answer), "{coding}, blocks of {size}");
        }
    }
}

#[test]
fn coded_bytes_that_end_early() {
    let text: Vec<u8> = (0..5000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for (name, coded) in [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("br", brotli(&text))] {
        let head = format!("Content-Encoding: {name}\r\nContent-Length: {}", coded.len());
        let half = response(&head, &coded[..coded.len() / 2]);
        let found =
            messages(&run(blocks(&[client(GET), server(&half)], &[usize::MAX], true), StreamState::Established, &[]));
        let (_, Body(body), _, cut) = &found[1];
        assert!(*cut && body.len() > text.len() / 4 && text.starts_with(body), "{name}: {} bytes", body.len());
        let mut damaged = response(&head, &coded);
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xff);
        let found = messages(&run(
            blocks(&[client(GET), server(&damaged)], &[usize::MAX], true),
            StreamState::Established,
            &[],
        ));
        assert_eq!(found.len(), 2, "{name}");
    }
}

#[test]
fn ends_that_are_missing() {
    let get: (&str, &[u8], u32, bool) = ("GET /a", b"", 0, false);
    let rows: [(&str, &[u8], bool); 6] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"short", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort", b"short", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", b"short", true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\n", b"short", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nwrong", b"short", true),
        ("HTTP/1.1 200 OK\r\nContent-Le", b"", true),
    ];
    for (text, body, cut) in rows {
        check(&[client(GET), server(text)], &[get, ("200 GET /a", body, 0, cut)]);
    }
    let open = [client(GET), server("HTTP/1.1 200 OK\r\n\r\nno end")];
    let found = messages(&run(blocks(&open, &[usize::MAX], false), StreamState::Established, &[]));
    assert_eq!(found, expected(&[get, ("200 GET /a", b"no end", 0, true)]));
    // The same without the final block that has the flag LAST.
    let mut unended = blocks(&open, &[usize::MAX], false);
    unended.truncate(unended.len() - 2);
    let found = messages(&run(unended, StreamState::Established, &[]));
    assert_eq!(found, expected(&[get, ("200 GET /a", b"no end", 0, true)]));
}

#[test]
fn what_cannot_be_framed_is_searched_for_the_next_message() {
    check(
        &[
            client(
                "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
            ),
            client("POST /c HTTP/1.1\r\nContent-Length: -1\r\n\r\nGET /d HTTP/1.1\r\n\r\n\0\0\0\0"),
        ],
        &[("POST /a", b"", 0, true), ("GET /b", b"", 0, false), ("POST /c", b"", 0, false), ("GET /d", b"", 0, false)],
    );
}

#[test]
fn gaps() {
    let get: (&str, &[u8], u32, bool) = ("GET /a", b"", 0, false);
    let next: (&str, &[u8], u32, bool) = ("200 ? ?", b"ok", 0, false);
    let again = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123";
    // Inside a body of known length, at its end, beyond it.
    let inside = [client(GET), server(length), Turn::Gap(1, 4), server("89"), server(again)];
    check(&inside, &[get, ("200 GET /a", b"012389", 4, false), next]);
    let at_end = [client(GET), server(length), Turn::Gap(1, 6), server(again)];
    check(&at_end, &[get, ("200 GET /a", b"0123", 6, false), next]);
    let beyond = [client(GET), server(length), Turn::Gap(1, 60), server("lost\r\n"), server(again)];
    check(&beyond, &[get, ("200 GET /a", b"0123", 6, false), next]);
    // Inside chunks, and between them.
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123";
    let inside = [client(GET), server(chunks), Turn::Gap(1, 4), server("89\r\n0\r\n\r\n"), server(again)];
    check(&inside, &[get, ("200 GET /a", b"012389", 4, false), next]);
    let beyond = [client(GET), server(chunks), Turn::Gap(1, 9), server("\r\n0\r\n\r\n"), server(again)];
    check(&beyond, &[get, ("200 GET /a", b"0123", 0, true), next]);
    // In a head, before the first message, and in a coded body.
    let head = [
        client(GET),
        server("HTTP/1.1 200 OK\r\nContent-Le"),
        Turn::Gap(1, 4),
        server(": 5\r\n\r\nxxxxx"),
        server(again),
    ];
    let found = messages(&run(blocks(&head, &[usize::MAX], true), StreamState::Established, &[]));
    assert_eq!(found, expected(&[get, ("200 GET /a", b"", 0, true), next]), "the next begins with a segment");
    let first = [Turn::Gap(1, 4), server("t of it\r\n\r\n"), server(again)];
    check(&first, &[next]);
    let coded = response("Content-Encoding: gzip\r\nContent-Length: 1000", &gzip(b"text"));
    let left = 1000 - gzip(b"text").len() as u32;
    check(
        &[client(GET), server(coded), Turn::Gap(1, left), server(again)],
        &[get, ("200 GET /a", b"text", 0, true), next],
    );
    // A gap longer than one block can express.
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 33554434\r\n\r\na";
    let turns = [
        client(GET),
        server(long),
        Turn::Gap(1, (1 << 24) - 1),
        Turn::Gap(1, (1 << 24) - 1),
        Turn::Gap(1, 2),
        server("z"),
    ];
    check(&turns, &[get, ("200 GET /a", b"az", 1 << 25, false)]);
}

/// After a gap a message may begin at the start of any segment, whatever the bytes before it were.
#[test]
fn after_a_gap_a_message_may_begin_with_any_segment() {
    let get: (&str, &[u8], u32, bool) = ("GET /a", b"", 0, false);
    let next: (&str, &[u8], u32, bool) = ("200 GET /a", b"ok", 0, false);
    let again = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for body in ["BODY", "a body of words", "HTTP/1.1", "-", "several\r\nlines"] {
        let turns = [client(GET), Turn::Gap(1, 40), server(body), server(again)];
        let found = messages(&run(blocks(&turns, &[usize::MAX], true), StreamState::Established, &[]));
        assert_eq!(found, expected(&[get, next]), "{body:?}");
    }
    // Only the start of a first line is no start of a message: its rest follows.
    let turns = [Turn::Gap(0, 4), client("GET /a "), client("HTTP/1.1\r\n\r\n")];
    let found = messages(&run(blocks(&turns, &[usize::MAX], true), StreamState::Established, &[]));
    assert_eq!(found, expected(&[get]));
}

/// `tcp` gives a response behind its request. So it answers the oldest open request, and behind missing responses the
/// newest.
#[test]
fn pairing_survives_what_is_missing() {
    let ask = |url: &str| client(format!("GET {url} HTTP/1.1\r\n\r\n"));
    let answer = || server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let lost_response = [ask("/1"), answer(), ask("/2"), Turn::Gap(1, 40), ask("/3"), answer(), ask("/4"), answer()];
    let lost_request = [ask("/1"), answer(), Turn::Gap(0, 20), answer(), ask("/3"), answer(), ask("/4"), answer()];
    let rows: [(&[Turn], [&str; 4]); 2] = [
        (&lost_response, ["200 GET /1", "200 GET /3", "200 GET /4", ""]),
        (&lost_request, ["200 GET /1", "200 ? ?", "200 GET /3", "200 GET /4"]),
    ];
    for (turns, answers) in rows {
        let found = messages(&run(blocks(turns, &[usize::MAX], true), StreamState::Established, &[]));
        let found: Vec<_> = found.iter().map(|it| &it.0[..]).filter(|name| name.starts_with("200")).collect();
        assert_eq!(found, answers.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>());
    }
}

#[test]
fn one_side_only() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    check(&[server(response), server(response)], &[("200 ? ?", b"ok", 0, false), ("200 ? ?", b"ok", 0, false)]);
    check(&[client(GET), client(GET)], &[("GET /a", b"", 0, false), ("GET /a", b"", 0, false)]);
    // The request of this response came before the capture began.
    let turns = [server(response), client(GET), server(response)];
    let rows: &[(&str, &[u8], u32, bool)] =
        &[("200 ? ?", b"ok", 0, false), ("GET /a", b"", 0, false), ("200 GET /a", b"ok", 0, false)];
    check_with(&turns, StreamState::Midstream, &[], rows);
}

/// The requests were not seen, so HEAD may have been among them. A response to HEAD has no body, whatever its head
/// says; the next response follows directly.
#[test]
fn a_body_that_begins_as_a_response_is_the_next_one() {
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let ok: (&str, &[u8], u32, bool) = ("200 ? ?", b"ok", 0, false);
    let none: (&str, &[u8], u32, bool) = ("200 ? ?", b"", 0, false);
    for fields in ["Content-Length: 5000", "Transfer-Encoding: chunked", "Server: x", "Content-Encoding: gzip"] {
        check(&[server(response(fields, b"")), server(next)], &[none, ok]);
        check(&[server(response(fields, b"")), server(response(fields, b"")), server(next)], &[none, none, ok]);
    }
    for status in ["103 Early", "204 None", "304 Same"] {
        let row = (&format!("{} ? ?", &status[..3])[..], &b""[..], 0, false);
        check(&[server(format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n")), server(next)], &[row, ok]);
    }
    // Bytes that only begin like a response are a body, with any framing and any end of the body.
    for body in ["H", "HTT", "HTTP/1.", "HTTP/1.1 2", "HTTP/1.1 is old", "HTTP/2 200 OK", "http/1.1 200 OK"] {
        let row = ("200 ? ?", body.as_bytes(), 0, false);
        let length = format!("Content-Length: {}", body.len());
        check(&[server(response(&length, body.as_bytes())), server(next)], &[row, ok]);
        check(
            &[server(response("Transfer-Encoding: chunked", &chunked(body.as_bytes(), 3))), server(next)],
            &[row, ok],
        );
        check(&[server(response("Server: x", body.as_bytes()))], &[row]);
        let coded = format!("Content-Encoding: gzip\r\n{length}");
        check(&[server(response(&coded, body.as_bytes())), server(next)], &[row, ok]);
    }
    let text = "HTTP/1.1 200";
    let cut: (&str, &[u8], u32, bool) = ("200 ? ?", b"HTTP/1.1", 5, false);
    let gap = [server(response("Content-Length: 13", &text.as_bytes()[..8])), Turn::Gap(1, 5), server(next)];
    check(&gap, &[cut, ok]);
    // A request that was seen decides whether there is a body.
    let length = format!("Content-Length: {}", next.len());
    let turns = [client(GET), server(response(&length, next.as_bytes()))];
    check(&turns, &[("GET /a", b"", 0, false), ("200 GET /a", next.as_bytes(), 0, false)]);
    let coded = gzip(next.as_bytes());
    let turns = [server(response(&format!("Content-Encoding: gzip\r\nContent-Length: {}", coded.len()), &coded))];
    check(&turns, &[("200 ? ?", next.as_bytes(), 0, false)]);
}

#[test]
fn through_a_socks_proxy() {
    let turns = [
        client(b"\x05\x02\x00\x01"),
        server(b"\x05\x00"),
        client(b"\x05\x01\x00\x01\x5d\xb8\xd8\x77\x00\x50"),
        server(b"\x05\x00\x00\x01\x0a\xb4\x9c\xf9\xdf\xb4"),
        client(GET),
        server("HTTP/1.1 200 OK\r\n\r\nok"),
    ];
    check(&turns, &[("GET /a", b"", 0, false), ("200 GET /a", b"ok", 0, false)]);
}

#[test]
fn behind_the_header_of_a_proxy() {
    let answer = || server("HTTP/1.1 200 OK\r\n\r\nok");
    for header in [
        &b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 80\r\n"[..],
        b"PROXY UNKNOWN\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x9c\x40\0\x50",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ] {
        let together = client([header, GET.as_ref()].concat());
        // A proxy sends its header at once.
        for turns in [&[together, answer()][..], &[client(header), client(GET), answer()]] {
            let outcome = run(blocks(turns, &[usize::MAX], true), StreamState::Established, &[]);
            assert_eq!(messages(&outcome), expected(&[("GET /a", b"", 0, false), ("200 GET /a", b"ok", 0, false)]));
        }
    }
    // A method that begins alike.
    let turns = [client("PROPFIND /a HTTP/1.1\r\n\r\n"), server("HTTP/1.1 200 OK\r\n\r\nok")];
    check(&turns, &[("PROPFIND /a", b"", 0, false), ("200 PROPFIND /a", b"ok", 0, false)]);
}

#[test]
fn tunnels_and_upgrades() {
    check(
        &[
            client("CONNECT b.example:443 HTTP/1.1\r\n\r\n"),
            server("HTTP/1.1 407 Authenticate\r\nContent-Length: 2\r\n\r\nno"),
            client("CONNECT b.example:443 HTTP/1.1\r\n\r\n"),
            server("HTTP/1.1 200 Established\r\n\r\n"),
            client("\x16\x03\x01GET /inside HTTP/1.1\r\n\r\n"),
            server("HTTP/1.1 200 OK\r\n\r\ninside"),
        ],
        &[
            ("CONNECT b.example:443", b"", 0, false),
            ("407 CONNECT b.example:443", b"no", 0, false),
            ("CONNECT b.example:443", b"", 0, false),
            ("200 CONNECT b.example:443", b"", 0, false),
        ],
    );
    check(
        &[
            client("GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
            server("HTTP/1.1 101 Switching Protocols\r\n\r\n\x01\x05hello"),
            client(b"\x81\x85GET / HTTP/1.1\r\n\r\n"),
        ],
        &[("GET /chat", b"", 0, false), ("101 GET /chat", b"", 0, false)],
    );
    // The answer came before the end of the request's body.
    check(
        &[
            client("POST /up HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"),
            server("HTTP/1.1 101 Switching Protocols\r\n\r\nraw"),
            client("cdGET / HTTP/1.1\r\n\r\n"),
        ],
        &[("POST /up", b"abcd", 0, false), ("101 POST /up", b"", 0, false)],
    );
}

#[test]
fn what_is_not_http_is_rejected() {
    let rows: [&[u8]; 7] = [
        b"\x16\x03\x01\x02\x00\x01",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"EHLO a.example\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"INVITE sip:a@b SIP/2.0\r\nHost: x\r\n\r\n",
        b"GET /\r\n",
        b"220 ready\r\nGET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in rows {
        let turns = [client(bytes), server("HTTPS?"), client("GET / HTTP/1.1\r\n\r\n"), server(vec![0; 5000])];
        let outcome = run(blocks(&turns, &[usize::MAX], true), StreamState::Established, &[]);
        assert_eq!(messages(&outcome), [], "{bytes:?}");
        let counters = outcome.counters("http");
        assert_eq!((counters.blocks_in, counters.blocks_rejected), (6, 6), "{bytes:?}");
    }
    // After joining midway, the next start line is found if it is near.
    let found = [("GET /a", &b""[..], 0, false)];
    check_with(&[client("dle of it\r\n"), client(GET)], StreamState::Midstream, &[], &found);
    let far = [client(vec![b'x'; 100_000]), client("\r\n"), client(GET)];
    assert_eq!(messages(&run(blocks(&far, &[usize::MAX], true), StreamState::Midstream, &[])), []);
}

#[test]
fn a_stream_that_begins_again_or_without_its_beginning() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    let mut twice = blocks(&[server(response)], &[usize::MAX], true);
    twice.truncate(1);
    twice.extend(blocks(&[server(response)], &[usize::MAX], true));
    let one = ("200 ? ?", &b"ok"[..], 0, true);
    assert_eq!(messages(&run(twice, StreamState::Established, &[])), expected(&[one, one]));
    let mut joined = blocks(&[server("the middle\r\n"), server(response)], &[usize::MAX], true);
    joined[0].0.set_flags(Flags::NONE);
    assert_eq!(messages(&run(joined, StreamState::Established, &[])), expected(&[one]));
}

#[test]
fn bodies_are_not_copied() {
    let body = vec![7; 100_000];
    let plain = response("Content-Length: 100000", &body);
    let chunks = response("Transfer-Encoding: chunked", &chunked(&body, 5000));
    let turns = [client(GET), client(GET), server(plain), server(chunks)];
    let outcome = run(blocks(&turns, &[1460], true), StreamState::Established, &[]);
    assert_eq!(
        messages(&outcome).iter().map(|message| message.1.0.len()).collect::<Vec<_>>(),
        [0, 0, 100_000, 100_000]
    );
    let bodies = outcome.blocks.iter().filter(|block| !block.descriptor.has(Flags::META));
    assert!(bodies.into_iter().all(|block| block.from_source));
}

/// Coded bodies in segments on both sides in turns, longer than the decoder's buffer. The bytes of one batch are
/// decoded together, without waiting for the next batch.
#[test]
fn segments_of_coded_bodies_are_decoded_together() {
    let text: Vec<u8> = (0..100_000_u32).flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect();
    for (name, coded) in [("gzip", gzip(&text)), ("deflate", deflate(&text)), ("br", brotli(&text))] {
        let field = format!("Content-Encoding: {name}\r\n");
        let bodies = [
            response(&format!("{field}Content-Length: {}", coded.len()), &coded),
            response(&format!("{field}Transfer-Encoding: chunked"), &chunked(&coded, 5000)),
            response(&field[..field.len() - 2], &coded),
        ];
        for body in &bodies {
            let turns = [client(GET), server(body)];
            for size in [1448, 30_000, 40_000] {
                let outcome = run(blocks(&turns, &[size], true), StreamState::Established, &[]);
                let all = expected(&[("GET /a", b"", 0, false), ("200 GET /a", &text, 0, false)]);
                assert_eq!(messages(&outcome), all, "{name} in blocks of {size}");
                let decoded = outcome.blocks.iter().filter(|block| !block.from_source && block.bytes.len() > 1000);
                assert!(decoded.count() <= text.len().div_ceil(16 << 10), "{name} in blocks of {size}");
            }
            // A body cut short is given as far as it can be decoded.
            let half = &body[..body.len() / 2];
            let outcome = run(blocks(&[client(GET), server(half)], &[1448], false), StreamState::Established, &[]);
            let (_, Body(found), _, cut) = &messages(&outcome)[1];
            assert!(*cut && found.len() > text.len() / 3 && text.starts_with(found), "{name}: {} bytes", found.len());
        }
    }
}

#[test]
fn limits_are_counted() {
    let zeros = vec![0; 4 << 20];
    let events = |turns: &[Turn], params: &[(&str, &str)], event: &str| {
        let outcome = run(blocks(turns, &[60_000], true), StreamState::Established, params);
        (messages(&outcome), outcome.counters("http").events.get(event))
    };
    let bomb = gzip(&gzip(&zeros));
    let bomb = [client(GET), server(response("Content-Encoding: gzip, gzip", &bomb))];
    let (found, count) = events(&bomb, &[("decoded-max", "1M")], "bodies cut at decoded-max");
    assert_eq!((found[1].1.0.len(), found[1].3, count), (1 << 20, true, 1));
    assert_eq!(events(&bomb, &[("max-ratio", "100000")], "").0[1].1.0.len(), 4 << 20);

    let (found, count) = events(&bomb, &[("memory", "1k")], "bodies not decoded for want of memory");
    assert_eq!((found[1].1.0.len(), found[1].3, count), (0, true, 1));

    let long = format!("GET /long HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(400_000));
    let (found, count) = events(&[client(&long), client(GET)], &[], "heads too long");
    assert_eq!((found, count), (expected(&[("GET /long", b"", 0, true), ("GET /a", b"", 0, false)]), 1));
    let (found, count) =
        events(&[client(&long), client(GET)], &[("memory", "20k")], "heads not read for want of memory");
    assert_eq!((found.len(), count), (1, 1));
}

#[test]
fn a_bomb_is_sent_on_in_pieces() {
    let bomb = response("Content-Encoding: gzip", &gzip(&vec![0; 32 << 20]));
    let outcome = run(
        blocks(&[client(GET), server(bomb)], &[usize::MAX], true),
        StreamState::Established,
        &[("max-ratio", "2000")],
    );
    assert_eq!(messages(&outcome)[1].1.0.len(), 32 << 20);
    assert!(outcome.blocks.iter().all(|block| block.bytes.len() <= 64 << 10));
}

/// A random conversation and its expected messages.
fn conversation() -> impl Strategy<Value = (Vec<Turn>, Vec<Message>)> {
    let one = (0usize..7, proptest::collection::vec(any::<u8>(), 0..600), 1usize..90);
    proptest::collection::vec(one, 1..6).prop_map(|all| {
        let (mut turns, mut messages) = (Vec::new(), Vec::new());
        for (index, (how, body, size)) in all.iter().enumerate() {
            turns.push(client(format!("GET /{index} HTTP/1.1\r\n\r\n")));
            messages.push((format!("GET /{index}"), Body::default(), 0, false));
            let chunks = |coding: &str, coded: &[u8]| {
                response(&format!("{coding}Transfer-Encoding: chunked"), &chunked(coded, *size))
            };
            let length =
                |coding: &str, coded: &[u8]| response(&format!("{coding}Content-Length: {}", coded.len()), coded);
            turns.push(server(match how {
                0 | 1 => length("", body),
                2 => chunks("", body),
                3 => length("Content-Encoding: gzip\r\n", &gzip(body)),
                4 => chunks("Content-Encoding: deflate\r\n", &zlib(body)),
                5 => chunks("Content-Encoding: br\r\n", &brotli(body)),
                _ => chunks("Content-Encoding: gzip, deflate\r\n", &deflate(&gzip(body))),
            }));
            messages.push((format!("200 GET /{index}"), Body(body.clone()), 0, false));
        }
        (turns, messages)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same((turns, expected) in conversation(), cuts in proptest::collection::vec(1usize..700, 1..20)) {
        let outcome = run(blocks(&turns, &cuts, true), StreamState::Established, &[]);
        prop_assert_eq!(messages(&outcome), expected);
    }

    /// Damage and gaps anywhere: parsing ends, every message has an end, and cutting makes no difference.
    #[test]
    fn damage_is_survived(
        (mut turns, _) in conversation(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..8),
        gaps in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..2, 1u32..2000), 0..4),
        cuts in proptest::collection::vec(1usize..700, 1..20),
    ) {
        for (turn, at, byte) in damage {
            let turn = turn.index(turns.len());
            if let Turn::Say(_, bytes) = &mut turns[turn] {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        for (at, direction, gap) in gaps {
            let at = at.index(turns.len());
            turns.insert(at, Turn::Gap(direction, gap));
        }
        // How much of a damaged coding is decoded depends on how it is cut into blocks.
        let found = [&cuts[..], &[usize::MAX]].map(|cuts| {
            let outcome = run(blocks(&turns, cuts, true), StreamState::Established, &[]);
            let mut found = messages(&outcome);
            found.iter_mut().filter(|(.., cut)| *cut).for_each(|(_, body, ..)| *body = Body::default());
            (found, outcome.counters("http").events.get("bytes read over in search of a start line"))
        });
        // In a search, each block is a place where a message may begin.
        if found.iter().all(|(_, sought)| *sought == 0) {
            prop_assert_eq!(&found[0].0, &found[1].0);
        }
    }

    #[test]
    fn noise_is_survived(noise in proptest::collection::vec((0u8..2, proptest::collection::vec(any::<u8>(), 0..300)), 0..20)) {
        let mut turns = vec![client(GET), server("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")];
        turns.extend(noise.into_iter().map(|(direction, bytes)| Turn::Say(direction, bytes)));
        let line = ["HTTP/1.1 101 x\r\n\r\n", "CONNECT x HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "HTTP/1.1 200 x\r\n\r\n"];
        for (index, text) in line.into_iter().enumerate() {
            let at = turns.len().min(4 * index);
            turns.insert(at, if index == 1 { client(text) } else { server(text) });
        }
        messages(&run(blocks(&turns, &[97], true), StreamState::Established, &[]));
    }
}
