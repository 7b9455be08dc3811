//! Writes each packet that passes, in both directions, as a record of a capture file (pcap 2.4, nanoseconds).
//!
//! The block opens no file: the environment supplies the sink. Headers and payload go to the sink uncopied.

use packet::pcap_file::{Resolution, write_header, write_record_header};
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::facts::{TapFile, TapSink};
use crate::kind::{Form, Given, Kind, Layer, Param, Site};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "tap",
    help: "writes each packet that passes into a capture file",
    layer: Layer::Any,
    is_top: false,
    below: None,
    link: None,
    params: &[Param { key: "path", is_main: true, is_needed: true, form: Form::Text, help: "path of a capture file" }],
    complete: None,
    build,
};

fn build(given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    let link = site.link_for(KIND.name, given.span)?;
    let TapFile { mut sink, epoch_ns } = site
        .env
        .tap(given.text("path").unwrap_or_default())
        .map_err(|message| Diagnostic::new(message, given.span_of("path")))?;
    let mut header = Vec::new();
    write_header(&mut header, link, SNAP_LEN, Resolution::Nanoseconds);
    sink.write(&[&header]);
    Ok(Box::new(Tap { sink, epoch_ns, record_header: header }))
}

/// Snap length in the file's header. Records keep whole packets.
const SNAP_LEN: u32 = 262_144;

/// A capture file that grows.
pub struct Tap {
    sink: Box<dyn TapSink>,
    epoch_ns: u64,
    record_header: Vec<u8>,
}

impl Tap {
    fn write(&mut self, now: u64, header: &[u8], payload: &[u8]) {
        let length = u32::try_from(header.len() + payload.len()).unwrap_or(u32::MAX);
        let time_ns = self.epoch_ns.saturating_add(now);
        self.record_header.clear();
        write_record_header(&mut self.record_header, time_ns, length, length, Resolution::Nanoseconds);
        self.sink.write(&[&self.record_header, header, payload]);
    }
}

impl Block for Tap {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        0
    }

    fn down(&mut self, now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        self.write(now, packet.header(), packet.payload());
        Ok(Step::Pass)
    }

    fn up(&mut self, now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        self.write(now, &[], packet.bytes());
        Ok(Step::Pass)
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
