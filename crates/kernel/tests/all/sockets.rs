//! A socket lets in packets that any of several expressions wants: with [`program::any_of`] in the kernel's classic BPF
//! machine, which needs no rights, and with [`kernel::SocketFilter`], which also counts. Random expressions over real
//! frames, sent over pairs of sockets of which one has the filter.

use crate::expressions::Expressions;
use buffer::live::memory::Count;
use kernel::{Expression, SocketFilter};
use program::cbpf::Instruction;
use program::{Interpreter, Program, any_of, to_cbpf};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use testkit::random::Random;

/// Number of expressions, and how many are asked together.
const ASKED: usize = 600;
const AT_ONCE: usize = 5;

const FRAMES: usize = 300;

/// Attaches a classic program: only wanted datagrams arrive.
fn attach(to: &UnixDatagram, program: &[Instruction]) -> std::io::Result<()> {
    let program: Vec<libc::sock_filter> =
        program.iter().map(|&Instruction { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(program.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let (value, bytes) = (std::ptr::from_ref(&program).cast(), size_of::<libc::sock_fprog>() as u32);
    let fd = to.as_raw_fd();
    // SAFETY: the kernel reads `len` valid instructions, and writes none.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, bytes) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Attaches a loaded program: only wanted datagrams arrive.
fn attach_loaded(to: &UnixDatagram, program: &OwnedFd) {
    let (fd, program) = (to.as_raw_fd(), program.as_raw_fd());
    let (value, bytes) = (std::ptr::from_ref(&program).cast(), size_of::<i32>() as u32);
    // SAFETY: the kernel reads one number.
    let attached = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, value, bytes) };
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
}

/// A pair of sockets. The far one may have a filter.
struct Line {
    near: UnixDatagram,
    far: UnixDatagram,
    to: Vec<u8>,
}

impl Line {
    fn new() -> Line {
        let (near, far) = UnixDatagram::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        Line { near, far, to: vec![0; 70_000] }
    }

    fn arrives(&mut self, frame: &[u8]) -> bool {
        self.near.send(frame).unwrap();
        match self.far.recv(&mut self.to) {
            Ok(len) => {
                assert_eq!(&self.to[..len], frame, "whole");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                false
            }
        }
    }
}

#[test]
fn what_any_wants_is_let_in_and_nothing_else() {
    let mut random = Random(0x0dd5_0c4e_7123_4567);
    let frames = testkit::frames::real_and_damaged(FRAMES, &mut random);
    assert!(frames.len() > 20, "{} frames", frames.len());
    let mut expressions = Expressions::about(&frames);
    let (mut line, mut other) = (Line::new(), Line::new());
    let socket_filter = SocketFilter::new(true)
        .map_err(|error| println!("skipped (rights): for programs that are loaded: {error}"))
        .ok();
    let (mut asked, mut compared, mut came, mut kept_out, mut apart) = (0usize, 0u64, 0u64, 0u64, 0usize);
    while asked < ASKED {
        let mut texts = Vec::new();
        let mut programs: Vec<Program> = Vec::new();
        let at_once = 1 + random.below(AT_ONCE);
        while programs.len() < at_once {
            let Some((text, program)) = expressions.any(&mut random, 1) else { return };
            programs.push(program);
            texts.push(text);
        }
        asked += at_once;
        let Some(any) = any_of(&programs.iter().collect::<Vec<_>>()) else {
            apart += 1;
            continue;
        };
        let any = to_cbpf(&any);
        attach(&line.far, &any).unwrap_or_else(|error| panic!("{error}: {} instructions for {texts:?}", any.len()));
        if let Some(socket_filter) = &socket_filter {
            let shared = programs.iter().cloned().map(|program| Some(Arc::new(program)));
            let expressions: Vec<Expression> =
                shared.enumerate().map(|(bit, program)| Expression::new(bit as u8, program)).collect();
            let program = socket_filter.program(&expressions).unwrap_or_else(|error| panic!("{error}: {texts:?}"));
            attach_loaded(&other.far, &program);
        }
        let interpreters: Vec<Interpreter> = programs.iter().map(Interpreter::new).collect();
        for frame in &frames {
            let arrived = line.arrives(frame);
            let wanted = interpreters.iter().any(|one| one.run(frame, frame.len() as u32) != 0);
            assert_eq!(arrived, wanted, "{texts:?} on {frame:02x?}");
            if socket_filter.is_some() {
                assert_eq!(other.arrives(frame), wanted, "{texts:?} on {frame:02x?}");
            }
            compared += 1;
            came += u64::from(arrived);
            kept_out += if wanted { 0 } else { frame.len() as u64 };
        }
    }
    if let Some(socket_filter) = socket_filter {
        assert_eq!(socket_filter.seen().packets, compared);
        assert_eq!(socket_filter.kept_out(), Count { packets: compared - came, wire_bytes: kept_out });
    }
    println!("{asked} expressions, {compared} datagrams, {came} came; {apart} sets were no one program");
    assert!(came > compared / 5 && came < compared - compared / 5 && apart * 10 < asked);
}
