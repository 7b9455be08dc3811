//! Filters in chains: with frames and conversations of their own, and on the shared captures, where the results of other
//! programs are known.

mod bombs;
mod capture_expectations;
mod files_expectations;
mod http;
mod http_expectations;
mod name_expectations;
mod pre_filter;
mod said_ports;
mod save_round_trip;
mod selectors;
mod shared_captures;
mod tcp_expectations;
