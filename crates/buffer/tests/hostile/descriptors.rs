//! The rights that a file descriptor gives, error by error; and which file descriptors are accepted as a ring's memory.

use buffer::ring::RingKind;
use buffer::ring::memory::{Geometry, RingMemory};
use buffer::shared::segment::{Access, PAGE_BYTES, Pages, Refused, Segment};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const BYTES: usize = 4 * PAGE_BYTES;

fn sealed() -> (Segment, OwnedFd) {
    let segment = Segment::create("hostile", BYTES, Pages::Normal).unwrap();
    segment.seal_for_readers().unwrap();
    let fd = segment.read_only_fd().unwrap();
    (segment, fd)
}

fn map(fd: BorrowedFd<'_>, protection: ProtFlags) -> Result<*mut std::ffi::c_void, Errno> {
    // SAFETY: a fresh range; the test does not read what is mapped.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, fd, 0) }
}

#[test]
fn whoever_has_the_descriptor_of_a_reader_cannot_change_a_byte() {
    let (_segment, fd) = sealed();
    assert_eq!(map(fd.as_fd(), ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::ACCESS);
    let read_only = map(fd.as_fd(), ProtFlags::READ).unwrap();
    // SAFETY: the map is ours, and only its rights would change.
    let protected = unsafe { rustix::mm::mprotect(read_only, BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(protected, Err(Errno::ACCESS));
    // SAFETY: the map is ours.
    unsafe { rustix::mm::munmap(read_only, BYTES).unwrap() };
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::INVAL));
    assert_eq!(rustix::fs::ftruncate(&fd, 2 * BYTES as u64), Err(Errno::INVAL));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, PAGE_BYTES as u64), Err(Errno::BADF));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::BADF));
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
}

/// A memfd's permissions let its owner open it again for writing; the seals make that useless.
#[test]
fn opened_again_for_writing_it_is_as_useless() {
    let (_segment, fd) = sealed();
    let again = rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), OFlags::RDWR, Mode::empty());
    let Ok(fd) = again else {
        assert!(matches!(again, Err(Errno::ACCESS | Errno::PERM)), "{again:?}");
        return;
    };
    assert_eq!(map(fd.as_fd(), ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    assert_eq!(map(fd.as_fd(), ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    let read_only = map(fd.as_fd(), ProtFlags::READ).unwrap();
    // SAFETY: the map is ours, and only its rights would change.
    let protected = unsafe { rustix::mm::mprotect(read_only, BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(protected, Err(Errno::ACCESS));
    // SAFETY: the map is ours.
    unsafe { rustix::mm::munmap(read_only, BYTES).unwrap() };
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 2 * BYTES as u64), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, PAGE_BYTES as u64), Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn a_reader_can_neither_cut_nor_seal_its_own_page() {
    let segment = Segment::create("hostile", PAGE_BYTES, Pages::Normal).unwrap();
    segment.seal_for_writer().unwrap();
    assert_eq!(rustix::fs::ftruncate(segment.fd(), 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(segment.fd(), SealFlags::WRITE), Err(Errno::PERM));
}

fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn what_is_not_sealed_is_not_mapped() {
    let (fixed, last) = (SealFlags::SHRINK | SealFlags::GROW, SealFlags::SEAL);
    let all = fixed | last | SealFlags::FUTURE_WRITE;
    let check = |seals: SealFlags, access: Access, taken: bool| {
        let outcome = Segment::receive(memfd(BYTES as u64, seals), BYTES, access);
        assert_eq!(outcome.is_ok(), taken, "{seals:?} {access:?}: {outcome:?}");
    };
    check(all, Access::Read, true);
    check(fixed, Access::Write, true);
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL, SealFlags::FUTURE_WRITE] {
        check(all - seal, Access::Read, false);
    }
    for seal in [SealFlags::SHRINK, SealFlags::GROW] {
        check(fixed - seal, Access::Write, false);
    }
    for seals in [fixed, last, SealFlags::SHRINK | last, SealFlags::GROW | last] {
        assert!(matches!(Segment::receive_page(memfd(4096, seals), PAGE_BYTES), Err(Refused::Unsealed)), "{seals:?}");
    }
    assert!(Segment::receive_page(memfd(4096, fixed | last), PAGE_BYTES).is_ok());
    assert!(matches!(Segment::receive_page(memfd(4095, fixed | last), PAGE_BYTES), Err(Refused::TooShort { .. })));
}

#[test]
fn what_is_no_memfd_is_not_mapped() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES as u64).unwrap();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let null = rustix::fs::open("/dev/zero", OFlags::RDWR, Mode::empty()).unwrap();
    for fd in [OwnedFd::from(file), pipe, null] {
        for access in [Access::Read, Access::Write] {
            let fd = fd.try_clone().unwrap();
            assert!(matches!(Segment::receive(fd, BYTES, access), Err(Refused::Unsealed)));
        }
        assert!(matches!(Segment::receive_page(fd, PAGE_BYTES), Err(Refused::Unsealed)));
    }
}

#[test]
fn what_is_too_short_is_not_mapped() {
    for kind in RingKind::ALL {
        let geometry = Geometry::new(kind, 8192, 16);
        let memory = RingMemory::create("hostile", geometry, Pages::Normal, 0).unwrap();
        memory.segment().seal_for_readers().unwrap();
        let fd = || memory.segment().read_only_fd().unwrap();
        let twice = Geometry { payload_bytes: 16384, ..geometry };
        assert!(matches!(RingMemory::receive(fd(), twice, Access::Read), Err(Refused::TooShort { .. })), "{kind:?}");
        assert!(RingMemory::receive(fd(), geometry, Access::Read).is_ok());
    }
}

#[test]
fn a_segment_of_another_geometry_is_refused() {
    let sound = Geometry::new(RingKind::D, 8192, 16);
    let memory = RingMemory::create("hostile", sound, Pages::Normal, 0).unwrap();
    memory.segment().seal_for_readers().unwrap();
    let receive = |geometry| RingMemory::receive(memory.segment().read_only_fd().unwrap(), geometry, Access::Read);
    let unsound = [
        Geometry { payload_bytes: 0, ..sound },
        Geometry { payload_bytes: 5000, ..sound },
        Geometry { payload_bytes: 1, ..sound },
        Geometry { payload_bytes: u64::MAX, ..sound },
        Geometry { slots: 0, ..sound },
        Geometry { slots: 3, ..sound },
        Geometry { slots: u64::MAX, ..sound },
        Geometry { slots: 1 << 63, ..sound },
        Geometry { kind: RingKind::C, ..sound },
        Geometry { kind: RingKind::P, payload_bytes: 4096, slots: 8192 },
    ];
    for geometry in unsound {
        assert!(matches!(receive(geometry), Err(Refused::Io(_))), "{geometry:?}");
    }
    // Other geometries fit into the memory, but differ from the segment's own words.
    for geometry in
        [Geometry { slots: 8, ..sound }, Geometry { payload_bytes: 4096, ..sound }, Geometry::new(RingKind::V, 8192, 0)]
    {
        let received = receive(geometry).unwrap();
        assert!(!received.is_known(&received.map(Access::Read).unwrap().words), "{geometry:?}");
    }
    let received = receive(sound).unwrap();
    assert!(received.is_known(&received.map(Access::Read).unwrap().words));
}
