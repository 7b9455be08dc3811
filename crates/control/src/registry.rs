//! The filters there are, by name. The control plane is given the list and names no filter itself.

use filter::{Gives, Kind, Types};
use request::nearest;

/// The kinds that a request may name.
#[derive(Clone, Copy, Debug)]
pub struct Registry {
    kinds: &'static [&'static [&'static Kind]],
    end: Option<&'static Kind>,
    is_for_people: bool,
    left_out: &'static [(&'static str, &'static str)],
}

impl Registry {
    /// A registry of the kinds in these lists.
    pub const fn new(kinds: &'static [&'static [&'static Kind]]) -> Registry {
        Registry { kinds, end: None, is_for_people: false, left_out: &[] }
    }

    /// Adds this kind as the sink of each path without one, instead of `json` or `inspect`.
    #[must_use]
    pub const fn ending_in(mut self, kind: &'static Kind) -> Registry {
        self.end = Some(kind);
        self
    }

    /// Whether a person reads what requests write: then records without a sink become columns, and not JSON, and frames become
    /// records.
    #[must_use]
    pub const fn for_people(mut self, is_for_people: bool) -> Registry {
        self.is_for_people = is_for_people;
        self
    }

    /// As [`for_people`](Registry::for_people) says.
    pub(crate) fn is_for_people(&self) -> bool {
        self.is_for_people
    }

    /// Names filters that this build lacks, each with how to get it.
    #[must_use]
    pub const fn without(mut self, left_out: &'static [(&'static str, &'static str)]) -> Registry {
        self.left_out = left_out;
        self
    }

    /// How to get the filter `name`, which this build lacks. `None`: it lacks no filter of this name.
    pub(crate) fn left_out(&self, name: &str) -> Option<&'static str> {
        self.left_out.iter().find(|(known, _)| *known == name).map(|(_, how)| *how)
    }

    /// The kind set by [`ending_in`](Registry::ending_in).
    pub(crate) fn end(&self) -> Option<&'static Kind> {
        self.end
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<&'static Kind> {
        self.each().find(|kind| kind.name == name)
    }

    /// The name that this one most likely means: a filter that other programs call so, or the most similar name.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let lower = name.to_lowercase();
        let called = self.each().find(|kind| kind.also.contains(&lower.as_str())).map(|kind| kind.name);
        // `tcp.port` and the like: names of fields in other programs.
        let field = |part| self.find(part).filter(|kind| !kind.is_source()).map(|kind| kind.name);
        let part = || lower.rsplit('.').find_map(field);
        called.or_else(part).or_else(|| nearest(name, self.each().map(|kind| kind.name)))
    }

    /// Filters that take all of these types and give one of the `wanted` types.
    pub fn between(&self, comes: Types, wanted: Types) -> Vec<&'static str> {
        let takes = |kind: &Kind| {
            kind.takes.has_all(comes) || comes.iter().all(|one| kind.wants.iter().any(|(of, _)| *of == one))
        };
        let gives = |kind: &Kind| matches!(kind.gives, Gives::Only(one) if wanted.has(one));
        let between = self.each().filter(|kind| !kind.is_source() && takes(kind) && gives(kind));
        between.map(|kind| kind.name).collect()
    }

    /// All kinds, by name.
    pub fn kinds(&self) -> Vec<&'static Kind> {
        let mut kinds: Vec<_> = self.each().collect();
        kinds.sort_unstable_by_key(|kind| kind.name);
        kinds
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &'static Kind> + use<> {
        self.kinds.iter().flat_map(|list| list.iter().copied())
    }
}
