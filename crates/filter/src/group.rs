//! Groups of filters, for lists that people read. A kind belongs to one by its types.

use crate::kind::{Gives, Kind, Parts};
use crate::types::{Type, Types};

/// A group of filters, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// They begin a chain.
    Sources,
    /// They pass some of the blocks, or all in another way, and change none.
    Selection,
    /// They change frames, or make streams and messages of them.
    Frames,
    /// They read protocols.
    Protocols,
    /// They describe traffic in records.
    Traffic,
    /// They take records.
    Records,
    /// They end a chain.
    Sinks,
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 7] = [
        Group::Sources,
        Group::Selection,
        Group::Frames,
        Group::Protocols,
        Group::Traffic,
        Group::Records,
        Group::Sinks,
    ];

    /// The group of a kind.
    pub fn of(kind: &Kind) -> Group {
        let takes_frames = kind.takes.has(Type::Frame) || kind.takes.has(Type::Packet);
        match kind.gives {
            _ if kind.may_begin() => Group::Sources,
            Gives::Nothing => Group::Sinks,
            _ if kind.takes.has(Type::Record) && Types::of(&[Type::Record, Type::Message]).has_all(kind.takes) => {
                Group::Records
            }
            Gives::Same if !kind.writes.has(Parts::DATA) && kind.opens.is_none() => Group::Selection,
            _ if !takes_frames => Group::Protocols,
            Gives::Only(Type::Record) => Group::Traffic,
            _ => Group::Frames,
        }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Group::Sources => "Sources",
            Group::Selection => "Selection: some of the blocks, or in another order",
            Group::Frames => "Frames changed, and made into streams",
            Group::Protocols => "Protocols",
            Group::Traffic => "Records that describe traffic",
            Group::Records => "Questions about records",
            Group::Sinks => "Sinks",
        }
    }
}
