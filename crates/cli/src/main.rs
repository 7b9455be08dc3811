//! The program `streamline`: one file in `commands` for each subcommand.
//!
//! Rules for every command: standard output is for data, standard error for people, and `exit.rs` has the one rule for
//! the exit status.

#![forbid(unsafe_code)]

/// Writes to standard error for people, in place of the line of progress.
macro_rules! tell_part {
    ($($text:tt)*) => { crate::terminal::tell(format_args!($($text)*)) };
}

/// The same, as a line of its own.
macro_rules! tell {
    ($($text:tt)*) => { tell_part!("{}\n", format_args!($($text)*)) };
}

mod commands;
mod daemon_client;
mod exit;
mod fold;
mod hints;
mod keys;
mod losses;
mod metrics;
mod place;
mod profile;
mod progress;
mod report;
mod request_text;
mod running;
mod signals;
mod stages;
mod standard_input;
mod table;
mod terminal;
mod who;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use exit::{CommandError, Outcome};
use std::process::ExitCode;

/// Builds the data path a request describes, and runs it.
#[derive(Parser)]
#[command(name = "streamline", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    /// When text for people has colours; the variable NO_COLOR turns them off on a terminal
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: terminal::Colours,

    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  streamline demo                                        see it work on a small bundled capture
  streamline run 'pcap trace.pcap | http | files dir=out'
  streamline run 'pcap trace.pcap | bpf \"tcp port 80\" | count'
  streamline explain 'pcap trace.pcap | http | files dir=out'
  streamline filters http                                what a filter does and what it can be told

A request: filters with | between them; { a + b } branches; |22 selects a class; not, and, or choose;
$x is filled by -D x=...; `streamline man` has the whole language.
Exit status: 0 done (also after Ctrl-C or a closed standard output), 1 input, output or the system
failed, 2 the request or the command line is wrong.";

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    #[command(hide = true)]
    SocketHost(commands::net::run::HostArgs),
    #[command(hide = true)]
    ParserProcess(commands::parser_process::Args),
    #[command(hide = true)]
    InterfaceProcess(commands::interface_process::Args),
    /// Run filters with isolate=yes (what `run` starts)
    #[command(hide = true)]
    IsolatedProcess,
    Check(commands::check::Args),
    Explain(commands::explain::Args),
    Fmt(commands::fmt::Args),
    Filters(commands::filters::Args),
    Schema(commands::schema::Args),
    Bench(commands::bench::Args),
    Demo(commands::demo::Args),
    Completions(commands::completions::Args),
    #[command(hide = true)]
    Complete(commands::complete::Args),
    Man(commands::man::Args),
    Pipe(commands::pipe::Args),
    Daemon(commands::daemon::Args),
    Net(commands::net::Args),
    Pcap(commands::pcap::Args),
    #[command(hide = true)]
    Extcap(commands::extcap::Args),
    Devices(commands::devices::Args),
    Doctor(commands::doctor::Args),
    Ps(commands::ps::Args),
    Stats(commands::stats::Args),
    Stop(commands::stop::Args),
    Top(commands::top::Args),
    Watch(commands::watch::Args),
    Replace(commands::replace::Args),
}

fn main() -> ExitCode {
    exit::status(command().and_then(run))
}

/// The command of this command line. `None`: it asked for help, which was printed.
fn command() -> Result<Option<Command>, CommandError> {
    match Cli::try_parse_from(commands::extcap::arguments(std::env::args_os())) {
        Ok(cli) => {
            terminal::set_colours(cli.color);
            Ok(Some(cli.command))
        }
        Err(error) => match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
            (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => Err(hints::no_command(word)),
            _ => {
                let text = error.to_string();
                if error.use_stderr() && base::terminal::text(&text) != text {
                    // Without colours: clap's text quotes the command line, which may hold escape sequences.
                    tell_part!("{text}");
                } else {
                    // A closed standard output or error does not change the exit status.
                    let _ = error.print();
                }
                if error.use_stderr() { Err(CommandError::ToldWrong) } else { Ok(None) }
            }
        },
    }
}

fn run(command: Option<Command>) -> Outcome {
    let Some(command) = command else { return Ok(()) };
    match command {
        Command::Run(args) => commands::run::run(&args),
        Command::SocketHost(args) => commands::net::run::host(args),
        Command::ParserProcess(args) => commands::parser_process::run(&args),
        Command::InterfaceProcess(args) => commands::interface_process::run(&args),
        Command::IsolatedProcess => std::process::exit(streamline::isolate::child::run()),
        Command::Check(args) => commands::check::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Fmt(args) => commands::fmt::run(&args),
        Command::Filters(args) => commands::filters::run(&args),
        Command::Schema(args) => commands::schema::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Complete(args) => commands::complete::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Pipe(args) => commands::pipe::run(&args),
        Command::Daemon(args) => commands::daemon::run(&args),
        Command::Net(args) => commands::net::run(&args),
        Command::Pcap(args) => commands::pcap::run(&args),
        Command::Extcap(args) => commands::extcap::run(&args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Ps(args) => commands::ps::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Watch(args) => commands::watch::run(&args),
        Command::Replace(args) => commands::replace::run(&args),
        Command::Stop(args) => commands::stop::run(&args),
    }
}

/// Prints text for people to standard output. Escape sequences in quoted names are shown as text, and lines are folded to
/// the terminal's width.
fn print_text(text: &str) -> Outcome {
    print_data(&terminal::coloured(fold::folded(&base::terminal::text(text), terminal::stdout_columns())))
}

/// Prints text to standard output: unchanged for programs; on a terminal, escape sequences are shown as text.
fn print_exact(text: &str) -> Outcome {
    use std::io::IsTerminal;
    if std::io::stdout().is_terminal() { print_data(&base::terminal::text(text)) } else { print_data(text) }
}

fn print_json(value: &serde_json::Value) -> Outcome {
    print_data(&base::terminal::json(&format!("{value:#}\n")))
}

/// Prints bytes unchanged to standard output. Ends without an error if standard output is closed.
fn print_data(text: &str) -> Outcome {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CommandError::Failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether the reader of standard output closed it. Long-running commands ask this: while they have no output, no write fails.
fn nobody_reads() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}
