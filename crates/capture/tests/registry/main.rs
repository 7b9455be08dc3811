//! Readers of one ring, on a device that a test plays: each gets its packets, and none disturbs another.

mod changes;
mod permissions;
mod played;
mod readers;
