//! Reloads rules when their file changes. A separate thread loads them, so that no frame waits.

use super::inspector::Inspector;
use filter::prelude::*;
use rules::RuleSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often the thread checks the file. It loads the file once two checks found the same state.
const LOOK: Duration = Duration::from_millis(500);

/// State that the thread and the filter share.
#[derive(Default)]
struct Shared {
    /// The newest rule set that the filter has not taken; an error says why loading failed.
    set: Option<Result<RuleSet, String>>,
    is_loading: bool,
}

type Slot = Mutex<Shared>;

/// Receives reloaded rules. Dropping it ends the thread.
pub(crate) struct Reloaded {
    slot: Arc<Slot>,
    /// `None`: the thread ended early, which was reported.
    thread: Option<JoinHandle<()>>,
}

/// Identifies a state of the file: modification time, size, inode.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Reloaded {
    /// Starts to watch the file that the parameter `key` names.
    pub fn new(key: &'static str, params: &Params) -> Result<Reloaded, ParamError> {
        let slot = Arc::new(Slot::default());
        let (weak, params) = (Arc::downgrade(&slot), params.clone());
        let path = params.text(key).unwrap_or_default().to_string();
        let (mut known, mut last) = (stamp(&path), None);
        let watch = move || {
            while weak.strong_count() > 0 {
                std::thread::park_timeout(LOOK);
                let now = stamp(&path);
                if now.is_some() && now != known && now == last {
                    let Some(slot) = weak.upgrade() else { return };
                    locked(&slot).is_loading = true;
                    drop(slot);
                    let loaded = super::load(key, &params).map_err(|error| error.message);
                    let Some(slot) = weak.upgrade() else { return };
                    *locked(&slot) = Shared { set: Some(loaded), is_loading: false };
                    known = now;
                }
                last = now;
            }
        };
        let thread = std::thread::Builder::new().name("rules".into()).spawn(watch);
        let failed = |error| ParamError::system(format!("a thread that watches the file of rules: {error}"));
        Ok(Reloaded { slot, thread: Some(thread.map_err(failed)?) })
    }

    /// Takes the newest rule set. Never waits: a set being stored is taken by the next call.
    fn take(&self) -> Option<Result<RuleSet, String>> {
        self.slot.try_lock().ok()?.set.take()
    }

    /// Applies and reports reloaded rules. `left_out`: number of rules left out, until it is reported.
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

impl Drop for Reloaded {
    /// The thread sees that the slot is gone, and ends. A load may take seconds and is not waited for.
    fn drop(&mut self) {
        let is_loading = locked(&self.slot).is_loading;
        drop(std::mem::take(&mut self.slot));
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if !is_loading {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}

fn locked(slot: &Slot) -> MutexGuard<'_, Shared> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stamp(path: &str) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.modified().ok()?, data.len(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::origin::Origins;
    use crate::tcp::urgent::Urgent;
    use testkit::Chain;

    /// A filter whose watching thread ended early.
    static KIND: Kind = Kind::new("orphan", "watches no more", |params, _| {
        let set = RuleSet::read("", &rules::Options::default()).unwrap_or_else(|_| unreachable!());
        let thread = Some(std::thread::spawn(|| ()));
        while !thread.as_ref().is_some_and(JoinHandle::is_finished) {
            std::thread::yield_now();
        }
        let inspector = Inspector::new(Arc::new(set), Origins::new(params), Urgent::default());
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
