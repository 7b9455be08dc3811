//! Stacks as their callers see them: text, bytes, hostile bytes, turns, and state that moves.

mod bytes;
mod hostile;
mod ipv6;
mod moving;
mod pairs;
mod support;
mod tcp;
mod text;
mod turns;
