//! Which filters there are, by name. The control plane is given the list; it names no filter itself.

use filter::Kind;
use request::nearest;

/// The kinds a request may name.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    kinds: &'static [&'static Kind],
}

impl Registry {
    /// A registry of these kinds.
    pub const fn new(kinds: &'static [&'static Kind]) -> Registry {
        Registry { kinds }
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().copied().find(|kind| kind.name == name)
    }

    /// The name most like this one.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        nearest(name, self.kinds.iter().map(|kind| kind.name))
    }

    /// All kinds.
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.kinds
    }
}
