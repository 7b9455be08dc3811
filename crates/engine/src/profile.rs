//! Measures how long each filter takes: a cover around an instance reads the clock before and after each call. Filters
//! return and the engine moves blocks, so a call's time is that of its filter alone. The engine itself measures
//! nothing.

use crate::plan::{Cost, Plan, Task};
use crate::report::{NodeReport, Report};
use base::atomic::{AtomicU64, Ordering};
use base::id::Class;
use filter::run::{AnySessionFilter, Instance};
use filter::{Batch, Closed, Context, Failure, Filter, Made, Moment, Progress, Pull, Slot, Source};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// The sum of one node's time; if the node is shared, the sum over its copies.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// The time since the meter was made.
    pub fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn measure<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let made = call();
        // Relaxed: a sum that is read when all threads have ended, or that was true a moment ago.
        self.0.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        made
    }

    /// Covers an instance, to measure it.
    pub fn cover(&self, instance: Instance) -> Instance {
        let meter = self.clone();
        match instance {
            Instance::Source(inner) => Instance::source(Covered { inner, meter }),
            Instance::Filter(inner) => Instance::filter(Covered { inner, meter }),
            Instance::Session(key, inner) => Instance::Session(key, Box::new(Covered { inner, meter })),
            Instance::SessionAnew(key, inner) => Instance::SessionAnew(key, Box::new(Covered { inner, meter })),
        }
    }
}

struct Covered<T: ?Sized> {
    meter: Meter,
    inner: Box<T>,
}

impl Filter for Covered<dyn Filter> {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.run(batch, cx))
    }

    fn timer(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.timer(cx))
    }

    fn pulled(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.pulled(cx))
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.flush(cx))
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.finish(cx))
    }

    fn backlog(&self) -> u64 {
        self.inner.backlog()
    }

    fn restart(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.restart(cx))
    }
}

impl AnySessionFilter for Covered<dyn AnySessionFilter> {
    fn open(&mut self, class: Class, cx: &mut Context<'_>) -> Slot {
        self.meter.measure(|| self.inner.open(class, cx))
    }

    fn run(&mut self, slot: Slot, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.run(slot, batch, cx))
    }

    fn close(&mut self, slot: Slot, class: Class, why: Closed, cx: &mut Context<'_>) -> Result<(), Box<Failure>> {
        self.meter.measure(|| self.inner.close(slot, class, why, cx))
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.flush(cx))
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        self.meter.measure(|| self.inner.finish(cx))
    }
}

/// The cover hands on each method. A missing one would do what the trait does by default.
impl Source for Covered<dyn Source> {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        self.meter.measure(|| self.inner.pull(cx))
    }

    fn progress(&self) -> Option<Progress> {
        self.inner.progress()
    }

    fn bell(&mut self) -> Option<BorrowedFd<'_>> {
        self.inner.bell()
    }

    fn clock(&self) -> Option<u64> {
        self.inner.clock()
    }

    fn follows(&self) -> Option<Moment> {
        self.inner.follows()
    }

    fn runs(&self) -> &[(usize, u64)] {
        self.inner.runs()
    }

    fn pauses(&self) -> bool {
        self.inner.pauses()
    }

    fn leave(&mut self) {
        self.inner.leave();
    }

    fn stop(&mut self) -> bool {
        self.inner.stop()
    }

    fn position(&self) -> Option<u64> {
        self.inner.position()
    }

    fn end_before(&mut self, number: u64) -> bool {
        self.inner.end_before(number)
    }

    fn begin_at(&mut self, number: u64) {
        self.inner.begin_at(number);
    }

    fn account(&mut self, cx: &mut Context<'_>) {
        self.inner.account(cx);
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.inner.finish(cx);
    }
}

/// The costs of filters, by their text in requests.
pub type Costs = BTreeMap<String, Cost>;

/// The time that one node took in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its text in requests.
    pub label: String,
    /// The node begins or ends a path. Its time depends on its kind more than on its parameters.
    pub is_end: bool,
    /// Its time, in ns.
    pub ns: u64,
    /// Blocks that came to it; for a source, blocks that it gave.
    pub blocks: u64,
    /// Blocks that it gave.
    pub gave: u64,
}

impl Measured {
    /// The times of all nodes of a run; `meters` are in the order of its report. Choices are left out, but not their
    /// filters.
    pub fn of(report: &Report, meters: &[Meter]) -> Vec<Measured> {
        let measured = report.nodes.iter().zip(meters).filter(|(node, _)| node.source || node.counters.blocks_in > 0);
        let one = |(node, meter): (&NodeReport, &Meter)| Measured {
            label: node.label.clone(),
            is_end: node.source || node.edges.is_empty() && !node.operand,
            ns: meter.ns(),
            blocks: if node.source { node.counters.blocks_made } else { node.counters.blocks_in },
            gave: node.counters.blocks_out(),
        };
        measured.map(one).collect()
    }

    /// The time for a block, rounded.
    pub fn ns_per_block(&self) -> u64 {
        (self.ns + self.blocks / 2) / self.blocks.max(1)
    }

    /// Costs for later runs: by the filter's text, and for an end also by its kind.
    pub fn costs(&self) -> impl Iterator<Item = (String, Cost)> {
        let number = |number: u64| number.min(u64::from(u32::MAX)) as u32;
        let gives = number(self.gave.saturating_mul(1000) / self.blocks.max(1));
        let cost = Cost { ns: number(self.ns_per_block()), gives, is_measured: true };
        let kind = self.is_end.then(|| kind_of(&self.label).to_string());
        [Some(self.label.clone()), kind].into_iter().flatten().map(move |text| (text, cost))
    }
}

fn kind_of(label: &str) -> &str {
    label.split(' ').next().unwrap_or(label)
}

/// Fills in the known costs of a plan's filters.
pub fn tell(costs: &Costs, plan: &mut Plan) {
    for node in &mut plan.nodes {
        let is_end = node.edges.is_empty() || matches!(&node.task, Task::Filter { kind, .. } if kind.is_source());
        let known = costs.get(&node.label).or_else(|| costs.get(kind_of(&node.label)).filter(|_| is_end));
        if let Some(cost) = known {
            node.how.cost = Some(*cost);
        }
    }
}
