//! The filter `sip`: its records, and the blocks that it rejects.

use crate::conversations::sip::KIND;
use crate::conversations::*;
use crate::json;
use crate::parts::handmade::{Piece, block, facts};
use base::limits::SIP_HEAD_BYTES;
use packet::frame::protocol;
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::{Chain, Outcome};

const INVITE: &[u8] = b"INVITE sip:b@x SIP/2.0\r\nf: <sip:a@x>\r\nCall-ID: 7\r\nContent-Length: 5\r\n\r\na\r\nb\n";
const RINGING: &[u8] = b"SIP/2.0 180 Ringing\r\nTo: b\r\n\r\n";

fn piece(bytes: &[u8]) -> Piece {
    block(0, Flags::NONE, bytes, 0)
}

fn run(pieces: Vec<Piece>, number: u8) -> Outcome {
    let of = if number == protocol::UDP { Type::Message } else { Type::Bytes };
    let chain = Chain::pieces(of, None, pieces).streams(&[facts(4000, number, 0)]);
    chain.then(&KIND, &[]).then(&json::KIND, &[]).run()
}

fn records(outcome: &Outcome) -> Vec<Value> {
    let record = |line| serde_json::from_str::<Value>(line).unwrap()["sip"].take();
    outcome.stdout.lines().map(record).collect()
}

fn expected() -> Vec<Value> {
    vec![
        json!({
            "method": "INVITE", "uri": "sip:b@x", "version": "SIP/2.0", "request_line": "INVITE sip:b@x SIP/2.0",
            "from": "<sip:a@x>", "call_id": "7",
        }),
        json!({
            "version": "SIP/2.0", "code": "180", "reason": "Ringing", "response_line": "SIP/2.0 180 Ringing",
            "to": "b",
        }),
    ]
}

#[test]
fn datagrams() {
    let outcome = run(vec![piece(INVITE), piece(b"\x80\x00"), piece(RINGING)], protocol::UDP);
    assert_eq!((records(&outcome), outcome.counters("sip").blocks_rejected), (expected(), 1));
}

#[test]
fn streams() {
    let outcome = run(vec![piece(b"GET / HTTP/1.1\r\n\r\n"), piece(INVITE)], protocol::TCP);
    assert_eq!((records(&outcome).len(), outcome.counters("sip").blocks_rejected), (0, 2));
    let gap = block(0, Flags::GAP_BEFORE, RINGING, 9);
    let outcome = run(vec![piece(INVITE), piece(&INVITE[..30]), gap], protocol::TCP);
    assert_eq!(records(&outcome), expected());
    assert_eq!(outcome.counters("sip").events.get("sip messages whose rest is missing"), 1);
    let long = [&INVITE[..24], &[b'x'; SIP_HEAD_BYTES]].concat();
    assert_eq!(records(&run(long.chunks(1000).map(piece).collect(), protocol::TCP)).len(), 1);
}

#[test]
fn a_head_in_small_segments_is_one_message() {
    let long = [&INVITE[..24], &[b'x'; SIP_HEAD_BYTES]].concat();
    let outcome = run(long.chunks(1).map(piece).collect(), protocol::TCP);
    assert_eq!(records(&outcome).len(), 1);
}

proptest! {
    /// Messages do not depend on how a stream is cut into segments.
    #[test]
    fn segments_do_not_matter(cuts in proptest::collection::vec(0usize..120, 0..12)) {
        let bytes = [INVITE, b"\r\n\r\n", RINGING].concat();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| piece(&bytes[ends[0]..ends[1]])).collect();
        prop_assert_eq!(records(&run(pieces, protocol::TCP)), expected());
    }

    #[test]
    fn any_bytes(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5), start in 0usize..80, udp: bool) {
        let start = &INVITE[..start.min(INVITE.len())];
        let pieces = blocks.iter().map(|bytes| piece(&[start, bytes].concat())).collect();
        let number = if udp { protocol::UDP } else { protocol::TCP };
        prop_assert!(records(&run(pieces, number)).len() <= 10);
    }
}
