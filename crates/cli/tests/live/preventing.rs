//! `bridge a b | ips rules=FILE` between two hosts: an attack is stopped however it is cut, moved or coded, and all else passes as
//! it was, while rules change.

use crate::bridging::{Hosts, answer, ask, bytes, row};
use crate::net::*;
use driver::Receive;
use driver::af_packet::{Direction, Options, Receiver};
use driver::ethtool::Offloads;
use packet::checksum::Sum;
use packet::pseudo;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testkit::network::FrameSender;

pub(crate) const ATTACK: &[u8] = b"GET /attack-pattern";

pub(crate) const RULES: &str = "\
drop tcp any any -> any any (msg:\"attack\"; flow:to_server,established; content:\"attack-pattern\"; sid:1; rev:1;)
drop http any any -> any any (msg:\"body\"; flow:to_client,established; file.data; content:\"EVIL-BODY\"; sid:2; rev:1;)
drop udp any any -> any 53 (msg:\"datagram\"; content:\"evil-name\"; sid:3; rev:1;)
alert tcp any any -> any 80 (msg:\"seen\"; flow:to_server,established; content:\"GET /\"; sid:4; rev:1;)
";

/// 360 harmless bytes, EVIL-BODY, and 80 more, compressed by gzip.
const EVIL_GZIP: [u8; 49] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 72, 44, 202, 205, 73, 45, 46, 86, 200, 24, 101, 208, 146, 225, 26, 230, 233,
    163, 235, 228, 239, 18, 169, 144, 154, 151, 66, 77, 12, 0, 200, 2, 67, 87, 193, 1, 0, 0,
];

/// Starts prevention with these rules; `more` are parameters of `ips`.
pub(crate) fn prevent(hosts: &Hosts, rules: &str, more: &str) -> Running {
    std::fs::write(hosts.path("rules"), rules).unwrap();
    hosts.start(&format!("bridge a b | ips rules {more}"))
}

/// Ends a request; gives what it said, and what was counted.
pub(crate) fn ended(running: Running) -> (String, Value) {
    let output = running.interrupt();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let stats = said.lines().find_map(|line| serde_json::from_str(line).ok());
    let stats = stats.unwrap_or_else(|| panic!("{said}"));
    (said, stats)
}

/// How many alerts of this rule say that it stopped something.
pub(crate) fn stopped_by(hosts: &Hosts, rule: u64) -> usize {
    let said = hosts.said();
    let alerts = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["alert"].take());
    alerts.filter(|alert| alert["signature_id"] == rule && alert["action"] == "blocked").count()
}

/// A TCP conversation that nobody's kernel takes part in: frames go from the first host's wire to the second's and back.
pub(crate) struct Talk {
    pub(crate) client: FrameSender,
    pub(crate) server: FrameSender,
    seen: Receiver,
    port: u16,
    /// Marks that were sent.
    marks: u8,
    /// Next sequence numbers of the client and the server.
    pub(crate) next: [u32; 2],
}

const SYN: u8 = 2;
pub(crate) const PSH_ACK: u8 = 0x18;
pub(crate) const ACK: u8 = 0x10;

impl Talk {
    /// Shakes hands.
    pub(crate) fn new(hosts: &Hosts, port: u16) -> Talk {
        let options = Options { direction: Direction::In, at_once: true, promiscuous: true, ..Options::default() };
        let far = &hosts.second.far;
        let seen = Receiver::open(&far.namespace, &far.name, &options).unwrap();
        let (client, server) = (hosts.first.far.sender(), far.sender());
        let mut talk = Talk { client, server, seen, port, marks: 0, next: [1000, 5000] };
        talk.send(SYN, &[]);
        talk.next[0] += 1;
        talk.answer(SYN | ACK);
        talk.next[1] += 1;
        talk.send(ACK, &[]);
        assert_eq!(talk.arrived().len(), 2, "the handshake passes");
        talk
    }

    pub(crate) fn segment(&self, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        self.frame(true, sequence, self.next[1], flags, payload)
    }

    pub(crate) fn frame(
        &self,
        to_server: bool,
        sequence: u32,
        acknowledgment: u32,
        flags: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let [client, server] = [[10, 9, 0, 1], [10, 9, 0, 2]];
        let (from, to) = if to_server { (client, server) } else { (server, client) };
        let (source, target) = if to_server { (self.port, 80) } else { (80, self.port) };
        let mut segment = [source.to_be_bytes(), target.to_be_bytes()].concat();
        segment.extend(sequence.to_be_bytes());
        segment.extend(if flags == SYN { 0 } else { acknowledgment }.to_be_bytes());
        segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(payload);
        let sum = pseudo::sum(IpAddr::from(from), IpAddr::from(to), 6, segment.len() as u16).and(Sum::of(&segment));
        segment[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        packet(from, to, 7, 0x4000, &segment)
    }

    fn send(&mut self, flags: u8, payload: &[u8]) {
        self.send_at(0, flags, payload);
    }

    /// Sends bytes so far ahead of those that are next.
    pub(crate) fn send_at(&mut self, ahead: u32, flags: u8, payload: &[u8]) {
        let frame = self.segment(self.next[0].wrapping_add(ahead), flags, payload);
        self.client.send(&frame).unwrap();
    }

    fn answer(&mut self, flags: u8) {
        let frame = self.frame(false, self.next[1], self.next[0], flags, &[]);
        self.server.send(&frame).unwrap();
        // It has gone through before the client goes on.
        std::thread::sleep(Duration::from_millis(20));
    }

    /// TCP payloads, and fragments, of this conversation that came out at the second host. A mark behind them that came
    /// out tells that no more will.
    pub(crate) fn arrived(&mut self) -> Vec<Vec<u8>> {
        self.marks += 1;
        let mark = [&[2, 9, 0, 0, 0, 2, 2, 9, 0, 0, 0, 1, 0x88, 0xb5, self.marks][..], &[0; 45]].concat();
        let (mut frames, mut is_through) = (Vec::new(), false);
        until("the mark came out", || {
            // Again: a queue may have been full.
            self.client.send(&mark).unwrap();
            let end = Instant::now() + Duration::from_millis(200);
            while !is_through && Instant::now() < end {
                self.seen
                    .receive(Duration::from_millis(10), &mut |batch| {
                        for frame in batch.frames.iter().map(|frame| frame.parts().concat()) {
                            is_through |= frame == mark;
                            if frame[26..28] == [10, 9] {
                                frames.push(frame[14..].to_vec());
                            }
                        }
                    })
                    .unwrap();
            }
            is_through
        });
        frames
    }
}

/// IPv4 in Ethernet, between addresses of nobody's.
pub(crate) fn packet(from: [u8; 4], to: [u8; 4], identification: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + payload.len() as u16).to_be_bytes());
    header.extend(identification.to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([64, 6, 0, 0]);
    header.extend([from, to].concat());
    let check = Sum::of(&header).checksum();
    header[10..12].copy_from_slice(&check.to_be_bytes());
    [&[2, 9, 0, 0, 0, to[3], 2, 9, 0, 0, 0, from[3], 8, 0][..], &header, payload].concat()
}

#[test]
fn an_attack_is_stopped_however_it_is_cut_and_moved() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let length = ATTACK.len();
    // Whole.
    let mut talk = Talk::new(&hosts, 1001);
    talk.send(PSH_ACK, ATTACK);
    assert_eq!(talk.arrived().len(), 0, "whole");
    // And nothing after it, not even harmless.
    talk.send_at(length as u32, PSH_ACK, b"more");
    assert_eq!(talk.arrived().len(), 0, "of the same flow");
    // One byte in each segment: all but the last pass.
    let mut talk = Talk::new(&hosts, 1002);
    for (at, byte) in ATTACK.iter().enumerate() {
        talk.send_at(at as u32, PSH_ACK, &[*byte]);
    }
    assert_eq!(talk.arrived().len(), length - 1, "byte by byte");
    // Backwards: what completes it is the first byte.
    let mut talk = Talk::new(&hosts, 1003);
    for (at, part) in ATTACK.chunks(5).enumerate().rev() {
        talk.send_at(5 * at as u32, PSH_ACK, part);
    }
    assert_eq!(talk.arrived().len(), length.div_ceil(5) - 1, "backwards");
    // Overlapping.
    let mut talk = Talk::new(&hosts, 1004);
    talk.send_at(0, PSH_ACK, &ATTACK[..10]);
    talk.send_at(4, PSH_ACK, &ATTACK[4..14]);
    talk.send_at(8, PSH_ACK, &ATTACK[8..]);
    assert_eq!(talk.arrived().len(), 2, "overlapping");
    // IP fragments, in order and not.
    for (port, order) in [(1005, [0, 1, 2]), (1006, [2, 1, 0]), (1007, [1, 2, 0])] {
        let mut talk = Talk::new(&hosts, port);
        let segment = talk.segment(talk.next[0], PSH_ACK, ATTACK)[34..].to_vec();
        let parts: Vec<&[u8]> = segment.chunks(16).collect();
        for at in order {
            let more = if at + 1 < parts.len() { 0x2000 } else { 0 };
            let fragment = packet([10, 9, 0, 1], [10, 9, 0, 2], port, more | (2 * at as u16), parts[at]);
            talk.client.send(&fragment).unwrap();
        }
        assert_eq!(talk.arrived().len(), 2, "fragments {order:?}");
    }
    // Other bytes for a place that passed: harmless first, and the attack in its place, as if the first were lost behind.
    let mut talk = Talk::new(&hosts, 1009);
    talk.send_at(0, PSH_ACK, b"GET /harmless-text!");
    talk.send_at(0, PSH_ACK, ATTACK);
    talk.send_at(0, PSH_ACK, b"GET /harmless-text!");
    assert_eq!(talk.arrived().len(), 2, "what is sent again passes if it is the same");
    // The same where the first waits for its turn, and with fragments.
    let mut talk = Talk::new(&hosts, 1010);
    talk.send_at(5, PSH_ACK, b"harmless-text!");
    talk.send_at(5, PSH_ACK, &ATTACK[5..]);
    talk.send_at(0, PSH_ACK, b"GET /");
    assert_eq!(talk.arrived().len(), 2, "of two copies ahead the first passes");
    let mut talk = Talk::new(&hosts, 1011);
    let segment = talk.segment(talk.next[0], PSH_ACK, ATTACK)[34..].to_vec();
    let mut other = segment.clone();
    other[24..].fill(b'x');
    for (offset, more, part) in [(2, 0x2000, &other[16..32]), (2, 0x2000, &segment[16..32]), (4, 0, &segment[32..])] {
        let fragment = packet([10, 9, 0, 1], [10, 9, 0, 2], 1011, more | offset, part);
        talk.client.send(&fragment).unwrap();
    }
    assert_eq!(talk.arrived().len(), 2, "a fragment that contradicts another is dropped");
    // What is harmless passes, cut alike.
    let mut talk = Talk::new(&hosts, 1008);
    for (at, part) in b"GET /harmless-text".chunks(5).enumerate().rev() {
        talk.send_at(5 * at as u32, PSH_ACK, part);
    }
    assert_eq!(talk.arrived().len(), 4, "harmless");
    let (_, stats) = ended(running);
    let ips = row(&stats, "ips")[0];
    assert_eq!(ips["dropped"]["stopped by a rule"], 7, "{stats:#}");
    assert_eq!(ips["dropped"]["contradicts one that passed"], 2, "{stats:#}");
    assert_eq!(ips["dropped"]["a fragment contradicts one that passed"], 1, "{stats:#}");
    assert_eq!(stopped_by(&hosts, 1), 7, "{}", hosts.said());
    let drops = hosts.said().lines().filter(|line| line.contains(r#""event_type":"drop""#)).count();
    assert_eq!(drops, 7 + 3, "{}", hosts.said());
}

#[test]
fn bodies_are_stopped_whatever_their_coding() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let plain = [&b"harmless ".repeat(40)[..], b"EVIL-BODY", b" end"].concat();
    let chunked = |body: &[u8], size: usize| {
        let chunks =
            body.chunks(size).map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        [chunks.collect::<Vec<_>>().concat(), b"0\r\n\r\n".to_vec()].concat()
    };
    let length = |body: &[u8]| format!("Content-Length: {}\r\n\r\n", body.len());
    let coded = "Transfer-Encoding: chunked\r\n\r\n".to_string();
    let gzip = "Content-Encoding: gzip\r\n";
    let harmless = b"harmless ".repeat(40);
    for (name, head, body, passes) in [
        ("plain", length(&plain), plain.clone(), false),
        ("chunked", coded.clone(), chunked(&plain, 7), false),
        ("gzip", format!("{gzip}{}", length(&EVIL_GZIP)), EVIL_GZIP.to_vec(), false),
        ("gzip in chunks", format!("{gzip}{coded}"), chunked(&EVIL_GZIP, 3), false),
        ("harmless in chunks", coded.clone(), chunked(&harmless, 7), true),
    ] {
        let port = 8000 + name.len();
        let answered = [format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{head}").into_bytes(), body].concat();
        let expected = answered.clone();
        hosts.serve(&format!("10.0.0.2:{port}"), move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            for part in answered.chunks(40) {
                let _ = stream.write_all(part);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut stream = hosts.connect(&format!("10.0.0.2:{port}")).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(if passes { 5000 } else { 700 }))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut got = Vec::new();
        let ended = stream.read_to_end(&mut got);
        assert_eq!(ended.is_ok(), passes, "{name}: {ended:?}");
        assert_eq!(got == expected, passes, "{name}");
        assert!(expected.starts_with(&got), "{name}");
    }
    ended(running);
    assert_eq!(stopped_by(&hosts, 2), 4, "{}", hosts.said());
}

#[test]
fn the_ends_of_a_stopped_connection_hear_of_it_where_that_was_asked_for() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "dropped=reset");
    let (said, hears) = std::sync::mpsc::channel();
    hosts.serve("10.0.0.2:80", move |mut stream| {
        stream.set_read_timeout(Some(LONG)).unwrap();
        said.send(stream.read(&mut [0; 100]).map_err(|error| error.kind())).unwrap();
    });
    let answer = ask(&hosts, "10.0.0.2:80", "GET /attack-pattern").unwrap_err();
    assert_eq!(answer.kind(), ErrorKind::ConnectionReset);
    assert_eq!(hears.recv_timeout(LONG).unwrap(), Err(ErrorKind::ConnectionReset));
    let (_, stats) = ended(running);
    assert!(row(&stats, "ips")[0]["events"]["resets sent"].as_u64() >= Some(2), "{stats:#}");
}

#[test]
fn a_request_is_replaced_without_a_lost_frame() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, "alert tcp any any -> any any (content:\"none\"; sid:9;)\n", "");
    std::fs::write(hosts.path("others"), RULES).unwrap();
    let body = bytes(20 << 20);
    let served = body.clone();
    hosts.serve("10.0.0.2:80", move |stream| answer(stream, &served));
    let process = running.0.as_ref().unwrap().id().to_string();
    std::thread::scope(|scope| {
        let download = scope.spawn(|| ask(&hosts, "10.0.0.2:80", "GET /").unwrap());
        let mut command = std::process::Command::new(PROGRAM);
        command.args(["replace", &process, "bridge a b | ips others"]).current_dir(hosts.folder.path());
        let output = hosts.first.near.namespace.enter(move || command.output()).unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(download.join().unwrap() == body);
    });
    let mut stream = hosts.connect("10.0.0.2:80").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    stream.write_all(ATTACK).unwrap();
    assert!(stream.read(&mut [0; 10]).is_err(), "the attack is stopped");
    let (_, stats) = ended(running);
    assert!(row(&stats, "bridge a b").iter().all(|row| row["dropped"].as_object().unwrap().is_empty()), "{stats:#}");
}

/// Each 100th frame is lost behind the rules, and again before them; the rules change again and again meanwhile.
#[test]
fn a_download_is_whole_while_frames_are_lost_and_rules_change() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    std::fs::write(hosts.path("rules"), "alert tcp any any -> any any (content:\"none\"; sid:9;)\n").unwrap();
    let request = "bridge a b | sample 100 |! ips rules |! sample 100 |! bridge";
    let running = hosts.start(request);
    let body = bytes(6 << 20);
    let served = body.clone();
    hosts.serve("10.0.0.2:80", move |stream| answer(stream, &served));
    let mut changes = 0;
    std::thread::scope(|scope| {
        let download = scope.spawn(|| ask(&hosts, "10.0.0.2:80", "GET /").unwrap());
        while !download.is_finished() || changes < 3 {
            let more = format!("{RULES}alert tcp any any -> any any (content:\"{changes}\"; sid:{};)\n", 100 + changes);
            std::fs::write(hosts.path("next"), more).unwrap();
            std::fs::rename(hosts.path("next"), hosts.path("rules")).unwrap();
            changes += 1;
            std::thread::sleep(Duration::from_millis(1300));
        }
        assert!(download.join().unwrap() == body);
    });
    // The new rules hold.
    let mut stream = hosts.connect("10.0.0.2:80").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    stream.write_all(ATTACK).unwrap();
    assert!(stream.read(&mut [0; 10]).is_err(), "the attack is stopped");
    // A file with a mistake changes nothing.
    std::fs::write(hosts.path("rules"), "drop tcp any any (").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(ask(&hosts, "10.0.0.2:80", "GET /").unwrap() == body, "harmless things pass");
    let (said, stats) = ended(running);
    assert!(said.contains("the rules stay as they are: rules: line 1, column"), "{said}");
    let ips = row(&stats, "ips")[0];
    assert!(ips["events"]["times rules were loaded"].as_u64() >= Some(2), "{stats:#}");
    assert_eq!(ips["events"]["files of rules refused"], 1, "{stats:#}");
    assert!(
        ips["dropped"].as_object().unwrap().iter().all(|(why, _)| why.contains("rule") || why.contains("stopped flow")),
        "{stats:#}"
    );
    assert!(row(&stats, "bridge a b").iter().all(|row| row["dropped"].as_object().unwrap().is_empty()), "{stats:#}");
}
