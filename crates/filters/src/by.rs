//! Groups records by fields. Each group becomes a record with its count, and with aggregates of other fields.
//!
//! `by/groups.rs` holds the groups, `by/measure.rs` the table of aggregates; `by/spread.rs`, `by/deviation.rs` and
//! `by/distinct.rs` have the states of those that need more than a number.

mod deviation;
mod distinct;
mod groups;
mod measure;
mod spread;
mod value;

use crate::parts::fields::{Names, known};
use filter::batch::places;
use filter::prelude::*;
use filter::record::{FieldValue, made, made_with_id};
use groups::{Group, Groups};
use measure::{AGGREGATES, Aggregate};
use std::vec::IntoIter;
use value::Value;

/// What `by` is.
pub static KIND: Kind = Kind::new("by", "counts records by fields, with sums, averages, percentiles and the time between them", make)
    .also(&["group", "aggregate", "stats", "uniq", "top"])
    .help(
        "`by NAME ...` counts records that have the same values in these fields, and gives a record for each group when the \
         input ends, the largest first: the fields, and `count`. The parameters below that take fields, several as in \
         `sum=\"frame.len,tcp.window\"`, add what they say of the records in the group that have the field: `sum=frame.len` gives \
         `sum.frame.len`. They are whole numbers, rounded. `median.NAME` and `p99.NAME` are at most 1.6 % too large, \
         `distinct.NAME` is exact up to 256 values and then within some 2 %, `stddev.NAME` is that of a sample. `interval.NAME` \
         is the average time from a record to the next one and `jitter.NAME` its standard deviation: a program that calls \
         home regularly has many records and little jitter. `top=N` gives the N largest groups only. `every=1s` gives the \
         groups of each second of the records' own time, with a `timestamp`, and begins again; records that come behind their \
         time, as some flows do, count in the interval that has begun, and are counted: `sort timestamp:up` before it helps.\n\n\
         A record without a field is in the group without it. One whose field has several values, such as \
         `dns.answers.rdata`, counts once for each of them. Of a message its metadata are the record. There are at most \
         `groups` groups; records of further ones are dropped and counted.",
    )
    .params(&[
        Param::new("field", ParamType::List, "the fields to group by").required().main(),
        Param::new("sum", ParamType::Text, "fields whose sums are wanted"),
        Param::new("avg", ParamType::Text, "fields whose averages are wanted"),
        Param::new("min", ParamType::Text, "fields whose least values are wanted"),
        Param::new("max", ParamType::Text, "fields whose largest values are wanted"),
        Param::new("median", ParamType::Text, "fields whose medians are wanted"),
        Param::new("p99", ParamType::Text, "fields whose 99th percentiles are wanted"),
        Param::new("stddev", ParamType::Text, "fields whose standard deviations are wanted"),
        Param::new("distinct", ParamType::Text, "fields whose different values are counted, of any type"),
        Param::new("first", ParamType::Text, "fields whose first values are wanted, of any type"),
        Param::new("last", ParamType::Text, "fields whose last values are wanted, of any type"),
        Param::new("interval", ParamType::Text, "times whose average distance from one record to the next is wanted"),
        Param::new("jitter", ParamType::Text, "times whose distances' standard deviations are wanted"),
        Param::new("top", ParamType::Number, "give only this number of groups, the largest"),
        Param::new("every", ParamType::Duration, "give the groups of each such interval"),
        Param::new("groups", ParamType::Number, "groups at once, at most").default("1M"),
    ])
    .takes(&[Type::Record, Type::Message])
    .reads_fields(names)
    .gives(Type::Record)
    .mode(Mode::Serial)
    .names_fields(|params, schemas| schema(params, schemas).map(|schema| vec![schema]))
    .examples(&[
        Example { request: "pcap dns.pcap | dns | by dns.type", output: TYPES },
        Example { request: "pcap web.pcap | http | by http.hostname http.status top=2", output: WEB },
    ]);

const TYPES: &str = "{\"dns\":{\"type\":\"request\"},\"count\":2}\n{\"dns\":{\"type\":\"response\"},\"count\":2}\n";
const WEB: &str = "\
{\"http\":{\"hostname\":\"192.88.99.42\"},\"count\":10}
{\"http\":{\"hostname\":\"192.88.99.42\",\"status\":200},\"count\":10}
";

/// Group records leave in pieces, so that a million groups are not copied twice.
const PIECE: usize = 64;

/// The aggregates in the request, each with its field.
fn measures(params: &Params) -> Vec<(&'static Aggregate, String)> {
    let of = |aggregate: &'static Aggregate| {
        let names = params.text(aggregate.key).unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| !name.is_empty()).map(move |name| (aggregate, name.to_string())).collect::<Vec<_>>()
    };
    AGGREGATES.iter().flat_map(of).collect()
}

/// The record's own time.
const TIMESTAMP: &str = "timestamp";

/// The fields that are read: first those to group by, then those to measure, and last the time, with `every`.
fn names(params: &Params) -> Vec<String> {
    let measured = measures(params).into_iter().map(|(_, name)| name);
    let time = params.number("every").map(|_| TIMESTAMP.to_string());
    params.list("field").iter().cloned().chain(measured).chain(time).collect()
}

/// The schema of the group records. `schemas`: those of the input.
fn schema(params: &Params, schemas: &[&'static Schema]) -> Result<&'static Schema, ParamError> {
    let mut fields = Vec::new();
    if params.number("every").is_some() {
        fields.push((TIMESTAMP.to_string(), FieldType::Time));
    }
    let mut at = 0;
    for name in params.list("field") {
        let kind = known(name, schemas, "field", at..at + name.len())?;
        if let FieldType::Rows(_) = kind {
            return Err(ParamError::new("field", format!("`{name}` is a list: name a field of its rows"))
                .within(at..at + name.len()));
        }
        fields.push((name.clone(), kind));
        at += name.len();
    }
    fields.push(("count".to_string(), FieldType::Number));
    for (aggregate, name) in measures(params) {
        let text = params.text(aggregate.key).unwrap_or_default();
        let begin = text.find(&name).unwrap_or(0);
        let within = begin..begin + name.len();
        let kind = known(&name, schemas, aggregate.key, within.clone())?;
        let kind = if schemas.is_empty() { aggregate.any_field() } else { kind };
        let given = aggregate
            .of(kind)
            .map_err(|why| ParamError::new(aggregate.key, format!("`{name}` {why}")).within(within))?;
        fields.push((format!("{}.{name}", aggregate.key), given));
    }
    for (at, (name, _)) in fields.iter().enumerate() {
        if fields[..at].iter().any(|(other, _)| other == name) {
            return Err(ParamError::of_request(format!("`{name}` is named twice")));
        }
    }
    made("by", &fields, &[]).ok_or_else(|| ParamError::of_request("records of a group would have more than 128 fields"))
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let measures = measures(params);
    // The check of the request knew the schemas of the input. Without it, any known record may come.
    let schema = match params.records().and_then(made_with_id) {
        Some(schema) => schema,
        None => schema(params, &env.schemas)?,
    };
    let keys = params.list("field").len();
    Ok(Instance::filter(By {
        names: Names::new(names(params), env),
        groups: Groups::new(keys, params.number("groups").unwrap_or(u64::MAX)),
        measures: measures.into_iter().map(|(aggregate, _)| aggregate).collect(),
        every: params.number("every").filter(|every| *every > 0),
        until: None,
        top: params.number("top").map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(usize::MAX)),
        writer: RowWriter::new(schema),
        schema,
        keys,
        leaving: Vec::new().into_iter(),
        leaving_time: 0,
        of_messages: env.input.has(Type::Message),
        seen: 0,
    }))
}

struct By {
    names: Names,
    groups: Groups,
    measures: Vec<&'static Aggregate>,
    /// Length of an interval, ns.
    every: Option<u64>,
    /// The end of the current interval.
    until: Option<u64>,
    top: usize,
    schema: &'static Schema,
    writer: RowWriter,
    /// The number of fields to group by.
    keys: usize,
    /// Groups that are being written, and the beginning of their interval.
    leaving: IntoIter<(Vec<Option<Value>>, Group)>,
    leaving_time: u64,
    /// The input is messages: records are their metadata.
    of_messages: bool,
    /// Blocks of this batch that were counted before groups had to be written.
    seen: u64,
}

impl By {
    fn add(&mut self, block: &Descriptor, cx: &mut Context<'_>) {
        let Some((row, columns)) = self.names.row(cx.rings.bytes(block)) else { return cx.drop(1, "not a record") };
        match self.groups.add(&row, columns, &self.measures) {
            (_, 0) => {}
            (0, _) => cx.drop(1, "more groups than groups="),
            // The record still counted for some of its values.
            (_, over) => cx.count("values without a group", over),
        }
    }

    /// Whether a record is beyond the current interval. Then its groups are written.
    fn interval_ends(&mut self, block: &Descriptor, cx: &mut Context<'_>) -> bool {
        let Some(every) = self.every else { return false };
        let time = self.time(cx.rings.bytes(block)).unwrap_or(block.time);
        let end = (time - time % every).saturating_add(every);
        let until = *self.until.get_or_insert(end);
        if end < until {
            cx.count("records behind their interval", 1);
        }
        if time < until {
            return false;
        }
        self.until = Some(end);
        self.settle(until.saturating_sub(every));
        true
    }

    /// A record's own time. A flow's block comes when the flow is given up, long after its last packet.
    fn time(&mut self, bytes: &[u8]) -> Option<u64> {
        let (row, columns) = self.names.row(bytes)?;
        match columns.last()?.as_ref()?.first(&row)? {
            FieldValue::Time(time) => Some(time),
            _ => None,
        }
    }

    /// Starts to write all groups, the largest first.
    fn settle(&mut self, begin: u64) {
        self.leaving = self.groups.take(self.top).into_iter();
        self.leaving_time = begin;
    }

    /// Writes a piece of the groups; `false` after the last group.
    fn give(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..PIECE {
            let Some((key, group)) = self.leaving.next() else { return false };
            self.write(&key, &group);
            match cx.rings.append_copy(cx.own, &[self.writer.row()]) {
                Some(mut block) => {
                    block.time = if self.every.is_some() { self.leaving_time } else { cx.now };
                    cx.emit(block);
                }
                None => cx.drop(1, "longer than a block"),
            }
        }
        self.leaving.len() > 0
    }

    fn write(&mut self, key: &[Option<Value>], group: &Group) {
        let writer = &mut self.writer;
        writer.begin();
        let mut fields = self.schema.fields.iter();
        if self.every.is_some()
            && let Some(field) = fields.next()
        {
            writer.time(field.name, self.leaving_time);
        }
        for (field, value) in fields.by_ref().zip(key).take(self.keys) {
            if let Some(value) = value {
                value.write(writer, field);
            }
        }
        writer.number("count", group.count);
        for (field, measured) in fields.skip(1).zip(group.measured(&self.measures)) {
            if let Some(value) = measured {
                value.write(writer, field);
            }
        }
    }
}

impl Filter for By {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        if self.give(cx) {
            return Ok(Status::More);
        }
        for place in places(batch.live() & !self.seen) {
            let block = batch.block(place);
            if self.interval_ends(block, cx) && self.give(cx) {
                return Ok(Status::More);
            }
            self.seen |= 1 << place;
            if !self.of_messages || block.has(Flags::META) {
                self.add(block, cx);
            }
        }
        self.seen = 0;
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if self.give(cx) {
            return Ok(Status::More);
        }
        let begin = self.until.zip(self.every).map_or(0, |(until, every)| until - every);
        self.settle(begin);
        Ok(if self.give(cx) { Status::More } else { Status::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    static SEEN: Schema = Schema::new(
        "seen",
        &[
            Field::new("who", FieldType::Text),
            Field::new("seen", FieldType::Time),
            Field::new("length", FieldType::Number),
            Field::new("names", FieldType::Rows(&NAMES)),
        ],
    );
    static NAMES: Schema = Schema::new("names", &[Field::new("", FieldType::Text)]);

    /// `records`: (seconds, who, length, names). `given`: parameters. `expected`: groups as JSON without quotes.
    fn check(records: &[(u64, &str, u64, &[&str])], given: &[(&str, &str)], expected: &[&str], dropped: u64) {
        let pieces = records.iter().map(|(seconds, who, length, names)| {
            let mut writer = RowWriter::new(&SEEN);
            let mut list = Vec::new();
            for name in *names {
                filter::record::list_push(&mut list, RowWriter::new(&NAMES).text("", name).row());
            }
            if !who.is_empty() {
                writer.text("who", who);
            }
            writer.time("seen", seconds * 1_000_000_000).number("length", *length).rows("names", &list);
            let block = Descriptor { time: seconds * 1_000_000_000, ..Descriptor::default() };
            (block, writer.row().to_vec())
        });
        let outcome = Chain::pieces(Type::Record, None, pieces.collect()).schema(&SEEN).then(&KIND, given).run();
        let schema = {
            let mut params = Params::new();
            for param in KIND.params {
                for (_, text) in given.iter().filter(|(key, _)| *key == param.key) {
                    params.set(param.key, param.kind.parse(text).unwrap());
                }
            }
            schema(&params, &[&SEEN]).unwrap()
        };
        let shown = outcome.blocks.iter().map(|block| {
            let row = Row::new(schema, &block.bytes).unwrap();
            let fields = schema.fields.iter().enumerate().filter_map(|(at, field)| {
                let value = match row.get(at)? {
                    filter::record::FieldValue::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                    filter::record::FieldValue::Number(number) => number.to_string(),
                    filter::record::FieldValue::Duration(ns, _) => format!("{ns}ns"),
                    filter::record::FieldValue::Time(time) => format!("{}s", time / 1_000_000_000),
                    other => format!("{other:?}"),
                };
                Some(format!("{}={value}", field.name))
            });
            fields.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{given:?}");
        assert_eq!(outcome.counters("by").drops.get("more groups than groups="), dropped);
    }

    /// Two requests in one process may group by the same name with values of two types.
    #[test]
    fn records_are_those_that_the_check_found() {
        let groups =
            |kind| made("by", &[("who".to_string(), kind), ("count".to_string(), FieldType::Number)], &[]).unwrap();
        static AS_CHECKED: Kind = Kind::new("by", "", |params, env| {
            let id = params.number("groups").and_then(|id| u32::try_from(id).ok());
            let mut params = params.clone();
            params.set_records(id.ok_or_else(|| ParamError::system("no id"))?);
            make(&params, env)
        })
        .params(KIND.params)
        .takes(&[Type::Record])
        .gives(Type::Record)
        .mode(Mode::Serial);
        for kind in [FieldType::Text, FieldType::Address] {
            let id = groups(kind).id();
            let pieces = vec![(Descriptor::default(), RowWriter::new(&SEEN).text("who", "a").row().to_vec())];
            let given = [("field", "who"), ("groups", &id.to_string())];
            let outcome = Chain::pieces(Type::Record, None, pieces).schema(&SEEN).then(&AS_CHECKED, &given).run();
            let ids: Vec<_> = outcome.blocks.iter().map(|block| filter::record::schema_id(&block.bytes)).collect();
            assert_eq!(ids, [Some(id)], "{kind:?}");
        }
    }

    #[test]
    fn groups() {
        let records: [(u64, &str, u64, &[&str]); 5] = [
            (1, "a", 10, &["x", "y"]),
            (1, "b", 5, &[]),
            (2, "a", 20, &["x", "x"]),
            (9, "", 1, &["y"]),
            (9, "a", 30, &[]),
        ];
        check(&records, &[("field", "who")], &["who=a count=3", "count=1", "who=b count=1"], 0);
        check(&records, &[("field", "who"), ("top", "1")], &["who=a count=3"], 0);
        check(
            &records,
            &[("field", "who"), ("sum", "length"), ("avg", "length"), ("p99", "length")],
            &[
                "who=a count=3 sum.length=60 avg.length=20 p99.length=30",
                "count=1 sum.length=1 avg.length=1 p99.length=1",
                "who=b count=1 sum.length=5 avg.length=5 p99.length=5",
            ],
            0,
        );
        check(
            &records,
            &[
                ("field", "event_type"),
                ("min", "length"),
                ("max", "length"),
                ("median", "length"),
                ("stddev", "length"),
            ],
            &["event_type=seen count=5 min.length=1 max.length=30 median.length=10 stddev.length=12"],
            0,
        );
        check(
            &records,
            &[("field", "event_type"), ("distinct", "who,length"), ("first", "who"), ("last", "names,who")],
            &["event_type=seen count=5 distinct.who=2 distinct.length=5 first.who=a last.names=y last.who=a"],
            0,
        );
        check(
            &records,
            &[("field", "who"), ("interval", "seen"), ("jitter", "seen")],
            &["who=a count=3 interval.seen=4000000000ns jitter.seen=4242640687ns", "count=1", "who=b count=1"],
            0,
        );
        check(&records, &[("field", "names")], &["count=2", "names=x count=2", "names=y count=2"], 0);
        check(&records, &[("field", "event_type")], &["event_type=seen count=5"], 0);
        check(&records, &[("field", "who"), ("groups", "1")], &["who=a count=3"], 2);
        check(
            &records,
            &[("field", "who"), ("every", "2s")],
            &[
                "timestamp=0s who=a count=1",
                "timestamp=0s who=b count=1",
                "timestamp=2s who=a count=1",
                "timestamp=8s count=1",
                "timestamp=8s who=a count=1",
            ],
            0,
        );
        check(&[], &[("field", "who")], &[], 0);
    }

    #[test]
    fn every_aggregate_has_its_parameter_and_refuses_fields_that_it_cannot_measure() {
        let check = |key: &'static str, name: &str, wrong: Option<&str>| {
            let mut params = Params::new();
            params.set("field", ParamType::List.parse("who").unwrap());
            params.set(key, ParamType::Text.parse(name).unwrap());
            let found = schema(&params, &[&SEEN]).err().map(|error| (error.message, error.within));
            assert_eq!(found, wrong.map(|wrong| (format!("`{name}` {wrong}"), Some(0..name.len() as u32))), "{key}");
        };
        for aggregate in &AGGREGATES {
            assert!(KIND.params.iter().any(|param| param.key == aggregate.key), "{}", aggregate.key);
        }
        check("sum", "who", Some("is no number"));
        check("jitter", "length", Some("is no time"));
        check("distinct", "names", None);
        check("first", "who", None);
    }

    /// Flows were grouped by when their blocks came: minutes after their last packets.
    #[test]
    fn intervals_are_those_of_the_records_own_time() {
        static TIMED: Schema = Schema::new("timed", &[Field::new("timestamp", FieldType::Time)]);
        let pieces = [1, 2, 61, 5].map(|seconds: u64| {
            let row = RowWriter::new(&TIMED).time("timestamp", seconds * 1_000_000_000).row().to_vec();
            (Descriptor { time: 3_600_000_000_000, ..Descriptor::default() }, row)
        });
        let given = [("field", "event_type"), ("every", "1min")];
        let outcome = Chain::pieces(Type::Record, None, pieces.to_vec()).schema(&TIMED).then(&KIND, &given).run();
        let counts = outcome.blocks.iter().map(|block| {
            let row = Row::new(made_with_id(filter::record::schema_id(&block.bytes).unwrap()).unwrap(), &block.bytes)
                .unwrap();
            (row.number("timestamp").unwrap() / 1_000_000_000, row.number("count").unwrap())
        });
        assert_eq!(counts.collect::<Vec<_>>(), [(0, 2), (60, 2)]);
        assert_eq!(outcome.counters("by").events.get("records behind their interval"), 1);
    }

    #[test]
    fn many_groups_leave_in_pieces_and_none_is_lost() {
        let names: Vec<String> = (0..1000).map(|number| format!("{number:04}")).collect();
        let records: Vec<(u64, &str, u64, &[&str])> =
            names.iter().enumerate().map(|(at, name)| (at as u64 / 100, name.as_str(), 1, &[][..])).collect();
        let expected: Vec<String> = names.iter().map(|name| format!("who={name} count=1")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&records, &[("field", "who")], &expected, 0);
        let timed: Vec<String> =
            names.iter().enumerate().map(|(at, name)| format!("timestamp={}s who={name} count=1", at / 100)).collect();
        let timed: Vec<&str> = timed.iter().map(String::as_str).collect();
        check(&records, &[("field", "who"), ("every", "1s")], &timed, 0);
    }
}
