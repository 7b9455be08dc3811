//! Programs in the kernel against the interpreter.

mod capture_program;
mod consume_program;
mod expressions;
mod guards;
mod hostile;
mod sockets;
mod verdicts;
