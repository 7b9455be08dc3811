//! Hostile clients: their messages, files, rings and requests must harm no other client.

use crate::bed::{Bed, Witnesses, as_user_of, frame, memory, port, until};
use buffer::control::{self, Message, packets};
use buffer::shared::segment::{Access, Mapping};
use capture::CaptureErrorKind;
use capture::client::Client;
use capture::line::Line;
use capture::protocol::{Answer, Code, Question};
use capture::{Attachment, By, CaptureReader, CaptureRequest, Direction, Mode};
use kernel::inventory;
use kernel::sys::Hook;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use testkit::network::{Pair, quiet_namespace};
use testkit::packets::{dear_to_port, to_port};
use testkit::random::Random;

pub const ANNA: u32 = 20_001;
pub const BERT: u32 = 20_002;

/// Both may read only the near device. They do not share a ring.
const POLICY: &str = "[[allow]]\nusers = [\"20001\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n\
                      [[allow]]\nusers = [\"20002\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n";

pub fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    as_user_of(user, user, work)
}

fn connect(bed: &Bed) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let address = SocketAddrUnix::new(bed.socket()).expect("it is a short path");
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Sends bytes and file descriptors. Does not wait. The kernel takes at most 253 descriptors at once.
fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn ask(socket: &OwnedFd, question: &Question) -> Answer {
    control::send(socket, question, &[]).expect("it listens");
    control::receive::<Answer>(socket).expect("it answers").expect("it is there").0
}

fn question(random: &mut Random, bed: &Bed) -> Question {
    let name = ["near", "", "lo", "no such", "near\0", "../near", "%s%n", "nearnearnearnearnearnear"][random.below(8)];
    let asked = || CaptureRequest { device: name.into(), ..bed.capture_request() };
    match random.below(9) {
        0 => Question::Hello(random.below(3) as u32, "x".repeat(random.below(6000))),
        1 => Question::Device(name.into()),
        2 => Question::Open(asked()),
        3 => Question::Open(CaptureRequest { by: By::PacketSocket, last_ns: u64::MAX, promiscuous: true, ..asked() }),
        4 => Question::Open(CaptureRequest {
            ring_bytes: u64::MAX,
            sample: 0,
            mode: Mode::Consume,
            keep: true,
            ..asked()
        }),
        5 => Question::Exchange(random.below(40) as u64, Code(to_port(port(random.below(4) as u64)))),
        6 => Question::Close(random.below(40) as u64),
        7 => Question::State,
        _ => Question::Stop(u64::MAX - random.below(4) as u64),
    }
}

fn mutated(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len().max(1));
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.below(256) as u8),
            2 => bytes.extend(std::iter::repeat_n(0xff, random.below(300))),
            _ if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
            _ => {}
        }
    }
    bytes
}

fn make_noise(random: &mut Random, bed: &Bed, socket: &OwnedFd, round: usize, strays: &[BorrowedFd<'_>]) {
    let bytes = match random.below(4) {
        0 => (0..random.below(3000)).map(|_| random.below(256) as u8).collect(),
        1 => mutated(random, vec![[1, 2, 3, 4, 5, 6, 7][round % 7]; 40]),
        2 => question(random, bed).encode(),
        _ => {
            let question = question(random, bed).encode();
            mutated(random, question)
        }
    };
    let count = [0, 0, 0, 1, 8, 9, 253][random.below(7)];
    let fds: Vec<_> = (0..count).map(|at| strays[at % strays.len()]).collect();
    let sent = match send(socket, &bytes, &fds) {
        // Since Linux 6.16 the kernel refuses descriptors for the daemon's queues.
        Err(Errno::PERM) if !fds.is_empty() => send(socket, &bytes, &[]),
        sent => sent,
    };
    // The daemon may have disconnected it for an earlier message.
    match sent {
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::AGAIN | Errno::TOOMANYREFS) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn noise_on_the_control_socket_costs_nobody_a_packet() {
    let policy = "[[allow]]\nusers = [\"20001\"]\ndevices = [\"*\"]\nmodes = [\"tap\", \"consume\"]\n";
    let Some(bed) = Bed::new(Some(policy)) else { return };
    let before = bed.held(0);
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    let mut random = Random(0x1234_5678_9abc_def1);
    let stray = std::fs::File::open("/dev/null").expect("every system has it");
    let pair = std::os::unix::net::UnixStream::pair().expect("there is room");
    let strays = [stray.as_fd(), pair.0.as_fd(), pair.1.as_fd()];
    let mut first_memory = None;
    for round in 0..600 {
        // All as a user of its own: messages in flight count against their sender.
        let socket = as_user(ANNA, || {
            let socket = connect(&bed).expect("it listens");
            (0..random.below(12)).for_each(|_| make_noise(&mut random, &bed, &socket, round, &strays));
            socket
        });
        if round % 100 == 99 {
            drop(socket);
            until("its readers are gone", || bed.readers() == Witnesses::COUNT);
            bed.await_held(&alone);
            let now = memory(bed.daemon.pid());
            // The heaps of threads grow to the size of one message, and no further.
            let first = *first_memory.get_or_insert(now);
            assert!(now < first + (16 << 20), "{first} bytes of memory at first, {now} now");
        }
    }
    until("its readers are gone", || bed.readers() == Witnesses::COUNT);
    bed.await_held(&alone);
    witnesses.end(&bed);
    bed.await_held(&before);
}

pub fn send_packet(bed: &Bed, number: u64) {
    bed.pair.far.sender().send(&frame(number)).expect("the device is there");
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let most = Timespec { tv_sec: 20, tv_nsec: 0 };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&most)).expect("it can be waited for") > 0
}

#[test]
fn who_does_not_read_its_answers_is_let_go_and_holds_nothing_that_others_need() {
    let policy = "[[allow]]\nusers = [\"20001\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\n[limits]\nreaders = 1000\n";
    let Some(bed) = Bed::new(Some(policy)) else { return };
    let before = bed.held(0);
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    // This limits messages in flight, too, for the daemon's user as a whole.
    bed.limit_files(200);
    let hog = as_user(ANNA, || connect(&bed)).expect("it listens");
    let mut left = 128;
    until("it has asked, or was let go", || {
        let by = [By::Kernel, By::PacketSocket][left % 2];
        match send(&hog, &Question::Open(CaptureRequest { by, ..bed.capture_request() }).encode(), &[]) {
            Ok(_) => left -= 1,
            Err(Errno::AGAIN) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => left = 0,
            Err(error) => panic!("{error}"),
        }
        left == 0
    });
    // All earlier questions have been answered by now, or never will be.
    until("it is let go", || match send(&hog, &Question::State.encode(), &[]) {
        Ok(_) | Err(Errno::AGAIN) => false,
        Err(Errno::PIPE | Errno::CONNRESET) => true,
        Err(error) => panic!("{error}"),
    });
    let client = bed.client();
    let other = client.open(&bed.capture_request()).expect("others are served as before");
    drop((other, client, hog));
    until("its readers are gone", || bed.readers() == Witnesses::COUNT);
    bed.await_held(&alone);
    witnesses.end(&bed);
    bed.await_held(&before);
}

#[test]
fn a_sleeper_is_woken_by_a_daemon_that_has_no_files_left() {
    let Some(bed) = Bed::new(None) else { return };
    let client = bed.client();
    let open = || {
        CaptureReader::new(client.open(&bed.capture_request()).expect("there is room"), None, None)
            .expect("it can be mapped")
    };
    let mut sleeper = open();
    let others = [open(), open(), open()];
    // Fewer than the daemon has open; enough for it to sleep.
    bed.limit_files(12);
    assert!(connect(&bed).is_ok(), "it waits for being let in");
    for (number, other) in (0..).zip(others) {
        // The daemon rebuilds the list of clients that it serves.
        let left = 3 - number as usize;
        drop(other);
        until("it is gone", || {
            let rings = client.state().expect("it answers who is there").rings;
            rings.iter().map(|ring| ring.readers.len()).sum::<usize>() == left
        });
        until("it sleeps", || {
            sleeper.wait(Some(std::time::Instant::now()));
            sleeper.announced()
        });
        send_packet(&bed, number);
        assert!(readable(sleeper.line()), "packet {number} wakes nobody");
        let mut bytes = [0; 300];
        until("the packet is there", || match sleeper.look() {
            capture::reader::Found::Packet(packet) => sleeper.take_copy(&packet, &mut bytes).is_some(),
            capture::reader::Found::Nothing => false,
        });
        assert!(bytes.starts_with(&frame(number)));
    }
    bed.limit_files(1024);
    until("it lets in again", || Client::connect(&bed.socket(), "another").is_ok());
}

#[test]
fn crowds_of_clients_shut_nobody_else_out() {
    let Some(bed) = Bed::new(Some(POLICY)) else { return };
    let before = bed.held(0);
    let witnesses = Witnesses::new(&bed);
    let alone = bed.held(Witnesses::COUNT);
    let mut crowd = Vec::new();
    let mut refused = 0;
    for user in 0..6 {
        as_user(ANNA + user, || {
            for _ in 0..300 {
                match Client::connect(&bed.socket(), "crowd") {
                    Ok(client) => crowd.push(client),
                    // The refusal says why, whenever the client reads it.
                    Err(error) => {
                        assert!(error.to_string().contains(": a place is free when"), "{error}");
                        refused += 1;
                    }
                }
            }
        });
    }
    // 256 places for each user with permissions, and 256 for all other users together.
    let places = 3 * 256;
    assert_eq!((crowd.len(), refused), (places, 6 * 300 - places));
    let client = bed.client();
    let attachment = client.open(&bed.capture_request()).expect("and served");
    assert!(!client.state().expect("and told").clients.is_empty());
    drop((crowd, attachment, client));
    for _ in 0..1000 {
        drop(connect(&bed).expect("it listens"));
    }
    bed.await_held(&alone);
    witnesses.end(&bed);
    bed.await_held(&before);
    // The daemon logged a few refusals, and did not fill the log.
    let Bed { daemon, .. } = bed;
    daemon.signal(rustix::process::Signal::INT);
    let said = String::from_utf8_lossy(&daemon.end().stderr).into_owned();
    let lines =
        said.lines().filter(|line| line.starts_with("a client was not let in: the daemon has 256 clients")).count();
    assert!((1..10).contains(&lines), "{lines} lines: {said}");
}

/// Everything by which a reader might change other readers' view.
fn assert_cannot_write(attachment: &Attachment, by_kernel: bool) {
    let areas = &attachment.fds.areas;
    for (fd, what) in [(&areas.words, "words"), (&areas.slots, "slots"), (&areas.data, "data")] {
        assert!(Mapping::of(fd.as_fd(), 4096, Access::Read).is_ok(), "{what}");
        assert!(Mapping::of(fd.as_fd(), 4096, Access::Write).is_err(), "{what} can be mapped for writing");
        assert!(rustix::io::write(fd, &[0xff; 64]).is_err(), "{what} can be written");
        assert!(rustix::io::pwrite(fd, &[0xff; 64], 0).is_err(), "{what} can be written");
        assert!(rustix::fs::ftruncate(fd, 0).is_err(), "{what} can be cut");
        assert!(rustix::fs::fallocate(fd, HOLE, 0, 4096).is_err(), "{what} can have holes");
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
        if let Ok(again) = rustix::fs::open(again, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()) {
            assert!(rustix::io::pwrite(&again, &[0xff; 64], 0).is_err(), "{what} can be written once more");
            assert!(Mapping::of(again.as_fd(), 4096, Access::Write).is_err(), "{what} can be mapped once more");
        }
        if by_kernel {
            assert!(kernel::sys::update(fd.as_fd(), 0, &[0xff; 4096]).is_err(), "{what} can be set");
        } else {
            let seals = rustix::fs::fcntl_get_seals(fd).expect("it is a memfd");
            assert!(seals.contains(rustix::fs::SealFlags::SEAL), "{what} can be sealed");
        }
    }
}

const HOLE: rustix::fs::FallocateFlags =
    rustix::fs::FallocateFlags::PUNCH_HOLE.union(rustix::fs::FallocateFlags::KEEP_SIZE);

#[test]
fn a_reader_that_scribbles_over_all_it_has_changes_nothing_for_others() {
    let Some(bed) = Bed::new(None) else { return };
    let witnesses = Witnesses::new(&bed);
    let mut random = Random(77);
    for by in [By::WhatIsBest, By::Kernel, By::PacketSocket] {
        let client = bed.client();
        let attachment = client.open(&CaptureRequest { by, ..bed.capture_request() }).expect("there is room");
        assert_cannot_write(&attachment, by != By::PacketSocket);
        // A reader may write anything to its line: true and false words, as much as fits, with files beside them, and
        // invalid words.
        let stray = std::fs::File::open("/dev/null").expect("every system has it");
        as_user(ANNA, || {
            for round in 0..200u64 {
                let word = Line::Asleep([round, 0, u64::MAX][random.below(3)]).to_bytes();
                let fds = vec![stray.as_fd(); [0, 0, 1, 100][random.below(4)]];
                match send(&attachment.fds.line, &word, &fds) {
                    Ok(_) | Err(Errno::AGAIN | Errno::TOOMANYREFS) => {}
                    Err(error) => panic!("it was let go: {error}"),
                }
            }
        });
        // The page is the reader's own, too. Whatever it writes there, the state has valid numbers, and other readers'
        // numbers do not change.
        let page = std::fs::File::from(attachment.fds.progress.try_clone().expect("there are files left"));
        assert!(page.set_len(0).is_err() && page.set_len(1 << 20).is_err());
        for word in [0, 1, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            for at in 0..3 {
                page.write_all_at(&word.to_ne_bytes(), at * 8).expect("it may");
                let state = bed.client().state().expect("it answers");
                let readers = || state.rings.iter().flat_map(|ring| &ring.readers);
                assert!(readers().all(|reader| reader.lost <= reader.matched), "{state:?}");
                assert!(
                    readers().filter(|reader| reader.id != attachment.granted.id).all(|reader| reader.lost == 0),
                    "{state:?}"
                );
            }
        }
        witnesses.traffic.more(300);
        until("it is let go", || send(&attachment.fds.line, &[7; 9], &[]).is_err_and(|error| error != Errno::AGAIN));
    }
    until("it is gone", || bed.readers() == Witnesses::COUNT);
    witnesses.end(&bed);
}

#[test]
fn what_policy_denies_is_not_seen_by_any_name_or_number() {
    let Some(bed) = Bed::new(Some(POLICY)) else { return };
    let near = &bed.pair.near;
    let other = Pair::named([(&near.namespace, "other"), (&quiet_namespace(), "end")], 1).expect("as before");
    let root = bed.client();
    let secret = [&near.name, &other.near.name].map(|device| {
        let asked = CaptureRequest { device: device.clone(), ..bed.capture_request() };
        CaptureReader::new(root.open(&asked).expect("root may"), None, None).expect("it can be mapped")
    });
    send_packet(&bed, 0);
    other.far.sender().send(&frame(1)).expect("it is up");
    let name_of = |index: u32| format!("if{index}");
    for user in [ANNA, BERT, ANNA + 7] {
        let socket = as_user(user, || connect(&bed)).expect("everybody may connect");
        for mode in [Mode::Tap, Mode::Consume] {
            for by in [By::WhatIsBest, By::Kernel, By::PacketSocket] {
                let index = other.near.index;
                let names =
                    ["other", "other ", "other\0", "near\0other", "./other", "other:0", "any", "lo", "", "*", "oth*"];
                for device in names.map(String::from).into_iter().chain([index.to_string(), name_of(index)]) {
                    let asked = CaptureRequest {
                        device: device.clone(),
                        mode,
                        by,
                        last_ns: u64::MAX,
                        keep: true,
                        ..bed.capture_request()
                    };
                    packets::send(&socket, &Question::Open(asked).encode(), &[]).expect("it listens");
                    let (answer, fds) = control::receive::<Answer>(&socket).expect("it answers").expect("it is there");
                    assert!(matches!(answer, Answer::Refused(CaptureErrorKind::Denied, _)), "{device:?}: {answer:?}");
                    assert!(fds.is_empty());
                    let answer = ask(&socket, &Question::Device(device.clone()));
                    assert!(matches!(answer, Answer::Refused(CaptureErrorKind::Denied, _)), "{device:?}: {answer:?}");
                }
            }
        }
        // A client cannot exchange, close or stop other users' readers and clients.
        for id in 0..20 {
            let Answer::State(state) = ask(&socket, &Question::State) else { panic!("it may ask for that") };
            let is_itself = state.clients.iter().any(|client| client.id == id);
            for question in [Question::Exchange(id, Code::default()), Question::Close(id), Question::Stop(id)] {
                if is_itself && matches!(question, Question::Stop(_)) {
                    continue;
                }
                let answer = ask(&socket, &question);
                let refused =
                    matches!(answer, Answer::Refused(CaptureErrorKind::Request | CaptureErrorKind::Absent, _));
                assert!(refused, "{question:?}: {answer:?}");
            }
        }
        let Answer::State(state) = ask(&socket, &Question::State) else { panic!("a state") };
        assert_eq!((state.clients.len(), state.rings.len()), (1, 0), "{state:?}");
    }
    // A user with another entry for the same device gets a ring of its own, without earlier packets.
    let anna = as_user(ANNA, || Client::connect(&bed.socket(), "Anna")).expect("everybody may connect");
    let attachment = anna.open(&CaptureRequest { last_ns: u64::MAX, ..bed.capture_request() }).expect("she may");
    assert_eq!((attachment.granted.seen_before, attachment.granted.first, attachment.granted.decided), (0, 0, 0));
    let mut reader = CaptureReader::new(attachment, None, None).expect("it can be mapped");
    assert_eq!(reader.look(), capture::reader::Found::Nothing);
    drop((secret, root));
}

/// All bytes of an area of a ring, in slots or not.
fn bytes_of(area: &OwnedFd, bytes: usize) -> Vec<u8> {
    let map = Mapping::of(area.as_fd(), bytes, Access::Read).expect("it can be mapped");
    // Read through a file, without following pointers.
    let this = std::fs::File::open("/proc/self/mem").expect("it is this process");
    let mut found = vec![0; bytes];
    this.read_exact_at(&mut found, map.first().addr().get() as u64).expect("it is mapped");
    found
}

fn full_of(byte: u8, port: u16) -> Vec<u8> {
    let mut frame = frame(0);
    frame.resize(300, 0);
    frame[16..18].copy_from_slice(&286u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&266u16.to_be_bytes());
    frame[42..].fill(byte);
    frame
}

#[test]
fn what_a_filter_of_the_policy_denies_is_in_no_memory_that_its_readers_have() {
    const SHOWN: u8 = 0xa7;
    const DENIED: u8 = 0xd5;
    let entry = |user: u32, more: &str| {
        format!("[[allow]]\nusers = [\"{user}\"]\ndevices = [\"near\"]\nmodes = [\"tap\", \"consume\"]\n{more}\n")
    };
    let filter = "filter = \"udp port 53\"";
    // Small rings, since the test searches all of their memory.
    let policy = [
        "[limits]\nring = \"256K\"\n".to_string(),
        entry(ANNA, filter),
        entry(BERT, &format!("{filter}\nkeep = \"256K\"")),
        entry(BERT + 1, ""),
    ]
    .concat();
    let Some(bed) = Bed::new(Some(&policy)) else { return };
    let clients = [ANNA, BERT, BERT + 1]
        .map(|user| as_user(user, || Client::connect(&bed.socket(), "hostile")).expect("everybody may connect"));
    until("packets are kept", || bed.client().state().is_ok_and(|state| state.rings.iter().any(|ring| ring.kept)));
    let asked = |by| CaptureRequest { by, promiscuous: true, last_ns: u64::MAX, ..bed.capture_request() };
    // Every kind of request, by users who may see a part and by root.
    let open = |client: &Client| {
        let mut all = Vec::new();
        for by in [By::WhatIsBest, By::Kernel, By::PacketSocket] {
            for program in [Vec::new(), to_port(80), to_port(53)] {
                all.push(client.open(&CaptureRequest { program, ..asked(by) }).expect("they may"));
            }
            let attachment = client.open(&asked(by)).expect("they may");
            for program in [to_port(80), Vec::new()] {
                client.exchange(attachment.granted.id, &program).expect("it is a reader of theirs");
            }
            all.push(attachment);
        }
        all
    };
    let copies = clients.each_ref().map(open);
    let mut sender = bed.pair.far.sender();
    let mut send = || {
        for (byte, port) in [(SHOWN, 53), (DENIED, 80), (DENIED, 5353), (DENIED, 53)] {
            let mut frame = full_of(byte, port);
            if (byte, port) == (DENIED, 53) {
                frame[23] = 6;
            }
            sender.send(&frame).expect("the device is there");
        }
    };
    let mut sent = 0;
    (0..30).for_each(|_| send());
    sent += 120;
    let seen = |rings: usize| {
        let state = bed.client().state().expect("it answers");
        state.rings.iter().filter(|ring| ring.seen.0 >= sent).count() >= rings
    };
    // Three packets of each of the three kinds. A socket filter that does not count drops unwanted packets unseen.
    until("packets are seen", || seen(9));
    let lies = |attachment: &Attachment, byte: u8| {
        let (areas, geometry) = (&attachment.fds.areas, &attachment.granted.geometry);
        let sizes = [geometry.words_bytes(), geometry.slots_bytes(), geometry.ring_bytes as usize];
        let areas = [&areas.words, &areas.slots, &areas.data].into_iter().zip(sizes);
        areas.map(|(area, bytes)| bytes_of(area, bytes)).any(|bytes| bytes.windows(16).any(|run| run == [byte; 16]))
    };
    let check = |attachments: &[Attachment], expected: bool, what: &str| {
        for (at, attachment) in attachments.iter().enumerate() {
            assert!(lies(attachment, SHOWN), "{what}, reader {at}: it is not what was looked for");
            assert_eq!(lies(attachment, DENIED), expected, "{what}, reader {at}: {}", attachment.granted.device.how);
        }
    };
    for (attachments, expected) in copies.iter().zip([false, false, true]) {
        check(attachments, expected, "copies");
        assert!(
            attachments
                .iter()
                .all(|attachment| attachment.granted.note.contains("only what `udp port 53` passes") != expected)
        );
    }
    drop(copies);
    // The same where packets are consumed.
    for (client, expected) in clients.iter().zip([false, false, true]) {
        until("nobody else takes them", || bed.readers() == 0);
        let taking = CaptureRequest { mode: Mode::Consume, ..asked(By::WhatIsBest) };
        let attachments = [Vec::new(), to_port(80)]
            .map(|program| client.open(&CaptureRequest { program, ..taking.clone() }).expect("they may"));
        (0..30).for_each(|_| send());
        until("they are taken", || lies(&attachments[0], SHOWN));
        until("all has been looked at", || attachments[0].map().is_ok_and(|memory| memory.seen().packets >= 30));
        check(&attachments, expected, "taken away");
        drop(attachments);
    }
}

#[test]
fn whatever_expressions_users_ask_for_packets_pay_for_few_and_others_find_room() {
    let Some(bed) = Bed::new(Some(&format!("{POLICY}[limits]\nreaders = 1000\n"))) else { return };
    let mut random = Random(0x0dd0_0dd0_0dd0_0dd1);
    let anna = as_user(ANNA, || Client::connect(&bed.socket(), "Anna")).expect("everybody may connect");
    let on_hook = |hook| {
        let near = &bed.pair.near;
        let programs = near.namespace.enter(|| inventory::on_hook(near.index, hook)).expect("it is there");
        let counts = programs
            .expect("root may ask")
            .into_iter()
            .map(|program| inventory::program(program).map(|info| info.instructions()));
        counts.collect::<Result<Vec<u32>, _>>().expect("root may ask").into_iter().sum::<u32>()
    };
    let taken = || bed.client().budget("near").expect("it is there").expect("it has a budget").all;
    let ways = [Direction::Both, Direction::In, Direction::Out];
    let mut held: Vec<Attachment> = Vec::new();
    let mut refused = 0;
    for round in 0..120 {
        let dear = dear_to_port(53, ([1, 4, 100, 2000][random.below(4)] + random.below(8)) as u32);
        let (direction, by) = (ways[round % 3], [By::WhatIsBest, By::Kernel, By::PacketSocket][random.below(3)]);
        let sample = [1, 1, 7][random.below(3)];
        let outcome = match random.below(3) {
            0 if !held.is_empty() => anna.exchange(held[random.below(held.len())].granted.id, &dear).map(drop),
            1 if held.len() > 40 => {
                held.swap_remove(random.below(held.len()));
                Ok(())
            }
            _ => anna
                .open(&CaptureRequest { program: dear, direction, by, sample, ..bed.capture_request() })
                .map(|attachment| held.push(attachment)),
        };
        if let Err(error) = outcome {
            assert!([CaptureErrorKind::Cannot, CaptureErrorKind::Full].contains(&error.kind), "round {round}: {error}");
            refused += 1;
        }
        assert!(taken().taken <= taken().of / 4 * 3, "round {round}: {:?}", taken());
    }
    assert!(refused > 20 && taken().taken > taken().of / 2, "{refused} were refused, {:?}", taken());
    for hook in [Hook::TcxIngress, Hook::TcxEgress] {
        let instructions = on_hook(hook);
        assert!(instructions < 20_000, "{instructions} instructions");
    }
    // Other users find room, and their expressions run in the kernel.
    let bert = as_user(BERT, || Client::connect(&bed.socket(), "Bert")).expect("everybody may connect");
    let before = taken().taken;
    let attachments: Vec<Attachment> = (0..10)
        .map(|_| bert.open(&CaptureRequest { program: to_port(80), ..bed.capture_request() }).expect("she leaves some"))
        .collect();
    assert!(taken().taken > before + 10 * 5, "{before}, {:?}", taken());
    bert.exchange(attachments[0].granted.id, &to_port(443)).expect("and for another");
    let mut reader = CaptureReader::new(bert.open(&bed.capture_request()).expect("there is room"), None, None)
        .expect("it can be mapped");
    (0..40).for_each(|number| send_packet(&bed, number));
    until("all are there", || reader.ledger().matched == 40);
    let matched = |attachment: &Attachment| {
        attachment.map().expect("it can be mapped").matched(usize::from(attachment.granted.bit)).packets
            - attachment.granted.matched_before.0
    };
    assert_eq!(matched(&attachments[1]), 10, "a fourth goes to port 80");
    assert!(matches!(reader.look(), capture::reader::Found::Packet(_)));
    drop((held, attachments, reader));
    until("what was taken is given back", || taken().taken == 0);
}

#[test]
fn users_have_as_many_readers_as_policy_says_whatever_they_do_with_them() {
    let Some(bed) = Bed::new(Some(&format!("{POLICY}[limits]\nreaders = 3\n"))) else { return };
    let client = as_user(ANNA, || Client::connect(&bed.socket(), "Anna")).expect("everybody may connect");
    for _ in 0..20 {
        drop(client.open(&bed.capture_request()).expect("she has none"));
    }
    let three: Vec<Attachment> =
        (0..3).map(|_| client.open(&bed.capture_request()).expect("she may have three")).collect();
    assert_eq!(client.open(&bed.capture_request()).unwrap_err().kind, CaptureErrorKind::Full);
    drop(three);
    let clients: Vec<Client> = as_user(BERT, || {
        (0..40).map(|_| Client::connect(&bed.socket(), "Bert").expect("everybody may connect")).collect()
    });
    let start = std::sync::Barrier::new(clients.len());
    let granted: Vec<Attachment> = std::thread::scope(|scope| {
        let open = |client| {
            let (start, bed) = (&start, &bed);
            scope.spawn(move || {
                start.wait();
                Client::open(client, &bed.capture_request()).ok()
            })
        };
        let threads: Vec<_> = clients.iter().map(open).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert_eq!(granted.len(), 3);
}

/// A ring that root shares because its packets are kept: one user opens readers until it is refused.
#[test]
fn one_user_that_takes_every_place_it_gets_leaves_places_to_others_and_root() {
    let both = "[[allow]]\nusers = [\"20001\", \"20002\", \"20003\"]\ndevices = [\"near\"]\nmodes = [\"tap\"]\nkeep = \"1M\"\n";
    for (limits, places) in [("", [48, 8 - 1, 0]), ("[limits]\nreaders = 64\n", [56 - 1, 0, 0])] {
        let Some(bed) = Bed::new(Some(&format!("{both}{limits}"))) else { return };
        let root = bed.client();
        until("packets are kept", || root.state().is_ok_and(|state| state.rings.iter().any(|ring| ring.kept)));
        let users = [ANNA, BERT, BERT + 1];
        let clients = users.map(|user| as_user(user, || Client::connect(&bed.socket(), "Anna")).expect("they may"));
        let mut held = Vec::new();
        let taken = clients.each_ref().map(|client| {
            let before = held.len();
            let full = loop {
                match client.open(&bed.capture_request()) {
                    Ok(attachment) => held.push(attachment),
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind, CaptureErrorKind::Full, "{full}");
            assert!(full.text.contains(": a place is free when one of them ends"), "{full}");
            held.len() - before
        });
        assert_eq!(taken, places, "{limits}");
        held.push(root.open(&bed.capture_request()).expect("root finds a place"));
        let rings = root.state().expect("it answers").rings;
        assert_eq!(rings.len(), 1, "all of it is one ring");
        // Another user can take a freed place.
        held.clear();
        clients[2].open(&bed.capture_request()).expect("there are places again");
    }
}

#[test]
fn rings_are_no_larger_than_policy_says_whatever_is_wished() {
    let Some(bed) = Bed::new(Some(&format!("{POLICY}[limits]\nring = \"3M\"\n"))) else { return };
    let client = as_user(ANNA, || Client::connect(&bed.socket(), "Anna")).expect("everybody may connect");
    for ring_bytes in [0, 1, 1 << 20, 3 << 20, 1 << 30, u64::MAX] {
        for by in [By::Kernel, By::PacketSocket] {
            until("the ring before is gone", || client.state().is_ok_and(|state| state.rings.is_empty()));
            let attachment = client.open(&CaptureRequest { ring_bytes, by, ..bed.capture_request() }).expect("she may");
            assert!(
                attachment.granted.geometry.ring_bytes <= 2 << 20,
                "{ring_bytes} wished, {:?}",
                attachment.granted.geometry
            );
        }
    }
}

#[test]
fn who_comes_first_with_a_small_ring_takes_no_room_from_who_comes_later() {
    let Some(bed) = Bed::new(None) else { return };
    let attachment =
        bed.client().open(&CaptureRequest { ring_bytes: 1 << 20, ..bed.capture_request() }).expect("root may");
    assert_eq!(attachment.granted.geometry.ring_bytes, capture::registry::RING_BYTES);
}

#[test]
fn who_comes_from_outside_of_the_daemons_pid_namespace_is_served() {
    let Some(mut bed) = Bed::new(None) else { return };
    bed.daemon.signal(rustix::process::Signal::KILL);
    until("it is gone", || bed.daemon.has_ended());
    if !bed.restart_in_pid_namespace() {
        eprintln!("skipped: unshare(1) is not there to make a PID namespace");
        return;
    }
    let client = bed.client();
    let attachment = client.open(&bed.capture_request()).expect("root may");
    let clients = client.state().expect("it answers").clients;
    assert!(clients.iter().all(|client| client.process == 0 && client.user == 0), "{clients:?}");
    drop(attachment);
}

#[test]
fn a_daemon_is_confined_in_all_its_threads_and_says_to_what() {
    let Some(bed) = Bed::new(None) else { return };
    let client = bed.client();
    let reader = client.open(&bed.capture_request()).expect("there is room");
    let copied = client.open(&CaptureRequest { by: By::PacketSocket, ..bed.capture_request() }).expect("there is room");
    let confined = client.state().expect("it answers").confined;
    let folder = format!("/proc/{}/task", bed.daemon.pid().as_raw_nonzero());
    let mut threads = 0;
    for thread in std::fs::read_dir(folder).expect("it is alive").flatten() {
        // The thread may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        // Root's daemon runs as another user, without root's groups.
        assert!(!status.contains("Uid:\t0\t") && !status.contains("Gid:\t0\t"), "{status}");
        assert!(status.contains("Groups:\t \n"), "{status}");
        let few = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("every process has some");
        // CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF.
        assert_eq!(u64::from_str_radix(few, 16).expect("a number") & !(1 << 12 | 1 << 13 | 1 << 39), 0);
        assert_eq!(status.contains("Seccomp:\t2\n"), confined.contains("seccomp"), "{status}");
        threads += 1;
    }
    assert!(confined.starts_with("user ") && !confined.starts_with("user root"), "{confined}");
    assert!(threads >= 5, "{threads}: main, bells, taking down, a client, a copier");
    let known = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    assert_eq!(confined.contains("seccomp"), known.contains("errno"), "{confined}");
    if !confined.contains("seccomp") || !confined.contains("Landlock") {
        eprintln!("skipped: this kernel confines the daemon only to {confined}");
    }
    drop((reader, copied));
}
