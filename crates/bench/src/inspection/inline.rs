//! Two hosts and what lies between them: a request that inspects, or the Linux bridge. The hosts are namespaces with the kernel's
//! TCP and no offloads, so that full segments are frames of 1,514 bytes. One host downloads by HTTP; the rate is that of the
//! body, and each byte is looked at.

use crate::case::{CaseError, Numbers};
use crate::flows::bed::{failed, give_address, tool};
use crate::machine::IP;
use crate::measure::Effort;
use crate::setting::Setting;
use driver::pair::{End, Pair, quiet_namespace};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a download, and of a call to write or to read.
const BODY_BYTES: usize = 256 << 20;
const CALL_BYTES: usize = 128 << 10;

const PATIENCE: Duration = Duration::from_secs(20);

const SERVER: &str = "10.0.0.2";

const RULE: &str = "drop http any any -> any any (msg:\"never\"; flow:established,to_client; file.data; \
                    content:\"4f1c-no-body-has-this\"; sid:1;)\n";

struct Hosts {
    /// The client's wire and the server's: the near ends are those between.
    pairs: [Pair; 2],
    scratch: tempfile::TempDir,
}

/// What lies between, until it is dropped.
enum Between {
    Ours(Child),
    Bridge(End),
}

impl Drop for Between {
    fn drop(&mut self) {
        match self {
            Between::Ours(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Between::Bridge(end) => drop(tool(end, IP, "link del bridge")),
        }
    }
}

/// MB a second of a download: ours, and the Linux bridge's.
pub(super) fn download(setting: &Setting) -> Result<Numbers, CaseError> {
    let hosts = Hosts::new()?;
    let rounds = if setting.effort == Effort::Quick { 2 } else { 5 };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit: "MB/s", void: None };
    for _ in 0..rounds {
        let between = hosts.inspect(&setting.streamline)?;
        numbers.ours.push(hosts.rate()?);
        drop(between);
        let between = hosts.bridge()?;
        numbers.peer.get_or_insert_default().push(hosts.rate()?);
        drop(between);
    }
    Ok(numbers)
}

impl Hosts {
    fn new() -> Result<Hosts, CaseError> {
        let namespace = || match quiet_namespace() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(CaseError::Missing("network namespaces cannot be made: run as root".to_owned()))
            }
            made => made.map_err(failed),
        };
        let here = namespace()?;
        let pair = |near: &str, address: &str| {
            let pair = Pair::named([(&here, near), (&namespace()?, "eth")], 1).map_err(failed)?;
            give_address(&pair.far, address)?;
            Ok::<_, CaseError>(pair)
        };
        let pairs = [pair("a", "10.0.0.1/24")?, pair("b", &format!("{SERVER}/24"))?];
        Ok(Hosts { pairs, scratch: tempfile::tempdir().map_err(failed)? })
    }

    /// Starts a request that inspects, and returns once both devices are promiscuous.
    fn inspect(&self, streamline: &Path) -> Result<Between, CaseError> {
        let rules = self.scratch.path().join("rules");
        std::fs::write(&rules, RULE).map_err(failed)?;
        let mut command = Command::new(streamline);
        command.args(["run", "--local", "-q", &format!("bridge a b | ips rules=\"{}\"", rules.display())]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = self.pairs[0].near.namespace.enter(move || command.spawn()).and_then(|child| child);
        let between = Between::Ours(started.map_err(failed)?);
        for pair in &self.pairs {
            pair.near.await_state(driver::link::Link::is_promiscuous).map_err(failed)?;
        }
        Ok(between)
    }

    fn bridge(&self) -> Result<Between, CaseError> {
        let [a, b] = [&self.pairs[0].near, &self.pairs[1].near];
        tool(a, IP, "link add bridge type bridge mcast_snooping 0 forward_delay 0")?;
        let between = Between::Bridge(a.clone());
        // Packets go through no tables. Where there is no such switch, there are none.
        let _ = a.namespace.enter(|| std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"));
        for words in ["link set a master bridge", "link set b master bridge", "link set bridge up"] {
            tool(b, IP, words)?;
        }
        Ok(between)
    }

    /// MB a second of one download.
    fn rate(&self) -> Result<f64, CaseError> {
        let listen = || TcpListener::bind((SERVER, 80));
        let listener = self.pairs[1].far.namespace.enter(listen).and_then(|made| made).map_err(failed)?;
        let server = std::thread::spawn(move || serve(&listener));
        let connect = || {
            let end = Instant::now() + PATIENCE;
            loop {
                match TcpStream::connect_timeout(&(std::net::Ipv4Addr::new(10, 0, 0, 2), 80).into(), PATIENCE) {
                    Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
                    connected => break connected,
                }
            }
        };
        let stream = self.pairs[0].far.namespace.enter(connect).and_then(|connected| connected).map_err(failed)?;
        let rate = fetch(stream)?;
        server.join().map_err(|_| failed("the server's thread"))?.map_err(failed)?;
        Ok(rate)
    }
}

fn pattern() -> Vec<u8> {
    let mut random = crate::random::Random::new(0x1514);
    (0..CALL_BYTES).map(|_| random.below(256) as u8).collect()
}

fn serve(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let read = stream.read(&mut [0; 1024])?;
    if read == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n")?;
    let pattern = pattern();
    (0..BODY_BYTES / CALL_BYTES).try_for_each(|_| stream.write_all(&pattern))
}

/// Fetches the body, and looks at each byte.
fn fetch(mut stream: TcpStream) -> Result<f64, CaseError> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").map_err(failed)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).map_err(failed)?;
        head.push(byte[0]);
    }
    let (pattern, mut got) = (pattern(), vec![0; CALL_BYTES]);
    let began = Instant::now();
    for _ in 0..BODY_BYTES / CALL_BYTES {
        stream.read_exact(&mut got).map_err(failed)?;
        if got != pattern {
            return Err(failed("other bytes came than were sent"));
        }
    }
    Ok(BODY_BYTES as f64 / began.elapsed().as_secs_f64() / 1e6)
}
