//! COMPUTATION PLANE: runs a plan by plain function calls. Knows no language, no control plane and no concrete filter.
//!
//! - [`plan`] — the plan to run: filters, where each runs, the edges between them.
//! - [`stage`] — the parts of a plan that run on threads of their own; `channel` carries blocks between them, and
//!   `team` runs them.
//! - [`worker`] — one thread's loop: pull, walk, tend, finish. Start reading here.
//! - `node` — a filter of a running plan and its edges; `shape` — what the whole plan says of it; `shared` — what all
//!   nodes of a thread share.
//! - `source_clock` — the time that has passed by the blocks of one source.
//! - `walk` — one batch on its way through the graph, depth first.
//! - [`profile`] — how long each filter takes.
//! - `session` — the sessions of a filter, their cap and idle timeout.
//! - `replace` — puts another plan, a [`replacement`], in place of the running one.
//! - `witness` — checks in debug builds that filters change only what their kinds say.
//! - [`watch`] — copies of the blocks that go along an edge, for watchers.
//! - [`gauge`] — the state of running stages, for other threads.
//! - [`report`] — the counters, and the check that they add up.

#![forbid(unsafe_code)]

mod affinity;
mod channel;
pub mod gauge;
mod node;
pub mod plan;
pub mod profile;
mod replace;
pub mod replacement;
pub mod report;
mod session;
mod shape;
mod shared;
mod source_clock;
pub mod stage;
mod team;
mod walk;
pub mod watch;
mod witness;
pub mod worker;

pub use affinity::{CPUS, processors};
pub use base::limits::REPLACED_REPORTS;
pub use buffer::queue::numbers::Queue;
pub use gauge::{ChannelState, Doing, Gauges, StageState, ThreadState};
pub use plan::{Choice, Cost, Edge, How, Node, NodeId, Plan, Select, Task, Workers};
pub use replacement::{HandOver, Part, Replaced, Replacement};
pub use report::{EdgeReport, NodeReport, Report, StageReport};
pub use stage::{Channel, Stage, Stages};
pub use team::stages_fit;
pub use watch::{Edges, Watch};
pub use worker::{End, Run, Turn, Worker};
