//! The kernel's classic machine lets in what any of several expressions wants, by [`program::any_of`]: random expressions
//! over real frames, sent over a pair of sockets of which one has the filter. Takes no rights.

#[path = "expressions/mod.rs"]
mod expressions;

use expressions::{expression, seen};
use program::cbpf::Instruction;
use program::{Compile, CompileErrorKind, Interpreter, Program, any_of, from_cbpf, to_cbpf};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use testkit::random::Random;

/// Expressions asked, at most [`AT_ONCE`] together.
const ASKED: usize = 600;
const AT_ONCE: usize = 5;

/// Frames of all captures.
const FRAMES: usize = 300;

/// Only datagrams that the program wants arrive.
fn attach(to: &UnixDatagram, program: &[Instruction]) -> std::io::Result<()> {
    let program: Vec<libc::sock_filter> =
        program.iter().map(|&Instruction { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(program.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let (value, bytes) = (std::ptr::from_ref(&program).cast(), size_of::<libc::sock_fprog>() as u32);
    let fd = to.as_raw_fd();
    // SAFETY: the kernel reads `len` instructions, which are there, and writes none.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, bytes) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn what_any_wants_is_let_in_and_nothing_else() {
    let mut random = Random(0x0dd5_0c4e_7123_4567);
    let frames = testkit::frames::real_and_damaged(FRAMES, &mut random);
    assert!(frames.len() > 20, "{} frames", frames.len());
    let seen = seen(&frames);
    let compiler = testkit::Compiler::new();
    let (near, far) = UnixDatagram::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let mut to = vec![0; 70_000];
    let (mut asked, mut compared, mut came, mut apart) = (0usize, 0u64, 0u64, 0usize);
    while asked < ASKED {
        let mut texts = Vec::new();
        let mut programs: Vec<Program> = Vec::new();
        let at_once = 1 + random.below(AT_ONCE);
        while programs.len() < at_once {
            let text = expression(&mut random, &seen, 1);
            match compiler.compile(&text, 1, 262_144) {
                Ok(code) => {
                    programs.push(from_cbpf(&code).unwrap());
                    texts.push(text);
                }
                Err(error) if error.kind == CompileErrorKind::Unavailable => return println!("skipped: {error}"),
                Err(_) => {}
            }
        }
        asked += at_once;
        let Some(any) = any_of(&programs.iter().collect::<Vec<_>>()) else {
            apart += 1;
            continue;
        };
        let any = to_cbpf(&any);
        attach(&far, &any).unwrap_or_else(|error| panic!("{error}: {} instructions for {texts:?}", any.len()));
        let interpreters: Vec<Interpreter> = programs.iter().map(Interpreter::new).collect();
        for frame in &frames {
            near.send(frame).unwrap();
            let arrived = match far.recv(&mut to) {
                Ok(len) => {
                    assert_eq!(&to[..len], frame, "whole");
                    true
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    false
                }
            };
            let wanted = interpreters.iter().any(|one| one.run(frame, frame.len() as u32) != 0);
            assert_eq!(arrived, wanted, "{texts:?} on {frame:02x?}");
            compared += 1;
            came += u64::from(arrived);
        }
    }
    println!("{asked} expressions, {compared} datagrams, {came} came; {apart} sets were no one program");
    assert!(came > compared / 5 && came < compared - compared / 5 && apart * 10 < asked);
}
