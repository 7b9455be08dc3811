//! A keeper that runs out of system resources. The tests run one after the other, because limits are per process.

#![cfg(not(loom))]

use buffer::control;
use buffer::keeper::client::Named;
use buffer::keeper::message::{Message, PROTOCOL, WantedWriter};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, OnFull, RingKind, Signalling};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(5);

fn soon() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

/// Limits this process's file descriptors while it lives, and excludes other tests. Make it first, so that it drops
/// last.
struct Few {
    before: Rlimit,
    _alone: MutexGuard<'static, ()>,
}

impl Few {
    fn new(files: u64) -> Few {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..before }).unwrap();
        Few { before, _alone: alone }
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

fn options() -> RingOptions {
    RingOptions { keep_open: true, ..RingOptions::new(Geometry::new(RingKind::D, 4096, 16)) }
}

/// A keeper in a thread of its own. Under root the thread becomes `nobody`, because the limits do not bind root.
struct Kept {
    named: Named,
    path: PathBuf,
    keeper: JoinHandle<io::Result<()>>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn new() -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let mut keeper = Keeper::create(&path, options()).unwrap();
        let named = Named::at(path.to_str().unwrap()).unwrap();
        let keeper = std::thread::spawn(move || {
            // SAFETY: setresuid of this thread alone; it fails if the user is not root, which is fine.
            unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            keeper.run()
        });
        Kept { named, path, keeper, _folder: folder }
    }

    fn end(self) {
        self.named.remove().unwrap();
        self.keeper.join().unwrap().unwrap();
    }

    fn cpu_time(&self) -> Duration {
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the thread has not been joined, and there is room for its clock and the time.
        let time = unsafe {
            assert_eq!(libc::pthread_getcpuclockid(self.keeper.as_pthread_t(), &raw mut clock), 0);
            let mut time: libc::timespec = std::mem::zeroed();
            assert_eq!(libc::clock_gettime(clock, &raw mut time), 0);
            time
        };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

fn socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn greet(socket: &OwnedFd, path: &Path) {
    rustix::net::connect(socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    control::send(socket, &Message::Hello(PROTOCOL), &[]).unwrap();
}

#[test]
fn a_keeper_without_files_lets_clients_wait_and_sleeps() {
    let _few = Few::new(64);
    let kept = Kept::new();
    let client = socket();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut all = Vec::new();
    while let Ok(one) = null.try_clone() {
        all.push(one);
    }
    greet(&client, &kept.path);
    let before = kept.cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    let spent = kept.cpu_time() - before;
    drop(all);
    let answer = control::receive::<Message>(&client).unwrap().unwrap().0;
    assert_eq!(answer, Message::Done);
    assert!(spent < Duration::from_millis(100), "{spent:?} of half a second");
    kept.end();
}

#[test]
fn clients_that_take_no_answers_cost_others_none() {
    let _few = Few::new(256);
    let kept = Kept::new();
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    let hostile: Vec<OwnedFd> = (0..4).map(|_| socket()).collect();
    for client in &hostile {
        greet(client, &kept.path);
        rustix::io::ioctl_fionbio(client, true).unwrap();
        for _ in 0..300 {
            // Until there is no room, or the keeper has closed the connection.
            if control::send(client, &Message::Map(writer.generation()), &[]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let reader = kept.named.open_reader(OnFull::Wait, From::Next, soon());
    let is_written = kept.named.state().unwrap().writing;
    drop(hostile);
    assert!(reader.is_ok(), "{reader:?}");
    assert!(is_written, "its writer was let go");
    assert!(writer.wait_for_reader(soon()).unwrap());
    kept.end();
}

#[test]
fn a_reader_that_had_no_files_for_the_next_ring_is_told_so_and_does_not_wait_for_it() {
    let _few = Few::new(64);
    let kept = Kept::new();
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    let mut reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    let late = reader.next_generation(Some(Instant::now())).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    // The keeper answers when the next ring exists, but this process cannot receive the file descriptors of the answer.
    writer.resize(8192, 32).unwrap();
    while rustix::event::poll(
        &mut [rustix::event::PollFd::from_borrowed_fd(reader.answer_fd(), rustix::event::PollFlags::IN)],
        None,
    ) != Ok(1)
    {}
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut all = Vec::new();
    while let Ok(one) = null.try_clone() {
        all.push(one);
    }
    assert!(reader.next_generation(soon()).is_err());
    drop(all);
    let again = reader.next_generation(soon()).map_err(|error| error.kind());
    assert_ne!(again, Err(io::ErrorKind::TimedOut), "it was answered already");
    kept.end();
}

#[test]
fn whichever_file_a_ring_lacks_nothing_is_left_of_it() {
    let _few = Few::new(64);
    let folder = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect::<Vec<_>>();
    let path = folder.path().join("ring.sock");
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut failures = 0;
    for free in 0.. {
        let mut all = Vec::new();
        while let Ok(one) = null.try_clone() {
            all.push(one);
        }
        all.truncate(all.len() - free);
        let made = Keeper::create(&path, options());
        drop(all);
        if let Ok(mut keeper) = made {
            keeper.remove();
            break;
        }
        failures += 1;
        assert_eq!(left(), [""; 0], "with {free} files");
    }
    assert!(failures > 3, "{failures}");
    // Nor anything of a keeper whose name is taken or too long.
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "somebody's").unwrap();
    assert!(Keeper::create(&taken, options()).is_err());
    assert!(Keeper::create(&folder.path().join("x".repeat(120)), options()).is_err());
    assert_eq!(left(), ["taken"]);
}

/// A client chooses the size of a ring: its users take the memory for it, not its keeper.
#[test]
fn a_keeper_takes_no_memory_for_what_is_not_written_yet() {
    let _few = Few::new(64);
    let kept = Kept::new();
    let client = socket();
    greet(&client, &kept.path);
    let hear = || control::receive(&client).unwrap().unwrap();
    assert_eq!(hear().0, Message::Done);
    for (asked, ring_bytes) in [
        (Message::OpenWriter(WantedWriter::default()), 4096),
        (Message::Resize(Geometry::new(RingKind::D, 64 << 20, 0)), 64 << 20),
    ] {
        control::send(&client, &asked, &[]).unwrap();
        let (offer, fds) = hear();
        assert!(matches!(offer, Message::Writer(..)), "{offer:?}");
        let stat = rustix::fs::fstat(&fds[0]).unwrap();
        assert!(stat.st_size >= ring_bytes && stat.st_blocks * 512 <= 16384, "{} bytes", stat.st_blocks * 512);
        control::send(&client, &Message::Mapped, &[]).unwrap();
        assert_eq!(hear().0, Message::Sealed);
    }
    kept.end();
}
