//! One call of a decoder: bytes read and written, and the condition for the next call.

/// The result of one call of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes read.
    pub used: usize,
    /// Bytes written.
    pub made: usize,
    /// The condition for the next step.
    pub then: Then,
}

/// What a decoder needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More input: all of it was read.
    Input,
    /// More room for output; there may be more to write.
    Room,
    /// Nothing: its input has ended. Later bytes are not part of it.
    End,
    /// Nothing: its input is damaged.
    Damaged,
    /// A larger budget: its codings have written all they may.
    Budget,
}
