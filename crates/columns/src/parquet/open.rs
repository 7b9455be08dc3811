//! One file under way.

use super::layout::Place;
use crate::parts::failure::Wrong;
use crate::parts::table::Table;
use crate::parts::whole::Whole;
use filter::{Row, Schema};
use filters::parts::held_folder::HeldFolder;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Rows of a row group: what readers give to one thread.
const GROUP_ROWS: usize = 128 << 10;

/// Numbers tried for a file's name.
const NUMBERS: u32 = 999_999;

/// When a file is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub bytes: u64,
    pub rows: u64,
    /// At every multiple of this, ns.
    pub time: Option<u64>,
}

pub(super) struct Open {
    pub place: Place,
    folder: Arc<HeldFolder>,
    number: u32,
    table: Table,
    writer: ArrowWriter<Whole>,
    rows: u64,
    /// The time of its first row.
    begun: u64,
}

fn name(number: u32) -> OsString {
    format!("{number:06}.parquet").into()
}

impl Open {
    /// Creates a file with the first free number. `time`: that of its first row.
    pub(super) fn begin(
        folder: Arc<HeldFolder>,
        place: Place,
        schema: &'static Schema,
        time: u64,
    ) -> Result<Open, Wrong> {
        let (number, file) = free(&folder)?;
        let table = Table::new(schema);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("streamline".into())
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let writer = ArrowWriter::try_new(file, table.arrow(), Some(properties))?;
        Ok(Open { place, folder, number, table, writer, rows: 0, begun: time })
    }

    pub(super) fn schema(&self) -> &'static Schema {
        self.table.schema
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path_of(&name(self.number))
    }

    /// Adds a row. Gives whether the table is full.
    pub(super) fn push(&mut self, row: &Row<'_>, bytes: usize) -> bool {
        self.rows += 1;
        self.table.push(row, bytes)
    }

    /// Encodes the rows of the table. `flushes`: writes the encoded ones out as a row group.
    pub(super) fn encode(&mut self, flushes: bool) -> Result<(), Wrong> {
        if let Some(batch) = self.table.take()? {
            self.writer.write(&batch)?;
        }
        if flushes { Ok(self.writer.flush()?) } else { Ok(()) }
    }

    /// Bytes of rows that are encoded and not written.
    pub(super) fn waiting(&self) -> usize {
        self.writer.memory_size()
    }

    /// Bytes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// About how long the file would be.
    pub(super) fn size(&self) -> u64 {
        self.bytes() + self.writer.in_progress_size() as u64
    }

    pub(super) fn is_complete(&self, limits: &Limits) -> bool {
        self.size() >= limits.bytes || self.rows >= limits.rows
    }

    /// When the interval of its first row is over.
    pub(super) fn until(&self, interval: u64) -> u64 {
        (self.begun / interval + 1).saturating_mul(interval)
    }

    /// Completes the file, and gives it its name. Gives its length in bytes.
    pub(super) fn close(mut self) -> Result<u64, Wrong> {
        self.encode(false)?;
        self.writer.finish()?;
        let bytes = self.bytes();
        loop {
            match self.writer.inner_mut().keep(&name(self.number), false) {
                // Another run has taken the number since.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && self.number < NUMBERS => self.number += 1,
                kept => return Ok(kept.map(|()| bytes)?),
            }
        }
    }
}

/// Creates a file with the first number that no file has.
fn free(folder: &Arc<HeldFolder>) -> Result<(u32, Whole), Wrong> {
    for number in 1..=NUMBERS {
        if folder.sort_of(&name(number)).is_some() {
            continue;
        }
        match Whole::create(Arc::clone(folder), &name(number)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((number, created?)),
        }
    }
    Err(Wrong::Table(format!("there are {NUMBERS} files already")))
}
