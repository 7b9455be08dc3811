//! The process of isolated filters: it gives up everything it does not need, then runs an ordinary request between two
//! rings.
//!
//! Standard input gives the request: a number of lines, then the lines. When it closes, the parent process is gone, and
//! this one ends. On standard output this process reports to its parent, one line for each event.

use super::words::{COUNT, END, FAILED, LINES, NOTE, READY};
use crate::parser::confine;
use crate::session::Session;
use base::atomic::StopFlag;
use engine::{NodeReport, Report};
use filter::Output;
use guard::CapabilitySet;
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};

const NOTE_BYTES: usize = 512;

const STATUS: i32 = 1;

/// Reports to the parent process. Where that is gone, the write fails without effect.
fn say(word: &str, text: &str) {
    let line = format!("{word}{}\n", text.replace('\n', "; "));
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(line.as_bytes());
    let _ = output.flush();
}

/// Runs until the ring that it reads ends. Gives the process's exit status.
pub fn run() -> i32 {
    std::panic::set_hook(Box::new(|panic| {
        say(FAILED, &format!("a filter has panicked: {panic}"));
        std::process::exit(STATUS);
    }));
    match run_request() {
        Ok(()) => 0,
        Err(why) => {
            say(FAILED, &why);
            // Exit without closing the rings properly: the other side has to see that this was no proper end.
            std::process::exit(STATUS)
        }
    }
}

fn run_request() -> Result<(), String> {
    // Payload is parsed here: this thread and those it starts keep no capability.
    guard::keep_capabilities(CapabilitySet::empty()).map_err(|error| error.to_string())?;
    let text = request()?;
    let session = Session::with_output(Output::new(Box::new(std::io::sink()), false));
    // Load libpcap now, while libraries can still be loaded.
    let _ = crate::describe_compiler();
    let mut job = session.prepare(&text, &BTreeMap::new()).map_err(|error| error.to_string())?;
    confine::make_for_user_alone();
    // Where the kernel lacks a guard, the process runs without it, as the parser process does.
    confine::confine_between_rings();
    std::thread::Builder::new().name("lifeline".into()).spawn(wait_for_end).map_err(|error| error.to_string())?;
    say(READY, "");
    let mut notices = Vec::new();
    // The parent reads these lines only after this process has ended. More than a pipe holds would block its end.
    let (ended, report) = job.run_to_end(&StopFlag::new(), &mut |worker| {
        notices.extend(worker.take_notices().into_iter().take(LINES - notices.len()));
    });
    tell(&report);
    notices.iter().for_each(|notice| say(NOTE, notice.get(..NOTE_BYTES).unwrap_or(notice)));
    ended.map(drop).map_err(|error| error.to_string())
}

fn request() -> Result<String, String> {
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    let mut next = || -> Result<String, String> {
        line.clear();
        match input.read_line(&mut line) {
            Ok(0) => Err("there is no request".into()),
            Ok(_) => Ok(line.clone()),
            Err(error) => Err(error.to_string()),
        }
    };
    let lines: usize = next()?.trim().parse().map_err(|_| "this command is for streamline itself".to_string())?;
    (0..lines).map(|_| next()).collect()
}

/// Ends this process when its parent has ended.
fn wait_for_end() {
    let mut byte = [0];
    while let Ok(1) = std::io::stdin().lock().read(&mut byte) {}
    // A proper end closes standard input too. Give the main thread time to end by itself first.
    std::thread::sleep(END + std::time::Duration::from_secs(1));
    std::process::exit(STATUS)
}

fn tell(report: &Report) {
    let inner: Vec<&NodeReport> =
        report.nodes.iter().filter(|node| !node.source && !node.operand && !node.edges.is_empty()).collect();
    for node in &inner {
        let of = if inner.len() > 1 { format!("{}: ", node.label) } else { String::new() };
        for (event, count) in node.counters.events.iter() {
            say(COUNT, &format!("{count} {of}{event}"));
        }
        for (reason, count) in node.counters.drops.iter() {
            say(COUNT, &format!("{count} {of}dropped, {reason}"));
            say(NOTE, &format!("{of}{count} blocks dropped: {reason}"));
        }
    }
}
