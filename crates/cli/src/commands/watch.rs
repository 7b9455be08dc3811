//! `streamline watch`: what goes along an edge of a request that runs.

use crate::signals::Finishing;
use crate::table::columns;
use crate::{Exit, running};
use filter::{Type, Types};
use std::io::IsTerminal;
use std::path::PathBuf;
use streamline::running::client;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, EdgeLine, Question};
use streamline::running::watched::{Form, Watched};
use streamline::{Error, Session, StopFlag};

/// See what goes along an edge of a request that runs
///
/// ID is what `streamline ps` calls the request; EDGE is the filter that gives: its kind (7.tcp), its number (7.2) or what
/// `name=` calls it; of a filter that gives to several, 7.port.count is what goes to `count`. Without EDGE, what there is.
///
/// It is a lossy look: what goes along is copied into a ring that nobody can hold, and who is too slow is overtaken, and
/// told how much was lost. The request goes on as if nobody watched. A request can be watched by its user and by root.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The request, and the edge: ID or ID.EDGE
    #[arg(value_name = "ID[.EDGE]")]
    what: String,

    /// How blocks are written; by itself lines on a terminal, else JSON for records and messages, and pcapng for everything else
    #[arg(long, value_enum, value_name = "FORM")]
    format: Option<Format>,

    /// End after so many blocks; as JSON, after so many documents
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,

    /// The daemon that listens at this socket
    #[arg(long, value_name = "PATH", default_value = capture::protocol::SOCKET)]
    daemon: PathBuf,

    /// Tell only of blocks that were lost
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  streamline watch 7                                     what edges it has
  streamline watch 7.bpf                                 lines, on a terminal
  streamline watch 7.bpf | tcpdump -n -r -
  streamline watch p4711.ethernet | wireshark -k -i -
  streamline watch 7.tcp --format raw | strings

A capture has times, lengths and directions as the request sees them. Pieces of streams and messages are no packets: in
a capture they have the link type USER0, and Wireshark asks what that is to mean.
It ends with the request, after --count blocks or documents, with Ctrl-C, and when nobody reads what it writes.";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A capture
    Pcapng,
    /// A capture in the classic format
    Pcap,
    /// A line for each block, as `inspect` writes them
    Lines,
    /// A document for each record or message, as `json` writes them
    Json,
    /// Bytes and nothing else
    Raw,
}

pub(crate) fn run(args: &Args) -> Exit {
    let (id, edge) = match args.what.split_once('.') {
        None => (args.what.as_str(), None),
        Some((id, edge)) => (id, Some(edge)),
    };
    let id = match id.parse::<Id>() {
        Ok(id) => id,
        Err(error) => {
            tell!("error: {error}");
            return Exit::Wrong;
        }
    };
    let target = match running::find(id, &args.daemon) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let ask = |question: &Question| match client::ask(&target, question) {
        Ok(Answer::Failed(text)) | Err(text) => {
            tell!("error: request {id}: {text}");
            Err(Exit::Failed)
        }
        Ok(answer) => Ok(answer),
    };
    let edges = |then: &dyn Fn(&[EdgeLine]) -> Exit| match ask(&Question::Edges) {
        Ok(Answer::Edges(_, edges)) => then(&edges),
        Ok(_) => unexpected(id),
        Err(exit) => exit,
    };
    let Some(edge) = edge else { return edges(&|edges| crate::print_text(&list(id, edges))) };
    let ring = match ask(&Question::Watch(edge.into())) {
        Ok(Answer::Ring(ring)) => ring,
        Ok(Answer::Wrong(text)) => {
            tell!("error: request {id} has no edge `{edge}`: {text}");
            return edges(&|edges| {
                tell_part!("   = help: it has\n{}", indented(&list(id, edges)));
                Exit::Wrong
            });
        }
        Ok(_) => return unexpected(id),
        Err(exit) => return exit,
    };
    let named = match client::ring(&target, &ring) {
        Ok(named) => named,
        Err(text) => {
            tell!("error: request {id}: {text}");
            return Exit::Failed;
        }
    };
    let form = match form(args.format, ring.types) {
        Ok(form) => form,
        Err(text) => {
            tell!("error: {text}");
            return Exit::Wrong;
        }
    };
    let stop = StopFlag::new();
    if let Err(error) = crate::signals::listen(&stop, Finishing::told_unless(args.quiet)) {
        tell!("error: cannot listen for signals: {error}");
        return Exit::Failed;
    }
    let mut watched = match Watched::new(&Session::new(), &ring, &named, form, args.count) {
        Ok(watched) => watched,
        Err(error) => return failed(&error),
    };
    if !args.quiet {
        tell!("watching {id}.{edge}: {}", ring.label);
    }
    let (outcome, tally) = watched.run(&stop, &mut |worker| {
        for notice in worker.take_notices() {
            tell!("warning: {notice}");
        }
        // Also where nothing comes: who reads it may have gone.
        if crate::nobody_reads() {
            stop.stop();
        }
    });
    if tally.died {
        tell!("warning: the process that ran the request died");
    }
    if tally.lost > 0 {
        tell!(
            "warning: {} blocks were seen, {} were lost: they came faster than they were read",
            tally.seen,
            tally.lost
        );
    } else if !args.quiet {
        tell!("{} blocks were seen, none was lost", tally.seen);
    }
    match outcome {
        Ok(()) => Exit::Done,
        Err(error) => failed(&error),
    }
}

fn unexpected(id: Id) -> Exit {
    tell!("error: request {id} answers something else than was asked");
    Exit::Failed
}

fn failed(error: &Error) -> Exit {
    tell!("error: {error}");
    match error {
        Error::Request(_) | Error::Input(_) => Exit::Wrong,
        Error::System(_) => Exit::Failed,
    }
}

/// What is asked for, or what suits what goes along the edge and who reads.
fn form(asked: Option<Format>, types: Types) -> Result<Form, &'static str> {
    let terminal = std::io::stdout().is_terminal();
    let form = match asked {
        Some(Format::Lines) => Form::Lines,
        Some(Format::Json) => Form::Json,
        Some(Format::Pcapng) => Form::Pcapng,
        Some(Format::Pcap) => Form::Pcap,
        Some(Format::Raw) => Form::Raw,
        None if terminal => Form::Lines,
        None if types.has(Type::Record) || types == Types::of(&[Type::Message]) => Form::Json,
        None => Form::Pcapng,
    };
    if terminal && matches!(form, Form::Pcapng | Form::Pcap | Form::Raw) {
        return Err("standard output is a terminal, and that is no text: write it to a file or a program");
    }
    Ok(form)
}

/// The edges there are, as they are to be written.
fn list(id: Id, edges: &[EdgeLine]) -> String {
    let mut rows = vec![["edge", "number", "carries", "given by"].map(String::from).to_vec()];
    for edge in edges {
        let names = [format!("{id}.{}", edge.name), edge.number.clone(), edge.types.to_string(), edge.label.clone()];
        rows.push(names.to_vec());
    }
    columns(&rows)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("     {line}\n")).collect()
}
