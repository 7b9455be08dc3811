//! `streamline bench forward`: the highest rate at which frames from one device to another are not lost.

use super::bed::{Way, named, send};
use super::jobs;
use super::loss_free::{Bench, Rates, shown};
use super::options::Common;
use super::show::{rows, show};
use crate::exit::{CommandError, Outcome};
use driver::pair::End;
use std::collections::BTreeSet;
use std::mem;
use streamline::StopFlag;
use streamline::language::FilterCall;

/// Find the highest rate at which forwarding loses no frame
///
/// One request sends frames at a rate (`generate rate=... | send`), the second forwards them (`ethernet IN mode=consume
/// everything=yes | send OUT`), the third counts those that arrive (`af_packet ... | sequence`). The bench searches by bisection.
#[derive(clap::Args)]
#[command(after_help = "\
Devices are cabled so: --from -> --in (this machine forwards) --out -> --to. With --from and --to alone the
bench measures whatever lies between them, and forwards nothing itself. While it runs it takes all packets that --in receives.")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    rates: Rates,

    /// Send on this device; without devices two virtual pairs are made
    #[arg(long, value_name = "DEVICE", requires = "to")]
    from: Option<String>,

    /// Count what arrives at this device
    #[arg(long, value_name = "DEVICE", requires = "from")]
    to: Option<String>,

    /// Forward from this device
    #[arg(long = "in", value_name = "DEVICE", requires_all = ["out", "from"])]
    input: Option<String>,

    /// Forward to this device
    #[arg(long, value_name = "DEVICE", requires = "input")]
    out: Option<String>,

    /// Where frames are forwarded; best is in the kernel where it can
    #[arg(long, value_enum, default_value_t = By::Best)]
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Best,
    Kernel,
    User,
}

pub(super) fn run(args: &Args, stop: &StopFlag) -> Outcome {
    args.common.check_svg()?;
    let way = way(args)?;
    let sink = format!("{} direction=in", FilterCall::new("af_packet", [way.to.name.clone()]));
    let bench = Bench { way: &way, sink, sink_counts: false, common: &args.common, rates: &args.rates, stop };
    let mut told = false;
    let mut begin = || match &way.through {
        Some((input, output)) => {
            forward(input, output, args.by, &mut told).map(|(running, place)| (Some(running), place))
        }
        None => Ok((None, "elsewhere")),
    };
    let (rows, outcome) = rows(args.common.sizes.iter().copied(), |size| bench.row(size, &mut begin));
    show(&args.common, shown("forward", &rows, &args.rates), outcome)
}

fn way(args: &Args) -> Result<Way, CommandError> {
    let (Some(from), Some(to)) = (&args.from, &args.to) else { return Way::two_pairs() };
    let all: Vec<&String> =
        [Some(from), Some(to), args.input.as_ref(), args.out.as_ref()].into_iter().flatten().collect();
    if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
        return Err(CommandError::Wrong("each of --from, --in, --out and --to is another device".into()));
    }
    let through = match (&args.input, &args.out) {
        (Some(input), Some(out)) => Some((named(input)?, named(out)?)),
        _ => None,
    };
    Ok(Way { from: named(from)?, to: named(to)?, through, own: false })
}

/// Starts forwarding; gives where, and tells people once why it is not in the kernel.
fn forward(input: &End, output: &End, by: By, told: &mut bool) -> Result<(jobs::Running, &'static str), CommandError> {
    let source = FilterCall::new("ethernet", [input.name.clone()]);
    let by_user = (by == By::User).then_some("socket");
    let request = format!("{source} mode=consume everything=yes | {}", send(&output.name, by_user));
    let running = jobs::start(&input.namespace, &request)?;
    if by == By::Kernel && !running.in_kernel {
        return Err(CommandError::Failed(format!(
            "the kernel does not forward from `{}` to `{}`: {}",
            input.name, output.name, running.why
        )));
    }
    let place = if running.in_kernel { "kernel" } else { "user" };
    if by == By::Best && !running.in_kernel && !mem::replace(told, true) {
        tell!("note: the kernel does not forward from `{}` to `{}`: {}", input.name, output.name, running.why);
    }
    Ok((running, place))
}
