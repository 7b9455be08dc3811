//! Passes blocks of a span of time.

use filter::prelude::*;

/// The kind `time`.
pub static KIND: Kind = Kind::new("time", "passes the blocks of a span of time", make)
    .also(&["between", "since", "until"])
    .help(
        "Passes blocks whose time is at or after `from` and before `to`. Each may be left out, and is a date or time in UTC \
         (`2026-01-02`, `2026-01-02T03:04:05.678`), seconds since 1970 (`1767323045.6`), or a duration such as `+10s` \
         after the first block that came.",
    )
    .params(&[
        Param::new("from", ParamType::Text, "the first time that passes").main(),
        Param::new("to", ParamType::Text, "the first time that passes no more"),
    ])
    .mode(Mode::Serial)
    .touches(Parts::METADATA, Parts::NONE)
    .examples(&[Example {
        request: "pcap browse.pcap | time to=\"+100ms\" | count",
        output: "{\"blocks\":1,\"bytes\":62,\"wire_bytes\":62}\n",
    }]);

/// One end of the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// ns since 1970 UTC.
    At(u64),
    /// ns after the first block.
    After(u64),
}

fn make(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    let bound = |key: &'static str| params.text(key).map(|text| read(text, key)).transpose();
    let (from, to) = (bound("from")?, bound("to")?);
    if from.is_none() && to.is_none() {
        return Err(
            ParamError::new("from", "a span of time has a beginning or an end").with_help("time from=2026-01-02")
        );
    }
    if let (Some(Bound::At(from)), Some(Bound::At(to))) | (Some(Bound::After(from)), Some(Bound::After(to))) =
        (from, to)
        && from >= to
    {
        return Err(ParamError::new("to", "the span ends before it begins"));
    }
    Ok(Instance::filter(Span { from, to, first: None }))
}

fn read(text: &str, key: &'static str) -> Result<Bound, ParamError> {
    let read = match text.strip_prefix('+') {
        Some(duration) => match ParamType::Duration.parse(duration) {
            Ok(filter::param::Value::Number(ns)) => Some(Bound::After(ns)),
            _ => None,
        },
        None => packet::time::parse(text).map(Bound::At),
    };
    read.ok_or_else(|| {
        ParamError::new(key, format!("`{text}` is no time"))
            .with_help("2026-01-02, 2026-01-02T03:04:05.678 (UTC), seconds since 1970, or +10s after the first block")
    })
}

struct Span {
    from: Option<Bound>,
    to: Option<Bound>,
    first: Option<u64>,
}

impl Filter for Span {
    fn run(&mut self, batch: &mut Batch<'_>, _cx: &mut Context<'_>) -> Made {
        let Some(first) = self.first.or_else(|| batch.iter().next().map(|(_, block)| block.time)) else {
            return Ok(Status::Done);
        };
        self.first = Some(first);
        let time = |bound: Option<Bound>| {
            bound.map(|bound| match bound {
                Bound::At(time) => time,
                Bound::After(ns) => first.saturating_add(ns),
            })
        };
        let (from, to) = (time(self.from).unwrap_or(0), time(self.to));
        batch.keep_if(|block| block.time >= from && to.is_none_or(|to| block.time < to));
        Ok(Status::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Chain;

    fn check(given: &[(&str, &str)], passed: &[u64]) {
        let frames: Vec<_> = (0..10).map(|number| (number * 1_000_000_000, vec![1])).collect();
        let outcome = Chain::frames(1, &frames).then(&KIND, given).run();
        let seconds: Vec<u64> = outcome.blocks.iter().map(|block| block.descriptor.time / 1_000_000_000).collect();
        assert_eq!(seconds, passed, "{given:?}");
    }

    #[test]
    fn spans() {
        check(&[("from", "7")], &[7, 8, 9]);
        check(&[("to", "1970-01-01T00:00:02Z")], &[0, 1]);
        check(&[("from", "+3s"), ("to", "+4500ms")], &[3, 4]);
        check(&[("from", "1970-01-01T00:00:08.5"), ("to", "+20s")], &[9]);
        check(&[("from", "2026-01-01")], &[]);
    }

    #[test]
    fn refusals() {
        let check = |given: &[(&str, &str)], key: &'static str, message: &str| {
            let error = Chain::frames(1, &[]).then(&KIND, given).refusal().unwrap();
            assert_eq!((error.key, error.message.as_str()), (Some(key), message));
        };
        check(&[], "from", "a span of time has a beginning or an end");
        check(&[("from", "yesterday")], "from", "`yesterday` is no time");
        check(&[("to", "+5")], "to", "`+5` is no time");
        check(&[("from", "5"), ("to", "5")], "to", "the span ends before it begins");
    }
}
