//! The loop: takes a packet from block to block, counts discarded packets, and gives blocks their turns.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use base::limits::STACK_TURNS;

use crate::block::{Block, Line, Out, Step};
use crate::blocks::KINDS;
use crate::facts::Facts;
use crate::kind::Layer;
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing};
use crate::problem::Problem;
use crate::state;
use crate::stream::Stream;

/// Bytes that a stack delivers to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The source of the bytes.
    pub from: SocketAddr,
    /// The bytes. They are part of the received frame, or belong to a block.
    pub payload: &'a [u8],
}

/// The protocols of one flow, the application's end first.
pub struct Stack {
    blocks: Vec<Box<dyn Block>>,
    /// Room for the headers of one packet.
    room: Box<[u8]>,
    counts: Counts,
}

/// Counts and reports of packets that did not get through.
struct Counts {
    discards: [u64; Discard::ALL.len()],
    /// The last report. `None` once the caller took it.
    problem: Option<Problem>,
}

impl Stack {
    /// A stack of these blocks, the application's end first. The caller has checked that they fit together.
    pub fn of_blocks(blocks: Vec<Box<dyn Block>>) -> Stack {
        let header_bytes = blocks.iter().map(|block| block.header_bytes()).sum();
        Stack {
            blocks,
            room: vec![0; header_bytes].into(),
            counts: Counts { discards: [0; Discard::ALL.len()], problem: None },
        }
    }

    /// The most bytes of all headers of a packet together.
    pub fn header_bytes(&self) -> usize {
        self.room.len()
    }

    /// Sends one payload. `to` may be `None` if the stack knows its peer. `emit` gets headers and payload, which are
    /// one packet; the payload is the caller's slice unless a block sends it otherwise. A block that sends later does
    /// so in [`Stack::tend`]: call [`Stack::next`] after this call.
    pub fn send(
        &mut self,
        now: u64,
        to: Option<SocketAddr>,
        payload: &[u8],
        emit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), SendError> {
        let meta = Meta { remote: to, ..Meta::default() };
        let packet = Outgoing::new(&mut self.room, payload, meta);
        go_down(&mut self.blocks, now, packet, &mut self.counts, emit)
    }

    /// Takes one received frame. `deliver` gets the part of it that belongs to the application, if there is one. A
    /// frame that a block keeps counts as taken: call [`Stack::next`] and [`Stack::take_problem`] after this call.
    pub fn receive(&mut self, now: u64, frame: &[u8], deliver: &mut dyn FnMut(Delivery<'_>)) -> Result<(), Discard> {
        go_up(&mut self.blocks, now, Incoming::new(frame, Meta::default()), &mut self.counts, deliver)
    }

    /// When a block wants a call of [`Stack::tend`], in ns. A time in the past means at once; `None` means not before
    /// the next packet.
    pub fn next(&self) -> Option<u64> {
        self.blocks.iter().filter_map(|block| block.next()).min()
    }

    /// Gives each block that wants it a turn, in which it may send packets and deliver bytes that no packet caused. A
    /// block that always wants another turn has a few turns, and waits for the next call.
    pub fn tend(&mut self, now: u64, line: &mut dyn Line, deliver: &mut dyn FnMut(Delivery<'_>)) {
        for _ in 0..STACK_TURNS {
            let mut had_turn = false;
            // From the driver's end: an upper block may answer the bytes from a lower block in the same round.
            for at in (0..self.blocks.len()).rev() {
                let (above, rest) = self.blocks.split_at_mut(at);
                let Some((block, below)) = rest.split_first_mut() else { continue };
                if block.next().is_some_and(|time| time <= now) {
                    had_turn = true;
                    let (room, counts) = (&mut self.room, &mut self.counts);
                    block.tend(now, &mut Around { above, below, room, counts, now, line, deliver });
                }
            }
            if !had_turn {
                return;
            }
        }
    }

    /// Tells all blocks the facts that hold from now on. Call [`Stack::next`] after this call.
    pub fn facts_changed(&mut self, now: u64, facts: &Facts) {
        for block in &mut self.blocks {
            block.facts_changed(now, facts);
        }
    }

    /// The byte stream of the top block. `None` if that block carries packets. Call [`Stack::next`] after each use.
    pub fn stream(&mut self) -> Option<&mut dyn Stream> {
        self.blocks.first_mut()?.stream()
    }

    /// The last report about a packet of this flow, once.
    pub fn take_problem(&mut self) -> Option<Problem> {
        self.counts.problem.take()
    }

    /// The reasons why packets were discarded, in both directions, with their counts. Reasons without packets are left out.
    pub fn discards(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Discard::ALL.iter().zip(self.counts.discards);
        counts.filter(|(_, count)| *count > 0).map(|(discard, count)| (discard.name(), count))
    }

    /// The state that another stack needs to go on with this flow. An error if a block has state that it cannot export.
    pub fn export(&self) -> Result<Vec<u8>, Unsupported> {
        let mut states = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            match block.export() {
                Ok(state) => states.push((block.name(), state)),
                Err(Unsupported::NoState) => {}
                Err(Unsupported::NotExported) => return Err(Unsupported::NotExported),
            }
        }
        state::write(&states).ok_or(Unsupported::NotExported)
    }

    /// Goes on with the flow of an exported state: takes all of it, or nothing after an error.
    ///
    /// Each block takes the state of the block with its name; several of the same name take theirs in order. A block
    /// whose state is missing begins with its own. The state of a protocol that this stack does not have is an error.
    /// The state of a block that may stand anywhere is ignored, so that such blocks can be removed from a running flow.
    pub fn import(&mut self, state: &[u8]) -> Result<(), ImportError> {
        let mut states = state::read(state)?;
        let mut chosen = Vec::with_capacity(states.len());
        for (at, block) in self.blocks.iter().enumerate() {
            if let Some(found) = states.iter().position(|(name, _)| *name == block.name()) {
                chosen.push((at, states.remove(found).1));
            }
        }
        if states.iter().any(|(name, _)| !may_be_left_out(name)) {
            return Err(ImportError::NoBlock);
        }
        let mut done = Vec::with_capacity(chosen.len());
        for (at, state) in chosen {
            let Some(block) = self.blocks.get_mut(at) else { continue };
            let before = block.export().map_err(|_| ImportError::NotImported);
            match before.and_then(|before| block.import(state).map(|()| before)) {
                Ok(before) => done.push((at, before)),
                Err(error) => {
                    for (at, before) in done {
                        // A block takes the state that it exported itself.
                        if let Some(block) = self.blocks.get_mut(at) {
                            _ = block.import(&before);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// May the state of this block be missing from the new stack?
fn may_be_left_out(name: &str) -> bool {
    KINDS.iter().any(|kind| kind.name == name && kind.layer == Layer::Any)
}

impl fmt::Debug for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.blocks.iter().map(|block| block.name())).finish()
    }
}

impl Counts {
    fn discard(&mut self, discard: Discard) {
        if let Some(count) = self.discards.get_mut(discard as usize) {
            *count = count.wrapping_add(1);
        }
    }
}

/// Takes a packet through `blocks`, the upper one first, and out.
fn go_down(
    blocks: &mut [Box<dyn Block>],
    now: u64,
    mut packet: Outgoing<'_>,
    counts: &mut Counts,
    emit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<(), SendError> {
    for block in blocks {
        match block.down(now, &mut packet) {
            Ok(Step::Pass) => {}
            Ok(Step::Keep) => return Ok(()),
            Err(error) => {
                if let SendError::Discarded(discard) = error {
                    counts.discard(discard);
                }
                return Err(error);
            }
        }
    }
    emit(packet.header(), packet.payload());
    Ok(())
}

/// Takes a packet through `blocks`, the lower one first, and to the application.
fn go_up(
    blocks: &mut [Box<dyn Block>],
    now: u64,
    mut packet: Incoming<'_>,
    counts: &mut Counts,
    deliver: &mut dyn FnMut(Delivery<'_>),
) -> Result<(), Discard> {
    for block in blocks.iter_mut().rev() {
        match block.up(now, &mut packet) {
            Ok(Step::Pass) => {}
            Ok(Step::Keep) => {
                counts.problem = packet.meta.problem.or(counts.problem);
                return Ok(());
            }
            Err(discard) => {
                counts.discard(discard);
                return Err(discard);
            }
        }
    }
    let from = packet.meta.remote.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    deliver(Delivery { from, payload: packet.bytes() });
    Ok(())
}

/// The surroundings of a block in its turn.
struct Around<'a> {
    above: &'a mut [Box<dyn Block>],
    below: &'a mut [Box<dyn Block>],
    room: &'a mut [u8],
    counts: &'a mut Counts,
    now: u64,
    line: &'a mut dyn Line,
    deliver: &'a mut dyn FnMut(Delivery<'_>),
}

impl Out for Around<'_> {
    fn has_room(&self) -> bool {
        self.line.has_room()
    }

    fn emit(&mut self, meta: Meta, header: &[u8], payload: &[u8]) -> Result<(), SendError> {
        let mut packet = Outgoing::new(self.room, payload, meta);
        packet.push_bytes(header)?;
        let line = &mut *self.line;
        go_down(self.below, self.now, packet, self.counts, &mut |header, payload| line.emit(header, payload))
    }

    fn deliver(&mut self, meta: Meta, bytes: &[u8]) -> Result<(), Discard> {
        go_up(self.above, self.now, Incoming::new(bytes, meta), self.counts, self.deliver)
    }

    fn discard(&mut self, why: Discard) {
        self.counts.discard(why);
    }
}
