//! `streamline schema`: the fields of the records that filters give.

use crate::exit::{CommandError, Outcome};
use crate::{print_json, print_text};
use filter::record::Form;
use filter::{FieldType, Kind, Schema, Unit};
use serde_json::{Value, json};
use std::fmt::Write;
use streamline::registry;

/// List the fields of records and their types
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The filter that gives the records; without it, all filters that give records
    filter: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
The filters `where`, `fields`, `by` and `sort` take these names. `event_type` is the name of the schema, and every record has it. A
name behind a list, as in dns.answers.rdata, has a value for each row of the list.

Examples:
  streamline schema http
  streamline schema dns --json";

pub(crate) fn run(args: &Args) -> Outcome {
    let registry = registry();
    let kinds: Vec<(&Kind, &Schema)> = match &args.filter {
        None => registry.kinds().iter().filter_map(|kind| Some((*kind, kind.schema?))).collect(),
        Some(name) => {
            let Some(kind) = registry.find(name) else {
                let guess = registry.nearest(name).map_or(String::new(), |guess| format!("; did you mean `{guess}`?"));
                return Err(CommandError::Wrong(format!("no filter `{name}`{guess}")));
            };
            let schema = kind.schema.ok_or_else(|| {
                let why = match kind.records {
                    Some(_) => "its records have the fields that its parameters name",
                    None => "it gives no records",
                };
                CommandError::Wrong(format!("`{name}` has no schema: {why}"))
            })?;
            vec![(kind, schema)]
        }
    };
    if args.json {
        let all = kinds
            .iter()
            .map(|(kind, schema)| json!({ "filter": kind.name, "event_type": schema.name, "fields": fields(schema) }));
        return print_json(&Value::from(all.collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for (at, (kind, schema)) in kinds.iter().enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{} (event_type {})", kind.name, schema.name);
        lines(&mut text, schema, "");
    }
    print_text(&text)
}

/// For people and programs.
fn name_of(kind: &FieldType) -> &'static str {
    match kind {
        FieldType::Number => "number",
        FieldType::Time | FieldType::EveTime => "time",
        FieldType::Duration(Unit::Seconds) => "duration in seconds",
        FieldType::Duration(Unit::Microseconds) => "duration in microseconds",
        FieldType::Duration(Unit::Fraction) => "duration in seconds with a fraction",
        FieldType::Flag => "flag",
        FieldType::Text => "text",
        FieldType::Address => "address",
        FieldType::Rows(items) if items.form == Form::List => "list",
        FieldType::Rows(items) if items.form == Form::Map => "map",
        FieldType::Rows(_) => "object",
    }
}

/// The type of the items of a list of plain values.
fn plain(schema: &Schema) -> Option<&'static str> {
    match schema.fields {
        [field] if field.name.is_empty() => Some(name_of(&field.kind)),
        _ => None,
    }
}

fn lines(text: &mut String, schema: &Schema, before: &str) {
    for field in schema.fields {
        let name = format!("{before}{}", field.name);
        let _ = match field.kind {
            FieldType::Rows(items) => match plain(items) {
                _ if items.form == Form::Map => {
                    let value = items.fields.get(1).map(|value| value.kind);
                    let values = match value {
                        Some(FieldType::Rows(items)) => {
                            plain(items).map_or("lists".into(), |kind| format!("lists of {kind}"))
                        }
                        kind => kind.as_ref().map_or("values", name_of).to_string(),
                    };
                    writeln!(text, "  {:36} map of {values}", format!("{name}.NAME"))
                }
                Some(kind) => writeln!(text, "  {name:36} list of {kind}"),
                None => {
                    let _ = writeln!(text, "  {name:36} {}", name_of(&field.kind));
                    lines(text, items, &format!("{name}."));
                    Ok(())
                }
            },
            kind => writeln!(text, "  {name:36} {}", name_of(&kind)),
        };
    }
}

fn fields(schema: &Schema) -> Vec<Value> {
    let one = |field: &filter::Field| match field.kind {
        FieldType::Rows(items) => match plain(items) {
            Some(kind) => json!({ "name": field.name, "type": "list", "of": kind }),
            None => json!({ "name": field.name, "type": name_of(&field.kind), "fields": fields(items) }),
        },
        kind => json!({ "name": field.name, "type": name_of(&kind) }),
    };
    schema.fields.iter().map(one).collect()
}
