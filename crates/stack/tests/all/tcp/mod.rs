//! The block `tcp`: bytes on the wire, a connection's life, bad links and bad segments.

mod bytes;
mod ending;
mod hostile;
mod reports;
mod scripts;
mod transfer;
mod wire;
