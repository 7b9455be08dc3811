//! `streamline fmt`: prints a request in its canonical form.

use crate::exit::Outcome;
use crate::print_exact;
use crate::request_text::RequestArgs;
use streamline::language::{parse, print, print_paper};
use streamline::{Error, registry};

/// Print a request in its canonical form, comments and `let` kept
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,

    /// In the notation of the papers: (a) > (b)
    #[arg(long)]
    paper: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let request = args.request.required()?;
    let text = parse(&request.source).map_err(|diagnostic| request.tell(Error::Request(diagnostic)))?;
    if args.paper {
        let main_key = |name: &str| Some(registry().find(name)?.main_param()?.key.to_string());
        print_exact(&print_paper(&text, &main_key))
    } else {
        print_exact(&print(&text))
    }
}
