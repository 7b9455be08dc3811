//! `streamline completions`: completion scripts for shells.
//!
//! clap writes the commands and options. For the text inside a request's quotes, a few lines in each shell's script
//! call `streamline complete`.

use crate::exit::Outcome;
use crate::{Cli, print_data};
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell
///
/// In bash, zsh and fish it completes requests, too: filters, their parameters, files and devices.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Outcome {
    print_data(&script(args.shell))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(Cli::command()), "streamline", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script + include_str!("../completions/request.bash"),
        Shell::Fish => script + include_str!("../completions/request.fish"),
        Shell::Zsh => {
            // clap marks request arguments as shell commands (`_cmdstring`). No other argument here has that mark.
            let script = script.replace(":_cmdstring", ":_streamline_request");
            let function = include_str!("../completions/request.zsh");
            match script.split_once("_streamline() {") {
                Some((head, rest)) => format!("{head}{}\n_streamline() {{{rest}", function.trim_start()),
                None => script,
            }
        }
        _ => script,
    }
}

/// The same command without subcommands that only programs start.
fn visible(command: clap::Command) -> clap::Command {
    let hidden = |command: &clap::Command| command.is_hide_set();
    let shown: Vec<clap::Command> = command.get_subcommands().filter(|command| !hidden(command)).cloned().collect();
    let mut visible = clap::Command::new(command.get_name().to_string()).version(env!("CARGO_PKG_VERSION"));
    visible = visible.args(command.get_arguments().cloned());
    if let Some(about) = command.get_about() {
        visible = visible.about(about.clone());
    }
    visible.subcommands(shown.into_iter().map(self::visible))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_ask_for_requests_and_know_nothing_that_is_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert!(script.contains("complete -- "), "{shell}");
            assert!(script.contains("stats-file"), "{shell}");
            for hidden in ["parser-process", "interface-process", "isolated-process", "extcap"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
        }
    }
}
