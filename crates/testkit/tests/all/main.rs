//! What tests stand on, against the kernel's TCP.

mod link;
mod tcp_scripts;
