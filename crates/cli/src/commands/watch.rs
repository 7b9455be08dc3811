//! `streamline watch`: shows the blocks on an edge of a running request.

use crate::exit::{CommandError, Outcome};
use crate::place::DaemonArg;
use crate::running;
use crate::signals::Finishing;
use crate::table::Table;
use buffer::ring::OnFull;
use filter::{Type, Types};
use std::io::IsTerminal;
use streamline::running::client;
use streamline::running::place::Id;
use streamline::running::protocol::{Answer, EdgeLine, Question};
use streamline::running::watched::{Form, Watched};
use streamline::{Session, StopFlag};

/// See the blocks on an edge of a running request
///
/// NUMBER is that of the request in `streamline ps`; EDGE is the filter that gives the blocks: its kind (4711.tcp), its
/// number (4711.2) or its `name=`. If a filter gives to several, 4711.port.count is the edge to `count`. Without EDGE,
/// the edges are listed.
///
/// The view is lossy: blocks are copied into a ring that no reader can hold. A reader that is too slow is overtaken,
/// and told how much it lost. The request goes on as if it were not watched. With --lossless it waits instead. The
/// request's user and root may watch it.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The request, and the edge: NUMBER or NUMBER.EDGE
    #[arg(value_name = "NUMBER[.EDGE]")]
    what: String,

    /// The form of the blocks; by default lines on a terminal, else JSON for records and messages, and pcapng for
    /// everything else
    #[arg(long, value_enum, value_name = "FORM")]
    format: Option<Format>,

    /// End after this number of blocks; as JSON, of documents
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,

    #[command(flatten)]
    daemon: DaemonArg,

    /// Miss nothing: the request waits for this reader, for a second at most; then it is overtaken
    ///
    /// For the request's own user. Behind a device the source loses packets while the request waits, and counts them.
    #[arg(long)]
    lossless: bool,

    /// Report only lost blocks
    #[arg(short, long)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  streamline watch 4711                                  what edges it has
  streamline watch 4711.bpf                              lines, on a terminal
  streamline watch 4711.bpf | tcpdump -n -r -
  streamline watch 4711.ethernet | wireshark -k -i -
  streamline watch 4711.tcp --format raw | strings
  streamline watch 4711.http --lossless --format json > all.json

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
    /// Only the bytes
    Raw,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (id, edge) = match args.what.split_once('.') {
        None => (args.what.as_str(), None),
        Some((id, edge)) => (id, Some(edge)),
    };
    let id = id.parse::<Id>().map_err(CommandError::Wrong)?;
    let target = running::find(id, &args.daemon.path())?;
    let edges = || match target.ask(&Question::Edges)? {
        Answer::Edges(_, edges, _) => Ok(edges),
        other => Err(CommandError::from(other)),
    };
    let Some(edge) = edge else { return crate::print_text(&list(id, &edges()?).text()) };
    let ring = match target.ask(&Question::Watch(edge.into(), args.lossless))? {
        Answer::Ring(ring) => ring,
        Answer::Wrong(text) => {
            let there = indented(&list(id, &edges()?).within(None));
            let text = format!("request {id} has no edge `{edge}`: {text}");
            return Err(CommandError::Wrong(text).with_help(&format!("it has\n{there}")));
        }
        other => return Err(CommandError::from(other)),
    };
    let named = client::ring(&target.0, &ring).map_err(|text| target.failed(&text))?;
    let form = form(args.format, ring.types).map_err(|text| CommandError::Wrong(text.into()))?;
    let stop = StopFlag::new();
    crate::signals::listen(&stop, Finishing::told_unless(args.quiet))?;
    let contract = if args.lossless { OnFull::Wait } else { OnFull::Overwrite };
    let mut watched = Watched::new(&Session::new(), &ring, &named, form, args.count, contract)?;
    if !args.quiet {
        tell!("watching {id}.{edge}: {}", ring.label);
    }
    let (outcome, tally) = watched.run(&stop, &mut |worker| {
        for notice in worker.take_notices() {
            tell!("warning: {notice}");
        }
        // Check even if no blocks come: the reader of standard output may have gone.
        if crate::nobody_reads() {
            stop.stop();
        }
    });
    if tally.died {
        tell!("warning: the process that ran the request died");
    }
    if tally.demoted {
        tell!("warning: this reader kept the request waiting for longer than a second, and was overtaken");
    }
    if tally.lost > 0 {
        tell!(
            "warning: {} blocks were seen, {} were lost: they came faster than they were read",
            tally.seen,
            tally.lost
        );
    } else if !args.quiet {
        let seen = if tally.seen == 1 { "1 block was".into() } else { format!("{} blocks were", tally.seen) };
        tell!("{seen} seen, none was lost");
    }
    Ok(outcome?)
}

/// The requested form, or the one that suits the edge's types and the output.
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

fn list(id: Id, edges: &[EdgeLine]) -> Table {
    let mut table = Table::new(&["edge", "number", "carries", "given by"]);
    for edge in edges {
        table.row([format!("{id}.{}", edge.name), edge.number.clone(), edge.types.to_string(), edge.label.clone()]);
    }
    table
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("     {line}")).collect::<Vec<_>>().join("\n")
}
