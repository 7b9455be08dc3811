//! The fields and bodies that the filters behind a filter read.
//!
//! The engine unites this over all edges behind a node, and hands it to the node's filter in
//! [`Context::wanted`](crate::Context::wanted). A filter that gives records tells its
//! [`RowWriter`](crate::RowWriter::want), which leaves out the other fields. The filters behind it cannot tell a field that
//! was left out from one that was not set, and do not ask.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fields of records and the parts of messages that are read.
#[derive(Debug)]
pub struct Wanted {
    /// A different number for each set. 0: all.
    id: u64,
    /// All fields are read.
    all: bool,
    /// The fields that are read by name.
    names: BTreeSet<String>,
    bodies: bool,
}

static SETS: AtomicU64 = AtomicU64::new(1);

impl Wanted {
    /// Everything.
    pub const ALL: &'static Wanted = &Wanted { id: 0, all: true, names: BTreeSet::new(), bodies: true };

    /// Nothing.
    pub fn none() -> Wanted {
        Wanted::fields([])
    }

    /// The fields of these names. Of messages these are fields of the META records; bodies are not read.
    pub fn fields(names: impl IntoIterator<Item = String>) -> Wanted {
        // Relaxed: only the number itself counts.
        let id = SETS.fetch_add(1, Ordering::Relaxed);
        Wanted { id, all: false, names: names.into_iter().collect(), bodies: false }
    }

    /// Adds what `other` has.
    pub fn add(&mut self, other: &Wanted) {
        self.bodies |= other.bodies;
        self.all |= other.all;
        self.names.extend(other.names.iter().cloned());
    }

    /// The number of this set: two sets with one number are the same.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the bodies of messages are read, not only their META records.
    pub fn bodies(&self) -> bool {
        self.bodies
    }

    /// Whether all fields are read.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether the field of this name is read, or one inside of it: `dns.answers.rdata` reads `dns.answers`.
    pub fn has(&self, field: &str) -> bool {
        self.all || self.names_field(field)
    }

    /// Whether the field of this name, or one inside of it, is read by its name: a reader of all fields does not ask for it.
    pub fn names_field(&self, field: &str) -> bool {
        let is_inside =
            |name: &String| name.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.names.iter().any(is_inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_unite() {
        let mut wanted = Wanted::none();
        let check = |wanted: &Wanted, expected: [bool; 4]| {
            let found = [wanted.has("dns.answers"), wanted.has("dns.id"), wanted.is_all(), wanted.bodies()];
            assert_eq!(found, expected, "{wanted:?}");
        };
        check(&wanted, [false; 4]);
        wanted.add(&Wanted::fields(["dns.answers.rdata".into(), "dns.identity".into()]));
        check(&wanted, [true, false, false, false]);
        wanted.add(Wanted::ALL);
        check(&wanted, [true; 4]);
        assert!(wanted.names_field("dns.answers") && !wanted.names_field("dns.id"));
        wanted.add(&Wanted::none());
        check(&wanted, [true; 4]);
    }
}
