//! Checks a placed design as a whole: only there is it known which filters run together.

use crate::branches;
use crate::isolate::groups;
use crate::place::Design;
use base::limits::THREADS;
use engine::Stages;
use request::{Diagnostic, Span};

/// Checks a placed design as a whole: its stages, its processes, and the branches on its threads.
pub fn check(design: &Design) -> Result<(), Diagnostic> {
    let stages = Stages::of(&design.plan);
    if let Some((id, why)) = stages.unspread {
        let site = &design.sites[id.index()];
        let at = site.param_spans.iter().find(|(key, _)| *key == "spread").map_or(site.span, |(_, span)| *span);
        let text = format!("`{}` cannot be spread here", design.plan.nodes[id.index()].label);
        return Err(Diagnostic::new(text, at).with_label(why));
    }
    groups(design)?;
    if stages.threads() > THREADS {
        let last = design.sites.last().map_or(Span::NONE, |site| site.span);
        let text = format!("a request runs on {THREADS} threads at most");
        let help = "each `||`, and each of `workers=` and `spread=`, is one more";
        return Err(Diagnostic::new(text, last).with_help(help));
    }
    branches::check(design, &stages)
}
