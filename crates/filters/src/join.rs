//! Merges the branches behind a `split`.

use filter::prelude::*;

/// What `join` is.
pub static KIND: Kind = Kind::new("join", "puts what branches behind `split` give together again", make)
    .help(
        "`split | { a + b } | join` gives what a and b give. With `order=yes` it comes in the order in which `split` got the \
         blocks that it was made of; that takes `split`, its branches and `join` on one thread. With `order=no` branches may be \
         cut with `||`, and what is there first goes first. `spread=N` on a filter keeps the order on several threads.",
    )
    .params(&[Param::new("order", ParamType::Flag, "in the order of `split`").default("no")])
    .mode(Mode::Serial)
    .joins("order")
    .reads_fields(|_| Vec::new())
    .examples(&[Example {
        request: "pcap browse.pcap | split | { tcp + tcp } | join | count",
        output: "{\"blocks\":22,\"bytes\":21154,\"wire_bytes\":21154}\n",
    }]);

fn make(_params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    Ok(Instance::filter(Join))
}

struct Join;

impl Filter for Join {
    fn run(&mut self, _batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        Ok(Status::Done)
    }
}
