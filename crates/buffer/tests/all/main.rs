//! Rings and queues of one process and between processes. Tests that change the whole process are programs of their own.

#![cfg(not(loom))]

mod answers;
mod denied_fences;
mod keeper;
mod live;
mod pipe;
mod queue_order;
mod queue_processes;
mod ring_conformance;
