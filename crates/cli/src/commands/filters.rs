//! `streamline filters`: lists the filters, and describes one with its parameters.

use crate::exit::{CommandError, Outcome};
use crate::{fold, print_exact, print_json, print_text, terminal};
use filter::{ClassUse, Gives, Group, Kind, Mode, Parts, Type};
use std::fmt::Write;
use streamline::registry;

/// List the filters, or describe one
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The filter to describe
    name: Option<String>,

    /// Show all of the examples' output
    #[arg(long, requires = "name", conflicts_with = "json")]
    full: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let registry = registry();
    let Some(name) = &args.name else {
        let kinds = registry.kinds();
        if args.json {
            let all: Vec<_> = kinds.iter().map(|kind| json(kind)).collect();
            return print_json(&serde_json::Value::from(all));
        }
        return print_text(&list(&kinds));
    };
    match registry.find(name) {
        Some(kind) if args.json => print_json(&json(kind)),
        Some(kind) => {
            let examples = if args.full { Examples::Full } else { Examples::Short };
            let columns = terminal::stdout_columns().map_or(PROSE, |columns| columns.min(PROSE));
            print_exact(&describe(kind, examples, columns))
        }
        None => {
            let guess = registry.nearest(name).map_or(String::new(), |guess| format!("; did you mean `{guess}`?"));
            Err(CommandError::Wrong(format!("no filter `{name}`{guess}")))
        }
    }
}

/// The filters by group.
fn list(kinds: &[&Kind]) -> String {
    let group = |group: Group| {
        let of_group = kinds.iter().filter(|kind| Group::of(kind) == group);
        let lines = of_group.map(|kind| format!("  {:12}  {}\n", kind.name, kind.summary));
        format!("{}\n{}", group.title(), lines.collect::<String>())
    };
    Group::ALL.map(group).join("\n")
}

/// How much of the examples' output is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// The beginning, on one line.
    Short,
    Full,
}

/// The longest lines of prose.
const PROSE: usize = 96;

/// The indent of what an example prints.
const INDENT: usize = 4;

/// The beginning of an example's output, on a line of at most `columns` characters.
fn short(output: &str, columns: usize) -> String {
    let line = output.lines().next().unwrap_or_default();
    let most = columns.saturating_sub(INDENT);
    if line == output.trim_end_matches('\n') && line.chars().count() <= most {
        return line.into();
    }
    line.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// Describes a filter in lines of at most `columns` characters; requests and their whole output have the lines they have.
pub(crate) fn describe(kind: &Kind, examples: Examples, columns: usize) -> String {
    let mut text = format!("{} - {}\n", kind.name, kind.summary);
    let _ = writeln!(
        text,
        "\n  takes   {}",
        match kind.first {
            _ if kind.is_source() => "nothing: a source".into(),
            Some(_) => format!("{}; nothing where it begins a chain: a source", kind.takes),
            None => kind.takes.to_string(),
        }
    );
    let gives = |kind: &Kind| match kind.gives {
        Gives::Same => "what it takes".to_string(),
        Gives::Only(one) => one.name().to_string(),
        Gives::Named(key) => format!("what `{key}` says"),
        Gives::Nothing => "nothing: a sink".to_string(),
    };
    let gives = match kind.first {
        Some(first) => format!("{}; where it begins a chain: {}", gives(kind), gives(first)),
        None => gives(kind),
    };
    let _ = writeln!(text, "  gives   {gives}");
    match kind.class {
        ClassUse::Keeps => {}
        ClassUse::Sets(what) | ClassUse::SetsHalves(what) => {
            let _ = writeln!(text, "  class   {what}");
        }
    }
    if kind.gives == Gives::Same && kind.writes != Parts::NONE {
        let _ = writeln!(text, "  changes {}", kind.writes);
    }
    let _ = writeln!(text, "  runs in {}", kind.spaces);
    if kind.selector {
        let _ = writeln!(text, "  may stand in `and`, `or`, `not`");
    }
    for (one, chain) in kind.wants {
        let _ = writeln!(text, "  before {}: `{chain}` is inserted", one.name());
    }
    if let Some(name) = kind.behind {
        let _ = writeln!(text, "  `{name}` is inserted before it, unless the request says `set {name}=no`");
    }
    text = fold::folded(&text, Some(columns));
    if !kind.help.is_empty() {
        let _ = writeln!(text, "\n{}", filled(kind.help, columns));
    }
    if !kind.params.is_empty() {
        let _ = writeln!(text, "\nParameters:");
    }
    for param in kind.params {
        let default = param.default.map_or(String::new(), |default| format!(", default {default}"));
        let must = if param.required { ", required" } else { "" };
        let main = if param.main { ", needs no key" } else { "" };
        let line = format!("  {:14} {} ({}{must}{default}{main})", param.key, param.help, param.kind);
        let _ = writeln!(text, "{}", fold::folded(&line, Some(columns)));
    }
    if !kind.examples.is_empty() {
        let _ = writeln!(text, "\nExamples:");
    }
    for example in kind.examples {
        let _ = writeln!(text, "  streamline run '{}'", example.request);
        let output =
            if examples == Examples::Full { example.output.to_string() } else { short(example.output, columns) };
        output.lines().for_each(|line| {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        });
    }
    if examples == Examples::Short
        && kind.examples.iter().any(|example| short(example.output, columns) != example.output.trim_end())
    {
        let _ = writeln!(text, "\nAll that they print: streamline filters {} --full", kind.name);
    }
    text
}

fn filled(text: &str, width: usize) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n\n") {
        let mut line = 0;
        for word in paragraph.split_whitespace() {
            let len = word.chars().count();
            if line > 0 && line + 1 + len > width {
                out.push('\n');
                line = 0;
            } else if line > 0 {
                out.push(' ');
                line += 1;
            }
            out.push_str(word);
            line += len;
        }
        out.push_str("\n\n");
    }
    out.trim_end().to_string()
}

fn json(kind: &Kind) -> serde_json::Value {
    let params: Vec<_> = kind
        .params
        .iter()
        .map(|param| {
            serde_json::json!({
                "key": param.key,
                "type": param.kind.to_string(),
                "default": param.default,
                "required": param.required,
                "main": param.main,
                "help": param.help,
            })
        })
        .collect();
    serde_json::json!({
        "name": kind.name,
        "group": Group::of(kind).title(),
        "summary": kind.summary,
        "help": kind.help,
        "takes": kind.takes.iter().map(Type::name).collect::<Vec<_>>(),
        "gives": match kind.gives {
            Gives::Same => "same",
            Gives::Only(one) => one.name(),
            Gives::Named(_) => "named",
            Gives::Nothing => "nothing",
        },
        "begins": kind.may_begin(),
        "mode": match kind.mode { Mode::Stateless => "stateless", Mode::Session(_) => "session", Mode::Serial => "serial" },
        "selector": kind.selector,
        "spaces": kind.spaces.to_string(),
        "params": params,
        "fields": kind.schema.map(|schema| schema.fields.iter().map(|field| field.name).collect::<Vec<_>>()),
        "examples": kind.examples.iter().map(|example| example.request).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_listed_by_group() {
        let kinds = registry().kinds();
        let text = list(&kinds);
        let group_of = |name: &str| {
            let (before, _) = text.split_once(&format!("\n  {name} ")).unwrap();
            before.lines().rfind(|line| !line.starts_with(' ')).unwrap().to_string()
        };
        for (name, title) in [
            ("ethernet", "Sources"),
            ("bridge", "Sources"),
            ("port", "Selection"),
            ("match", "Selection"),
            ("decap", "Frames"),
            ("tcp", "Frames"),
            ("dns", "Protocols"),
            ("http", "Protocols"),
            ("flows", "Records"),
            ("rules", "Records"),
            ("where", "Questions"),
            ("by", "Questions"),
            ("json", "Sinks"),
            ("plot", "Sinks"),
        ] {
            assert!(group_of(name).starts_with(title), "{name}: {}", group_of(name));
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("  ")).count(), kinds.len(), "{text}");
    }

    #[test]
    fn a_description_fits_into_80_columns() {
        for kind in registry().kinds() {
            let text = describe(kind, Examples::Short, 80);
            let is_own = |line: &&str| !line.trim_start().starts_with("streamline run");
            let long: Vec<&str> = text.lines().filter(is_own).filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{}: {long:#?}", kind.name);
        }
    }

    #[test]
    fn what_examples_print_is_shown_in_one_line_each_and_in_full_where_asked() {
        for (output, expected) in [("", ""), ("a b\n", "a b"), ("a\nb\n", "a..."), (&"\u{e4}".repeat(93), "...")] {
            let shown = short(output, 96);
            assert!(shown.ends_with(expected) && shown.chars().count() <= 92, "{shown}");
        }
        let registry = registry();
        let http = registry.find("http").unwrap();
        let (brief, full) = (describe(http, Examples::Short, PROSE), describe(http, Examples::Full, PROSE));
        let (_, examples) = brief.split_once("\nExamples:\n").unwrap();
        assert_eq!(examples.lines().count(), 2 * http.examples.len() + 2, "{examples}");
        assert!(examples.ends_with("streamline filters http --full\n"), "{examples}");
        for line in http.examples.iter().flat_map(|example| example.output.lines()) {
            assert!(full.contains(line) && !full.contains("--full"));
        }
    }
}
