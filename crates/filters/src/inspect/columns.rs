//! Records as aligned columns: the time, the addresses, and the fields of the schema's summary. Records of several schemas
//! share the columns that they have in common; the last one has the rest as `name=value`.

use crate::parts::cell::{Style, append};
use crate::parts::fields::{Column, find};
use crate::parts::lines::Lines;
use crate::parts::printable::word;
use crate::parts::table::Table;
use base::columns::Align;
use filter::prelude::*;
use filter::record::{FieldValue, made_with_id, schema_id};
use packet::time::rfc3339;
use std::time::Instant;

const TIME: &str = "timestamp";

/// Microseconds of a time since the first record.
const MICROSECOND: u64 = 1000;

/// Shows records of any schema.
pub(super) struct Summaries {
    env: Env,
    /// Schemas whose records came.
    known: Vec<Summary>,
    /// What the table shows now. `None`: no record has come.
    shows: Option<Shows>,
    /// The time of the first record.
    first: Option<u64>,
    /// Records of several schemas may come.
    are_several: bool,
}

struct Shows {
    what: Which,
    table: Table,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Records of one schema: its index in `known`.
    One(usize),
    /// Records of several schemas.
    Several,
}

/// The columns of a schema.
struct Summary {
    schema: &'static Schema,
    time: Option<Column>,
    /// The source and the destination: an address and its port.
    ends: [(Option<Column>, Option<Column>); 2],
    fields: Vec<Shown>,
}

struct Shown {
    /// As many of the last words of its name as tell it from the others.
    name: &'static str,
    column: Column,
    is_number: bool,
}

impl Summary {
    fn new(schema: &'static Schema) -> Summary {
        let place = |name: &str| find(name, schema).map(|(column, _)| column);
        let end = |side: &str| (place(&format!("{side}_ip")), place(&format!("{side}_port")));
        let (time, ends) = (place(TIME), ["src", "dest"].map(end));
        let is_common = |name: &str| {
            name == TIME
                || name
                    .strip_suffix("_ip")
                    .or(name.strip_suffix("_port"))
                    .is_some_and(|side| ["src", "dest"].contains(&side) && place(&format!("{side}_ip")).is_some())
        };
        let names: Vec<_> = match schema.summary {
            [] => schema.fields.iter().map(|field| field.name).filter(|name| !is_common(name)).collect(),
            summary => summary.to_vec(),
        };
        let shown = |name: &&'static str| {
            let (column, kind) = find(name, schema)?;
            let is_number = matches!((&column, kind), (Column::Field(_), FieldType::Number | FieldType::Duration(_)));
            Some(Shown { name: head(name, &names), column, is_number })
        };
        let fields = names.iter().filter_map(shown).collect();
        Summary { schema, time, ends, fields }
    }

    /// The table of records of this schema alone. `first`: the time of the first one.
    fn table(&self, first: Option<u64>) -> Table {
        let mut columns = Vec::new();
        if self.time.is_some() {
            columns.push(time_column(self.schema, first));
        }
        for (side, (address, port)) in ["src_ip", "dest_ip"].iter().zip(&self.ends) {
            if address.is_some() {
                columns.push(end_column(&format!("{side}{}", if port.is_some() { ":port" } else { "" })));
            }
        }
        columns.extend(self.fields.iter().map(|field| {
            let align = if field.is_number { Align::Right } else { Align::Left };
            (field.name.to_string(), String::new(), align)
        }));
        table(columns)
    }

    /// The cells of a record in that table.
    fn cells(&self, row: &Row<'_>, first: Option<u64>) -> Vec<String> {
        let mut cells = Vec::with_capacity(3 + self.fields.len());
        if self.time.is_some() {
            cells.push(self.time(row, first, if self.schema.from_first { since } else { of_day }));
        }
        cells.extend(self.ends.iter().filter(|(address, _)| address.is_some()).map(|end| address(row, end)));
        for field in &self.fields {
            let mut cell = Vec::new();
            values(row, &field.column, &mut cell, |cell, value| append(cell, value, Style::Line));
            cells.push(text(cell));
        }
        shorten_last(&mut cells);
        cells
    }

    /// The cells of a record in a table of several schemas.
    fn cells_beside_others(&self, row: &Row<'_>, first: Option<u64>) -> Vec<String> {
        let mut rest = Vec::new();
        for field in &self.fields {
            let begin = rest.len();
            if begin > 0 {
                rest.push(b' ');
            }
            rest.extend_from_slice(field.name.as_bytes());
            rest.push(b'=');
            let empty = rest.len();
            values(row, &field.column, &mut rest, |cell, value| match value {
                FieldValue::Text(text) => word(cell, text),
                value => append(cell, value, Style::Line),
            });
            if rest.len() == empty {
                rest.truncate(begin);
            }
        }
        let [source, target] = self.ends.each_ref().map(|end| address(row, end));
        vec![self.time(row, first, of_day), source, target, self.schema.name.to_string(), text(rest)]
    }

    fn time(&self, row: &Row<'_>, first: Option<u64>, time: fn(Option<u64>, u64) -> String) -> String {
        match self.time.as_ref().and_then(|column| column.first(row)) {
            Some(FieldValue::Time(ns)) => time(first, ns),
            _ => String::new(),
        }
    }
}

/// The last words of a name, as many as no other name has.
fn shortest(name: &'static str, names: &[&'static str]) -> &'static str {
    let ends = |end: &str| {
        names
            .iter()
            .filter(|known| {
                known
                    .rsplit_once(end)
                    .is_some_and(|(rest, last)| last.is_empty() && (rest.is_empty() || rest.ends_with('.')))
            })
            .count()
    };
    let begins = name.rmatch_indices('.').map(|(dot, _)| dot + 1).chain([0]);
    begins.map(|begin| &name[begin..]).find(|end| ends(end) == 1).unwrap_or(name)
}

/// The head of a field's column: the shortest name, without the word of its parent (`method` of `http.http_method`).
fn head(name: &'static str, names: &[&'static str]) -> &'static str {
    let short = shortest(name, names);
    let parent = name[..name.len() - short.len()].trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let rest = short.strip_prefix(parent).and_then(|rest| rest.strip_prefix('_')).unwrap_or(short);
    if names.iter().any(|known| known.rsplit('.').next() == Some(rest)) { short } else { rest }
}

/// A column: its head, a cell as wide as most, and its side.
type Planned = (String, String, Align);

fn time_column(schema: &Schema, first: Option<u64>) -> Planned {
    let date = first.map_or(String::new(), |ns| date(ns).to_string());
    match schema.from_first {
        true => ("time".into(), String::new(), Align::Right),
        false => (date, "00:00:00.000".into(), Align::Whole),
    }
}

fn end_column(head: &str) -> Planned {
    (head.to_string(), "255.255.255.255".into(), Align::Key)
}

fn table(columns: Vec<Planned>) -> Table {
    let mut table = Table::new(columns.iter().map(|(_, _, align)| *align).collect());
    let (heads, usual): (Vec<_>, Vec<_>) = columns.into_iter().map(|(head, usual, _)| (head, usual)).unzip();
    table.widen(&usual);
    table.head(heads);
    table
}

fn text(cell: Vec<u8>) -> String {
    String::from_utf8_lossy(&cell).into_owned()
}

/// Appends the values at a column, with commas between them.
fn values(row: &Row<'_>, column: &Column, cell: &mut Vec<u8>, mut append: impl FnMut(&mut Vec<u8>, &FieldValue<'_>)) {
    let mut is_first = true;
    column.each(row, &mut |value| {
        if !std::mem::take(&mut is_first) {
            cell.push(b',');
        }
        append(cell, &value);
        true
    });
}

/// An address with its port, if there are some.
fn address(row: &Row<'_>, (address, port): &(Option<Column>, Option<Column>)) -> String {
    let first = |column: &Option<Column>| column.as_ref().and_then(|column| column.first(row));
    match (first(address), first(port)) {
        (Some(FieldValue::Address(address)), Some(FieldValue::Number(port))) => {
            std::net::SocketAddr::new(address, port as u16).to_string()
        }
        (Some(FieldValue::Address(address)), _) => address.to_string(),
        _ => String::new(),
    }
}

/// Leaves out of the last cell what it repeats of another one: `TCP SYN` beside `TCP`.
fn shorten_last(cells: &mut [String]) {
    let Some((last, before)) = cells.split_last_mut() else { return };
    let rest = |cell: &String| last.strip_prefix(cell.as_str())?.strip_prefix(' ').map(String::from);
    if let Some(rest) = before.iter().filter(|cell| !cell.is_empty()).find_map(rest) {
        *last = rest;
    }
}

/// Seconds since the first record; earlier times have a minus.
fn since(first: Option<u64>, ns: u64) -> String {
    let first = first.unwrap_or(ns);
    let microseconds = ns.abs_diff(first) / MICROSECOND;
    let sign = if ns < first && microseconds > 0 { "-" } else { "" };
    format!("{sign}{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000)
}

/// The time of day to the millisecond, with its date if that is not the one of the first record.
fn of_day(first: Option<u64>, ns: u64) -> String {
    let text = rfc3339(ns);
    let text = str::from_utf8(&text[..23]).unwrap_or_default();
    let (date, time) = text.split_once('T').unwrap_or_default();
    match first.is_none_or(|first| self::date(first) == date) {
        true => time.to_string(),
        false => format!("{date} {time}"),
    }
}

fn date(ns: u64) -> String {
    String::from_utf8_lossy(&rfc3339(ns)[..10]).into_owned()
}

impl Summaries {
    pub(super) fn new(params: &Params, env: &Env) -> Summaries {
        let are_several = params.come().len() > 1;
        Summaries { env: env.clone(), known: Vec::new(), shows: None, first: None, are_several }
    }

    /// Adds the line of a record. `None`: the bytes are not one.
    pub(super) fn line(&mut self, lines: &mut Lines, bytes: &[u8]) -> Option<Made> {
        let (at, row) = self.read(bytes)?;
        Some(self.line_of(lines, at, &row))
    }

    fn line_of(&mut self, lines: &mut Lines, at: usize, row: &Row<'_>) -> Made {
        let summary = &self.known[at];
        let time = summary.time.as_ref().and_then(|column| column.first(row));
        if let (None, Some(FieldValue::Time(ns))) = (self.first, time) {
            self.first = Some(ns);
        }
        let what = match &self.shows {
            None if !self.are_several => Which::One(at),
            Some(shows) if shows.what == Which::One(at) => Which::One(at),
            _ => Which::Several,
        };
        if self.shows.as_ref().is_none_or(|shows| shows.what != what)
            && let Some(mut before) = self.shows.replace(Shows { what, table: self.table(what) })
            && before.table.settle(lines)? == Status::Finished
        {
            return Ok(Status::Finished);
        }
        let summary = &self.known[at];
        let cells = match what {
            Which::One(_) => summary.cells(row, self.first),
            Which::Several => summary.cells_beside_others(row, self.first),
        };
        self.shows.as_mut().map_or(Ok(Status::Done), |shows| shows.table.push(lines, cells))
    }

    /// The index of the record's schema in `known`, and the record. `None`: its schema is not known.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Option<(usize, Row<'a>)> {
        let id = schema_id(bytes)?;
        let at = match self.known.iter().position(|summary| summary.schema.id() == id) {
            Some(at) => at,
            None => {
                let schema = self.env.schema(id).or_else(|| made_with_id(id))?;
                self.known.push(Summary::new(schema));
                self.known.len() - 1
            }
        };
        Some((at, Row::new(self.known[at].schema, bytes)?))
    }

    fn table(&self, what: Which) -> Table {
        match what {
            Which::One(at) => self.known[at].table(self.first),
            Which::Several => {
                let date = self.first.map_or(String::new(), date);
                let (time, kind) = ((date, "00:00:00.000".into(), Align::Whole), "type".to_string());
                let rest = ("fields".to_string(), String::new(), Align::Left);
                table(vec![
                    time,
                    end_column("src_ip:port"),
                    end_column("dest_ip:port"),
                    (kind, String::new(), Align::Left),
                    rest,
                ])
            }
        }
    }

    pub(super) fn batch_done(&mut self, lines: &mut Lines) -> Made {
        self.shows.as_mut().map_or(Ok(Status::Done), |shows| shows.table.batch_done(lines))
    }

    pub(super) fn pause(&mut self, lines: &mut Lines) -> Made {
        self.shows.as_mut().map_or(Ok(Status::Done), |shows| shows.table.pause(lines, Instant::now()))
    }

    pub(super) fn settle(&mut self, lines: &mut Lines) -> Made {
        self.shows.as_mut().map_or(Ok(Status::Done), |shows| shows.table.settle(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_since_the_first_record_or_of_the_day() {
        const SECOND: u64 = 1_000_000_000;
        let first = Some(90_000 * SECOND);
        for (ns, relative, of_its_day) in [
            (90_000 * SECOND, "0.000000", "01:00:00.000"),
            (90_001 * SECOND + 5_500_000, "1.005500", "01:00:01.005"),
            (90_000 * SECOND - 1, "0.000000", "00:59:59.999"),
            (89_999 * SECOND, "-1.000000", "00:59:59.000"),
            (SECOND, "-89999.000000", "1970-01-01 00:00:01.000"),
        ] {
            assert_eq!((&*since(first, ns), &*of_day(first, ns)), (relative, of_its_day), "{ns}");
        }
        assert_eq!(since(None, 5), "0.000000");
    }
}
