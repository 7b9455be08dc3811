//! The settings of a request as a whole (`set`).

use base::limits::WORKERS;
use engine::{Plan, Queue, Workers};
use filter::{Param, ParamType, Params, Wait};
use request::{Diagnostic, Span};
use std::time::Duration;

/// Settings of a request as a whole.
pub static SETTINGS: [Param; 8] = [
    Param::new(
        "workers",
        ParamType::Text,
        "shares of the flows, each in a thread of its own; `pipeline`: cut into stages by what filters cost; `auto`: what of \
         these is expected to be fastest; 1 = all in one thread",
    )
    .default("1"),
    Param::new(
        "for",
        ParamType::Duration,
        "how long the request runs, by the clock of this machine, on files too; then it ends as after Ctrl-C; as long as its \
         input if not given",
    ),
    Param::new(
        "latency",
        ParamType::Duration,
        "how much later than it came a packet of a device (10ms if not given) or a block of a ring (8ms) may be found: longer is cheaper",
    ),
    Param::new(
        "share",
        ParamType::Flag,
        "what parses payload may run once for several requests of this user that begin alike on a device",
    ),
    Param::new(
        "wait",
        ParamType::Choice(&Wait::WORDS),
        "how the request waits for blocks: sleep; adaptive: poll briefly, then sleep; busy: poll, which takes a processor",
    )
    .default("sleep"),
    Param::new(
        "cpus",
        ParamType::Text,
        "processors that its threads run on, one after the other: 0,1 or 0-3; any if not given",
    ),
    Param::new(
        "decap",
        ParamType::Flag,
        "the filter `decap` is put in before `tcp` and `udp`: tunnels are opened, and fragments put together",
    )
    .default("yes"),
    Param::new(
        "queue",
        ParamType::Choice(&Queue::WORDS),
        "what carries blocks between threads: a queue with positions, or FastForward, whose slots say themselves that they are full",
    )
    .default("indexed"),
];

/// Checks a setting. `key` was given last, and its value is at `span`.
pub(crate) fn check(settings: &Params, key: &str, span: Span) -> Result<(), Diagnostic> {
    let text = settings.text(key).unwrap_or_default();
    let wrong = |[message, label]: [String; 2]| Diagnostic::new(message, span).with_label(label);
    match key {
        "for" if settings.number("for") == Some(0) => {
            Err(Diagnostic::new("`for=0` ends the request before it begins", span).with_label("longer than nothing"))
        }
        "workers" => workers(text).map(drop).map_err(wrong),
        "cpus" => {
            let wanted = processors(text).map_err(wrong)?;
            let here = processors_here();
            match wanted.iter().find(|cpu| !here.contains(cpu)) {
                None => Ok(()),
                Some(cpu) => Err(Diagnostic::new(format!("there is no processor {cpu} for this process"), span)
                    .with_label(format!("it may use {}", list(&here)))),
            }
        }
        _ => Ok(()),
    }
}

/// The meaning of `workers=`. The error has a message and a short label.
pub fn workers(text: &str) -> Result<Workers, [String; 2]> {
    match (text, ParamType::Number.parse(text)) {
        ("pipeline", _) => Ok(Workers::Pipeline),
        ("auto", _) => Ok(Workers::Auto),
        (_, Ok(filter::param::Value::Number(0))) => {
            Err(["`workers=0` leaves the work undone".into(), "1 at least".into()])
        }
        (_, Ok(filter::param::Value::Number(count))) if count <= WORKERS as u64 => {
            Ok(Workers::Partitions(count as usize))
        }
        (_, Ok(_)) => Err([format!("a request has {WORKERS} workers at most"), format!("more than {WORKERS}")]),
        (_, Err(_)) => {
            Err([format!("`{text}` is no number of workers"), format!("1 to {WORKERS}, `pipeline` or `auto`")])
        }
    }
}

/// Processors as `cpus=` names them: numbers and ranges.
fn processors(text: &str) -> Result<Vec<u32>, [String; 2]> {
    let wrong = || [format!("`{text}` names no processors"), "such as `0`, `0,2` or `0-3`".to_string()];
    let mut all = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high): (u32, u32) = (low.parse().map_err(|_| wrong())?, high.parse().map_err(|_| wrong())?);
        if low > high || high >= engine::CPUS {
            return Err(wrong());
        }
        all.extend(low..=high);
    }
    Ok(all)
}

fn processors_here() -> Vec<u32> {
    engine::processors()
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// How much later than it came a block may be found (`set latency=`).
pub fn latency(settings: &Params) -> Option<Duration> {
    settings.number("latency").map(Duration::from_nanos)
}

/// How long a request runs (`set for=`). `None`: as long as its input.
pub fn duration(settings: &Params) -> Option<Duration> {
    settings.number("for").map(Duration::from_nanos)
}

/// A plan without nodes, with what a request's settings say.
pub fn plan(settings: &Params) -> Plan {
    let cpus = settings.text("cpus").and_then(|text| processors(text).ok()).unwrap_or_default();
    let processors = if cpus.is_empty() {
        processors_here().len()
    } else {
        let mut different = cpus.clone();
        different.sort_unstable();
        different.dedup();
        different.len()
    };
    Plan {
        nodes: Vec::new(),
        wait: settings.text("wait").and_then(Wait::of).unwrap_or_default(),
        workers: settings.text("workers").and_then(|text| workers(text).ok()).unwrap_or_default(),
        processors,
        cpus,
        queue: settings.text("queue").and_then(Queue::of).unwrap_or_default(),
        caller: Vec::new(),
        apart: false,
    }
}
