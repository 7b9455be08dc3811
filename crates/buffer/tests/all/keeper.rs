//! Named rings: a keeper in a thread; writers and readers over its socket, as other processes use them.

use buffer::Descriptor;
use buffer::control::name::clear_dead;
use buffer::keeper::client::{Named, NamedReader};
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, NotWritten, Nothing, OnFull, RingKind, Signalling};
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(5))
}

fn options(kind: RingKind) -> RingOptions {
    RingOptions::new(Geometry::new(kind, 4096, 16))
}

struct Kept {
    named: Named,
    keeper: Option<JoinHandle<io::Result<()>>>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn new(options: RingOptions) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let mut keeper = Keeper::create(&path, options).unwrap();
        let named = Named::at(path.to_str().unwrap()).unwrap();
        Kept { named, keeper: Some(std::thread::spawn(move || keeper.run())), _folder: folder }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.named.remove().unwrap();
        self.keeper.take().unwrap().join().unwrap().unwrap();
    }
}

fn read(reader: &mut NamedReader) -> Result<Vec<u8>, Nothing> {
    let reader = reader.reader();
    reader.wait(soon())?;
    let seen = reader.peek()?;
    let bytes = reader.bytes(&seen).copy_to_vec();
    reader.take(&seen).expect("who holds is not overtaken");
    Ok(bytes)
}

#[test]
fn readers_that_came_first_get_everything_from_the_first_block_on() {
    for kind in [RingKind::P, RingKind::V, RingKind::D] {
        let kept = Kept::new(options(kind));
        let early: Vec<_> = (0..3)
            .map(|_| {
                let named = kept.named.clone();
                std::thread::spawn(move || named.open_reader(OnFull::Wait, From::Next, soon()).unwrap())
            })
            .collect();
        // Opening for reading waits for a writer.
        std::thread::sleep(Duration::from_millis(20));
        let mut writer = kept.named.open_writer(Signalling::default()).unwrap();
        let mut readers: Vec<NamedReader> = early.into_iter().map(|reader| reader.join().unwrap()).collect();
        let writing = std::thread::spawn(move || {
            for n in 0..500u32 {
                writer.writer().write(Descriptor::default(), &n.to_le_bytes(), soon()).unwrap();
            }
            writer
        });
        for n in 0..500u32 {
            for reader in &mut readers {
                assert_eq!(read(reader).unwrap(), n.to_le_bytes(), "{kind:?}");
            }
        }
        let state = kept.named.state().unwrap();
        assert_eq!((state.generation, state.writing, state.readers.len()), (1, true, 3));
        drop(writing.join().unwrap());
        for mut reader in readers {
            assert_eq!(read(&mut reader), Err(Nothing::Ended), "{kind:?}");
            assert!(!reader.next_generation(soon()).unwrap(), "the ring does not stay open");
        }
    }
}

#[test]
fn a_ring_that_stays_open_goes_on_with_the_next_writer() {
    let kept = Kept::new(RingOptions { keep_open: true, ..options(RingKind::D) });
    let mut reader = {
        let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
        let mut reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
        writer.writer().write(Descriptor::default(), b"one", soon()).unwrap();
        assert_eq!(read(&mut reader).unwrap(), b"one");
        reader
    };
    assert_eq!(read(&mut reader), Err(Nothing::Ended));
    let next = std::thread::spawn(move || {
        assert!(reader.next_generation(soon()).unwrap());
        let bytes = read(&mut reader).unwrap();
        (bytes, reader.generation())
    });
    std::thread::sleep(Duration::from_millis(20));
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    assert!(writer.wait_for_reader(soon()).unwrap());
    writer.writer().write(Descriptor::default(), b"two", soon()).unwrap();
    assert_eq!(next.join().unwrap(), (b"two".to_vec(), 2));
}

#[test]
fn there_is_one_writer_at_a_time() {
    let kept = Kept::new(options(RingKind::C));
    let writer = kept.named.open_writer(Signalling::Every).unwrap();
    let error = kept.named.open_writer(Signalling::Every).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    drop(writer);
    let again = Instant::now();
    while kept.named.open_writer(Signalling::Every).is_err() {
        assert!(again.elapsed() < Duration::from_secs(5), "its place is free when it is gone");
    }
}

#[test]
fn who_may_not_is_refused_and_told() {
    // `policy.rs` tests which rights a policy gives; this test covers the way there. Root may do everything.
    let kept = Kept::new(RingOptions {
        policy: Policy { read: Reach::Other, hold: Reach::User, write: Reach::User },
        ..options(RingKind::D)
    });
    let _writer = kept.named.open_writer(Signalling::Every).unwrap();
    let as_nobody = |contract| {
        let named = kept.named.clone();
        // Credentials are those of the thread that connects.
        std::thread::spawn(move || {
            // SAFETY: setresgid and setresuid of this thread alone; it ends with this closure.
            let changed = unsafe {
                libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534) == 0
                    && libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) == 0
            };
            changed.then(|| {
                let read = named.open_reader(contract, From::Next, soon()).map(drop).map_err(|error| error.kind());
                let write = named.open_writer(Signalling::Every).map(drop).map_err(|error| error.kind());
                let remove = named.remove().map_err(|error| error.kind());
                [read, write, remove]
            })
        })
        .join()
        .unwrap()
    };
    // The folder must let other users through to the socket.
    use std::os::unix::fs::PermissionsExt;
    let folder = kept.named.path().parent().unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let denied = Err(io::ErrorKind::PermissionDenied);
    match as_nobody(OnFull::Overwrite) {
        None => eprintln!("skipped (rights): only root can try what somebody else may do"),
        Some(outcome) => {
            assert_eq!(outcome, [Ok(()), denied, denied]);
            assert_eq!(as_nobody(OnFull::Wait).unwrap()[0], denied);
        }
    }
}

#[test]
fn a_ring_of_another_size_takes_over_and_nothing_is_lost_or_turned_round() {
    for kind in [RingKind::C, RingKind::P, RingKind::V, RingKind::D] {
        let kept = Kept::new(options(kind));
        let mut writer = kept.named.open_writer(Signalling::default()).unwrap();
        let mut readers: Vec<NamedReader> =
            (0..2).map(|_| kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap()).collect();
        const BLOCKS: u64 = 4000;
        std::thread::scope(|scope| {
            for reader in &mut readers {
                scope.spawn(move || {
                    let mut got = Vec::new();
                    loop {
                        match read(reader) {
                            Ok(bytes) => got.extend(bytes),
                            Err(Nothing::Moved) => assert!(reader.next_generation(soon()).unwrap()),
                            Err(nothing) => {
                                assert_eq!(nothing, Nothing::Ended);
                                break;
                            }
                        }
                    }
                    let numbers: Vec<u64> =
                        got.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
                    assert!(numbers == (0..BLOCKS).collect::<Vec<u64>>(), "{kind:?}: {} of {BLOCKS}", numbers.len());
                });
            }
            scope.spawn(move || {
                for n in 0..BLOCKS {
                    if n % 500 == 250 {
                        writer.resize(4096 << (n / 500 % 4), 16 << (n / 500 % 4)).unwrap();
                    }
                    writer.writer().write(Descriptor::default(), &n.to_le_bytes(), soon()).unwrap();
                }
            });
        });
    }
}

#[test]
fn names_and_places_that_are_none_are_refused_in_words() {
    let error = Named::at("../x y").map(|named| named.state().unwrap_err()).unwrap();
    assert!(error.to_string().contains("no ring at"), "{error}");
    let error = Named::at(".x").unwrap_err();
    assert!(error.to_string().contains("no name for a ring"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.sock");
    let first = Keeper::create(&path, options(RingKind::D)).unwrap();
    let second = Keeper::create(&path, options(RingKind::D)).map(|_| ()).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AlreadyExists);
    // A new keeper takes over what a killed one left.
    drop(first);
    assert!(Named::at(path.to_str().unwrap()).unwrap().state().unwrap_err().to_string().contains("dead"));
    let second = Keeper::create(&path, options(RingKind::D)).unwrap();
    // Or a caller removes it; but not while a keeper lives.
    assert_eq!(clear_dead(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    drop(second);
    clear_dead(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["notes.txt", "notes.lock"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "mine").unwrap();
        let error = Keeper::create(&path, options(RingKind::D)).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert_eq!(clear_dead(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}

#[test]
fn who_glances_is_nobodys_reader() {
    for kind in RingKind::ALL {
        let kept = Kept::new(options(kind));
        let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
        for n in 0..4u64 {
            writer.writer().write(Descriptor::default(), &n.to_le_bytes(), soon()).unwrap();
        }
        let mut glance = kept.named.glance(1).unwrap();
        let mut got = Vec::new();
        while let Ok(seen) = glance.peek() {
            got.extend(glance.bytes(&seen).copy_to_vec());
            glance.take(&seen).unwrap();
        }
        let expected: Vec<u8> = (0..4u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(got, expected, "{kind:?}");
        assert_eq!((writer.writer().readers(), kept.named.state().unwrap().readers.len()), (0, 0), "{kind:?}");
    }
}

#[test]
fn a_keeper_that_is_gone_is_missed_on_both_sides() {
    let kept = Kept::new(options(RingKind::D));
    let writer = kept.named.open_writer(Signalling::Every).unwrap();
    let reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    assert!(writer.is_kept() && reader.is_kept());
    drop(kept);
    let began = Instant::now();
    while writer.is_kept() || reader.is_kept() {
        assert!(began.elapsed() < Duration::from_secs(5), "its sockets are closed when it is gone");
    }
}

#[test]
fn a_reader_behind_by_a_size_and_a_writer_misses_neither() {
    let kept = Kept::new(RingOptions { keep_open: true, ..options(RingKind::D) });
    let mut writer = kept.named.open_writer(Signalling::Every).unwrap();
    let mut reader = kept.named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    writer.writer().write(Descriptor::default(), b"one", soon()).unwrap();
    writer.resize(8192, 32).unwrap();
    writer.writer().write(Descriptor::default(), b"two", soon()).unwrap();
    drop(writer);
    let again = Instant::now();
    let mut writer = loop {
        match kept.named.open_writer(Signalling::Every) {
            Ok(writer) => break writer,
            Err(error) => assert!(error.kind() == io::ErrorKind::ResourceBusy && again.elapsed().as_secs() < 5),
        }
    };
    writer.writer().write(Descriptor::default(), b"six", soon()).unwrap();
    assert_eq!(read(&mut reader).unwrap(), b"one");
    for (nothing, next) in [(Nothing::Moved, b"two"), (Nothing::Ended, b"six")] {
        assert_eq!(read(&mut reader), Err(nothing));
        assert!(reader.next_generation(soon()).unwrap());
        assert_eq!(read(&mut reader).unwrap(), next);
    }
    assert_eq!(reader.generation(), 3);
}

#[test]
fn a_keeper_that_is_asked_to_stop_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.sock");
    let mut keeper = Keeper::create(&path, options(RingKind::D)).unwrap();
    let (asked, ask) = std::io::pipe().unwrap();
    let named = Named::at(path.to_str().unwrap()).unwrap();
    let keeping = std::thread::spawn(move || keeper.run_until(std::os::fd::AsFd::as_fd(&asked)));
    let mut writer = named.open_writer(Signalling::Every).unwrap();
    let mut reader = named.open_reader(OnFull::Wait, From::Next, soon()).unwrap();
    writer.writer().write(Descriptor::default(), b"last", soon()).unwrap();
    drop(ask);
    keeping.join().unwrap().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(writer.writer().try_write(Descriptor::default(), b"more"), Err(NotWritten::Removed));
    assert_eq!(read(&mut reader).unwrap(), b"last");
    assert_eq!(read(&mut reader), Err(Nothing::Removed));
    assert!(!reader.next_generation(soon()).unwrap());
}

#[test]
fn a_file_of_somebody_elses_beside_the_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let others = folder.path().join("Cargo.lock");
    std::fs::write(&others, "somebody's").unwrap();
    let path = folder.path().join("Cargo.sock");
    let mut keeper = Keeper::create(&path, options(RingKind::D)).unwrap();
    // Another ring, although only the ending differs.
    let mut beside = Keeper::create(&folder.path().join("Cargo.ring"), options(RingKind::D)).unwrap();
    keeper.remove();
    beside.remove();
    assert_eq!(std::fs::read_to_string(&others).unwrap(), "somebody's");
    // What a killed keeper left is cleared as carefully.
    drop(Keeper::create(&path, options(RingKind::D)).unwrap());
    clear_dead(&path).unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["Cargo.lock"]);
}
