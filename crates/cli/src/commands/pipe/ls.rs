//! `streamline pipe ls`: the rings there are.

use crate::{Exit, print_json, print_text};
use buffer::keeper::client::Named;
use buffer::keeper::message::{ReaderState, RingState};
use buffer::keeper::place;
use buffer::ring::RingKind;
use std::fmt::Write;
use std::io;

/// List the rings there are, who writes and reads them, and how far behind each reader is
#[derive(clap::Args)]
pub(super) struct Args {
    /// These only
    names: Vec<String>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Exit {
    let names = if args.names.is_empty() {
        match place::names() {
            Ok(names) => names,
            Err(error) => {
                tell!("error: cannot look for rings: {error}");
                return Exit::Failed;
            }
        }
    } else {
        args.names.clone()
    };
    let states: Vec<(String, io::Result<RingState>)> = names
        .into_iter()
        .map(|name| {
            let state = Named::at(&name).and_then(|named| named.state());
            (name, state)
        })
        .collect();
    let printed = if args.json {
        let all: Vec<_> = states.iter().map(|(name, state)| json(name, state)).collect();
        print_json(&serde_json::Value::from(all))
    } else {
        print_text(&table(&states))
    };
    let failed = !args.names.is_empty() && states.iter().any(|(_, state)| state.is_err());
    if failed { Exit::Failed } else { printed }
}

/// What losses and drops are counted in.
fn units(state: &RingState) -> &'static str {
    if state.geometry.kind == RingKind::C { "bytes" } else { "blocks" }
}

/// What positions are counted in.
fn positions(state: &RingState) -> &'static str {
    if matches!(state.geometry.kind, RingKind::C | RingKind::V) { "bytes" } else { "blocks" }
}

/// How far a reader is behind the writer; nothing where it has not begun.
fn behind(state: &RingState, reader: &ReaderState) -> u64 {
    reader.in_force.map_or(0, |_| state.head.saturating_sub(reader.position))
}

fn table(states: &[(String, io::Result<RingState>)]) -> String {
    let mut text = String::new();
    for (name, state) in states {
        let name = base::terminal::line(name);
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                let dead = if is_dead(error) { "dead: " } else { "" };
                let _ = writeln!(text, "{name}  {dead}{error}");
                continue;
            }
        };
        let writing = if state.writing { "is written" } else { "has no writer" };
        let deck = match state.deck {
            0 => String::new(),
            bytes => format!(", {} KiB of it in use", bytes as f64 / 1024.0),
        };
        let open = if state.keep_open { ", stays open" } else { "" };
        let _ = writeln!(
            text,
            "{name}  {}-ring of {} KiB{deck}{open}, generation {}, {writing}, {} blocks {} bytes so far, {} {} dropped",
            state.geometry.kind.name(),
            state.geometry.payload_bytes / 1024,
            state.generation,
            state.blocks,
            state.bytes,
            state.dropped,
            units(state),
        );
        for reader in &state.readers {
            let granted = reader.granted.name();
            let force = match reader.in_force {
                Some(now) if now != reader.granted => format!("{granted}, demoted to {}", now.name()),
                Some(_) => granted.to_string(),
                None => format!("{granted}, begins with the next block"),
            };
            let _ = writeln!(
                text,
                "  process {} of user {}: {force}, {} {} behind, {} {} lost",
                reader.process,
                reader.user,
                behind(state, reader),
                positions(state),
                reader.lost,
                units(state),
            );
        }
    }
    text
}

/// A keeper that was killed leaves its socket behind, and nobody answers there.
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
        "kind": state.geometry.kind.name(),
        "size": state.geometry.payload_bytes,
        "slots": state.geometry.slots,
        "deck": if state.deck == 0 { state.geometry.payload_bytes } else { state.deck },
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
