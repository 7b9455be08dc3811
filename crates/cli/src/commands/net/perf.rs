//! `streamline net perf`: measures the throughput of TCP, with the protocol of iperf3. This file has the command and
//! its output. `protocol` has messages, `client` and `server` the two sides, `data` the streams.

mod client;
mod data;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

use super::tcp::{self, FlowArgs};
use crate::exit::{CommandError, Outcome};
use crate::progress::{bit_rate, size};
use crate::signals::{self, Finishing};
use crate::table::Table;
use crate::terminal;
use base::atomic::StopFlag;
use client::Measured;
use protocol::{BLOCK, Parameters, Results, STREAMS};
use serde_json::{Value, json};
use server::{Server, Tell};
use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Measure the throughput of TCP
///
/// Sends to a server, or with -R receives from it. The other side is a `net perf` or iperf3 3.x on any TCP.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The server: an address or a name
    #[arg(value_name = "ADDRESS", required_unless_present = "server")]
    address: Option<String>,

    /// Be the server, until Ctrl-C: one test after the other
    #[arg(short, long, conflicts_with_all = ["address", "time", "parallel", "reverse"])]
    server: bool,

    /// The server's port
    #[arg(short, long, value_name = "PORT", default_value_t = 5201, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time: u32,

    /// Connections at once
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=STREAMS as i64))]
    parallel: u8,

    /// The server sends
    #[arg(short = 'R', long)]
    reverse: bool,

    /// One JSON document a test
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    tcp: FlowArgs,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net perf -s                                 a server; `iperf3 -c` talks to it, too
  streamline net perf 10.0.0.2                           to a server: `iperf3 -s` or `streamline net perf -s`
  streamline net perf 10.0.0.2 -P 4 -t 30 -R             4 connections on which the server sends for 30 s";

/// How long a running test gets to end after Ctrl-C.
const FINISH: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args) -> Outcome {
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    match &args.address {
        Some(address) => run_client(args, address, &stop),
        None => run_server(args, stop),
    }
}

fn run_client(args: &Args, address: &str, stop: &StopFlag) -> Outcome {
    let parameters =
        Parameters { seconds: args.time, omit: 0, streams: args.parallel.into(), reverse: args.reverse, block: BLOCK };
    let addresses = tcp::resolve(address, args.port)?;
    let shows = io::stderr().is_terminal();
    let mut look = |elapsed: Duration, bytes: u64| {
        if shows {
            let rate = rate(bytes, elapsed.as_secs_f64());
            terminal::show_line(&format!("{} s of {} s, {}", elapsed.as_secs(), args.time, bit_rate(rate)));
        }
    };
    let dialer = tcp::Dialer::new(&args.tcp, "streamline net perf")?;
    // All connections of a test go to the address that answered the first one.
    let chosen = Cell::new(None);
    let connect = || match chosen.get() {
        Some(to) => dialer.connect(to),
        None => dialer.connect_first(&addresses).map(|(stream, to)| {
            chosen.set(Some(to));
            stream
        }),
    };
    let measured = client::run(&connect, &parameters, stop, &mut look);
    if shows {
        terminal::clear_line();
    }
    let measured = measured.map_err(|error| match chosen.get() {
        Some(to) => CommandError::Failed(format!("{to}: {error}")),
        // The error names the address itself.
        None => error.into(),
    })?;
    // A measured test had connections, so an address was chosen.
    chosen.get().map_or(Ok(()), |to| show(&measured, true, &to, args.json))
}

fn run_server(args: &Args, stop: StopFlag) -> Outcome {
    let listener = tcp::listen(&args.tcp, args.port, "streamline net perf")?;
    tell!("waits for tests on port {}", args.port);
    let server = Server::new(stop.clone(), Shown { json: args.json });
    let running = Arc::clone(&server);
    std::thread::Builder::new().name("accept".into()).spawn(move || running.accept(&listener))?;
    signals::wait(&stop)?;
    server.finish(FINISH);
    Ok(())
}

/// Prints the server's tests.
struct Shown {
    json: bool,
}

impl Tell for Shown {
    fn begun(&self, peer: SocketAddr, parameters: &Parameters) {
        let (what, streams) = (if parameters.reverse { "receives" } else { "sends" }, number(parameters.streams));
        tell!("{peer} {what}: {streams}");
    }

    fn measured(&self, peer: SocketAddr, measured: &Measured) {
        // The server goes on even if standard output is closed.
        if let Err(error) = show(measured, false, &peer, self.json) {
            let _ = error.told();
        }
    }

    fn failed(&self, peer: SocketAddr, error: &io::Error) {
        tell!("warning: {peer}: {error}");
    }
}

fn show(measured: &Measured, is_client: bool, peer: &SocketAddr, is_json: bool) -> Outcome {
    if is_json {
        return crate::print_json(&document(measured, is_client, peer));
    }
    crate::print_text(&format!("{}\n{}\n", table(measured, is_client).text(), summary(measured, is_client, peer)))
}

fn number(streams: usize) -> String {
    if streams == 1 { "1 stream".into() } else { format!("{streams} streams") }
}

/// Bits a second.
fn rate(bytes: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (bytes as f64 * 8.0 / seconds) as u64 } else { 0 }
}

/// The counts of the sender and of the receiver. The client sends unless the test is reversed.
fn sides(measured: &Measured, is_client: bool) -> (&Results, &Results) {
    let Measured { parameters, here, there } = measured;
    if is_client != parameters.reverse { (here, there) } else { (there, here) }
}

/// Seconds of the test by this side's clock: other sides round the time, or do not report it.
fn seconds(measured: &Measured) -> f64 {
    measured.here.seconds
}

fn table(measured: &Measured, is_client: bool) -> Table {
    let (sender, receiver) = sides(measured, is_client);
    let mut table = Table::new(&[">stream", ">sent", ">received", ">rate"]);
    for (place, (sent, received)) in sender.bytes.iter().zip(&receiver.bytes).enumerate() {
        let rate = bit_rate(rate(*received, seconds(measured)));
        table.row([protocol::id(place).to_string(), size(*sent), size(*received), rate]);
    }
    table
}

fn summary(measured: &Measured, is_client: bool, peer: &SocketAddr) -> String {
    let (sender, receiver) = sides(measured, is_client);
    let (sent, received): (u64, u64) = (sender.bytes.iter().sum(), receiver.bytes.iter().sum());
    let streams = number(measured.parameters.streams);
    let way = if is_client != measured.parameters.reverse { "to" } else { "from" };
    format!(
        "{} in {:.1} s by {streams} {way} {peer}: {} sent, {} received; processor {:.0} % here, {:.0} % there",
        bit_rate(rate(received, seconds(measured))),
        seconds(measured),
        size(sent),
        size(received),
        measured.here.processor[0],
        measured.there.processor[0],
    )
}

fn document(measured: &Measured, is_client: bool, peer: &SocketAddr) -> Value {
    let (sender, receiver) = sides(measured, is_client);
    let streams = sender.bytes.iter().zip(&receiver.bytes).enumerate();
    let streams: Vec<Value> = streams
        .map(|(place, (sent, received))| {
            json!({ "stream": protocol::id(place), "sent_bytes": sent, "received_bytes": received })
        })
        .collect();
    let (sent, received): (u64, u64) = (sender.bytes.iter().sum(), receiver.bytes.iter().sum());
    json!({
        "peer": peer.to_string(), "sends": is_client != measured.parameters.reverse, "seconds": seconds(measured),
        "sent_bytes": sent, "received_bytes": received, "received_bits_per_second": rate(received, seconds(measured)),
        "processor_percent": { "here": measured.here.processor[0], "there": measured.there.processor[0] },
        "streams": streams,
    })
}
