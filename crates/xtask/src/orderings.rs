//! `cargo xtask model --mutations [FILE]`: checks that the code needs each memory ordering that it uses, and that the
//! models prove that. Weakens one ordering at a time, in a copy of the workspace, and runs the models until one of them fails.
//!
//! It fails if
//!
//! - no model needs an ordering, and no `// ordering: WHY` beside it says why it is there,
//! - a model needs an ordering that has such a comment,
//! - the model in `// model: NAME` does not catch the weaker ordering.
//!
//! FILE is a part of `path:line`: only matching orderings are checked.
//!
//! - `source.rs` — finds the shipped code
//! - `orderings/weaken.rs` — finds its orderings, and the weaker ones
//! - `orderings/scratch.rs` — the copy, and its builds and runs

mod scratch;
mod weaken;

use crate::{Failure, Outcome};
use scratch::{Ended, Program, Scratch};
use std::path::Path;
use std::time::{Duration, Instant};
use weaken::Weakening;

/// The models for each folder: modules of `buffer`'s test `models`.
const MODELS: [(&str, &[&str]); 5] = [
    ("crates/buffer/src/flow/", &["flow"]),
    ("crates/buffer/src/queue/", &["queue", "credit"]),
    ("crates/buffer/src/ring/", &["ring"]),
    ("crates/buffer/src/shared/", &["ring"]),
    ("crates/buffer/src/pipe/", &["ring"]),
];

/// The time limit of one model. Weaker orderings leave more to try, so this is far above the time of any unchanged model.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// This model failed, with this message.
    Caught(String, String),
    Survived,
    /// No model failed, but this one did not finish.
    OutOfTime(String),
    DoesNotCompile,
}

#[derive(Clone, Debug)]
struct Row {
    file: String,
    weakening: Weakening,
    fate: Fate,
    took: Duration,
}

/// A model, and the time that it takes without changes.
#[derive(Clone, Debug)]
struct Model {
    program: Program,
    name: String,
    takes: Duration,
}

pub(crate) fn run(root: &Path, filter: &str) -> Outcome {
    let folder = root.join("target/mutations");
    let scratch = Scratch::new(root, &folder)?;
    let mut rows = Vec::new();
    for (source_folder, modules) in MODELS {
        let files = scratch.rust_files(source_folder)?;
        let wanted: Vec<(&str, &str, Weakening)> = files
            .iter()
            .flat_map(|(path, text)| {
                weaken::weakenings(text).into_iter().map(|one| (path.as_str(), text.as_str(), one))
            })
            .filter(|(path, _, one)| format!("{path}:{}", one.line).contains(filter))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let models = models(&scratch, modules)?;
        for (path, text, weakening) in wanted {
            rows.push(one(&scratch, &models, path, text, weakening)?);
        }
    }
    report(&rows, filter)
}

/// The models of these modules, the quickest first. All must pass.
fn models(scratch: &Scratch, modules: &[&str]) -> Result<Vec<Model>, Failure> {
    let program = scratch.build(true)?;
    let program = program.ok_or_else(|| Failure::Failed("the models do not compile as they are".into()))?;
    let mut models = Vec::new();
    let is_wanted = |name: &String| name.split_once("::").is_some_and(|(module, _)| modules.contains(&module));
    for name in program.models()?.into_iter().filter(is_wanted) {
        match program.run(&name, PREEMPTIONS_FAST, LIMIT)? {
            Ended::Passed(takes) => models.push(Model { program: program.clone(), name, takes }),
            ended => return Err(Failure::Failed(format!("the model `{name}` does not pass as it is: {ended:?}"))),
        }
    }
    models.sort_by_key(|model| model.takes);
    let all: Duration = models.iter().map(|model| model.takes).sum();
    eprintln!("model: {} models of {} pass in {:.1} s", models.len(), modules.join(", "), all.as_secs_f64());
    Ok(models)
}

/// Weakens one ordering, runs the models, and restores it.
fn one(scratch: &Scratch, models: &[Model], path: &str, text: &str, weakening: Weakening) -> Result<Row, Failure> {
    let start = Instant::now();
    let mut weakened = text.to_string();
    weakened.replace_range(weakening.range.clone(), &weakening.replacement);
    scratch.put(path, weakened.as_bytes())?;
    let fate = match scratch.build(false)? {
        Some(_) => fate(models, weakening.model.as_deref())?,
        None => Fate::DoesNotCompile,
    };
    scratch.put(path, text.as_bytes())?;
    let row = Row { file: path.to_string(), weakening, fate, took: start.elapsed() };
    eprintln!("model: {}", row.text());
    Ok(row)
}

/// Runs models until one fails. The named one runs first.
fn fate(models: &[Model], named: Option<&str>) -> Result<Fate, Failure> {
    let is_named = |model: &&Model| named.is_some_and(|named| model.is_called(named));
    let (first, rest): (Vec<&Model>, Vec<&Model>) = models.iter().partition(is_named);
    let mut fate = Fate::Survived;
    for model in first.into_iter().chain(rest) {
        match model.program.run(&model.name, PREEMPTIONS_FAST, LIMIT)? {
            Ended::Failed(why) => return Ok(Fate::Caught(model.name.clone(), why)),
            Ended::OutOfTime => fate = Fate::OutOfTime(model.name.clone()),
            Ended::Passed(_) => {}
        }
    }
    Ok(fate)
}

impl Model {
    /// The name of a model is that of its function, perhaps behind its modules' names.
    fn is_called(&self, name: &str) -> bool {
        is_called(&self.name, name)
    }
}

fn is_called(path: &str, name: &str) -> bool {
    path.rsplit("::").next() == Some(name)
}

impl Row {
    fn text(&self) -> String {
        let place = self.place();
        let fate = match &self.fate {
            Fate::Caught(model, why) => format!("caught by {model}: {why}"),
            Fate::Survived => "survived".to_string(),
            Fate::OutOfTime(model) => format!("survived; out of time in {model}"),
            Fate::DoesNotCompile => "does not compile".to_string(),
        };
        format!("{place:<46} {:<34} {:5.1} s  {fate}", self.weakening.change, self.took.as_secs_f64())
    }

    fn place(&self) -> String {
        let file = self.file.strip_prefix("crates/").unwrap_or(&self.file);
        format!("{file}:{}:{}", self.weakening.line, self.weakening.column)
    }

    fn is_caught(&self) -> bool {
        matches!(self.fate, Fate::Caught(..))
    }
}

fn report(rows: &[Row], filter: &str) -> Outcome {
    if rows.is_empty() {
        return Err(Failure::Failed(format!("no ordering in a file with `{filter}` in its path")));
    }
    rows.iter().for_each(|row| println!("{}", row.text()));
    let count = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    println!(
        "{} weakened: {} caught, {} survived, {} not compiled",
        rows.len(),
        count(Row::is_caught),
        count(|row| matches!(row.fate, Fate::Survived | Fate::OutOfTime(_))),
        count(|row| row.fate == Fate::DoesNotCompile),
    );
    let complaints = complaints(rows);
    complaints.iter().for_each(|complaint| eprintln!("error: {complaint}"));
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

/// Orderings whose comments contradict the models.
fn complaints(rows: &[Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    for of_one in rows.chunk_by(|a, b| a.place() == b.place()) {
        let (place, said) = (of_one[0].place(), &of_one[0].weakening);
        let survives = of_one.iter().any(|row| matches!(row.fate, Fate::Survived | Fate::OutOfTime(_)));
        if of_one.iter().all(|row| row.fate == Fate::DoesNotCompile) {
            complaints.push(format!("{place}: no weaker ordering compiles here, so the models cannot test this one"));
        }
        match &said.reason {
            None if survives => complaints.push(format!(
                "{place}: no model needs this ordering; write one that does, weaken it, or say `// ordering: WHY` beside it"
            )),
            Some(_) if of_one.iter().all(Row::is_caught) => {
                complaints.push(format!("{place}: a model needs this ordering; take away its `// ordering:`"));
            }
            _ => {}
        }
        let Some(model) = &said.model else { continue };
        if of_one.iter().any(|row| !matches!(&row.fate, Fate::Caught(by, _) if is_called(by, model))) {
            complaints
                .push(format!("{place}: the model `{model}` does not need this ordering, whatever is said beside it"));
        }
    }
    complaints
}

pub(crate) const PREEMPTIONS_FAST: &str = "2";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: usize, fate: Fate, reason: Option<&str>, model: Option<&str>) -> Row {
        let weakening = Weakening {
            line,
            column: 1,
            change: "load Acquire -> Relaxed".into(),
            range: 0..0,
            replacement: String::new(),
            reason: reason.map(str::to_string),
            model: model.map(str::to_string),
        };
        Row { file: "crates/buffer/src/x.rs".into(), weakening, fate, took: Duration::ZERO }
    }

    #[test]
    fn comments_must_say_what_the_models_say() {
        let caught = || Fate::Caught("module::name".into(), "deadlock".into());
        let rows = [
            (vec![row(1, caught(), None, None)], 0),
            (vec![row(1, Fate::DoesNotCompile, None, None)], 1),
            (vec![row(1, Fate::DoesNotCompile, None, None), row(1, caught(), None, None)], 0),
            (vec![row(1, Fate::Survived, None, None)], 1),
            (vec![row(1, Fate::OutOfTime("a".into()), None, None)], 1),
            (vec![row(1, Fate::Survived, Some("why"), None)], 0),
            (vec![row(1, caught(), Some("why"), None)], 1),
            (vec![row(1, caught(), Some("why"), None), row(1, Fate::Survived, Some("why"), None)], 0),
            (vec![row(1, caught(), None, None), row(2, Fate::Survived, None, None)], 1),
            (vec![row(1, caught(), None, Some("name"))], 0),
            (vec![row(1, caught(), None, Some("other"))], 1),
            (vec![row(1, Fate::Survived, Some("why"), Some("name"))], 1),
        ];
        for (rows, expected) in rows {
            let complaints = complaints(&rows);
            assert_eq!(complaints.len(), expected, "{rows:?}: {complaints:?}");
        }
    }

    #[test]
    fn folders_and_models_are_there() {
        let paths = crate::files::list(&crate::root().unwrap(), &["*.rs"]).unwrap();
        let is_there = |start: String| paths.iter().any(|path| path.starts_with(&start));
        for (folder, modules) in MODELS {
            assert!(is_there(folder.into()), "{folder}");
            modules.iter().for_each(|one| assert!(is_there(format!("crates/buffer/tests/models/{one}")), "{one}"));
        }
    }
}
