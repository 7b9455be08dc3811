//! One question to the host: a connection, a message, an answer, and perhaps a file descriptor.

use crate::kernel::{call, close};
use libc::{c_int, c_void};
use socket_calls::{ANSWER, Answer, Ask, Call, NOWHERE, SECRET, VARIABLE, read_variable};
use std::net::SocketAddr;
use std::sync::OnceLock;

/// The host's unix address, its length, and the secret.
struct Host {
    address: libc::sockaddr_un,
    length: usize,
    secret: [u8; SECRET],
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Runs before the program's `main`: later the program may change its environment.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    let Some(value) = std::env::var_os(VARIABLE) else { return };
    let Some((name, secret)) = read_variable(value.as_encoded_bytes()) else { return };
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: an abstract address.
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name) {
        *to = *from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    let _ = HOST.set(Host { address, length, secret });
}

/// Whether this process has a host.
pub(crate) fn is_there() -> bool {
    HOST.get().is_some()
}

/// Asks about a socket.
pub(crate) fn ask_about(call: Call, inode: u64) -> Option<Answer> {
    ask(call, inode, NOWHERE, 0, 0).map(|(answer, _)| answer)
}

/// Asks. `None`: the host does not answer. Otherwise its answer, and its file descriptor, which is closed on exec.
pub(crate) fn ask(
    what: Call,
    inode: u64,
    address: SocketAddr,
    number: i64,
    value: i64,
) -> Option<(Answer, Option<c_int>)> {
    let host = HOST.get()?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let line = c_int::try_from(call(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0])).ok()?;
    if line < 0 {
        return None;
    }
    let ask = Ask { secret: host.secret, call: what, inode, address, number, value }.encode();
    let answered = (|| {
        let address_at = &raw const host.address as usize;
        again(|| call(libc::SYS_connect, [line as usize, address_at, host.length]))?;
        let flags = libc::MSG_NOSIGNAL as usize;
        let at = ask.as_ptr() as usize;
        again(|| call(libc::SYS_sendto, [line as usize, at, ask.len(), flags, 0, 0]))?;
        let mut answer = [0; ANSWER];
        let (length, fd) = loop {
            match receive_with_fd(line, &mut answer, libc::MSG_CMSG_CLOEXEC) {
                Some(received) => break received,
                // A signal handler ran. The host goes on meanwhile.
                None if crate::kernel::errno() == libc::EINTR => {}
                None => return None,
            }
        };
        (length == ANSWER).then(|| (Answer::decode(&answer), fd))
    })();
    close(line);
    answered
}

/// Repeats a call that a signal interrupted.
fn again(mut act: impl FnMut() -> isize) -> Option<usize> {
    loop {
        match usize::try_from(act()) {
            Ok(done) => return Some(done),
            Err(_) if crate::kernel::errno() == libc::EINTR => {}
            Err(_) => return None,
        }
    }
}

/// Receives a message, and its first file descriptor. `None`: `errno` has the error.
pub(crate) fn receive_with_fd(from: c_int, bytes: &mut [u8], flags: c_int) -> Option<(usize, Option<c_int>)> {
    let mut control = [0u64; 8];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: all zeros is a value of this structure of numbers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let at = &raw mut message as usize;
    let length = usize::try_from(call(libc::SYS_recvmsg, [from as usize, at, flags as usize])).ok()?;
    // SAFETY: the kernel filled the message in; its macros stay inside the control bytes.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_fd = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len >= libc::CMSG_LEN(4) as usize;
        is_fd.then(|| libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())
    };
    Some((length, fd))
}
