//! Two hosts and what lies between them: a request that inspects, or the Linux bridge. The hosts are namespaces with the kernel's
//! TCP and no offloads, so that full segments are frames of 1,514 bytes. One host downloads by HTTP; the rate is that of the
//! body, and each byte is looked at. Latency is the time of one byte by UDP there and back, one exchange after the other.

use super::rules;
use crate::case::{CaseError, Numbers};
use crate::flows::bed::{give_address, tool};
use crate::flows::part::failed;
use crate::machine::IP;
use crate::measure::Effort;
use crate::setting::Setting;
use driver::pair::{End, Pair, quiet_namespace};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a download, and of a call to write or to read.
const BODY_BYTES: usize = 256 << 20;
const CALL_BYTES: usize = 128 << 10;

const PATIENCE: Duration = Duration::from_secs(20);

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "10.0.0.2";
const PORT: u16 = 7;
const EXCHANGES: usize = 20_000;

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
    let mut random = crate::random::Random::new(0x1514);
    let pattern: Vec<u8> = (0..CALL_BYTES).map(|_| random.below(256) as u8).collect();
    numbers(setting, RULE, "MB/s", |hosts| Ok(hosts.rate(&pattern)? / 1e6))
}

/// Gb a second of a download of bytes that cost rules most.
pub(super) fn worst(setting: &Setting) -> Result<Numbers, CaseError> {
    let pattern = rules::worst(CALL_BYTES);
    numbers(setting, &rules::text(), "Gb/s", |hosts| Ok(hosts.rate(&pattern)? * 8e-9))
}

/// The 99th percentile of the time of an exchange, in microseconds.
pub(super) fn latency(setting: &Setting) -> Result<Numbers, CaseError> {
    numbers(setting, &rules::text(), "us", Hosts::exchanges)
}

/// Measures with our request between the hosts, and then with the Linux bridge, several times.
fn numbers(
    setting: &Setting,
    rules: &str,
    unit: &'static str,
    figure: impl Fn(&Hosts) -> Result<f64, CaseError>,
) -> Result<Numbers, CaseError> {
    let hosts = Hosts::new()?;
    let rounds = if setting.effort == Effort::Quick { 2 } else { 5 };
    let mut numbers = Numbers { ours: Vec::new(), peer: Some(Vec::new()), unit, void: None };
    for _ in 0..rounds {
        let between = hosts.inspect(&setting.streamline, rules)?;
        numbers.ours.push(figure(&hosts)?);
        drop(between);
        let between = hosts.bridge()?;
        numbers.peer.get_or_insert_default().push(figure(&hosts)?);
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
        let pairs = [pair("a", &format!("{CLIENT}/24"))?, pair("b", &format!("{SERVER}/24"))?];
        Ok(Hosts { pairs, scratch: tempfile::tempdir().map_err(failed)? })
    }

    /// Starts a request that inspects, and returns once both devices are promiscuous.
    fn inspect(&self, streamline: &Path, text: &str) -> Result<Between, CaseError> {
        let rules = self.scratch.path().join("rules");
        std::fs::write(&rules, text).map_err(failed)?;
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
        for words in ["link set dev a master bridge", "link set dev b master bridge", "link set bridge up"] {
            tool(b, IP, words)?;
        }
        Ok(between)
    }

    /// Bytes a second of one download of this pattern, again and again.
    fn rate(&self, pattern: &[u8]) -> Result<f64, CaseError> {
        let listen = || TcpListener::bind((SERVER, 80));
        let listener = self.pairs[1].far.namespace.enter(listen).and_then(|made| made).map_err(failed)?;
        let sent = pattern.to_vec();
        let server = std::thread::spawn(move || serve(&listener, &sent));
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
        let rate = fetch(stream, pattern)?;
        server.join().map_err(|_| failed("the server's thread"))?.map_err(failed)?;
        Ok(rate)
    }

    /// The 99th percentile of the time of a byte there and back, in microseconds.
    fn exchanges(&self) -> Result<f64, CaseError> {
        let socket = |end: &End, address: &'static str| {
            let socket = end.namespace.enter(move || UdpSocket::bind((address, PORT))).and_then(|made| made);
            let socket = socket.map_err(failed)?;
            socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
            Ok::<_, CaseError>(socket)
        };
        let [client, server] = [socket(&self.pairs[0].far, CLIENT)?, socket(&self.pairs[1].far, SERVER)?];
        client.connect((SERVER, PORT)).map_err(failed)?;
        server.connect((CLIENT, PORT)).map_err(failed)?;
        // The bridge may still be learning, and ARP asking.
        let end = Instant::now() + PATIENCE;
        client.set_read_timeout(Some(Duration::from_millis(100))).map_err(failed)?;
        let echo = std::thread::spawn(move || echo(&server));
        let mut byte = [0];
        while client.send(&[1]).and_then(|_| client.recv(&mut byte)).is_err() && Instant::now() < end {}
        client.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut times = Vec::with_capacity(EXCHANGES);
        for _ in 0..EXCHANGES {
            let began = Instant::now();
            client.send(&[1]).and_then(|_| client.recv(&mut byte)).map_err(failed)?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        client.send(&[]).map_err(failed)?;
        echo.join().map_err(|_| failed("the thread that echoes"))?.map_err(failed)?;
        times.sort_unstable_by(f64::total_cmp);
        Ok(times[EXCHANGES * 99 / 100])
    }
}

/// Sends back what comes, until an empty datagram.
fn echo(server: &UdpSocket) -> std::io::Result<()> {
    let mut byte = [0];
    while server.recv(&mut byte)? > 0 {
        server.send(&byte)?;
    }
    Ok(())
}

fn serve(listener: &TcpListener, pattern: &[u8]) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let read = stream.read(&mut [0; 1024])?;
    if read == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n")?;
    (0..BODY_BYTES / CALL_BYTES).try_for_each(|_| stream.write_all(pattern))
}

/// Fetches the body, and looks at each byte. Returns bytes a second.
fn fetch(mut stream: TcpStream, pattern: &[u8]) -> Result<f64, CaseError> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").map_err(failed)?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).map_err(failed)?;
        head.push(byte[0]);
    }
    let mut got = vec![0; CALL_BYTES];
    let began = Instant::now();
    for _ in 0..BODY_BYTES / CALL_BYTES {
        stream.read_exact(&mut got).map_err(failed)?;
        if got != pattern {
            return Err(failed("other bytes came than were sent"));
        }
    }
    Ok(BODY_BYTES as f64 / began.elapsed().as_secs_f64())
}
