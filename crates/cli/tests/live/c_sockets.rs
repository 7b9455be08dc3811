//! Sockets over flows from C: `examples/c/echo.c` and the guide's example, by a user without rights, against the kernel's sockets on the far
//! side of a pair.

use crate::flows::interface_with;
use crate::net::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use testkit::library;

/// An interface, and a program built from this source beside its daemon. `None`: one of them cannot be made.
fn with_program(source: &Path, library: &Path) -> Option<(Net, PathBuf)> {
    let net = interface_with(&[])?;
    let program = net.path("program");
    library::compile(source, &program, "capi-net", library).then_some((net, program))
}

fn run(net: &Net, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("STREAMLINE_DAEMON", net.socket()).uid(NOBODY).gid(NOBODY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fed(net: &Net, program: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = run(net, program, arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    })
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

fn echo(listener: TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
}

#[test]
fn the_example_serves_connections_and_datagrams() {
    for library in [library::net().to_owned(), library::net().with_extension("a")] {
        let Some((net, program)) = with_program(&library::file("examples/c/echo.c"), &library) else { return };
        let mut server = Running::start(run(&net, &program, &["serve", "0.0.0.0", "7000"]));
        let connect = || net.pair.far.namespace.enter(|| TcpStream::connect("10.0.0.2:7000")).unwrap();
        let mut streams = vec![];
        until("it listens", || {
            streams.extend(connect());
            !streams.is_empty()
        });
        streams.extend((0..3).map(|_| connect().unwrap()));
        let sent = bytes(3 << 20);
        std::thread::scope(|scope| {
            for stream in &streams {
                stream.set_read_timeout(Some(LONG)).unwrap();
                let sent = &sent;
                scope.spawn(move || {
                    let mut writer = stream;
                    writer.write_all(sent).unwrap();
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let (mut reader, mut got) = (stream, vec![]);
                    reader.read_to_end(&mut got).unwrap();
                    assert!(got == *sent, "{} of {} bytes", got.len(), sent.len());
                });
            }
        });
        let socket = net.pair.far.namespace.enter(|| UdpSocket::bind("10.0.0.1:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        for len in [0, 1, 1472, 4000] {
            socket.send_to(&sent[..len], "10.0.0.2:7000").unwrap();
            let mut got = [0; 5000];
            // A longer datagram comes in fragments, and the server cannot send it back.
            if len <= 1472 {
                assert_eq!(socket.recv(&mut got).unwrap(), len);
                assert_eq!(got[..len], sent[..len]);
            }
        }
        assert!(!server.has_ended());
        // The interface is brought down, and the server reports it.
        let down = crate::flows::command(&net, 0, &["down", net.device()]).output().unwrap();
        assert!(down.status.success());
        let output = server.end();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("down"), "{said}");
    }
}

#[test]
fn the_examples_clients_get_back_what_they_sent() {
    let Some((net, program)) = with_program(&library::file("examples/c/echo.c"), library::net()) else { return };
    let far = net.pair.far.namespace.clone();
    let listener = far.enter(|| TcpListener::bind("10.0.0.1:7000")).unwrap().unwrap();
    let socket = far.enter(|| UdpSocket::bind("10.0.0.1:7000")).unwrap().unwrap();
    std::thread::spawn(move || echo(listener));
    std::thread::spawn(move || {
        let (mut datagram, mut count) = ([0; 2000], 0);
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            count += 1;
            // The first datagram is lost: the client sends it again.
            if count > 1 {
                socket.send_to(&datagram[..len], from).unwrap();
            }
        }
    });
    for (protocol, count) in [("tcp", 3 << 20), ("udp", 20_500)] {
        let output = fed(&net, &program, &[protocol, "10.0.0.1", "7000"], &bytes(count));
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == bytes(count), "{protocol}: {} of {count} bytes", output.stdout.len());
    }
    for (arguments, expected) in [
        (["tcp", "10.0.0.1", "7001"], "connect: Connection refused"),
        (["udp", "10.0.0.1", "7001"], "no answer"),
        (["tcp", "10.9.9.9", "7000"], "connect: "),
        (["serve", "10.0.0.1", "7000"], "tcp: "),
        (["serve", "0.0.0.0", "70"], "tcp: "),
        (["tcp", "nonsense", "7000"], "usage"),
    ] {
        let output = fed(&net, &program, &arguments, b"x");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn the_guides_example_asks_and_prints_the_answer() {
    let examples = library::guide("net.md", "streamline_net.h");
    let [example] = &examples[..] else { panic!("the guide has another: test it here, too") };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("ask.c");
    std::fs::write(&source, example).unwrap();
    let Some((net, program)) = with_program(&source, library::net()) else { return };
    let listener = net.pair.far.namespace.enter(|| TcpListener::bind("10.0.0.1:7000")).unwrap().unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut question = String::new();
        stream.read_to_string(&mut question).unwrap();
        write!(stream, "you said {question}").unwrap();
    });
    let output = fed(&net, &program, &["10.0.0.1", "7000"], b"hello");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "you said hello",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success());
    server.join().unwrap();
}

/// Listens, accepts, writes and returns from `main`. Its own exit handler runs after the library's.
const WRITES_AND_RETURNS: &str = r#"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "streamline_net.h"

static sl_socket *listener;

static void late(void) {
    char byte;
    if (sl_net_read(listener, &byte, 1) >= 0 || strlen(sl_net_error()) > 0)
        abort();
}

int main(void) {
    static char bytes[200000];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7000)};
    sl_socket *stream;
    /* From now on this thread has a text, which is gone when its exit handlers run. */
    if (strlen(sl_net_error()) > 0)
        return 4;
    atexit(late);
    memset(bytes, 'x', sizeof bytes);
    if (sl_net_listen(NULL, (struct sockaddr *)&at, sizeof at, &listener) < 0)
        return 1;
    if (sl_net_accept(listener, &stream, NULL, NULL) < 0)
        return 2;
    return sl_net_write(stream, bytes, sizeof bytes) == sizeof bytes ? 0 : 3;
}
"#;

#[test]
fn what_a_program_wrote_arrives_after_it_returns_from_main_with_its_listener_open() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("returns.c");
    std::fs::write(&source, WRITES_AND_RETURNS).unwrap();
    for library in [library::net().to_owned(), library::net().with_extension("a")] {
        let Some((net, program)) = with_program(&source, &library) else { return };
        let server = Running::start(run(&net, &program, &[]));
        let mut stream = None;
        until("it listens", || {
            stream = net.pair.far.namespace.enter(|| TcpStream::connect("10.0.0.2:7000")).unwrap().ok();
            stream.is_some()
        });
        let output = server.end();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let (mut stream, mut got) = (stream.unwrap(), Vec::new());
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == [b'x'; 200_000], "{} bytes", got.len());
    }
}
