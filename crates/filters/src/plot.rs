//! Draws a field of records over time, or its sum per second, as an SVG picture.
//!
//! This file collects values from records. `plot/lines.rs` keeps lines and points; crate `chart` draws the picture.

mod lines;

use crate::parts::ending;
use crate::parts::fields::{Column, Names, known};
use crate::parts::lines::Lines;
use crate::parts::room::Room;
use base::limits::SECOND_NS;
use base::terminal;
use chart::{Chart, Scale};
use filter::prelude::*;
use filter::record::FieldValue;
use lines::{Drawn, Refused};

/// The kind `plot`.
pub static KIND: Kind = Kind::new("plot", "draws a field of records, or its rate, over time as SVG", make)
    .also(&["graph", "chart", "iograph"])
    .help(
        "`plot FIELD` draws the values of a number field over time, one point for each record. `plot FIELD every=1s` draws \
         how much the field adds up to in each such interval, for a second; `plot every=1s` how many records there were. \
         `by=FIELD` draws a line for each value of that field: the `top` largest by what they add up to. `x=FIELD` takes \
         another number field than `timestamp` for the axis along the bottom. Of a message its metadata are the record.\n\n\
         The picture is written when the input ends, to standard output or to `out`. Records without \
         `y` or `x` are left out and counted; those without `by` have a line of their own, `(none)`. A time axis of two minutes or more has the times of the clock, UTC. At most 1048576 points and 4096 lines are kept; what is beyond them is dropped and counted.",
    )
    .params(&[
        Param::new("y", ParamType::Text, "the field to draw; with every= the number of records if not given").main(),
        Param::new("x", ParamType::Text, "the field along the bottom").default(TIMESTAMP),
        Param::new("by", ParamType::Text, "draw a line for each value of this field"),
        Param::new("every", ParamType::Duration, "add up the records of each such interval, and draw the rate"),
        Param::new("top", ParamType::Number, "draw this number of lines, the largest").default("6"),
        Param::new("title", ParamType::Text, "what stands above the picture"),
        Param::new("out", ParamType::Path, "file to write to; standard output if not given, or if it is -"),
        Lines::OVERWRITE,
        Room::MAX_BYTES,
        Room::MIN_FREE,
    ])
    .takes(&[Type::Record, Type::Message])
    .reads_fields(|params| ["x", "y", "by"].iter().filter_map(|key| params.text(key)).map(String::from).collect())
    .mode(Mode::Serial)
    .sink()
    .completes(|params| ending::check(params, "out", &["svg"]))
    .names_fields(|params, schemas| fields(params, schemas).map(|_| Vec::new()))
    .examples(&[Example {
        request: "pcap browse.pcap | packets | plot frame.len every=1s by=proto out=rates.svg",
        output: "",
    }]);

const TIMESTAMP: &str = "timestamp";

const _: () = assert!(base::limits::PLOT_POINTS == 1_048_576 && base::limits::PLOT_LINES == 4096, "the manual says so");

/// The fields to draw: parameter key, name and type of each.
fn fields(params: &Params, schemas: &[&'static Schema]) -> Result<Vec<(String, FieldType)>, ParamError> {
    if params.text("y").is_none() && params.number("every").is_none() {
        return Err(ParamError::of_request("`plot` draws a field, or how many records come in an interval")
            .with_help("plot frame.len, or plot every=1s"));
    }
    if params.number("every").is_some() && params.text("x").is_some_and(|x| x != TIMESTAMP) {
        return Err(ParamError::new("every", "a rate is drawn over time").with_help("leave out `x=` or `every=`"));
    }
    let mut fields = Vec::new();
    for key in ["x", "y", "by"] {
        let Some(name) = params.text(key) else { continue };
        let kind = known(name, schemas, key, 0..name.len())?;
        let is_number = kind.is_number() || matches!(kind, FieldType::Flag);
        if key != "by" && !is_number && !schemas.is_empty() {
            return Err(ParamError::new(key, format!("`{name}` is no number")));
        }
        fields.push((name.to_string(), kind));
    }
    Ok(fields)
}

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let names: Vec<String> = fields(params, &[])?.into_iter().map(|(name, _)| name).collect();
    let every = params.number("every").filter(|every| *every > 0);
    let (y, by) = (params.text("y"), params.text("by"));
    let what = y.unwrap_or("records").to_string();
    let what = if every.is_some() { format!("{what} per second") } else { what };
    let title = match (params.text("title"), by) {
        (Some(title), _) => title.to_string(),
        (None, Some(by)) => format!("{what}, by {by}"),
        (None, None) => what.clone(),
    };
    Ok(Instance::filter(Plot {
        lines: Lines::to("out", params, env)?,
        names: Names::new(names, env),
        drawn: Drawn::new(every),
        has_y: y.is_some(),
        has_by: by.is_some(),
        x: params.text("x").unwrap_or(TIMESTAMP).to_string(),
        is_time: false,
        title: terminal::line(&title).into_owned(),
        what: terminal::line(&what).into_owned(),
        top: params.number("top").map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(usize::MAX)),
        of_messages: env.input.has(Type::Message),
        name: String::new(),
    }))
}

struct Plot {
    lines: Lines,
    names: Names,
    drawn: Drawn,
    has_y: bool,
    /// Each line has a name.
    has_by: bool,
    /// The field for the horizontal axis, and whether it holds times.
    x: String,
    is_time: bool,
    title: String,
    /// Label of the vertical axis.
    what: String,
    top: usize,
    /// The records are metadata of messages.
    of_messages: bool,
    /// Scratch space for the name of a line.
    name: String,
}

impl Plot {
    fn add(&mut self, block: &Descriptor, cx: &mut Context<'_>) {
        let Some((row, columns)) = self.names.row(cx.rings.bytes(block)) else { return cx.drop(1, "not a record") };
        let mut columns = columns.iter();
        let mut value = || first(columns.next()?.as_ref(), &row);
        let x = match value() {
            Some(FieldValue::Time(time)) => {
                self.is_time = true;
                Some(time)
            }
            other => other.and_then(number),
        };
        let y = if self.has_y { value().and_then(number) } else { Some(1) };
        self.name.clear();
        match value() {
            Some(value) => append_name(&mut self.name, &value),
            None if self.has_by => self.name.push_str(NO_NAME),
            None => {}
        }
        let (Some(x), Some(y)) = (x, y) else { return cx.count("records without the field", 1) };
        match self.drawn.add(&self.name, x, y) {
            Ok(()) => {}
            Err(Refused::Line) => cx.drop(1, "more lines than are kept"),
            Err(Refused::Point) => cx.drop(1, "more points than are kept"),
        }
    }

    fn picture(&mut self, cx: &mut Context<'_>) -> String {
        let begin = self.drawn.begin();
        let unit = if self.is_time { SECOND_NS as f64 } else { 1.0 };
        let zero = if self.is_time { begin.unwrap_or(0) } else { 0 };
        let (series, left_out) = self.drawn.series(self.top, zero, unit);
        if left_out > 0 {
            cx.notice(format!("plot: {left_out} more lines are not drawn: top= says how many are"));
        }
        let longest = series.iter().filter_map(|series| series.points.last()).map(|point| point.0).fold(0.0, f64::max);
        let (scale, across) = match begin.filter(|_| self.is_time) {
            Some(begin) => over_time(begin, longest),
            None => (Scale::Count, self.x.clone()),
        };
        let (title, up, across) = (self.title.as_str(), self.what.as_str(), terminal::line(&across));
        Chart { title, across: &across, scale, up, up_scale: Scale::Count, series }.svg()
    }
}

/// A longer axis has the times of the clock.
const CLOCK_SECONDS: f64 = 120.0;

/// The scale and the label of an axis of this many seconds from `begin` (ns since 1970) on.
fn over_time(begin: u64, seconds: f64) -> (Scale, String) {
    let whole = begin - begin % SECOND_NS;
    let text =
        |from: usize, to: usize, time| String::from_utf8_lossy(&packet::time::rfc3339(time)[from..to]).into_owned();
    if seconds < CLOCK_SECONDS {
        let begin = packet::time::rfc3339(begin);
        return (Scale::Count, format!("seconds since {}", String::from_utf8_lossy(&begin)));
    }
    (Scale::Clock(begin / SECOND_NS), format!("time (UTC), from {} {}", text(0, 10, whole), text(11, 19, whole)))
}

fn first<'a>(column: Option<&Column>, row: &Row<'a>) -> Option<FieldValue<'a>> {
    column?.first(row)
}

fn number(value: FieldValue<'_>) -> Option<u64> {
    match value {
        FieldValue::Number(number) | FieldValue::Time(number) | FieldValue::Duration(number, _) => Some(number),
        FieldValue::Flag(flag) => Some(flag.into()),
        _ => None,
    }
}

/// The name of the line of records without the field of `by`.
const NO_NAME: &str = "(none)";

/// Names of lines are compared up to this many characters.
const NAME_CHARACTERS: usize = 256;

/// Appends a value to the name of a line, in readable form.
fn append_name(name: &mut String, value: &FieldValue<'_>) {
    use std::fmt::Write;
    // Writing to memory does not fail.
    let _ = match value {
        FieldValue::Number(number) | FieldValue::Duration(number, _) => write!(name, "{number}"),
        FieldValue::Time(time) => write!(name, "{}", String::from_utf8_lossy(&packet::time::rfc3339(*time))),
        FieldValue::Flag(flag) => write!(name, "{flag}"),
        FieldValue::Address(address) => write!(name, "{address}"),
        FieldValue::Text(text) => {
            let begin = &text[..text.len().min(4 * NAME_CHARACTERS)];
            write!(name, "{}", terminal::line(&String::from_utf8_lossy(begin)))
        }
        FieldValue::Rows(rows) => write!(name, "{}", rows.clone().count()),
    };
    if let Some((end, _)) = name.char_indices().nth(NAME_CHARACTERS) {
        name.truncate(end);
    }
}

impl Filter for Plot {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (_, block) in batch.iter() {
            if !self.of_messages || block.has(Flags::META) {
                self.add(block, cx);
            }
        }
        Ok(Status::Done)
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Made {
        let picture = self.picture(cx);
        self.lines.buffer().extend_from_slice(picture.trim_end().as_bytes());
        self.lines.line_done()?;
        self.lines.flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    static SEEN: Schema = Schema::new(
        "seen",
        &[
            Field::new("timestamp", FieldType::Time),
            Field::new("length", FieldType::Number),
            Field::new("who", FieldType::Text),
        ],
    );

    /// Runs `plot` on records of (ms, length, who); an empty `who` leaves the field out.
    fn run(records: &[(u64, Option<u64>, &str)], given: &[(&str, &str)]) -> testkit::chain::Outcome {
        let pieces = records.iter().map(|(ms, length, who)| {
            let mut writer = RowWriter::new(&SEEN);
            writer.time("timestamp", ms * 1_000_000);
            if let Some(length) = length {
                writer.number("length", *length);
            }
            if !who.is_empty() {
                writer.text("who", who);
            }
            (Descriptor::default(), writer.row().to_vec())
        });
        Chain::pieces(Type::Record, None, pieces.collect()).schema(&SEEN).then(&KIND, given).run()
    }

    fn check(records: &[(u64, Option<u64>, &str)], given: &[(&str, &str)], shown: &[&str], lines: usize) {
        let svg = run(records, given).stdout;
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(svg.matches("stroke-width").count(), lines, "{svg}");
        for text in shown {
            assert!(svg.contains(&format!(">{text}<")), "{text}: {svg}");
        }
    }

    const RECORDS: [(u64, Option<u64>, &str); 5] =
        [(1000, Some(10), "a<b"), (1500, Some(30), "c"), (2100, None, "c"), (4000, Some(90), ""), (4100, Some(7), "c")];

    #[test]
    fn pictures() {
        let since = "seconds since 1970-01-01T00:00:01.000000000Z";
        check(&RECORDS, &[("y", "length")], &["length", since, "0", "90"], 1);
        check(&RECORDS, &[("y", "length"), ("by", "who")], &["length, by who", "a&lt;b", "c"], 3);
        check(&RECORDS, &[("y", "length"), ("every", "1s")], &["length per second", "100"], 1);
        check(&RECORDS, &[("every", "500ms"), ("title", "how many")], &["how many", "records per second", "4"], 1);
        check(&RECORDS, &[("y", "length"), ("x", "length")], &["length", "0", "90"], 1);
        check(&[], &[("y", "length")], &["length"], 0);
    }

    #[test]
    fn long_names_are_whole() {
        let names = ["a".repeat(30) + "1", "a".repeat(30) + "2"];
        let records: Vec<_> =
            names.iter().flat_map(|name| [(1000, Some(1), &name[..]), (2000, Some(2), name)]).collect();
        check(&records, &[("y", "length"), ("by", "who")], &[&names[0], &names[1]], 2);
    }

    #[test]
    fn records_without_a_name_have_a_line_and_long_times_a_clock() {
        let records = [(1000, Some(1), "x"), (601_000, Some(2), "")];
        let time = "time (UTC), from 1970-01-01 00:00:01";
        check(&records, &[("y", "length"), ("by", "who")], &["x", "(none)", time, "00:02", "00:10"], 2);
    }

    #[test]
    fn what_is_not_drawn_is_said() {
        let outcome = run(&RECORDS, &[("y", "length"), ("by", "who"), ("top", "1")]);
        assert_eq!(outcome.notices, ["plot: 2 more lines are not drawn: top= says how many are"]);
        assert_eq!(outcome.counters("plot").events.get("records without the field"), 1);
        assert_eq!(outcome.stdout.matches("stroke-width").count(), 1);
    }

    #[test]
    fn refusals() {
        let check = |given: &[(&str, &str)], key: Option<&'static str>, message: &str| {
            let params = testkit::chain::params(&KIND, given);
            let error = fields(&params, &[&SEEN]).unwrap_err();
            assert_eq!((error.key, error.message.as_str()), (key, message));
        };
        check(&[], None, "`plot` draws a field, or how many records come in an interval");
        check(&[("y", "who")], Some("y"), "`who` is no number");
        check(&[("y", "lenght")], Some("y"), "no record that comes here has a field `lenght`");
        check(&[("y", "length"), ("x", "length"), ("every", "1s")], Some("every"), "a rate is drawn over time");
    }
}
