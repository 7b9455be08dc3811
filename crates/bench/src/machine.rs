//! Describes the machine and the programs of a measurement: processor, kernel, versions of the peers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub program: &'static str,
    /// The Debian package it comes in.
    pub package: &'static str,
}

/// The peers of all comparisons.
pub const PEERS: [Peer; 16] = [
    TCPDUMP, TSHARK, TCPFLOW, DUMPCAP, NETSNIFF, IPERF, TRAFGEN, TCPREPLAY, TESTPMD, TC, SLIRP, CURL, WRK, NGINX,
    NFPCAPD, SOFTFLOWD,
];
/// Prints, filters and stores packets.
pub const TCPDUMP: Peer = Peer { program: "tcpdump", package: "tcpdump" };
/// Dissects packets.
pub const TSHARK: Peer = Peer { program: "tshark", package: "tshark" };
/// Puts TCP streams in order and stores them.
pub const TCPFLOW: Peer = Peer { program: "tcpflow", package: "tcpflow" };
/// Stores packets, without any other work.
pub const DUMPCAP: Peer = Peer { program: "dumpcap", package: "wireshark-common" };
/// Stores packets out of a ring of its own.
pub const NETSNIFF: Peer = Peer { program: "netsniff-ng", package: "netsniff-ng" };
/// Sends a TCP stream as fast as it goes.
pub const IPERF: Peer = Peer { program: "iperf3", package: "iperf3" };

/// Sends packets that a text describes.
pub const TRAFGEN: Peer = Peer { program: "trafgen", package: "netsniff-ng" };
/// Sends the packets of a capture.
pub const TCPREPLAY: Peer = Peer { program: "tcpreplay", package: "tcpreplay" };
/// Forwards packets between two devices.
pub const TESTPMD: Peer = Peer { program: "dpdk-testpmd", package: "dpdk-dev" };
/// Shapes what is sent.
pub const TC: Peer = Peer { program: "tc", package: "iproute2" };
/// Makes bridges.
pub const IP: Peer = Peer { program: "ip", package: "iproute2" };
/// Connects a namespace with its host, by a TCP of its own.
pub const SLIRP: Peer = Peer { program: "slirp4netns", package: "slirp4netns" };
/// Fetches files.
pub const CURL: Peer = Peer { program: "curl", package: "curl" };
/// Asks a web server as often as it answers.
pub const WRK: Peer = Peer { program: "wrk", package: "wrk" };
/// Makes flow records of packets, in files.
pub const NFPCAPD: Peer = Peer { program: "nfpcapd", package: "nfdump" };
/// Makes flow records of packets, and sends them.
pub const SOFTFLOWD: Peer = Peer { program: "softflowd", package: "softflowd" };
/// A web server.
pub const NGINX: Peer = Peer { program: "nginx", package: "nginx-light" };

impl Peer {
    /// Its path. The error says how to install it.
    pub fn find(self) -> Result<PathBuf, String> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        // Debian keeps tcpdump in a folder that is only in an administrator's path.
        let further = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
        let mut folders = std::env::split_paths(&folders).chain(further);
        let found = folders.find_map(|folder| Some(folder.join(self.program)).filter(|path| path.is_file()));
        found.ok_or_else(|| format!("peer missing: apt-get install {}", self.package))
    }

    fn version(self) -> String {
        match self.find() {
            Ok(path) => match version_of(&path) {
                said if said.is_empty() => self.package_version(),
                said => said,
            },
            Err(missing) => format!("{}: {missing}", self.program),
        }
    }

    /// The version of its package, for programs that do not print their own on standard output.
    fn package_version(self) -> String {
        let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", self.package]).output();
        let version = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        format!("{} {version}", self.program)
    }
}

/// Lines about the machine and the programs.
pub fn description(streamline: &Path) -> Vec<String> {
    let mut lines = vec![
        format!("{}, {} processors, {}", processor(), processors(), caches()),
        format!("Linux {}, {}", read("/proc/sys/kernel/osrelease"), read("/proc/sys/kernel/version")),
        version_of(Path::new("rustc")),
        version_of(streamline),
    ];
    lines.extend(PEERS.map(Peer::version));
    lines
}

fn version_of(program: &Path) -> String {
    // Some print it and exit with 1.
    match Command::new(program).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().next().unwrap_or_default().trim_end_matches('.').to_owned()
        }
        Err(error) => format!("{}: {error}", program.display()),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn processor() -> String {
    let text = read("/proc/cpuinfo");
    let field = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let [name, family, model] = ["model name", "cpu family", "model"].map(|key| field(key).unwrap_or("unknown".into()));
    format!("{name} (family {family}, model {model})")
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn caches() -> String {
    let mut found = Vec::new();
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        if !Path::new(&folder).exists() {
            break;
        }
        let [level, kind, size] = ["level", "type", "size"].map(|name| read(&format!("{folder}/{name}")));
        if kind != "Instruction" {
            found.push(format!("L{level} {size}"));
        }
    }
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_says_how_to_get_it() {
        let peer = Peer { program: "no-such-program", package: "nothing" };
        assert_eq!(peer.find().unwrap_err(), "peer missing: apt-get install nothing");
        assert!(peer.version().contains("apt-get install nothing"));
    }

    #[test]
    fn the_machine_has_a_processor() {
        assert!(processors() > 0);
        assert!(description(Path::new("/bin/sh")).len() >= 4);
    }
}
