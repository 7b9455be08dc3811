//! Pieces that both filters share. They are no filters themselves.

pub(crate) mod column;
pub(crate) mod failure;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod whole;
