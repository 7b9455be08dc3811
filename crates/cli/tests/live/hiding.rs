//! Attacks that a receiver puts together and rules once did not, between two hosts: urgent data, priority tags, tunnels.

use crate::bridging::{Hosts, row};
use crate::preventing::{ACK, ATTACK, PSH_ACK, RULES, Talk, ended, packet, prevent, stopped_by};
use driver::ethtool::Offloads;
use packet::checksum::Sum;
use packet::pseudo;
use std::net::IpAddr;
use std::time::Duration;

const URG: u8 = 0x20;

/// A segment of the client whose urgent pointer is this, so far ahead of its next byte.
fn urgent(talk: &Talk, ahead: u32, pointer: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = talk.segment(talk.next[0] + ahead, ACK | URG, payload);
    frame[50..52].fill(0);
    frame[52..54].copy_from_slice(&pointer.to_be_bytes());
    let [client, server] = [[10, 9, 0, 1], [10, 9, 0, 2]].map(IpAddr::from);
    let sum = pseudo::sum(client, server, 6, (frame.len() - 34) as u16).and(Sum::of(&frame[34..]));
    frame[50..52].copy_from_slice(&sum.checksum().to_be_bytes());
    frame
}

/// The frame behind a tag with identifier 0.
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0xe0, 0], &frame[12..]].concat()
}

/// The frame's packet in `count` tunnels of IP.
fn in_tunnels(frame: &[u8], count: usize) -> Vec<u8> {
    (0..count).fold(frame.to_vec(), |inner, _| {
        let mut outer = packet([10, 9, 1, 1], [10, 9, 1, 2], 1, 0, &inner[14..]);
        outer[23] = 4;
        outer[24..26].fill(0);
        let check = Sum::of(&outer[14..34]).checksum();
        outer[24..26].copy_from_slice(&check.to_be_bytes());
        outer
    })
}

/// Two halves of a segment, as fragments of one packet.
fn fragments(talk: &Talk, id: u16) -> [Vec<u8>; 2] {
    let segment = talk.segment(talk.next[0], PSH_ACK, ATTACK)[34..].to_vec();
    let part = |fragment, bytes: &[u8]| packet([10, 9, 0, 1], [10, 9, 0, 2], id, fragment, bytes);
    [part(0x2000, &segment[..24]), part(3, &segment[24..])]
}

#[test]
fn an_attack_does_not_hide_in_what_only_its_receiver_reads() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    let (one, other) = ATTACK.split_at(8);
    let marked = |text: &[u8]| [b"X", text].concat();
    let mut port = 2000;
    // How many frames are stopped by a rule, and how many pass.
    let (mut stopped, mut passed) = (0, 0);
    let mut attack = |frames: &dyn Fn(&Talk) -> Vec<Vec<u8>>| {
        port += 1;
        let mut talk = Talk::new(&hosts, port);
        let frames = frames(&talk);
        frames.iter().for_each(|frame| talk.client.send(frame).unwrap());
        (stopped, passed) = (stopped + 1, passed + frames.len() - 1);
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(stopped_by(&hosts, 1), stopped, "attack {stopped}");
    };
    // The byte that Linux leaves out: in the middle, first by pointers 1 and 0, named before it comes, and sent early.
    attack(&|talk| vec![urgent(talk, 0, 9, &[one, b"X", other].concat())]);
    attack(&|talk| vec![urgent(talk, 0, 1, &marked(ATTACK))]);
    attack(&|talk| vec![urgent(talk, 0, 0, &marked(ATTACK))]);
    attack(&|talk| vec![urgent(talk, 0, 9, one), urgent(talk, 8, 1, &marked(other))]);
    attack(&|talk| vec![urgent(talk, 0, 9, b""), urgent(talk, 0, 9, &[one, b"X", other].concat())]);
    attack(&|talk| vec![urgent(talk, 8, 1, &marked(other)), talk.segment(talk.next[0], PSH_ACK, one)]);
    // Half behind a priority tag, in segments and in fragments.
    let halves = |talk: &Talk| [(0, one), (8, other)].map(|(at, half)| talk.segment(talk.next[0] + at, PSH_ACK, half));
    attack(&|talk| vec![halves(talk)[0].clone(), tagged(&halves(talk)[1])]);
    attack(&|talk| vec![tagged(&tagged(&halves(talk)[0])), halves(talk)[1].clone()]);
    attack(&|talk| vec![fragments(talk, 7)[0].clone(), tagged(&fragments(talk, 7)[1])]);
    // What cannot be judged is dropped: each of these loses the frame that counts.
    let mut drop = |frames: &dyn Fn(&Talk) -> Vec<Vec<u8>>| {
        port += 1;
        let mut talk = Talk::new(&hosts, port);
        frames(&talk).iter().for_each(|frame| talk.client.send(frame).unwrap());
        talk.arrived();
    };
    drop(&|talk| vec![urgent(talk, 0, 9, &[one, b"X"].concat()), urgent(talk, 9, 1, &marked(other))]);
    drop(&|talk| vec![urgent(talk, 0, 9, one), talk.segment(talk.next[0] + 8, PSH_ACK, &marked(other))]);
    drop(&|talk| vec![halves(talk)[0].clone(), in_tunnels(&halves(talk)[1], 1)]);
    drop(&|talk| vec![fragments(talk, 8)[0].clone(), in_tunnels(&fragments(talk, 8)[1], 1)]);
    drop(&|talk| vec![in_tunnels(&talk.segment(talk.next[0], PSH_ACK, ATTACK), 9)]);
    let (_, stats) = ended(running);
    let dropped = &row(&stats, "ips")[0]["dropped"];
    for (why, count) in [
        ("stopped by a rule", stopped),
        ("urgent data that may be read either way", 2),
        ("data of one stream in and out of a tunnel", 1),
        ("fragments of one packet in and out of a tunnel", 1),
        ("tunnels too deep", 1),
    ] {
        assert_eq!(dropped[why], count, "{why}: {stats:#}");
    }
}

#[test]
fn what_is_wrong_with_a_file_of_rules_is_said_though_no_frame_comes() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = prevent(&hosts, RULES, "");
    std::fs::write(hosts.path("rules"), "").unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    // The rules are those that were there.
    let mut talk = Talk::new(&hosts, 3000);
    talk.send_at(0, PSH_ACK, ATTACK);
    assert_eq!(talk.arrived().len(), 0);
    let (said, stats) = ended(running);
    assert!(said.contains("the rules stay as they are: rules is empty"), "{said}");
    assert_eq!(row(&stats, "ips")[0]["events"]["files of rules refused"], 1, "{stats:#}");
}
