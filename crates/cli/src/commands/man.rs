//! `streamline man`: the manual page, of the program or of one subcommand, with every filter in it.

use crate::commands::filters::describe;
use crate::{Cli, Exit, print_data};
use clap::CommandFactory;
use clap_mangen::Man;
use std::fmt::Write;
use streamline::registry;

/// Print the manual page: streamline man | man -l -
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Of this subcommand only
    command: Option<String>,
}

pub(crate) fn run(args: &Args) -> Exit {
    let cli = Cli::command();
    let mut page = Vec::new();
    let rendered = match &args.command {
        None => Man::new(cli).render(&mut page),
        Some(name) => match cli.find_subcommand(name) {
            Some(command) => Man::new(command.clone().name(format!("streamline-{name}"))).render(&mut page),
            None => {
                eprintln!("error: no command `{name}`");
                return Exit::Wrong;
            }
        },
    };
    if let Err(error) = rendered {
        eprintln!("error: cannot make the manual page: {error}");
        return Exit::Failed;
    }
    let mut text = String::from_utf8_lossy(&page).into_owned();
    if args.command.is_none() {
        text.push_str(".SH FILTERS\n");
        for kind in registry().kinds() {
            let _ = writeln!(text, ".SS {}\n.nf", kind.name);
            for line in describe(kind).lines() {
                // A line that begins with a dot or quote would be a command to the formatter.
                let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
                let _ = writeln!(text, "{guard}{}", line.replace('\\', "\\e").replace('-', "\\-"));
            }
            text.push_str(".fi\n");
        }
    }
    print_data(&text)
}
