//! The filter of a packet socket: lets in packets that any of several expressions wants, and counts the others.
//!
//! It sees the same packets as the readers' program, with tags in their place, so it lets in exactly the wanted ones.
//! Without the right to load programs there is [`program::any_of`], which the kernel's classic BPF machine runs. That
//! counts nothing, and sees no tags.
//!
//! Unlike the readers' program, it is not tried before use: the readers ask their expressions again about every packet.
//! Tests compare its verdicts with the interpreter's.
//!
//! Registers as in [`capture_program`](crate::capture_program): `R6` context, `R7` copy, `R8` bytes on the wire, then
//! A, then the bits; `R9` X.

use crate::code::{Code, Compare, Register, Width};
use crate::expression::Expression;
use crate::lower::facts;
use crate::program_error::ProgramError;
use crate::sys::{self, MMAPABLE, MapKind};
use crate::tally::Tally;
use crate::wire::{self, PerCpu, add_constant, add_register, count, skb};
use Register::{R0, R1, R2, R6, R7, R8};
use base::atomic::Ordering;
use buffer::live::memory::Count;
use buffer::live::words::CpuPage;
use buffer::shared::segment::{Access, Mapping, PAGE_BYTES};
use buffer::shared::words::Shared;
use std::os::fd::{AsFd, OwnedFd};

/// Let in the whole packet.
const WHOLE: i32 = 1 << 18;

/// Packet type of sent packets (packet(7)).
const OUTGOING: i32 = 4;

/// A filter's counters and memory. Replacements of the program keep them.
pub struct SocketFilter {
    head: OwnedFd,
    counts: OwnedFd,
    cpus: Vec<Shared<CpuPage>>,
    tags: bool,
}

impl std::fmt::Debug for SocketFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sieve").field("tags", &self.tags).finish_non_exhaustive()
    }
}

impl SocketFilter {
    /// New counters. `tags`: frames have an Ethernet header, and stripped tags are put back into it.
    pub fn new(tags: bool) -> Result<SocketFilter, ProgramError> {
        let system = |what| move |error| ProgramError::System(what, error);
        let cpus = sys::possible_cpus();
        let bytes = cpus as usize * PAGE_BYTES;
        let counts = sys::create_map(MapKind::Array, "sl_filter", bytes as u32, 1, MMAPABLE)
            .map_err(system("the kernel gave no map"))?;
        let mapping = Mapping::of(counts.as_fd(), bytes, Access::Read);
        let mapping = mapping.map_err(system("the counters were not mapped"))?;
        let page = |cpu: u32| Shared::in_mapping(&mapping, cpu as usize * PAGE_BYTES);
        let head = wire::create_heads(cpus)?;
        Ok(SocketFilter { head, cpus: (0..cpus).filter_map(page).collect(), counts, tags })
    }

    /// A program for SO_ATTACH_BPF that lets in packets that any of these wants. It may replace an earlier program of
    /// this filter, and continues its counters.
    pub fn program(&self, expressions: &[Expression]) -> Result<OwnedFd, ProgramError> {
        let mut code = Code::default();
        let (accept, decided, incoming) = (code.label(), code.label(), code.label());
        // A packet without bytes is let in, and no expression wants it.
        let cpus = self.cpus.len() as u32;
        let counts = PerCpu { map: self.counts.as_fd(), at: 0, bytes: PAGE_BYTES as u32, cpus };
        // No expression samples here.
        let tally = Tally { bell: self.head.as_fd(), counts };
        wire::copy_head(&mut code, wire::heads(self.head.as_fd(), cpus), self.tags, accept);
        wire::count_seen(&mut code, counts, accept);
        code.store_constant(Width::Eight, R7, facts::WANTED, 0);
        // Expressions that sample or count need all passing packets in user space.
        let of = |way: fn(&Expression) -> bool| -> Vec<Expression> {
            let mine = expressions.iter().filter(|expression| way(expression));
            mine.map(|expression| Expression::new(expression.bit, expression.program.clone())).collect()
        };
        let ways = [of(|expression| expression.outgoing), of(|expression| expression.incoming)];
        let [outgoing, coming] = ways.each_ref().map(|way| way.iter().collect::<Vec<_>>());
        code.load(Width::Four, R1, R6, skb::PKT_TYPE);
        code.jump_if(Compare::NotEqual, R1, OUTGOING, incoming);
        crate::decide::decide(&mut code, tally, &outgoing)?;
        code.jump(decided);
        code.place(incoming);
        crate::decide::decide(&mut code, tally, &coming)?;
        code.place(decided);
        let nobody = code.label();
        code.load(Width::Eight, R8, R7, facts::WANTED);
        code.jump_if(Compare::Equal, R8, 0, nobody);
        code.place(accept);
        code.set(R0, WHOLE);
        code.exit();
        code.place(nobody);
        counts.this(&mut code, R1, accept);
        add_constant(&mut code, R1, count::LOST, 1);
        code.load(Width::Eight, R2, R7, facts::WIRE);
        add_register(&mut code, R1, count::KEPT_BYTES, R2);
        code.set(R0, 0);
        code.exit();
        let code = code.finish().map_err(ProgramError::Code)?;
        sys::load_socket_filter("streamline_filter", &code).map_err(ProgramError::Load)
    }

    /// Packets kept out so far, and their bytes on the wire. A page's word for losses counts them here.
    pub fn kept_out(&self) -> Count {
        self.cpus.iter().fold(Count::default(), |sum, page| Count {
            packets: sum.packets.wrapping_add(page.lost.load(Ordering::Relaxed)),
            wire_bytes: sum.wire_bytes.wrapping_add(page.kept_bytes[0].load(Ordering::Relaxed)),
        })
    }

    /// Packets seen so far, and their bytes on the wire.
    pub fn seen(&self) -> Count {
        self.cpus.iter().fold(Count::default(), |sum, page| Count {
            packets: sum.packets.wrapping_add(page.seen.load(Ordering::Relaxed)),
            wire_bytes: sum.wire_bytes.wrapping_add(page.seen_bytes.load(Ordering::Relaxed)),
        })
    }
}
