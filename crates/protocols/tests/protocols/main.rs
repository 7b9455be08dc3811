//! Tests the crate from outside: on the shared captures, whose messages other programs have listed, and on any input.

mod any_input;
mod messages;
#[path = "../../../packet/tests/packet/shared.rs"]
#[allow(dead_code, reason = "the tests of `packet` use all of it")]
mod shared;
