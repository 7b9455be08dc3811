//! Ways around `ips`, each of which would work if bytes passed that the rules did not see, or that were forgotten when they had
//! passed: bodies byte by byte, and floods ahead of a hole.

use crate::bridging::{Hosts, row};
use crate::preventing::{ACK, ATTACK, PSH_ACK, RULES, Talk, ended, packet, prevent, stopped_by};
use base::limits::{DECAP_PACKETS, TCP_HELD_BLOCKS_PER_DIRECTION};
use driver::ethtool::Offloads;
use packet::pseudo;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::Duration;

/// A receiver that uses each byte as it comes gets no byte that completes a match.
#[test]
fn a_body_comes_byte_by_byte() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    for (port, head, body) in [
        (80, "", &b"harmless, then EVIL-BODY, and more"[..]),
        (81, "Content-Length: 60000\r\n", b"harmless, then EVIL-BODY, and more"),
        (82, "Transfer-Encoding: chunked\r\n", b"ffff\r\nharmless, then EVIL-BODY, and more"),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        let at = body.windows(9).position(|nine| nine == b"EVIL-BODY").unwrap() + 8;
        let expected = [head.as_bytes(), &body[..at]].concat();
        hosts.serve(&format!("10.0.0.2:{port}"), move |mut stream| {
            let _ = (stream.set_nodelay(true), stream.read(&mut [0; 4096]), stream.write_all(head.as_bytes()));
            for byte in body {
                std::thread::sleep(Duration::from_millis(5));
                let _ = stream.write_all(&[*byte]);
            }
        });
        let mut stream = hosts.connect(&format!("10.0.0.2:{port}")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut got = Vec::new();
        assert!(stream.read_to_end(&mut got).is_err(), "{port}: the rest does not come");
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected), "{port}");
    }
    ended(running);
    assert_eq!(stopped_by(&hosts, 2), 3, "{}", hosts.said());
}

/// Sends frames no faster than they go through; those that come out are looked at by none.
fn flood(talk: &mut Talk, frames: impl Iterator<Item = Vec<u8>>) {
    for (number, frame) in frames.enumerate() {
        talk.client.send(&frame).unwrap();
        if number % 64 == 63 {
            std::thread::sleep(Duration::from_millis(6));
        }
    }
    talk.arrived();
}

#[test]
fn segments_ahead_of_a_hole_do_not_hide_what_passed() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let mut talk = Talk::new(&hosts, 1001);
    talk.send_at(5, PSH_ACK, &ATTACK[5..]);
    assert_eq!(talk.arrived().len(), 1);
    let segments = (0..TCP_HELD_BLOCKS_PER_DIRECTION as u32 + 200).map(|number| 100 + 2 * number);
    let frames: Vec<_> = segments.map(|ahead| talk.segment(talk.next[0] + ahead, PSH_ACK, b"x")).collect();
    flood(&mut talk, frames.into_iter());
    talk.send_at(0, PSH_ACK, &ATTACK[..5]);
    assert_eq!(talk.arrived().len(), 0, "what completes the attack");
    let (_, stats) = ended(running);
    assert_eq!(stopped_by(&hosts, 1), 1, "{stats:#}");
    assert!(row(&stats, "ips")[0]["dropped"]["no room ahead of a hole"].as_u64() > Some(0), "{stats:#}");
}

#[test]
fn first_fragments_do_not_hide_what_passed() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let mut talk = Talk::new(&hosts, 1001);
    let segment = talk.segment(talk.next[0], PSH_ACK, ATTACK)[34..].to_vec();
    let fragment = |from: u8, identification: u16, more_and_offset: u16, part: &[u8]| {
        packet([10, 9, 0, from], [10, 9, 0, 2], identification, more_and_offset, part)
    };
    talk.client.send(&fragment(1, 7, 0x2000, &segment[..24])).unwrap();
    assert_eq!(talk.arrived().len(), 1);
    let frames = (0..DECAP_PACKETS as u32 + 200)
        .map(|number| fragment(3 + (number >> 16) as u8, number as u16, 0x2000, &segment[..24]));
    flood(&mut talk, frames);
    talk.client.send(&fragment(1, 7, 3, &segment[24..])).unwrap();
    assert_eq!(talk.arrived().len(), 0, "what completes the attack");
    let (_, stats) = ended(running);
    assert_eq!(stopped_by(&hosts, 1), 1, "{stats:#}");
    assert!(row(&stats, "ips")[0]["dropped"]["no room for fragments"].as_u64() > Some(0), "{stats:#}");
}

/// A sender cannot acknowledge its own bytes, so that what it sends again would not matter.
#[test]
fn no_side_speaks_for_the_other() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "recall=1");
    let mut talk = Talk::new(&hosts, 1001);
    talk.send_at(0, PSH_ACK, b"GET /harmless-text!");
    let forged = talk.frame(false, talk.next[1], talk.next[0] + ATTACK.len() as u32, ACK, &[]);
    talk.client.send(&forged).unwrap();
    assert_eq!(talk.arrived().len(), 2);
    talk.send_at(0, PSH_ACK, b"GET /other-bytes123");
    assert_eq!(talk.arrived().len(), 0, "the server may have lost what came first");
    // What the server itself has acknowledged is nothing to it.
    let acknowledges = talk.frame(false, talk.next[1], talk.next[0] + ATTACK.len() as u32, ACK, &[]);
    talk.server.send(&acknowledges).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    talk.send_at(0, PSH_ACK, b"GET /harmless-text!");
    assert_eq!(talk.arrived().len(), 1);
    let (_, stats) = ended(running);
    assert_eq!(row(&stats, "ips")[0]["dropped"]["sent again when it was forgotten"], 1, "{stats:#}");
}

/// A bridge finishes what a device was to finish; the bare sum of the pseudo header is no checksum behind it.
#[test]
fn an_unfinished_checksum_is_a_wrong_one() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let mut talk = Talk::new(&hosts, 1001);
    let mut frame = talk.segment(talk.next[0], PSH_ACK, b"GET /harmless");
    let length = (frame.len() - 34) as u16;
    let sum = pseudo::sum(IpAddr::from([10, 9, 0, 1]), IpAddr::from([10, 9, 0, 2]), 6, length).folded();
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    talk.client.send(&frame).unwrap();
    talk.send_at(0, PSH_ACK, b"GET /harmless");
    assert_eq!(talk.arrived().len(), 1);
    let (_, stats) = ended(running);
    assert_eq!(row(&stats, "ips")[0]["dropped"]["wrong checksum"], 1, "{stats:#}");
}
