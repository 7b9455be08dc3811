//! Tests of whole interfaces: on a pair of devices inside the process, with a clock of the test's own or with threads.

mod bed;
mod forged;
mod hostile;
mod overload;
mod protocols;
mod threads;
mod veth;
