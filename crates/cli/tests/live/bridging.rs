//! `bridge`: a request between two hosts, each in a namespace of its own. What the hosts exchange passes as it was, whatever the
//! offloads of their ends; what filters between reject does not pass.

use crate::net::*;
use crate::unmodified::are_installed;
use driver::change::Change;
use driver::ethtool::Offloads;
use driver::namespace::Namespace;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::network::{Pair, may_make_networks, quiet_namespace};

/// Two hosts, and two devices in a namespace between them: `a` is the first host's other end, `b` the second's.
pub(crate) struct Hosts {
    pub(crate) first: Pair,
    pub(crate) second: Pair,
    pub(crate) folder: tempfile::TempDir,
}

/// Every offload that a virtual device has.
pub(crate) const ALL: Offloads = Offloads {
    receive_checksum: true,
    transmit_checksum: true,
    scatter_gather: true,
    tso: true,
    gso: true,
    gro: true,
    lro: false,
    receive_vlan: true,
    transmit_vlan: true,
    receive_hash: false,
};

/// Runs `ip`.
fn ip(namespace: &Namespace, words: &str) {
    let run = || Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(namespace.enter(run).unwrap().success(), "ip {words}");
}

impl Hosts {
    /// The hosts are 10.0.0.1 and 10.0.0.2, fd00::1 and fd00::2. None where they cannot be made.
    pub(crate) fn new(offloads: Offloads) -> Option<Hosts> {
        if !may_make_networks() || !are_installed(&["ip"]) {
            return None;
        }
        let here = quiet_namespace();
        let pair = |near: &str, last: u8| {
            let host = Namespace::create().unwrap();
            let pair = Pair::named([(&here, near), (&host, "eth")], 1).unwrap();
            pair.far.set_offloads(offloads);
            pair.far.change(&Change { arp: Some(true), ..Change::default() });
            ip(&host, &format!("address add 10.0.0.{last}/24 dev eth"));
            ip(&host, &format!("address add fd00::{last}/64 dev eth nodad"));
            pair
        };
        let (first, second) = (pair("a", 1), pair("b", 2));
        Some(Hosts { first, second, folder: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a request between the hosts, and returns once both devices are promiscuous.
    pub(crate) fn start(&self, request: &str) -> Running {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--local", "--stats", "json", request]).current_dir(self.folder.path());
        let file = std::fs::File::create(self.path("stdout")).unwrap();
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped());
        let mut running = self.first.near.namespace.enter(move || Running::start(command)).unwrap();
        until("both devices are promiscuous", || {
            assert!(
                !running.has_ended(),
                "{}",
                String::from_utf8_lossy(&running.0.take().unwrap().wait_with_output().unwrap().stderr)
            );
            [&self.first, &self.second].iter().all(|pair| pair.near.link().is_promiscuous())
        });
        running
    }

    /// What the request wrote to standard output.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.path("stdout")).unwrap()
    }

    /// The second host serves connections to this address, each in a thread.
    pub(crate) fn serve(&self, address: &str, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
        let listener = self.second.far.namespace.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
    }

    /// A connection of the first host to the second.
    pub(crate) fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        let address = address.parse().unwrap();
        let stream = self.first.far.namespace.enter(|| TcpStream::connect_timeout(&address, LONG)).unwrap()?;
        stream.set_read_timeout(Some(LONG))?;
        Ok(stream)
    }
}

/// Bytes that repeat at no power of two.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// Sends a line to `address`, and gives what comes until the end.
pub(crate) fn ask(hosts: &Hosts, address: &str, line: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = hosts.connect(address)?;
    stream.write_all(line.as_bytes())?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    Ok(got)
}

/// Answers whatever comes with `answer`.
pub(crate) fn answer(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(answer);
}

/// What one filter counted, by the beginning of its label.
pub(crate) fn row<'a>(stats: &'a Value, label: &str) -> Vec<&'a Value> {
    let rows = stats["filters"].as_array().unwrap_or_else(|| panic!("{stats:#}"));
    rows.iter().filter(|row| row["filter"].as_str().is_some_and(|name| name.starts_with(label))).collect()
}

#[test]
fn what_hosts_exchange_passes_as_it_was() {
    for (name, offloads) in [("none", Offloads::NONE), ("all", ALL)] {
        let Some(hosts) = Hosts::new(offloads) else { return };
        let running = hosts.start("bridge a b");
        let body = bytes(20 << 20);
        for address in ["10.0.0.2:80", "[fd00::2]:80"] {
            let served = body.clone();
            hosts.serve(address, move |stream| answer(stream, &served));
            assert!(ask(&hosts, address, "GET").unwrap() == body, "{name} {address}");
        }
        // Datagrams both ways, one with an open checksum where the ends have offloads.
        let [one, other] =
            [(&hosts.first, "10.0.0.1:5000"), (&hosts.second, "10.0.0.2:5000")].map(|(pair, address)| {
                let socket = pair.far.namespace.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket
            });
        for len in [0, 1, 100, 1471, 1472] {
            let (sent, mut got) = (bytes(len), [0; 2000]);
            one.send_to(&sent, "10.0.0.2:5000").unwrap();
            let (count, from) = other.recv_from(&mut got).unwrap();
            assert!(got[..count] == sent, "{name} {len}");
            other.send_to(&sent, from).unwrap();
            assert_eq!(one.recv(&mut got).unwrap(), len);
        }
        let stats = succeeded(&running.interrupt());
        let [source, sink] = row(&stats, "bridge a b")[..] else { panic!("{stats:#}") };
        let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {stats:#}"));
        assert_eq!(number(sink, "blocks_in"), number(&sink["events"], "sent"), "{stats:#}");
        assert_eq!(number(source, "blocks_made"), number(sink, "blocks_in"), "{stats:#}");
        assert!(number(sink, "blocks_in") > 2 * (20 << 20) / 1460, "{stats:#}");
        let finished = source["events"]["checksums finished"].as_u64().unwrap_or(0);
        assert_eq!(finished > 0, name == "all", "{stats:#}");
        assert!([&hosts.first, &hosts.second].iter().all(|pair| !pair.near.link().is_promiscuous()), "nothing is left");
    }
}

/// Hosts that speak through VXLAN, with and without a checksum of the tunnel: what their kernels leave to a device is the inner TCP.
#[test]
fn super_frames_in_a_tunnel_pass_as_segments() {
    let Some(hosts) = Hosts::new(ALL) else { return };
    for (own, other, pair) in [(1, 2, &hosts.first), (2, 1, &hosts.second)] {
        let host = &pair.far.namespace;
        let add = format!(
            "link add vx type vxlan id 7 remote 10.0.0.{other} local 10.0.0.{own} dstport 4789 dev eth udpcsum"
        );
        let run = || Command::new("ip").args(add.split(' ')).output().unwrap();
        if !host.enter(run).unwrap().status.success() {
            eprintln!("skipped: the kernel has no VXLAN");
            return;
        }
        ip(host, &format!("address add 10.7.0.{own}/24 dev vx"));
        ip(host, "link set vx up");
    }
    let body = bytes(5 << 20);
    let served = body.clone();
    hosts.serve("10.7.0.2:80", move |stream| answer(stream, &served));
    std::fs::write(hosts.path("rules"), "alert tcp any any -> any any (content:\"none\"; sid:9;)\n").unwrap();
    let running = hosts.start("bridge a b | ips rules");
    assert!(ask(&hosts, "10.7.0.2:80", "GET").unwrap() == body);
    let stats = succeeded(&running.interrupt());
    let [source, _] = row(&stats, "bridge a b")[..] else { panic!("{stats:#}") };
    assert!(source["events"]["super-frames cut into segments"].as_u64() > Some(0), "{stats:#}");
    for label in ["bridge a b", "ips"] {
        assert!(row(&stats, label).iter().all(|row| row["dropped"].as_object().unwrap().is_empty()), "{stats:#}");
    }
}

/// Frames of every sort: what one host sends, byte for byte, the other receives, in order.
#[test]
fn frames_of_every_sort_pass_byte_for_byte() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    let running = hosts.start("bridge a b");
    let mut reader = Command::new(PROGRAM);
    reader.args(["run", "--local", "--stats", "json", "af_packet eth direction=in | save got.pcap"]);
    reader.current_dir(hosts.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let reader = hosts.second.far.namespace.enter(move || Running::start(reader)).unwrap();
    until("the other host is looked at", || hosts.second.far.link().is_promiscuous());
    let mut frames = traffic(300);
    // Spanning tree (IEEE 802.1D), of IEEE 802.3; two tags; a frame of an ether type that nobody knows; the longest with a tag.
    let mut tree = vec![0; 60];
    tree[..20].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 38, 0x42, 0x42, 3, 0, 0, 0]);
    let mut service = tagged(datagram(1, 9, 100), 5);
    service.splice(12..12, [0x88, 0xa8, 0, 6]);
    let mut unknown = vec![7; 100];
    unknown[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frames.extend([tree, service, unknown, tagged(datagram(2, 9, 1514), 7)]);
    let received = || hosts.second.far.link().counters.get("rx_packets").unwrap_or(0);
    let (mut sender, before) = (hosts.first.far.sender(), received());
    for frame in &frames {
        sender.send(frame).unwrap();
    }
    // What the hosts send by themselves has other senders.
    let sent_by_us = |frame: &[u8]| frame[6] == 2 && frame[7..11] == [0; 4];
    until("all arrive", || received() >= before + frames.len() as u64);
    // A few may be the hosts' own.
    std::thread::sleep(Duration::from_millis(100));
    succeeded(&reader.interrupt());
    succeeded(&running.interrupt());
    let got = packets(&hosts.path("got.pcap")).into_iter().map(|(_, frame)| frame).filter(|frame| sent_by_us(frame));
    let got: Vec<Vec<u8>> = got.collect();
    assert!(got == frames, "other frames, or another order: {} of {}", got.len(), frames.len());
}

#[test]
fn filters_between_decide_what_passes() {
    let Some(hosts) = Hosts::new(ALL) else { return };
    for (port, text) in [(23, "telnet"), (80, "web")] {
        hosts.serve(&format!("10.0.0.2:{port}"), move |stream| answer(stream, text.as_bytes()));
    }
    let running = hosts.start("bridge a b | { bridge + tcp | count }");
    assert_eq!(ask(&hosts, "10.0.0.2:23", "x").unwrap(), b"telnet");
    succeeded(&running.interrupt());
    assert!(hosts.said().starts_with("{\"blocks\":"), "{}", hosts.said());
    let running = hosts.start("bridge a b | not port 23");
    assert_eq!(ask(&hosts, "10.0.0.2:80", "x").unwrap(), b"web");
    let address = "10.0.0.2:23".parse().unwrap();
    let try_it = || TcpStream::connect_timeout(&address, Duration::from_millis(300));
    assert!(hosts.first.far.namespace.enter(try_it).unwrap().is_err());
    let stats = succeeded(&running.interrupt());
    assert!(row(&stats, "not port 23")[0]["blocks_rejected"].as_u64() > Some(0), "{stats:#}");
    // One direction only, by the class of the source: nothing comes back.
    let running = hosts.start("bridge a b |0 bridge");
    assert!(hosts.first.far.namespace.enter(try_it).unwrap().is_err());
    succeeded(&running.interrupt());
}

#[test]
fn frames_that_do_not_fit_are_counted() {
    let Some(hosts) = Hosts::new(Offloads::NONE) else { return };
    hosts.second.near.set_mtu(1000);
    let running = hosts.start("bridge a b");
    let mut sender = hosts.first.far.sender();
    (0..10).for_each(|number| sender.send(&datagram(number, 9, 1200)).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    let stats = succeeded(&running.interrupt());
    let sink = row(&stats, "bridge a b")[1];
    assert_eq!(sink["dropped"]["longer than the device takes"], 10, "{stats:#}");
}

#[test]
fn curl_downloads_byte_for_byte() {
    if !are_installed(&["curl"]) {
        return;
    }
    let Some(hosts) = Hosts::new(ALL) else { return };
    let running = hosts.start("bridge a b");
    let body = bytes(30 << 20);
    let served = body.clone();
    hosts.serve("10.0.0.2:80", move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", served.len());
        let _ = stream.write_all(&served);
    });
    let file = hosts.path("body");
    let curl = |file: &Path| {
        Command::new("curl").args(["-sS", "--max-time", "60", "-o"]).arg(file).arg("http://10.0.0.2/").output().unwrap()
    };
    let output = hosts.first.far.namespace.enter(|| curl(&file)).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(&file).unwrap() == body);
    succeeded(&running.interrupt());
}
