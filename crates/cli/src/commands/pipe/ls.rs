//! `streamline pipe ls`: lists the rings.

use crate::exit::{CommandError, Outcome};
use crate::progress::{count, size};
use crate::table::Table;
use crate::who::Users;
use crate::{print_json, print_text};
use buffer::keeper::client::Named;
use buffer::keeper::content::Content;
use buffer::keeper::message::{ReaderState, RingState};
use buffer::keeper::place;
use buffer::ring::RingKind;
use std::io;

/// List rings, their writers and readers, and how far behind each reader is
#[derive(clap::Args)]
pub(super) struct Args {
    /// These only
    names: Vec<String>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let names = match args.names.as_slice() {
        [] => place::names().map_err(|error| CommandError::Failed(format!("cannot look for rings: {error}")))?,
        names => names.to_vec(),
    };
    let states: Vec<(String, io::Result<RingState>)> = names
        .into_iter()
        .map(|name| {
            let state = Named::at(&name).and_then(|named| named.state());
            (name, state)
        })
        .collect();
    if args.json {
        let all: Vec<_> = states.iter().map(|(name, state)| json(name, state)).collect();
        print_json(&serde_json::Value::from(all))?;
    } else {
        print_text(&text(&states, &Users::read()))?;
    }
    // The table's row already shows the error.
    let failed = !args.names.is_empty() && states.iter().any(|(_, state)| state.is_err());
    if failed { Err(CommandError::ToldFailed) } else { Ok(()) }
}

/// How far a reader is behind the writer; 0 if it has not begun.
fn behind(state: &RingState, reader: &ReaderState) -> u64 {
    reader.in_force.map_or(0, |_| state.head.saturating_sub(reader.position))
}

/// A table of rings, and a table of their readers.
fn text(states: &[(String, io::Result<RingState>)], users: &Users) -> String {
    let mut rings =
        Table::new(&["ring", "kind", "size", ">generation", "writer", ">blocks", ">bytes", ">dropped", "remarks"]);
    let mut readers = Table::new(&["ring", ">process", "user", ">behind", ">lost", "on-full"]);
    for (name, state) in states {
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                let dash = || "-".to_string();
                let dead = if is_dead(error) { "dead: " } else { "" };
                let remark = format!("{dead}{error}");
                rings.row([name.clone(), dash(), dash(), dash(), dash(), dash(), dash(), dash(), remark]);
                continue;
            }
        };
        let kind = state.geometry.kind;
        // The units of losses and drops, and of positions.
        let lost = |number| if kind == RingKind::C { size(number) } else { count(number) };
        let far = |number| if matches!(kind, RingKind::C | RingKind::V) { size(number) } else { count(number) };
        let mut remarks = Vec::new();
        if state.window > 0 {
            remarks.push(format!("{} of it in use", size(state.window)));
        }
        // Rings that no request uses carry bytes: that is not remarked.
        if let Some(content) = state.written.content.filter(|content| *content != Content::Bytes) {
            remarks.push(format!("carries {}", content.name()));
        }
        if state.keep_open {
            remarks.push("stays open".into());
        }
        rings.row([
            name.clone(),
            kind.name().into(),
            size(state.geometry.payload_bytes),
            state.generation.to_string(),
            if state.writing { "yes" } else { "no" }.into(),
            count(state.blocks),
            size(state.bytes),
            lost(state.dropped),
            remarks.join(", "),
        ]);
        for reader in &state.readers {
            let granted = reader.granted.name();
            let force = match reader.in_force {
                Some(now) if now != reader.granted => format!("{granted}, demoted to {}", now.name()),
                Some(_) => granted.to_string(),
                None => format!("{granted}, begins with the next block"),
            };
            readers.row([
                name.clone(),
                reader.process.to_string(),
                users.name(reader.user),
                far(behind(state, reader)),
                lost(reader.lost),
                force,
            ]);
        }
    }
    let gap = if readers.is_empty() { "" } else { "\n" };
    format!("{}{gap}{}", rings.text(), readers.text())
}

/// A killed keeper leaves its socket behind, and no process answers there.
fn is_dead(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

fn json(name: &str, state: &io::Result<RingState>) -> serde_json::Value {
    let state = match state {
        Ok(state) => state,
        Err(error) => {
            return serde_json::json!({ "name": name, "dead": is_dead(error), "error": error.to_string() });
        }
    };
    let readers: Vec<_> = state
        .readers
        .iter()
        .map(|reader| {
            serde_json::json!({
                "process": reader.process,
                "user": reader.user,
                "granted": reader.granted.name(),
                "in_force": reader.in_force.map(|contract| contract.name()),
                "position": reader.position,
                "behind": behind(state, reader),
                "lost": reader.lost,
            })
        })
        .collect();
    serde_json::json!({
        "name": name,
        "carries": state.written.content.map(|content| content.name()),
        "kind": state.geometry.kind.name(),
        "size": state.geometry.payload_bytes,
        "slots": state.geometry.slots,
        "window": if state.window == 0 { state.geometry.payload_bytes } else { state.window },
        "generation": state.generation,
        "writing": state.writing,
        "keep_open": state.keep_open,
        "head": state.head,
        "blocks": state.blocks,
        "bytes": state.bytes,
        "dropped": state.dropped,
        "readers": readers,
    })
}
