//! Tests the records that `transactions` makes from requests and responses.

use super::KIND;
use crate::parts::eve::eve_fields;
use crate::parts::handmade::{Piece, block, facts};
use filter::prelude::*;
use filter::record::{FieldValue, made_with_id, schema_id};
use std::net::{IpAddr, Ipv4Addr};
use testkit::Chain;
use testkit::chain::Outcome;

static ASKED: Schema = Schema::new(
    "asked",
    &eve_fields![
        Field::new("asked.type", FieldType::Text),
        Field::new("asked.id", FieldType::Number),
        Field::new("asked.text", FieldType::Text),
    ],
);

static WEB: Schema = Schema::new(
    "web",
    &eve_fields![
        Field::new("web.direction", FieldType::Text),
        Field::new("web.url", FieldType::Text),
        Field::new("web.status", FieldType::Number),
        Field::new("web.http_content_type", FieldType::Text),
    ],
);

fn row(schema: &'static Schema, flow: u64, ms: u64, direction: &str) -> RowWriter {
    let mut row = RowWriter::new(schema);
    let [client, server] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
    let is_request = direction == "request";
    let (from, to) = if is_request { (client, server) } else { (server, client) };
    row.time("timestamp", ms * 1_000_000).number("flow_id", flow).address("src_ip", from).address("dest_ip", to);
    let way = schema.fields.iter().find(|field| field.name.ends_with(".direction") || field.name.ends_with(".type"));
    row.text(way.unwrap().name, direction);
    row
}

fn at(ms: u64, piece: Piece) -> Piece {
    (Descriptor { time: ms * 1_000_000, ..piece.0 }, piece.1)
}

/// A record from (ms, flow, direction, id, text).
fn asked((ms, flow, direction, id, text): (u64, u64, &str, u64, &str)) -> Piece {
    let mut row = row(&ASKED, flow, ms, direction);
    row.number("asked.id", id);
    if !text.is_empty() {
        row.text("asked.text", text);
    }
    at(ms, block(u32::from(direction != "request"), Flags::NONE, row.row(), 0))
}

fn run(of: Type, schema: &'static Schema, pieces: Vec<Piece>, given: &[(&str, &str)]) -> Outcome {
    Chain::pieces(of, None, pieces).streams(&[facts(7, 17, 0); 1]).schema(schema).then(&KIND, given).run()
}

/// The records, as `name=value` of the fields that are set.
fn shown(outcome: &Outcome) -> Vec<String> {
    let rows = outcome.blocks.iter().map(|block| {
        let schema = made_with_id(schema_id(&block.bytes).unwrap()).unwrap();
        let row = Row::new(schema, &block.bytes).unwrap();
        let fields = schema.fields.iter().enumerate().filter_map(|(place, field)| {
            let value = match row.get(place)? {
                FieldValue::Time(ns) => (ns / 1_000_000).to_string(),
                FieldValue::Number(number) | FieldValue::Duration(number, _) => number.to_string(),
                FieldValue::Flag(flag) => flag.to_string(),
                FieldValue::Text(text) => String::from_utf8_lossy(text).into_owned(),
                FieldValue::Address(address) => address.to_string(),
                FieldValue::Rows(rows) => rows
                    .map(|row| {
                        let text = |name| String::from_utf8_lossy(row.text(name).unwrap_or_default()).into_owned();
                        let number = |name| row.number(name).unwrap();
                        let (size, missing) = (number("size"), number("missing"));
                        format!("[{} {size}+{missing} {}{}]", text("direction"), text("state"), text("sha256"))
                    })
                    .collect(),
            };
            let hidden = ["flow_id", "src_ip"].contains(&field.name);
            (!hidden).then(|| format!("{}={value}", field.name))
        });
        fields.collect::<Vec<_>>().join(" ")
    });
    rows.collect()
}

fn check_records(records: &[(u64, u64, &str, u64, &str)], expected: &[&str]) -> Outcome {
    let outcome = run(Type::Record, &ASKED, records.iter().map(|record| asked(*record)).collect(), &[]);
    assert_eq!(shown(&outcome), expected, "{records:?}");
    outcome
}

#[test]
fn records() {
    let pair = "timestamp=1 dest_ip=10.0.0.2 answered=true latency_us=4000 asked.id=7 asked.text=b";
    check_records(&[(1, 5, "request", 7, "a"), (5, 5, "response", 7, "b")], &[pair]);
    // A field missing in the response is taken from the request.
    check_records(&[(1, 5, "request", 7, "b"), (5, 5, "response", 7, "")], &[pair]);
    let alone = "timestamp=1 dest_ip=10.0.0.2 answered=false asked.id=7 asked.text=a";
    let outcome = check_records(&[(1, 5, "request", 7, "a")], &[alone]);
    assert_eq!(outcome.counters("transactions").events.get("requests without a response"), 1);
    // A response alone: its receiver is taken as the requester.
    check_records(
        &[(5, 5, "response", 7, "b")],
        &["timestamp=5 dest_ip=10.0.0.2 answered=true asked.id=7 asked.text=b"],
    );
    // Matched by id, in any order.
    check_records(
        &[(1, 5, "request", 7, "a"), (2, 5, "request", 8, "c"), (5, 5, "response", 8, "d"), (6, 5, "response", 7, "b")],
        &[
            "timestamp=2 dest_ip=10.0.0.2 answered=true latency_us=3000 asked.id=8 asked.text=d",
            "timestamp=1 dest_ip=10.0.0.2 answered=true latency_us=5000 asked.id=7 asked.text=b",
        ],
    );
    // The class is reused by another connection.
    check_records(
        &[(1, 5, "request", 7, "a"), (2, 6, "request", 7, "c"), (3, 6, "response", 7, "d")],
        &[alone, "timestamp=2 dest_ip=10.0.0.2 answered=true latency_us=1000 asked.id=7 asked.text=d"],
    );
}

#[test]
fn a_request_waits_for_its_timeout_only() {
    // The clock follows the blocks' times, by at most one second per batch.
    let records: Vec<_> = (0..640).map(|step| asked((step * 1000, 5, "request", step, ""))).collect();
    let outcome = run(Type::Record, &ASKED, records, &[("timeout", "2s")]);
    assert_eq!(outcome.blocks.len(), 640);
    assert!(shown(&outcome)[0].starts_with("timestamp=0 "));
    // It was given at its timeout. At the end of the input it would get the time of its request.
    let given = outcome.blocks[0].descriptor.time;
    assert!((2_000_000_000..10_000_000_000).contains(&given), "{given}");
}

#[test]
fn a_request_that_waits_anew_keeps_no_other_from_its_timeout() {
    let of = |ms, flow: u32, direction, id| {
        let (at, bytes) = asked((ms, u64::from(flow), direction, id, ""));
        (Descriptor { class: Class::of_stream(flow, at.class.direction()), ..at }, bytes)
    };
    // The first connection is due again at 3.9 s, the second one at 2.2 s.
    // The records of the third connection move the clock and keep the other two in batches of their own.
    let records = (0..6000).map(|ms| match ms {
        0 => of(ms, 0, "request", 1),
        100 => of(ms, 1, "request", 2),
        200 => of(ms, 1, "request", 3),
        1900 => of(ms, 0, "request", 4),
        _ => of(ms, 2, "response", 9),
    });
    let records = records.collect();
    let facts = [facts(7, 17, 0), facts(8, 17, 0), facts(9, 17, 0)];
    let chain = Chain::pieces(Type::Record, None, records).streams(&facts).schema(&ASKED);
    let outcome = chain.then(&KIND, &[("timeout", "2s")]).run();
    let place = shown(&outcome).iter().position(|record| record.contains("asked.id=3")).unwrap();
    let given = outcome.blocks[place].descriptor.time;
    assert!((2_200_000_000..3_500_000_000).contains(&given), "{given}");
}

#[test]
fn requests_that_wait_are_bounded() {
    let count = base::limits::TRANSACTIONS_WAITING as u64 + 10;
    let records: Vec<_> = (0..count).map(|id| asked((id, 5, "request", id, "x"))).collect();
    let outcome = run(Type::Record, &ASKED, records, &[("timeout", "1h")]);
    assert_eq!(outcome.blocks.len() as u64, count);
    assert_eq!(outcome.counters("transactions").events.get("requests with too many others waiting behind them"), 10);
}

fn web(ms: u64, direction: &str, url: &str, status: u64, flags: Flags) -> Piece {
    let mut row = row(&WEB, 5, ms, direction);
    row.text("web.http_content_type", format!("type/{direction}"));
    if !url.is_empty() {
        row.text("web.url", url);
    }
    if status > 0 {
        row.number("web.status", status);
    }
    let flags = flags.with(Flags::META).with(Flags::FIRST);
    at(ms, block(u32::from(direction != "request"), flags, row.row(), 0))
}

#[test]
fn messages() {
    let part = |ms, class, flags, bytes: &[u8], gap| at(ms, block(class, flags, bytes, gap));
    let check = |pieces: Vec<Piece>, expected: &[&str]| {
        assert_eq!(shown(&run(Type::Message, &WEB, pieces, &[])), expected);
    };
    let begin = "timestamp=1 dest_ip=10.0.0.2";
    check(
        vec![
            web(1, "request", "/a", 0, Flags::LAST),
            web(2, "request", "/b", 0, Flags::LAST),
            web(4, "response", "/a", 200, Flags::NONE),
            part(5, 1, Flags::NONE, b"abc", 0),
            part(6, 1, Flags::LAST.with(Flags::GAP_BEFORE), b"def", 10),
            web(7, "response", "/b", 204, Flags::LAST),
        ],
        &[
            &format!(
                "{begin} answered=true latency_us=3000 web.url=/a web.status=200 web.http_content_type=type/response \
                 web.length=6 web.request_length=0 web.state=gap files=[to_client 6+10 gap]"
            ),
            "timestamp=2 dest_ip=10.0.0.2 answered=true latency_us=5000 web.url=/b web.status=204 \
             web.http_content_type=type/response web.length=0 web.request_length=0 web.state=complete",
        ],
    );
    // Answered while the request was still being sent. The rest of it is not counted, and its end is missing.
    check(
        vec![
            web(1, "request", "/a", 0, Flags::NONE),
            web(2, "response", "/a", 100, Flags::LAST),
            part(2, 0, Flags::NONE, b"abc", 0),
            web(3, "response", "/a", 413, Flags::LAST),
            part(4, 0, Flags::LAST, b"def", 0),
        ],
        &[&format!(
            "{begin} answered=true latency_us=2000 web.url=/a web.status=413 web.http_content_type=type/response \
             web.length=0 web.request_length=3 web.state=truncated files=[to_server 3+0 truncated]"
        )],
    );
    // The end of the request is missing, and so is the response.
    check(
        vec![web(1, "request", "/a", 0, Flags::NONE), part(2, 0, Flags::NONE, b"abc", 0)],
        &[&format!(
            "{begin} answered=false web.url=/a web.http_content_type=type/request web.request_length=3 \
             web.state=truncated files=[to_server 3+0 truncated]"
        )],
    );
}

#[test]
fn bodies_are_hashed_where_that_is_asked_for() {
    let pieces = || vec![web(1, "response", "", 200, Flags::NONE), block(1, Flags::LAST, b"abc", 0)];
    let outcome = run(Type::Message, &WEB, pieces(), &[("hash", "yes")]);
    // FIPS 180-2, B.1.
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert!(shown(&outcome)[0].contains(hash), "{:?}", shown(&outcome));
}

#[test]
fn other_records_are_refused() {
    static OTHER: Schema = Schema::new("other", &[Field::new("length", FieldType::Number)]);
    assert!(super::check(&[&ASKED]).unwrap().len() == 1 && super::check(&[]).unwrap().is_empty());
    let message = |schemas: &[&'static Schema]| super::check(schemas).unwrap_err().message;
    assert_eq!(message(&[&OTHER]), "records of `other` are no requests and responses");
    assert_eq!(message(&[&ASKED, &WEB]), "records of several kinds come here");
    let outcome = run(Type::Record, &OTHER, vec![block(0, Flags::NONE, RowWriter::new(&OTHER).row(), 0)], &[]);
    assert_eq!(outcome.counters("transactions").drops.get("no request or response"), 1);
}

static TLS: Schema = Schema::new(
    "tls",
    &eve_fields![
        Field::new("tls.type", FieldType::Text),
        Field::new("tls.sni", FieldType::Text),
        Field::new("tls.version", FieldType::Text),
        Field::new("tls.subject", FieldType::Text),
    ],
);

/// Checks the records of a handshake, given as (ms, direction, type, field, value).
fn check_tls(records: &[(u64, u32, &str, &'static str, &str)], expected: &[&str], left_out: u64) {
    let pieces = records.iter().map(|(ms, direction, kind, field, value)| {
        let mut row = RowWriter::new(&TLS);
        let [from, to] = [1 + direction, 2 - direction].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last as u8)));
        row.time("timestamp", ms * 1_000_000).number("flow_id", 5).address("src_ip", from).address("dest_ip", to);
        row.text("tls.type", kind).text(field, value);
        at(*ms, block(*direction, Flags::NONE, row.row(), 0))
    });
    let outcome = run(Type::Record, &TLS, pieces.collect(), &[]);
    assert_eq!(shown(&outcome), expected, "{records:?}");
    assert_eq!(outcome.counters("transactions").events.get("certificates of no answer"), left_out);
}

#[test]
fn a_certificate_is_no_second_response() {
    let client = (1, 0, "client_hello", "tls.sni", "a.example");
    let server = (3, 1, "server_hello", "tls.version", "TLS 1.2");
    let begin = "timestamp=1 dest_ip=10.0.0.2 answered=true latency_us=2000 tls.sni=a.example";
    let of_server = (4, 1, "certificate", "tls.subject", "CN=a.example");
    let all = format!("{begin} tls.version=TLS 1.2 tls.subject=CN=a.example");
    check_tls(&[client, server, of_server], &[&all], 0);
    // A client's certificate is not taken for the server's.
    check_tls(&[client, server, of_server, (5, 0, "certificate", "tls.subject", "CN=me")], &[&all], 1);
    check_tls(
        &[client, server, (5, 0, "certificate", "tls.subject", "CN=me")],
        &[&format!("{begin} tls.version=TLS 1.2")],
        1,
    );
    // No certificate: the handshake ends with the input, or with the next handshake of the connection.
    check_tls(&[client, server], &[&format!("{begin} tls.version=TLS 1.2")], 0);
    check_tls(
        &[client, (3, 1, "server_hello", "tls.version", "TLS 1.3")],
        &[&format!("{begin} tls.version=TLS 1.3")],
        0,
    );
    check_tls(
        &[server, of_server],
        &["timestamp=3 dest_ip=10.0.0.2 answered=true tls.version=TLS 1.2 tls.subject=CN=a.example"],
        0,
    );
    check_tls(&[client, server, client, server, of_server], &[&format!("{begin} tls.version=TLS 1.2"), &all], 0);
}
