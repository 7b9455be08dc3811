//! Refuses files that would be written twice, or written while they are read, before anything is opened.
//!
//! A filter writes to its parameters of type path; a source reads its list. Paths are compared as they are written,
//! made absolute; links are not followed.

use crate::difference::Kept;
use crate::graph::{Call, Graph, Task};
use crate::place::Design;
use engine::NodeId;
use filter::param::Value;
use filter::{ParamError, ParamType};
use request::Diagnostic;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Checks the outputs of a graph.
pub fn check(graph: &Graph) -> Result<(), Diagnostic> {
    let mut read: HashMap<PathBuf, &'static str> = HashMap::new();
    let mut written: HashMap<PathBuf, &'static str> = HashMap::new();
    let calls = || {
        graph.ids().filter_map(|id| match &graph.node(id).task {
            Task::Filter(call) => Some((call, graph.node(id).span)),
            Task::Choose(_) => None,
        })
    };
    for (call, _) in calls().filter(|(call, _)| call.kind.is_source()) {
        for text in inputs(call) {
            read.insert(plain(text), call.kind.name);
        }
        read.extend(meeting(call).map(|place| (place, call.kind.name)));
    }
    for (call, span) in calls() {
        if let Some(place) = meeting(call).filter(|_| !call.kind.is_source()) {
            let label = call.label();
            if read.contains_key(&place) {
                return Err(Diagnostic::new(format!("the request reads what `{label}` writes"), span)
                    .with_label("would wait for itself, in a circle")
                    .with_help("put what reads it into another request"));
            }
            if written.insert(place, call.kind.name).is_some() {
                return Err(Diagnostic::new(format!("`{label}` has two writers in the request"), span)
                    .with_label("two filters cannot write to one place")
                    .with_help("write once what comes of both: { a + b } | ..."));
            }
        }
        for (key, text) in outputs(call) {
            let place = call.param_spans.iter().find(|(known, _)| *known == key);
            let (path, span) = (plain(text), place.map_or(span, |(_, span)| *span));
            if let Some(reader) = read.get(&path) {
                return Err(Diagnostic::new(format!("`{text}` is read by `{reader}`"), span)
                    .with_label("would be written while it is read"));
            }
            if let Some(other) = written.insert(path, call.kind.name) {
                return Err(Diagnostic::new(format!("`{text}` is written by `{other}` already"), span)
                    .with_label("two filters cannot write to one place"));
            }
        }
    }
    Ok(())
}

/// Finds a node that would write to a place where a filter of the running plan still writes that will be retired. That
/// filter would finish its file first, and the new filter must not replace a finished file, unless it may overwrite.
pub fn conflict(wanted: &Design, running: &Design, kept: &Kept) -> Option<(NodeId, ParamError)> {
    let retired = (0..running.plan.nodes.len()).filter(|at| !kept.contains(&Some(NodeId(*at as u32))));
    let mut written: HashMap<PathBuf, usize> = HashMap::new();
    for at in retired {
        let outputs = call(running, at).into_iter().flat_map(|call| outputs(call).map(|(_, text)| plain(text)));
        written.extend(outputs.map(|path| (path, at)));
    }
    let begins = (0..wanted.plan.nodes.len()).filter(|at| kept[*at].is_none());
    for (at, call) in begins.filter_map(|at| Some((at, call(wanted, at)?))) {
        if call.params.flag("overwrite") {
            continue;
        }
        for (key, text) in outputs(call) {
            let Some(&other) = written.get(&plain(text)) else { continue };
            let why = difference(&wanted.plan.nodes[at], &running.plan.nodes[other]);
            let error = ParamError::new(key, format!("`{text}` is written by the request that runs, and {why}"));
            let help = "write it as that request does, choose another place, or overwrite=yes";
            return Some((NodeId(at as u32), error.with_help(help)));
        }
    }
    None
}

/// Says why a sink does not go on as another one that writes to the same place.
fn difference(wanted: &engine::Node, running: &engine::Node) -> String {
    let kind = |node: &engine::Node| match &node.task {
        engine::Task::Filter { kind, .. } => kind.name,
        engine::Task::Choose(_) => "a choice",
    };
    let [new, old] = [wanted, running].map(kind);
    if new != old {
        format!("`{old}` writes it, not `{new}`")
    } else if wanted.input != running.input {
        format!("`{old}` got {} there, not {}", running.input, wanted.input)
    } else {
        format!("`{old}` has other parameters there: `{}`", running.label)
    }
}

/// The filter from which a node of a plan came. `None`: it is a choice, or an operand of one.
fn call(design: &Design, at: usize) -> Option<&Call> {
    let vertex = design.graph.nodes.get(design.sites[at].vertex.index())?.as_ref()?;
    match &vertex.task {
        Task::Filter(call) => Some(call),
        Task::Choose(_) => None,
    }
}

fn inputs(call: &Call) -> impl Iterator<Item = &str> {
    call.params
        .iter()
        .flat_map(|(_, value)| match value {
            Value::List(list) => list.as_slice(),
            _ => &[],
        })
        .map(String::as_str)
}

/// The file at which a filter meets other requests.
fn meeting(call: &Call) -> Option<PathBuf> {
    call.kind.meets.and_then(|place| place(&call.params)).map(|place| plain(&place.to_string_lossy()))
}

/// The paths to which a filter writes, by parameter. Not standard output, and not devices, which take turns.
fn outputs(call: &Call) -> impl Iterator<Item = (&'static str, &str)> {
    let paths = call.kind.params.iter().filter(|param| param.kind == ParamType::Path);
    paths.filter_map(|param| {
        let text = call.params.text(param.key).filter(|text| *text != "-" && !text.starts_with("/dev/"))?;
        Some((param.key, text))
    })
}

/// The path made absolute, without `.` and `..`.
fn plain(text: &str) -> PathBuf {
    let absolute = std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text));
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(Path::new(part.as_os_str())),
        }
    }
    plain
}
