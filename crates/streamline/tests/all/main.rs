//! Requests from their text to their results, and devices beneath them.

mod bodies;
mod consume_program;
mod forward;
mod notations;
mod ports;
mod rejects;
mod said;
mod socket_filter;
mod stages;
mod stream;
