//! Readers of one ring, over a device that a test plays: each gets what it asked for, nobody disturbs anybody.

mod changes;
mod permissions;
mod played;
mod readers;
