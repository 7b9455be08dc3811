//! Gives each block to one of the branches behind it: by flow, in turn, or to the least loaded.

use filter::partition::{Division, Partitioner};
use filter::prelude::*;

/// The kind `split`.
pub static KIND: Kind = Kind::new("split", "gives each block to exactly one of the branches behind it", make)
    .help(
        "`split by=flow | { a + b }` gives each flow to a or to b: all frames of a flow, or all blocks of a stream, in both \
         directions, to the same one. `by=round-robin` gives 64 blocks or so to one branch and the next to the next. `by=load` \
         gives them to the branch that has the least waiting in its channel, where branches are cut with `||`, and else to the \
         one that has had the fewest blocks. Blocks keep their class. Only by flow does a branch see whole streams. On one \
         thread blocks come out of the branches in the order in which they came to `split`.",
    )
    .params(&[Param::new("by", ParamType::Choice(&["flow", "round-robin", "load"]), "what decides which branch").default("flow")])
    .mode(Mode::Serial)
    .splits()
    .reads_fields(|_| Vec::new())
    .examples(&[Example {
        request: "pcap browse.pcap | split by=round-robin | { head 3 + head 4 } | join | count",
        output: "{\"blocks\":3,\"bytes\":178,\"wire_bytes\":178}\n",
    }]);

fn make(params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let is_frame = env.input.has(Type::Frame);
    Ok(match params.text("by") {
        Some("round-robin") => Instance::filter(InTurn(0)),
        Some("load") => Instance::filter(ByLoad),
        _ => {
            let division = if is_frame { Division::Flows } else { Division::Streams };
            Instance::filter(ByFlow(Partitioner::new(division, filter::marks::BRANCHES as usize)))
        }
    })
}

struct InTurn(u16);

impl Filter for InTurn {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        batch.iter().for_each(|(place, _)| cx.marks.branches[place] = self.0);
        self.0 = (self.0 + 1) % filter::marks::BRANCHES;
        Ok(Status::Done)
    }
}

struct ByLoad;

impl Filter for ByLoad {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        batch.iter().for_each(|(place, _)| cx.marks.branches[place] = filter::marks::LEAST_LOADED);
        Ok(Status::Done)
    }
}

struct ByFlow(Partitioner);

impl Filter for ByFlow {
    fn run(&mut self, batch: &mut Batch<'_>, cx: &mut Context<'_>) -> Made {
        for (place, block) in batch.iter() {
            cx.marks.branches[place] = self.0.of(cx.rings, block) as u16;
        }
        Ok(Status::Done)
    }
}
