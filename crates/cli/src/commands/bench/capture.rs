//! `streamline bench capture`: the highest rate at which `ethernet` loses nothing.

use super::bed::{Way, named};
use super::loss_free::{Bench, Rates, shown};
use super::options::Common;
use super::show::{rows, show};
use crate::exit::{CommandError, Outcome};
use driver::pair::End;
use streamline::devices::Place;
use streamline::language::FilterCall;
use streamline::{Session, StopFlag};

/// Find the highest rate at which capturing loses no frame
///
/// One request sends frames at a rate (`generate rate=... | send FROM`), the other captures them (`ethernet TO direction=in |
/// sequence`). Each frame must come. The bench searches by bisection.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    rates: Rates,

    /// Send on this device; without --from and --to a virtual pair is made
    #[arg(long, value_name = "DEVICE", requires = "to")]
    from: Option<String>,

    /// Capture on this device, to which the other leads
    #[arg(long, value_name = "DEVICE", requires = "from")]
    to: Option<String>,

    /// Who copies: the parameter `by` of `ethernet`
    #[arg(long, value_enum, default_value_t = By::Best)]
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Best,
    Kernel,
    Socket,
}

impl By {
    fn param(self) -> &'static str {
        match self {
            By::Best => "best",
            By::Kernel => "kernel",
            By::Socket => "socket",
        }
    }
}

pub(super) fn run(args: &Args, stop: &StopFlag) -> Outcome {
    args.common.check_svg()?;
    let way = match (&args.from, &args.to) {
        (Some(from), Some(to)) if from == to => {
            return Err(CommandError::Wrong(format!("`{from}` cannot be both --from and --to")));
        }
        (Some(from), Some(to)) => Way { from: named(from)?, to: named(to)?, through: None, own: false },
        _ => Way::pair()?,
    };
    let place = match args.by {
        By::Kernel => "kernel",
        By::Socket => "socket",
        By::Best => best(&way.to)?,
    };
    let sink = format!("{} direction=in by={}", FilterCall::new("ethernet", [way.to.name.clone()]), args.by.param());
    let bench = Bench { way: &way, sink, sink_counts: true, common: &args.common, rates: &args.rates, stop };
    let (rows, outcome) = rows(args.common.sizes.iter().copied(), |size| bench.row(size, || Ok((None, place))));
    show(&args.common, shown("capture", &rows, &args.rates), outcome)
}

fn best(device: &End) -> Result<&'static str, CommandError> {
    let known = device.namespace.enter(|| Session::new().devices_at(Place::Here).device(&device.name))??;
    Ok(if known.copied { "socket" } else { "kernel" })
}
