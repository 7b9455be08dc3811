//! The ports that are written into a packet's ring slot are those that the filter `port` finds in its bytes. Tested on
//! all captures there are, on random frames, and for each writer.

use buffer::live::{Facts, SlotFlags};
use capture::reader::Found;
use capture::{By, CaptureReader, CaptureRequest, Devices, Mode};
use filter::Type;
use filter::prelude::{Class, Descriptor};
use filters::{pcap, port};
use kernel::flow::{self, Flow};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use streamline::devices::LocalDevices;
use testkit::Chain;
use testkit::frames::{real_and_damaged, shaped};
use testkit::network::{Pair, may_make_networks};
use testkit::packets::{CLIENT, SERVER, tcp, udp};
use testkit::random::Random;

const ETHERNET: u16 = 1;

/// Frames that go through a filter together.
const TOGETHER: usize = 1000;

const FRAMES_OF_ONE: usize = 5000;

/// A frame, and its bytes on the wire.
type Frame = (Vec<u8>, u32);

fn by_filter(frames: &[Frame]) -> Vec<Option<u32>> {
    let mut passed = vec![None; frames.len()];
    let piece = |(number, (bytes, wire)): (usize, &Frame)| {
        let mut block = Descriptor { time: number as u64, class: Class(777), ..Descriptor::default() };
        block.set_wire(*wire);
        (block, bytes.clone())
    };
    let pieces = frames.iter().enumerate().map(piece).collect();
    for block in Chain::pieces(Type::Frame, Some(ETHERNET), pieces).then(&port::KIND, &[]).run().blocks {
        passed[block.descriptor.time as usize] = Some(block.descriptor.class.0);
    }
    passed
}

/// How many frames the filter passes, and for how many of them the slot tells the ports.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    said: usize,
}

impl Tally {
    fn check(&mut self, frames: &[Frame]) {
        for frames in frames.chunks(TOGETHER) {
            for ((bytes, wire), passed) in frames.iter().zip(by_filter(frames)) {
                let said = flow::of(bytes, *wire, true).ports;
                assert!(said.is_none() || said == passed, "{said:x?}, and `port` says {passed:x?}: {bytes:02x?}");
                assert_eq!(flow::of(bytes, *wire, false).ports, None);
                self.passed += usize::from(passed.is_some());
                self.said += usize::from(said.is_some());
            }
        }
    }
}

/// Captures in the folder for users, and the shared ones.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [root.join("captures"), testkit::shared::data().join("captures")];
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|ending| ["pcap", "pcapng", "cap"].iter().any(|one| ending == *one))
    });
    paths.sort();
    paths
}

#[test]
fn of_captures() {
    let (mut tally, mut read) = (Tally::default(), 0);
    for path in captures() {
        let source = Chain::source(&pcap::KIND, &[("file", path.to_str().unwrap())]);
        if source.refusal().is_some() {
            continue;
        }
        let outcome = source.run();
        let is_ethernet =
            |block: &&testkit::chain::Block| block.interface.as_ref().and_then(|one| one.link_type) == Some(ETHERNET);
        let frames = outcome.blocks.iter().filter(is_ethernet).take(FRAMES_OF_ONE);
        let frames: Vec<Frame> = frames.map(|block| (block.bytes.clone(), block.descriptor.wire())).collect();
        tally.check(&frames);
        // Many captures are cut; check the frames also as if they were whole.
        tally.check(&frames.iter().map(|(bytes, _)| (bytes.clone(), bytes.len() as u32)).collect::<Vec<_>>());
        read += 1;
    }
    println!("{read} captures: {tally:?}");
    assert!(read >= 5 && tally.said > 0, "{read} captures: {tally:?}");
    // The slot tells the ports of most packets.
    assert!(tally.said * 10 >= tally.passed * 7, "{tally:?}");
}

#[test]
fn of_damaged_frames() {
    let (mut random, mut tally) = (Random(7), Tally::default());
    for _ in 0..4 {
        let frames = real_and_damaged(4000, &mut random);
        tally.check(&frames.into_iter().map(|bytes| (bytes.clone(), bytes.len() as u32)).collect::<Vec<_>>());
    }
    println!("{tally:?}");
    assert!(tally.said > 0);
}

#[test]
fn of_frames_put_together_at_random() {
    let (mut random, mut tally) = (Random(0xf10f), Tally::default());
    for _ in 0..100 {
        let frames: Vec<_> = (0..TOGETHER).map(|_| shaped(&mut random)).collect();
        for frame in frames.iter().filter(|frame| frame.is_plain) {
            let said = flow::of(&frame.bytes, frame.bytes.len() as u32, true).ports;
            assert!(said.is_some(), "nothing is said of {:02x?}", frame.bytes);
        }
        let whole = |bytes: Vec<u8>| (bytes.clone(), bytes.len() as u32);
        tally.check(&frames.into_iter().map(|frame| whole(frame.bytes)).collect::<Vec<_>>());
    }
    println!("{tally:?}");
    assert!(tally.said < tally.passed, "frames it is not sure of: {tally:?}");
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Takes the next of our packets: the facts in its slot, and its bytes.
fn take(reader: &mut CaptureReader) -> (Facts, Vec<u8>) {
    let (mut to, end) = (vec![0; 2000], Instant::now() + PATIENCE);
    loop {
        assert!(Instant::now() < end, "nothing came");
        match reader.look() {
            Found::Packet(packet) => {
                let Some(len) = reader.take_copy(&packet, &mut to) else { continue };
                if to[..6] == [0xff; 6] {
                    return (packet.facts, to[..len].to_vec());
                }
            }
            Found::Nothing => reader.wait(Some(end)),
        }
    }
}

#[test]
fn every_writer_says_them() {
    if !may_make_networks() {
        return;
    }
    let behind = |tag: &[u8], frame: &[u8]| [&frame[..12], tag, &frame[12..]].concat();
    let (web, dns) = (tcp(CLIENT, SERVER, 1, 0, 2, &[7; 100]), udp((SERVER.0, 53), CLIENT, b"answer"));
    let mut fragment = dns.clone();
    fragment[21] = 9;
    let (web_ports, dns_ports) = (Some(40_000 << 16 | 80), Some(53 << 16 | 40_000));
    let rows = [
        (web.clone(), web_ports),
        (dns.clone(), dns_ports),
        (fragment, None),
        (behind(&[0x81, 0, 0, 5], &web), web_ports),
        (behind(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &dns), None),
    ];
    for (mode, by) in [(Mode::Tap, By::Kernel), (Mode::Tap, By::PacketSocket), (Mode::Consume, By::WhatIsBest)] {
        let (pair, rows) = (Pair::new(), rows.clone());
        let namespace = pair.near.namespace.clone();
        let look = move || {
            let mut far = pair.far.sender();
            let devices = LocalDevices::new();
            let asked = CaptureRequest { device: "near".into(), mode, by, sample: 1, ..CaptureRequest::default() };
            let mut reader = match devices.open(&asked, None) {
                Ok(reader) => reader,
                Err(error) => return println!("skipped (rights): {error:?}"),
            };
            for (mut frame, expected) in rows {
                frame[..6].fill(0xff);
                far.send(&frame).unwrap();
                let (facts, bytes) = take(&mut reader);
                let said = facts.flags.has(SlotFlags::PORTS).then_some(facts.class);
                assert_eq!((&bytes, said), (&frame, expected), "{mode:?} {by:?}");
                assert_eq!(facts.class, expected.unwrap_or(0));
                let flow = Flow { hash: facts.hash, ports: said };
                assert_eq!(flow, flow::of(&frame, frame.len() as u32, true), "{mode:?} {by:?}");
            }
        };
        // A namespace belongs to a thread.
        std::thread::spawn(move || namespace.enter(look).unwrap()).join().unwrap();
    }
}
