//! The program that is a packet socket's filter: lets in what any of several expressions wants, and counts what it does not.
//!
//! It sees what the readers' program sees, tags in their place, so it lets in exactly that. Where programs may not be loaded
//! there is [`program::any_of`], which the kernel's classic machine runs: that counts nothing, and sees no tags.
//!
//! It is not tried before, as the readers' program is: whoever is let in is asked again above. Its verdicts are compared with
//! the interpreter's by tests.

use crate::capture_program::{Expression, ProgramError, Tally};
use crate::code::{Code, Compare, Register, Width};
use crate::lower::facts;
use crate::sys::{self, MMAPABLE, MapKind};
use crate::wire::{self, PerCpu, add_constant, add_register, count, skb};
use Register::{R0, R1, R2, R6, R7, R8};
use base::atomic::Ordering;
use buffer::live::memory::Count;
use buffer::live::words::CpuPage;
use buffer::shared::segment::{Access, Mapping, PAGE_BYTES};
use buffer::shared::words::Shared;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that are let in of a packet: all.
const WHOLE: i32 = 1 << 18;

/// Packet type of what this host sends (packet(7)).
const OUTGOING: i32 = 4;

/// A filter's counters and memory, which stay when programs are exchanged.
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
    /// Counters at zero. `tags` says that frames have an Ethernet header, into which stripped tags are put back.
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

    /// A program to be a socket's filter (SO_ATTACH_BPF): lets in what any of these wants. It may be attached in the place of
    /// an earlier one of this socket filter: counters go on.
    pub fn program(&self, expressions: &[Expression]) -> Result<OwnedFd, ProgramError> {
        let mut code = Code::default();
        let (accept, decided, incoming) = (code.label(), code.label(), code.label());
        // What has no bytes is let in, and nobody's.
        let cpus = self.cpus.len() as u32;
        let counts = PerCpu { map: self.counts.as_fd(), at: 0, bytes: PAGE_BYTES as u32, cpus };
        // Nobody samples here.
        let tally = Tally { bell: self.head.as_fd(), counts };
        wire::copy_head(&mut code, wire::heads(self.head.as_fd(), cpus), self.tags, accept);
        wire::count_seen(&mut code, counts, accept);
        code.store_constant(Width::Eight, R7, facts::WANTED, 0);
        // Who samples or counts wants all it passes to be seen above.
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

    /// Packets that were kept out up to now, and their bytes on the wire. A page's word for what was lost counts them here.
    pub fn kept_out(&self) -> Count {
        self.cpus.iter().fold(Count::default(), |sum, page| Count {
            packets: sum.packets.wrapping_add(page.lost.load(Ordering::Relaxed)),
            wire_bytes: sum.wire_bytes.wrapping_add(page.kept_bytes[0].load(Ordering::Relaxed)),
        })
    }

    /// Packets it was shown up to now, and their bytes on the wire.
    pub fn seen(&self) -> Count {
        self.cpus.iter().fold(Count::default(), |sum, page| Count {
            packets: sum.packets.wrapping_add(page.seen.load(Ordering::Relaxed)),
            wire_bytes: sum.wire_bytes.wrapping_add(page.seen_bytes.load(Ordering::Relaxed)),
        })
    }
}
