//! CONTROL PLANE: turns a request into a running plan, or changes nothing at all. Knows no concrete filter and no
//! packet.
//!
//! The steps of a request, in this order, one file each:
//! 1. [`registry`] — the filters there are;
//! 2. [`resolve`] — names, parameters and references: tree to [`graph`]. [`reserved`] has the keys that every filter
//!    has, [`settings`] those of `set`;
//! 3. [`check`] — types and classes. Inserts the filters that a kind wants, and adds missing sinks (`returns`: frames
//!    go back by a sink of their source). [`outputs`] checks that no two filters write to one place, and that no filter
//!    writes where another reads;
//! 4. [`rewrite`] — booleans and `bpf` expressions in their simplest form;
//! 5. [`merge`] — filters that begin alike run once; a selector whose rejected blocks alone are wanted is inverted
//!    ([`rewrite`]);
//! 6. [`place`] — each node in the lowest [`space`] that may and can run it: graph to plan. [`whole`] checks the result;
//! 7. [`transaction`] — prepare, connect, activate; all or nothing. If another plan runs, it takes only the steps for
//!    the [`difference`].
//!
//! [`explain`] prints the result.

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
pub mod whole;

pub use graph::Graph;
pub use place::Design;
pub use registry::Registry;
pub use space::{Before, Offer, StepError};
pub use transaction::Transaction;

use request::{Diagnostic, Text};

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
