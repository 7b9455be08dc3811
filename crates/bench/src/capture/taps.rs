//! The programs that tap: unmodified ones, through us or on packet sockets of their own.

use crate::case::Trouble;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Whose way packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A shared ring.
    Ours,
    /// A packet socket of the program's own.
    Stock,
}

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `tcpdump -w /dev/null`.
    Tcpdump,
    /// `dumpcap -w` into a file in memory.
    Dumpcap,
}

/// One tap.
#[derive(Clone, Copy, Debug)]
pub struct Tap {
    /// Whose way packets come.
    pub who: Who,
    /// Which program.
    pub program: Program,
    /// What it wants; nothing is all.
    pub expression: &'static str,
}

/// A tap that runs.
pub struct Running {
    child: Child,
    program: Program,
    said: Option<BufReader<ChildStderr>>,
    heard: String,
}

/// What a tap said at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Packets it got.
    pub captured: u64,
    /// Packets it lost.
    pub dropped: u64,
}

/// How long a tap may take to start, or to end.
const LONG: Duration = Duration::from_secs(20);

impl Tap {
    /// Its command line on this device; `streamline` is our program, `socket` our daemon's.
    pub fn command(&self, device: &str, streamline: &Path, socket: &Path, scratch: &Path) -> Command {
        let mut words: Vec<String> = Vec::new();
        let interface = match self.who {
            Who::Ours => format!("sl:{device}"),
            Who::Stock => device.to_string(),
        };
        match self.program {
            Program::Tcpdump => {
                words.extend(["tcpdump", "-n", "-B", "65536", "-Z", "root", "-i", &interface].map(String::from));
                words.extend(["-w", "/dev/null"].map(String::from));
                words.extend(self.expression.split(' ').filter(|word| !word.is_empty()).map(String::from));
            }
            Program::Dumpcap => {
                let file = scratch.join(format!("{:?}.pcapng", self.who)).display().to_string();
                words.extend(["dumpcap", "-q", "-B", "64", "-i", &interface, "-w", &file].map(String::from));
            }
        }
        let mut command = Command::new(&words[0]);
        if self.who == Who::Ours {
            // What `streamline pcap` does, without a process more to wait for.
            command.env("LD_PRELOAD", streamline.with_file_name("libstreamline_pcap.so"));
            command.env("STREAMLINE_DAEMON", socket);
        }
        command.args(&words[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Of a process that was just started.
    pub fn started(&self, mut child: Child) -> Result<Running, Trouble> {
        let said = child.stderr.take().map(BufReader::new);
        let mut running = Running { child, program: self.program, said, heard: String::new() };
        running.await_ready()?;
        Ok(running)
    }
}

impl Running {
    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads what it says until it listens.
    fn await_ready(&mut self) -> Result<(), Trouble> {
        let ready = match self.program {
            Program::Tcpdump => "listening on",
            Program::Dumpcap => "File: ",
        };
        let until = Instant::now() + LONG;
        while !self.heard.contains(ready) {
            let read = self.said.as_mut().map_or(Ok(0), |said| said.read_line(&mut self.heard));
            if !matches!(read, Ok(1..)) || Instant::now() > until {
                return Err(Trouble::Failed(format!("a tap did not start: {}", self.heard)));
            }
        }
        Ok(())
    }

    /// Ctrl-C, and what it says then.
    pub fn end(mut self) -> Result<Said, Trouble> {
        let failed = |error: std::io::Error| Trouble::Failed(format!("a tap did not end: {error}"));
        let process = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).map_err(|error| failed(error.into()))?;
        if let Some(said) = &mut self.said {
            said.read_to_string(&mut self.heard).map_err(failed)?;
        }
        self.child.wait().map_err(failed)?;
        Ok(match self.program {
            Program::Tcpdump => Said {
                captured: number_before(&self.heard, " packets captured"),
                dropped: number_before(&self.heard, " packets dropped by kernel"),
            },
            Program::Dumpcap => dumpcap_said(&self.heard),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number in front of a text; 0 where it is not there.
fn number_before(text: &str, what: &str) -> u64 {
    let before = text.split(what).next().filter(|before| before.len() < text.len()).unwrap_or_default();
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// `Packets received/dropped on interface 'x': 10/2 (pcap:0/dumpcap:2/...)`.
fn dumpcap_said(text: &str) -> Said {
    let Some((_, rest)) = text.split_once("received/dropped on interface") else { return Said::default() };
    let numbers = rest.split("': ").nth(1).unwrap_or_default();
    let mut numbers = numbers.split(['/', ' ']).map(|number| number.parse().unwrap_or(0));
    Said { captured: numbers.next().unwrap_or(0), dropped: numbers.next().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_understood() {
        let said = "tcpdump: listening on v1\n12 packets captured\n14 packets received by filter\n3 packets dropped by kernel\n";
        assert_eq!(number_before(said, " packets captured"), 12);
        assert_eq!(number_before(said, " packets dropped by kernel"), 3);
        assert_eq!(number_before("", " packets captured"), 0);
        let said =
            "Packets captured: 7\nPackets received/dropped on interface 'v1': 7/2 (pcap:2/dumpcap:0/flushed:0)\n";
        assert_eq!(dumpcap_said(said), Said { captured: 7, dropped: 2 });
    }
}
