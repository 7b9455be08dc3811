//! Joins the records of two kinds that have the same values in some fields and lie near each other in time.

mod waiting;

use crate::parts::fields::{Column, Names, known};
use crate::parts::outlet::Outlet;
use filter::prelude::*;
use filter::record::{FieldValue, made, made_with_id};
use waiting::{Held, Waiting};

/// What `match_up` is.
pub static KIND: Kind = Kind::new("match_up", "joins records of two kinds by fields and time", make)
    .also(&["correlate", "merge", "pair"])
    .help(
        "Takes records of two kinds, as of `{ flows + dns }`, and gives a record for each two of them that have the same values \
         in the fields `on` and whose times differ by no more than `within`: `match_up src_ip within=2s`. It has the fields of \
         both; of a field that both have, the value of the first kind, that is of the branch that is named first. The time of a flow is its start, of \
         others it is their `timestamp`. A record without one of the fields `on` matches none.\n\n\
         Records wait for others until `memory` is full. Then the oldest is forgotten, and counted. Of one key the latest 1,024 of \
         a kind are looked at.",
    )
    .params(&[
        Param::new("on", ParamType::List, "the fields with the same values").required().main(),
        Param::new("within", ParamType::Duration, "by how much times may differ").default("1s"),
        Param::new("memory", ParamType::Size, "bytes of records held, at most").default("64M"),
    ])
    .takes(&[Type::Record])
    .gives(Type::Record)
    .mode(Mode::Serial)
    .reads_fields(names)
    .keeps_names()
    .names_fields(check)
    .examples(&[Example {
        request: "pcap browse.pcap | { flows + dns } | match_up src_ip within=2s | where \"dest_port != 53\" | fields dns.rrname dest_ip dest_port",
        output: NAMES,
    }]);

const NAMES: &str = "dns.rrname\tdest_ip\tdest_port\npagead2.googlesyndication.com\t216.239.59.99\t80\n";

/// When something began, the first that a record has.
const TIMES: [&str; 2] = ["flow.start", "timestamp"];

/// The fields that are read: those with the same values, and the times.
fn names(params: &Params) -> Vec<String> {
    params.list("on").iter().cloned().chain(TIMES.map(String::from)).collect()
}

/// The schema of the joined records. `schemas`: those of the input.
fn check(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    if schemas.is_empty() {
        return Ok(Vec::new());
    }
    let [first, second] = schemas else {
        let kinds = if schemas.len() == 1 { "one kind".to_string() } else { format!("{} kinds", schemas.len()) };
        return Err(ParamError::of_request(format!("records of {kinds} come here, and it joins two"))
            .with_help("{ flows + dns } | match_up src_ip"));
    };
    if first.name == second.name {
        return Err(ParamError::of_request(format!("both kinds of records that come here are of `{}`", first.name)));
    }
    let mut at = 0;
    for name in params.list("on") {
        for schema in schemas {
            known(name, &[schema], "on", at..at + name.len()).map_err(|error| {
                error.with_help(format!("both kinds need it, `{}` and `{}`", first.name, second.name))
            })?;
        }
        at += name.len();
    }
    let others = second.fields.iter().filter(|field| first.field(field.name).is_none());
    let fields: Vec<_> = first.fields.iter().chain(others).map(|field| (field.name.to_string(), field.kind)).collect();
    let joined = made("match_up", &fields, &[]);
    joined
        .map(|schema| vec![schema])
        .ok_or_else(|| ParamError::of_request("joined records would have more than 128 fields"))
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let find = |id: &u32| env.schema(*id).or_else(|| made_with_id(*id));
    let come: Vec<_> = params.come().iter().filter_map(find).collect();
    let come = if come.is_empty() { env.schemas.to_vec() } else { come };
    let (Some(joined), Some(first)) = (check(params, &come)?.pop(), come.first()) else {
        return Err(ParamError::of_request("it is not known which records come here"));
    };
    Ok(Instance::filter(MatchUp {
        keys: params.list("on").len(),
        names: Names::new(names(params), env),
        first: first.name,
        within: params.number("within").unwrap_or(0),
        waiting: Waiting::new(params.number("memory").unwrap_or(0)),
        joined,
        writer: RowWriter::new(joined),
    }))
}

struct MatchUp {
    names: Names,
    /// The number of fields with the same values.
    keys: usize,
    /// The name of the first kind.
    first: &'static str,
    /// In ns.
    within: u64,
    waiting: Waiting,
    joined: &'static Schema,
    writer: RowWriter,
}

impl MatchUp {
    /// Joins a record with those that wait, and has it wait. Returns how many were forgotten for it; `None`: it is no record.
    fn take(&mut self, block: &Descriptor, outlet: &mut Outlet<'_>) -> Option<u64> {
        let bytes = outlet.bytes(block);
        let (row, columns) = self.names.row(bytes)?;
        let first_of = |column: &Option<Column>| column.as_ref()?.first(&row);
        let (keys, times) = columns.split_at_checked(self.keys)?;
        let Some(key) = waiting::key(keys.iter().map(first_of)) else { return Some(0) };
        let time = times.iter().find_map(|column| match first_of(column)? {
            FieldValue::Time(time) => Some(time),
            _ => None,
        });
        let held = Held { schema: row.schema(), time: time.unwrap_or(block.time), bytes: bytes.into() };
        let is_first = row.schema().name == self.first;
        for other in self.waiting.near(&key, !is_first, held.time, self.within) {
            let pair = if is_first { [&held, other] } else { [other, &held] };
            write(&mut self.writer, self.joined, pair);
            outlet.record(&self.writer, block.time, block.class);
        }
        Some(self.waiting.put(key, is_first, held))
    }
}

/// Writes the fields of both. The first one's are written last, in place of the second one's.
fn write(writer: &mut RowWriter, joined: &'static Schema, [first, second]: [&Held; 2]) {
    writer.begin();
    for held in [second, first] {
        let Some(row) = Row::new(held.schema, &held.bytes) else { continue };
        for (place, field) in held.schema.fields.iter().enumerate() {
            // The second kind may give the field another type.
            let is_same = joined.field(field.name).is_some_and(|place| joined.fields[place].kind.is(&field.kind));
            if let Some(value) = row.get(place).filter(|_| is_same) {
                writer.copy(field.name, &value);
            }
        }
    }
}

impl Filter for MatchUp {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        let mut outlet = Outlet::new(cx);
        for (_, block) in batch.iter() {
            match self.take(block, &mut outlet) {
                Some(forgotten) => outlet.count("records forgotten", forgotten),
                None => outlet.drop_block("not a record"),
            }
        }
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    static ASKED: Schema = Schema::new(
        "asked",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("who", FieldType::Text),
            Field::new("name", FieldType::Text),
            Field::new("both", FieldType::Number),
        ],
    );
    static OPENED: Schema = Schema::new(
        "opened",
        &[
            Field::new("flow.start", FieldType::Time),
            Field::new("timestamp", FieldType::Time),
            Field::new("who", FieldType::Text),
            Field::new("port", FieldType::Number),
            Field::new("both", FieldType::Text),
        ],
    );

    const MS: u64 = 1_000_000;

    fn asked(ms: u64, who: &str, name: &str) -> (Descriptor, Vec<u8>) {
        let mut row = RowWriter::new(&ASKED);
        row.time("timestamp", ms * MS).text("name", name).number("both", 7);
        if !who.is_empty() {
            row.text("who", who);
        }
        (Descriptor::default(), row.row().to_vec())
    }

    /// A flow's record comes long after its start.
    fn opened(ms: u64, who: &str, port: u64) -> (Descriptor, Vec<u8>) {
        let mut row = RowWriter::new(&OPENED);
        row.time("flow.start", ms * MS).time("timestamp", (ms + 60_000) * MS).text("who", who).number("port", port);
        (Descriptor::default(), row.text("both", "x").row().to_vec())
    }

    /// `expected`: name and port of each pair. Returns how many records were forgotten.
    fn check(records: &[(Descriptor, Vec<u8>)], given: &[(&str, &str)], expected: &[(&str, u64)]) -> u64 {
        let chain = Chain::pieces(Type::Record, None, records.to_vec()).schema(&ASKED).schema(&OPENED);
        let outcome = chain.then(&KIND, given).run();
        let pairs = outcome.blocks.iter().map(|block| {
            let schema = made_with_id(filter::record::schema_id(&block.bytes).unwrap()).unwrap();
            let row = Row::new(schema, &block.bytes).unwrap();
            assert_eq!((schema.name, row.number("both")), ("match_up", Some(7)));
            (String::from_utf8_lossy(row.text("name").unwrap()).into_owned(), row.number("port").unwrap())
        });
        let pairs: Vec<_> = pairs.collect();
        let pairs: Vec<_> = pairs.iter().map(|(name, port)| (name.as_str(), *port)).collect();
        assert_eq!(pairs, expected, "{given:?}");
        outcome.counters("match_up").events.get("records forgotten")
    }

    #[test]
    fn records_meet_by_key_and_time_in_whichever_order_they_come() {
        let records = [
            opened(100, "a", 80),
            asked(0, "a", "one"),
            asked(50, "b", "two"),
            asked(3_000, "a", "three"),
            asked(100, "", "none"),
            opened(900, "a", 443),
            opened(1_001, "a", 22),
        ];
        let pairs = [("one", 80), ("one", 443)];
        assert_eq!(check(&records, &[("on", "who")], &pairs), 0);
        check(&records, &[("on", "who"), ("within", "2s")], &[("one", 80), ("one", 443), ("one", 22), ("three", 22)]);
        check(&records, &[("on", "who"), ("within", "0")], &[]);
    }

    #[test]
    fn the_oldest_are_forgotten_when_memory_is_full() {
        let mut records: Vec<_> = (0..100).map(|number| asked(number, &format!("w{number}"), "n")).collect();
        records.extend([0, 99].map(|number| opened(number, &format!("w{number}"), number)));
        let forgotten = check(&records, &[("on", "who"), ("memory", "4k")], &[("n", 99)]);
        assert!(forgotten > 50, "{forgotten}");
        check(&records, &[("on", "who"), ("memory", "0")], &[]);
    }

    #[test]
    fn mistakes_are_told() {
        static OTHER: Schema = Schema::new("other", &[Field::new("port", FieldType::Number)]);
        let error = |schemas: &[&'static Schema]| {
            let mut params = Params::new();
            params.set("on", ParamType::List.parse("who").unwrap());
            super::check(&params, schemas).unwrap_err().message
        };
        assert_eq!(error(&[&ASKED]), "records of one kind come here, and it joins two");
        assert_eq!(error(&[&ASKED, &ASKED]), "both kinds of records that come here are of `asked`");
        assert_eq!(error(&[&ASKED, &OTHER]), "no record that comes here has a field `who`");
    }
}
