//! Answers of a keeper that come late, or while a signal arrives: each belongs to its own question.

use buffer::keeper::client::Named;
use buffer::keeper::policy::Policy;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, OnFull, RingKind, Signalling};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(5))
}

/// Signals that a pause began, and that it is over.
type Pause = (Sender<()>, Receiver<()>);

/// A keeper in a thread that can be told to pause.
struct Kept {
    named: Named,
    pauses: Sender<Pause>,
    stop: io::PipeWriter,
    keeper: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn new() -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let geometry = Geometry::new(RingKind::D, 4096, 16);
        let policy = Policy::default();
        let options = RingOptions { policy, keep_open: true, ..RingOptions::new(geometry) };
        let mut keeper = Keeper::create(&path, options).unwrap();
        let named = Named::at(path.to_str().unwrap()).unwrap();
        let (pauses, paused) = channel::<Pause>();
        let (stopped, stop) = io::pipe().unwrap();
        let keeper = std::thread::spawn(move || {
            while !keeper.turn(Some(1), Some(stopped.as_fd())).unwrap() {
                if let Ok((begins, goes_on)) = paused.try_recv() {
                    begins.send(()).unwrap();
                    // Until the test drops the other end.
                    let _ = goes_on.recv();
                }
            }
            keeper.remove();
        });
        Kept { named, pauses, stop, keeper, _folder: folder }
    }

    fn pause(&self) -> Sender<()> {
        let (begins, begun) = channel();
        let (pause, goes_on) = channel();
        self.pauses.send((begins, goes_on)).unwrap();
        begun.recv().unwrap();
        pause
    }

    fn end(self) {
        drop(self.stop);
        self.keeper.join().unwrap();
    }
}

#[test]
fn an_answer_that_came_too_late_is_not_taken_for_the_next_one() {
    let kept = Kept::new();
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    let numbers = ["/one.sock", "/two.sock"].map(|path| writer.register(Path::new(path), 7).unwrap());
    let mut reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    let pause = kept.pause();
    let late = reader.whereabouts(numbers[0], Some(Instant::now() + Duration::from_millis(30)));
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(pause);
    let (named, generation) = reader.whereabouts(numbers[1], soon()).unwrap();
    assert_eq!((named.path(), generation), (Path::new("/two.sock"), 7));
    // The question for the next ring also works while an answer is due.
    let pause = kept.pause();
    let late = reader.whereabouts(numbers[0], Some(Instant::now() + Duration::from_millis(30)));
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(pause);
    drop(writer);
    let asking =
        std::thread::spawn(move || reader.next_generation(soon()).map(|goes_on| (goes_on, reader.generation())));
    let _writer = loop {
        match kept.named.open_writer(Signalling::Every) {
            Ok(writer) => break writer,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}"),
        }
    };
    assert_eq!(asking.join().unwrap().unwrap(), (true, 2));
    kept.end();
}

#[test]
fn a_signal_takes_no_question_back() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and the rest of the action is zero: without SA_RESTART calls are interrupted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let kept = Kept::new();
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    let pause = kept.pause();
    let asking = std::thread::spawn(move || {
        let numbers = ["/one.sock", "/two.sock"].map(|path| writer.register(Path::new(path), 7));
        let resized = writer.resize(8192, 32);
        (numbers.map(Result::unwrap), resized, writer)
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(asking.as_pthread_t(), libc::SIGUSR1) };
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(pause);
    while !asking.is_finished() {
        // SAFETY: as above.
        unsafe { libc::pthread_kill(asking.as_pthread_t(), libc::SIGUSR1) };
        std::thread::sleep(Duration::from_micros(50));
    }
    let (numbers, resized, writer) = asking.join().unwrap();
    resized.unwrap();
    assert_eq!(writer.generation(), 2);
    let mut reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    for (number, path) in numbers.into_iter().zip(["/one.sock", "/two.sock"]) {
        assert_eq!(reader.whereabouts(number, soon()).unwrap().0.path(), Path::new(path));
    }
    kept.end();
}
