//! Watching edges: each block is copied once, whatever the readers do, and the path does not notice.

use crate::parts::{Graph, Keep, Seen, Shout, exactly, texts};
use base::atomic::StopFlag;
use buffer::keeper::client::{Named, NamedReader};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, OnFull, RingKind, Signalling};
use engine::{Edges, Report, Watch};
use filter::ring_header::{BlockHeader, HEADER_BYTES};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

pub struct Ring {
    _folder: tempfile::TempDir,
    named: Named,
    path: PathBuf,
    keeper: Option<JoinHandle<()>>,
}

impl Ring {
    pub fn new() -> Ring {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let options = RingOptions::new(Geometry::new(RingKind::D, 1 << 20, 1 << 12));
        let mut keeper = Keeper::create(&path, options).unwrap();
        let keeper = std::thread::spawn(move || keeper.run().unwrap());
        let named = Named::at(path.to_str().unwrap()).unwrap();
        Ring { _folder: folder, named, path, keeper: Some(keeper) }
    }

    pub fn watch(&self, edges: &[Edges], frames: bool) -> Watch {
        let writer = self.named.open_writer(Signalling::default()).unwrap();
        Watch::new(edges.to_vec(), frames, writer)
    }

    pub fn reader(&self) -> NamedReader {
        self.named.open_reader(OnFull::Overwrite, From::Next, None).unwrap()
    }

    fn remove(&mut self) {
        self.named.remove().unwrap();
        self.keeper.take().expect("removed once").join().unwrap();
        assert!(!self.path.exists());
    }
}

/// Reads a whole ring: number, class and bytes of each block. Marks are left out; the last number is given with the
/// list.
pub fn all(reader: &mut NamedReader) -> (Vec<(u64, u32, String)>, u64) {
    let (mut found, mut last) = (Vec::new(), 0);
    while let Ok(seen) = reader.reader().peek() {
        let bytes = reader.reader().bytes(&seen).copy_to_vec();
        reader.reader().take(&seen).unwrap();
        let header = BlockHeader::of(bytes.first_chunk().unwrap());
        last = header.at;
        if header.is_mark {
            continue;
        }
        found.push((header.at, seen.block.class.0, String::from_utf8_lossy(&bytes[HEADER_BYTES..]).into_owned()));
    }
    (found, last)
}

const WORDS: [(u32, &[u8]); 4] = [(1, b"anna"), (2, b"bert"), (1, b"carl"), (3, b"dora")];

/// A source, a filter in place that keeps blocks with a first letter before `d`, one that shouts, and sinks by class.
fn graph() -> (Graph, Seen) {
    graph_of(false)
}

/// The same graph; `cut` runs the filters that shout in a thread of their own.
fn graph_of(cut: bool) -> (Graph, Seen) {
    let mut graph = Graph::default();
    let source = graph.source(&WORDS);
    let early = graph.in_place("early", Keep { like: |first| first < b'd', set_class: false });
    let shout = graph.in_place("shout", Shout);
    let (one, rest) = (graph.sink("one"), graph.sink("rest"));
    graph.edge(source, early);
    if cut {
        graph.cut(early, shout)
    } else {
        graph.edge(early, shout)
    }
    graph.selected(shout, one, Some(exactly(1)));
    graph.selected(shout, rest, Some(engine::Select::Otherwise(vec![exactly(1)])));
    let seen = Arc::clone(&graph.seen);
    (graph, seen)
}

fn run(watches: Vec<Watch>) -> Report {
    run_of(graph(), watches)
}

fn run_of((graph, seen): (Graph, Seen), watches: Vec<Watch>) -> Report {
    let mut worker = graph.worker();
    for watch in watches {
        assert!(worker.watch(watch));
    }
    worker.run(&StopFlag::new(), &mut |_| {}).unwrap();
    assert_eq!(texts(&seen, "one"), ["ANNA", "CARL"]);
    assert_eq!(texts(&seen, "rest"), ["BERT"]);
    let report = worker.report();
    report.check().unwrap();
    report
}

fn counted(report: &Report) -> String {
    format!("{:?}", report.nodes)
}

type Expected<'a> = &'a [(u64, u32, &'a str)];

#[test]
fn who_watches_sees_what_goes_along_and_the_path_does_not_notice() {
    let alone = counted(&run(Vec::new()));
    let rows: [(&[Edges], Expected); 4] = [
        (&[Edges { from: 0, edge: None }], &[(0, 1, "anna"), (1, 2, "bert"), (2, 1, "carl"), (3, 3, "dora")]),
        (&[Edges { from: 1, edge: Some(0) }], &[(0, 1, "anna"), (1, 2, "bert"), (2, 1, "carl")]),
        (&[Edges { from: 2, edge: Some(1) }], &[(0, 2, "BERT")]),
        (
            &[Edges { from: 2, edge: Some(0) }, Edges { from: 0, edge: None }],
            &[(0, 1, "anna"), (1, 2, "bert"), (2, 1, "carl"), (3, 3, "dora"), (4, 1, "ANNA"), (5, 1, "CARL")],
        ),
    ];
    for (edges, expected) in rows {
        let ring = Ring::new();
        let watch = ring.watch(edges, true);
        let mut reader = ring.reader();
        assert_eq!(counted(&run(vec![watch])), alone);
        let (found, last) = all(&mut reader);
        assert_eq!(last, expected.len() as u64);
        let found: Vec<_> = found.iter().map(|(number, class, text)| (*number, *class, text.as_str())).collect();
        assert_eq!(found, expected, "{edges:?}");
    }
}

#[test]
fn no_more_is_copied_than_somebody_reads_and_the_rest_is_counted() {
    let blocks: Vec<(u32, &[u8])> = (0..40_000).map(|_| (1, &[7u8; 1000][..])).collect();
    let ring = Ring::new();
    let mut graph = Graph::default();
    let source = graph.source(&blocks);
    let sink = graph.sink("sink");
    graph.edge(source, sink);
    let mut worker = graph.worker();
    assert!(worker.watch(ring.watch(&[Edges { from: 0, edge: None }], true)));
    let mut reader = ring.reader();
    let (mut seen, mut last) = (Vec::new(), 0);
    let mut turn = 0;
    worker
        .run(&StopFlag::new(), &mut |worker| {
            worker.tend_watches();
            turn += 1;
            if turn == 2 {
                let (some, number) = all(&mut reader);
                seen.extend(some);
                last = number;
            }
        })
        .unwrap();
    drop(worker);
    // Half the ring has room for about 500 blocks; unread blocks were not overwritten.
    assert!((100..600).contains(&seen.len()) || seen.is_empty(), "{}", seen.len());
    let (rest, end) = all(&mut reader);
    seen.extend(rest);
    assert!((200..1200).contains(&seen.len()), "{} of {last}", seen.len());
    assert_eq!((end, reader.reader().counters().lost), (40_000, 0));
}

#[test]
fn a_ring_that_is_removed_is_let_go_of() {
    let mut ring = Ring::new();
    let edges = [Edges { from: 0, edge: None }];
    let mut worker = graph().0.worker();
    assert!(worker.watch(ring.watch(&edges, true)));
    ring.remove();
    worker.tend_watches();
    let rings: Vec<Ring> = (0..base::limits::WATCHES).map(|_| Ring::new()).collect();
    for ring in &rings {
        assert!(worker.watch(ring.watch(&edges, true)));
    }
    assert!(!worker.watch(Ring::new().watch(&edges, true)), "as many as there can be");
    let mut worker = graph().0.worker();
    for wrong in [Edges { from: 9, edge: None }, Edges { from: 0, edge: Some(1) }] {
        assert!(!worker.watch(Ring::new().watch(&[wrong], true)), "{wrong:?}");
    }
}

#[test]
fn edges_of_any_stage_are_watched() {
    let alone = counted(&run(Vec::new()));
    let rows: [(Edges, Expected); 3] = [
        (Edges { from: 0, edge: None }, &[(0, 1, "anna"), (1, 2, "bert"), (2, 1, "carl"), (3, 3, "dora")]),
        (Edges { from: 1, edge: Some(0) }, &[(0, 1, "anna"), (1, 2, "bert"), (2, 1, "carl")]),
        (Edges { from: 2, edge: Some(1) }, &[(0, 2, "BERT")]),
    ];
    for (edges, expected) in rows {
        let ring = Ring::new();
        let watch = ring.watch(&[edges], true);
        let mut reader = ring.reader();
        assert_eq!(counted(&run_of(graph_of(true), vec![watch])), alone);
        let (found, _) = all(&mut reader);
        let found: Vec<_> = found.iter().map(|(number, class, text)| (*number, *class, text.as_str())).collect();
        assert_eq!(found, expected, "{edges:?}");
    }
}
