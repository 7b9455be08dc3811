//! A cache of compiled expressions: filter placement, the kernel's programs and each filter ask for the same
//! expression. Not a compiler.
//!
//! Compiling is slow: libpcap's optimiser takes time cubic in the expression's length. It also resolves host names, so
//! a second answer may differ from the first. The cache gives one request one answer. After [`HOLDS`] it asks the
//! compiler again.

use program::cbpf::Instruction;
use program::{Compile, CompileError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is kept: longer than preparing a request takes, and no longer than host names are cached anyway.
const HOLDS: Duration = Duration::from_secs(60);

/// Most answers kept; the oldest is dropped first.
const EXPRESSIONS: usize = 64;

/// Expression, link type, bytes kept.
type Key = (String, u16, u32);

struct Said {
    key: Key,
    when: Instant,
    what: Result<Vec<Instruction>, CompileError>,
}

pub(crate) struct Compiled<C> {
    compiler: C,
    said: Mutex<Vec<Said>>,
}

impl<C: Compile> Compiled<C> {
    pub(crate) fn new(compiler: C) -> Compiled<C> {
        Compiled { compiler, said: Mutex::default() }
    }

    fn compile_at(&self, now: Instant, key: Key) -> Result<Vec<Instruction>, CompileError> {
        // Each change under this lock is complete in itself, so a poisoned lock is fine. A caller with another
        // expression waits meanwhile, as it would for libpcap itself.
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|said| now.saturating_duration_since(said.when) < HOLDS);
        if let Some(known) = said.iter().find(|said| said.key == key) {
            return known.what.clone();
        }
        if said.len() >= EXPRESSIONS {
            said.remove(0);
        }
        let what = self.compiler.compile(&key.0, key.1, key.2);
        said.push(Said { key, when: now, what: what.clone() });
        what
    }
}

impl<C: Compile> Compile for Compiled<C> {
    fn compile(&self, expression: &str, link_type: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError> {
        self.compile_at(Instant::now(), (expression.into(), link_type, snap_len))
    }

    fn describe(&self) -> String {
        self.compiler.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A compiler that answers differently each time.
    struct Fickle(AtomicU32);

    impl Compile for Fickle {
        fn compile(&self, expression: &str, _: u16, _: u32) -> Result<Vec<Instruction>, CompileError> {
            let asked = self.0.fetch_add(1, Ordering::Relaxed);
            match expression {
                "wrong" => Err(CompileError::syntax(asked.to_string())),
                _ => Ok(vec![Instruction { code: 6, jt: 0, jf: 0, k: asked }]),
            }
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn the_same_is_said_for_a_while() {
        let compiled = Compiled::new(Fickle(AtomicU32::new(0)));
        let began = Instant::now();
        let check = |after: Duration, expression: &str, link_type, expected: &str| {
            let said = compiled.compile_at(began + after, (expression.into(), link_type, 0));
            assert_eq!(said.map_or_else(|error| error.message, |code| code[0].k.to_string()), expected, "{expression}");
        };
        check(Duration::ZERO, "a", 1, "0");
        check(Duration::ZERO, "a", 12, "1");
        check(Duration::ZERO, "wrong", 1, "2");
        check(HOLDS / 2, "a", 1, "0");
        check(HOLDS / 2, "wrong", 1, "2");
        check(HOLDS, "a", 1, "3");
        check(HOLDS + HOLDS / 2, "a", 1, "3");
        for more in 0..EXPRESSIONS {
            check(HOLDS + HOLDS / 2, &format!("b{more}"), 1, &(4 + more).to_string());
        }
        check(HOLDS + HOLDS / 2, "a", 1, &(4 + EXPRESSIONS).to_string());
        assert!(compiled.said.lock().unwrap().len() <= EXPRESSIONS);
    }
}
