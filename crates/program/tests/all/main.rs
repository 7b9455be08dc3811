//! Filter programs against the oracle in `plain`.

mod equivalence;
mod opcodes;
mod plain;
