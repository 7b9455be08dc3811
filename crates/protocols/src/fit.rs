//! What one protocol says of the first bytes of a stream; [`probe`](crate::probe) asks them all.

/// What one protocol says of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They are of it.
    Is,
    /// More bytes may decide.
    More,
    /// They are of another one.
    No,
}

impl Fit {
    /// `Is` or `No`.
    pub fn of(fits: bool) -> Fit {
        if fits { Fit::Is } else { Fit::No }
    }
}
