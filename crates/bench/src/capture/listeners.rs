//! The programs that listen: unmodified ones, through our daemon or on packet sockets of their own.

use crate::case::CaseError;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How a program gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// From a shared ring of ours.
    Ours,
    /// From a packet socket of its own.
    Stock,
}

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `tcpdump -w /dev/null`.
    Tcpdump,
    /// `tcpdump -w` into a file in memory.
    TcpdumpToFile,
    /// `dumpcap -w` into a file in memory.
    Dumpcap,
    /// `netsniff-ng --out` into a file in memory.
    Netsniff,
    /// Our own program with `ethernet DEV | bpf EXPRESSION | drop`.
    Request {
        /// Whether the expression may run in the kernel.
        push_down: bool,
    },
    /// Our own program with `ethernet DEV | bpf EXPRESSION | count`.
    Count {
        /// Whether packets are counted where they are captured. Else a `head` brings them up, and the filter counts them.
        below: bool,
    },
    /// Our own program with `ethernet DEV by=socket | bpf EXPRESSION | drop`.
    BySocket,
    /// Our own program with `ethernet DEV | save FILE`, a file in memory.
    Save,
    /// Our own program with `ethernet DEV | http | count`.
    Web {
        /// Whether the parsing filters may run once for all requests.
        share: bool,
        /// Whether the sent bodies are compressed.
        coded: bool,
    },
}

/// Matches one packet in a hundred.
pub const ONE_IN_A_HUNDRED: &str = "udp port 7777";

/// Matches all packets.
pub const ALL: &str = "udp";

/// Matches no packet, but takes 8,000 instructions for each.
pub fn dear() -> &'static str {
    static DEAR: LazyLock<String> = LazyLock::new(|| {
        let terms: Vec<String> = (1..=400).map(|term| format!("len + {term} & 15 = 16")).collect();
        terms.join(" or ")
    });
    &DEAR
}

/// One listener.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// How it gets packets.
    pub who: Who,
    /// The program.
    pub program: Program,
    /// The expression: empty or [`ALL`] for all packets, [`ONE_IN_A_HUNDRED`], or one that matches no packet.
    pub expression: &'static str,
    /// MiB of its buffer.
    pub buffer: u32,
}

/// A running listener.
pub struct Running {
    child: Child,
    program: Program,
    said: Option<BufReader<ChildStderr>>,
    heard: String,
}

/// The counters that a listener reported at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Packets that it got.
    pub captured: u64,
    /// Packets that it lost.
    pub dropped: u64,
}

const LONG: Duration = Duration::from_secs(20);

impl Listener {
    /// How many of `packets` it wants. `None`: it does not count packets.
    pub fn wanted(&self, packets: u64) -> Option<u64> {
        match (self.program, self.expression) {
            (Program::Web { .. }, _) => None,
            (_, "" | ALL) => Some(packets),
            (_, ONE_IN_A_HUNDRED) => Some(packets.div_ceil(100)),
            _ => Some(0),
        }
    }

    /// Whether it wants no packet.
    pub fn wants_nothing(&self) -> bool {
        self.wanted(1) == Some(0)
    }

    /// A command line of our own program. `None`: this is another program.
    fn request(&self, device: &str, streamline: &Path, socket: &Path, scratch: &Path) -> Option<Command> {
        let mut request = format!("ethernet {device} buffer={}M", self.buffer);
        let mut command = Command::new(streamline);
        command.args(["run", "--stats", "json", "--daemon"]).arg(socket);
        if self.program == Program::BySocket {
            request += " by=socket";
        }
        if !self.expression.is_empty() {
            request += &format!(" | bpf \"{}\"", self.expression);
        }
        match self.program {
            Program::BySocket => request += " | drop",
            Program::Count { below: true } => request += " | count",
            Program::Count { below: false } => request += &format!(" | head {} | count", u64::MAX),
            Program::Request { push_down } => {
                request += " | drop";
                if !push_down {
                    command.arg("--no-push-down");
                }
            }
            Program::Web { share, .. } => {
                request += " | http | count | drop";
                command.args(share.then_some("--share"));
            }
            Program::Save => request += &format!(" | save {} overwrite=yes", scratch.join("ours.pcap").display()),
            Program::Tcpdump | Program::TcpdumpToFile | Program::Dumpcap | Program::Netsniff => return None,
        }
        command.arg(request);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Some(command)
    }

    /// Its command line on this device; `streamline` is our program, `socket` our daemon's.
    pub fn command(&self, device: &str, streamline: &Path, socket: &Path, scratch: &Path) -> Command {
        if let Some(command) = self.request(device, streamline, socket, scratch) {
            return command;
        }
        let mut words: Vec<String> = Vec::new();
        let interface = match self.who {
            Who::Ours => format!("sl:{device}"),
            Who::Stock => device.to_string(),
        };
        match self.program {
            Program::Tcpdump | Program::TcpdumpToFile => {
                let file = match self.program {
                    Program::Tcpdump => "/dev/null".into(),
                    _ => scratch.join(format!("{:?}.pcap", self.who)).display().to_string(),
                };
                let kibibytes = (self.buffer << 10).to_string();
                words.extend(["tcpdump", "-n", "-B", &kibibytes, "-Z", "root", "-i", &interface].map(String::from));
                words.extend(["-w", &file].map(String::from));
                words.extend(self.expression.split(' ').filter(|word| !word.is_empty()).map(String::from));
            }
            Program::Netsniff => {
                let file = scratch.join("netsniff.pcap").display().to_string();
                // It writes all messages to standard output.
                words.extend(["sh", "-c", "exec \"$@\" >&2", "sh"].map(String::from));
                words.extend(["netsniff-ng", "--silent", "--in", &interface, "--out", &file].map(String::from));
                words.extend(["--ring-size".to_string(), format!("{}MiB", self.buffer)]);
            }
            _ => {
                let file = scratch.join(format!("{:?}.pcapng", self.who)).display().to_string();
                let mebibytes = self.buffer.to_string();
                words.extend(["dumpcap", "-q", "-B", &mebibytes, "-i", &interface, "-w", &file].map(String::from));
            }
        }
        let mut command = Command::new(&words[0]);
        if self.who == Who::Ours {
            // As `streamline pcap` does it, without an extra process to wait for.
            command.env("LD_PRELOAD", streamline.with_file_name("libstreamline_pcap.so"));
            command.env("STREAMLINE_DAEMON", socket);
        }
        command.args(&words[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Waits until a process that was just started listens.
    pub fn started(&self, mut child: Child) -> Result<Running, CaseError> {
        let said = child.stderr.take().map(BufReader::new);
        let mut running = Running { child, program: self.program, said, heard: String::new() };
        running.await_ready()?;
        Ok(running)
    }
}

impl Running {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn await_ready(&mut self) -> Result<(), CaseError> {
        let until = Instant::now() + LONG;
        let ready = match self.program {
            Program::Tcpdump | Program::TcpdumpToFile => "listening on",
            Program::Dumpcap => "File: ",
            Program::Request { .. } | Program::Count { .. } | Program::Save | Program::Web { share: false, .. } => {
                return self.await_ring("bpf-map", until);
            }
            // Private memory for a ring would carry the device's name.
            Program::BySocket => return self.await_ring("/memfd:", until),
            // It maps the packet socket's ring.
            Program::Netsniff => return self.await_ring("socket:[", until),
            Program::Web { share: true, .. } => return self.await_ring("streamline-ring", until),
        };
        while !self.heard.contains(ready) {
            let read = self.said.as_mut().map_or(Ok(0), |said| said.read_line(&mut self.heard));
            if !matches!(read, Ok(1..)) || Instant::now() > until {
                return Err(CaseError::Failed(format!("a listener did not start: {}", self.heard)));
            }
        }
        Ok(())
    }

    /// Waits until our own program, which writes no message, has mapped the device's ring, or that of the parser
    /// process.
    fn await_ring(&mut self, mapped: &str, until: Instant) -> Result<(), CaseError> {
        let maps = format!("/proc/{}/maps", self.child.id());
        while !std::fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(mapped)) {
            if Instant::now() > until || !matches!(self.child.try_wait(), Ok(None)) {
                return Err(CaseError::Failed("a request does not read the device's ring".into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Interrupts it (SIGINT), and reads its last messages.
    pub fn end(mut self) -> Result<Said, CaseError> {
        let failed = |error: std::io::Error| CaseError::Failed(format!("a listener did not end: {error}"));
        let process = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGINT).map_err(|error| failed(error.into()))?;
        if let Some(said) = &mut self.said {
            said.read_to_string(&mut self.heard).map_err(failed)?;
        }
        self.child.wait().map_err(failed)?;
        Ok(match self.program {
            Program::Request { .. } | Program::BySocket | Program::Save | Program::Web { .. } => {
                request_said(&self.heard)
            }
            Program::Count { .. } => counted_said(&self.heard),
            Program::Tcpdump | Program::TcpdumpToFile => Said {
                captured: number_before(&self.heard, " packets captured"),
                dropped: number_before(&self.heard, " packets dropped by kernel"),
            },
            Program::Dumpcap => dumpcap_said(&self.heard),
            // It does not report losses: missing packets count as lost.
            Program::Netsniff => Said { captured: number_before(&self.heard, "  packets incoming"), dropped: 0 },
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number in front of a text; 0 if the text is missing.
fn number_before(text: &str, what: &str) -> u64 {
    let before = text.split(what).next().filter(|before| before.len() < text.len()).unwrap_or_default();
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Reads `Packets received/dropped on interface 'x': 10/2 (pcap:0/dumpcap:2/...)`.
fn dumpcap_said(text: &str) -> Said {
    let Some((_, rest)) = text.split_once("received/dropped on interface") else { return Said::default() };
    let numbers = rest.split("': ").nth(1).unwrap_or_default();
    let mut numbers = numbers.split(['/', ' ']).map(|number| number.parse().unwrap_or(0));
    Said { captured: numbers.next().unwrap_or(0), dropped: numbers.next().unwrap_or(0) }
}

/// Reads a report whose last filters count: the blocks counted, in the kernel or by the filter.
fn counted_said(text: &str) -> Said {
    let report: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let filters = report["filters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_count = |filter: &&serde_json::Value| filter["filter"].as_str().is_some_and(|name| name.ends_with("count"));
    let captured = filters.iter().find(is_count).and_then(|filter| filter["blocks_in"].as_u64());
    Said { captured: captured.unwrap_or(0), ..request_said(text) }
}

/// Reads our program's report: blocks that came to the last filter, and overwritten ones.
fn request_said(text: &str) -> Said {
    let report: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let filters = report["filters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (Some(first), Some(last)) = (filters.first(), filters.last()) else { return Said::default() };
    let dropped = first["dropped"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
    Said { captured: last["blocks_in"].as_u64().unwrap_or(0), dropped }
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
        let said = r#"{"filters":[{"blocks_in":9,"dropped":{"overwritten":2}},{"blocks_in":7,"dropped":{}}]}"#;
        assert_eq!(request_said(said), Said { captured: 7, dropped: 2 });
        assert_eq!(request_said("nonsense"), Said::default());
        let said = r#"{"filters":[{"filter":"ethernet v1 | count","blocks_in":9,"dropped":{}},{"filter":"json","blocks_in":1}]}"#;
        assert_eq!(counted_said(said), Said { captured: 9, dropped: 0 });
    }
}
