//! Unmodified programs whose sockets are flows (`streamline net run`), run by an ordinary user, against the kernel's
//! sockets on the far side of a pair.

use crate::flows::interface_with;
use crate::net::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) fn are_installed(names: &[&str]) -> bool {
    let places = ["/usr/bin", "/usr/sbin", "/bin"];
    let missing = names.iter().find(|name| !places.iter().any(|place| Path::new(place).join(name).exists()));
    if let Some(name) = missing {
        eprintln!("skipped (tools): there is no `{name}`");
    }
    missing.is_none()
}

/// A pair, if these programs are installed.
pub(crate) fn with_program(names: &[&str]) -> Option<Net> {
    are_installed(names).then(|| interface_with(&[])).flatten()
}

pub(crate) fn run(net: &Net, words: &[&str]) -> Command {
    run_with(net, &[], words)
}

pub(crate) fn run_with(net: &Net, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["net", "run", "--daemon"]).arg(net.socket()).args(options).arg("--").args(words);
    command.env("STREAMLINE_SOCKETS_LIBRARY", testkit::library::sockets());
    command.current_dir(net.path("")).uid(NOBODY).gid(NOBODY).env("HOME", net.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn done(net: &Net, words: &[&str]) -> Vec<u8> {
    let output = run(net, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Accepts the kernel's connections on the far side, each served in a thread. Ends with the test's process.
pub(crate) fn serve(net: &Net, address: &str, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    let listener = net.pair.far.namespace.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
}

/// Connects from the far side, once there is a listener.
fn connect(net: &Net, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = None;
    until("it listens", || {
        let tried = net.pair.far.namespace.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        stream = tried.unwrap().ok();
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Bytes that repeat at no power of two.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

/// Reads the head of an HTTP message. Returns its first line and Content-Length.
fn head(stream: &mut impl BufRead) -> (String, usize) {
    let (mut first, mut length, mut line) = (String::new(), 0, String::new());
    while stream.read_line(&mut line).unwrap() > 2 {
        if first.is_empty() {
            first = line.trim_end().to_string();
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    (first, length)
}

#[test]
fn curl_gets_and_puts() {
    let Some(net) = with_program(&["curl"]) else { return };
    serve(&net, "10.0.0.1:8080", |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (first, length) = head(&mut reader);
        let mut body = vec![0; length];
        if length > 0 {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        }
        reader.read_exact(&mut body).unwrap();
        let answer = if first.starts_with("GET") { bytes(8 << 20) } else { body };
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len()).unwrap();
        stream.write_all(&answer).unwrap();
    });
    assert_eq!(done(&net, &["curl", "-sS", "http://10.0.0.1:8080/"]), bytes(8 << 20));
    std::fs::write(net.path("sent"), bytes(3 << 20)).unwrap();
    let sent = format!("@{}", net.path("sent").display());
    assert_eq!(done(&net, &["curl", "-sS", "--data-binary", &sent, "http://10.0.0.1:8080/"]), bytes(3 << 20));
    let many = ["curl", "-sS", "--parallel", "-o", "got_#1", "http://10.0.0.1:8080/{one,two}"];
    done(&net, &many);
    assert!(["got_one", "got_two"].iter().all(|file| std::fs::read(net.path(file)).unwrap() == bytes(8 << 20)));
    let refused = run(&net, &["curl", "-sS", "http://10.0.0.1:8081/"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn what_is_written_before_the_end_arrives() {
    let Some(net) = with_program(&["python3"]) else { return };
    let (say, hear) = std::sync::mpsc::channel();
    serve(&net, "10.0.0.1:7000", move |mut stream| {
        let mut got = Vec::new();
        // Slow at first: the program has ended long before its bytes are read.
        std::thread::sleep(Duration::from_millis(300));
        stream.read_to_end(&mut got).unwrap();
        say.send(got).unwrap();
    });
    let program = "import socket\ns = socket.create_connection(('10.0.0.1', 7000))\n\
                   s.sendall(bytes((i % 251) ^ (i // 251 & 255) for i in range(8 << 20)))\ns.close()\n";
    done(&net, &["/usr/bin/python3", "-c", program]);
    assert!(hear.recv_timeout(LONG).unwrap() == bytes(8 << 20));
}

/// Fetches a file from the kernel's side `times` times over one connection.
fn fetch(net: &Net, address: &str, path: &str, times: usize) -> Vec<u8> {
    let mut stream = connect(net, address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut body = Vec::new();
    for _ in 0..times {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (first, length) = head(&mut reader);
        assert!(first.contains("200"), "{first}");
        body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
    }
    body
}

fn fetch_at_once(net: &Net, address: &'static str, path: &'static str, expected: &[u8]) {
    std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..20).map(|_| scope.spawn(|| fetch(net, address, path, 3))).collect();
        assert!(fetches.into_iter().all(|fetch| fetch.join().unwrap() == expected));
    });
}

/// nginx configuration that makes it write only below this folder.
pub(crate) fn nginx_folders(folder: &str) -> String {
    let names = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    names.iter().map(|name| format!("{name}_temp_path {folder}/{name};")).collect()
}

#[test]
fn nginx_serves_with_its_workers() {
    let Some(net) = with_program(&["nginx"]) else { return };
    std::fs::write(net.path("file"), bytes(1 << 20)).unwrap();
    let folder = net.path("").display().to_string();
    let temporary = nginx_folders(&folder);
    let configuration = format!(
        "worker_processes 2; pid {folder}/pid; error_log {folder}/errors; daemon off;\n\
         events {{ use epoll; }}\n\
         http {{ access_log off; sendfile on; {temporary}\n\
           server {{ listen 10.0.0.2:8080; root {folder}; }} }}\n"
    );
    std::fs::write(net.path("nginx.conf"), configuration).unwrap();
    let conf = net.path("nginx.conf").display().to_string();
    let nginx = Running::start(run(&net, &["nginx", "-e", "/dev/stderr", "-c", &conf]));
    fetch_at_once(&net, "10.0.0.2:8080", "/file", &bytes(1 << 20));
    // New workers start, and old ones end. Old ones then close idle connections.
    let master = nginx.0.as_ref().expect("it runs").id();
    let workers = || -> Vec<String> {
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        children.split_whitespace().map(String::from).collect()
    };
    let before = workers();
    nginx.signal(rustix::process::Signal::HUP);
    until("the workers are new", || workers().len() == 2 && workers().iter().all(|worker| !before.contains(worker)));
    fetch_at_once(&net, "10.0.0.2:8080", "/file", &bytes(1 << 20));
    nginx.signal(rustix::process::Signal::QUIT);
    let output = nginx.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn redis_serves_and_saves_in_the_background() {
    let Some(net) = with_program(&["redis-server"]) else { return };
    let words = ["redis-server", "--port", "6379", "--bind", "10.0.0.2", "--save", "", "--protected-mode", "no"];
    let redis = Running::start(run(&net, &words));
    let mut stream = connect(&net, "10.0.0.2:6379");
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut say = |text: &str| {
        stream.write_all(text.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    };
    assert_eq!(say("PING"), "+PONG");
    for number in 0..200 {
        assert_eq!(say(&format!("SET key{number} {number}")), "+OK");
    }
    assert_eq!(say("BGSAVE"), "+Background saving started");
    for number in 0..200 {
        assert_eq!(say(&format!("INCR key{number}")), format!(":{}", number + 1));
    }
    until("it saved", || net.path("dump.rdb").exists());
    redis.signal(rustix::process::Signal::TERM);
    assert!(redis.end().status.success());
}

pub(crate) fn far(net: &Net, words: &[&str]) -> Running {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    net.pair.far.namespace.enter(move || Running::start(command)).unwrap()
}

#[test]
fn iperf3_runs_both_ways() {
    let Some(net) = with_program(&["iperf3"]) else { return };
    let server = far(&net, &["iperf3", "-s", "-B", "10.0.0.1"]);
    until("the server listens", || {
        let probe = run(&net, &["iperf3", "-n", "1K", "-c", "10.0.0.1"]).output().unwrap();
        probe.status.success()
    });
    for options in [&[][..], &["-R"], &["-P", "4"]] {
        let mut words = vec!["iperf3", "-J", "-t", "1", "-c", "10.0.0.1"];
        words.extend(options);
        let result: Value = serde_json::from_slice(&done(&net, &words)).unwrap();
        let moved = result["end"]["sum_received"]["bytes"].as_f64().unwrap_or(0.0);
        assert!(moved > 1e6, "{options:?}: {result}");
    }
    drop(server);
}

#[test]
fn python_serves_asks_and_waits_for_many() {
    let Some(net) = with_program(&["python3"]) else { return };
    std::fs::write(net.path("file"), bytes(100_000)).unwrap();
    let words = ["/usr/bin/python3", "-m", "http.server", "8000", "--bind", "10.0.0.2", "--protocol", "HTTP/1.1"];
    let server = Running::start(run(&net, &words));
    assert_eq!(fetch(&net, "10.0.0.2:8000", "/file", 3), bytes(100_000));
    drop(server);
    serve(&net, "10.0.0.1:7001", |mut stream| {
        let mut copy = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut copy).unwrap();
        let _ = copy.shutdown(std::net::Shutdown::Write);
    });
    let program = "\
import asyncio
async def one(number):
    reader, writer = await asyncio.open_connection('10.0.0.1', 7001)
    said = bytes([number]) * 50_000
    writer.write(said); writer.write_eof()
    heard = await reader.read(-1)
    assert heard == said, (number, len(heard))
    assert writer.get_extra_info('peername') == ('10.0.0.1', 7001)
    writer.close(); await writer.wait_closed()
async def all_of_them():
    await asyncio.gather(*(one(number) for number in range(50)))
asyncio.run(all_of_them())
try:
    asyncio.run(asyncio.open_connection('10.0.0.1', 7002))
except ConnectionRefusedError:
    print('refused')
";
    assert_eq!(done(&net, &["/usr/bin/python3", "-c", program]), b"refused\n");
}

#[test]
fn what_no_interface_routes_stays_the_kernels() {
    let Some(net) = with_program(&["python3"]) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served: JoinHandle<()> = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"the kernel").unwrap();
    });
    let program = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', {port}))\nprint(s.recv(100).decode(), s.family.name, s.getpeername())"
    );
    let said = String::from_utf8(done(&net, &["/usr/bin/python3", "-c", &program])).unwrap();
    assert_eq!(said, format!("the kernel AF_INET ('127.0.0.1', {port})\n"));
    served.join().unwrap();
}

#[test]
fn a_policy_file_says_which_sockets_become_flows() {
    let Some(net) = with_program(&["python3"]) else { return };
    serve(&net, "10.0.0.1:7001", |mut stream| stream.write_all(b"a flow").unwrap());
    serve(&net, "10.0.0.1:7002", |mut stream| stream.write_all(b"a flow, too").unwrap());
    let policy = net.path("sockets");
    let with_policy = |text: &str, words: &[&str]| {
        std::fs::write(&policy, text).unwrap();
        run_with(&net, &["--policy", policy.to_str().unwrap()], words).output().unwrap()
    };
    let program = "\
import socket
for port in (7001, 7002):
    try: print(port, socket.create_connection(('10.0.0.1', port), 1).recv(100).decode())
    except OSError: print(port, 'the kernel')
b = socket.socket()
b.bind(('0.0.0.0', 0))
print(b.getsockname()[0])
";
    let output =
        with_policy("kernel connect tcp *:7002\nflow connect * 10.0.0.0/24\n", &["/usr/bin/python3", "-c", program]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, "7001 a flow\n7002 the kernel\n0.0.0.0\n", "{}", String::from_utf8_lossy(&output.stderr));
    let output = with_policy("flow connect tcp\n", &["/bin/true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("line 1: a rule has four words"), "{said}");
}

#[test]
fn a_program_that_loads_nothing_is_told_so() {
    let Some(net) = interface_with(&[]) else { return };
    let setuid = net.path("setuid");
    std::fs::copy("/bin/true", &setuid).unwrap();
    std::fs::set_permissions(&setuid, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    for (words, expected) in [
        (vec![setuid.to_str().unwrap()], "is setuid or setgid"),
        (vec!["no-such-program"], "there is no program no-such-program"),
    ] {
        let output = run(&net, &words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    // The shell sees the program's own status and output.
    let output = run(&net, &["sh", "-c", "echo said; exit 3"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"said\n"[..]));
    let socket = net.socket().into_os_string().into_encoded_bytes();
    until("hosts end with their programs", || {
        let processes = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read(entry.unwrap().path().join("cmdline")).ok());
        let is_host = |line: &Vec<u8>| {
            let mut words = line.split(|byte| *byte == 0);
            words.any(|word| word == b"socket-host") && words.any(|word| word == socket)
        };
        !processes.into_iter().any(|line| is_host(&line))
    });
}

/// The far side's kernel leaves the cutting of long segments and its checksums to the device, as virtual machines and
/// containers do.
#[test]
fn a_peer_with_offloads_sends_super_frames_and_its_ping_is_answered_in_fragments() {
    let Some(net) = with_program(&["curl"]) else { return };
    net.pair.far.set_offloads(crate::bridging::ALL);
    serve(&net, "10.0.0.1:8080", |mut stream| {
        head(&mut BufReader::new(stream.try_clone().unwrap()));
        let body = bytes(16 << 20);
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
    });
    assert!(done(&net, &["curl", "-sS", "--max-time", "20", "http://10.0.0.1:8080/"]) == bytes(16 << 20));
    let output = crate::flows::command(&net, 0, &["ls", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cut = document["interfaces"][0]["counters"]["super_frames.cut"].as_u64().unwrap();
    assert!(cut > 0, "the peer sent no super-frame: {document}");
    if are_installed(&["ping"]) {
        for size in ["56", "4000", "20000"] {
            let output = far(&net, &["ping", "-c", "2", "-W", "5", "-i", "0.2", "-s", size, "10.0.0.2"]).end();
            assert!(output.status.success(), "{size}: {}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

#[test]
fn net_ls_answers_while_the_process_of_one_interface_is_stopped() {
    let Some(net) = interface_with(&[]) else { return };
    let list = || {
        let begun = std::time::Instant::now();
        let output = crate::flows::command(&net, 0, &["ls", "--json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        document["interfaces"].as_array().unwrap().clone()
    };
    let process = crate::restarts::interface_process(&net).and_then(rustix::process::Pid::from_raw).unwrap();
    let up = crate::flows::command(&net, 0, &["up", "other0", "--via", "loopback", "--addr", "10.7.0.1/24"]).output();
    assert!(up.unwrap().status.success());
    let before = list();
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let stopped = list();
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    let names = |list: &[Value]| list.iter().map(|interface| interface["interface"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&stopped));
    let trouble = |list: &[Value]| list.iter().map(|one| one["trouble"].to_string()).collect::<Vec<_>>();
    assert!(trouble(&stopped)[0].contains("does not answer"), "{stopped:?}");
    assert_eq!(trouble(&stopped)[1], trouble(&before)[1]);
    until("it is back", || trouble(&list()) == trouble(&before));
}

#[test]
fn a_device_or_a_slice_that_names_nothing_is_an_error() {
    let Some(net) = interface_with(&[]) else { return };
    for (options, expected) in [
        (["--device", "nosuch0"], "has no interface `nosuch0`"),
        (["--slice", "much"], "`much` is no share of the wire"),
    ] {
        let output = run_with(&net, &options, &["/bin/echo", "it ran"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(expected) && output.stdout.is_empty(), "{said}");
    }
    let device = net.device().to_string();
    let output =
        run_with(&net, &["--device", &device, "--slice", "fair:3"], &["/bin/echo", "it ran"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Says its number to each connection: the number of those before.
const COUNTING: &str = "\
import socket, sys
s = socket.socket(int(sys.argv[1]))
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[2], int(sys.argv[3])))
s.listen()
print('ready', s.getsockname()[1], flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[4])):
    c, peer = s.accept()
    assert c.getpeername() == peer and c.family == s.family and c.getsockname()[1] == s.getsockname()[1]
    assert c.recv(2) == b'hi'
    c.sendall(b'%d' % number)
    c.close()
";

fn counting(net: &Net, family: i32, address: &str, port: u16, count: u32) -> (std::process::Child, String) {
    let (family, port, count) = (family.to_string(), port.to_string(), count.to_string());
    first_line(run(net, &["/usr/bin/python3", "-c", COUNTING, &family, address, &port, &count]))
}

/// Starts a program, and waits for its first line: it is ready.
fn first_line(mut command: Command) -> (std::process::Child, String) {
    let mut program = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (program, line)
}

fn greet(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"hi").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_listener_on_all_addresses_hears_every_interface_and_the_loopback() {
    let Some(net) = with_program(&["python3"]) else { return };
    let up = |name: &str, address: &str| {
        let output = crate::flows::command(&net, 0, &["up", name, "--via", "loopback", "--addr", address]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    up("second0", "10.7.0.1/24");
    let far = |address: &str| connect(&net, address);
    let loopback = |address: &str| TcpStream::connect(address).unwrap();
    // A second program is the peer on an interface without a device.
    let by_flow = |address: &str, port: u16| {
        let program = format!(
            "import socket; s = socket.create_connection(('{address}', {port})); s.sendall(b'hi'); print(s.recv(9).decode())"
        );
        String::from_utf8(done(&net, &["/usr/bin/python3", "-c", &program])).unwrap().trim().to_string()
    };
    for (family, all, port, local) in [(2, "0.0.0.0", 7117, "127.0.0.1"), (10, "::", 7118, "[::1]")] {
        let (mut server, ready) = counting(&net, family, all, port, 6);
        assert_eq!(ready, format!("ready {port}\n"));
        // They come before the program accepts, and it gets them in this order.
        let first = far(&format!("10.0.0.2:{port}"));
        std::thread::sleep(Duration::from_millis(100));
        let second = loopback(&format!("127.0.0.1:{port}"));
        std::thread::sleep(Duration::from_millis(100));
        let third = far(&format!("10.0.0.2:{port}"));
        std::thread::sleep(Duration::from_millis(100));
        let fourth = loopback(&format!("{local}:{port}"));
        writeln!(server.stdin.as_mut().unwrap()).unwrap();
        assert_eq!([first, second, third, fourth].map(greet), ["0", "1", "2", "3"]);
        assert_eq!(by_flow("10.7.0.1", port), "4");
        // An interface that comes later joins within a second.
        let (name, address) = (format!("late{port}"), format!("10.8.{}.1", port - 7000));
        up(&name, &format!("{address}/24"));
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(by_flow(&address, port), "5");
        let output = server.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // It closed everything: the port is free.
        until("the port is free", || TcpListener::bind(("127.0.0.1", port)).is_ok());
    }
    // One taken port undoes all, and the next program has it.
    let taken = TcpListener::bind("127.0.0.1:7119").unwrap();
    let program = "import socket, errno\ns = socket.socket()\ns.bind(('0.0.0.0', 7119))\n\
                   try: s.listen()\nexcept OSError as e: assert e.errno == errno.EADDRINUSE, e\nelse: assert False\n";
    done(&net, &["/usr/bin/python3", "-c", program]);
    drop(taken);
    let (mut server, _) = counting(&net, 2, "0.0.0.0", 7119, 1);
    writeln!(server.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(greet(far("10.0.0.2:7119")), "0");
    assert!(server.wait().unwrap().success());
}

#[test]
fn sockets_that_share_a_port_get_connections_in_turn() {
    let Some(net) = with_program(&["python3"]) else { return };
    let program = "\
import socket, errno
def one(shares):
    s = socket.socket()
    if shares: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('10.0.0.2', 7120))
    s.listen()
    return s
a, b = one(True), one(True)
try: one(False)
except OSError as e: assert e.errno == errno.EADDRINUSE, e
else: assert False
print('ready', flush=True)
for s in (a, b, a, b):
    c, _ = s.accept()
    assert c.recv(2) == b'hi'
    c.sendall(b'x')
    c.close()
b.close()
for _ in range(2):
    c, _ = a.accept()
    assert c.recv(2) == b'hi'
    c.sendall(b'y')
    c.close()
";
    let (server, ready) = first_line(run(&net, &["/usr/bin/python3", "-c", program]));
    assert_eq!(ready, "ready\n");
    let said: String = (0..6).map(|_| greet(connect(&net, "10.0.0.2:7120"))).collect();
    assert_eq!(said, "xxxxyy");
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
