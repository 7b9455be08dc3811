//! Connections of which the first packet seen is no SYN: the parameter `midstream`.

use filter::prelude::*;

const WORDS: [&str; 4] = ["yes", "no", "pass", "drop"];

/// The parameter.
pub(crate) const MIDSTREAM: Param = Param::new(
    "midstream",
    ParamType::Choice(&WORDS),
    "connections joined midway: read (yes), looked at by rules of packets alone (no), not at all (pass), or dropped",
)
.default("yes");

/// What becomes of connections joined midway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Midstream {
    /// They are read from there on.
    #[default]
    Read,
    /// They are not picked up: rules of packets look at them, and rules of streams and messages do not. They are never
    /// established.
    NotPickedUp,
    /// Rules do not look at them.
    Pass,
    /// They are dropped as by a rule.
    Drop,
}

impl Midstream {
    pub fn of(params: &Params) -> Midstream {
        match params.text(MIDSTREAM.key) {
            Some("no") => Midstream::NotPickedUp,
            Some("pass") => Midstream::Pass,
            Some("drop") => Midstream::Drop,
            _ => Midstream::Read,
        }
    }
}
