//! The loop: passes a packet from block to block, counts discards, and gives blocks their turns.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use base::limits::STACK_TURNS;

use crate::block::{Block, Line, Out, Step};
use crate::blocks::KINDS;
use crate::facts::{Facts, Marks};
use crate::kind::Layer;
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Meta, Outgoing, Problem};
use crate::state;
use crate::stream::Stream;

/// Bytes that a stack delivers to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The sender.
    pub from: SocketAddr,
    /// The bytes, which lie in the received frame or in a block.
    pub payload: &'a [u8],
}

/// The protocols of one flow, the application's end first.
pub struct Stack {
    blocks: Vec<Box<dyn Block>>,
    /// Room for the headers of one packet.
    room: Box<[u8]>,
    counts: Counts,
}

/// Counts of discarded packets, and the last ICMP error.
struct Counts {
    discards: [u64; Discard::ALL.len()],
    /// The last ICMP error; `None` once the caller took it.
    problem: Option<Problem>,
}

impl Stack {
    /// A stack of these blocks, the application's end first. The caller ensures that they fit together.
    pub fn of_blocks(blocks: Vec<Box<dyn Block>>) -> Stack {
        let header_bytes = blocks.iter().map(|block| block.header_bytes()).sum();
        Stack {
            blocks,
            room: vec![0; header_bytes].into(),
            counts: Counts { discards: [0; Discard::ALL.len()], problem: None },
        }
    }

    /// Most bytes that all headers of a packet take together.
    pub fn header_bytes(&self) -> usize {
        self.room.len()
    }

    /// Sends one payload. `to`: the destination; `None` if the stack knows its peer. `emit` gets the headers and the
    /// payload of one packet; the payload is usually the caller's own slice. A block may also send later, in
    /// [`Stack::tend`]: check [`Stack::next`] after this call.
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

    /// Takes one received frame, and passes the application's part to `deliver`, if there is one. A block may keep the
    /// frame: check [`Stack::next`] and [`Stack::take_problem`] after this call.
    pub fn receive(&mut self, now: u64, frame: &[u8], deliver: &mut dyn FnMut(Delivery<'_>)) -> Result<(), Discard> {
        go_up(&mut self.blocks, now, Incoming::new(frame, Meta::default()), &mut self.counts, deliver)
    }

    /// When a block wants [`Stack::tend`] called, in ns. A past time means at once; `None`: after the next packet.
    pub fn next(&self) -> Option<u64> {
        self.blocks.iter().filter_map(|block| block.next()).min()
    }

    /// Gives a turn to every block that wants one; in it the block may send and deliver of its own accord. A block
    /// that keeps wanting turns gets a few, then waits for the next call.
    pub fn tend(&mut self, now: u64, line: &mut dyn Line, deliver: &mut dyn FnMut(Delivery<'_>)) {
        for _ in 0..STACK_TURNS {
            let mut had_turn = false;
            // From the driver's end: an upper block may answer a lower one's delivery in the same round.
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

    /// Tells all blocks that the facts changed. Check [`Stack::next`] after this call.
    pub fn facts_changed(&mut self, now: u64, facts: &Facts) {
        for block in &mut self.blocks {
            block.facts_changed(now, facts);
        }
    }

    /// Marks all later packets.
    pub fn set_marks(&mut self, marks: Marks) {
        for block in &mut self.blocks {
            block.set_marks(marks);
        }
    }

    /// The byte stream of the top block; `None` if it carries packets. Check [`Stack::next`] after each use.
    pub fn stream(&mut self) -> Option<&mut dyn Stream> {
        self.blocks.first_mut()?.stream()
    }

    /// Takes the last ICMP error about a packet of this flow.
    pub fn take_problem(&mut self) -> Option<Problem> {
        self.counts.problem.take()
    }

    /// Discarded packets by reason, in both directions. Reasons without packets are left out.
    pub fn discards(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Discard::ALL.iter().zip(self.counts.discards);
        counts.filter(|(_, count)| *count > 0).map(|(discard, count)| (discard.name(), count))
    }

    /// The state that another stack needs to continue this flow. An error if a block cannot export its state.
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

    /// Continues the flow of an exported state. After an error the stack is unchanged.
    ///
    /// Each block takes the state exported under its name; blocks of the same name take theirs in order. A block
    /// without exported state keeps its own. State for a protocol that this stack lacks is an error. State for a
    /// missing block that may stand anywhere is ignored, so a running flow can drop such blocks.
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
                        // Cannot fail: the block exported this state itself.
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

/// Whether an import may ignore the state of this block.
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

/// Passes a packet down through `blocks` and out.
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

/// Passes a packet up through `blocks` and to the application.
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
