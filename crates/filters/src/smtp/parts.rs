//! Messages of the files in a mail.

use super::{behind_gap, end_block};
use crate::parts::eve::begin_row;
use crate::parts::heard::Facts;
use crate::parts::outlet::Outlet;
use base::limits::SMTP_PARTS;
use filter::prelude::*;
use protocols::conversation::How;
use protocols::mime::Found;
use protocols::smtp::Fact;

/// Decoded bytes that are gathered before they become a block.
const BLOCK_BYTES: usize = 32 << 10;

/// Facts about the mail in the record of a file.
const FACTS: [Fact; 3] = [Fact::MailFrom, Fact::From, Fact::Subject];

/// The files of one mail.
#[derive(Default)]
pub(super) struct Parts {
    count: usize,
    /// A file is being given.
    is_open: bool,
    /// Decoded bytes, until a block is full or the run is over.
    bytes: Vec<u8>,
    /// Bytes missing before them.
    gap: u32,
}

impl Parts {
    pub(super) fn hear(
        &mut self,
        found: &Found<'_>,
        facts: &Facts<Fact>,
        row: &mut RowWriter,
        outlet: &mut Outlet<'_>,
        block: &Descriptor,
    ) {
        match found {
            Found::File { name, kind } => {
                self.count += 1;
                self.is_open = self.count <= SMTP_PARTS;
                if !self.is_open {
                    return outlet.count("smtp files not given", 1);
                }
                begin_row(row, block.time, block.class, outlet.facts(block.class));
                facts.write_if(|fact| FACTS.contains(&fact), row);
                name.iter().for_each(|name| _ = row.text("smtp.filename", name));
                row.text("smtp.content_type", kind);
                outlet.meta(row, block.time, block.class, Flags::NONE);
            }
            _ if !self.is_open => {}
            Found::Data(bytes) => {
                for bytes in bytes.chunks(BLOCK_BYTES) {
                    if self.bytes.len() + bytes.len() > BLOCK_BYTES {
                        self.flush(outlet, block);
                    }
                    self.bytes.extend_from_slice(bytes);
                }
            }
            Found::Missing(missing) => {
                self.flush(outlet, block);
                self.gap = self.gap.saturating_add(*missing);
            }
            Found::End(how) => {
                self.flush(outlet, block);
                let end = outlet.nothing(block.time, block.class);
                outlet.push(end_block(end, std::mem::take(&mut self.gap), *how == How::Cut));
                self.is_open = false;
            }
            Found::Field(..) | Found::More | Found::Head(_) => {}
        }
    }

    /// Gives the bytes that were gathered.
    pub(super) fn flush(&mut self, outlet: &mut Outlet<'_>, block: &Descriptor) {
        if self.bytes.is_empty() {
            return;
        }
        if let Some(block) = outlet.copied(&self.bytes, block.time, block.class) {
            outlet.push(behind_gap(block, std::mem::take(&mut self.gap)));
        }
        self.bytes.clear();
    }
}
