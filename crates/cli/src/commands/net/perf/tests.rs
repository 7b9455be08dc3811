//! Tests of throughput over the host's TCP on loopback: against iperf3, and client against server.

use super::*;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Result<Value, String>>>>);

impl Tell for Told {
    fn begun(&self, _: SocketAddr, _: &Parameters) {}
    fn measured(&self, peer: SocketAddr, measured: &Measured) {
        self.0.lock().unwrap().push(Ok(document(measured, false, &peer)));
    }
    fn failed(&self, _: SocketAddr, error: &io::Error) {
        self.0.lock().unwrap().push(Err(error.to_string()));
    }
}

struct Running {
    server: Arc<Server<TcpStream, Told>>,
    local: SocketAddr,
    told: Told,
}

impl Running {
    fn new() -> Running {
        let (listener, told) = (TcpListener::bind("127.0.0.1:0").unwrap(), Told::default());
        let local = listener.local_addr().unwrap();
        let server = Server::new(StopFlag::new(), told.clone());
        let accepting = Arc::clone(&server);
        std::thread::spawn(move || accepting.accept(&listener));
        Running { server, local, told }
    }

    fn told(&self) -> Result<Value, String> {
        let began = Instant::now();
        loop {
            if let Some(told) = self.told.0.lock().unwrap().pop() {
                return told;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the server tells nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.finish(Duration::from_secs(5));
        let _ = TcpStream::connect(self.local);
    }
}

fn parameters(streams: usize, reverse: bool) -> Parameters {
    Parameters { seconds: 1, omit: 0, streams, reverse, block: BLOCK }
}

fn client(to: SocketAddr, parameters: &Parameters) -> io::Result<Measured> {
    client::run(&|| TcpStream::connect(to), parameters, &StopFlag::new(), &mut |_, _| {})
}

/// iperf3 with these arguments. `None`, and a message, if it is not installed.
fn iperf3(arguments: &[&str]) -> Option<Command> {
    match Command::new("iperf3").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => {
            let mut command = Command::new("iperf3");
            command.args(arguments);
            Some(command)
        }
        Err(error) => {
            eprintln!("skipped, iperf3: {error}");
            None
        }
    }
}

struct Iperf3(Child, SocketAddr);

impl Iperf3 {
    fn serve() -> Option<Iperf3> {
        // A port that is free now.
        let local = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = iperf3(&["-s", "-B", "127.0.0.1", "-p", &local.port().to_string()])?;
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let hex = format!("0100007F:{:04X} 00000000:0000 0A", local.port());
        let began = Instant::now();
        while !std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&hex) {
            assert!(began.elapsed() < Duration::from_secs(20), "iperf3 does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Iperf3(child, local))
    }
}

impl Drop for Iperf3 {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Both sides counted, and their counts nearly agree.
fn check(measured: &Measured, what: &str) {
    let (sender, receiver) = sides(measured, true);
    assert_eq!((sender.bytes.len(), receiver.bytes.len()), (measured.parameters.streams, measured.parameters.streams));
    for (sent, received) in sender.bytes.iter().zip(&receiver.bytes) {
        assert!(*sent > 1 << 20 && *received > 1 << 20, "{what}: {measured:?}");
        assert!(*received <= *sent + (64 << 20) && *sent <= *received + (64 << 20), "{what}: {measured:?}");
    }
    assert!((0.9..5.0).contains(&seconds(measured)), "{what}: {measured:?}");
}

#[test]
fn the_client_measures_with_this_server() {
    let server = Running::new();
    for (streams, reverse) in [(1, false), (3, false), (1, true), (3, true)] {
        check(&client(server.local, &parameters(streams, reverse)).unwrap(), &format!("{streams} {reverse}"));
        let told = server.told().unwrap();
        assert_eq!((told["sends"].as_bool(), told["streams"].as_array().map(Vec::len)), (Some(reverse), Some(streams)));
    }
}

#[test]
fn the_client_measures_with_iperf3() {
    for (streams, reverse) in [(1, false), (4, false), (1, true), (4, true)] {
        // Between two tests iperf3 closes its port for a moment, so start a new server for each.
        let Some(server) = Iperf3::serve() else { return };
        check(&client(server.1, &parameters(streams, reverse)).unwrap(), &format!("{streams} {reverse}"));
    }
}

#[test]
fn iperf3_measures_with_this_server() {
    let server = Running::new();
    let port = server.local.port().to_string();
    let run = |arguments: &[&str]| -> Option<Value> {
        let output = iperf3(&["-c", "127.0.0.1", "-p", &port, "-J"])?.args(arguments).output().unwrap();
        Some(serde_json::from_slice(&output.stdout).unwrap())
    };
    for arguments in
        [&["-t", "1"][..], &["-t", "1", "-R"], &["-t", "1", "-P", "4"], &["-t", "1", "-P", "4", "-R"], &["-n", "256M"]]
    {
        let Some(result) = run(arguments) else { return };
        let told = server.told();
        assert_eq!(result.get("error"), None, "{arguments:?}: {told:?} {result:#}");
        for side in ["sum_sent", "sum_received"] {
            assert!(result["end"][side]["bytes"].as_u64() > Some(1 << 20), "{arguments:?}: {result:#}");
        }
        let told = told.unwrap();
        assert!(told["received_bytes"].as_u64() > Some(1 << 20), "{told:#}");
    }
    // Both sides leave out the omitted seconds.
    let result = run(&["-t", "1", "-O", "1"]).unwrap();
    let (sent, received) = (&result["end"]["sum_sent"]["bytes"], &result["end"]["sum_received"]["bytes"]);
    let ratio = received.as_f64().unwrap() / sent.as_f64().unwrap();
    assert!((0.6..1.6).contains(&ratio), "{ratio}: {result:#}");
    server.told().unwrap();
    let result = run(&["-t", "1", "--bidir"]).unwrap();
    assert!(result["error"].as_str().is_some_and(|text| text.contains("not implemented")), "{result:#}");
    assert!(server.told().is_err_and(|text| text.contains("options")));
}

#[test]
fn a_second_test_is_told_to_come_later() {
    let server = Running::new();
    let local = server.local;
    let first = std::thread::spawn(move || client(local, &parameters(1, false)));
    std::thread::sleep(Duration::from_millis(300));
    let error = client(local, &parameters(1, false)).unwrap_err();
    assert!(error.to_string().contains("busy"), "{error}");
    check(&first.join().unwrap().unwrap(), "the first");
}

/// A receiving iperf3 may wait for the rest of a block when the test is over, and reads no message before it has that.
#[test]
fn the_streams_of_a_server_that_sends_close_before_results() {
    use protocol::{Control, State, cookie};
    use std::io::{Read, Write};
    let server = Running::new();
    let cookie = cookie().unwrap();
    let open = || {
        let mut stream = TcpStream::connect(server.local).unwrap();
        stream.write_all(&cookie).unwrap();
        stream
    };
    let mut control = Control(open());
    assert_eq!(control.state().unwrap(), State::ParameterExchange);
    control.send_document(&parameters(1, true).document()).unwrap();
    assert_eq!(control.state().unwrap(), State::CreateStreams);
    let mut stream = open();
    assert_eq!((control.state().unwrap(), control.state().unwrap()), (State::TestStart, State::TestRunning));
    stream.read_exact(&mut [0; BLOCK]).unwrap();
    control.send(State::TestEnd).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(control.state().unwrap(), State::ExchangeResults);
}

/// A client of another protocol ends only its own connection.
#[test]
fn strangers_end_no_server() {
    use std::io::{Read, Write};
    let server = Running::new();
    let cookie = [b'a'; 37];
    let with = |rest: &[u8]| [&cookie[..], rest].concat();
    for sent in [
        Vec::new(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        with(&[]),
        with(&[0xff, 0xff, 0xff, 0xff]),
        with(&[0, 0, 0, 3, b'{', b'}', b'x']),
        with(&[0, 0, 0, 2, b'[', b']']),
    ] {
        let mut stream = TcpStream::connect(server.local).unwrap();
        stream.write_all(&sent).and_then(|()| stream.shutdown(std::net::Shutdown::Write)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(server.told().is_err(), "{sent:?}");
    }
    check(&client(server.local, &parameters(1, false)).unwrap(), "after them");
}

#[test]
fn what_was_measured_is_shown() {
    let here = Results { bytes: vec![3 << 20, 5 << 20], seconds: 2.0, processor: [120.0, 20.0, 100.0] };
    let there = Results { bytes: vec![2 << 20, 5 << 20], seconds: 2.0, processor: [7.4, 0.0, 7.4] };
    let measured = Measured { parameters: parameters(2, false), here, there };
    let peer = "10.0.0.2:5201".parse().unwrap();
    assert_eq!(
        table(&measured, true).within(None),
        "\
stream     sent  received         rate
     1  3.0 MiB   2.0 MiB   8.3 Mbit/s
     3  5.0 MiB   5.0 MiB  20.9 Mbit/s
"
    );
    assert_eq!(
        summary(&measured, true, &peer),
        "29.3 Mbit/s in 2.0 s by 2 streams to 10.0.0.2:5201: 8.0 MiB sent, 7.0 MiB received; processor 120 % here, 7 % there"
    );
    assert!(summary(&measured, false, &peer).contains("from 10.0.0.2:5201: 7.0 MiB sent, 8.0 MiB received"));
    let shown = document(&measured, true, &peer);
    assert_eq!((&shown["sends"], &shown["sent_bytes"]), (&json!(true), &json!(8u64 << 20)));
}
