//! A filter: discards packets that a program rejects, in both directions.
//!
//! The program comes from the environment, because compiling tcpdump expressions needs libpcap. Programs read one
//! contiguous run of bytes, so on the way down the block copies headers and payload into its own buffer.

use packet::LinkType;
use program::Interpreter;
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::kind::{Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "bpf",
    help: "discards packets that a program rejects",
    layer: Layer::Any,
    is_top: false,
    below: None,
    link: None,
    params: &[Param {
        key: "expression",
        is_main: true,
        is_needed: false,
        form: Form::Text,
        help: "expression that the program is made of",
    }],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    let link: LinkType = site.link_for(KIND.name, given.span)?;
    let wrong = |message: String| Diagnostic::new(message, given.span_of("expression"));
    let program = site.env.program(given.text("expression"), link).map_err(wrong)?;
    let program = Interpreter::from_cbpf(&program).map_err(|error| wrong(error.to_string()))?;
    Ok(Box::new(Bpf { program, copied: Vec::with_capacity(site.packet_bytes) }))
}

/// A program and room for one packet.
pub struct Bpf {
    program: Interpreter,
    copied: Vec<u8>,
}

fn passes(program: &Interpreter, bytes: &[u8]) -> bool {
    program.run(bytes, u32::try_from(bytes.len()).unwrap_or(u32::MAX)) != 0
}

impl Block for Bpf {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        0
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        self.copied.clear();
        self.copied.extend_from_slice(packet.header());
        self.copied.extend_from_slice(packet.payload());
        match passes(&self.program, &self.copied) {
            true => Ok(Step::Pass),
            false => Err(SendError::Discarded(Discard::NoMatch)),
        }
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        match passes(&self.program, packet.bytes()) {
            true => Ok(Step::Pass),
            false => Err(Discard::NoMatch),
        }
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
