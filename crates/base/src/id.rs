//! Newtypes for the small integers that cross boundaries, where a bare `u32` would say nothing.

use std::fmt;

/// Index of a view in the table of rings of one keeper: a segment with its link type and interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct RingId(pub u16);

/// Which use of a [`RingId`] a descriptor belongs to. A retired id comes back under the next generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Generation(pub u16);

/// The number that a class-setting filter gave a block (a stream, a port pair, a VLAN id, and so on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Class(pub u32);

impl Class {
    /// The class of one direction of a connection: `connection * 2 + direction`, 0 = client to server.
    pub fn of_stream(connection: u32, direction: u8) -> Class {
        Class(connection.wrapping_mul(2) | u32::from(direction & 1))
    }

    /// The connection of this class, if the class is that of a stream.
    pub fn connection(self) -> u32 {
        self.0 >> 1
    }

    /// 0 = client to server, 1 = server to client, if the class is that of a stream.
    pub fn direction(self) -> u8 {
        (self.0 & 1) as u8
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
