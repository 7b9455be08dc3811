//! `streamline completions`: completion scripts for shells.

use crate::{Cli, Exit, print_data};
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "streamline", &mut script);
    print_data(&String::from_utf8_lossy(&script))
}
