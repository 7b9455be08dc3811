//! The program on a device's hook: asks each expression about a packet, counts, and writes wanted packets into a live
//! ring. It never changes the packet's further way.
//!
//! The steps of a run:
//! 1. Copy the packet's first bytes, and put a stripped VLAN tag back ([`lower`](crate::lower) says why).
//! 2. Ask each expression. If it wants the packet, it sets its bit and counts, or only counts.
//! 3. If no bit is set, end.
//! 4. Reserve a number and room in the ring, invalidate the slot, copy the bytes, fill the slot and stamp it
//!    (`buffer::live::words` has the layout, `buffer::live::writer` does the same in Rust).
//! 5. Ring the bell for each set bit whose reader sleeps, once for each bit.
//!
//! Two programs, one for each direction of packets, write to the same ring. A change of expressions makes and loads
//! two new ones, and replaces the old ones by them.
//!
//! Registers (`R0` to `R5` are scratch between the steps):
//!
//! | register | contents |
//! |---|---|
//! | `R6` | the packet's context (`struct __sk_buff`) |
//! | `R7` | this processor's copy of the first bytes, followed by [`facts`] |
//! | `R8` | step 1: bytes on the wire; step 2: A of an expression; from step 4: the bits of the expressions that want the packet |
//! | `R9` | step 2: X of an expression; from `fill_slot` on: the flow's hash |
//! | `R3` | step 4: the place in the ring's bytes, then the slot |
//! | `R4`, `R5` | `fill_slot`: the slot's flags, and its class (ports) |

use crate::expression::Expression;
use crate::program_error::ProgramError;
use crate::tally::{BellWords, Tally};
mod trial;

use crate::code::{Alu, Atomic, Code, Compare, Helper, Instruction, Label, Register, Width};
use crate::lower::facts;
use crate::sys::{self, Hook, Link, MMAPABLE, MapKind};
use crate::wire::{self, ADDRESSES, PerCpu, TAG, add_constant, count, skb};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use base::atomic::{AtomicU64, Ordering};
use buffer::live::words::{ABI, EXPRESSIONS, GRAIN_BYTES, PACKET_BYTES};
use buffer::live::{Areas, Geometry, SlotFlags};
use buffer::shared::segment::{Access, Mapping, PAGE_BYTES};
use buffer::shared::words::{Shared, Words};
use program::ir::Program;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Received packets.
    In,
    /// Sent packets.
    Out,
}

#[derive(Debug)]
struct Maps {
    head: OwnedFd,
    words: OwnedFd,
    slots: OwnedFd,
    data: OwnedFd,
    bell: OwnedFd,
    rings: OwnedFd,
}

/// A ring that the kernel writes, and its programs. Loading programs delays only other changes of programs.
pub struct CaptureProgram {
    geometry: Geometry,
    maps: Maps,
    bell: Shared<BellWords>,
    bells: Mutex<Bells>,
    tags: bool,
    /// Held while programs are made and loaded.
    in_force: Mutex<InForce>,
}

struct InForce {
    ways: Vec<Attached>,
    /// By bit: the `sample` of its expression; 0: no expression.
    samples: [u32; EXPRESSIONS],
    tried: Vec<Arc<Program>>,
}

struct Attached {
    interface: u32,
    way: Way,
    link: Option<Link>,
    program: OwnedFd,
}

impl std::fmt::Debug for CaptureProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl CaptureProgram {
    /// A ring of about `ring_bytes`, without a program. `tags`: frames have an Ethernet header, and stripped tags are
    /// put back into it.
    pub fn new(ring_bytes: u64, tags: bool) -> Result<CaptureProgram, ProgramError> {
        let geometry = Geometry::new(ring_bytes, sys::possible_cpus());
        let system = |what| move |error| ProgramError::System(what, error);
        let make = |kind, name, bytes: usize, flags| {
            sys::create_map(kind, name, bytes as u32, 1, flags).map_err(system("the kernel gave no map"))
        };
        let maps = Maps {
            head: wire::create_heads(geometry.cpus)?,
            words: make(MapKind::Array, "sl_words", geometry.words_bytes(), MMAPABLE)?,
            slots: make(MapKind::Array, "sl_slots", geometry.slots_bytes(), MMAPABLE)?,
            data: make(MapKind::Array, "sl_data", geometry.data_bytes(), MMAPABLE)?,
            bell: make(MapKind::Array, "sl_bell", PAGE_BYTES, MMAPABLE)?,
            rings: sys::create_map(MapKind::RingBuffer, "sl_rings", 0, PAGE_BYTES as u32, 0)
                .map_err(system("the kernel gave no ring buffer"))?,
        };
        let mut words = vec![0; geometry.words_bytes()];
        words[..4].copy_from_slice(&ABI.to_ne_bytes());
        words[4..8].copy_from_slice(&geometry.slots.to_ne_bytes());
        words[8..16].copy_from_slice(&geometry.ring_bytes.to_ne_bytes());
        sys::update(maps.words.as_fd(), 0, &words).map_err(system("the kernel took no value for a map"))?;
        // From here on, only the program writes what readers see.
        for map in [&maps.words, &maps.slots, &maps.data] {
            sys::freeze(map.as_fd()).map_err(system("the kernel did not freeze a map"))?;
        }
        let mapping =
            Mapping::of(maps.bell.as_fd(), PAGE_BYTES, Access::Write).map_err(system("the bell was not mapped"))?;
        let bell = Shared::in_mapping(&mapping, 0).expect("a page holds one word");
        let bells = Bells::map(maps.rings.as_fd()).map_err(system("the bell's ring was not mapped"))?;
        let in_force = InForce { ways: Vec::new(), samples: [0; EXPRESSIONS], tried: Vec::new() };
        Ok(CaptureProgram { geometry, maps, bell, bells: Mutex::new(bells), tags, in_force: Mutex::new(in_force) })
    }

    /// Size of the ring.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The ring's areas. Readers can map them only for reading.
    pub fn areas(&self) -> Areas<BorrowedFd<'_>> {
        Areas { words: self.maps.words.as_fd(), slots: self.maps.slots.as_fd(), data: self.maps.data.as_fd() }
    }

    /// Puts a program without expressions on a device's hook.
    pub fn attach(&mut self, interface: u32, way: Way) -> Result<(), ProgramError> {
        let program = self.load(interface, way, &[])?;
        let hook = match way {
            Way::In => Hook::TcxIngress,
            Way::Out => Hook::TcxEgress,
        };
        let link = Link::attach(program.as_fd(), interface, hook)
            .map_err(|error| ProgramError::System("the program could not be attached", error))?;
        self.in_force().ways.push(Attached { interface, way, link: Some(link), program });
        Ok(())
    }

    /// Makes a program for test runs, which is not attached.
    pub fn prepare(&mut self, way: Way) -> Result<(), ProgramError> {
        let program = self.load(0, way, &[])?;
        self.in_force().ways.push(Attached { interface: 0, way, link: None, program });
        Ok(())
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        // After a panic, the programs that were not exchanged yet are still in use, and `InForce` describes them.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks exactly these expressions from now on, or changes nothing after an error. Packets may still be in the
    /// earlier programs until [`sys::wait_for_runs`] returns.
    ///
    /// If some expressions are new, all are first tried together: on frames of every common kind, the kernel's program
    /// and the interpreter must agree.
    pub fn set(&self, expressions: &[Expression]) -> Result<(), ProgramError> {
        let mut in_force = self.in_force();
        let programs: Vec<Arc<Program>> =
            expressions.iter().filter_map(|expression| expression.program.clone()).collect();
        let is_new = |program: &&Arc<Program>| !in_force.tried.iter().any(|known| Arc::ptr_eq(known, program));
        let new: Vec<&Program> = programs.iter().filter(is_new).map(|program| &**program).collect();
        if !new.is_empty() {
            trial::check(self.tags, expressions, &new)?;
        }
        self.put_in(&mut in_force, expressions)?;
        in_force.tried = programs;
        Ok(())
    }

    /// The same without the trial.
    pub(crate) fn put(&self, expressions: &[Expression]) -> Result<(), ProgramError> {
        self.put_in(&mut self.in_force(), expressions)
    }

    fn put_in(&self, in_force: &mut InForce, expressions: &[Expression]) -> Result<(), ProgramError> {
        let mut samples = [0; EXPRESSIONS];
        for expression in expressions {
            let bit = usize::from(expression.bit) % EXPRESSIONS;
            samples[bit] = expression.sample.max(1);
            if samples[bit] != in_force.samples[bit] {
                // A new expression: earlier counts of this bit end. An unchanged expression goes on counting.
                self.bell.sampled[bit].store(0, Ordering::Relaxed);
            }
        }
        let programs = in_force.ways.iter().map(|attached| self.load(attached.interface, attached.way, expressions));
        let programs = programs.collect::<Result<Vec<_>, _>>()?;
        for (index, (attached, program)) in in_force.ways.iter().zip(&programs).enumerate() {
            let updated = attached.link.as_ref().map_or(Ok(()), |link| link.update(program.as_fd()));
            if let Err(error) = updated {
                // Restore the programs that were already exchanged. That can fail only if the device is gone.
                for attached in &in_force.ways[..index] {
                    let _ = attached.link.as_ref().map_or(Ok(()), |link| link.update(attached.program.as_fd()));
                }
                return Err(ProgramError::System("the program could not be exchanged", error));
            }
        }
        for (attached, program) in in_force.ways.iter_mut().zip(programs) {
            attached.program = program;
        }
        in_force.samples = samples;
        Ok(())
    }

    /// Runs one direction's program on a frame. Sends nothing, but writes to the ring.
    pub fn test_run(&self, way: Way, frame: &[u8], repeat: u32) -> Result<sys::TestRun, ProgramError> {
        let in_force = self.in_force();
        let attached = in_force.ways.iter().find(|attached| attached.way == way);
        let program = attached.ok_or(ProgramError::System("no program", io::ErrorKind::NotFound.into()))?;
        sys::test_run(program.program.as_fd(), frame, repeat)
            .map_err(|error| ProgramError::System("the program could not be run", error))
    }

    /// Makes the next packet with one of these bits ring [`bell`](Self::bell), once for each bit.
    pub fn arm(&self, bits: u64) {
        self.bell.armed.fetch_or(bits, Ordering::SeqCst);
    }

    /// Readable after a packet with an armed bit.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.maps.rings.as_fd()
    }

    /// The armed bits of packets since the last call.
    pub fn rung(&self) -> u64 {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn load(&self, interface: u32, way: Way, expressions: &[Expression]) -> Result<OwnedFd, ProgramError> {
        let code = self.code(interface, way, expressions)?;
        let name = if way == Way::In { "streamline_in" } else { "streamline_out" };
        sys::load(name, &code).map_err(ProgramError::Load)
    }

    fn code(&self, interface: u32, way: Way, expressions: &[Expression]) -> Result<Vec<Instruction>, ProgramError> {
        let mut code = Code::default();
        let (nobody, end) = (code.label(), code.label());
        let tally = self.tally();
        wire::copy_head(&mut code, wire::heads(self.maps.head.as_fd(), self.geometry.cpus), self.tags, end);
        wire::count_seen(&mut code, tally.counts, end);
        code.store_constant(Width::Eight, R7, facts::WANTED, 0);
        let mine = |expression: &&Expression| if way == Way::In { expression.incoming } else { expression.outgoing };
        let mine = expressions.iter().filter(mine).collect::<Vec<_>>();
        crate::decide::decide(&mut code, tally, &mine)?;
        code.load(Width::Eight, R8, R7, facts::WANTED);
        code.jump_if(Compare::Equal, R8, 0, nobody);
        self.write(&mut code, interface, way);
        self.ring_bell(&mut code, nobody);
        code.place(nobody);
        code.place(end);
        // TCX_NEXT: on to the next program of the hook.
        code.set(R0, -1);
        code.exit();
        code.finish().map_err(ProgramError::Code)
    }

    fn tally(&self) -> Tally<'_> {
        let (at, bytes, cpus) = (PAGE_BYTES as u32, PAGE_BYTES as u32, self.geometry.cpus);
        Tally { bell: self.maps.bell.as_fd(), counts: PerCpu { map: self.maps.words.as_fd(), at, bytes, cpus } }
    }

    /// `R3` = the slot of the packet whose number is in `R0`. Changes `R0`.
    fn slot(&self, code: &mut Code) {
        code.alu(Alu::And, R0, self.geometry.slots as i32 - 1);
        code.alu(Alu::ShiftLeft, R0, 6);
        code.set_map_value(R3, self.maps.slots.as_fd(), 0);
        code.alu_register(Alu::Add, R3, R0);
    }

    /// Writes the packet into the ring. `R8` holds the bits.
    fn write(&self, code: &mut Code, interface: u32, way: Way) {
        let (lost, fits, plain, copied) = (code.label(), code.label(), code.label(), code.label());
        let (counted, told) = (code.label(), code.label());
        self.tally().counts.this(code, R1, counted);
        add_constant(code, R1, count::WANTED, 1);
        code.place(counted);
        code.load(Width::Eight, R2, R7, facts::WIRE);
        code.jump_if(Compare::AtMost, R2, PACKET_BYTES as i32, fits);
        code.set(R2, PACKET_BYTES as i32);
        code.place(fits);
        code.store(Width::Eight, R7, facts::LEN, R2);
        // Reserve a number and room.
        code.set_map_value(R1, self.maps.words.as_fd(), head::NEXT);
        code.set(R0, 1);
        code.atomic(Atomic::FetchAdd, R1, 0, R0);
        code.store(Width::Eight, R7, facts::NUMBER, R0);
        code.alu(Alu::Add, R2, GRAIN_BYTES as i32 - 1);
        code.alu(Alu::And, R2, -(GRAIN_BYTES as i32));
        code.atomic(Atomic::FetchAdd, R1, (head::RESERVED - head::NEXT) as i16, R2);
        code.store(Width::Eight, R7, facts::POS, R2);
        // Invalidate the slot.
        self.slot(code);
        code.store_constant(Width::Eight, R3, slot::STAMP, 0);
        // Copy the bytes.
        code.alu(Alu::And, R2, self.geometry.ring_bytes as i32 - 1);
        code.set_map_value(R3, self.maps.data.as_fd(), 0);
        code.alu_register(Alu::Add, R3, R2);
        code.load(Width::Eight, R4, R7, facts::LEN);
        if self.tags {
            code.load(Width::Eight, R1, R7, facts::SHIFT);
            code.jump_if(Compare::Equal, R1, 0, plain);
            for at in [0, 8] {
                code.load(Width::Eight, R1, R7, at);
                code.store(Width::Eight, R3, at, R1);
            }
            code.alu(Alu::Add, R3, ADDRESSES + TAG);
            code.alu(Alu::Subtract, R4, ADDRESSES + TAG);
            code.jump_if(Compare::Less, R4, 1, lost);
            code.jump_if(Compare::Greater, R4, PACKET_BYTES as i32, lost);
            code.set(R2, ADDRESSES);
            code.copy(R1, R6);
            code.call(Helper::SkbLoadBytes);
            code.jump_if(Compare::NotEqual, R0, 0, lost);
            code.jump(copied);
            code.place(plain);
        }
        code.jump_if(Compare::Less, R4, 1, lost);
        code.jump_if(Compare::Greater, R4, PACKET_BYTES as i32, lost);
        code.set(R2, 0);
        code.copy(R1, R6);
        code.call(Helper::SkbLoadBytes);
        code.jump_if(Compare::Equal, R0, 0, copied);
        code.place(lost);
        self.tally().counts.this(code, R1, told);
        add_constant(code, R1, count::LOST, 1);
        code.place(told);
        code.store_constant(Width::Eight, R7, facts::LEN, 0);
        code.place(copied);
        self.fill_slot(code, interface, way);
    }

    fn fill_slot(&self, code: &mut Code, interface: u32, way: Way) {
        let (no_tag, tag_done, whole, single) = (code.label(), code.label(), code.label(), code.label());
        code.call(Helper::KtimeGetNs);
        code.copy(R1, R0);
        code.load(Width::Eight, R0, R7, facts::NUMBER);
        self.slot(code);
        code.store(Width::Eight, R3, slot::TIME, R1);
        // `R9` = hash, `R5` = class, `R4` = flags.
        let outbound = if way == Way::Out { SlotFlags::OUTBOUND } else { SlotFlags::default() };
        crate::flow::lower(code, self.tags, SlotFlags::MONOTONIC.with(outbound));
        code.store(Width::Four, R3, slot::HASH, R9);
        code.load(Width::Eight, R1, R7, facts::POS);
        code.store(Width::Eight, R3, slot::POS, R1);
        code.load(Width::Eight, R1, R7, facts::LEN);
        code.load(Width::Eight, R2, R7, facts::WIRE);
        code.store(Width::Four, R3, slot::LEN, R1);
        code.store(Width::Four, R3, slot::WIRE, R2);
        code.load(Width::Eight, R0, R7, facts::WANTED);
        code.store(Width::Eight, R3, slot::WANTED, R0);
        code.store_constant(Width::Four, R3, slot::INTERFACE, interface as i32);
        code.jump_if_register(Compare::AtLeast, R1, R2, whole);
        // A truncated packet has no ports.
        code.set(R5, 0);
        code.alu(Alu::And, R4, !SlotFlags::PORTS.0 as i32);
        code.alu(Alu::Or, R4, SlotFlags::TRUNCATED.0 as i32);
        code.place(whole);
        code.store(Width::Four, R3, slot::CLASS, R5);
        code.load(Width::Four, R1, R6, skb::GSO_SIZE);
        code.jump_if(Compare::Equal, R1, 0, single);
        code.alu(Alu::Or, R4, SlotFlags::SUPER_FRAME.0 as i32);
        code.place(single);
        code.load(Width::Four, R1, R6, skb::PKT_TYPE);
        if way == Way::Out {
            // PACKET_OUTGOING: the kernel sets it only for packet sockets.
            code.set(R1, 4);
        }
        code.alu(Alu::And, R1, 7);
        code.alu(Alu::ShiftLeft, R1, 8);
        code.alu_register(Alu::Or, R4, R1);
        code.set(R2, 0);
        if self.tags {
            code.load(Width::Eight, R1, R7, facts::SHIFT);
            code.jump_if(Compare::Equal, R1, 0, no_tag);
            code.alu(Alu::Or, R4, SlotFlags::TAG_PUT_BACK.0 as i32);
            code.load(Width::Four, R2, R6, skb::VLAN_PROTO);
            code.big_endian(R2, 16);
            code.alu(Alu::ShiftLeft, R2, 16);
            code.load(Width::Four, R1, R6, skb::VLAN_TCI);
            code.alu(Alu::And, R1, 0xffff);
            code.alu_register(Alu::Or, R2, R1);
            code.jump(tag_done);
            code.place(no_tag);
        }
        code.place(tag_done);
        code.store(Width::Four, R3, slot::VLAN, R2);
        code.store(Width::Four, R3, slot::FLAGS, R4);
        code.load(Width::Four, R1, R6, skb::MARK);
        code.store(Width::Four, R3, slot::MARK, R1);
        // Stamp the slot.
        code.load(Width::Eight, R1, R7, facts::NUMBER);
        code.alu(Alu::Add, R1, 1);
        if cfg!(target_arch = "x86_64") {
            // x86-64 keeps the order of stores.
            code.store(Width::Eight, R3, slot::STAMP, R1);
        } else {
            code.atomic(Atomic::Exchange, R3, slot::STAMP, R1);
        }
    }

    /// Rings the bell for the bits in `R8` whose readers sleep.
    fn ring_bell(&self, code: &mut Code, end: Label) {
        code.set_map_value(R1, self.maps.bell.as_fd(), 0);
        code.load(Width::Eight, R2, R1, 0);
        code.alu_register(Alu::And, R2, R8);
        code.jump_if(Compare::Equal, R2, 0, end);
        code.alu(Alu::Xor, R2, -1);
        code.atomic(Atomic::FetchAnd, R1, 0, R2);
        code.alu_register(Alu::And, R2, R8);
        code.jump_if(Compare::Equal, R2, 0, end);
        code.store(Width::Eight, R7, facts::SCRATCH, R2);
        code.set_map(R1, self.maps.rings.as_fd());
        code.copy(R2, R7);
        code.alu(Alu::Add, R2, facts::SCRATCH.into());
        code.set(R3, 8);
        code.set(R4, FORCE_WAKEUP);
        code.call(Helper::RingbufOutput);
    }
}

/// Wakes readers of the ring buffer, whatever it contains (BPF_RB_FORCE_WAKEUP).
const FORCE_WAKEUP: i32 = 2;

/// Offsets in `buffer::live::words::Head`.
mod head {
    use buffer::live::words::Head;
    pub const NEXT: u32 = std::mem::offset_of!(Head, next) as u32;
    pub const RESERVED: u32 = std::mem::offset_of!(Head, reserved) as u32;
}

/// Offsets in `buffer::live::words::Slot`. Words of two halves are stored half by half, in little-endian order.
mod slot {
    use buffer::live::words::Slot;
    pub const STAMP: i16 = std::mem::offset_of!(Slot, stamp) as i16;
    pub const POS: i16 = std::mem::offset_of!(Slot, pos) as i16;
    pub const TIME: i16 = std::mem::offset_of!(Slot, time) as i16;
    pub const LEN: i16 = std::mem::offset_of!(Slot, lengths) as i16;
    pub const WIRE: i16 = LEN + 4;
    pub const WANTED: i16 = std::mem::offset_of!(Slot, wanted) as i16;
    pub const CLASS: i16 = std::mem::offset_of!(Slot, class_and_interface) as i16;
    pub const INTERFACE: i16 = CLASS + 4;
    pub const HASH: i16 = std::mem::offset_of!(Slot, hash_and_flags) as i16;
    pub const FLAGS: i16 = HASH + 4;
    pub const VLAN: i16 = std::mem::offset_of!(Slot, vlan_and_mark) as i16;
    pub const MARK: i16 = VLAN + 4;
}

const _: () = assert!(cfg!(target_endian = "little"), "slots are written half a word at a time");

/// The program's records in the ring buffer: a page with the consumer's position, a page with the producer's, and the
/// page of records, mapped twice.
#[derive(Debug)]
struct Bells {
    consumer: Shared<Position>,
    records: Arc<Mapping>,
}

#[repr(C)]
struct Position {
    at: AtomicU64,
}

// SAFETY: repr(C), atomics only, and all zero bytes are a valid value.
unsafe impl Words for Position {}

#[repr(C)]
struct Record {
    /// Length, and the bits for busy and discarded.
    header: AtomicU64,
    bits: AtomicU64,
}

// SAFETY: as above.
unsafe impl Words for Record {}

/// Bits of a record's header (BPF_RINGBUF_BUSY_BIT, BPF_RINGBUF_DISCARD_BIT).
const BUSY: u64 = 1 << 31;
const DISCARDED: u64 = 1 << 30;

impl Bells {
    fn map(ring: BorrowedFd<'_>) -> io::Result<Bells> {
        let page = Mapping::of(ring, PAGE_BYTES, Access::Write)?;
        let consumer = Shared::in_mapping(&page, 0).ok_or(io::ErrorKind::InvalidData)?;
        // The producer's position, then the records twice.
        let records = Mapping::at(ring, PAGE_BYTES as u64, 3 * PAGE_BYTES, Access::Read)?;
        Ok(Bells { consumer, records })
    }

    /// Takes all present records.
    fn take(&mut self) -> u64 {
        let mut bits = 0;
        let Some(producer) = Shared::<Position>::in_mapping(&self.records, 0) else { return 0 };
        loop {
            let at = self.consumer.at.load(Ordering::Relaxed);
            // Acquire: the records before this position are complete.
            if producer.at.load(Ordering::Acquire) == at {
                return bits;
            }
            let offset = PAGE_BYTES + (at as usize & (PAGE_BYTES - 1));
            let Some(record) = Shared::<Record>::in_mapping(&self.records, offset) else { return bits };
            let header = record.header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return bits;
            }
            if header & DISCARDED == 0 {
                bits |= record.bits.load(Ordering::Relaxed);
            }
            let len = (header & (DISCARDED - 1)).next_multiple_of(8) + 8;
            self.consumer.at.store(at + len, Ordering::Release);
        }
    }
}
