//! The types of the blocks on an edge.

use buffer::control::codec::{In, Out, Wire};

/// The type of the blocks on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A frame of the link layer; its view has its link type.
    Frame,
    /// A network-layer packet without its link layer.
    Packet,
    /// A piece of an ordered byte stream, class = stream.
    Bytes,
    /// A piece of a message: a run of blocks of one class from FIRST to LAST.
    Message,
    /// One row of a schema.
    Record,
}

impl Type {
    /// All types, in the order help prints them.
    pub const ALL: [Type; 5] = [Type::Frame, Type::Packet, Type::Bytes, Type::Message, Type::Record];

    /// The names for people, in the order of [`Type::ALL`].
    pub const NAMES: [&'static str; 5] = ["frame", "packet", "bytes", "message", "record"];

    /// The type with this name.
    pub fn of_name(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        Type::NAMES[self as usize]
    }
}

/// A set of [`Type`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// The empty set, which a source takes.
    pub const NONE: Types = Types(0);
    /// Every type.
    pub const ANY: Types = Types(0b1_1111);

    /// The set of these types.
    pub const fn of(types: &[Type]) -> Types {
        let mut set = 0;
        let mut index = 0;
        while index < types.len() {
            set |= 1 << types[index] as u8;
            index += 1;
        }
        Types(set)
    }

    /// Whether this type is in the set.
    pub const fn has(self, one: Type) -> bool {
        self.0 & (1 << one as u8) != 0
    }

    /// Whether all types of `other` are in the set.
    pub const fn has_all(self, other: Types) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it is the empty set.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// The types of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Types) -> Types {
        Types(self.0 & !other.0)
    }

    /// The types in the set.
    pub fn iter(self) -> impl Iterator<Item = Type> {
        Type::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

/// Sent as the names of the types, each once and in order, because numbers may change.
impl Wire for Types {
    fn put(&self, out: &mut Out) {
        self.iter().map(|one| one.name().to_string()).collect::<Vec<_>>().put(out);
    }

    fn get(fields: &mut In<'_>) -> Option<Types> {
        let names = Vec::<String>::get(fields)?;
        let types = Types::of(&names.iter().map(|name| Type::of_name(name)).collect::<Option<Vec<_>>>()?);
        types.iter().map(Type::name).eq(names.iter().map(String::as_str)).then_some(types)
    }
}

impl std::fmt::Display for Types {
    /// Writes "frame", "bytes or message", "anything" or "nothing".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Types::ANY {
            return f.write_str("anything");
        }
        let names: Vec<_> = self.iter().map(Type::name).collect();
        match names.split_last() {
            None => f.write_str("nothing"),
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} or {last}", rest.join(", ")),
        }
    }
}
