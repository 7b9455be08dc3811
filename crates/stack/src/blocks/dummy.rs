//! Passes and counts everything: the smallest block, for measuring the loop and for tests of moving state.

use request::Diagnostic;

use crate::block::{Block, Step};
use crate::kind::{Given, Kind, Layer, Site};
use crate::outcome::{Discard, ImportError, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};
use crate::state;

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "dummy",
    help: "passes everything and counts it",
    layer: Layer::Any,
    is_top: false,
    below: None,
    link: None,
    params: &[],
    complete: None,
    build,
};

fn build(_given: &Given, _site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    Ok(Box::new(Dummy::default()))
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dummy {
    /// Packets that went down.
    pub down: u64,
    /// Packets that came up.
    pub up: u64,
}

impl Dummy {
    /// Reads the counts from an exported state.
    pub fn read(state: &[u8]) -> Result<Dummy, ImportError> {
        let mut rest = state;
        let down = u64::from_be_bytes(*state::take(&mut rest)?);
        let up = u64::from_be_bytes(*state::take(&mut rest)?);
        if rest.is_empty() { Ok(Dummy { down, up }) } else { Err(ImportError::Malformed) }
    }
}

impl Block for Dummy {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        0
    }

    fn down(&mut self, _now: u64, _packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        self.down = self.down.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, _packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        self.up = self.up.wrapping_add(1);
        Ok(Step::Pass)
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Ok([self.down.to_be_bytes(), self.up.to_be_bytes()].concat())
    }

    fn import(&mut self, state: &[u8]) -> Result<(), ImportError> {
        *self = Dummy::read(state)?;
        Ok(())
    }
}
