//! The XDP program on a device that takes wanted frames away from the host. It redirects them to AF_XDP sockets, or out
//! of another device. The crate `driver` has the sockets and the device, and attaches the program.
//!
//! With several expressions, it takes the frames that any of them wants; the reader decides for which one. Expressions
//! see frames as the sockets get them: without tags that the device strips. Frames of a queue without a socket go to
//! the host, wanted or not.
//!
//! Before a program is used, it runs on frames of every common kind (`probe.rs`) and must agree with the interpreter.
//!
//! | register | contents |
//! |---|---|
//! | `R6` | the context (`struct xdp_md`) |
//! | `R7` | this processor's copy of the first bytes, followed by [`facts`] |
//! | `R8` | bytes of the frame, then A of an expression |
//! | `R9` | X of an expression |
//! | `R1`, `R2` | when counting: this processor's counts, bytes of the frame |

use crate::code::{Code, Compare, Helper, Instruction, Label, Register, Width};
use crate::lower::{Entry, facts, lower};
use crate::program_error::ProgramError;
use crate::sys::{self, MMAPABLE, MapKind};
use crate::wire::{self, PerCpu, add_constant, add_register, copy_first};
use Register::{R0, R1, R2, R3, R6, R7, R8};
use base::atomic::{AtomicU64, Ordering};
use buffer::shared::segment::{Access, Mapping, PAGE_BYTES};
use buffer::shared::words::{Shared, Words};
use program::{Interpreter, Program};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Verdicts about a frame (linux/bpf.h): drop it; pass it to the host; redirect it by a map.
const DROP: i32 = 1;
const PASS: i32 = 2;
const REDIRECT: i32 = 4;

/// Offset in `struct xdp_md` (linux/bpf.h).
const QUEUE: i16 = 16;

#[repr(C, align(64))]
struct CpuCounts {
    seen: AtomicU64,
    seen_bytes: AtomicU64,
    wanted: AtomicU64,
    wanted_bytes: AtomicU64,
    left: AtomicU64,
    left_bytes: AtomicU64,
    too_long: AtomicU64,
    nowhere: AtomicU64,
}

// SAFETY: repr(C), atomics only, and all zero bytes are a valid value.
unsafe impl Words for CpuCounts {}

/// Counts since the maps were made. `seen = wanted + left`, except for frames in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumeCounts {
    /// Frames that the program saw.
    pub seen: u64,
    /// Bytes of these frames.
    pub seen_bytes: u64,
    /// Frames that an expression wants.
    pub wanted: u64,
    /// Bytes of these frames.
    pub wanted_bytes: u64,
    /// Frames that went to the host.
    pub left: u64,
    /// Bytes of these frames.
    pub left_bytes: u64,
    /// Wanted frames that were dropped because they are too long for the output device.
    pub too_long: u64,
    /// Wanted frames that were dropped because the output device was gone.
    pub nowhere: u64,
}

/// The destination of wanted frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// AF_XDP sockets, one for each queue.
    Sockets {
        /// Queues of the device.
        queues: u32,
    },
    /// Another device of the same network namespace.
    Device {
        /// Its interface index.
        index: u32,
        /// The longest frame that it takes, in bytes.
        longest: u32,
    },
}

/// The frames to take.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// All.
    All,
    /// Frames that any of these programs passes. An empty list takes none.
    Any(&'a [&'a Program]),
}

impl Wanted<'_> {
    fn programs(&self) -> &[&Program] {
        match self {
            Wanted::All => &[],
            Wanted::Any(programs) => programs,
        }
    }
}

/// Reads the counts of a program and of its replacements, without holding the program.
pub struct Counting(Arc<Maps>);

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Counting").field(&self.counted()).finish()
    }
}

impl Counting {
    /// The counts up to now.
    pub fn counted(&self) -> ConsumeCounts {
        self.0.counted()
    }
}

/// The maps. Replacements of a program use the same ones.
struct Maps {
    head: OwnedFd,
    counts: OwnedFd,
    to: To,
    /// The map for redirects: sockets, or the device.
    targets: OwnedFd,
    cpus: Vec<Shared<CpuCounts>>,
}

/// A loaded program that is not attached, and the sockets to which it redirects.
pub struct ConsumeProgram {
    maps: Arc<Maps>,
    program: OwnedFd,
}

impl std::fmt::Debug for ConsumeProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steer").field("program", &self.program).finish_non_exhaustive()
    }
}

impl ConsumeProgram {
    /// A program for a device with this number of queues, without sockets.
    pub fn new(queues: u32, wanted: Wanted<'_>) -> Result<ConsumeProgram, ProgramError> {
        ConsumeProgram::to(To::Sockets { queues }, wanted)
    }

    /// A program for this destination. Sockets must still be put into the map.
    pub fn to(to: To, wanted: Wanted<'_>) -> Result<ConsumeProgram, ProgramError> {
        check(wanted)?;
        ConsumeProgram::load(Arc::new(Maps::new(to)?), wanted)
    }

    /// A replacement of this program, with the same sockets and counts.
    pub fn with(&self, wanted: Wanted<'_>) -> Result<ConsumeProgram, ProgramError> {
        check(wanted)?;
        ConsumeProgram::load(Arc::clone(&self.maps), wanted)
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The map of sockets: a key for each queue.
    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.maps.targets.as_fd()
    }

    /// The counts of this program and of those that it replaced.
    pub fn counted(&self) -> ConsumeCounts {
        self.maps.counted()
    }

    /// A handle that reads these counts.
    pub fn counting(&self) -> Counting {
        Counting(Arc::clone(&self.maps))
    }

    /// Runs the program on a frame, which it counts, and returns whether it wants the frame. An error if the kernel
    /// cannot run it on this frame: frames without a link header.
    pub fn test_run(&self, frame: &[u8]) -> Result<bool, ProgramError> {
        let before = self.counted();
        sys::test_run(self.program(), frame, 1)
            .map_err(|error| ProgramError::System("the program could not be run", error))?;
        Ok(self.counted().wanted != before.wanted)
    }

    fn load(maps: Arc<Maps>, wanted: Wanted<'_>) -> Result<ConsumeProgram, ProgramError> {
        let code = maps.code(wanted)?;
        let program = sys::load_xdp("streamline_xdp", &code).map_err(ProgramError::Load)?;
        Ok(ConsumeProgram { maps, program })
    }
}

/// Checks that the program agrees with the interpreter. Uses maps of its own, so that no real frame is counted.
fn check(wanted: Wanted<'_>) -> Result<(), ProgramError> {
    let programs = wanted.programs();
    if programs.is_empty() {
        return Ok(());
    }
    let trial = ConsumeProgram::load(Arc::new(Maps::new(To::Sockets { queues: 1 })?), wanted)?;
    let interpreters: Vec<Interpreter> = programs.iter().map(|program| Interpreter::new(program)).collect();
    for frame in programs.iter().flat_map(|program| crate::probe::frames(program)) {
        // Some kernels refuse to run some frames.
        let Ok(taken) = trial.test_run(&frame) else { continue };
        if taken != interpreters.iter().any(|interpreter| interpreter.run(&frame, frame.len() as u32) != 0) {
            return Err(ProgramError::Verdict(frame));
        }
    }
    Ok(())
}

impl Maps {
    fn new(to: To) -> Result<Maps, ProgramError> {
        let system = |what| move |error| ProgramError::System(what, error);
        let make = |kind, name, bytes, entries, flags| {
            sys::create_map(kind, name, bytes, entries, flags).map_err(system("the kernel gave no map"))
        };
        let cpus = sys::possible_cpus();
        let count_bytes = (cpus as usize * size_of::<CpuCounts>()).next_multiple_of(PAGE_BYTES);
        let counts = make(MapKind::Array, "sl_consumed", count_bytes as u32, 1, MMAPABLE)?;
        let mapping = Mapping::of(counts.as_fd(), count_bytes, Access::Read);
        let mapping = mapping.map_err(system("the counters were not mapped"))?;
        let page = |cpu: u32| Shared::in_mapping(&mapping, cpu as usize * size_of::<CpuCounts>());
        Ok(Maps {
            head: wire::create_heads(cpus)?,
            cpus: (0..cpus).filter_map(page).collect(),
            counts,
            targets: match to {
                To::Sockets { queues } => make(MapKind::Sockets, "sl_sockets", 4, queues.max(1), 0)?,
                To::Device { index, .. } => {
                    let device = make(MapKind::Devices, "sl_device", 4, 1, 0)?;
                    sys::update(device.as_fd(), 0, &index.to_ne_bytes())
                        .map_err(system("the kernel took no device"))?;
                    device
                }
            },
            to,
        })
    }

    fn counted(&self) -> ConsumeCounts {
        self.cpus.iter().fold(ConsumeCounts::default(), |sum, cpu| {
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            ConsumeCounts {
                seen: sum.seen.wrapping_add(load(&cpu.seen)),
                seen_bytes: sum.seen_bytes.wrapping_add(load(&cpu.seen_bytes)),
                wanted: sum.wanted.wrapping_add(load(&cpu.wanted)),
                wanted_bytes: sum.wanted_bytes.wrapping_add(load(&cpu.wanted_bytes)),
                left: sum.left.wrapping_add(load(&cpu.left)),
                left_bytes: sum.left_bytes.wrapping_add(load(&cpu.left_bytes)),
                too_long: sum.too_long.wrapping_add(load(&cpu.too_long)),
                nowhere: sum.nowhere.wrapping_add(load(&cpu.nowhere)),
            }
        })
    }

    fn code(&self, wanted: Wanted<'_>) -> Result<Vec<Instruction>, ProgramError> {
        let mut code = Code::fetching_by(Helper::XdpLoadBytes);
        let (accept, leave, pass) = (code.label(), code.label(), code.label());
        let cpus = self.cpus.len() as u32;
        let counts = PerCpu { map: self.counts.as_fd(), at: 0, bytes: size_of::<CpuCounts>() as u32, cpus };
        code.copy(R6, R1);
        code.call(Helper::XdpBufferLength);
        code.copy(R8, R0);
        counts.this(&mut code, R1, pass);
        add_constant(&mut code, R1, count::SEEN, 1);
        add_register(&mut code, R1, count::SEEN_BYTES, R8);
        if let Wanted::Any(programs) = wanted {
            wire::heads(self.head.as_fd(), cpus).this(&mut code, R7, pass);
            code.store(Width::Eight, R7, facts::WIRE, R8);
            code.store_constant(Width::Eight, R7, facts::SHIFT, 0);
            copy_first(&mut code, leave);
            for program in programs {
                let next = code.label();
                lower(&mut code, program, Entry::START, accept, next)
                    .map_err(|refusal| ProgramError::Expression(0, refusal))?;
                code.place(next);
            }
            code.jump(leave);
        }
        let of_wanted = |code: &mut Code| match wanted {
            Wanted::All => code.copy(R2, R8),
            // Expressions overwrite `R8`.
            Wanted::Any(_) => code.load(Width::Eight, R2, R7, facts::WIRE),
        };
        code.place(accept);
        counts.this(&mut code, R1, pass);
        add_constant(&mut code, R1, count::WANTED, 1);
        of_wanted(&mut code);
        add_register(&mut code, R1, count::WANTED_BYTES, R2);
        match self.to {
            To::Sockets { .. } => {
                code.load(Width::Four, R2, R6, QUEUE);
                code.set_map(R1, self.targets.as_fd());
                code.set(R3, PASS);
                code.call(Helper::RedirectMap);
                code.exit();
            }
            To::Device { longest, .. } => self.to_device(&mut code, counts, longest, pass),
        }
        if let Wanted::Any(_) = wanted {
            code.place(leave);
            counts.this(&mut code, R1, pass);
            add_constant(&mut code, R1, count::LEFT, 1);
            code.load(Width::Eight, R2, R7, facts::WIRE);
            add_register(&mut code, R1, count::LEFT_BYTES, R2);
        }
        code.place(pass);
        code.set(R0, PASS);
        code.exit();
        code.finish().map_err(ProgramError::Code)
    }
}

impl Maps {
    /// Redirects a wanted frame, whose length is in `R2`, out of the device.
    fn to_device(&self, code: &mut Code, counts: PerCpu<'_>, longest: u32, pass: Label) {
        let (fits, dropped) = (code.label(), code.label());
        code.jump_if(Compare::AtMost, R2, i32::try_from(longest).unwrap_or(i32::MAX), fits);
        counts.this(code, R1, pass);
        add_constant(code, R1, count::TOO_LONG, 1);
        code.jump(dropped);
        code.place(fits);
        code.set(R2, 0);
        code.set_map(R1, self.targets.as_fd());
        code.set(R3, DROP);
        code.call(Helper::RedirectMap);
        let there = code.label();
        code.jump_if(Compare::Equal, R0, REDIRECT, there);
        counts.this(code, R1, pass);
        add_constant(code, R1, count::NOWHERE, 1);
        code.place(dropped);
        code.set(R0, DROP);
        code.place(there);
        code.exit();
    }
}

mod count {
    use super::CpuCounts;
    pub const SEEN: i16 = std::mem::offset_of!(CpuCounts, seen) as i16;
    pub const SEEN_BYTES: i16 = std::mem::offset_of!(CpuCounts, seen_bytes) as i16;
    pub const WANTED: i16 = std::mem::offset_of!(CpuCounts, wanted) as i16;
    pub const WANTED_BYTES: i16 = std::mem::offset_of!(CpuCounts, wanted_bytes) as i16;
    pub const LEFT: i16 = std::mem::offset_of!(CpuCounts, left) as i16;
    pub const LEFT_BYTES: i16 = std::mem::offset_of!(CpuCounts, left_bytes) as i16;
    pub const TOO_LONG: i16 = std::mem::offset_of!(CpuCounts, too_long) as i16;
    pub const NOWHERE: i16 = std::mem::offset_of!(CpuCounts, nowhere) as i16;
}
