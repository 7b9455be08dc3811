//! Sorts records by fields.

use crate::parts::fields::{Column, Names, known};
use filter::batch::places;
use filter::prelude::*;
use filter::record::FieldValue;
use std::cmp::Ordering;
use std::net::IpAddr;

/// The kind `sort`.
pub static KIND: Kind = Kind::new("sort", "gives records in the order of fields", make)
    .also(&["order", "orderby", "rank"])
    .help(
        "`sort NAME ...` holds all records until the input ends, and gives them with the largest value of the first field \
         first, or with `order=up` the smallest; records with equal values are in the order of the next field. `NAME:up` and \
         `NAME:down` say the order of one field: `sort src_ip:up count`. Records with equal values in all fields keep their \
         order; those without a field come last. `top=N` gives the first N only, and holds no more. Records that do not fit \
         into `memory` are dropped and counted.",
    )
    .params(&[
        Param::new("field", ParamType::List, "the fields, the most important first").required().main(),
        Param::new("order", ParamType::Choice(&["down", "up"]), "the largest first, or the smallest").default("down"),
        Param::new("top", ParamType::Number, "give only this number of records"),
        Param::new("memory", ParamType::Size, "bytes of records held, at most").default("256M"),
    ])
    .takes(&[Type::Record])
    .mode(Mode::Serial)
    .gives(Type::Record)
    .reads_fields(|params| fields(params).map(|(name, _)| name).collect())
    .names_fields(check)
    .examples(&[
        Example { request: "pcap browse.pcap | histogram | sort count top=2 | fields low count", output: SIZES },
        Example { request: "pcap browse.pcap | flows | sort proto:up flow.age | fields proto flow.age", output: FLOWS },
    ]);

const FLOWS: &str = "proto\tflow.age\nTCP\t30\nTCP\t1\nUDP\t0\n";
const SIZES: &str = "low\tcount\n32\t22\n1024\t15\n";

/// Records given per call.
const PIECE: usize = 64;

/// Memory cost of a held record, apart from its bytes and its keys.
const OVERHEAD: u64 = 80;

fn check(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<&'static Schema>, ParamError> {
    let mut at = 0;
    for (text, (name, _)) in params.list("field").iter().zip(fields(params)) {
        known(&name, schemas, "field", at..at + name.len()).map_err(|error| match name.contains(':') {
            true => error.with_help("an order is `NAME:up` or `NAME:down`"),
            false => error,
        })?;
        at += text.len();
    }
    Ok(Vec::new())
}

/// The fields, and whether the largest value of each comes first.
fn fields(params: &Params) -> impl Iterator<Item = (String, bool)> {
    let is_down = params.text("order") != Some("up");
    params.list("field").iter().map(move |text| match text.rsplit_once(':') {
        Some((name, "up")) => (name.to_string(), false),
        Some((name, "down")) => (name.to_string(), true),
        _ => (text.clone(), is_down),
    })
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let (names, are_down) = fields(params).unzip();
    Ok(Instance::filter(Sort {
        names: Names::new(names, env),
        are_down,
        top: params.number("top").map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(usize::MAX)),
        room: params.number("memory").unwrap_or(0),
        held: Vec::new(),
        given: None,
    }))
}

/// A value to sort by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(u64),
    Address(IpAddr),
    Text(Box<[u8]>),
}

impl Key {
    fn of(value: FieldValue<'_>) -> Key {
        match value {
            FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _) => {
                Key::Number(number)
            }
            FieldValue::Flag(flag) => Key::Number(flag.into()),
            FieldValue::Text(text) => Key::Text(text.into()),
            FieldValue::Address(address) => Key::Address(address),
            FieldValue::Rows(rows) => Key::Number(rows.count() as u64),
        }
    }

    /// Bytes beyond those of the key itself.
    fn bytes(&self) -> usize {
        match self {
            Key::Text(text) => text.len(),
            Key::Number(_) | Key::Address(_) => 0,
        }
    }
}

struct Held {
    /// The value of each field.
    keys: Box<[Option<Key>]>,
    time: u64,
    bytes: Box<[u8]>,
}

impl Held {
    /// Bytes of memory that it takes.
    fn takes(&self) -> u64 {
        let keys = self.keys.iter().map(|key| size_of::<Option<Key>>() + key.as_ref().map_or(0, Key::bytes));
        (self.bytes.len() + keys.sum::<usize>()) as u64 + OVERHEAD
    }

    fn order(&self, other: &Held, are_down: &[bool]) -> Ordering {
        let each = self.keys.iter().zip(&other.keys).zip(are_down);
        let ordered = each.map(|((one, other), is_down)| match (one, other) {
            (Some(one), Some(other)) if *is_down => other.cmp(one),
            (Some(one), Some(other)) => one.cmp(other),
            (one, other) => other.is_some().cmp(&one.is_some()),
        });
        ordered.fold(Ordering::Equal, Ordering::then)
    }
}

struct Sort {
    names: Names,
    /// For each field, whether the largest value comes first.
    are_down: Vec<bool>,
    top: usize,
    /// Bytes of memory left.
    room: u64,
    held: Vec<Held>,
    /// Number of records given so far; `None`: still collecting.
    given: Option<usize>,
}

impl Sort {
    fn shorten(&mut self) {
        self.held.sort_by(|one, other| one.order(other, &self.are_down));
        for gone in self.held.drain(self.top.min(self.held.len())..) {
            self.room += gone.takes();
        }
    }
}

impl Filter for Sort {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for place in places(batch.live()) {
            let block = batch.block(place);
            let bytes = cx.rings.bytes(block);
            let Some((row, columns)) = self.names.row(bytes) else {
                cx.drop(1, "not a record");
                continue;
            };
            let first = |column: &Option<Column>| column.as_ref()?.first(&row).map(Key::of);
            let held = Held { keys: columns.iter().map(first).collect(), time: block.time, bytes: bytes.into() };
            if self.held.len() >= self.top.saturating_mul(2).max(PIECE) {
                self.shorten();
            }
            match self.room.checked_sub(held.takes()) {
                Some(room) => {
                    self.room = room;
                    self.held.push(held);
                }
                None => cx.drop(1, "more records than fit into memory="),
            }
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        if self.given.is_none() {
            self.shorten();
        }
        let from = self.given.unwrap_or(0);
        for record in self.held.iter().skip(from).take(PIECE) {
            match cx.rings.append_copy(cx.own, &[&record.bytes]) {
                Some(mut block) => {
                    block.time = record.time;
                    cx.emit(block);
                }
                None => cx.drop(1, "longer than a block"),
            }
        }
        self.given = Some(from + PIECE);
        Ok(if from + PIECE < self.held.len() { Status::More } else { Status::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    static SEEN: Schema =
        Schema::new("seen", &[Field::new("length", FieldType::Number), Field::new("id", FieldType::Number)]);

    /// Sorts records of these lengths (`None` = no length field) and checks the ids in output order.
    fn check(lengths: &[Option<u64>], given: &[(&str, &str)], expected: &[u64], dropped: u64) {
        let pieces = lengths.iter().zip(0..).map(|(length, id)| {
            let mut writer = RowWriter::new(&SEEN);
            if let Some(length) = length {
                writer.number("length", *length);
            }
            (Descriptor { time: id, ..Descriptor::default() }, writer.number("id", id).row().to_vec())
        });
        let outcome = Chain::pieces(Type::Record, None, pieces.collect()).schema(&SEEN).then(&KIND, given).run();
        let ids = outcome.blocks.iter().map(|block| Row::new(&SEEN, &block.bytes).unwrap().number("id").unwrap());
        assert_eq!(ids.collect::<Vec<_>>(), expected, "{given:?}");
        assert!(
            outcome
                .blocks
                .iter()
                .all(|block| block.descriptor.time == Row::new(&SEEN, &block.bytes).unwrap().number("id").unwrap())
        );
        assert_eq!(outcome.counters("sort").drops.get("more records than fit into memory="), dropped);
    }

    #[test]
    fn orders() {
        let lengths = [Some(3), None, Some(7), Some(3), Some(0)];
        check(&lengths, &[("field", "length")], &[2, 0, 3, 4, 1], 0);
        check(&lengths, &[("field", "length"), ("order", "up")], &[4, 0, 3, 2, 1], 0);
        check(&lengths, &[("field", "length"), ("top", "2")], &[2, 0], 0);
        check(&lengths, &[("field", "length"), ("top", "0")], &[], 0);
        check(&[], &[("field", "length")], &[], 0);
    }

    #[test]
    fn several_fields_each_in_its_order() {
        let lengths = [Some(3), None, Some(7), Some(3), Some(0)];
        check(&lengths, &[("field", "length"), ("field", "id")], &[2, 3, 0, 4, 1], 0);
        check(&lengths, &[("field", "length:up"), ("field", "id")], &[4, 3, 0, 2, 1], 0);
        check(&lengths, &[("field", "length:down"), ("field", "id"), ("order", "up")], &[2, 0, 3, 4, 1], 0);
        check(&lengths, &[("field", "length"), ("field", "id"), ("top", "2")], &[2, 3], 0);
    }

    #[test]
    fn what_has_no_room_is_dropped_and_the_first_need_little() {
        let lengths: Vec<Option<u64>> = (0..1000).map(Some).collect();
        check(&lengths, &[("field", "length"), ("memory", "600")], &[3, 2, 1, 0], 996);
        check(&lengths, &[("field", "length"), ("memory", "16k"), ("top", "3")], &[999, 998, 997], 0);
        let all: Vec<u64> = (0..1000).rev().collect();
        check(&lengths, &[("field", "length")], &all, 0);
    }
}
