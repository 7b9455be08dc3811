//! Opening a ring for reading: readers get places, keep them when their ring moves on, and wait for a writer.

use super::generation::{Generation, KeptReader, Stage};
use super::places::OF_READERS;
use super::{Gone, Keeper, Role};
use crate::keeper::message::{GivenReader, Message, Refusal, WantedReader};
use crate::ring::words::READERS;
use std::os::fd::AsFd;

impl Keeper {
    pub(super) fn open_reader(&mut self, key: u64, wanted: WantedReader) -> Result<(), Gone> {
        // The keeper could not tell when this client stops writing.
        if self.clients.get(&key).is_some_and(|client| matches!(client.role, Role::Writer { .. })) {
            return self.refuse(
                key,
                Refusal::Wrong,
                "a connection that writes a ring cannot read it: use another connection",
            );
        }
        // A reader of a ring that moved on already has a place in the new one.
        if let Some(serial) = self.moved(key, wanted.after) {
            let sealed = |generation: &Generation| matches!(generation.stage, Stage::Written | Stage::Over);
            if !self.generation_of(serial).is_some_and(sealed) {
                if let Some(client) = self.clients.get_mut(&key) {
                    client.role = Role::Reader { serial, waits: true };
                }
                return Ok(());
            }
            return self.hand_over(key, serial);
        }
        if let Err(text) = self.agree(wanted.content) {
            return self.refuse(key, Refusal::Other, &text);
        }
        self.leave(key);
        let readable = match self.current.stage {
            Stage::Written => self.current.number != wanted.after,
            // The blocks that are left of a ring whose writer is gone.
            Stage::Over => wanted.oldest && !wanted.contract.holds() && self.current.number != wanted.after,
            Stage::Made | Stage::Offered => false,
        };
        if !readable {
            // The ring does not stay open, and the reader has read its last generation: there will be no more.
            let ended = wanted.after != 0 && !self.options.keep_open && self.current.stage == Stage::Over;
            if ended {
                return self.refuse(key, Refusal::Ended, "the ring has ended");
            }
            if !wanted.wait {
                return self.refuse(key, Refusal::Nothing, "nobody writes this ring");
            }
            if let Some(client) = self.clients.get_mut(&key) {
                client.role = Role::Waiting(wanted);
            }
            return Ok(());
        }
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        let (peer, readers) = (client.peer, &self.current.readers);
        let held = readers.values().map(|reader| (self.standing(reader.peer), reader.peer.user));
        if let Err(text) = OF_READERS.admit(held, self.standing(peer), peer.user) {
            return self.refuse(key, Refusal::Full, &text);
        }
        let free = (0..READERS).find(|slot| readers.values().all(|reader| reader.slot != *slot));
        let Some(slot) = free else {
            return self.refuse(key, Refusal::Full, &format!("the ring has {READERS} readers already"));
        };
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let reader = match KeptReader::make(slot, wanted.contract, client.peer) {
            Ok(reader) => reader,
            Err(error) => return self.refuse(key, Refusal::Failed, &format!("no memory for a reader: {error}")),
        };
        self.serial = self.serial.wrapping_add(1).max(1);
        client.role = Role::Reader { serial: self.serial, waits: false };
        self.current.readers.insert(self.serial, reader);
        // The writer is told first: every block written after the reader has its answer is meant for that reader too.
        self.tell_writer();
        self.hand_over(key, self.serial)
    }

    pub(super) fn serve_all_waiting(&mut self) {
        let waiting: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| matches!(client.role, Role::Waiting(_) | Role::Reader { waits: true, .. }))
            .map(|(key, _)| *key)
            .collect();
        for key in waiting {
            if let Err(gone) = self.serve_waiting(key) {
                self.let_go(key, gone);
            }
        }
    }

    pub(super) fn serve_waiting(&mut self, key: u64) -> Result<(), Gone> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        if let Role::Reader { serial, waits } = &mut client.role {
            *waits = false;
            let serial = *serial;
            return self.hand_over(key, serial);
        }
        let Role::Waiting(wanted) = client.role else { return Ok(()) };
        self.open_reader(key, wanted)
    }

    /// The number of a reader that kept its place when its ring moved on from generation `after`.
    pub(super) fn moved(&mut self, key: u64, after: u32) -> Option<u32> {
        let Role::Reader { serial, .. } = self.clients.get(&key)?.role else { return None };
        // The reader is done with that generation, and with all before it.
        for past in &mut self.past {
            if past.number <= after {
                past.readers.remove(&serial);
            }
        }
        self.past.retain(|past| !past.readers.is_empty());
        self.generation_of(serial).filter(|generation| generation.number != after).map(|_| serial)
    }

    pub(super) fn generation_of(&self, serial: u32) -> Option<&Generation> {
        let mut all = self.past.iter().chain([&self.current]);
        all.find(|generation| generation.readers.contains_key(&serial))
    }

    pub(super) fn hand_over(&mut self, key: u64, serial: u32) -> Result<(), Gone> {
        let Some(generation) = self.generation_of(serial) else { return Ok(()) };
        let Some(reader) = generation.readers.get(&serial) else { return Ok(()) };
        // A read-only descriptor: it cannot be mapped for writing even without the seal.
        let Ok(segment) = generation.memory.segment().read_only_fd() else {
            return self.refuse(key, Refusal::Failed, "the ring cannot be handed over");
        };
        let given = GivenReader {
            geometry: generation.memory.geometry(),
            generation: generation.number,
            slot: reader.slot as u32,
            serial,
            written: generation.written,
        };
        let Some(held) = &reader.held else {
            return self.refuse(key, Refusal::Wrong, "this place was given to its reader already");
        };
        let fds = [segment.as_fd(), reader.segment.fd(), generation.line.as_fd(), held.as_fd()];
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        client.give(&Message::Reader(given), &fds)?;
        let generation = self.past.iter_mut().chain([&mut self.current]).find(|one| one.number == given.generation);
        if let Some(reader) = generation.and_then(|generation| generation.readers.get_mut(&serial)) {
            reader.held = None;
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, key: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Role::Reader { serial, .. } = client.role else { return };
        client.role = Role::Guest;
        self.past.iter_mut().for_each(|past| drop(past.readers.remove(&serial)));
        self.past.retain(|past| !past.readers.is_empty());
        if let Some(reader) = self.current.readers.remove(&serial)
            && self
                .clients
                .values()
                .any(|client| matches!(&client.role, Role::Writer { told } if told.contains(&serial)))
        {
            self.current.gone.push(reader.page);
        }
    }
}
