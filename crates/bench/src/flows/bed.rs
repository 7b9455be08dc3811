//! The place where flows are measured: two pairs of devices. A daemon owns the near end of the first pair, the kernel
//! that of the second one. The far ends belong to the kernel. Each end is in a namespace of its own: 10.0.0.2 near,
//! 10.0.0.1 far.

use super::frames::{self, Kind, Mac};
use super::part::{Killed, Part, failed, pin};
use crate::case::CaseError;
use crate::machine::{IP, Peer, TC};
use crate::process::{family, processor_time, softirqs};
use crate::setting::Setting;
use crate::stages::bed::{attach, children_seconds, instruction};
use driver::change::Change;
use driver::pair::{End, Pair, quiet_namespace};
use nix::unistd::Pid;
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY: Duration = Duration::from_secs(10);

/// Users of idle flows; one user may not have all of them.
pub const USERS: [u32; 3] = [20_001, 20_002, 20_003];

/// The address of the near ends.
pub const NEAR_IP: &str = "10.0.0.2";
/// The address of the near ends with its prefix, and that of the far ends.
pub const NEAR: &str = "10.0.0.2/24";
const FAR: &str = "10.0.0.1/24";

/// The first of the senders' target ports, and their number.
pub const PORTS: (u16, u16) = (5201, 8);

/// The side that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Flows of a daemon's interface.
    Ours,
    /// Sockets of the kernel.
    Kernel,
}

/// Both sides.
pub const BOTH: [Whose; 2] = [Whose::Ours, Whose::Kernel];

/// The devices and the daemon.
pub struct Bed {
    pairs: [Pair; 2],
    daemon: Child,
    folder: tempfile::TempDir,
    streamline: PathBuf,
    bench: PathBuf,
    softirqs: Vec<u32>,
    /// Bits a second of the wire. `None`: it has no limit.
    pub rate: Option<u64>,
    /// Targets of the senders. They keep the far kernel from answering that a port is closed; it drops datagrams
    /// without room.
    _targets: Vec<UdpSocket>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Runs a tool in a device's namespace.
pub fn tool(end: &End, tool: Peer, words: &str) -> Result<(), CaseError> {
    let mut command = Command::new(tool.find().map_err(CaseError::Missing)?);
    command.args(words.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
    let output = end.namespace.enter(move || command.output()).and_then(|output| output).map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(failed(format!("`{} {words}`: {said}", tool.program))) }
}

/// Makes a device drop all incoming IPv4 packets, at the least cost; ARP still works. The device counts the packets.
pub fn drop_ipv4(end: &End) -> Result<bpf::Link, CaseError> {
    let program = [
        // r2 = the frame, r3 = its end: the first two words of the context.
        instruction(0x61, 2 | 1 << 4, 0, 0),
        instruction(0x61, 3 | 1 << 4, 4, 0),
        // Pass a frame of less than 14 bytes.
        instruction(0xbf, 4 | 2 << 4, 0, 0),
        instruction(0x07, 4, 0, 14),
        instruction(0x2d, 4 | 3 << 4, 4, 0),
        // Pass a frame of another type than IPv4.
        instruction(0x69, 5 | 2 << 4, 12, 0),
        instruction(0x55, 5, 2, i32::from(u16::from_be(0x0800))),
        // XDP_DROP
        instruction(0xb7, 0, 0, 1),
        instruction(0x95, 0, 0, 0),
        // XDP_PASS
        instruction(0xb7, 0, 0, 2),
        instruction(0x95, 0, 0, 0),
    ];
    attach(end, &program)
}

impl Bed {
    /// Makes the devices, and brings ours up. `rate`: bits a second of our wire; the caller shapes the kernel's.
    pub fn new(setting: &Setting, rate: Option<u64>) -> Result<Bed, CaseError> {
        let mut bed = Bed::made(setting)?;
        bed.rate = rate;
        let rate: Vec<String> = rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]).collect();
        bed.up(&[&["--addr".to_owned(), NEAR.to_owned()], &rate[..]].concat())?;
        Ok(bed)
    }

    /// Makes the devices, and starts a daemon that does not own any of them yet.
    pub fn made(setting: &Setting) -> Result<Bed, CaseError> {
        let namespace = || match quiet_namespace() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(CaseError::Missing("network namespaces cannot be made: run as root".to_owned()))
            }
            made => made.map_err(failed),
        };
        let pair = || Pair::named([(&namespace()?, "near"), (&namespace()?, "far")], 1).map_err(failed);
        let pairs = [pair()?, pair()?];
        let mut targets = Vec::new();
        for Pair { far, .. } in &pairs {
            give_address(far, FAR)?;
            let bind =
                || (0..PORTS.1).map(|at| UdpSocket::bind(("10.0.0.1", PORTS.0 + at))).collect::<Result<Vec<_>, _>>();
            targets.extend(far.namespace.enter(bind).and_then(|bound| bound).map_err(failed)?);
        }
        give_address(&pairs[1].near, NEAR)?;
        // In a place that other users can reach.
        let folder = tempfile::tempdir().map_err(failed)?;
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).map_err(failed)?;
        let daemon = start_daemon(setting, &pairs[0].near, &folder)?;
        let bed = Bed {
            pairs,
            daemon,
            folder,
            streamline: setting.streamline.clone(),
            bench: setting.bench.clone(),
            softirqs: softirqs(),
            rate: None,
            _targets: targets,
        };
        bed.await_daemon()?;
        Ok(bed)
    }

    /// Gives the near end of the first pair to the daemon, with these options.
    pub fn up(&self, options: &[String]) -> Result<(), CaseError> {
        let said = self.net(&[&["up".to_owned(), "near".to_owned()], options].concat())?;
        let said: Value = serde_json::from_str(&said).map_err(failed)?;
        eprintln!("  near: {}", said["interfaces"][0]["how"].as_str().unwrap_or("?"));
        Ok(())
    }

    fn await_daemon(&self) -> Result<(), CaseError> {
        let until = Instant::now() + READY;
        while self.net(&["ls".to_owned()]).is_err() {
            if Instant::now() > until {
                let said = std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
                return Err(failed(format!("the daemon does not answer: {said}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Runs `streamline net`, and gives its output.
    pub fn net(&self, words: &[String]) -> Result<String, CaseError> {
        let mut command = Command::new(&self.streamline);
        command.arg("net").args(words).arg("--json").arg("--daemon").arg(self.socket()).stdin(Stdio::null());
        let output = command.output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// The measured device.
    pub fn near(&self, whose: Whose) -> &End {
        &self.pairs[whose as usize].near
    }

    /// The device at the other end of the wire.
    pub fn far(&self, whose: Whose) -> &End {
        &self.pairs[whose as usize].far
    }

    /// Makes the kernel send at most `rate`, by HTB with these classes: the least and most bits a second, and the port
    /// of the class. The class without a port is for all other datagrams.
    pub fn shape(&self, rate: u64, classes: &[(u64, u64, Option<u16>)]) -> Result<(), CaseError> {
        let near = self.near(Whose::Kernel);
        tool(near, TC, "qdisc replace dev near root handle 1: htb default 99")?;
        tool(near, TC, &format!("class add dev near parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit"))?;
        for (at, (least, most, port)) in (0x10..).zip(classes) {
            let class = if port.is_some() { format!("1:{at:x}") } else { "1:99".to_owned() };
            tool(
                near,
                TC,
                &format!("class add dev near parent 1:1 classid {class} htb rate {least}bit ceil {most}bit"),
            )?;
            if let Some(port) = port {
                let which = format!("match ip protocol 17 0xff match ip dport {port} 0xffff");
                tool(near, TC, &format!("filter add dev near parent 1: protocol ip u32 {which} flowid {class}"))?;
            }
        }
        Ok(())
    }

    /// Starts a part of ours or the kernel's on the near side, and waits until it is ready.
    pub fn start(&self, whose: Whose, role: &str, words: &[String]) -> Result<Part, CaseError> {
        let mut command = self.stage();
        match whose {
            Whose::Ours => command.arg(role).arg(self.socket()),
            Whose::Kernel => command.arg(format!("kernel-{role}")),
        };
        command.args(words);
        Part::start(self.near(whose), command, None)
    }

    /// Starts a part that speaks TCP in a device's namespace, by flows of ours or kernel sockets. `processor`: pin it
    /// there.
    pub fn tcp(&self, at: &End, whose: Whose, words: &[&str], processor: Option<usize>) -> Result<Part, CaseError> {
        let mut command = self.stage();
        command.arg("tcp");
        match whose {
            Whose::Ours => command.arg(self.socket()),
            Whose::Kernel => command.arg("kernel"),
        };
        command.args(words);
        Part::start(at, command, processor)
    }

    /// Makes the daemon and the process of its interface run on one processor, or on all.
    pub fn pin_daemon(&self, processor: Option<usize>) -> Result<(), CaseError> {
        for process in family(self.daemon.id()) {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
            let tasks = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
            tasks.map(Pid::from_raw).try_for_each(|task| pin(task, processor))?;
        }
        Ok(())
    }

    /// A sender of datagrams of `bytes` bytes to a port of the far side; `rate` a second, 0 = as fast as possible.
    pub fn sender(&self, whose: Whose, port: u16, bytes: usize, share: &str, rate: u64) -> Result<Part, CaseError> {
        self.counting_sender(whose, port, bytes, share, rate, 0)
    }

    /// Like [`sender`](Bed::sender), but ends after `count` datagrams.
    pub fn counting_sender(
        &self,
        whose: Whose,
        port: u16,
        bytes: usize,
        share: &str,
        rate: u64,
        count: u64,
    ) -> Result<Part, CaseError> {
        let (to, bytes) = (format!("10.0.0.1:{port}"), bytes.to_string());
        let mut words = vec![to, bytes];
        if whose == Whose::Ours {
            words.push(share.to_owned());
        }
        words.extend([rate, count].map(|number| number.to_string()));
        self.start(whose, "send", &words)
    }

    /// A receiver at a port of the near side; [`Slower`](super::parts::Slower) reads `slower`.
    pub fn receiver(&self, whose: Whose, port: u16, slower: &str) -> Result<Part, CaseError> {
        self.start(whose, "receive", &[port.to_string(), slower.to_owned()])
    }

    /// Idle flows of a user: `connections` connections with `flows` flows each.
    pub fn idle(&self, user: u32, connections: usize, flows: usize) -> Result<Part, CaseError> {
        let mut command = self.stage();
        command.arg("idle").arg(self.socket()).args([connections, flows].map(|number| number.to_string()));
        command.uid(user).gid(user);
        Part::start(self.near(Whose::Ours), command, None)
    }

    /// The command that sends handmade frames to the near side.
    fn frames(&self, whose: Whose, kind: Kind, port: u16, count: u64, rate: u64) -> Result<Command, CaseError> {
        let to = mac(self.near(whose))?;
        let mut command = self.stage();
        command.args(["frames", "far", &to.to_string(), kind.name(), &port.to_string()]);
        command.args([count, rate].map(|number| number.to_string()));
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        Ok(command)
    }

    /// Sends `count` frames, and waits until they are sent. Gives the sender's processor time and the elapsed time, in
    /// s.
    pub fn send_frames(
        &self,
        whose: Whose,
        kind: Kind,
        port: u16,
        count: u64,
        rate: u64,
    ) -> Result<(f64, f64), CaseError> {
        let mut command = self.frames(whose, kind, port, count, rate)?;
        let (before, began) = (children_seconds()?, Instant::now());
        let status = self.far(whose).namespace.enter(move || command.status()).and_then(|status| status);
        if !status.map_err(failed)?.success() {
            return Err(failed("the sender of frames failed"));
        }
        Ok((children_seconds()? - before, began.elapsed().as_secs_f64()))
    }

    /// Sends frames until the result is dropped.
    pub fn keep_sending_frames(&self, whose: Whose, kind: Kind, port: u16, rate: u64) -> Result<Killed, CaseError> {
        let mut command = self.frames(whose, kind, port, 0, rate)?;
        command.stdin(Stdio::piped());
        let child = self.far(whose).namespace.enter(move || command.spawn()).and_then(|child| child);
        child.map(Killed).map_err(failed)
    }

    fn stage(&self) -> Command {
        let mut command = Command::new(&self.bench);
        command.args(["stage", "flow"]);
        command
    }

    /// Processor time of the daemon, the process of its interface and these parts, in s.
    pub fn own_processor_time(&self, parts: &[&Part]) -> f64 {
        let parts = parts.iter().map(|part| part.process());
        parts.chain(family(self.daemon.id())).map(processor_time).sum()
    }

    /// This time, with that of the kernel's receiving threads.
    pub fn processor_time(&self, parts: &[&Part]) -> f64 {
        self.own_processor_time(parts) + self.softirqs.iter().map(|thread| processor_time(*thread)).sum::<f64>()
    }

    /// Frames that a device has received.
    pub fn arrived(&self, end: &End) -> Result<u64, CaseError> {
        let link = end.link().map_err(failed)?;
        Ok(link.counters.get("rx_packets").unwrap_or(0))
    }
}

/// Gives an address to a device, where the kernel's TCP uses CUBIC, as ours does.
pub fn give_address(end: &End, address: &str) -> Result<(), CaseError> {
    tool(end, IP, &format!("address add {address} dev {}", end.name))?;
    end.change(&Change { arp: Some(true), ..Change::default() }).map_err(failed)?;
    let own = address.split('/').next().unwrap_or(address);
    tool(
        end,
        IP,
        &format!("route replace 10.0.0.0/24 dev {} proto kernel scope link src {own} congctl cubic", end.name),
    )
}

/// The hardware address of a device.
pub fn mac(end: &End) -> Result<Mac, CaseError> {
    let address = end.link().map_err(failed)?.address;
    <[u8; 6]>::try_from(address.0).map(Mac).map_err(|_| failed("a device without an Ethernet address"))
}

fn start_daemon(setting: &Setting, end: &End, folder: &tempfile::TempDir) -> Result<Child, CaseError> {
    let users: Vec<String> = USERS.iter().map(|user| format!("\"{user}\"")).collect();
    let policy = format!("[[allow]]\nusers = [{}]\ndevices = [\"*\"]\nmodes = [\"flow\"]\n", users.join(", "));
    let config = folder.path().join("policy.toml");
    std::fs::write(&config, policy).map_err(failed)?;
    let said = std::fs::File::create(folder.path().join("said")).map_err(failed)?;
    let mut command = Command::new(&setting.streamline);
    command.arg("daemon").arg("--socket").arg(folder.path().join("control")).arg("--config").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    end.namespace.enter(move || command.spawn()).and_then(|child| child).map_err(failed)
}

/// Bytes of a datagram's payload in a frame of 64 bytes on the wire.
pub const SHORT_PAYLOAD: usize = frames::SHORTEST - 42;

/// Bytes of a datagram's payload in the longest frame, and bytes of that frame.
pub const FULL: (usize, u64) = (1472, 1514);
