//! A space of a session: it carries out steps that it can undo.
//!
//! - `app_space` — function calls in this process.
//! - `live` — the spaces `kernel` and `daemon`.
//! - `parser::space` — the parser process.

use control::StepError;
use control::transaction::Step;
use engine::{NodeId, Plan};

// The names of spaces in plans.
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const DAEMON: &str = "daemon";
pub(crate) const PARSER: &str = "parser";
pub(crate) const APP: &str = "app";

pub(crate) trait Space {
    /// Its name in plans.
    fn name(&self) -> &'static str;

    /// Node `id` takes the place of node `running` of the running plan. `true`: it goes on here as it is. Then it is
    /// neither prepared nor activated, and undoing its preparation does not touch the running node.
    fn keep(&mut self, _id: NodeId, _running: NodeId) -> bool {
        false
    }

    /// Carries out a step for a node or an edge of a plan.
    fn carry(&mut self, step: &Step, plan: &Plan) -> Result<(), StepError>;

    /// Undoes a step, which cannot fail.
    fn undo(&mut self, step: &Step);
}
