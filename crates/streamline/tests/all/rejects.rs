//! `x |! y`: y gets what x rejects, unchanged. For every expression X of selectors, `X |! y` gives what `not { X } | y`
//! gives, in both notations. Beside `X | z` it gives the rest, and both together are everything, in order.

use std::path::{Path, PathBuf};
use streamline::language::{parse, print_paper};
use streamline::{Output, Session, StopFlag};
use testkit::chain::Captured;
use testkit::frames::{real_and_damaged, shaped};
use testkit::random::Random;

/// A folder with a capture of frames of every sort.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(frames: &[Vec<u8>]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        let header = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 262_144, 1];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (number, frame) in frames.iter().enumerate() {
            let len = frame.len() as u32;
            bytes.extend([1_000_000_000 + number as u32, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(frame);
        }
        std::fs::write(folder.path("all.pcap"), bytes).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a request on the capture; `FILE.pcap` in it is in the folder. Panics unless the counters add up.
    fn run(&self, request: &str) -> String {
        let here = |text: &str| text.replace("save ", &format!("save overwrite=yes file={}/", self.0.path().display()));
        let request = here(&format!("pcap file={} | {request}", self.path("all.pcap").display()));
        run(&request)
    }

    /// The frames of a capture that was saved, with their times in seconds.
    fn saved(&self, name: &str) -> Vec<(u32, Vec<u8>)> {
        let bytes = std::fs::read(self.path(name)).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut frames) = (24, Vec::new());
        while at < bytes.len() {
            let len = word(at + 8) as usize;
            frames.push((word(at), bytes[at + 16..at + 16 + len].to_vec()));
            at += 16 + len;
        }
        frames
    }
}

fn run(request: &str) -> String {
    let captured = Captured::default();
    let session = Session::with_output(Output::new(Box::new(captured.clone()), false));
    let job = session.prepare(request, &Default::default()).unwrap_or_else(|wrong| panic!("{request}: {wrong}"));
    let finished = job.run(&StopFlag::new(), &mut |_| {}).unwrap();
    finished.report.check().unwrap();
    captured.text()
}

/// A random selector for the frames here; `depth` is how deep selectors may be joined.
fn selection(random: &mut Random, depth: usize) -> String {
    let leaf = |random: &mut Random| {
        let leaves = ["port 53", "port 1024:65535", "host 10.0.0.1", "net 0.0.0.0/1", "ip", "ip6", "vlan", "vlan 0:3"];
        let more = ["proto 6", "icmp", "ether ip", "sourceport 0:32000", "destport 80"];
        random.of(&[&leaves[..], &more[..]].concat()).to_string()
    };
    match random.below(if depth == 0 { 1 } else { 5 }) {
        0 | 1 => leaf(random),
        2 => format!("not {{ {} }}", selection(random, depth - 1)),
        3 => format!("{{ {} and {} }}", selection(random, depth - 1), selection(random, depth - 1)),
        _ => format!("{{ {} or {} }}", selection(random, depth - 1), selection(random, depth - 1)),
    }
}

fn in_paper(request: &str) -> String {
    print_paper(&parse(request).unwrap(), &|_| None).trim().to_string()
}

#[test]
fn what_a_selection_rejects_is_what_its_opposite_passes() {
    let mut random = Random(0x2e1ec7);
    let mut frames = real_and_damaged(150, &mut random);
    frames.extend((0..300).map(|_| shaped(&mut random).bytes));
    let folder = Folder::new(&frames);
    folder.run("save all2.pcap");
    let all = folder.saved("all2.pcap");
    let (mut some, mut rest_count) = (0, 0);
    for _ in 0..40 {
        let selection = selection(&mut random, 3);
        folder.run(&format!("not {{ {selection} }} | save right.pcap"));
        let right = folder.saved("right.pcap");
        for request in [format!("{selection} |! save rest.pcap"), in_paper(&format!("{selection} |! save x"))] {
            // Paper notation holds for the whole request.
            if let Some(request) = request.strip_suffix("(save,x)") {
                let place = |name: &str| folder.path(name).display().to_string();
                let (from, to) = (place("all.pcap"), place("rest.pcap"));
                run(&format!("(pcap,file=\"{from}\") > {request}(save,file=\"{to}\",overwrite=yes)"));
            } else {
                folder.run(&request);
            }
            assert!(folder.saved("rest.pcap") == right, "{request}");
        }
        folder.run(&format!("{selection} | {{ save passed.pcap + |! save rest.pcap }}"));
        let (passed, rest) = (folder.saved("passed.pcap"), folder.saved("rest.pcap"));
        assert!(rest == right, "{selection}");
        let mut both = [passed.clone(), rest.clone()].concat();
        both.sort();
        let mut sorted = all.clone();
        sorted.sort();
        assert!(both == sorted, "{selection}: {} and {} of {}", passed.len(), rest.len(), all.len());
        assert!([&passed, &rest].iter().all(|part| part.is_sorted_by_key(|(time, _)| *time)), "{selection}");
        some += usize::from(!passed.is_empty() && !rest.is_empty());
        rest_count += rest.len();
    }
    assert!(some > 20 && rest_count > 0, "{some} of 40 say something");
}

#[test]
fn filters_that_give_other_blocks_reject_what_is_not_theirs() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../captures");
    let of = |capture: &str, request: &str| run(&format!("pcap {} | {request}", captures.join(capture).display()));
    let rows = [
        ("dns.pcap", "tcp |! inspect", "not proto tcp | inspect"),
        ("browse.pcap", "udp |! inspect", "not proto udp | inspect"),
        ("dns.pcap", "udp |! tcp |! count", "not proto \"udp,tcp\" | count"),
        ("dns.pcap", "udp |! dns | json", "proto tcp | dns | json"),
        ("browse.pcap", "ip | tcp |! { |17 count + |! count }", "ip | not proto tcp | { |17 count + |! count }"),
        // Of streams: those of another protocol, in pieces as they came. What follows a proxy's CONNECT is not HTTP.
        ("tls.pcap", "http |! tls | json", "tls | json"),
        ("browse.pcap", "head 10 |! count", "count"),
    ];
    for (capture, rejects, opposite) in rows {
        let (got, right) = (of(capture, rejects), of(capture, opposite));
        match rejects.starts_with("head") {
            true => assert!(right.contains("\"blocks\":43") && got.contains("\"blocks\":33"), "{got}"),
            false => assert_eq!(got, right, "{capture}: {rejects}"),
        }
        assert!(!got.is_empty(), "{capture}: {rejects}");
    }
}

/// Passed, taken, dropped and rejected frames add up to all frames, whatever is wanted.
#[test]
fn what_is_held_or_dropped_is_not_among_it() {
    let mut random = Random(3);
    let mut frames = real_and_damaged(300, &mut random);
    frames.extend((0..300).map(|_| shaped(&mut random).bytes));
    let folder = Folder::new(&frames);
    for filter in ["tcp", "udp", "dns", "http", "tls"] {
        let captured = Captured::default();
        let session = Session::with_output(Output::new(Box::new(captured), false));
        let request = format!("pcap {} | {filter} | {{ drop + |! drop }}", folder.path("all.pcap").display());
        let finished = session.prepare(&request, &Default::default()).unwrap();
        let report = finished.run(&StopFlag::new(), &mut |_| {}).unwrap().report;
        report.check().unwrap();
        let node = report.nodes.iter().find(|node| node.label == filter).unwrap();
        let rejected: Vec<u64> = node.edges.iter().filter(|edge| edge.rejected).map(|edge| edge.blocks).collect();
        assert_eq!(rejected, [node.counters.blocks_rejected], "{filter}");
        if ["tcp", "udp"].contains(&filter) {
            assert!(rejected[0] > 0 && node.counters.drops.total() > 0, "{filter}: {:?}", node.counters);
        }
    }
}
