//! Rings used like pipes: what pipes can do, and what they cannot: peek, forward, follow.

mod poll;

use buffer::keeper::client::Named;
use buffer::keeper::policy::Policy;
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::pipe::{Local, OpenOptions, PipeReader, PipeWriter};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, OnFull, RingKind, Signalling};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, Read, Write};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BLOCK_KINDS: [RingKind; 3] = [RingKind::P, RingKind::V, RingKind::D];

fn pair(kind: RingKind) -> (Local, PipeWriter, PipeReader) {
    Local::pair(Geometry::new(kind, 4096, 16), Signalling::default()).unwrap()
}

struct Kept {
    name: String,
    keeper: Option<JoinHandle<io::Result<()>>>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn new(kind: RingKind, keep_open: bool) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let geometry = Geometry::new(kind, 4096, 16);
        let options = RingOptions { keep_open, ..RingOptions::new(geometry) };
        let mut keeper = Keeper::create(&path, options).unwrap();
        let keeper = Some(std::thread::spawn(move || keeper.run()));
        Kept { name: path.to_str().unwrap().to_owned(), keeper, _folder: folder }
    }

    fn writer(&self) -> PipeWriter {
        OpenOptions::new().write(&self.name).unwrap()
    }

    fn reader(&self) -> PipeReader {
        OpenOptions::new().read(&self.name).unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        Named::at(&self.name).unwrap().remove().unwrap();
        self.keeper.take().unwrap().join().unwrap().unwrap();
    }
}

fn block(n: u64) -> Vec<u8> {
    (0..1 + n * 37 % 200).map(|at| (n * 7 + at) as u8).collect()
}

fn kind_of<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or_else(|| panic!("{error} is none of the system's")))
}

fn readable(reader: &mut PipeReader) -> bool {
    let fd = reader.poll_fd().unwrap();
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
}

fn becomes_readable(reader: &mut PipeReader) -> bool {
    let fd = reader.poll_fd().unwrap();
    let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn a_read_shorter_than_the_block_leaves_the_rest_for_the_next() {
    for kind in BLOCK_KINDS {
        let (_local, mut writer, mut reader) = pair(kind);
        assert_eq!(writer.write(b"hello world").unwrap(), 11);
        writer.write_block(Default::default(), b"").unwrap();
        assert_eq!(writer.write(b"again").unwrap(), 5);
        let mut buffer = [0; 6];
        for expected in [&b"hello "[..], b"world", b"again"] {
            let len = reader.read(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected, "{kind:?}: a read ends where the block does");
        }
    }
}

#[test]
fn both_ends_say_what_pipes_say() {
    for kind in RingKind::ALL {
        let (_local, mut writer, mut reader) = pair(kind);
        reader.set_non_blocking(true);
        writer.set_non_blocking(true);
        let mut buffer = [0; 300];
        assert_eq!(kind_of(reader.read(&mut buffer)), Err(libc::EAGAIN), "{kind:?}");
        assert_eq!(kind_of(reader.peek().map(drop)), Err(libc::EAGAIN), "{kind:?}");
        let mut written = 0;
        let full = loop {
            match kind_of(writer.write(&[7; 100])) {
                Ok(len) => written += len,
                Err(errno) => break errno,
            }
            assert!(written <= 4096, "{kind:?}");
        };
        assert_eq!(full, libc::EAGAIN, "{kind:?}");
        if kind == RingKind::C {
            assert_eq!(written, 4096, "a stream takes what there is room for");
        } else {
            assert_eq!(kind_of(writer.write(&[0; 5000])), Err(libc::EMSGSIZE), "{kind:?}");
        }
        drop(writer);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.len() == written && rest.iter().all(|byte| *byte == 7), "{kind:?}");
        assert_eq!((reader.read(&mut buffer).unwrap(), reader.peek().unwrap()), (0, None), "{kind:?}: the end stays");

        let (local, mut writer, reader) = pair(kind);
        writer.write_all(b"x").unwrap();
        drop(reader);
        assert_eq!(kind_of(writer.write(b"y")), Err(libc::EPIPE), "{kind:?}");
        let _again = local.reader(OnFull::Wait, None, From::Next).unwrap();
        assert_eq!(writer.write(b"z").unwrap(), 1, "{kind:?}: as a fifo, it may be read again");
    }
}

#[test]
fn a_writer_that_waits_for_room_hears_that_all_have_left() {
    for kind in RingKind::ALL {
        let (_local, mut writer, reader) = pair(kind);
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(reader);
        });
        let error = loop {
            if let Err(error) = writer.write_all(&[1; 200]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{kind:?}");
        leaving.join().unwrap();
    }
}

#[test]
fn a_blocking_stream_write_writes_all() {
    let (_local, mut writer, mut reader) = pair(RingKind::C);
    let all: Vec<u8> = (0..100_000u32).map(|n| (n / 3) as u8).collect();
    let expected = all.clone();
    let writing = std::thread::spawn(move || assert_eq!(writer.write(&all).unwrap(), all.len()));
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == expected);
}

#[test]
fn a_peek_shows_the_same_until_it_is_taken() {
    let (_local, mut writer, mut reader) = pair(RingKind::D);
    writer.write_all(b"first").unwrap();
    writer.write_all(b"second").unwrap();
    let first = reader.peek().unwrap().unwrap();
    assert_eq!(reader.peek().unwrap().unwrap(), first);
    assert_eq!(reader.look_at(&first).unwrap().copy_to_vec(), b"first");
    reader.release(&first.first(2)).unwrap();
    let rest = reader.peek().unwrap().unwrap();
    assert_eq!(reader.look_at(&rest).unwrap().copy_to_vec(), b"rst");
    assert_eq!(kind_of(reader.release(&first)), Err(libc::EINVAL), "it is not what was peeked last");
    reader.release(&rest).unwrap();
    let second = reader.peek().unwrap().unwrap();
    assert_eq!(reader.look_at(&second).unwrap().copy_to_vec(), b"second");
}

#[test]
fn the_descriptor_is_readable_as_long_as_there_is_something_to_read() {
    for kind in RingKind::ALL {
        for signalling in [Signalling::Every, Signalling::Batched(32), Signalling::Never] {
            let (_local, mut writer, mut reader) = Local::pair(Geometry::new(kind, 4096, 16), signalling).unwrap();
            reader.set_non_blocking(true);
            assert!(!readable(&mut reader), "{kind:?}");
            for n in 0..200 {
                let expected = block(n);
                writer.write_all(&expected).unwrap();
                assert!(becomes_readable(&mut reader), "{kind:?} {signalling:?}: block {n}");
                let mut got = vec![0; expected.len()];
                let half = expected.len() / 2;
                if half > 0 {
                    reader.read_exact(&mut got[..half]).unwrap();
                    assert!(readable(&mut reader), "{kind:?}: the rest of it is there");
                }
                reader.read_exact(&mut got[half..]).unwrap();
                assert!(got == expected);
                assert!(!readable(&mut reader), "{kind:?}: all was read");
            }
            drop(writer);
            assert!(becomes_readable(&mut reader), "{kind:?}: the end can be read");
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
            assert!(readable(&mut reader));
        }
    }
}

#[test]
fn who_polls_misses_nothing_whoever_is_faster() {
    for signalling in [Signalling::Every, Signalling::Batched(32)] {
        let (_local, mut writer, mut reader) = Local::pair(Geometry::new(RingKind::D, 4096, 16), signalling).unwrap();
        reader.set_non_blocking(true);
        let writing = std::thread::spawn(move || {
            for n in 0..20_000 {
                writer.write_all(&block(n)).unwrap();
            }
        });
        let mut next = 0;
        loop {
            assert!(becomes_readable(&mut reader), "block {next}");
            let mut buffer = [0; 300];
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    assert!(buffer[..len] == block(next), "block {next}");
                    next += 1;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(next, 20_000);
        writing.join().unwrap();
    }
}

#[test]
fn an_idle_descriptor_costs_nothing() {
    let (_local, _writer, mut reader) = pair(RingKind::D);
    reader.set_non_blocking(true);
    assert!(!readable(&mut reader));
    let used = || {
        let mut all = Duration::ZERO;
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let path = task.unwrap().path();
            // A thread may end between the two looks.
            let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
            if name.trim() == "ring-poll" {
                let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
                all += Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0));
            }
        }
        all
    };
    // Other tests of this process have such threads too, so the time is checked only if this test runs alone.
    let before = used();
    std::thread::sleep(Duration::from_millis(200));
    let after = used();
    if std::env::args().any(|argument| argument.contains("an_idle_descriptor")) {
        assert!(after - before < Duration::from_millis(1), "{:?}", after - before);
    }
    assert!(!readable(&mut reader));
}

#[test]
fn the_next_writer_and_another_size_are_followed() {
    for kind in RingKind::ALL {
        let kept = Kept::new(kind, true);
        let mut writer = kept.writer();
        let mut blocking = kept.reader();
        let mut polling = kept.reader();
        polling.set_non_blocking(true);
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; 9];
            blocking.read_exact(&mut got).unwrap();
            (got, blocking.stat().generation)
        });
        let mut got = Vec::<u8>::new();
        let mut poll = |reader: &mut PipeReader, until: usize| {
            while got.len() < until {
                assert!(becomes_readable(reader), "{kind:?}: {got:?}");
                let mut buffer = [0; 100];
                match reader.read(&mut buffer) {
                    Ok(len) => got.extend(&buffer[..len]),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            got.clone()
        };
        writer.write_all(b"one").unwrap();
        assert_eq!(poll(&mut polling, 3), b"one");
        writer.resize(16 << 10, 64).unwrap();
        writer.write_all(b"two").unwrap();
        assert_eq!(poll(&mut polling, 6), b"onetwo");
        drop(writer);
        let mut buffer = [0; 9];
        let until = Instant::now() + Duration::from_secs(5);
        assert_eq!(kind_of(polling.read(&mut buffer)), Err(libc::EAGAIN), "{kind:?}: nobody writes, and it stays open");
        assert!(!readable(&mut polling), "{kind:?}");
        let mut writer = loop {
            match OpenOptions::new().write(&kept.name) {
                Ok(writer) => break writer,
                Err(error) => assert!(error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until),
            }
        };
        writer.write_all(b"six").unwrap();
        assert_eq!(poll(&mut polling, 9), b"onetwosix", "{kind:?}");
        assert_eq!(reading.join().unwrap(), (b"onetwosix".to_vec(), 3), "{kind:?}");
    }
}

#[test]
fn an_ended_ring_ends_for_who_polls() {
    let kept = Kept::new(RingKind::D, false);
    let writer = kept.writer();
    let mut reader = kept.reader();
    reader.set_non_blocking(true);
    assert!(!readable(&mut reader));
    drop(writer);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        assert!(becomes_readable(&mut reader) && Instant::now() < until);
        match reader.read(&mut [0; 9]) {
            Ok(len) => break assert_eq!(len, 0),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn a_forwarded_block_is_not_copied_and_is_held_until_it_was_read() {
    for kind in RingKind::ALL {
        let (_local, mut writer, mut forwarder) = pair(kind);
        let many = Geometry::new(RingKind::D, 4096, 256);
        let (_to, mut forwarded, mut reader) = Local::pair(many, Signalling::default()).unwrap();
        writer.set_non_blocking(true);
        forwarder.set_non_blocking(true);
        for round in 0..50 {
            let mut written = Vec::new();
            let mut n = 0;
            loop {
                let bytes = block(n + round);
                n += 1;
                match writer.write(&bytes) {
                    Ok(len) => written.extend(&bytes[..len]),
                    Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            while let Ok(Some(block)) = forwarder.peek() {
                let block = if kind == RingKind::C { block.first(700) } else { block };
                forwarder.forward(&block, &mut forwarded).unwrap();
            }
            assert!(forwarder.stat().outstanding > 0, "{kind:?}");
            assert_eq!(kind_of(writer.write(&[0; 250])), Err(libc::EAGAIN), "{kind:?}: what is forwarded is held");
            let mut got = vec![0; written.len()];
            reader.read_exact(&mut got).unwrap();
            assert!(got == written, "{kind:?} round {round}");
            reader.set_non_blocking(true);
            assert!(reader.peek().is_err());
            assert_eq!(kind_of(forwarder.peek().map(drop)), Err(libc::EAGAIN));
            assert_eq!(forwarder.stat().outstanding, 0, "{kind:?}");
        }
        let (stat, faults) = (forwarded.stat(), reader.stat().faults);
        assert_eq!((stat.copied, faults), (0, 1), "{kind:?}");
        assert!(stat.forwarded >= 50, "{kind:?}");
    }
}

#[test]
fn rings_without_descriptors_get_a_counted_copy() {
    for kind in [RingKind::C, RingKind::P, RingKind::V] {
        let (_local, mut writer, mut forwarder) = pair(RingKind::V);
        let (_to, mut forwarded, mut reader) = pair(kind);
        writer.write_all(b"whole").unwrap();
        let block = forwarder.peek().unwrap().unwrap();
        assert_eq!(forwarder.forward(&block, &mut forwarded).unwrap(), 5);
        let mut got = [0; 5];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"whole");
        assert_eq!((forwarded.stat().copied, forwarded.stat().forwarded), (1, 0), "{kind:?}");
    }
}

#[test]
fn a_tee_gives_everything_to_each_and_goes_on_where_it_had_to_stop() {
    let (_local, mut writer, mut forwarder) = pair(RingKind::D);
    let (_one, mut first, mut first_reader) = pair(RingKind::D);
    let (_two, mut second, mut second_reader) =
        Local::pair(Geometry::new(RingKind::D, 4096, 2), Signalling::Every).unwrap();
    second.set_non_blocking(true);
    for n in 0..6 {
        writer.write_all(&block(n)).unwrap();
    }
    for n in 0..6 {
        let peeked = forwarder.peek().unwrap().unwrap();
        if n >= 2 {
            let full = forwarder.tee(&peeked, &mut [&mut first, &mut second]);
            assert_eq!(kind_of(full), Err(libc::EAGAIN), "the second has two places");
            let mut got = vec![0; block(n - 2).len()];
            second_reader.read_exact(&mut got).unwrap();
            assert!(got == block(n - 2));
            second_reader.set_non_blocking(true);
            // The look for another block tells the writer what was taken; there is one more.
            let more = second_reader.peek().unwrap().unwrap();
            assert_eq!(more.len(), block(n - 1).len());
        }
        let mut tries = 0;
        while let Err(error) = forwarder.tee(&peeked, &mut [&mut first, &mut second]) {
            assert!(error.kind() == io::ErrorKind::WouldBlock && tries < 3, "{error}");
            tries += 1;
        }
    }
    for n in 0..6 {
        let mut got = vec![0; block(n).len()];
        first_reader.read_exact(&mut got).unwrap();
        assert!(got == block(n), "each gets each once");
    }
}

#[test]
fn whole_chains_of_forwarders_move_nothing_but_descriptors() {
    for kind in RingKind::ALL {
        let kept = [Kept::new(kind, false), Kept::new(RingKind::D, false), Kept::new(RingKind::D, false)];
        let mut writers: Vec<PipeWriter> = kept.iter().map(Kept::writer).collect();
        let mut readers: Vec<PipeReader> = kept.iter().map(Kept::reader).collect();
        const BLOCKS: u64 = 3000;
        std::thread::scope(|scope| {
            let mut end = readers.pop().unwrap();
            let last = scope.spawn(move || {
                let mut got = Vec::new();
                end.read_to_end(&mut got).unwrap();
                (got, end.stat())
            });
            let mut first = writers.remove(0);
            for (mut input, mut output) in readers.into_iter().zip(writers) {
                scope.spawn(move || {
                    while let Some(block) = input.peek().unwrap() {
                        input.forward(&block, &mut output).unwrap();
                    }
                    assert_eq!((output.stat().copied, input.stat().faults), (0, 0));
                    assert_eq!(input.stat().outstanding, 0, "the end is not said before all was read");
                });
            }
            for n in 0..BLOCKS {
                if n == BLOCKS / 2 {
                    first.resize(8192, 32).unwrap();
                }
                first.write_all(&block(n)).unwrap();
            }
            drop(first);
            let (got, stat) = last.join().unwrap();
            let expected: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
            assert!(got == expected, "{kind:?}: {} of {} bytes", got.len(), expected.len());
            assert_eq!((stat.faults, stat.refused, stat.lost_elsewhere), (2, 0, 0), "{kind:?}: one for each size");
        });
    }
}

#[test]
fn who_holds_nothing_finds_out_from_the_ring_the_bytes_lie_in() {
    for kind in RingKind::ALL {
        let (local, mut writer, _keeps_it_open) = pair(kind);
        let mut forwarder = local.reader(OnFull::Overwrite, None, From::Next).unwrap();
        drop(_keeps_it_open);
        let (_to, mut forwarded, mut reader) = pair(RingKind::D);
        for n in 0..4 {
            writer.write_all(&block(n)).unwrap();
            let seen = forwarder.peek().unwrap().unwrap();
            forwarder.forward(&seen, &mut forwarded).unwrap();
        }
        assert_eq!(forwarder.stat().outstanding, 0, "{kind:?}: it holds nothing");
        let mut got = vec![0; block(0).len()];
        reader.read_exact(&mut got).unwrap();
        assert!(got == block(0));
        let looked_at = reader.peek().unwrap().unwrap();
        assert_eq!(reader.look_at(&looked_at).unwrap().copy_to_vec(), block(1));
        for n in 0..300 {
            writer.write_all(&block(n)).unwrap();
        }
        assert!(!reader.is_intact(&looked_at), "{kind:?}");
        assert_eq!(kind_of(reader.release(&looked_at)), Err(libc::ESTALE), "{kind:?}");
        drop(forwarded);
        assert_eq!(reader.read(&mut [0; 300]).unwrap(), 0, "{kind:?}: all of it is gone");
        assert_eq!(reader.stat().lost_elsewhere, 3, "{kind:?}");
    }
}

#[test]
fn a_sleeping_forwarder_is_woken_when_what_it_forwarded_was_read() {
    // The first ring is full of forwarded blocks: its writer goes on only when the sleeping forwarder passes them.
    let (_local, mut writer, mut forwarder) = pair(RingKind::D);
    for contract in [OnFull::Wait, OnFull::DropNewest] {
        let (to, mut forwarded, unused) = pair(RingKind::D);
        let mut reader = to.reader(contract, None, From::Next).unwrap();
        drop(unused);
        std::thread::scope(|scope| {
            let (writer, forwarder) = (&mut writer, &mut forwarder);
            scope.spawn(move || (0..200).for_each(|n| writer.write_all(&block(n)).unwrap()));
            scope.spawn(move || {
                for _ in 0..200 {
                    let block = forwarder.peek().unwrap().unwrap();
                    forwarder.forward(&block, &mut forwarded).unwrap();
                }
            });
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            if contract == OnFull::Wait {
                assert_eq!(all.len(), (0..200).map(|n| block(n).len()).sum::<usize>());
            }
        });
    }
}

#[test]
fn who_leaves_in_order_waits_until_what_it_forwarded_was_read() {
    let (_local, mut writer, mut forwarder) = pair(RingKind::D);
    let (_to, mut forwarded, mut reader) = pair(RingKind::D);
    writer.write_all(b"held").unwrap();
    let block = forwarder.peek().unwrap().unwrap();
    forwarder.forward(&block, &mut forwarded).unwrap();
    forwarder.set_non_blocking(true);
    assert_eq!(kind_of(forwarder.drain()), Err(libc::EAGAIN));
    forwarder.set_non_blocking(false);
    let closing = std::thread::spawn(move || forwarder.drain().unwrap());
    let mut got = [0; 4];
    reader.read_exact(&mut got).unwrap();
    reader.set_non_blocking(true);
    assert!(reader.peek().is_err());
    closing.join().unwrap();
}

/// Every policy with every user: whether the user may map a ring, hold it, and get the bytes of its blocks through another
/// ring that it may read.
#[test]
fn who_may_not_read_a_ring_gets_its_bytes_by_no_other_ring() {
    use buffer::keeper::policy::Reach;
    use std::os::unix::fs::PermissionsExt;
    const NOBODY: u32 = 65534;
    const SOMEBODY: u32 = 65533;
    // SAFETY: takes no arguments and changes nothing.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped (rights): only root can try what others may do");
        return;
    }
    // Runs `work` as this user, in a thread that ends with it: credentials are per thread, and a keeper goes by those
    // of the thread that connects.
    fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                if user != 0 {
                    // SAFETY: setresgid and setresuid of this thread alone.
                    let changed = unsafe {
                        libc::syscall(libc::SYS_setresgid, user, user, user) == 0
                            && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
                    };
                    assert!(changed, "root may become anybody");
                }
                work()
            });
            thread.join().unwrap()
        })
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let keep = |name: String, policy: Policy| {
        let path = folder.path().join(name);
        let geometry = Geometry::new(RingKind::D, 4096, 16);
        let options = RingOptions { policy, ..RingOptions::new(geometry) };
        // The ring belongs to `NOBODY`, so that there is an owner, another user, and root.
        let mut keeper = as_user(NOBODY, || Keeper::create(&path, options)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        keeper.set_owner_process(0);
        let keeper = std::thread::spawn(move || keeper.run());
        (path.to_str().unwrap().to_owned(), keeper)
    };
    let everybody = Policy { read: Reach::Other, hold: Reach::Other, write: Reach::Other };
    // (reach of reading, reach of holding, may [root, the owner, another user] map, may they wait)
    let rows = [
        (Reach::Process, Reach::Process, [true, false, false], [true, false, false]),
        (Reach::User, Reach::User, [true, true, false], [true, true, false]),
        (Reach::Other, Reach::User, [true, true, true], [true, true, false]),
        (Reach::Other, Reach::Other, [true, true, true], [true, true, true]),
    ];
    for (row, (read, hold, may_map, may_wait)) in rows.into_iter().enumerate() {
        let (secret, secret_keeper) = keep(format!("{row}-secret"), Policy { read, hold, write: Reach::Other });
        let (open, open_keeper) = keep(format!("{row}-open"), everybody);
        let mut writer = OpenOptions::new().write(&secret).unwrap();
        let mut forwarder = OpenOptions::new().read(&secret).unwrap();
        let mut forwarded = OpenOptions::new().needs_readers(false).write(&open).unwrap();
        for (place, user) in [0, NOBODY, SOMEBODY].into_iter().enumerate() {
            let denied = |error: io::Error| {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
                false
            };
            let map = as_user(user, || Named::at(&secret).unwrap().map(1, None).map_or_else(denied, |_| true));
            let wait = as_user(user, || OpenOptions::new().read(&secret).map_or_else(denied, |_| true));
            let mut end = as_user(user, || OpenOptions::new().read(&open)).unwrap();
            for _ in 0..3 {
                writer.write_all(b"secret").unwrap();
                let block = forwarder.peek().unwrap().unwrap();
                forwarder.forward(&block, &mut forwarded).unwrap();
            }
            let forward = as_user(user, || {
                // A reader of the other ring may see that there is a block and how long it is.
                assert_eq!(end.peek().unwrap().unwrap().len(), 6);
                let mut got = [0; 9];
                let outcomes = [(); 3].map(|()| end.read(&mut got).map_or_else(denied, |len| &got[..len] == b"secret"));
                assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "once refused, always");
                outcomes[0]
            });
            let stat = end.stat();
            assert_eq!([map, wait, forward], [may_map[place], may_wait[place], may_map[place]], "{read} {hold} {user}");
            assert_eq!((stat.faults, stat.refused), if forward { (1, 0) } else { (0, 3) }, "{read} {hold} {user}");
            drop(end);
        }
        drop((writer, forwarder, forwarded));
        for (name, keeper) in [(secret, secret_keeper), (open, open_keeper)] {
            Named::at(&name).unwrap().remove().unwrap();
            keeper.join().unwrap().unwrap();
        }
    }
}

#[test]
fn a_removed_ring_is_read_to_its_end_and_written_no_more() {
    for kind in RingKind::ALL {
        for keep_open in [false, true] {
            let kept = Kept::new(kind, keep_open);
            let mut writer = kept.writer();
            let (mut blocking, mut polling) = (kept.reader(), kept.reader());
            polling.set_non_blocking(true);
            let reading = std::thread::spawn(move || {
                let mut got = Vec::new();
                blocking.read_to_end(&mut got).unwrap();
                got
            });
            writer.write_all(b"all there is").unwrap();
            assert!(becomes_readable(&mut polling));
            let writing = std::thread::spawn(move || {
                // The polling reader holds the ring, and tells the writer nothing more.
                let error = loop {
                    if let Err(error) = writer.write(&[9; 100]) {
                        break error;
                    }
                };
                (error.raw_os_error(), writer.write(b"more").unwrap_err().raw_os_error())
            });
            let mut some = [0; 12];
            polling.read_exact(&mut some).unwrap();
            assert_eq!(&some, b"all there is");
            while !writing.is_finished() && Named::at(&kept.name).unwrap().state().unwrap().head < 12 {}
            let name = kept.name.clone();
            drop(kept);
            assert!(!std::path::Path::new(&name).exists());
            assert_eq!(writing.join().unwrap(), (Some(libc::EPIPE), Some(libc::EPIPE)), "{kind:?}");
            let mut rest = Vec::<u8>::new();
            loop {
                assert!(becomes_readable(&mut polling), "{kind:?}");
                let mut buffer = [0; 100];
                match polling.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(len) => rest.extend(&buffer[..len]),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            assert!(rest.iter().all(|byte| *byte == 9), "{kind:?}");
            let got = reading.join().unwrap();
            assert!(got.len() >= 12 + rest.len() && got.starts_with(b"all there is"), "{kind:?}");
        }
    }
}

#[test]
fn a_reader_that_waits_for_the_next_writer_hears_of_the_removal() {
    for polls in [false, true] {
        let kept = Kept::new(RingKind::D, true);
        let mut writer = kept.writer();
        let mut reader = kept.reader();
        writer.write_all(b"x").unwrap();
        drop(writer);
        assert_eq!(reader.read(&mut [0; 9]).unwrap(), 1);
        if polls {
            reader.set_non_blocking(true);
            assert!(!readable(&mut reader), "nobody writes, and it stays open");
        }
        let reading = std::thread::spawn(move || {
            loop {
                match reader.read(&mut [0; 9]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => assert!(becomes_readable(&mut reader)),
                    outcome => break outcome.unwrap(),
                }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(kept);
        assert_eq!(reading.join().unwrap(), 0);
    }
}

#[test]
fn many_blocks_at_a_time_are_the_same_blocks() {
    for kind in RingKind::ALL {
        let (_local, mut writer, mut reader) = pair(kind);
        writer.set_non_blocking(true);
        reader.set_non_blocking(true);
        let blocks: Vec<Vec<u8>> = (0..500).map(block).collect();
        let slices: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        if kind == RingKind::C {
            assert_eq!(kind_of(writer.write_blocks(Default::default(), &slices)), Err(libc::EMSGSIZE));
        }
        let (mut written, mut got) = (0, Vec::new());
        while written < slices.len() {
            match writer.write_blocks(Default::default(), &slices[written..]) {
                Ok(more) => written += more,
                Err(_) if kind == RingKind::C => {
                    writer.write_all(slices[written]).unwrap();
                    written += 1;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{kind:?}"),
            }
            let some = got.len() + 300;
            assert!(reader.copy_blocks_to(&mut got, some).unwrap(), "{kind:?}");
            assert!(kind != RingKind::C || got.len() <= some);
            while reader.copy_blocks_to(&mut got, usize::MAX).is_ok() {}
        }
        assert!(got == blocks.concat(), "{kind:?}");
        assert_eq!(kind_of(writer.write_blocks(Default::default(), &[])), Ok(0));
        if kind != RingKind::C {
            let slices: [&[u8]; 3] = [b"fits", &[0; 5000], b"after"];
            assert_eq!(writer.write_blocks(Default::default(), &slices).unwrap(), 1, "{kind:?}");
            assert_eq!(kind_of(writer.write_blocks(Default::default(), &slices[1..])), Err(libc::EMSGSIZE));
        }
        drop(writer);
        got.clear();
        reader.set_non_blocking(false);
        while reader.copy_blocks_to(&mut got, usize::MAX).unwrap() {}
        assert_eq!(got, if kind == RingKind::C { &b""[..] } else { b"fits" });
    }
}

#[test]
fn many_blocks_at_a_time_are_read_wherever_they_lie() {
    let (_local, mut writer, mut forwarder) = pair(RingKind::V);
    let many = Geometry::new(RingKind::D, 4096, 256);
    let (_to, mut forwarded, mut reader) = Local::pair(many, Signalling::default()).unwrap();
    let mut expected = Vec::new();
    for n in 0..20 {
        writer.write_all(&block(n)).unwrap();
        let seen = forwarder.peek().unwrap().unwrap();
        forwarder.forward(&seen, &mut forwarded).unwrap();
        forwarded.write_all(b"own").unwrap();
        expected.extend([&block(n)[..], b"own"].concat());
    }
    let mut got = b"before".to_vec();
    reader.set_non_blocking(true);
    while reader.copy_blocks_to(&mut got, usize::MAX).is_ok() {}
    assert!(got == [b"before", &expected[..]].concat());
}

#[test]
fn who_forwarded_to_a_ring_is_not_kept_waiting_by_who_waits_to_write_to_it() {
    let (_source, mut writer, mut reader) = pair(RingKind::D);
    let (_sink, mut to, mut far) = pair(RingKind::D);
    writer.write_all(b"forwarded").unwrap();
    let seen = reader.peek().unwrap().unwrap();
    reader.forward(&seen, &mut to).unwrap();
    to.set_non_blocking(true);
    while to.write_all(b"more").is_ok() {}
    to.set_non_blocking(false);
    let waits = std::thread::spawn(move || to.write_all(b"last").map(|()| to));
    reader.set_non_blocking(true);
    let (said, heard) = std::sync::mpsc::channel();
    let looks = std::thread::spawn(move || {
        // Longer than the other thread takes to go to sleep.
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(200) {
            let nothing = reader.peek().unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        }
        said.send(()).unwrap();
        reader
    });
    let looked = heard.recv_timeout(Duration::from_secs(5));
    far.set_non_blocking(true);
    while !waits.is_finished() {
        // A read tells what was taken, even if there is nothing more.
        let _ = far.read(&mut [0; 16]);
        far.tell();
    }
    waits.join().unwrap().unwrap();
    looks.join().unwrap();
    assert_eq!(looked, Ok(()));
}

#[test]
fn a_reader_that_must_not_wait_is_not_cloned_by_waiting_for_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.sock");
    let geometry = Geometry::new(RingKind::D, 4096, 16);
    let options = RingOptions { keep_open: true, ..RingOptions::new(geometry) };
    let mut keeper = Keeper::create(&path, options).unwrap();
    let keeping = std::thread::spawn(move || keeper.run());
    let name = path.to_str().unwrap().to_owned();
    let writer = OpenOptions::new().write(&name).unwrap();
    let mut reader = OpenOptions::new().read(&name).unwrap();
    drop(writer);
    reader.set_non_blocking(true);
    let (said, heard) = std::sync::mpsc::channel();
    let cloning = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        // The keeper may not know yet that the writer is gone.
        while reader.try_clone().is_ok() && began.elapsed() < Duration::from_secs(5) {}
        said.send(reader.try_clone().map(drop).map_err(|error| error.kind())).unwrap();
    });
    let refused = heard.recv_timeout(Duration::from_secs(5));
    Named::at(&name).unwrap().remove().unwrap();
    keeping.join().unwrap().unwrap();
    cloning.join().unwrap();
    assert_eq!(refused, Ok(Err(io::ErrorKind::WouldBlock)));
}

/// The kernel lets no thread sleep on more than 128 words.
#[test]
fn who_forwarded_to_many_rings_sleeps_until_they_are_read() {
    let (_source, mut writer, mut reader) = pair(RingKind::D);
    let mut sinks: Vec<_> = (0..140).map(|_| pair(RingKind::D)).collect();
    writer.write_all(b"for all").unwrap();
    let seen = reader.peek().unwrap().unwrap();
    let mut to: Vec<&mut PipeWriter> = sinks.iter_mut().map(|(_, writer, _)| writer).collect();
    reader.tee(&seen, &mut to).unwrap();
    let drains = std::thread::spawn(move || {
        reader.drain().unwrap();
        // SAFETY: there is room for a time.
        unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time), 0);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    for (_, _, far) in &mut sinks {
        assert_eq!(far.read(&mut [0; 16]).unwrap(), 7);
        far.tell();
    }
    let spent = drains.join().unwrap();
    assert!(spent < Duration::from_millis(250), "{spent:?} of half a second");
}
