//! HTTP that clients read in several ways: rules see each of them.

use super::{alerts, conversation, run};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use std::io::Write;

const RULES: &str = "alert http any any -> any any (flow:to_client; file.data; content:\"EVIL\"; sid:1;)\n";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// What a server says, and whether it is one with each segment a byte.
fn check(what: &str, said: &[u8]) {
    for size in [said.len(), 1] {
        let pieces = said.chunks(size).map(|piece| (false, piece));
        let frames = conversation(&[(true, GET)].into_iter().chain(pieces).collect::<Vec<_>>());
        assert_eq!(alerts(&run(RULES, &frames)), [1], "{what}, {} in pieces of {size}", said.escape_ascii());
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A frame of one raw block (RFC 8878).
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0x20, bytes.len() as u8];
    [&head, &((bytes.len() as u32) << 3 | 1).to_le_bytes()[..3], bytes].concat()
}

/// A frame of blocks of one byte, without an end.
fn blocks_of_zstd(bytes: &[u8]) -> Vec<u8> {
    let blocks = bytes.iter().flat_map(|byte| [1 << 3, 0, 0, *byte]);
    [0x28, 0xb5, 0x2f, 0xfd, 0, 0x58].into_iter().chain(blocks).collect()
}

fn lzma(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::LzmaOptions::with_preset(6);
    let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, None).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// Text that coding changes.
const TEXT: &[u8] = b"EVIL EVIL EVIL EVIL EVIL EVIL";

#[test]
fn a_rule_holds_for_any_reading_of_a_body() {
    let chunks = b"2\r\nEV\r\n2\r\nIL\r\n0\r\n\r\n";
    // As chunks only `EV` came.
    let plain = b"2\r\nEVIL\r\n";
    let rows: &[(&str, &str, &[u8])] = &[
        ("length twice", "200 OK\r\nContent-Length: 2\r\nContent-Length: 6", b"abEVIL"),
        ("length twice", "200 OK\r\nContent-Length: 6\r\nContent-Length: 6", b"abEVIL"),
        ("no number", "200 OK\r\nContent-Length: 4x", b"EVIL"),
        ("no number", "200 OK\r\nContent-Length: +4", b"EVIL"),
        ("blank before the colon", "200 OK\r\nTransfer-Encoding : chunked", chunks),
        ("blank before the colon", "200 OK\r\nTransfer-Encoding : chunked", plain),
        ("folded", "200 OK\r\nTransfer-Encoding:\r\n chunked", chunks),
        ("folded", "200 OK\r\nTransfer-Encoding:\r\n chunked", plain),
        ("other spelling", "200 OK\r\nTransfer-Encoding: xchunked", plain),
        ("other spelling", "200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", plain),
        ("value of another field", "200 OK\r\nTransfer-Encoding: x\r\nX: chunked", chunks),
        ("length and chunks", "200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked", plain),
        ("length and chunks", "200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked", chunks),
        ("behind 1xx", "100 Continue\r\nContent-Length: 4", b"EVIL"),
        ("behind 1xx", "103 Early\r\nTransfer-Encoding: chunked", chunks),
        ("behind 204 and 304", "204 None\r\nContent-Length: 4", b"EVIL"),
        ("behind 204 and 304", "304 Same\r\nTransfer-Encoding: chunked", chunks),
        ("gzip twice said", "200 OK\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip", &gzip(TEXT)),
        ("two codings, one used", "200 OK\r\nContent-Encoding: deflate, gzip", &deflate(TEXT)),
        ("two codings, one used", "200 OK\r\nContent-Encoding: deflate, gzip", &gzip(TEXT)),
        ("two codings", "200 OK\r\nContent-Encoding: deflate, gzip", &deflate(&gzip(TEXT))),
        ("with an unknown one", "200 OK\r\nContent-Encoding: gzip, x", &gzip(TEXT)),
        ("zstd", "200 OK\r\nContent-Encoding: zstd", &zstd(TEXT)),
        ("zstd", "200 OK\r\nContent-Encoding: zstd, gzip\r\nTransfer-Encoding: gzip", &gzip(&gzip(&zstd(TEXT)))),
        ("zstd", "200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 1000", &blocks_of_zstd(TEXT)),
        ("LZMA", "200 OK\r\nContent-Encoding: lzma", &lzma(TEXT)),
        ("LZMA", "200 OK\r\nContent-Encoding: lzma, gzip", &gzip(&lzma(TEXT))),
        (
            "five codings",
            "200 OK\r\nContent-Encoding: gzip, gzip, gzip, gzip, gzip",
            &(0..5).fold(TEXT.to_vec(), |text, _| gzip(&text)),
        ),
        (
            "five codings",
            "200 OK\r\nContent-Encoding: deflate, gzip, deflate, gzip, deflate",
            &deflate(&gzip(&deflate(&gzip(&deflate(TEXT))))),
        ),
    ];
    for (what, head, body) in rows {
        check(what, &[format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat());
    }
    let ends: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\nX: y\r\n\r\r\nEVIL\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\n\r\r\nContent-Length: 4\r\n\r\nEVIL",
        b"HTTP/1.1 200 OK\nX: y\n \nEVIL",
        b"HTTP/1.1 200 OK\nX: y\n\t\nEVIL",
        b"HTTP/1.1 200 OK\nX: y\n \nTransfer-Encoding: chunked\r\n\r\n2\r\nEV\r\n2\r\nIL\r\n0\r\n\r\n",
    ];
    ends.iter().for_each(|said| check("the end of a head", said));
    check("chunks in HTTP/1.0", &[b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunks[..]].concat());
    check("chunks in HTTP/1.0", &[b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &plain[..]].concat());
    check("HTTP/0.9", b"<html>EVIL");
    check("HTTP/0.9", b"a line\r\nEVIL\r\n");
}
