//! Rules that are loaded again when their file changes: by a thread of its own, so that no frame waits for it.

use filter::prelude::*;
use rules::RuleSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How often the file is looked at. It is loaded when two looks found it the same.
const LOOK: Duration = Duration::from_millis(500);

/// What was loaded last and not taken yet; an error says why it could not be.
type Slot = Mutex<Option<Result<RuleSet, String>>>;

/// Where the thread puts what it loaded. The thread ends when this is gone.
pub(crate) struct Reloaded(Arc<Slot>);

/// What tells two states of a file apart.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Reloaded {
    /// Watches the file that the parameter `key` names, from what it is now.
    pub fn new(key: &'static str, params: &Params) -> Result<Reloaded, ParamError> {
        let slot = Arc::new(Slot::default());
        let (weak, params) = (Arc::downgrade(&slot), params.clone());
        let path = params.text(key).unwrap_or_default().to_string();
        let (mut known, mut last) = (stamp(&path), None);
        let watch = move || {
            while weak.strong_count() > 0 {
                std::thread::sleep(LOOK);
                let now = stamp(&path);
                if now.is_some() && now != known && now == last {
                    let loaded = super::load(key, &params).map_err(|error| error.message);
                    let Some(slot) = weak.upgrade() else { return };
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
                    known = now;
                }
                last = now;
            }
        };
        let thread = std::thread::Builder::new().name("rules".into()).spawn(watch);
        thread.map_err(|error| ParamError::system(format!("a thread that watches the file of rules: {error}")))?;
        Ok(Reloaded(slot))
    }

    /// What was loaded since the last call. Does not wait: what is being put there comes the next time.
    pub fn take(&self) -> Option<Result<RuleSet, String>> {
        self.0.try_lock().ok()?.take()
    }
}

fn stamp(path: &str) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}
