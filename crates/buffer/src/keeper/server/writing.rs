//! Opening a ring for writing: each writer has its own generation, and another one for each new size.

use super::generation::{Generation, KeptReader, Stage};
use super::{FOREIGN_PATH_BYTES, Gone, Keeper, PAST, RingOptions, Role};
use crate::control::packets;
use crate::keeper::message::{Message, Refusal, WantedWriter};
use crate::ring::memory::Geometry;
use std::io;
use std::os::fd::AsFd;

impl Keeper {
    pub(super) fn open_writer(&mut self, key: u64, wanted: WantedWriter) -> Result<(), Gone> {
        // Otherwise the client would lose its place as a reader.
        if !self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Guest)) {
            return self.refuse(
                key,
                Refusal::Wrong,
                "a connection that reads or writes a ring cannot open it for writing: use another connection",
            );
        }
        if matches!(self.current.stage, Stage::Offered | Stage::Written) {
            return self.refuse(key, Refusal::Busy, "the ring has a writer already: each ring has one at a time");
        }
        if let Err(text) = self.agree(wanted.content) {
            return self.refuse(key, Refusal::Other, &text);
        }
        match self.current.stage {
            Stage::Offered | Stage::Written => {}
            Stage::Made => {}
            Stage::Over => {
                // A number is not used again while any client may remember it.
                let made = Generation::make(&self.options, self.current.number.wrapping_add(1).max(1));
                match made.and_then(|next| self.with_readers(next)) {
                    Ok(next) => {
                        if let Err((refusal, text)) = self.make_room_in_past() {
                            return self.refuse(key, refusal, &text);
                        }
                        self.succeed(next);
                    }
                    Err(error) => {
                        return self.refuse(key, Refusal::Failed, &format!("no memory for the ring: {error}"));
                    }
                }
            }
        }
        self.current.written = wanted;
        let offer = Message::Writer(self.current.memory.geometry(), self.current.number);
        self.offer(key, &offer, &self.current)?;
        self.current.held = None;
        self.current.stage = Stage::Offered;
        if let Some(client) = self.clients.get_mut(&key) {
            client.role = Role::Writer { told: Vec::new() };
        }
        Ok(())
    }

    /// Offers a new generation to its writer. From then on only the writer holds its line.
    fn offer(&self, key: u64, offer: &Message, generation: &Generation) -> Result<(), Gone> {
        let Some(held) = &generation.held else { return Err(Gone::Broken) };
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        client.answer(offer, &[generation.memory.segment().fd(), held.as_fd()])
    }

    /// Readers that wait for the next writer keep their places: its first blocks are meant for them too.
    pub(super) fn with_readers(&self, mut next: Generation) -> io::Result<Generation> {
        if self.options.keep_open {
            for (serial, reader) in &self.current.readers {
                next.readers.insert(*serial, KeptReader::make(reader.slot, reader.wanted, reader.peer)?);
            }
        }
        Ok(next)
    }

    pub(super) fn make_room_in_past(&mut self) -> Result<(), (Refusal, String)> {
        if self.past.len() >= PAST {
            if self.past[0].readers.values().any(|reader| reader.wanted.holds()) {
                return Err((Refusal::Busy, format!("somebody has yet to read the ring of {PAST} generations ago")));
            }
            self.past.remove(0);
        }
        Ok(())
    }

    pub(super) fn succeed(&mut self, next: Generation) {
        let mut last = std::mem::replace(&mut self.current, next);
        last.stage = Stage::Over;
        if !last.readers.is_empty() {
            self.past.push(last);
        }
    }

    pub(super) fn mapped(&mut self, key: u64) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer || self.current.stage != Stage::Offered {
            return Err(Gone::Broken);
        }
        if self.current.memory.segment().seal_for_readers().is_err() {
            return self.refuse(key, Refusal::Failed, "the ring cannot be sealed");
        }
        self.current.stage = Stage::Written;
        // The writer learns of all readers, also of those that waited, before it can write the first block.
        self.tell_writer();
        self.serve_all_waiting();
        self.answer(key, &Message::Sealed)
    }

    /// The writer asks for a ring of another size. Its readers keep their places, so that they miss nothing.
    pub(super) fn resize(&mut self, key: u64, geometry: Geometry) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer || self.current.stage != Stage::Written || geometry.kind != self.options.geometry.kind {
            return self.refuse(key, Refusal::Wrong, "only a ring's writer can resize it, and only to the same kind");
        }
        if let Err((refusal, text)) = self.make_room_in_past() {
            return self.refuse(key, refusal, &text);
        }
        let made =
            Generation::make(&RingOptions { geometry, ..self.options }, self.current.number.wrapping_add(1).max(1));
        let mut next = match made {
            Ok(next) => next,
            Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for the ring: {error}")),
        };
        for (serial, reader) in &self.current.readers {
            match KeptReader::make(reader.slot, reader.wanted, reader.peer) {
                Ok(again) => next.readers.insert(*serial, again),
                Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for a reader: {error}")),
            };
        }
        let offer = Message::Writer(geometry, next.number);
        self.offer(key, &offer, &next)?;
        next.held = None;
        next.written = self.current.written;
        next.stage = Stage::Offered;
        self.options.geometry = geometry;
        self.succeed(next);
        if let Some(client) = self.clients.get_mut(&key) {
            client.role = Role::Writer { told: Vec::new() };
        }
        Ok(())
    }

    /// The writer asks for a number for another keeper's ring.
    pub(super) fn register(&mut self, key: u64, generation: u32, path: String) -> Result<(), Gone> {
        let is_writer = self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. }));
        if !is_writer {
            return self.refuse(key, Refusal::Denied, "only the ring's writer can name other rings");
        }
        if path.len() > FOREIGN_PATH_BYTES {
            return self.refuse(key, Refusal::Wrong, "no socket has so long a path");
        }
        let number = self.foreign.number_of(generation, path);
        self.answer(key, &Message::Registered(number))
    }

    /// Tells the writer which readers joined and left; changes for which its socket has no room wait.
    pub(super) fn tell_writer(&mut self) {
        let current = &mut self.current;
        let mut broken = None;
        for (key, client) in &mut self.clients {
            let Role::Writer { told } = &mut client.role else { continue };
            match current.tell(&client.socket, told) {
                Ok(()) => {}
                // The writer is not at fault. The keeper tells it when there are resources again.
                Err(error) if packets::is_short(&error) => self.is_short = true,
                Err(_) => broken = Some(*key),
            }
        }
        if let Some(key) = broken {
            self.let_go(key, Gone::Broken);
        }
    }
}
