//! Suricata's rule language: text becomes a rule set, and the rule set is matched against packets, pieces of streams and
//! transactions of applications. It reads no capture, puts nothing in order and parses no protocol: the caller says what
//! it found, by buffers and numbers with names.
//!
//! - [`set`] — a file of rules, read and compiled. Start reading there; `text`, `header`, `options` read one rule.
//! - [`names`] — the buffers and numbers that rules may look at.
//! - [`engine`] — what matches: first many patterns at once, then the rules whose pattern came.
//! - `inspect` — the steps of one rule over one buffer; `content`, `bytes`, `pcre`, `transform`, `dataset` are their parts.
//! - `grams` — many long patterns at once.
//! - [`event`] — what the caller shows: a packet, a transaction; [`state`] — what is kept of a flow, of hosts, of limits.

#![forbid(unsafe_code)]

mod address;
mod bytes;
mod class;
mod content;
mod dataset;
pub mod engine;
mod entropy;
pub mod event;
mod events;
mod grams;
mod header;
mod inspect;
pub mod mistake;
pub mod names;
mod number;
mod options;
mod packet_test;
mod pcre;
mod rule;
pub mod set;
pub mod state;
mod text;
mod threshold;
mod transform;

pub use engine::{Engine, Found};
pub use event::{Packet, Transaction};
pub use mistake::Mistake;
pub use rule::{Action, Rule};
pub use set::{Options, RuleSet};
pub use state::FlowState;
