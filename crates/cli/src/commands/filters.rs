//! `streamline filters`: lists the filters, and describes one with its parameters.

use crate::exit::{CommandError, Outcome};
use crate::{print_json, print_text};
use filter::{ClassUse, Gives, Kind, Mode, Parts, Type};
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
        let lines = kinds.iter().map(|kind| format!("{:12} {}\n", kind.name, kind.summary));
        return print_text(&lines.collect::<String>());
    };
    match registry.find(name) {
        Some(kind) if args.json => print_json(&json(kind)),
        Some(kind) => print_text(&describe(kind, if args.full { Examples::Full } else { Examples::Short })),
        None => {
            let guess = registry.nearest(name).map_or(String::new(), |guess| format!("; did you mean `{guess}`?"));
            Err(CommandError::Wrong(format!("no filter `{name}`{guess}")))
        }
    }
}

/// How much of the examples' output is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// The beginning, on one line.
    Short,
    Full,
}

/// Characters of a line that is shown short.
const SHORT: usize = 92;

/// The beginning of an example's output, on one line.
fn short(output: &str) -> String {
    let line = output.lines().next().unwrap_or_default();
    if line == output.trim_end_matches('\n') && line.chars().count() <= SHORT {
        return line.into();
    }
    line.chars().take(SHORT - 3).chain("...".chars()).collect()
}

pub(crate) fn describe(kind: &Kind, examples: Examples) -> String {
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
    if !kind.help.is_empty() {
        let _ = writeln!(text, "\n{}", filled(kind.help, 96));
    }
    if !kind.params.is_empty() {
        let _ = writeln!(text, "\nParameters:");
    }
    for param in kind.params {
        let default = param.default.map_or(String::new(), |default| format!(", default {default}"));
        let must = if param.required { ", required" } else { "" };
        let main = if param.main { ", needs no key" } else { "" };
        let _ = writeln!(text, "  {:14} {} ({}{must}{default}{main})", param.key, param.help, param.kind);
    }
    if !kind.examples.is_empty() {
        let _ = writeln!(text, "\nExamples:");
    }
    for example in kind.examples {
        let _ = writeln!(text, "  streamline run '{}'", example.request);
        let output = if examples == Examples::Full { example.output.to_string() } else { short(example.output) };
        output.lines().for_each(|line| {
            let _ = writeln!(text, "    {line}");
        });
    }
    if examples == Examples::Short
        && kind.examples.iter().any(|example| short(example.output) != example.output.trim_end())
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
    fn what_examples_print_is_shown_in_one_line_each_and_in_full_where_asked() {
        for (output, expected) in [("", ""), ("a b\n", "a b"), ("a\nb\n", "a..."), (&"\u{e4}".repeat(93), "...")] {
            let shown = short(output);
            assert!(shown.ends_with(expected) && shown.chars().count() <= SHORT, "{shown}");
        }
        let registry = registry();
        let http = registry.find("http").unwrap();
        let (brief, full) = (describe(http, Examples::Short), describe(http, Examples::Full));
        let (_, examples) = brief.split_once("\nExamples:\n").unwrap();
        assert_eq!(examples.lines().count(), 2 * http.examples.len() + 2, "{examples}");
        assert!(examples.ends_with("streamline filters http --full\n"), "{examples}");
        for line in http.examples.iter().flat_map(|example| example.output.lines()) {
            assert!(full.contains(line) && !full.contains("--full"));
        }
    }
}
