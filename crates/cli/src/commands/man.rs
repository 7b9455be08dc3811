//! `streamline man`: the manual page, of the program or of one subcommand, with every filter in it.

use crate::commands::filters::{Examples, describe};
use crate::{Cli, Exit, print_data};
use clap::CommandFactory;
use clap_mangen::Man;
use std::fmt::Write;
use streamline::registry;

/// Print the manual page: streamline man | man -l -
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Of this subcommand only, such as `run` or `pipe create`
    command: Vec<String>,
}

/// The language on a page; crates/request/grammar.md has all of it.
const LANGUAGE: &str = "\
a | b            b gets the blocks of a
a | { b + c }    both get every block; { a + b } | c joins
port | |22 ssh   class selector: what the last class-setting filter said; |22:80 a range, |!22 all others,
                 |! what no other edge beside it takes: port | { |22 a + |80 b + |! rest }
not a, a and b, a or b      choose with selectors; not binds tighter than and, and tighter than or (tcpdump gives
                 and, or equal rank)
a || b           a cut between workers
name value key=value        the first value needs no key; flags are key=yes; values with blanks in \"double quotes\"
f name=x ... @x  a node with a name, and a path that goes on from it or into it
let web = http | files dir=out; pcap x | web        a piece of a request
set workers=1 latency=1ms share=yes   settings of the request
$x, ${x}         filled by -D x=value
# ...            a comment
Sizes: k M G are 1024, 1024^2, 1024^3; numbers: 1000, 1000^2, 1000^3; durations: ns us ms s min h.
A path that ends in records gets json, one that ends in anything else inspect.
Blocks are frames (of the link layer), packets (without it), bytes (an ordered stream), messages or records.";

fn push_plain(text: &mut String, title: &str, lines: &str) {
    let _ = writeln!(text, ".SH {title}\n.nf");
    push_lines(text, lines);
    text.push_str(".fi\n");
}

fn push_lines(text: &mut String, lines: &str) {
    for line in lines.lines() {
        // A line that begins with a dot or quote would be a command to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        let _ = writeln!(text, "{guard}{}", line.replace('\\', "\\e").replace('-', "\\-"));
    }
}

pub(crate) fn run(args: &Args) -> Exit {
    let cli = Cli::command();
    let mut page = Vec::new();
    let words = &args.command;
    let found = words.iter().try_fold(&cli, |command, word| command.find_subcommand(word));
    let Some(command) = found else {
        tell!("error: no command `{}`", words.join(" "));
        return Exit::Wrong;
    };
    let rendered = if words.is_empty() {
        Man::new(cli).render(&mut page)
    } else {
        Man::new(command.clone().name(format!("streamline-{}", words.join("-")))).render(&mut page)
    };
    if let Err(error) = rendered {
        tell!("error: cannot make the manual page: {error}");
        return Exit::Failed;
    }
    let mut text = String::from_utf8_lossy(&page).into_owned();
    if words.is_empty() {
        push_plain(&mut text, "REQUESTS", LANGUAGE);
        text.push_str(".SH FILTERS\n");
        for kind in registry().kinds() {
            let _ = writeln!(text, ".SS {}\n.nf", kind.name);
            push_lines(&mut text, &describe(kind, Examples::Full));
            text.push_str(".fi\n");
        }
    }
    print_data(&text)
}
