//! The rings of other stages that a stage goes on from.

use crate::parser::client::open;
use crate::parser::space::{Join, Joined};
use filters::parser::Continuity;
use filters::parser::inlet::Keeper;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Why a stage ended, for its readers and for the stages that go on from it.
pub(crate) type LastWord = Arc<OnceLock<String>>;

/// The ring of another stage, for a stage that goes on from it.
pub(crate) struct Base {
    pub(crate) text: String,
    pub(crate) continuity: Continuity,
    pub(crate) ring: PathBuf,
    pub(crate) last_word: LastWord,
}

/// Keeps nothing; gives the last word of the stage below, which runs while it is read.
struct Below(LastWord);

impl Keeper for Below {
    fn last_word(&mut self) -> Option<String> {
        // The stage sets it before its ring ends, unless it panicked.
        Some(self.0.get().map_or("the stage it reads from has ended", |why| why).into())
    }
}

pub(crate) struct Bases(pub(crate) Vec<Base>);

impl Join for Bases {
    fn join(&mut self, text: &str) -> Result<Joined, String> {
        let base = self.0.iter().find(|base| base.text == text).ok_or("it is not there yet")?;
        let path = base.ring.to_str().ok_or("the folder's path is not text")?;
        Ok(Joined {
            ring: open(path)?,
            continuity: base.continuity,
            keeper: Box::new(Below(Arc::clone(&base.last_word))),
        })
    }
}
