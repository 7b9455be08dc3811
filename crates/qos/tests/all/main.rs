//! Schedulers on simulated links, and under arbitrary operations.

mod link;
mod properties;
