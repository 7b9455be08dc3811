//! Rows of one schema, gathered as a table of columns.

use super::column::{LIST_DEPTH, Object};
use super::failure::Wrong;
use arrow_array::RecordBatch;
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use filter::record::{made_with_id, schema_id};
use filter::{Env, ParamError, Row, Schema};
use std::sync::Arc;

/// A table is full with this many rows, or bytes of rows: enough that an array's head costs nothing, little memory.
const TABLE_ROWS: usize = 8192;
const TABLE_BYTES: usize = 4 << 20;

/// The rows of one schema that are not written yet.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) schema: &'static Schema,
    arrow: SchemaRef,
    columns: Object,
    rows: usize,
    bytes: usize,
}

impl Table {
    pub(crate) fn new(schema: &'static Schema) -> Table {
        let columns = Object::of(schema, LIST_DEPTH);
        let arrow = Arc::new(ArrowSchema::new(columns.fields().clone()));
        Table { schema, arrow, columns, rows: 0, bytes: 0 }
    }

    /// The schema of Arrow.
    pub(crate) fn arrow(&self) -> SchemaRef {
        self.arrow.clone()
    }

    /// Adds a row of this schema. Gives whether the table is full.
    pub(crate) fn push(&mut self, row: &Row<'_>, bytes: usize) -> bool {
        self.columns.push(Some(row));
        self.rows += 1;
        self.bytes += bytes;
        self.rows >= TABLE_ROWS || self.bytes >= TABLE_BYTES
    }

    /// The rows so far. `None`: there are none.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, Wrong> {
        if self.rows == 0 {
            return Ok(None);
        }
        (self.rows, self.bytes) = (0, 0);
        Ok(Some(RecordBatch::try_new(self.arrow.clone(), self.columns.columns())?))
    }
}

/// The schemas of a plan, by their ids.
#[derive(Debug)]
pub(crate) struct Schemas {
    all: Arc<[&'static Schema]>,
    last: Option<&'static Schema>,
}

impl Schemas {
    pub(crate) fn new(env: &Env) -> Schemas {
        Schemas { all: Arc::clone(&env.schemas), last: None }
    }

    /// The bytes as a row. `None`: they are no row of a known schema.
    pub(crate) fn row<'a>(&mut self, bytes: &'a [u8]) -> Option<Row<'a>> {
        let id = schema_id(bytes)?;
        if self.last.is_none_or(|schema| schema.id() != id) {
            let known = self.all.iter().copied().find(|schema| schema.id() == id);
            self.last = Some(known.or_else(|| made_with_id(id))?);
        }
        Row::new(self.last?, bytes)
    }
}

impl Schemas {
    /// The schema of these ids, if they are one.
    pub(crate) fn only(&self, ids: &[u32]) -> Option<&'static Schema> {
        let [id] = ids else { return None };
        self.all.iter().copied().find(|schema| schema.id() == *id).or_else(|| made_with_id(*id))
    }
}

/// Refuses records of several kinds.
pub(crate) fn of_one_kind(schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    if schemas.len() < 2 {
        return Ok(Vec::new());
    }
    let names: Vec<_> = schemas.iter().map(|schema| format!("`{}`", schema.name)).collect();
    Err(ParamError::of_request(format!(
        "records of several kinds come here: {}; a table has one schema",
        names.join(", ")
    )))
}
