//! The counters of a running request. The worker makes them between two batches, when they are asked for.

use super::address::Listener;
use super::server::Server;
use super::text::{Kind, Page};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use streamline::{Report, Worker};

/// How long the worker may take, unless it is stopped or one batch takes longer.
const WAIT: Duration = Duration::from_secs(4);

/// Serves the counters of one request.
pub(crate) struct Metrics {
    sampler: Arc<Sampler>,
    _server: Server,
}

/// Where scrapes meet the worker.
#[derive(Default)]
struct Sampler {
    state: Mutex<State>,
    made: Condvar,
}

#[derive(Default)]
struct State {
    is_wanted: bool,
    /// The number of the last sample, and the sample.
    sample: (u64, String),
}

impl Metrics {
    pub(crate) fn start(listener: Listener) -> io::Result<Metrics> {
        let sampler = Arc::new(Sampler::default());
        let theirs = Arc::clone(&sampler);
        let server = Server::start(listener, Arc::new(move || theirs.ask(WAIT)))?;
        Ok(Metrics { sampler, _server: server })
    }

    /// Makes a sample if one is wanted. Called between batches.
    pub(crate) fn look(&self, request: &str, worker: &Worker) {
        self.sampler.give(|| page(request, worker));
    }
}

impl Sampler {
    /// Asks for a sample, and waits for it. Scrapes that wait together get the same one.
    fn ask(&self, wait: Duration) -> Option<String> {
        // No panic under this lock leaves a half-made value.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.sample.0;
        state.is_wanted = true;
        let waited = self.made.wait_timeout_while(state, wait, |state| state.sample.0 == before);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.sample.0 != before).then(|| state.sample.1.clone())
    }

    fn give(&self, make: impl FnOnce() -> String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.is_wanted) {
            state.sample = (state.sample.0 + 1, make());
            self.made.notify_all();
        }
    }
}

fn page(request: &str, worker: &Worker) -> String {
    let mut page = Page::default();
    page.family(Kind::Info, "streamline_request", "The request that runs.").add(&[("request", request)], 1);
    let memory = worker.memory_bytes() as u64;
    page.family(Kind::Gauge, "streamline_ring_memory_bytes", "Memory of the request's rings.").add(&[], memory);
    if let (Some(input), _) = worker.progress() {
        let help = "Bytes of the input that were read.";
        page.family(Kind::Counter, "streamline_input_bytes", help).add(&[], input.done);
        if let Some(all) = input.all {
            page.family(Kind::Gauge, "streamline_input_size_bytes", "Bytes of the input files.").add(&[], all);
        }
    }
    filters(&mut page, &worker.report());
    if let Some(gauges) = worker.gauges() {
        let mut blocks = page.family(
            Kind::Counter,
            "streamline_thread_blocks",
            "Blocks that a thread of a stage has read, or got from other stages.",
        );
        for (stage, state) in gauges.read().iter().enumerate() {
            for (thread, state) in state.threads.iter().enumerate() {
                blocks.add(&[("stage", &stage.to_string()), ("thread", &thread.to_string())], state.blocks);
            }
        }
    }
    page.end()
}

/// A number of each filter.
type Count = fn(&engine::NodeReport) -> u64;

/// Named numbers of each filter.
type Counts = fn(&engine::NodeReport) -> &filter::counter::Tally;

fn filters(page: &mut Page, report: &Report) {
    const COUNTS: [(&str, &str, Count); 6] = [
        ("streamline_filter_input_blocks", "Blocks that came to a filter.", |node| node.counters.blocks_in),
        ("streamline_filter_input_bytes", "Bytes of those blocks.", |node| node.counters.bytes_in),
        ("streamline_filter_output_blocks", "Blocks that a filter gave.", |node| node.counters.blocks_out()),
        ("streamline_filter_output_bytes", "Bytes of those blocks.", |node| node.counters.bytes_out()),
        ("streamline_filter_rejected_blocks", "Blocks that a filter rejected: no loss.", |node| {
            node.counters.blocks_rejected
        }),
        ("streamline_filter_taken_blocks", "Blocks that ended in a filter as they should.", |node| {
            node.counters.blocks_taken
        }),
    ];
    const TALLIES: [(&str, &str, &str, Counts); 3] = [
        ("streamline_filter_dropped_blocks", "Blocks that a filter lost.", "reason", |node| &node.counters.drops),
        ("streamline_filter_unread_blocks", "Blocks that a filter could not read.", "reason", |node| {
            &node.counters.unread
        }),
        ("streamline_filter_events", "What a filter counts besides.", "event", |node| &node.counters.events),
    ];
    let nodes: Vec<(String, &engine::NodeReport)> =
        report.nodes.iter().enumerate().map(|(place, node)| (place.to_string(), node)).collect();
    for (name, help, count) in COUNTS {
        let mut family = page.family(Kind::Counter, name, help);
        for (place, node) in &nodes {
            family.add(&[("filter", &node.label), ("node", place)], count(node));
        }
    }
    for (name, help, label, tally) in TALLIES {
        let mut family = page.family(Kind::Counter, name, help);
        for (place, node) in &nodes {
            for (what, count) in tally(node).iter() {
                family.add(&[("filter", &node.label), ("node", place), (label, what)], count);
            }
        }
    }
    let mut family = page.family(Kind::Counter, "streamline_edge_blocks", "Blocks that went along an edge.");
    for (place, node) in &nodes {
        for (edge, report) in node.edges.iter().enumerate() {
            let kind = if report.rejected { "rejected" } else { "given" };
            let (to, edge) = (report.to.to_string(), edge.to_string());
            family.add(&[("from", place), ("to", &to), ("edge", &edge), ("blocks", kind)], report.blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_made_when_it_is_asked_for() {
        let sampler = Arc::new(Sampler::default());
        sampler.give(|| unreachable!("nobody asked"));
        assert_eq!(sampler.ask(Duration::ZERO), None);
        let theirs = Arc::clone(&sampler);
        let asking = std::thread::spawn(move || theirs.ask(WAIT));
        let mut number = 0;
        while !asking.is_finished() {
            sampler.give(|| {
                number += 1;
                format!("sample {number}")
            });
            std::thread::yield_now();
        }
        let text = asking.join().unwrap().unwrap();
        assert!(["sample 1", "sample 2"].contains(&text.as_str()), "{text}");
    }
}
