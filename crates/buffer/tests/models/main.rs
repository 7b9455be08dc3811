//! The protocols of shared memory under a model checker, as they ship: `cargo xtask model` runs them.

#![cfg(loom)]

mod credit;
mod flow;
mod queue;
mod ring;
