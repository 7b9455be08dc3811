//! Both queues between two processes: each side can write only its own memory, and read the other's.

use base::atomic::AtomicU64;
use buffer::queue::{Memory, Pop, PopError, Push, PushError, fast_forward, indexed};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::ptr::{NonNull, null_mut};

struct Map {
    start: NonNull<AtomicU64>,
    words: usize,
}

impl Map {
    fn new(file: &File, words: usize, access: ProtFlags) -> Map {
        // SAFETY: a new map at an address of the kernel's choice, no longer than the file.
        let start = unsafe { mmap(null_mut(), words * size_of::<u64>(), access, MapFlags::SHARED, file, 0) }.unwrap();
        Map { start: NonNull::new(start.cast()).unwrap(), words }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this length, and nothing borrows from it any more.
        unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<u64>()) }.unwrap();
    }
}

// SAFETY: a map belongs to the process, not to a thread.
unsafe impl Send for Map {}

// SAFETY: the map stays in place until it is dropped, and only queues use it, as atomics.
unsafe impl Memory for Map {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `self.words` words are mapped, zero at first, and both sides use them as atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

const CAPACITY: usize = 64;
const ENTRIES: u64 = 20_000;

const OWN: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const OTHERS: ProtFlags = ProtFlags::READ;

/// Environment variable for the child: the paths of the memory files.
const PLACES: &str = "QUEUE_PROCESSES_PLACES";

fn memory_file(words: usize) -> File {
    let file = File::from(memfd_create("queue", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, (words * size_of::<u64>()) as u64).unwrap();
    file
}

/// In the child: opens the parent's files and sends.
fn send(places: &str, mut sender: impl FnMut(&File, &File) -> Box<dyn FnMut(u64) -> bool>) {
    let open = |place: &str| OpenOptions::new().read(true).write(true).open(place).unwrap();
    let (own, others) = places.split_once(' ').unwrap();
    let mut push = sender(&open(own), &open(others));
    for number in 0..ENTRIES {
        while !push(number) {
            std::thread::yield_now();
        }
    }
}

/// In the parent: starts the child, which runs the same test, and receives.
fn receive(test: &str, sender_words: usize, receiver_words: usize, start: impl FnOnce(&File, &File) -> Box<dyn Next>) {
    let files = [memory_file(sender_words), memory_file(receiver_words)];
    let places = files.each_ref().map(|file| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    let mut receiver = start(&files[0], &files[1]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("queue_processes::{test}"), "--nocapture"])
        .env(PLACES, places.join(" "))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut number = 0;
    loop {
        match receiver.next() {
            Ok(found) => {
                assert_eq!(found, number);
                number += 1;
            }
            Err(PopError::Closed) => break,
            Err(PopError::Empty) => {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none_or(|status| status.success()), "the child failed at {number}: {ended:?}");
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(number, ENTRIES);
    assert!(child.wait().unwrap().success());
}

trait Next {
    fn next(&mut self) -> Result<u64, PopError>;
}

impl<P: Pop<u64>> Next for P {
    fn next(&mut self) -> Result<u64, PopError> {
        self.pop()
    }
}

fn pusher(mut sender: impl Push<u64> + 'static) -> Box<dyn FnMut(u64) -> bool> {
    Box::new(move |number| match sender.push(number) {
        Ok(()) => true,
        Err(PushError::Full(_)) => false,
        Err(PushError::Closed(_)) => panic!("the receiver went"),
    })
}

#[test]
fn indexed_between_processes() {
    let (sender_words, receiver_words) = (indexed::sender_words::<u64>(CAPACITY).unwrap(), indexed::RECEIVER_WORDS);
    match std::env::var(PLACES) {
        Ok(places) => send(&places, |own, others| {
            let (own, others) = (Map::new(own, sender_words, OWN), Map::new(others, receiver_words, OTHERS));
            pusher(indexed::Sender::<u64, Map>::new(own, others, CAPACITY).unwrap())
        }),
        Err(_) => receive("indexed_between_processes", sender_words, receiver_words, |others, own| {
            let (others, own) = (Map::new(others, sender_words, OTHERS), Map::new(own, receiver_words, OWN));
            Box::new(indexed::Receiver::<u64, Map>::new(others, own, CAPACITY).unwrap())
        }),
    }
}

#[test]
fn fast_forward_between_processes() {
    let (sender_words, receiver_words) =
        (fast_forward::sender_words::<u64>(CAPACITY).unwrap(), fast_forward::RECEIVER_WORDS);
    match std::env::var(PLACES) {
        Ok(places) => send(&places, |own, others| {
            let (own, others) = (Map::new(own, sender_words, OWN), Map::new(others, receiver_words, OTHERS));
            pusher(fast_forward::Sender::<u64, Map>::new(own, others, CAPACITY).unwrap())
        }),
        Err(_) => receive("fast_forward_between_processes", sender_words, receiver_words, |others, own| {
            let (others, own) = (Map::new(others, sender_words, OTHERS), Map::new(own, receiver_words, OWN));
            Box::new(fast_forward::Receiver::<u64, Map>::new(others, own, CAPACITY).unwrap())
        }),
    }
}

#[test]
fn positions_that_cannot_be_count_as_none() {
    use base::atomic::Ordering;
    let sender_words = indexed::sender_words::<u64>(4).unwrap();
    let [sending, receiving] = [memory_file(sender_words), memory_file(indexed::RECEIVER_WORDS)];
    let map = |file: &File, words| Map::new(file, words, OWN);
    let mut sender =
        indexed::Sender::<u64, Map>::new(map(&sending, sender_words), map(&receiving, indexed::RECEIVER_WORDS), 4)
            .unwrap();
    let mut receiver =
        indexed::Receiver::<u64, Map>::new(map(&sending, sender_words), map(&receiving, indexed::RECEIVER_WORDS), 4)
            .unwrap();
    sender.push(7).unwrap();
    let lie = |file: &File, position: u64| map(file, 1).words()[0].store(position, Ordering::Relaxed);
    for position in [5, 1 << 63, u64::MAX] {
        lie(&sending, position);
        assert_eq!(receiver.pop(), Err(PopError::Empty), "tail {position}");
    }
    lie(&sending, 1);
    assert_eq!(receiver.pop(), Ok(7));
    while sender.push(1).is_ok() {}
    for position in [6, 1 << 63, u64::MAX] {
        lie(&receiving, position);
        assert_eq!(sender.push(1), Err(PushError::Full(1)), "head {position}");
    }
}
