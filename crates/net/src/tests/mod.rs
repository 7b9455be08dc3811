//! Tests of whole interfaces, on a pair of devices inside the process, with the test's own clock or with threads.

mod bed;
mod changes;
mod closing;
mod forged;
mod forged_run;
mod hostile;
mod ipv6;
mod ndp;
mod overload;
mod protocols;
mod restore;
mod shares;
mod sharing;
mod tcp;
mod tcp_ends;
mod threads;
mod trace;
mod veth;
