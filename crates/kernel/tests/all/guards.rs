//! Programs that need the kernel's guards against speculation (without CAP_PERFMON): they get some masks, but never the
//! guard that makes the processor wait for all earlier loads.

use crate::expressions::Expressions;
use kernel::program_error::ProgramError;
use kernel::{ConsumeProgram, Expression, ShareProgram, SocketFilter, Wanted};
use program::{Compile, CompileErrorKind, Program, from_cbpf};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use testkit::packets::REJECTING;
use testkit::random::Random;

/// Expressions that look at offsets given by other bytes, and behind the copy.
const INDEXED: [&str; 4] = [
    "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
    "ip[ip[0] & 15] = 3",
    "udp[200] = 7 or len > 900",
    // The place of the first byte decides about the bounds of the second.
    "tcp[80] = 1 and tcp[4] = 2 and udp[90] = 3 or tcp[90:4] & tcp[2:2] > 7",
];

/// Number of random expressions. Each must load.
const MADE_UP: usize = 200;

/// BPF_OBJ_GET_INFO_BY_FD (linux/bpf.h).
const GET_INFO: libc::c_int = 15;

/// Offsets in `struct bpf_prog_info`: bytes and address of the instructions after the verifier.
const BYTES: usize = 20;
const AT: usize = 32;

/// BPF_ST | BPF_NOSPEC (linux/filter.h).
const WAITS: u8 = 0xc2;

/// The information about a program, and as many of its instructions as fit.
fn info(program: BorrowedFd<'_>, instructions: &mut [u8]) -> Vec<u8> {
    let mut info = vec![0u8; 256];
    info[BYTES..BYTES + 4].copy_from_slice(&(instructions.len() as u32).to_ne_bytes());
    info[AT..AT + 8].copy_from_slice(&(instructions.as_mut_ptr() as u64).to_ne_bytes());
    let mut attr = [0u8; 16];
    attr[..4].copy_from_slice(&program.as_raw_fd().to_ne_bytes());
    attr[4..8].copy_from_slice(&(info.len() as u32).to_ne_bytes());
    attr[8..].copy_from_slice(&(info.as_mut_ptr() as u64).to_ne_bytes());
    // SAFETY: it reads the 16 bytes, and writes at most the lengths in there, which fit the borrowed buffers.
    let told = unsafe { libc::syscall(libc::SYS_bpf, GET_INFO, attr.as_mut_ptr(), attr.len()) };
    assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
    info
}

/// The number of instructions that the kernel made of a program, and how many of them wait.
fn waits(program: BorrowedFd<'_>) -> (usize, usize) {
    let bytes = info(program, &mut [])[BYTES..BYTES + 4].try_into().map(u32::from_ne_bytes).unwrap();
    let mut instructions = vec![0; bytes as usize];
    info(program, &mut instructions);
    let all = instructions.chunks_exact(8);
    (all.len(), all.filter(|instruction| instruction[0] == WAITS).count())
}

/// Gives up this thread's right to load without guards.
fn give_up() {
    let kept = capabilities(None).unwrap().permitted & (CapabilitySet::BPF | CapabilitySet::NET_ADMIN);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).unwrap();
}

fn look() {
    give_up();
    let compiler = testkit::Compiler::new();
    let mut programs: Vec<Arc<Program>> = Vec::new();
    for text in REJECTING.iter().chain(&INDEXED) {
        match compiler.compile(text, 1, 262_144) {
            Ok(code) => programs.push(Arc::new(from_cbpf(&code).unwrap())),
            Err(error) if error.kind == CompileErrorKind::Unavailable => return println!("skipped: {error}"),
            Err(error) => panic!("{text}: {error}"),
        }
    }
    let socket_filter = match SocketFilter::new(true) {
        Ok(socket_filter) => socket_filter,
        Err(error) => return println!("skipped (rights): {error}"),
    };
    let asked = programs.iter().enumerate().map(|(bit, program)| Expression::new(bit as u8, Some(Arc::clone(program))));
    let filter = socket_filter.program(&asked.collect::<Vec<_>>()).unwrap();
    let wanted: Vec<&Program> = programs.iter().map(|program| &**program).collect();
    let consume_program = ConsumeProgram::new(1, Wanted::Any(&wanted)).unwrap();
    let share_program = ShareProgram::new([2, 0, 0, 0, 0, 1], 1).unwrap();
    for program in [filter.as_fd(), consume_program.program(), share_program.program()] {
        let (all, waits) = waits(program);
        assert!(all > 200 && waits == 0, "{waits} of {all} wait");
    }
}

fn load_any() {
    give_up();
    let mut random = Random(0x6a7d_ed01_2345_6789);
    let frames = testkit::frames::real_and_damaged(100, &mut random);
    let mut expressions = Expressions::about(&frames);
    let mut loaded = 0;
    while loaded < MADE_UP {
        let Some((text, program)) = expressions.any(&mut random, 2) else { return };
        match ConsumeProgram::new(1, Wanted::Any(&[&program])) {
            Err(ProgramError::System(what, error)) => return println!("skipped (rights): {what}: {error}"),
            Err(ProgramError::Expression(..)) => continue,
            Err(error) => panic!("`{text}`: {error}"),
            Ok(_) => loaded += 1,
        }
    }
}

#[test]
fn guarded_programs_load_whatever_is_asked() {
    std::thread::spawn(load_any).join().unwrap();
}

#[test]
fn guarded_programs_do_not_have_the_processor_wait() {
    // Capabilities belong to threads.
    std::thread::spawn(look).join().unwrap();
}
