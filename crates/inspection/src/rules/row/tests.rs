//! Alert records as JSON.

use crate::rules::KIND;
use filters::json;
use serde_json::{Value, json};
use testkit::Chain;
use testkit::packets::{CLIENT, SERVER, flag, ipv4, tcp, udp};

fn alerts(rules: &str, params: &[(&str, &str)], frames: &[Vec<u8>]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.rules");
    std::fs::write(&file, rules).unwrap();
    let frames: Vec<_> = (0..).map(|at| at * 1_000_000).zip(frames.iter().cloned()).collect();
    let params = [&[("file", file.to_str().unwrap())], params].concat();
    let outcome = Chain::frames(1, &frames).then(&KIND, &params).then(&json::KIND, &[]).run();
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The frames of a client that sends these pieces.
fn said(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut frames = vec![
        tcp(CLIENT, SERVER, 99, 0, flag::SYN, b""),
        tcp(SERVER, CLIENT, 499, 100, flag::SYN | flag::ACK, b""),
        tcp(CLIENT, SERVER, 100, 500, flag::ACK, b""),
    ];
    let mut at = 100;
    for piece in pieces {
        frames.push(tcp(CLIENT, SERVER, at, 500, flag::ACK, piece));
        at += piece.len() as u32;
    }
    frames
}

#[test]
fn times_of_alerts_were_not_as_suricata_writes_them() {
    let found = alerts("alert tcp any any -> any any (content:\"evil\"; sid:1;)", &[], &said(&[b"evil"]));
    assert_eq!(found[0]["timestamp"], "1970-01-01T00:00:00.003000+0000");
    assert_eq!(found[0]["flow"]["start"], "1970-01-01T00:00:00.000000+0000");
}

const FORM: [&[u8]; 3] = [
    b"POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 149\r\n\r\n\
      --b\r\nContent-Disposition: form-data; name=x; filename=1.exe\r\n\r\nevil\r\n",
    b"--b\r\n",
    b"Content-Disposition: form-data; name=y; filename=2.exe\r\n\r\nevil too\r\n--b--\r\n",
];

/// Each file of a form is listed, and the alert has the objects of its request.
#[test]
fn files_of_a_form() {
    let rule = "alert http any any -> any any (msg:\"m\"; file.name; content:\".exe\"; file.data; content:\"evil\"; \
                metadata:tag a, created_at 2026-01-02, tag b; sid:1;)";
    let found = alerts(rule, &[], &said(&FORM));
    let file = |name: &str, state: &str, size: u32| json!([{"filename": name, "gaps": false, "state": state, "stored": false, "size": size, "tx_id": 0}]);
    let files: Vec<&Value> = found.iter().map(|alert| &alert["files"]).collect();
    assert_eq!(files, [&file("1.exe", "UNKNOWN", 4), &file("2.exe", "CLOSED", 8)]);
    let http =
        json!({"hostname": "a.example", "url": "/up", "http_method": "POST", "protocol": "HTTP/1.1", "length": 0});
    assert_eq!(found[0]["http"], http);
    assert_eq!(found[0]["alert"]["metadata"], json!({"tag": ["a", "b"], "created_at": ["2026-01-02"]}));
    assert_eq!(found[0]["flow"]["dest_port"], SERVER.1);
    assert!(found[0].get("payload").is_none());
}

/// An alert about a packet of SCTP said nothing of its chunks.
#[test]
fn chunks_of_sctp() {
    let chunks =
        [&[0x0b, 0x59, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0][..], &[1, 0, 0, 4], &[0, 3, 0, 5, 7, 0, 0, 0], &[99, 0, 0, 4]];
    let frame = ipv4(CLIENT.0, SERVER.0, 132, &chunks.concat());
    let found = alerts("alert sctp any any -> any any (sctp.vtag:9; sid:1;)", &[], &[frame, udp(CLIENT, SERVER, b"x")]);
    let expected = json!({
        "vtag": 9, "chunk_cnt": 3, "chunk_types": ["init", "data", "unknown"],
        "has_init": true, "has_init_ack": false, "has_data": true, "has_abort": false
    });
    assert_eq!(found.iter().map(|alert| &alert["sctp"]).collect::<Vec<_>>(), [&expected]);
    // The header is that of the packet and its chunks; each chunk's data is looked at by itself.
    let data = |text: &[u8]| [&[0, 3, 0, 18, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0][..], text, &[0, 0]].concat();
    let frame = ipv4(
        CLIENT.0,
        SERVER.0,
        132,
        &[&[0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0][..], &data(b"ab"), &data(b"cd")].concat(),
    );
    let rules = "alert sctp any any -> any any (sctp.hdr; content:\"|00 03 00 12|\"; offset:12; depth:4; sid:1;)\n\
                 alert sctp any any -> any any (sctp.chunk_data; content:\"cd\"; startswith; endswith; sid:2;)\n\
                 alert sctp any any -> any any (sctp.chunk_data; content:\"ab|00|\"; sid:3;)";
    let found = alerts(rules, &[], &[frame]);
    assert_eq!(
        found.iter().map(|alert| alert["alert"]["signature_id"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    let udp_alone = alerts("alert udp any any -> any any (sid:2;)", &[], &[udp(CLIENT, SERVER, b"x")]);
    assert!(udp_alone[0].get("sctp").is_none());
}

/// All conditions on a file apply to the same file. Absence is checked at its end.
#[test]
fn each_file_is_looked_at_by_itself() {
    let whole = FORM.concat();
    let check = |options: &str, expected: usize| {
        let rule = format!("alert http any any -> any any ({options} sid:1;)");
        assert_eq!(alerts(&rule, &[], &said(&[&whole])).len(), expected, "{options}");
        // A boundary arrives with the next file.
        let (one, other) = whole.split_at(whole.len() - 30);
        assert_eq!(alerts(&rule, &[], &said(&[one, other])).len(), expected, "{options}");
    };
    check("file.name; content:\"1.exe\"; file.data; content:\"evil\";", 1);
    check("file.name; content:\"1.exe\"; file.data; content:\"too\";", 0);
    check("file.name; content:\".exe\"; file.data; content:\"evil\";", 2);
    check("file.data; content:!\"too\";", 1);
    check("file.data; content:!\"none\";", 2);
    check("http.request_body; content:!\"too\";", 0);
}

#[test]
fn payloads_are_shown_where_that_is_asked_for() {
    let rules = "alert tcp any any -> any any (flow:only_stream; content:\"stream\"; sid:1;)\n\
                 alert tcp any any -> any any (dsize:3; sid:2;)";
    let found = alerts(rules, &[("payload", "yes")], &said(&[b"a str", b"eam", b"\x00b\n"]));
    let shown = |at: usize| {
        let alert = &found[at];
        (alert["alert"]["signature_id"].as_u64(), alert["payload_printable"].as_str(), alert["stream"].as_u64())
    };
    let all: Vec<_> = (0..found.len()).map(shown).collect();
    assert!(all.contains(&(Some(1), Some("a stream"), Some(1))), "{all:?}");
    assert!(all.contains(&(Some(2), Some(".b\n"), Some(0))), "{all:?}");
    let packet = found.iter().find(|alert| alert["payload"] == "AGIK").unwrap()["packet"].as_str().unwrap();
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, packet).unwrap();
    assert_eq!(bytes, said(&[b"a str", b"eam", b"\x00b\n"])[5]);
}

#[test]
fn an_answer_of_dns_that_comes_first_goes_to_the_client() {
    let mut answer = vec![0, 1, 0x81, 0xc0, 0, 1, 0, 1, 0, 0, 0, 0];
    answer.extend_from_slice(
        b"\x01a\x02de\x00\x00\x01\x00\x01\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x09\x00\x04\x01\x02\x03\x04",
    );
    let found =
        alerts("alert dns any any -> any any (flow:to_client; sid:1;)", &[], &[udp((SERVER.0, 53), CLIENT, &answer)]);
    let dns = json!({
        "version": 3, "type": "response", "tx_id": 0, "id": 1, "flags": "81c0", "qr": true, "rd": true, "ra": true, "z": true,
        "opcode": 0, "rcode": "NOERROR", "queries": [{"rrname": "a.de", "rrtype": "A"}],
        "answers": [{"rrname": "a.de", "rrtype": "A", "ttl": 9, "rdata": "1.2.3.4"}],
    });
    assert_eq!((&found[0]["dns"], found[0]["flow"]["dest_port"].as_u64()), (&dns, Some(53)));
}

/// A query in the path of a request (RFC 8484, 4.1), and the same without one.
#[test]
fn alerts_of_dns_over_http2_had_neither_http_nor_dns() {
    let request = |path: &str| {
        let mut block = Vec::new();
        for (name, value) in
            [(":method", "GET"), (":path", path), (":authority", "d.example"), ("accept", "application/dns-message")]
        {
            block.extend([&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat());
        }
        // A frame HEADERS that ends head and stream.
        let head = [&(block.len() as u32).to_be_bytes()[1..], &[1, 5, 0, 0, 0, 1]].concat();
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], &head, &block].concat()
    };
    let alert = |path: &str| {
        let rules = "alert http2 any any -> any any (flow:to_server; http.method; content:\"GET\"; sid:1;)";
        alerts(rules, &[], &said(&[&request(path)])).remove(0)
    };
    let found = alert("/q?dns=AAABAAABAAAAAAAAAWEDb3JnAAABAAE");
    assert_eq!((&found["app_proto"], &found["http"]["hostname"]), (&json!("doh2"), &json!("d.example")));
    assert_eq!(found["dns"]["queries"], json!([{"rrname": "a.org", "rrtype": "A"}]));
    let found = alert("/q");
    assert_eq!((&found["http"]["url"], &found["dns"]), (&json!("/q"), &Value::Null));
}

#[test]
fn the_first_message_of_tftp() {
    let found = alerts(
        "alert tftp any any -> any any (sid:1;)",
        &[],
        &[udp(CLIENT, (SERVER.0, 69), b"\0\x01boot.img\0octet\0")],
    );
    assert_eq!(found[0]["tftp"], json!({"packet": "read", "file": "boot.img", "mode": "octet"}));
}
