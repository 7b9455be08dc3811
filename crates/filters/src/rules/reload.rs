//! Rules that are loaded again when their file changes: by a thread of its own, so that no frame waits for it.

use super::inspector::Inspector;
use filter::prelude::*;
use rules::RuleSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often the file is looked at. It is loaded when two looks found it the same.
const LOOK: Duration = Duration::from_millis(500);

/// What was loaded last and not taken yet; an error says why it could not be.
type Slot = Mutex<Option<Result<RuleSet, String>>>;

/// Where the thread puts what it loaded. The thread ends when this is gone.
pub(crate) struct Reloaded {
    slot: Arc<Slot>,
    /// `None`: it ended before its time, which was said.
    thread: Option<JoinHandle<()>>,
}

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
        let failed = |error| ParamError::system(format!("a thread that watches the file of rules: {error}"));
        Ok(Reloaded { slot, thread: Some(thread.map_err(failed)?) })
    }

    /// What was loaded since the last call. Does not wait: what is being put there comes the next time.
    fn take(&self) -> Option<Result<RuleSet, String>> {
        self.slot.try_lock().ok()?.take()
    }

    /// Has the filter of this name go on with rules that were loaded meanwhile, and says so. `left_out`: the rules left out of them,
    /// until it was said.
    pub fn apply(&mut self, name: &str, inspector: &mut Inspector, left_out: &mut usize, cx: &mut Context<'_>) {
        match self.take() {
            None => {}
            Some(Ok(set)) => {
                cx.notice(format!("{name}: the file has changed: {} rules", set.len()));
                cx.count("times rules were loaded", 1);
                *left_out = set.left_out().len();
                inspector.replace(Arc::new(set));
            }
            Some(Err(why)) => {
                cx.notice(format!("{name}: the rules stay as they are: {why}"));
                cx.count("files of rules refused", 1);
            }
        }
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.thread = None;
            cx.notice(format!("{name}: the rules stay as they are: the thread that watches their file has ended"));
            cx.count("threads that watch rules ended", 1);
        }
        if *left_out > 0 {
            cx.notice(format!("{name}: {left_out} rules are left out"));
            *left_out = 0;
        }
    }
}

fn stamp(path: &str) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::origin::Origins;
    use testkit::Chain;

    /// A filter whose watching thread has ended before its time.
    static KIND: Kind = Kind::new("orphan", "watches no more", |params, _| {
        let set = RuleSet::read("", &rules::Options::default()).unwrap_or_else(|_| unreachable!());
        let thread = Some(std::thread::spawn(|| ()));
        while !thread.as_ref().is_some_and(JoinHandle::is_finished) {
            std::thread::yield_now();
        }
        let inspector = Inspector::new(Arc::new(set), Origins::new(params));
        Ok(Instance::filter(Orphan { inspector, reloaded: Reloaded { slot: Arc::default(), thread } }))
    });

    struct Orphan {
        inspector: Inspector,
        reloaded: Reloaded,
    }

    impl Filter for Orphan {
        fn run(&mut self, _: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
            self.reloaded.apply("orphan", &mut self.inspector, &mut 0, cx);
            self.reloaded.apply("orphan", &mut self.inspector, &mut 0, cx);
            Ok(Status::Done)
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_said_once() {
        let outcome = Chain::frames(1, &[(0, vec![0; 60])]).then(&KIND, &[]).run();
        assert_eq!(outcome.counters("orphan").events.get("threads that watch rules ended"), 1);
        assert_eq!(outcome.notices.iter().filter(|said| said.contains("has ended")).count(), 1);
    }
}
