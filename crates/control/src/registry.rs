//! Which filters there are, by name. The control plane is given the list; it names no filter itself.

use filter::{Gives, Kind, Types};
use request::nearest;

/// The kinds a request may name.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    kinds: &'static [&'static Kind],
    end: Option<&'static Kind>,
}

impl Registry {
    /// A registry of these kinds.
    pub const fn new(kinds: &'static [&'static Kind]) -> Registry {
        Registry { kinds, end: None }
    }

    /// Every end of a request without a sink gets this kind, in place of `json` or `inspect`.
    #[must_use]
    pub const fn ending_in(mut self, kind: &'static Kind) -> Registry {
        self.end = Some(kind);
        self
    }

    /// See [`ending_in`](Registry::ending_in).
    pub(crate) fn end(&self) -> Option<&'static Kind> {
        self.end
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<&'static Kind> {
        self.kinds.iter().copied().find(|kind| kind.name == name)
    }

    /// The name that most likely is meant by this one: that of a filter which other programs call so, or the one most like it.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let lower = name.to_lowercase();
        let called = self.kinds.iter().find(|kind| kind.also.contains(&lower.as_str())).map(|kind| kind.name);
        // `tcp.port`: other programs' names for fields.
        let field = |part| self.find(part).filter(|kind| !kind.is_source()).map(|kind| kind.name);
        let part = || lower.rsplit('.').find_map(field);
        called.or_else(part).or_else(|| nearest(name, self.kinds.iter().map(|kind| kind.name)))
    }

    /// Filters that take one of these types and give one of those.
    pub fn between(&self, comes: Types, wanted: Types) -> Vec<&'static str> {
        let takes = |kind: &Kind| {
            kind.takes.has_all(comes) || comes.iter().all(|one| kind.wants.iter().any(|(of, _)| *of == one))
        };
        let gives = |kind: &Kind| matches!(kind.gives, Gives::Only(one) if wanted.has(one));
        let between = self.kinds.iter().filter(|kind| !kind.is_source() && takes(kind) && gives(kind));
        between.map(|kind| kind.name).collect()
    }

    /// All kinds.
    pub fn kinds(&self) -> &'static [&'static Kind] {
        self.kinds
    }
}
