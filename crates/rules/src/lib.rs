//! Suricata's rule language: parses rule files and matches the rules against packets, stream pieces and application
//! transactions. The caller captures, reassembles and parses protocols, and passes in named buffers and numbers.
//!
//! - [`set`] — reads and compiles a file of rules. Start reading there; `text`, `header` and `options` read one rule.
//! - [`names`] — the buffers and numbers that rules may name.
//! - [`engine`] — the matching: one search for all patterns, then the rules whose pattern was found.
//! - `inspect` — runs one rule's steps over one buffer; `content`, `bytes`, `pcre`, `transform`, `dataset`, `entropy`
//!   are the steps. `packet_test` tests header fields.
//! - `patterns` — the patterns of a set, which select the rules to try; `grams` searches for many of them at once.
//! - [`event`] — the input: a packet, a transaction.
//! - [`state`] — bits and numbers of flows, bits of hosts; `threshold` — counts that limit alerts; `threshold_file` —
//!   such limits beside the rules.

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
mod patterns;
mod pcre;
mod rule;
pub mod set;
pub mod state;
mod tally;
mod text;
mod threshold;
mod threshold_file;
mod transform;

pub use engine::{Engine, Found};
pub use event::{Packet, Transaction};
pub use header::Action;
pub use mistake::Mistake;
pub use packet_test::{SCTP_CHUNKS, sctp_chunks, sctp_tag};
pub use rule::{Order, Rule};
pub use set::{Options, RuleSet};
pub use state::FlowState;
