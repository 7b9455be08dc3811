//! How a message or a part of it ended.

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As its sender wished.
    Complete,
    /// Bytes are missing, its end among them.
    Gap,
    /// The conversation ended first, or the body is damaged.
    Cut,
    /// A limit left out the rest.
    Limit,
    /// As its sender wished, and another message of this side follows in the exchange.
    Interim,
}
