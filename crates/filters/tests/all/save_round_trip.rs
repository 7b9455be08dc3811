//! Runs every shared capture through `pcap | save` and reads it back: same frames, times, lengths and interfaces.

use crate::shared_captures;
use buffer::{Flags, Interface};
use filter::Failure;
use filters::{pcap, save};
use packet::LinkType;
use std::path::Path;
use testkit::{Chain, shared};

/// The parts of a frame that the format keeps.
type Seen = (u64, Vec<u8>, u32, Flags, Interface);

fn read(path: &Path) -> Vec<Seen> {
    let outcome = Chain::source(&pcap::KIND, &[("file", path.to_str().unwrap())]).run();
    let frames = outcome.blocks.into_iter().map(|block| {
        let interface = (**block.interface.as_ref().expect("a view")).clone();
        let descriptor = block.descriptor;
        (descriptor.time, block.bytes, descriptor.wire(), descriptor.flags(), interface)
    });
    frames.collect()
}

/// Classic pcap keeps no directions, names or descriptions. It has one snap length for all frames, never 0.
fn as_classic(frames: Vec<Seen>) -> Vec<Seen> {
    let first = frames.first().map_or(0, |frame| frame.4.snap_len);
    // It also has one unit of time, the first frame's.
    let nanoseconds = frames.first().is_some_and(|frame| frame.4.nanoseconds);
    let mixed = frames.iter().any(|frame| frame.4.snap_len != first);
    let frame = |(time, bytes, wire, flags, interface): Seen| {
        let limit = LinkType(interface.link_type.unwrap()).maximum_snap_len();
        let snap_len = match interface.snap_len {
            _ if mixed => first,
            0 => limit,
            given => given.min(limit),
        };
        let interface = Interface { link_type: interface.link_type, snap_len, nanoseconds, ..Interface::default() };
        (time, bytes, wire, flags.without(Flags::OUTBOUND), interface)
    };
    frames.into_iter().map(frame).collect()
}

#[test]
fn every_shared_capture_comes_back() {
    let folder = shared::data();
    let out = tempfile::tempdir().unwrap();
    let (mut whole, mut refused) = (0, 0);
    for capture in shared_captures::sorted(&folder.join("captures")) {
        let name = capture.file_name().unwrap().to_string_lossy().into_owned();
        let source = || Chain::source(&pcap::KIND, &[("file", capture.to_str().unwrap())]);
        if source().refusal().is_some() {
            continue;
        }
        for ending in ["pcapng", "pcap"] {
            let path = out.path().join(format!("{name}.{ending}"));
            let outcome = source().then(&save::KIND, &[("file", path.to_str().unwrap())]).run();
            if let Some(Failure::Request(_)) = outcome.failure {
                let mut links: Vec<_> = read(&capture).iter().map(|seen| seen.4.link_type).collect();
                links.sort();
                links.dedup();
                assert!(ending == "pcap" && links.len() > 1, "{name}");
                refused += 1;
                continue;
            }
            let (mut before, after) = (read(&capture), read(&path));
            if ending == "pcap" {
                before = as_classic(before);
            } else {
                // pcapng is always written in nanoseconds.
                before.iter_mut().for_each(|frame| frame.4.nanoseconds = true);
            }
            assert_eq!(before.len(), after.len(), "{name} as {ending}");
            for (place, (before, after)) in before.iter().zip(&after).enumerate() {
                assert_eq!(before, after, "{name} as {ending}, frame {place}");
            }
            whole += 1;
        }
    }
    assert!(whole >= shared::part(300) && refused > 0, "{whole} came back, {refused} were refused");
}
