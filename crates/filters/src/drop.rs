//! Drops every block: the end of a branch without output.

use filter::prelude::*;

/// What `drop` is.
pub static KIND: Kind = Kind::new("drop", "drops every block", make)
    .also(&["null", "discard"])
    .help(
        "A sink that keeps nothing: for timing what stands before it, and for branches wanted for their counters only.",
    )
    .sink()
    // There is no order to keep: each partition of the flows may have an instance.
    .mode(Mode::Stateless)
    .runs_in(Spaces::UNPRIVILEGED);

struct Drop;

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Drop))
}

impl Filter for Drop {
    fn run(&mut self, _batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    #[test]
    fn takes_everything() {
        let outcome = Chain::frames(1, &[(0, vec![0; 60]), (1, vec![0; 60])]).then(&KIND, &[]).run();
        assert_eq!((outcome.counters("drop").blocks_taken, outcome.blocks.len()), (2, 0));
    }
}
