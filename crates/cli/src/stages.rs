//! The stages of running requests, for `ps` and `top`.

use crate::progress::count;
use crate::table::Table;
use serde_json::{Value, json};
use streamline::running::client::Request;
use streamline::running::place::Id;
use streamline::running::protocol::{ChannelLine, Doing, StageLines, ThreadLine};

/// The stages of a request. `None`: it runs on one thread, or does not answer.
pub(crate) fn of(request: &Request) -> Option<&StageLines> {
    request.told.as_ref().ok().map(|told| &told.stages).filter(|lines| !lines.stages.is_empty())
}

/// A row for each thread. Blocks a second count from the start of the stages, or from the request's state in `before`.
pub(crate) fn table(requests: &[Request], before: &[Request]) -> Table {
    let mut table = Table::new(&["request", ">thread", "doing", ">blocks/s", "queue", "filters"]);
    for (request, lines) in requests.iter().filter_map(|request| Some((request, of(request)?))) {
        let is_same = |last: &&Request| last.process == request.process && last.user == request.user;
        let last = before.iter().find(is_same).and_then(of).filter(|last| last.age < lines.age);
        for (number, (filters, thread)) in threads(lines).enumerate() {
            let rate =
                match last.and_then(|last| threads(last).nth(number).map(|(_, thread)| (last.age, thread.blocks))) {
                    Some((age, blocks)) => rate(thread.blocks.saturating_sub(blocks), lines.age.saturating_sub(age)),
                    None => rate(thread.blocks, lines.age),
                };
            let channel = |line: &ChannelLine| format!("{}/{} from {}", line.full, line.room, line.from);
            let queues: Vec<String> = thread.channels.iter().map(channel).collect();
            table.row([
                Id(request.process).to_string(),
                (number + 1).to_string(),
                doing(thread.doing).into(),
                count(rate),
                if queues.is_empty() { "-".into() } else { queues.join(", ") },
                filters.into(),
            ]);
        }
        if lines.left_out > 0 {
            let more = format!("{} more threads: no room to tell", lines.left_out);
            table.row([
                Id(request.process).to_string(),
                "...".into(),
                String::new(),
                String::new(),
                String::new(),
                more,
            ]);
        }
    }
    table
}

pub(crate) fn json(lines: &StageLines) -> Value {
    let mut next = 1..;
    let channel = |line: &ChannelLine| json!({ "from": line.from, "full": line.full, "room": line.room });
    let mut thread = |line: &ThreadLine| {
        json!({
            "thread": next.next(), "doing": doing(line.doing), "blocks": line.blocks,
            "blocks_per_second": rate(line.blocks, lines.age),
            "channels": line.channels.iter().map(channel).collect::<Vec<_>>(),
        })
    };
    let stages = lines.stages.iter().map(|stage| {
        let threads: Vec<Value> = stage.threads.iter().map(&mut thread).collect();
        json!({ "filters": stage.filters, "threads": threads })
    });
    stages.collect()
}

fn threads(lines: &StageLines) -> impl Iterator<Item = (&str, &ThreadLine)> {
    lines.stages.iter().flat_map(|stage| stage.threads.iter().map(|thread| (stage.filters.as_str(), thread)))
}

fn rate(blocks: u64, time: std::time::Duration) -> u64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { (blocks as f64 / seconds) as u64 } else { 0 }
}

fn doing(doing: Doing) -> &'static str {
    match doing {
        Doing::Awake => "awake",
        Doing::Asleep => "asleep",
        Doing::Waiting => "waits for room",
        Doing::Ended => "ended",
    }
}
