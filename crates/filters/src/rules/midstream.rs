//! Connections of which the first packet seen is no SYN: the parameter `midstream`.

use filter::prelude::*;

const WORDS: [&str; 4] = ["yes", "no", "pass", "drop"];

/// What becomes of them?
pub(crate) const MIDSTREAM: Param = Param::new(
    "midstream",
    ParamType::Choice(&WORDS),
    "connections joined midway: read (yes), only their packets are looked at (no), not looked at (pass), or dropped",
)
.default("yes");

/// What becomes of connections joined midway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Midstream {
    /// They are read from there on.
    #[default]
    Read,
    /// They have no stream and are never established. Rules look at each of their packets alone.
    PacketsAlone,
    /// Rules do not look at them.
    Pass,
    /// They are dropped as by a rule.
    Drop,
}

impl Midstream {
    pub fn of(params: &Params) -> Midstream {
        match params.text(MIDSTREAM.key) {
            Some("no") => Midstream::PacketsAlone,
            Some("pass") => Midstream::Pass,
            Some("drop") => Midstream::Drop,
            _ => Midstream::Read,
        }
    }
}
