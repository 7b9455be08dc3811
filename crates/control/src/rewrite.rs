//! Booleans and expressions in their simplest form. Each rule keeps the set of passing blocks, and is noted for
//! `explain`.
//!
//! - `not not a` is `a`; `and` inside `and`, and `or` inside `or`, are flattened.
//! - Filters with a boolean expression of their own (`bpf`) become one where both must pass: `bpf x and bpf y` is `bpf
//!   "(x) and (y)"`. Not so for `or` and `not`: a program that reads behind a frame's end rejects the frame. So `bpf
//!   "not (x)"` would reject short frames that `not bpf x` passes.
//! - `a and b` over selectors that keep the class is the chain `a | b`: no selection is needed.
//! - A selection of one filter that keeps the class is that filter.
//! - A selector of which only the rejected blocks are wanted (`a |! x`) is its opposite (`not a | x`).

use crate::graph::{Arrow, Call, Choice, Graph, Task, Vertex};
use engine::{How, NodeId};
use filter::ClassUse;
use filter::param::Value;

/// Simplifies all selections of a graph.
pub fn rewrite(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let Some(vertex) = &mut graph.nodes[index] else { continue };
        let Task::Choose(choice) = &vertex.task else { continue };
        let before = choice.label();
        let choice = simplify(choice.clone());
        let after = choice.label();
        vertex.task = match choice {
            Choice::Filter(call) if call.kind.class == ClassUse::Keeps => Task::Filter(call),
            choice => Task::Choose(choice),
        };
        if before != after {
            vertex.notes.push(format!("written as: {before}"));
        }
        split_into_chain(graph, NodeId(index as u32));
    }
}

/// Inverts a selector if only its rejected blocks are wanted: its opposite passes exactly those. Its arrows become
/// ordinary ones. Runs after merging, so that a selector whose passed blocks are wanted elsewhere runs once for both.
pub fn turn_round(graph: &mut Graph) {
    for index in 0..graph.nodes.len() {
        let id = NodeId(index as u32);
        let Some(vertex) = &graph.nodes[index] else { continue };
        let is_rejected: Vec<bool> = graph.arrows_from(id).map(|arrow| arrow.rejected).collect();
        if is_rejected.is_empty() || is_rejected.contains(&false) {
            continue;
        }
        let choice = match &vertex.task {
            Task::Filter(call) if call.kind.selector && call.how == How::default() => Choice::Filter(call.clone()),
            Task::Filter(_) => continue,
            Task::Choose(choice) => choice.clone(),
        };
        let note = format!("written as: {} |!", vertex.task_label());
        let vertex = graph.node_mut(id);
        vertex.notes.push(note);
        vertex.task = match simplify(Choice::Not(Box::new(choice))) {
            Choice::Filter(call) if call.kind.class == ClassUse::Keeps => Task::Filter(call),
            choice => Task::Choose(choice),
        };
        graph.arrows.iter_mut().filter(|arrow| arrow.from == id).for_each(|arrow| arrow.rejected = false);
    }
}

fn simplify(choice: Choice) -> Choice {
    match choice {
        Choice::Filter(_) | Choice::Class(_) => choice,
        Choice::Not(part) => match simplify(*part) {
            Choice::Not(inner) => *inner,
            part => Choice::Not(Box::new(part)),
        },
        Choice::Chain(parts) => one_or(parts.into_iter().map(simplify).collect(), Choice::Chain),
        Choice::All(parts) => {
            let parts = flat(parts, |part| match part {
                Choice::All(inner) => Ok(inner),
                other => Err(other),
            });
            one_or(conjoined(parts), Choice::All)
        }
        Choice::Any(parts) => {
            let parts = flat(parts, |part| match part {
                Choice::Any(inner) => Ok(inner),
                other => Err(other),
            });
            one_or(parts, Choice::Any)
        }
    }
}

fn one_or(mut parts: Vec<Choice>, many: fn(Vec<Choice>) -> Choice) -> Choice {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}

fn flat(parts: Vec<Choice>, open: fn(Choice) -> Result<Vec<Choice>, Choice>) -> Vec<Choice> {
    let mut all = Vec::new();
    for part in parts {
        match open(simplify(part)) {
            Ok(inner) => all.extend(inner),
            Err(part) => all.push(part),
        }
    }
    all
}

fn expression(call: &Call) -> Option<(&'static str, &str)> {
    let key = call.kind.expression?;
    Some((key, call.params.text(key)?))
}

fn with_expression(mut call: Call, key: &'static str, text: String) -> Call {
    call.params.set(key, Value::Text(text));
    call
}

/// Joins filters of one kind with expressions that must all pass, at the place of the first.
fn conjoined(parts: Vec<Choice>) -> Vec<Choice> {
    let mut out: Vec<Choice> = Vec::new();
    for part in parts {
        let Some(known) = out.iter_mut().find_map(|known| partner(known, &part)) else {
            out.push(part);
            continue;
        };
        if let Choice::Filter(call) = &part
            && let (Some((key, first)), Some((_, second))) = (expression(known), expression(call))
        {
            let text = format!("({first}) and ({second})");
            *known = with_expression(known.clone(), key, text);
        }
    }
    out
}

/// The filter in `known`, if it and `part` are of one kind and both have a non-empty expression.
fn partner<'a>(known: &'a mut Choice, part: &Choice) -> Option<&'a mut Call> {
    let (Choice::Filter(known), Choice::Filter(call)) = (known, part) else { return None };
    let says_something = |call: &Call| expression(call).is_some_and(|(_, text)| !text.trim().is_empty());
    (known.kind.name == call.kind.name && says_something(known) && says_something(call)).then_some(known)
}

fn split_into_chain(graph: &mut Graph, id: NodeId) {
    let vertex = graph.node(id);
    let Task::Choose(Choice::All(parts)) = &vertex.task else { return };
    if graph.arrows_from(id).any(|arrow| arrow.rejected) {
        // No single part rejects all blocks that the whole rejects.
        return;
    }
    let plain = |part: &Choice| match part {
        Choice::Filter(call) if call.kind.class == ClassUse::Keeps => Some(call.clone()),
        _ => None,
    };
    let Some(calls) = parts.iter().map(plain).collect::<Option<Vec<_>>>() else { return };
    let (vertex, label) = (vertex.clone(), vertex.label());
    let Some((first, rest)) = calls.split_first() else { return };
    let node = |call: &Call| Vertex {
        task: Task::Filter(call.clone()),
        notes: vec![format!("part of: {label}")],
        ..vertex.clone()
    };
    graph.nodes[id.index()] = Some(node(first));
    let mut last = id;
    for call in rest {
        graph.nodes.push(Some(node(call)));
        let next = NodeId((graph.nodes.len() - 1) as u32);
        graph.arrows.iter_mut().filter(|arrow| arrow.from == last).for_each(|arrow| arrow.from = next);
        graph.arrows.push(Arrow::plain(last, next, vertex.span));
        last = next;
    }
}
