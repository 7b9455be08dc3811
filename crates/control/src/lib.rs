//! CONTROL PLANE: turns a request into a running plan, or changes nothing. Knows no concrete filter and no packet.
//!
//! The life of a request, one file each, in this order:
//! 1. [`registry`] — which filters there are;
//! 2. [`resolve`] — names, parameters and references: tree to [`graph`]; [`reserved`] has the keys that every filter has,
//!    [`settings`] those of `set`;
//! 3. [`check`] — types and classes; what a kind wants is inserted, ends without a sink get one (`returns`: frames that go back by a sink of their source's);
//!    [`outputs`] — no two filters write to one place, and none to what another reads;
//! 4. [`rewrite`] — booleans and `bpf` expressions in their simplest form;
//! 5. [`merge`] — what begins alike runs once; selectors whose rejects alone are wanted are turned round ([`rewrite`]);
//! 6. [`place`] — each node in the lowest [`space`] that may and can run it: graph to plan;
//! 7. [`transaction`] — prepare, connect, activate; all of it or nothing. Where another plan runs, only what
//!    [`difference`] leaves.
//!
//! [`explain`] prints what came of it.

#![forbid(unsafe_code)]

mod branches;
pub mod check;
pub mod difference;
pub mod explain;
pub mod graph;
pub mod isolate;
pub mod merge;
pub mod outputs;
pub mod place;
pub mod registry;
pub mod reserved;
pub mod resolve;
mod returns;
pub mod rewrite;
pub mod settings;
pub mod space;
pub mod transaction;

pub use graph::Graph;
pub use place::Design;
pub use registry::Registry;
pub use space::{Before, Offer, Space, StepError, Verdict};
pub use transaction::{Change, carry_out, carry_out_change};

use request::{Diagnostic, Text};

/// From an expanded tree to a design: steps 2 to 6.
pub fn design(text: &Text, registry: &Registry, spaces: &[Box<dyn Space + '_>]) -> Result<Design, Diagnostic> {
    let graph = checked(text, registry)?;
    place::place(graph, spaces, &place::Refused::default())
}

/// From an expanded tree to a checked, simplified graph: steps 2 to 5.
pub fn checked(text: &Text, registry: &Registry) -> Result<Graph, Diagnostic> {
    let mut graph = resolve::resolve(text, registry)?;
    check::check(&mut graph, registry)?;
    outputs::check(&graph)?;
    rewrite::rewrite(&mut graph);
    merge::merge(&mut graph);
    rewrite::turn_round(&mut graph);
    Ok(graph)
}
