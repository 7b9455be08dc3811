//! Keys that every filter has, whatever its kind: they say how it runs. `name` is such a key as well; crate `request`
//! reads it.
//!
//! A further key takes one more row of [`KEYS`] and one more line of `how`.

use base::limits::WORKERS;
use engine::How;
use filter::partition::Partitioning;
use filter::{Kind, Param, ParamType, Params};
use request::{Diagnostic, Span};

/// The keys, in the order of labels.
pub static KEYS: [Param; 3] = [
    Param::new("spread", ParamType::Number, "threads that run a copy of this filter each, from 1 to 64"),
    Param::new("isolate", ParamType::Flag, "runs in a confined process of its own, with neighbours that do"),
    Param::new("restart", ParamType::Flag, "with isolate=yes: a new process takes the place of one that died"),
];

/// How a filter of this kind runs. `own` are its own parameters, `given` its reserved keys, and `spans` the places of
/// their values.
pub(crate) fn how(
    kind: &Kind,
    own: &Params,
    given: &Params,
    spans: &[(&'static str, Span)],
) -> Result<How, Diagnostic> {
    let span_of = |key: &str| spans.iter().find(|(known, _)| *known == key).map_or(Span::NONE, |(_, span)| *span);
    let mut how = How::default();
    if let Some(count) = given.number("spread") {
        how.spread = spread(kind, count, span_of("spread"))?;
    }
    (how.isolate, how.restart) = (given.flag("isolate"), given.flag("restart"));
    if how.restart && !how.isolate {
        return Err(Diagnostic::new("`restart=yes` is for a filter with `isolate=yes`", span_of("restart"))
            .with_label("there is no process that could be started again"));
    }
    if how.isolate && how.spread > 1 {
        return Err(Diagnostic::new(
            format!("`{}` cannot have `isolate=yes` and `spread=`", kind.name),
            span_of("isolate"),
        )
        .with_label("a process of its own runs one thread"));
    }
    if how.isolate {
        isolate(kind, given_path(kind, own), span_of("isolate"))?;
    }
    Ok(how)
}

fn spread(kind: &Kind, count: u64, span: Span) -> Result<usize, Diagnostic> {
    let name = kind.name;
    if !(1..=WORKERS as u64).contains(&count) {
        let text = format!("a filter is spread over 1 to {WORKERS} threads");
        return Err(Diagnostic::new(text, span).with_label(format!("not from 1 to {WORKERS}")));
    }
    let why = if kind.is_source() {
        "is where blocks begin"
    } else if Partitioning::of(kind) != Partitioning::Single {
        return Ok(count as usize);
    } else if kind.is_sink() {
        "writes all blocks in order"
    } else {
        "sees all packets"
    };
    let place = if kind.is_source() { "behind" } else { "before" };
    Err(Diagnostic::new(format!("`{name}` {why}, so it cannot be spread"), span)
        .with_label("there is one of it")
        .with_help(format!("spread filters {place} it: those that look at each block, stream or flow by itself")))
}

/// A parameter of the filter that names a file.
fn given_path(kind: &Kind, own: &Params) -> Option<&'static str> {
    let paths = kind.params.iter().filter(|param| param.kind == ParamType::Path);
    paths.map(|param| param.key).find(|key| own.get(key).is_some())
}

fn isolate(kind: &Kind, path: Option<&str>, span: Span) -> Result<(), Diagnostic> {
    let why = if kind.is_source() {
        "is where blocks begin".to_string()
    } else if kind.is_sink() {
        "writes what a request gives".to_string()
    } else if let Some(key) = path {
        format!("opens a file by `{key}=`")
    } else {
        return Ok(());
    };
    Err(Diagnostic::new(format!("`{}` {why}, so it cannot be isolated", kind.name), span)
        .with_label("a process of its own reaches no file, device or terminal")
        .with_help("isolate the filters that parse: those between the source and the sink"))
}

/// The keys as request text behind the other parameters, with a blank before each.
pub(crate) fn label(how: &How) -> String {
    let mut label = if how.spread == 0 { String::new() } else { format!(" spread={}", how.spread) };
    for (key, is_set) in [("isolate", how.isolate), ("restart", how.restart)] {
        if is_set {
            label.push_str(&format!(" {key}=yes"));
        }
    }
    label
}
