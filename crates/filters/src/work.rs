//! Spends a given time on each block. Stands for a filter in experiments with pipelines.
//!
//! Runs steps whose duration was measured once, and reads no clock: two clock reads take some 50 ns (more on a virtual
//! machine), as long as the work to be simulated.

use filter::prelude::*;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The kind `work`.
pub static KIND: Kind = Kind::new("work", "spends a stated time on each block", make)
    .help(
        "`work 500ns` keeps the processor busy for 500 ns for each block, and passes it as it is: a filter whose cost is known, \
         to see how much work a pipeline has time for. The time is counted in steps that are measured when the request is \
         prepared, so that a processor that is shared with others makes it longer, as it does for any filter.",
    )
    .params(&[Param::new("time", ParamType::Duration, "how long for each block").required().main()])
    .touches(Parts::NONE, Parts::NONE)
    .costs(|params| params.number("time").unwrap_or_default())
    .examples(&[Example {
        request: "generate count=1000 | work 100ns | count",
        output: "{\"blocks\":1000,\"bytes\":64000,\"wire_bytes\":64000}",
    }]);

/// Longer work on one block would delay the stop of a run.
const LONGEST: Duration = Duration::from_secs(1);

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let time = Duration::from_nanos(params.number("time").unwrap_or_default());
    if time > LONGEST {
        return Err(ParamError::new("time", format!("{time:?} for one block is too long")).with_help("up to 1s"));
    }
    Ok(Instance::filter(Work { steps: (time.as_nanos() as f64 / step_ns()) as u64 }))
}

struct Work {
    /// Steps per block.
    steps: u64,
}

impl Filter for Work {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        take(self.steps * u64::from(batch.count()));
        Ok(Status::Done)
    }
}

/// Runs `steps` dependent multiplications of about a nanosecond each.
fn take(steps: u64) {
    let (mut number, factor) = (1u64, black_box(0x5851_f42d_4c95_7f2d_u64));
    for _ in 0..steps {
        number = number.wrapping_mul(factor);
    }
    black_box(number);
}

/// Duration of a step, measured once per process for a few milliseconds. Takes the least of many measurements, so that
/// other load does not count.
fn step_ns() -> f64 {
    static NS: OnceLock<f64> = OnceLock::new();
    const STEPS: u64 = 50_000;
    *NS.get_or_init(|| {
        let measure = || {
            let began = Instant::now();
            take(STEPS);
            began.elapsed()
        };
        let least = (0..60).map(|_| measure()).min().unwrap_or_default();
        // Avoids 0, in case the clock stands still.
        (least.as_nanos() as f64 / STEPS as f64).max(0.01)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    /// Blocks take about the given time, or longer if other processes use the processor.
    #[test]
    fn takes_its_time_and_passes_everything() {
        let run = |time: &str| {
            let began = Instant::now();
            let frames: Vec<_> = (0..1000).map(|number| (number, vec![number as u8; 10])).collect();
            let outcome = Chain::frames(1, &frames).then(&KIND, &[("time", time)]).run();
            assert!(outcome.blocks.iter().zip(&frames).all(|(block, (_, bytes))| block.bytes == *bytes));
            began.elapsed()
        };
        step_ns();
        let without = run("0");
        assert!(run("100us") >= Duration::from_millis(80), "without: {without:?}");
    }

    #[test]
    fn refuses_what_would_never_end() {
        let error = Chain::frames(1, &[]).then(&KIND, &[("time", "2s")]).refusal().unwrap();
        assert_eq!(error.message, "2s for one block is too long");
    }
}
