//! Starts a process for isolated filters, with a ring into it and one out of it, and learns how it ended.
//!
//! The process gets its request on standard input, which stays open; when it closes, the process knows that this one is
//! gone. On standard output it says that it is ready, or why not. At its end it says what it counted, or what failed.
//! No file is left over: the rings' sockets lose their names as soon as both sides have opened them.

use super::words::{COUNT, END, FAILED, LINES, NOTE, READY};
use crate::kept_ring::KeptRing;
use buffer::control::name::{clear_dead, remove_name};
use buffer::keeper::client::Named;
use buffer::keeper::place;
use buffer::keeper::policy::{Policy, Reach};
use buffer::keeper::server::RingOptions;
use buffer::ring::RingKind;
use buffer::ring::memory::Geometry;
use filter::Type;
use filters::ring::process::{Process, Rings, Said};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes and blocks of each ring: twice the room of the longest block.
const RING: (u64, u64) = (32 << 20, 1 << 16);

const START: Duration = Duration::from_secs(20);

/// Most bytes read from a process's output; it may be hostile.
const WORDS: u64 = 64 << 10;

static NAMES: AtomicU64 = AtomicU64::new(0);

/// Everything needed to start a process, and to start it again.
pub(super) struct Recipe {
    pub(super) command: Vec<OsString>,
    pub(super) request: String,
    pub(super) input: Type,
    pub(super) output: Type,
    pub(super) latency: Option<Duration>,
}

/// A process, and the keepers of its rings.
pub(super) struct Child {
    recipe: Recipe,
    process: std::process::Child,
    /// Set once this process has killed it, or has seen it end.
    status: Option<ExitStatus>,
    /// Dropped when a restarted process gets new rings.
    _rings: [KeptRing; 2],
}

impl Child {
    pub(super) fn start(recipe: Recipe) -> Result<(Child, Rings), String> {
        let rings = [ring()?, ring()?];
        let (process, opened) = start(&recipe, &rings)?;
        Ok((Child { recipe, process, status: None, _rings: rings }, opened))
    }

    /// Its exit status. `None`: it runs.
    fn look(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
        self.status
    }

    /// The lines that the process wrote after its first word. It must have ended.
    fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(output) = self.process.stdout.take() {
            // An error ends the output like its proper end.
            let _ = output.take(WORDS).read_to_end(&mut words);
        }
        String::from_utf8_lossy(&words).lines().map(|line| base::terminal::line(line).into_owned()).collect()
    }
}

impl Process for Child {
    fn end(&mut self) -> Result<Said, String> {
        drop(self.process.stdin.take());
        let until = Instant::now() + END;
        while self.look().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Some(status) = self.status else {
            self.kill();
            return Err(format!("has left its rings, and did not end within {} s: it was killed", END.as_secs()));
        };
        let words = self.words();
        let mut said = words.iter().filter_map(|line| line.strip_prefix(FAILED));
        match said.next() {
            Some(why) => Err(format!("has failed: {why}")),
            None if status.success() => {
                let label = |line: &str| format!("in the process of `{}`: {line}", self.recipe.request);
                let notes = words.iter().filter_map(|line| line.strip_prefix(NOTE)).take(LINES).map(label).collect();
                let count = |line: &String| {
                    let (count, name) = line.strip_prefix(COUNT)?.split_once(' ')?;
                    Some((name.to_string(), count.parse().ok()?))
                };
                Ok(Said { notes, counts: words.iter().filter_map(count).take(LINES).collect() })
            }
            None => Err(describe(status)),
        }
    }

    fn lives(&mut self) -> bool {
        self.look().is_none()
    }

    fn kill(&mut self) {
        if self.look().is_none() {
            let _ = self.process.kill();
            self.status = self.process.wait().ok();
        }
    }

    fn again(&mut self) -> Result<Rings, String> {
        self.kill();
        let rings = [ring()?, ring()?];
        let (process, opened) = start(&self.recipe, &rings)?;
        (self.process, self.status, self._rings) = (process, None, rings);
        Ok(opened)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(number), _) => match name(number) {
            Some(name) => format!("was killed by signal {number} ({name})"),
            None => format!("was killed by signal {number}"),
        },
        (None, Some(code)) => format!("has ended with status {code}"),
        (None, None) => "has ended".into(),
    }
}

fn name(signal: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (31, "SIGSYS"),
    ];
    names.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
}

/// Makes a ring that both sides may hold: the writer waits when it is full.
fn ring() -> Result<KeptRing, String> {
    let (bytes, blocks) = RING;
    let options = RingOptions {
        policy: Policy { read: Reach::User, hold: Reach::User, write: Reach::User },
        ..RingOptions::new(Geometry::new(RingKind::D, bytes, blocks))
    };
    let path = path().map_err(|error| error.to_string())?;
    KeptRing::make(path, options).map_err(|error| format!("a ring cannot be made: {error}"))
}

/// A path for a ring's socket, until it is opened.
fn path() -> std::io::Result<PathBuf> {
    let folder = place::folder();
    place::make_folder(&folder)?;
    let folder = folder.join("isolated");
    place::make_folder(&folder)?;
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    if number == 0 {
        clear(&folder);
    }
    Ok(folder.join(format!("{}.{number}.ring", std::process::id())))
}

/// Removes what was left by a request that was killed while it started a process.
fn clear(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "ring") {
            // A ring in use is not removed.
            let _ = clear_dead(&path);
        }
    }
}

/// Starts the process that reads the first of these rings and writes the second.
fn start(recipe: &Recipe, rings: &[KeptRing; 2]) -> Result<(std::process::Child, Rings), String> {
    let [program, arguments @ ..] = &*recipe.command else { return Err("there is no program".into()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Signals from the terminal are for the request, which ends its processes itself.
    command.process_group(0);
    let mut process = command.spawn().map_err(|error| error.to_string())?;
    let opened = greet(&mut process, recipe, rings);
    for ring in rings {
        remove_name(ring.path());
    }
    match opened {
        Ok(opened) => Ok((process, opened)),
        Err(why) => {
            let _ = process.kill();
            let _ = process.wait();
            Err(why)
        }
    }
}

/// Sends the process its request, waits until it is ready, and opens this side's ends of the rings.
fn greet(process: &mut std::process::Child, recipe: &Recipe, rings: &[KeptRing; 2]) -> Result<Rings, String> {
    let [into, from] = [&rings[0], &rings[1]].map(|ring| ring.path().to_str().ok_or("the folder's path is not text"));
    let (into, from) = (into?, from?);
    let latency = recipe.latency.map(|latency| format!("set latency={}ns; ", latency.as_nanos())).unwrap_or_default();
    let text = format!("{latency}ring \"{into}\" type={} | {} | ring \"{from}\"", recipe.input.name(), recipe.request);
    let lines = text.lines().count();
    let said = process.stdin.as_mut().map(|input| input.write_all(format!("{lines}\n{text}\n").as_bytes()));
    let word = first_word(process)?;
    if let Some(why) = word.strip_prefix(FAILED) {
        return Err(why.to_string());
    }
    if word != READY || !matches!(said, Some(Ok(()))) {
        let status = process.wait().map(describe);
        return Err(format!("it {}", status.unwrap_or_else(|_| "says something else".into())));
    }
    let named = |name: &str| Named::at(name).map_err(|error| error.to_string());
    Rings::open(&named(into)?, recipe.input, named(from)?, recipe.output, recipe.latency)
        .map_err(|error| format!("a ring cannot be opened: {error}"))
}

/// The first line that the process writes, if it writes one in time.
fn first_word(process: &mut std::process::Child) -> Result<String, String> {
    let Some(output) = &mut process.stdout else { return Err("it has no output".into()) };
    let until = Instant::now() + START;
    let mut word = Vec::new();
    while word.len() < WORDS as usize {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(format!("it is not ready within {} s", START.as_secs())),
            // Interrupted by a signal: try again.
            Err(_) => continue,
            Ok(_) => {}
        }
        let mut byte = [0];
        match output.read(&mut byte) {
            Ok(1) if byte[0] != b'\n' => word.push(byte[0]),
            _ => break,
        }
    }
    Ok(base::terminal::line(&String::from_utf8_lossy(&word)).into_owned())
}
