//! `streamline bench`: measures how many frames this machine makes, captures and forwards, and its time per frame, with
//! ordinary requests.
//!
//! Each bench is a file: `generate`, `capture`, `forward`, `pipeline`. The other files are shared:
//!
//! - `bed`: the devices, made or named, and the sender
//! - `jobs`: requests on threads of this process
//! - `search`: bisection
//! - `loss_free`: parts common to benches of loss
//! - `options` and `show`: arguments and output
//!
//! Comparisons with other tools are in the crate `bench`.

mod bed;
mod capture;
mod forward;
mod generate;
mod jobs;
mod loss_free;
mod options;
mod pipeline;
mod search;
mod show;

use crate::exit::Outcome;
use crate::signals::{self, Finishing};
use streamline::StopFlag;

/// Measure what this machine makes, captures, forwards, or has time for
///
/// Benches run requests as they are. Without devices they make virtual pairs in network namespaces of their own, which takes
/// root and ends with the bench. They send on no device that was not named.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

const AFTER_HELP: &str = "\
Examples:
  streamline bench generate --sizes 64,1518
  streamline bench capture --sizes 64 --trial 2s --loss 0.1%
  streamline bench forward --by user --json
  streamline bench forward --from eth0 --in eth1 --out eth2 --to eth3 --svg forward.svg
  streamline bench pipeline 'WORK | count' --rate 100k";

#[derive(clap::Subcommand)]
enum Bench {
    Generate(generate::Args),
    Capture(capture::Args),
    Forward(forward::Args),
    Pipeline(pipeline::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    match &args.bench {
        Bench::Generate(args) => generate::run(args, &stop),
        Bench::Capture(args) => capture::run(args, &stop),
        Bench::Forward(args) => forward::run(args, &stop),
        Bench::Pipeline(args) => pipeline::run(args, &stop),
    }
}
