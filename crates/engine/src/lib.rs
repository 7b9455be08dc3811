//! COMPUTATION PLANE: runs a plan by plain function calls. Knows no language, no control plane and no concrete filter.
//!
//! - [`plan`] — what is handed over: filters, where each runs, the edges between them.
//! - [`stage`] — which parts of a plan run on threads of their own; `channel` — what goes from one to another; `team` — all of
//!   them at work.
//! - [`worker`] — one thread's loop: pull, walk, tend, finish. Start reading here.
//! - `walk` — one batch on its way through the graph, depth first.
//! - [`profile`] — how long each filter takes.
//! - `session` — which sessions a filter has, their cap and idle timeout.
//! - [`replace`] — another plan in place of the one that runs.
//! - `witness` — whether filters change what they say, in debug builds.
//! - [`watch`] — copies of the blocks that go along an edge, for watchers.
//! - [`gauge`] — what other threads see of stages at work.
//! - [`report`] — the counters, and the check that they add up.

#![forbid(unsafe_code)]

mod affinity;
mod channel;
pub mod gauge;
pub mod plan;
pub mod profile;
pub mod replace;
pub mod report;
mod session;
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
pub use replace::{HandOver, Part, Replacement};
pub use report::{EdgeReport, NodeReport, Report, StageReport};
pub use stage::{Channel, Stage, Stages};
pub use team::stages_fit;
pub use watch::{Edges, Watch};
pub use worker::{End, Run, Turn, Worker};
