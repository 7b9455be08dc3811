//! Clients of a keeper that send impossible messages, or messages in an impossible order.

use buffer::control;
use buffer::keeper::client::Named;
use buffer::keeper::message::{Message, PROTOCOL, WantedReader, WantedWriter};
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::{Keeper, RingOptions};
use buffer::ring::memory::Geometry;
use buffer::ring::{From, Nothing, OnFull, RingKind, Signalling};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(5);

struct Kept {
    named: Named,
    keeper: Option<JoinHandle<io::Result<()>>>,
    _folder: tempfile::TempDir,
}

impl Kept {
    fn new() -> Kept {
        Kept::after(|_| {})
    }

    fn after(first: impl FnOnce(&Path)) -> Kept {
        Kept::with(Policy::default(), first)
    }

    fn with(policy: Policy, first: impl FnOnce(&Path)) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring.sock");
        let options = RingOptions { policy, keep_open: true, ..RingOptions::new(Geometry::new(RingKind::D, 4096, 16)) };
        let mut keeper = Keeper::create(&path, options).unwrap();
        let named = Named::at(path.to_str().unwrap()).unwrap();
        first(&path);
        Kept { named, keeper: Some(std::thread::spawn(move || keeper.run())), _folder: folder }
    }

    fn client(&self) -> Client {
        let client = Client::connect(self.named.path());
        assert_eq!(client.call(Message::Hello(PROTOCOL)), Message::Done);
        client
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.named.remove().unwrap();
        self.keeper.take().unwrap().join().unwrap().unwrap();
    }
}

struct Client(OwnedFd);

impl Client {
    fn connect(path: &Path) -> Client {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Client(socket)
    }

    fn call(&self, message: Message) -> Message {
        control::send(&self.0, &message, &[]).unwrap();
        control::receive(&self.0).unwrap().expect("the keeper answers").0
    }

    fn writes(&self) {
        assert!(matches!(self.call(Message::OpenWriter(WantedWriter::default())), Message::Writer(..)));
        assert_eq!(self.call(Message::Mapped), Message::Sealed);
    }
}

fn wants_to_read(contract: OnFull) -> Message {
    Message::OpenReader(WantedReader { contract, oldest: false, after: 0, wait: true, content: None })
}

#[test]
fn a_writer_that_asks_to_read_as_well_leaves_when_it_goes() {
    let kept = Kept::new();
    let client = kept.client();
    client.writes();
    client.call(wants_to_read(OnFull::Overwrite));
    drop(client);
    let began = Instant::now();
    while let Err(error) = kept.named.open_writer(Signalling::Every) {
        assert!(began.elapsed() < LONG, "{error}: of whom there is nobody any more");
    }
}

#[test]
fn a_reader_that_asks_to_write_as_well_holds_nothing_when_it_is_gone() {
    let kept = Kept::new();
    let writer = kept.client();
    writer.writes();
    let client = kept.client();
    assert!(matches!(client.call(wants_to_read(OnFull::Wait)), Message::Reader(_)));
    drop(writer);
    let began = Instant::now();
    // Until the keeper has seen that the writer is gone, its answer is another one.
    while kept.named.state().unwrap().writing {
        assert!(began.elapsed() < LONG);
    }
    client.call(Message::OpenWriter(WantedWriter::default()));
    drop(client);
    let mut writer = loop {
        match kept.named.open_writer(Signalling::Every) {
            Ok(writer) => break writer,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
    };
    while writer.writer().readers() > 0 {
        assert!(began.elapsed() < LONG, "nobody reads, and somebody is waited for");
    }
}

/// The last process to close a lingering socket waits for its peer, for as long as the socket's maker has set.
#[test]
fn a_file_that_takes_long_to_close_is_not_for_the_keeper_to_close() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingers = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _never_reads = listener.accept().unwrap();
    lingers.set_nonblocking(true).unwrap();
    while lingers.write(&[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&lingers, Some(Duration::from_secs(20))).unwrap();
    let mut client = None;
    let (mut option, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    const SO_PASSRIGHTS: libc::c_int = 83;
    // SAFETY: there is room for an int.
    let known = unsafe {
        let option = (&raw mut option).cast();
        libc::getsockopt(listener.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, option, &raw mut len)
    };
    if known != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOPROTOOPT) {
        return eprintln!("skipped: before Linux 6.16 nobody can keep files from being sent");
    }
    let kept = Kept::after(|path| {
        let client = client.insert(Client::connect(path));
        control::send(&client.0, &Message::Hello(PROTOCOL), &[]).unwrap();
        if let Err(error) = control::send(&client.0, &Message::AskState, &[lingers.as_fd()]) {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            // Only this process has it: it need not linger here.
            rustix::net::sockopt::set_socket_linger(&lingers, None).unwrap();
        }
        drop(lingers);
    });
    let began = Instant::now();
    kept.named.state().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "the keeper waited for a client's file to be closed");
}

const NOBODY: u32 = 65_534;
const SOMEBODY: u32 = 54_321;

/// Runs `work` as this user, in this group alone, in a thread that ends with it.
fn as_user<T: Send>(user: u32, group: u32, work: impl FnOnce() -> T + Send) -> T {
    as_user_in(user, group, &[], work)
}

/// The same in additional groups.
fn as_user_in<T: Send>(user: u32, group: u32, groups: &[libc::gid_t], work: impl FnOnce() -> T + Send) -> T {
    let change = move || {
        // SAFETY: changes this thread alone; the list's length is right.
        let changed = unsafe {
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                && libc::syscall(libc::SYS_setresgid, group, group, group) == 0
                && libc::syscall(libc::SYS_setresuid, user, user, user) == 0
        };
        assert!(changed, "root may become anybody");
        work()
    };
    std::thread::scope(|scope| scope.spawn(change).join().unwrap())
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped (rights): only root can try what others may do");
    }
    is_root
}

fn crowd(path: &Path) -> Vec<OwnedFd> {
    (0..300).map(|_| Client::connect(path).0).collect()
}

#[test]
fn crowds_of_those_who_may_do_nothing_shut_nobody_out() {
    if !is_root() {
        return;
    }
    let policy = Policy { read: Reach::Group, ..Policy::default() };
    let kept = Kept::with(policy, |path| {
        std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
    });
    let _idle = as_user(NOBODY, NOBODY, || crowd(kept.named.path()));
    // A member of root's group, which may read the ring.
    let _members = as_user(SOMEBODY, 0, || {
        kept.named.state().unwrap();
        crowd(kept.named.path())
    });
    let refused = as_user(NOBODY, NOBODY, || kept.named.state()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded, "{refused}");
    kept.named.state().unwrap();
}

#[test]
fn readers_of_others_leave_places_for_the_rings_own_user() {
    if !is_root() {
        return;
    }
    let policy = Policy { read: Reach::Other, ..Policy::default() };
    let kept = Kept::with(policy, |path| {
        std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
    });
    let _writer = kept.named.open_writer(Signalling::Every).unwrap();
    let read = || kept.named.open_reader(OnFull::Overwrite, From::Next, Some(Instant::now() + LONG));
    let others = as_user(NOBODY, NOBODY, || std::iter::repeat_with(read).map_while(Result::ok).collect::<Vec<_>>());
    let own: Vec<_> = std::iter::repeat_with(read).map_while(Result::ok).collect();
    assert_eq!((others.len(), own.len()), (48, 16));
}

/// One user connects and reads as often as it can: other users, root and the ring's owner still get in.
#[test]
fn one_user_that_takes_every_place_it_gets_leaves_places_to_others() {
    if !is_root() {
        return;
    }
    const OWNER: u32 = 12_345;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("ring.sock");
    let policy = Policy { read: Reach::Other, ..Policy::default() };
    let options = RingOptions { policy, ..RingOptions::new(Geometry::new(RingKind::D, 4096, 16)) };
    let mut keeper = as_user(OWNER, OWNER, || Keeper::create(&path, options)).unwrap();
    let named = Named::at(path.to_str().unwrap()).unwrap();
    let keeping = std::thread::spawn(move || keeper.run());
    let writer = named.open_writer(Signalling::Every).unwrap();
    let read = || named.open_reader(OnFull::Overwrite, From::Next, Some(Instant::now() + LONG));
    let take_all = || -> (Vec<_>, io::Error) {
        let mut readers = Vec::new();
        loop {
            match read() {
                Ok(reader) => readers.push(reader),
                Err(refused) => return (readers, refused),
            }
        }
    };
    let users = [NOBODY, SOMEBODY, OWNER, 0];
    // Of the readers' places, one user may have 48 of 64.
    let (readers, refused) = as_user(NOBODY, NOBODY, take_all);
    assert_eq!((readers.len(), refused.kind()), (48, io::ErrorKind::QuotaExceeded), "{refused}");
    assert!(refused.to_string().contains("as many as one user may have: a place is free when"), "{refused}");
    let others = users.map(|user| as_user(user, user, || read().map(drop).map_err(|error| error.kind())));
    assert_eq!(others, [Err(io::ErrorKind::QuotaExceeded), Ok(()), Ok(()), Ok(())]);
    drop(readers);
    // Of the connections, one user may have 128.
    let crowd = as_user(NOBODY, NOBODY, || crowd(&path));
    let others = users.map(|user| as_user(user, user, || named.state().map(drop).map_err(|error| error.kind())));
    assert_eq!(others, [Err(io::ErrorKind::QuotaExceeded), Ok(()), Ok(()), Ok(())]);
    drop((crowd, writer));
    named.remove().unwrap();
    keeping.join().unwrap().unwrap();
}

#[test]
fn a_writer_that_dies_between_two_sizes_leaves_nobody_waiting() {
    let kept = Kept::new();
    let writer = kept.client();
    control::send(&writer.0, &Message::OpenWriter(WantedWriter::default()), &[]).unwrap();
    // The end of the writer's line is also open in this process, so only the keeper notices that the writer dies.
    let line = control::receive::<Message>(&writer.0).unwrap().unwrap().1;
    assert_eq!(writer.call(Message::Mapped), Message::Sealed);
    let mut reader = kept.named.open_reader(OnFull::Overwrite, From::Next, Some(Instant::now() + LONG)).unwrap();
    control::send(&writer.0, &Message::Resize(Geometry::new(RingKind::D, 8192, 0)), &[]).unwrap();
    loop {
        // News of the reader come first.
        if let (Message::Writer(..), _) = control::receive(&writer.0).unwrap().unwrap() {
            break;
        }
    }
    drop(writer);
    assert_eq!(reader.reader().wait(Some(Instant::now() + LONG)), Err(Nothing::Retired));
    drop(line);
}

#[test]
fn members_of_the_group_are_all_who_are_in_it() {
    if !is_root() {
        return;
    }
    let policy = Policy { read: Reach::Group, ..Policy::default() };
    let kept = Kept::with(policy, |path| {
        std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
    });
    let ask = |groups: &'static [libc::gid_t]| {
        as_user_in(NOBODY, NOBODY, groups, || kept.named.state().map(drop).map_err(|error| error.kind()))
    };
    assert_eq!(ask(&[77, 0, 78]), Ok(()));
    assert_eq!(ask(&[77, 78]), Err(io::ErrorKind::PermissionDenied));
}
