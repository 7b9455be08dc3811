//! Files that would be written twice, or written while they are read: refused before anything is opened.
//!
//! A kind's parameters of type path are where it writes; a source's list is what it reads. Paths are compared as they are
//! written, made absolute; links are not followed.

use crate::difference::Kept;
use crate::graph::{Call, Graph, Task};
use crate::place::Design;
use engine::NodeId;
use filter::ParamType;
use filter::param::Value;
use request::{Diagnostic, Span};
use std::collections::{HashMap, HashSet};
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
    }
    for (call, span) in calls() {
        for (text, span) in outputs(call, span) {
            let path = plain(text);
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

/// Checks that a design writes nowhere where something still writes that is retired in its favour: that would be finished
/// there first, and the new one would find what it must not replace. Unless it may.
pub fn check_change(wanted: &Design, running: &Design, kept: &Kept) -> Result<(), Diagnostic> {
    let retired = (0..running.plan.nodes.len()).filter(|at| !kept.contains(&Some(NodeId(*at as u32))));
    let written: HashSet<PathBuf> = retired
        .filter_map(|at| call(running, at))
        .flat_map(|(call, span)| outputs(call, span).map(|(text, _)| plain(text)).collect::<Vec<_>>())
        .collect();
    let begins = (0..wanted.plan.nodes.len()).filter(|at| kept[*at].is_none());
    for (call, span) in begins.filter_map(|at| call(wanted, at)) {
        if call.params.flag("overwrite") {
            continue;
        }
        for (text, span) in outputs(call, span) {
            if written.contains(&plain(text)) {
                let what = format!("`{text}` is written by the request that runs");
                return Err(Diagnostic::new(what, span)
                    .with_label("is finished there when this takes its place")
                    .with_help("choose another place, or overwrite=yes"));
            }
        }
    }
    Ok(())
}

/// The filter that a node of a plan came from; none for choices and what stands in them.
fn call(design: &Design, at: usize) -> Option<(&Call, Span)> {
    let vertex = design.graph.nodes.get(design.sites[at].vertex.index())?.as_ref()?;
    match &vertex.task {
        Task::Filter(call) => Some((call, vertex.span)),
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

/// Where a filter writes: not standard output, and not devices, which take turns.
fn outputs(call: &Call, span: Span) -> impl Iterator<Item = (&str, Span)> {
    let paths = call.kind.params.iter().filter(|param| param.kind == ParamType::Path);
    paths.filter_map(move |param| {
        let text = call.params.text(param.key).filter(|text| *text != "-" && !text.starts_with("/dev/"))?;
        let place = call.param_spans.iter().find(|(key, _)| *key == param.key);
        Some((text, place.map_or(span, |(_, span)| *span)))
    })
}

/// The path made absolute, without `.` and with `..` taken back.
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
