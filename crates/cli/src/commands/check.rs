//! `streamline check`: says whether a request is right, and runs nothing.

use crate::Exit;
use crate::request_text::RequestArgs;
use streamline::Session;

/// Check a request without running it
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    request: RequestArgs,
}

pub(crate) fn run(args: &Args) -> Exit {
    let request = match args.request.read() {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    match Session::new().design(&request.source, &request.variables) {
        Ok(_) => Exit::Done,
        Err(error) => request.tell(&error),
    }
}
