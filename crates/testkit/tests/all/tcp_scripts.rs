//! Plays the scripts against the kernel's TCP, in real time: the test is the peer, behind a tun device.

use driver::change::Change;
use driver::namespace::Namespace;
use driver::tuntap::{Layer, Options, Receiver, Sender, TunTap};
use driver::{Receive, Transmit, Turn};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use testkit::network::{End, may_make_networks, quiet_namespace};
use testkit::script::{self, Host, Kind, Moment, Script, State, Tolerance, Why};

const MS: u64 = 1_000_000;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// How long the kernel may take to report to the application.
const TELLING: Duration = Duration::from_millis(200);

/// Scripts that run at once. They sleep most of the time.
const AT_ONCE: usize = 6;

const FINISHED: State = State::Closed(Why::Finished);

/// A kernel with one connection, in a namespace of its own.
struct Kernel {
    namespace: Namespace,
    /// The list of the kernel's connections there.
    table: File,
    receiver: Receiver,
    sender: Sender,
    began: Instant,
    left: VecDeque<(Moment, Vec<u8>)>,
    connecting: Option<mpsc::Receiver<io::Result<TcpStream>>>,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    /// The socket's last report about the end of the connection.
    error: Option<ErrorKind>,
}

/// Makes the kernel a station. `None`: a tool or the device is missing, as standard error says.
fn kernel() -> Option<Kernel> {
    let namespace = quiet_namespace();
    let options = Options { name: "tun0".into(), layer: Layer::Tun, ..Options::default() };
    let mut tun = match TunTap::open(&namespace, &options) {
        Ok(tun) => tun,
        Err(error) => {
            eprintln!("skipped (kernel): {error}");
            return None;
        }
    };
    let end = End::find(&namespace, "tun0").expect("it was made");
    end.change(&Change { up: Some(true), ..Change::default() });
    let address = format!("{OWN}/24");
    let run = || Command::new("ip").args(["address", "add", &address, "dev", "tun0"]).status();
    if !namespace.enter(run).expect("its namespace is there").is_ok_and(|status| status.success()) {
        eprintln!("skipped (tools): there is no `ip`");
        return None;
    }
    // Enter the namespace only once: it takes long while another namespace is being made.
    let table = namespace.enter(|| File::open("/proc/thread-self/net/tcp")).expect("its namespace is there");
    let (receiver, sender) = tun.queues.remove(0);
    Some(Kernel {
        namespace,
        table: table.expect("the kernel shows its connections"),
        receiver,
        sender,
        began: Instant::now(),
        left: VecDeque::new(),
        connecting: None,
        listener: None,
        stream: None,
        error: None,
    })
}

/// Tries until the kernel reports something, or until time is up.
fn soon<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + TELLING;
    loop {
        let found = attempt();
        if found.is_some() || Instant::now() > end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Kernel {
    /// The application's end of the connection. `None`: the handshake is not over.
    fn stream(&mut self) -> Option<&mut TcpStream> {
        if let Some(connecting) = &self.connecting
            && let Ok(connected) = connecting.try_recv()
        {
            self.connecting = None;
            match connected {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => self.error = Some(error.kind()),
            }
        }
        if let Some(listener) = &self.listener
            && let Ok((stream, _)) = listener.accept()
        {
            (self.stream, self.listener) = (Some(stream), None);
        }
        let stream = self.stream.as_mut()?;
        stream.set_nonblocking(true).expect("a socket option");
        Some(stream)
    }

    /// The application's end; gives the kernel time to report it.
    fn open(&mut self) -> Result<&mut TcpStream, String> {
        soon(|| self.stream().is_some().then_some(()));
        self.stream().ok_or("the application has no connection".into())
    }

    /// The state of the connection, by the kernel's numbers (`include/net/tcp_states.h`).
    fn number(&mut self) -> Result<Option<u8>, String> {
        let mut table = String::new();
        let read = self.table.rewind().and_then(|()| self.table.read_to_string(&mut table));
        read.map_err(|error| error.to_string())?;
        let peer = format!("{:08X}:", u32::from_ne_bytes(PEER.octets()));
        let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let state = row.into_iter().find(|row| row.get(2).is_some_and(|to| to.starts_with(&peer)));
        Ok(state.and_then(|row| u8::from_str_radix(row.get(3)?, 16).ok()))
    }

    fn state_now(&mut self) -> Result<State, String> {
        let (number, stream) = (self.number()?, self.stream());
        if let Some(stream) = stream
            && let Ok(Some(error)) = stream.take_error()
        {
            self.error = Some(error.kind());
        }
        Ok(match number {
            Some(1 | 8) if self.stream.is_some() => State::Open,
            Some(1..=3) => State::Connecting,
            Some(4 | 5 | 9 | 11) => State::Ending,
            Some(6) => State::TimeWait,
            Some(8) => State::Open,
            _ => match self.error {
                None => FINISHED,
                // A reset after the peer's FIN is EPIPE.
                Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => State::Closed(Why::Reset),
                Some(ErrorKind::ConnectionRefused) => State::Closed(Why::Refused),
                Some(ErrorKind::TimedOut) => State::Closed(Why::TimedOut),
                Some(other) => return Err(format!("the socket says {other}")),
            },
        })
    }
}

impl Host for Kernel {
    fn kind(&self) -> Kind {
        Kind::Kernel
    }

    fn tolerance(&self) -> Tolerance {
        // The kernel's timers have a tick of up to 10 ms, and other work may hold the test up.
        Tolerance { early: 20 * MS, late: 90 * MS, patience: 500 * MS }
    }

    fn now(&mut self) -> Moment {
        self.began.elapsed().as_nanos() as u64
    }

    fn next_packet(&mut self, until: Moment) -> Result<Option<(Moment, Vec<u8>)>, String> {
        loop {
            if let Some(left) = self.left.pop_front() {
                return Ok(Some(left));
            }
            let wait = Duration::from_nanos(until.saturating_sub(self.now()));
            let (began, left) = (self.began, &mut self.left);
            let turn = self.receiver.receive(wait, &mut |batch| {
                let now = began.elapsed().as_nanos() as u64;
                // Skip packets that the kernel sends to all.
                let ours = batch.frames.iter().map(|frame| frame.parts().concat());
                let ours = ours.filter(|packet| packet.get(16..20) == Some(&PEER.octets()));
                left.extend(ours.map(|packet| (now, packet)));
            });
            turn.map_err(|error| error.to_string())?;
            if self.left.is_empty() && self.now() >= until {
                return Ok(None);
            }
        }
    }

    fn receive(&mut self, packet: &[u8]) -> Result<(), String> {
        match self.sender.transmit(&[packet]) {
            Ok(Turn::Frames(1)) => Ok(()),
            other => Err(format!("the packet did not go in: {other:?}")),
        }
    }

    fn connect(&mut self) -> Result<[SocketAddrV4; 2], String> {
        let (tell, connecting) = mpsc::channel();
        let namespace = self.namespace.clone();
        let peer = SocketAddrV4::new(PEER, 80);
        // The thread ends with the handshake. Without an answer it ends when the namespace's device is gone, or by a
        // timeout.
        std::thread::spawn(move || {
            let connected = namespace.enter(|| TcpStream::connect(peer)).and_then(|connected| connected);
            _ = tell.send(connected);
        });
        self.connecting = Some(connecting);
        Ok([SocketAddrV4::new(OWN, 0), peer])
    }

    fn listen(&mut self) -> Result<[SocketAddrV4; 2], String> {
        let own = SocketAddrV4::new(OWN, 80);
        let listener = self.namespace.enter(|| TcpListener::bind(own)).and_then(|listener| listener);
        let listener = listener.map_err(|error| error.to_string())?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        self.listener = Some(listener);
        Ok([own, SocketAddrV4::new(PEER, 40_000)])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        match self.open()?.write(bytes) {
            Ok(taken) if taken == bytes.len() => Ok(()),
            other => Err(format!("not all is taken: {other:?}")),
        }
    }

    fn read(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; count];
        match self.open()?.read(&mut bytes) {
            Ok(read) => bytes.truncate(read),
            Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
            Err(error) => return Err(error.to_string()),
        }
        Ok(bytes)
    }

    fn is_at_end(&mut self) -> Result<bool, String> {
        let stream = self.open()?;
        let mut one = [0];
        Ok(soon(|| stream.peek(&mut one).is_ok_and(|read| read == 0).then_some(())).is_some())
    }

    fn close(&mut self) -> Result<(), String> {
        self.open()?.shutdown(Shutdown::Write).map_err(|error| error.to_string())
    }

    fn abort(&mut self) -> Result<(), String> {
        Err("the standard library cannot abort a connection".into())
    }

    fn state(&mut self) -> Result<State, String> {
        let mut state = self.state_now()?;
        // If the application has no connection yet, it is about to get one.
        soon(|| {
            state = self.state_now().ok()?;
            (self.connecting.is_none() || state == State::Connecting && self.number() == Ok(Some(2))).then_some(())
        });
        Ok(state)
    }
}

/// Plays a script. Real time is not always precise: a script that fails is played again, and then has to succeed twice.
fn play(script: &Script) -> Option<String> {
    let run = || script.run(&mut kernel()?).err();
    let first = run()?;
    eprintln!("played again: {first}");
    run().or_else(run)
}

#[test]
fn the_kernel_keeps_to_every_script() {
    if !may_make_networks() || kernel().is_none() {
        return;
    }
    let (for_kernel, left_out): (Vec<_>, Vec<_>) =
        script::all().into_iter().partition(|script| script.left_out(Kind::Kernel).is_none());
    for script in &left_out {
        eprintln!("{}: left out: {}", script.name, script.left_out(Kind::Kernel).unwrap_or_default());
    }
    let mut failed = Vec::new();
    for some in for_kernel.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|script| scope.spawn(|| play(script))).collect();
            failed.extend(threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")));
        });
    }
    assert!(failed.is_empty(), "{} scripts fail\n{}", failed.len(), failed.join("\n"));
}
