//! Rows in, and files of Parquet read back.

use super::KIND;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use buffer::Descriptor;
use filter::record::{Unit, list_push};
use filter::{Failure, Field, FieldType, RowWriter, Schema, Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::path::Path;
use testkit::{Chain, Outcome};

const DAY_NS: u64 = 24 * 3_600_000_000_000;

static NAMES: Schema = Schema::new("names", &[Field::new("", FieldType::Text)]);
static ANSWERS: Schema =
    Schema::new("answers", &[Field::new("rrname", FieldType::Text), Field::new("ttl", FieldType::Number)]);
static HEADERS: Schema =
    Schema::map("headers", &[Field::new("name", FieldType::Text), Field::new("value", FieldType::Text)]);
static MAIL: Schema = Schema::object("email", &[Field::new("from", FieldType::Text)]);
static SEEN: Schema = Schema::new(
    "seen",
    &[
        Field::new("timestamp", FieldType::Time),
        Field::new("src_ip", FieldType::Address),
        Field::new("dns.id", FieldType::Number),
        Field::new("dns.answers", FieldType::Rows(&ANSWERS)),
        Field::new("dns.flags.aa", FieldType::Flag),
        Field::new("names", FieldType::Rows(&NAMES)),
        Field::new("headers", FieldType::Rows(&HEADERS)),
        Field::new("email", FieldType::Rows(&MAIL)),
        Field::new("age", FieldType::Duration(Unit::Fraction)),
        Field::new("text", FieldType::Text),
    ],
);
static OTHER: Schema = Schema::new("other", &[Field::new("count", FieldType::Number)]);

/// A row with everything in it.
fn full(number: u64) -> Vec<u8> {
    let (mut answers, mut names, mut headers, mut mail) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    list_push(&mut answers, RowWriter::new(&ANSWERS).text("rrname", "a").number("ttl", 7).row_of());
    list_push(&mut answers, RowWriter::new(&ANSWERS).text("rrname", "b").row_of());
    list_push(&mut names, RowWriter::new(&NAMES).text("", "h2").row_of());
    list_push(&mut headers, RowWriter::new(&HEADERS).text("name", "server").text("value", "x").row_of());
    list_push(&mut headers, RowWriter::new(&HEADERS).text("value", "a key is missing").row_of());
    list_push(&mut mail, RowWriter::new(&MAIL).text("from", "me").row_of());
    let mut row = RowWriter::new(&SEEN);
    row.time("timestamp", 5).address("src_ip", "2001:db8::1".parse().unwrap()).number("dns.id", number);
    row.rows("dns.answers", &answers).flag("dns.flags.aa", true).rows("names", &names);
    row.rows("headers", &headers).rows("email", &mail).number("age", 1_500_000_000).text("text", b"caf\xe9");
    row.row().to_vec()
}

trait RowOf {
    fn row_of(&self) -> &[u8];
}

impl RowOf for RowWriter {
    fn row_of(&self) -> &[u8] {
        self.row()
    }
}

fn other(count: u64) -> Vec<u8> {
    RowWriter::new(&OTHER).number("count", count).row().to_vec()
}

fn run(rows: Vec<(u64, Vec<u8>)>, given: &[(&str, &str)]) -> Outcome {
    let piece = |(time, row)| (Descriptor { time, ..Descriptor::default() }, row);
    let chain = Chain::pieces(Type::Record, None, rows.into_iter().map(piece).collect());
    chain.schema(&SEEN).schema(&OTHER).then(&KIND, given).run()
}

/// The files below a folder, by their paths from there.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_path_buf()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().to_str().unwrap().to_string()),
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
    assert_eq!(batches.len(), 1);
    batches.into_iter().next().unwrap()
}

#[test]
fn values_are_those_of_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let empty = RowWriter::new(&SEEN).row().to_vec();
    let outcome = run(vec![(1, full(3)), (2, empty)], &[("dir", folder.path().to_str().unwrap())]);
    assert_eq!(outcome.failure, None);
    assert_eq!(files(folder.path()), ["000001.parquet"]);
    let batch = read(&folder.path().join("000001.parquet"));
    let names: Vec<_> =
        batch.schema().fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect();
    let expected = [
        "event_type: Utf8",
        "timestamp: Timestamp(ns, \"UTC\")",
        "src_ip: Utf8",
        "dns: Struct(\"id\": UInt64, \"answers\": List(Struct(\"rrname\": Utf8, \"ttl\": UInt64)), \"flags\": Struct(\"aa\": Boolean))",
        "names: List(Utf8)",
        "headers: Map(\"entries\": non-null Struct(\"keys\": non-null Utf8, \"values\": Utf8), unsorted)",
        "email: Struct(\"from\": Utf8)",
        "age: Float64",
        "text: Utf8",
    ];
    assert_eq!(names, expected);
    let text = arrow_text(&batch);
    assert_eq!(text[0], "seen 2001:db8::1 id=3 answers=2 headers=1 from=me age=1.5 text=caf\\xe9");
    let nulls = (1..batch.num_columns()).filter(|at| batch.column(*at).is_null(1)).count();
    assert_eq!(nulls, batch.num_columns() - 1, "all but the name of the schema");
}

fn arrow_text(batch: &RecordBatch) -> Vec<String> {
    let text = |name: &str| batch.column_by_name(name).unwrap().as_string::<i32>().clone();
    let dns = batch.column_by_name("dns").unwrap().as_struct();
    let id = dns.column_by_name("id").unwrap().as_primitive::<UInt64Type>();
    let answers = dns.column_by_name("answers").unwrap().as_list::<i32>();
    let headers = batch.column_by_name("headers").unwrap().as_map();
    let from = batch.column_by_name("email").unwrap().as_struct().column(0).as_string::<i32>();
    let age = batch.column_by_name("age").unwrap().as_primitive::<Float64Type>();
    let row = |at: usize| {
        let (kind, address, words) = (text("event_type"), text("src_ip"), text("text"));
        let (kind, address, words) = (kind.value(at), address.value(at), words.value(at));
        let (answers, headers) = (answers.value_length(at), headers.value_length(at));
        let (id, from) = (id.value(at), from.value(at));
        format!(
            "{kind} {address} id={id} answers={answers} headers={headers} from={from} age={} text={words}",
            age.value(at)
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

#[test]
fn days_and_kinds_have_folders() {
    let folder = tempfile::tempdir().unwrap();
    let given = [("dir", folder.path().to_str().unwrap()), ("by", "day,kind")];
    let rows = || vec![(0, full(1)), (DAY_NS, full(2)), (DAY_NS, other(1)), (DAY_NS + 1, full(3))];
    assert_eq!(run(rows(), &given).failure, None);
    let first = [
        "day=1970-01-01/kind=seen/000001.parquet",
        "day=1970-01-02/kind=other/000001.parquet",
        "day=1970-01-02/kind=seen/000001.parquet",
    ];
    assert_eq!(files(folder.path()), first);
    assert_eq!(read(&folder.path().join(first[2])).num_rows(), 2);
    // Another run adds files.
    assert_eq!(run(rows(), &given).failure, None);
    assert_eq!(files(folder.path()).len(), 6);
    let hours = [("dir", folder.path().join("hours").to_str().unwrap()), ("by", "hour")]
        .map(|(key, text)| (key, text.to_string()));
    let hours: Vec<(&str, &str)> = hours.iter().map(|(key, text)| (*key, text.as_str())).collect();
    assert_eq!(run(vec![(DAY_NS - 1, full(1))], &hours).failure, None);
    assert!(folder.path().join("hours/hour=1970-01-01T23/000001.parquet").is_file());
}

#[test]
fn kinds_without_folders_share_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(vec![(0, full(1)), (0, other(1))], &[("dir", folder.path().to_str().unwrap())]);
    let text = "records of `seen` and of `other` would share a file; `by=kind` gives each kind a folder";
    assert_eq!(outcome.failure, Some(Failure::Request(text.into())));
    // The failed run leaves no part of a file.
    assert_eq!(files(folder.path()), [""; 0]);
    let check = |given: &[(&str, &str)], schemas: &[&'static Schema]| {
        let params = testkit::chain::params(&KIND, given);
        (KIND.records.unwrap())(&params, schemas).map(drop).map_err(|error| error.message)
    };
    let several = "records of several kinds come here: `seen`, `other`; a table has one schema";
    assert_eq!(check(&[("dir", "x")], &[&SEEN, &OTHER]), Err(several.into()));
    assert_eq!(check(&[("dir", "x"), ("by", "kind")], &[&SEEN, &OTHER]), Ok(()));
    static ALSO: Schema = Schema::new("seen", &[Field::new("count", FieldType::Number)]);
    let alike = "two kinds of records are called `seen`, and would share a folder";
    assert_eq!(check(&[("dir", "x"), ("by", "kind")], &[&SEEN, &ALSO]), Err(alike.into()));
    assert_eq!(check(&[("dir", "x"), ("by", "week")], &[]), Err("files are not divided by `week`".into()));
    assert_eq!(check(&[("dir", "x"), ("by", "day day")], &[]), Err("`day` is there twice".into()));
}

#[test]
fn files_are_complete_at_their_limits() {
    let check = |given: (&str, &str), expected: &[u64]| {
        let folder = tempfile::tempdir().unwrap();
        let rows = (0..20_000).map(|number| (number * 1_000_000, other(number))).collect();
        let outcome = run(rows, &[("dir", folder.path().to_str().unwrap()), given]);
        assert_eq!(outcome.failure, None);
        let files = files(folder.path());
        let rows = |name: &String| {
            let file = File::open(folder.path().join(name)).unwrap();
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().metadata().file_metadata().num_rows() as u64
        };
        assert_eq!(files.iter().map(rows).collect::<Vec<_>>(), expected, "{given:?}");
        assert_eq!(outcome.counters("parquet").events.get("files"), expected.len() as u64);
    };
    // A table of 8,192 rows is written at once.
    check(("rotate-rows", "10000"), &[16_384, 3_616]);
    check(("rotate-size", "1k"), &[8_192, 8_192, 3_616]);
    check(("rotate-size", "100M"), &[20_000]);
    check(("max-bytes", "4k"), &[8_192]);
}

#[test]
fn times_end_files() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..3).map(|minute| (minute * 60_000_000_000, other(minute))).collect();
    let outcome = run(rows, &[("dir", folder.path().to_str().unwrap()), ("rotate-time", "1min")]);
    assert_eq!(outcome.failure, None);
    assert_eq!(files(folder.path()), ["000001.parquet", "000002.parquet", "000003.parquet"]);
}

/// Of 40 days at most 16 files are under way; all of them end up whole.
#[test]
fn many_days_at_once_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..80).map(|number| (number % 40 * DAY_NS, other(number))).collect();
    let outcome = run(rows, &[("dir", folder.path().to_str().unwrap()), ("by", "day")]);
    assert_eq!(outcome.failure, None);
    let files = files(folder.path());
    assert_eq!(files.len(), 80);
    assert!(files.iter().all(|name| name.ends_with(".parquet")));
}

/// Every kind has columns with different names, and rows without any field set become rows of nulls.
#[test]
fn every_schema_is_a_table() {
    use crate::parts::table::Table;
    let kinds = filters::KINDS.iter().chain(filters::conversations::KINDS);
    for schema in kinds.flat_map(|kind| [kind.schema, kind.other_schema]).flatten() {
        let mut table = Table::new(schema);
        let arrow = table.arrow();
        let mut names: Vec<_> = arrow.fields().iter().map(|field| field.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), arrow.fields().len(), "{}", schema.name);
        let row = RowWriter::new(schema);
        table.push(&filter::Row::new(schema, row.row()).unwrap(), row.row().len());
        let batch = table.take().unwrap().unwrap();
        assert!(
            (0..batch.num_columns()).all(|at| arrow.field(at).name() == "event_type" || batch.column(at).is_null(0))
        );
    }
}
