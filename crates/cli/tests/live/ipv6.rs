//! IPv6: flows, commands and unmodified programs against the kernel's sockets on the far side of a pair. Functions that
//! are the same for IPv4 are tested there.

use crate::flows::{command, interface_with};
use crate::net::*;
use crate::unmodified::{are_installed, done, far, nginx_folders, run, run_with, serve};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::process::{Output, Stdio};
use std::thread::scope;

/// A pair with 10.0.0.2 and fd00::2 on the daemon's end, and 10.0.0.1 and fd00::1 on the kernel's. `None`: that cannot be made.
pub(crate) fn both() -> Option<Net> {
    interface_with(&["--addr", "fd00::2/64"]).map(with_ipv6)
}

/// The same, if these programs are installed.
fn both_with(names: &[&str]) -> Option<Net> {
    are_installed(names).then(both).flatten()
}

fn with_ipv6(net: Net) -> Net {
    let end = net.pair.far.clone();
    let give = || {
        // Usable at once: no other host has the address.
        for (setting, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/{setting}", end.name), value).unwrap();
        }
        let words = ["address", "add", "fd00::1/64", "dev", &end.name, "nodad"];
        std::process::Command::new("ip").args(words).status().unwrap()
    };
    assert!(end.namespace.enter(give).unwrap().success());
    net
}

fn far_socket(net: &Net, address: &str) -> UdpSocket {
    let socket = net.pair.far.namespace.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Connects from the kernel's side, once there is a listener.
fn far_connect(net: &Net, address: &str) -> TcpStream {
    let mut stream = None;
    until("it listens", || {
        stream = net.pair.far.namespace.enter(|| TcpStream::connect(address)).unwrap().ok();
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn listed(net: &Net, what: &str, key: &str) -> Vec<Value> {
    let output = command(net, 0, &[what, "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document[key].as_array().unwrap().clone()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn datagrams_go_both_ways_and_the_lists_show_them() {
    let Some(net) = both() else { return };
    let echo = Running::start(command(&net, NOBODY, &["echo", "udp", "4000", "--addr", "::"]));
    until("it listens", || listed(&net, "flows", "flows").len() == 1);
    let socket = far_socket(&net, "[fd00::1]:5000");
    socket.connect("[fd00::2]:4000").unwrap();
    let mut bytes = [0; 2000];
    for len in [0, 1, 1000, 1451, 1452] {
        let sent = vec![len as u8; len];
        socket.send(&sent).unwrap();
        assert_eq!(socket.recv(&mut bytes).unwrap(), len);
        assert_eq!(bytes[..len], sent);
    }
    assert_eq!(listed(&net, "flows", "flows")[0]["local"], "[fd00::2]:4000");
    let texts = |what, key, field| -> Vec<String> {
        listed(&net, what, key).iter().map(|each| each[field].as_str().unwrap_or_default().to_string()).collect()
    };
    assert_eq!(texts("neighbours", "neighbours", "address"), ["fd00::1"]);
    assert_eq!(texts("routes", "routes", "to"), ["10.0.0.0/24", "fd00::/64", "fe80::/64"]);
    assert!(echo.interrupt().status.success());

    drop(socket);
    let socket = far_socket(&net, "[fd00::1]:5000");
    let request = "generate count=20 size=84 | udp | flow udp 4100 to=[fd00::1]:5000";
    let sent = Running::start(net.as_nobody(request));
    for number in 0..20 {
        let (_, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!(from.to_string(), "[fd00::2]:4100", "datagram {number}");
    }
    let output = sent.end();
    assert!(output.status.success(), "{}", said(&output));
    let mut cat = command(&net, NOBODY, &["cat", "udp", "4200", "--to", "[fd00::1]:5000", "--wait", "20"]);
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"a question\n").unwrap();
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..len], from.to_string().as_str()), (&b"a question\n"[..], "[fd00::2]:4200"));
    socket.send_to(&[b'l'; 60_000], from).unwrap();
    let cat = Running(Some(cat));
    let mut received = 0;
    until("it received", || {
        received = listed(&net, "flows", "flows")[0]["received"].as_u64().unwrap();
        received > 0
    });
    let output = cat.interrupt();
    assert!(output.status.success() && output.stdout == [b'l'; 60_000], "{}", said(&output));
    drop(input);

    let mut closed = command(&net, NOBODY, &["cat", "udp", "--to", "[fd00::1]:4444", "--wait", "1"]);
    let mut closed = closed.stdin(Stdio::piped()).spawn().unwrap();
    closed.stdin.take().unwrap().write_all(b"anybody?\n").unwrap();
    let output = closed.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("warning: Connection refused"), "{}", said(&output));
}

fn far_neighbour(net: &Net, address: &str) -> String {
    let show = || std::process::Command::new("ip").args(["-6", "neighbour", "show", address]).output().unwrap();
    String::from_utf8(net.pair.far.namespace.enter(show).unwrap().stdout).unwrap()
}

#[test]
fn the_kernel_finds_an_interface_and_pings_it() {
    let Some(net) = both() else { return };
    assert_eq!(far_neighbour(&net, "fd00::2"), "");
    let raw = || net::socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
    let socket = net.pair.far.namespace.enter(raw).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LONG)).unwrap();
    // The kernel fills in the checksum (RFC 3542 3.1).
    let request = [&[128, 0, 0, 0, 0, 7, 0, 1][..], &bytes(1200)].concat();
    let to = SocketAddrV6::new("fd00::2".parse().unwrap(), 0, 0, 0);
    net::sendto(&socket, &request, SendFlags::empty(), &to).unwrap();
    let mut space = [0; 2000];
    // The socket also receives Neighbour Discovery.
    let answer = loop {
        let (_, len) = net::recv(&socket, &mut space[..], RecvFlags::empty()).expect("it is answered");
        if space[0] == 129 {
            break &space[..len];
        }
    };
    assert_eq!(answer[4..], request[4..]);
    let mac: Vec<String> = net.pair.near.link().address.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let found = far_neighbour(&net, "fd00::2");
    assert!(found.contains(&format!("lladdr {}", mac.join(":"))), "{found}");
    // The interface has sent nothing to that address yet, so it solicits the neighbour.
    let mut cat = command(&net, NOBODY, &["cat", "udp", "--to", "[fd00::1]:5000", "--wait", "1"]);
    let receiver = far_socket(&net, "[fd00::1]:5000");
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"found\n").unwrap();
    let (len, _) = receiver.recv_from(&mut space).unwrap();
    assert_eq!(&space[..len], b"found\n");
    assert!(cat.wait().unwrap().success());
}

#[test]
fn a_policy_decides_about_sockets_of_ipv6_too() {
    let Some(net) = both_with(&["python3"]) else { return };
    for address in ["[fd00::1]:7001", "[fd00::1]:7002", "10.0.0.1:7001", "10.0.0.1:7002"] {
        serve(&net, address, |mut stream| stream.write_all(b"a flow").unwrap());
    }
    let program = "\
import socket
for host in ('fd00::1', '::ffff:10.0.0.1'):
    for port in (7001, 7002):
        s = socket.socket(socket.AF_INET6)
        s.settimeout(1)
        try:
            s.connect((host, port))
            print(host, port, s.recv(100).decode())
        except OSError: print(host, port, 'the kernel')
";
    let rules = "kernel connect tcp [fd00::1]:7002\nkernel connect tcp 10.0.0.1:7001\nflow connect * fd00::/64\nflow connect * 10.0.0.0/8\n";
    let policy = net.path("sockets");
    std::fs::write(&policy, rules).unwrap();
    let words = ["/usr/bin/python3", "-c", program];
    let output = run_with(&net, &["--policy", policy.to_str().unwrap()], &words).output().unwrap();
    let expected = "fd00::1 7001 a flow\nfd00::1 7002 the kernel\n\
                    ::ffff:10.0.0.1 7001 the kernel\n::ffff:10.0.0.1 7002 a flow\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", said(&output));
}

#[test]
fn what_is_no_address_or_suits_no_other_is_refused_with_a_word_on_what_would() {
    let Some(net) = both() else { return };
    let device = net.device().to_string();
    let rows: [(u32, &[&str], i32, &str); 10] = [
        (NOBODY, &["cat", "udp", "--to", "fd00::1:7"], 2, "stands in brackets"),
        (NOBODY, &["cat", "udp", "--to", "[fd00::1]"], 2, "[fd00::1]:7"),
        (NOBODY, &["cat", "udp", "--to", "[fd00::1]:7", "--addr", "10.0.0.2"], 1, "of two families"),
        (NOBODY, &["cat", "udp", "--to", "[2001:db8::1]:7"], 1, "no interface routes to 2001:db8::1"),
        (NOBODY, &["cat", "udp", "--to", "[ff02::1]:7", "--device", &device], 1, "is no address that a flow sends to"),
        (NOBODY, &["echo", "udp", "4000", "--addr", "fd00::9"], 1, "no interface has the address fd00::9"),
        (NOBODY, &["echo", "udp", "4000", "--stack", "udp 4000 | ipv6"], 2, "stands on `ipv4` in this flow"),
        (0, &["up", "none", "--addr", "fd00::2"], 2, "`fd00::2/64`"),
        (0, &["up", "none", "--addr", "fd00::2/129"], 2, "0 to 128 bits"),
        (0, &["up", "none", "--addr", "fe80::2%eth0/64"], 2, "the interface says it"),
    ];
    for (user, words, code, text) in rows {
        let output = command(&net, user, words).output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(code) && said.contains(text), "{words:?}: {:?} {said}", output.status);
    }
    let refused: [(&[&str], &str); 5] = [
        (&["--addr", "ff02::1/64"], "ff02::1/64 is no address of a host"),
        (&["--addr", "::1/128"], "::1/128 is no address of a host"),
        (&["--addr", "10.0.0.9/24", "--gateway", "fe80::1"], "the gateway fe80::1 is no neighbour"),
        (&["--addr", "fd00::9/64", "--gateway", "fd01::1"], "the gateway fd01::1 is no neighbour"),
        (&["--addr", "fd00::9/64", "--gateway", "fe80::1", "--gateway", "fd00::1"], "one of each family"),
    ];
    for (words, text) in refused {
        let output = command(&net, 0, &[&["up", "none"], words].concat()).output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(2) && said.contains(text), "{words:?}: {said}");
    }
}

/// Bytes that repeat at no power of two.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

fn echoes(mut stream: TcpStream, sent: &[u8]) {
    scope(|scope| {
        let mut copy = stream.try_clone().unwrap();
        scope.spawn(move || {
            copy.write_all(sent).unwrap();
            copy.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent);
    });
}

fn serve_echo(net: &Net, address: &str) {
    serve(net, address, |mut stream| {
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
        let _ = copy.shutdown(std::net::Shutdown::Write);
    });
}

#[test]
fn commands_of_tcp_talk_to_the_kernel_over_ipv6() {
    let Some(net) = both() else { return };
    let sent = bytes(3 << 20);
    std::fs::create_dir(net.path("files")).unwrap();
    std::fs::write(net.path("files/file"), &sent).unwrap();
    let _echo = Running::start(command(&net, NOBODY, &["echo", "tcp", "4007", "--addr", "fd00::2"]));
    echoes(far_connect(&net, "[fd00::2]:4007"), &sent);
    serve_echo(&net, "[fd00::1]:5000");
    let mut cat = command(&net, NOBODY, &["cat", "tcp", "--to", "[fd00::1]:5000"]);
    cat.stdin(std::fs::File::open(net.path("files/file")).unwrap());
    let output = Running::start(cat).end();
    assert!(output.status.success() && output.stdout == sent, "{}", said(&output));

    let server = Running::start(command(&net, NOBODY, &["serve", "files", "--addr", "::", "--port", "8080"]));
    let mut stream = far_connect(&net, "[fd00::2]:8080");
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got.ends_with(&sent));
    drop(server);
    let listener = net.pair.far.namespace.enter(|| TcpListener::bind("[fd00::1]:8082")).unwrap().unwrap();
    scope(|scope| {
        scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            assert_eq!(from.ip().to_string(), "fd00::2");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(String::from_utf8_lossy(&head).contains("Host: [fd00::1]:8082"));
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len()).unwrap();
            stream.write_all(&sent).unwrap();
        });
        let output = command(&net, NOBODY, &["get", "http://[fd00::1]:8082/file"]).output().unwrap();
        assert!(output.status.success() && output.stdout == sent, "{}", said(&output));
    });
    let refused = command(&net, NOBODY, &["get", "http://[fd00::1]:81/"]).output().unwrap();
    assert!(refused.status.code() == Some(1) && said(&refused).contains("refused"), "{}", said(&refused));

    let _server = Running::start(command(&net, NOBODY, &["perf", "-s", "--addr", "fd00::2"]));
    until("it listens", || listed(&net, "flows", "listeners").iter().any(|each| each["local"] == "[fd00::2]:5201"));
    if are_installed(&["iperf3"]) {
        let output = far(&net, &["iperf3", "-6", "-J", "-t", "1", "-c", "fd00::2"]).end();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result["end"]["sum_received"]["bytes"].as_u64() > Some(1 << 20), "{result}");
    }
}

fn body(net: &Net, address: &str) -> Vec<u8> {
    let mut stream = far_connect(net, address);
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    let at = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    got.split_off(at + 4)
}

#[test]
fn curl_gets_by_ipv6() {
    let Some(net) = both_with(&["curl"]) else { return };
    serve(&net, "[fd00::1]:8080", |mut stream| {
        let mut head = [0; 1000];
        let _ = stream.read(&mut head).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", 8 << 20).unwrap();
        stream.write_all(&bytes(8 << 20)).unwrap();
    });
    assert!(done(&net, &["curl", "-6", "-sS", "http://[fd00::1]:8080/"]) == bytes(8 << 20));
    let refused = run(&net, &["curl", "-sS", "http://[fd00::1]:8081/"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
}

#[test]
fn servers_that_are_bound_to_all_of_ipv6_hear_both_families() {
    let Some(net) = both_with(&["nginx", "python3"]) else { return };
    std::fs::write(net.path("file"), bytes(1 << 20)).unwrap();
    let folder = net.path("").display().to_string();
    let temporary = nginx_folders(&folder);
    // One socket for both, and two for one each, as distributions configure it.
    let configuration = format!(
        "worker_processes 2; pid {folder}/pid; error_log {folder}/errors; daemon off; events {{ }}\n\
         http {{ access_log {folder}/log; {temporary}\n\
           server {{ listen [::]:8080 ipv6only=off; root {folder}; }}\n\
           server {{ listen 8081; listen [::]:8081; root {folder}; }} }}\n"
    );
    std::fs::write(net.path("nginx.conf"), configuration).unwrap();
    let conf = net.path("nginx.conf").display().to_string();
    let nginx = Running::start(run(&net, &["nginx", "-e", "/dev/stderr", "-c", &conf]));
    let words = ["/usr/bin/python3", "-m", "http.server", "8082", "--bind", "::"];
    let python = Running::start(run(&net, &words));
    for address in ["[fd00::2]", "10.0.0.2"] {
        for port in [8080, 8081, 8082] {
            assert!(body(&net, &format!("{address}:{port}")) == bytes(1 << 20), "{address} {port}");
        }
    }
    nginx.signal(rustix::process::Signal::QUIT);
    assert!(nginx.end().status.success());
    let logged = net.text("log");
    let clients: Vec<&str> = logged.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(clients, ["fd00::1", "fd00::1", "::ffff:10.0.0.1", "10.0.0.1"]);
    drop(python);
}

/// Linux's answers for such sockets. 7001 echoes; 7002 has no listener.
const PROGRAM_OF_NAMES: &str = "\
import errno, signal, socket
signal.alarm(30)
SIX, FOUR, MAPPED = ('fd00::1', 7001), ('10.0.0.1', 7001), ('::ffff:10.0.0.1', 7001)
DOMAIN, ONLY = (socket.SOL_SOCKET, 39), (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
def new(kind=socket.SOCK_STREAM, only=0):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(*ONLY, only)
    return s
def fails(what, act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        assert error.errno == what, error
    else:
        assert False, 'it did not fail'
# Streams have the addresses of their socket's family.
for to, own in [(SIX, 'fd00::2'), (MAPPED, '::ffff:10.0.0.2')]:
    s = new()
    s.connect(to)
    s.sendall(b'hello')
    assert s.recv(5) == b'hello'
    assert s.getpeername()[:2] == to and s.getsockname()[0] == own, (s.getpeername(), s.getsockname())
    assert s.getsockopt(*DOMAIN) == socket.AF_INET6 and s.getsockopt(*ONLY) == 0
    fails(errno.EINVAL, s.setsockopt, *ONLY, 1)
s = socket.create_connection(FOUR)
assert s.getsockopt(*DOMAIN) == socket.AF_INET and s.getpeername() == FOUR
fails(errno.ECONNREFUSED, new().connect, ('fd00::1', 7002))
fails(errno.ECONNREFUSED, new().connect, ('::ffff:10.0.0.1', 7002))
fails(errno.ENETUNREACH, new(only=1).connect, MAPPED)
# One that is bound first.
s = new()
s.bind(('::', 0))
port = s.getsockname()[1]
assert port > 0 and s.getsockname()[0] == '::'
s.connect(MAPPED)
assert s.getsockname()[:2] == ('::ffff:10.0.0.2', port), s.getsockname()
s = new()
s.bind(('fd00::2', 0))
s.connect(SIX)
assert s.getsockname()[0] == 'fd00::2'
# Listeners: what one socket has of a port, no other may have.
s = new()
s.bind(('::', 7100))
s.listen()
taken = socket.socket()
def listens():
    taken.bind(('0.0.0.0', 7100))
    taken.listen()
fails(errno.EADDRINUSE, listens)
only = new(only=1)
only.bind(('::', 7101))
only.listen()
assert only.getsockopt(*ONLY) == 1
beside = socket.create_server(('0.0.0.0', 7101))
# The flow is one of the daemon's, and so this interface's, whoever connects.
s.settimeout(10)
for to in [('fd00::2', 7100), ('::ffff:10.0.0.2', 7100)]:
    c = new()
    c.connect(to)
    a, peer = s.accept()
    assert a.getsockname()[:2] == to and peer[:2] == c.getsockname()[:2], (a.getsockname(), peer)
    assert a.family == socket.AF_INET6 and a.getsockopt(*DOMAIN) == socket.AF_INET6
    a.sendall(b'to myself')
    assert c.recv(9) == b'to myself'
# Datagrams, to both families from one port.
u = new(socket.SOCK_DGRAM)
u.settimeout(10)
for to in [SIX, MAPPED, SIX]:
    u.sendto(b'hello', to)
    said, peer = u.recvfrom(100)
    assert (said, peer[:2]) == (b'hello', to), (said, peer)
assert u.getsockname()[0] == '::' and u.getsockopt(*DOMAIN) == socket.AF_INET6
port = u.getsockname()[1]
for to, own in [(SIX, 'fd00::2'), (MAPPED, '::ffff:10.0.0.2')]:
    u.connect(to)
    u.send(b'hello')
    assert u.recv(100) == b'hello' and u.getpeername()[:2] == to
    assert u.getsockname()[:2] == (own, port), u.getsockname()
u.connect(('fd00::1', 7002))
u.send(b'anybody?')
fails(errno.ECONNREFUSED, u.recv, 100)
# The kernel's: its own host, and addresses of a link, whose zone is the number of a device of its own.
l = socket.create_server(('::1', 0), family=socket.AF_INET6)
c = socket.create_connection(l.getsockname()[:2])
assert c.getpeername()[0] == '::1'
fails(errno.EINVAL, new().connect, ('fe80::1', 7001, 0, 0))
print('done')
";

#[test]
fn programs_find_what_they_know_of_sockets_of_ipv6() {
    let Some(net) = both_with(&["python3"]) else { return };
    for address in ["[fd00::1]:7001", "10.0.0.1:7001"] {
        serve_echo(&net, address);
        let echo = far_socket(&net, address);
        echo.set_read_timeout(None).unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 2000];
            while let Ok((count, from)) = echo.recv_from(&mut bytes) {
                let _ = echo.send_to(&bytes[..count], from);
            }
        });
    }
    // The program's namespace has ::1 only where IPv6 is on.
    let on = || std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0");
    net.pair.near.namespace.enter(on).unwrap().unwrap();
    let output = run(&net, &["/usr/bin/python3", "-c", PROGRAM_OF_NAMES]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{}", said(&output));
}

#[test]
fn a_python_server_answers_datagrams_of_both_families() {
    let Some(net) = both_with(&["python3"]) else { return };
    let program = "\
import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(('::', 5300))
while True:
    said, peer = s.recvfrom(2000)
    s.sendto(said + peer[0].encode(), peer)
";
    let _server = Running::start(run(&net, &["/usr/bin/python3", "-c", program]));
    let link_local = net.pair.far.namespace.enter(|| {
        let all = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        let line = all.lines().find(|line| line.starts_with("fe80")).unwrap().to_string();
        Ipv6Addr::from_bits(u128::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
    });
    let link_local = link_local.unwrap().to_string();
    let zone = net.pair.far.index;
    let scoped = format!("[{link_local}%{zone}]:0");
    for (from, client) in [("[fd00::1]:0", "fd00::1"), ("10.0.0.1:0", "::ffff:10.0.0.1"), (&scoped, &link_local)] {
        let to = if from.starts_with('1') { "10.0.0.2:5300" } else { "[fd00::2]:5300" };
        let socket = far_socket(&net, from);
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let mut bytes = [0; 2000];
        let mut len = 0;
        until("it answers", || {
            // Until there is a listener, the kernel reports refusals.
            let _ = socket.send_to(b"who? ", to);
            len = socket.recv_from(&mut bytes).map_or(0, |(len, _)| len);
            len > 0
        });
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), format!("who? {client}"));
    }
}
