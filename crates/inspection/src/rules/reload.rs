//! Reloads rules when their file changes. A separate thread loads them, so that no frame waits.

use super::inspector::Inspector;
use filter::prelude::*;
use rules::RuleSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often the thread looks at the file, and the filter asks the thread. The thread loads a file that two looks found
/// in the same state, and that is in this state when it was read: it is not half written.
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
                let is_at_rest = now == std::mem::replace(&mut last, now);
                if now != known && is_at_rest {
                    let Some(slot) = weak.upgrade() else { return };
                    locked(&slot).is_loading = true;
                    drop(slot);
                    let loaded = super::load(key, &params).map_err(|error| error.message);
                    let loaded = match now {
                        Some((_, 0, _)) if loaded.is_ok() => Err(format!("{path} is empty")),
                        _ => loaded,
                    };
                    let Some(slot) = weak.upgrade() else { return };
                    // What changed meanwhile is looked at again when it is at rest.
                    let set = (stamp(&path) == now).then_some(loaded);
                    known = if set.is_some() { now } else { known };
                    let mut shared = locked(&slot);
                    shared.set = set.or_else(|| shared.set.take());
                    shared.is_loading = false;
                }
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

    /// When the filter is to call [`Reloaded::apply`] again, though no frame comes: errors are said at once.
    pub fn next_due(&self, cx: &Context<'_>) -> u64 {
        if self.thread.is_some() { cx.now.saturating_add(LOOK.as_nanos() as u64) } else { u64::MAX }
    }

    /// Applies and reports reloaded rules. `left_out`: the notice about rules left out, until it is given.
    pub fn apply(
        &mut self,
        name: &str,
        inspector: &mut Inspector,
        left_out: &mut Option<String>,
        cx: &mut Context<'_>,
    ) {
        match self.take() {
            None => {}
            Some(Ok(set)) => {
                cx.notice(format!("{name}: the file has changed: {} rules", set.len()));
                cx.count("times rules were loaded", 1);
                *left_out = super::left_out(&set);
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
        if let Some(said) = left_out.take() {
            cx.notice(format!("{name}: {said}"));
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
    use filters::parts::origin::Origins;
    use filters::tcp::settings::Urgent;
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
            self.reloaded.apply("orphan", &mut self.inspector, &mut None, cx);
            self.reloaded.apply("orphan", &mut self.inspector, &mut None, cx);
            Ok(Status::Done)
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_said_once() {
        let outcome = Chain::frames(1, &[(0, vec![0; 60])]).then(&KIND, &[]).run();
        assert_eq!(outcome.counters("orphan").events.get("threads that watch rules ended"), 1);
        assert_eq!(outcome.notices.iter().filter(|said| said.contains("has ended")).count(), 1);
    }

    /// The result of the thread after this change of the file.
    fn after(change: impl FnOnce(&std::path::Path)) -> Result<usize, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        fs::write(&path, "alert ip any any -> any any (sid:1;)\n").unwrap();
        let text = path.display().to_string();
        let reloaded = Reloaded::new("file", &testkit::chain::params(&super::super::KIND, &[("file", &text)])).unwrap();
        change(&path);
        for _ in 0..200 {
            if let Some(set) = reloaded.take() {
                return set.map(|set| set.len());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        panic!("nothing came");
    }

    #[test]
    fn a_file_that_is_empty_or_gone_or_no_file_changes_nothing() {
        let two = "alert ip any any -> any any (sid:1;)\nalert ip any any -> any any (sid:2;)\n";
        assert_eq!(after(|path| fs::write(path, two).unwrap()), Ok(2));
        let check = |change: &dyn Fn(&std::path::Path), said: &str| {
            let error = after(change).unwrap_err();
            assert!(error.contains(said), "{error}");
        };
        check(&|path| fs::write(path, "").unwrap(), "is empty");
        check(&|path| fs::remove_file(path).unwrap(), "No such file");
        check(
            &|path| {
                fs::remove_file(path).unwrap();
                assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
            },
            "it is a FIFO or a device",
        );
        check(
            &|path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            },
            "it is a FIFO or a device",
        );
    }

    /// A writer that takes its time: rules come when it has ended.
    #[test]
    fn a_file_that_grows_is_loaded_when_it_is_at_rest() {
        let grown = after(|path| {
            let mut text = String::new();
            for sid in 1..8 {
                text += &format!("alert ip any any -> any any (sid:{sid};)\n");
                fs::write(path, &text).unwrap();
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        assert_eq!(grown, Ok(7));
    }
}
