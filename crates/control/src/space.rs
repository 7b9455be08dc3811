//! Words about spaces: what one offers, and why a step failed in it. The control plane calls no space; its caller does.

use filter::{Kind, ParamError, Params, Spaces};

/// An offer of a space to run a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The cost of a block here, in rough nanoseconds: decides between spaces of one sort.
    pub cost: u32,
}

/// A filter on some path to another one, with its parameters.
pub type Before<'a> = (&'static Kind, &'a Params);

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// The space cannot do it after all. Something else may be tried: another space, or to read more packets.
    pub refused: bool,
    /// The error.
    pub error: ParamError,
}

/// How high a sort of space is: blocks never go down again.
pub fn level(sort: Spaces) -> u8 {
    [Spaces::KERNEL, Spaces::DAEMON, Spaces::PARSER, Spaces::APP, Spaces::REMOTE]
        .iter()
        .position(|known| *known == sort)
        .map_or(u8::MAX, |place| place as u8)
}
