//! The programs that take part, each a process: `bench stage flow ROLE ...`. They are senders and receivers on flows of
//! ours and on kernel sockets, idle flows, and senders of handmade frames.
//!
//! A part writes `ready`, and begins at the line `go` on its standard input. For each line `count` it writes the number
//! of datagrams received so far, for each line `time` its processor time in ns. It ends with its standard input, or
//! when its work is done; then it writes one JSON document.

use super::lines::{Line, WAIT, number, told};
use super::mmsg::{self, MANY, Many};
use super::{frames, streams};
use flow::OpenFlow;
use serde_json::json;
use socket::{Connection, SocketError, UdpOptions};
use stack::NoEnv;
use std::io::{self};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Length of the windows in which received datagrams are counted, in ms.
pub const WINDOW_MS: u64 = 100;

/// Runs a role.
pub fn run(words: &[&str]) -> Result<(), String> {
    match *words {
        ["send", daemon, to, bytes, share, rate, count] => {
            send(daemon, number(to)?, number(bytes)?, share, &Pace::new(number(rate)?, number(count)?))
        }
        ["kernel-send", to, bytes, rate, count] => {
            kernel_send(number(to)?, number(bytes)?, &Pace::new(number(rate)?, number(count)?))
        }
        ["receive", daemon, port, slower] => receive(daemon, number(port)?, number(slower)?),
        ["kernel-receive", port, slower] => kernel_receive(number(port)?, number(slower)?),
        ["idle", daemon, connections, flows] => idle(daemon, number(connections)?, number(flows)?),
        ["frames", device, mac, kind, port, count, rate] => {
            frames::send(device, number(mac)?, number(kind)?, number(port)?, number(count)?, number(rate)?)
        }
        ["tcp", whose, ref role @ ..] => streams::run(whose, role),
        _ => Err(format!("`stage flow {}` is no role", words.join(" "))),
    }
}

// --- sending --------------------------------------------------------------------------------------------------------

struct Pace {
    rate: u64,
    count: u64,
}

impl Pace {
    /// Datagrams a second (0 = as fast as possible), and their number (0 = without end).
    fn new(rate: u64, count: u64) -> Pace {
        Pace { rate, count: if count == 0 { u64::MAX } else { count } }
    }

    /// Sleeps until `sent` datagrams may have gone.
    fn sleep(&self, began: Instant, sent: u64) {
        if self.rate > 0 {
            let due = Duration::from_nanos((u128::from(sent) * 1_000_000_000 / u128::from(self.rate)) as u64);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
}

/// Reports how many datagrams a sender sent, and in which time, in s. The sender stays until its parent has read its
/// processor time.
fn say_sent(line: &Line, sent: u64, began: Instant) {
    println!("{}", json!({"sent": sent, "seconds": began.elapsed().as_secs_f64()}));
    line.await_end();
}

fn open(daemon: &str, options: &UdpOptions) -> Result<socket::UdpSocket, String> {
    let connection = Connection::open(Path::new(daemon), "bench").map_err(told)?;
    socket::UdpSocket::open(Arc::new(connection), options, &mut NoEnv).map_err(told)
}

fn send(daemon: &str, to: SocketAddr, bytes: usize, share: &str, pace: &Pace) -> Result<(), String> {
    let options = UdpOptions { peer: Some(to), share: Some(share.to_owned()), ..UdpOptions::default() };
    let mut socket = open(daemon, &options)?;
    let mut payload = vec![0; bytes];
    let line = Line::ready();
    line.await_go();
    let (began, mut sent) = (Instant::now(), 0);
    while sent < pace.count && !line.has_ended() {
        payload[..8].copy_from_slice(&u64::to_be_bytes(sent));
        match socket.send(None, &payload) {
            Ok(()) => sent += 1,
            Err(SocketError::Full) => socket.wait(WAIT).map_err(told)?,
            Err(SocketError::Reported(_)) => {}
            Err(error) => return Err(told(error)),
        }
        if sent.is_multiple_of(MANY as u64) {
            pace.sleep(began, sent);
        }
    }
    while socket.outstanding() > 0 && !line.has_ended() {
        socket.wait(WAIT).map_err(told)?;
    }
    say_sent(&line, sent, began);
    Ok(())
}

fn kernel_send(to: SocketAddr, bytes: usize, pace: &Pace) -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(told)?;
    socket.connect(to).map_err(told)?;
    // A sender that waits for room looks around now and then.
    socket.set_write_timeout(Some(WAIT)).map_err(told)?;
    let mut many = Many::new(bytes);
    let line = Line::ready();
    line.await_go();
    let (began, mut sent) = (Instant::now(), 0);
    while sent < pace.count && !line.has_ended() {
        for at in 0..MANY {
            many.buffer(at)[..8].copy_from_slice(&(sent + at as u64).to_be_bytes());
        }
        let most = (pace.count - sent).min(MANY as u64) as usize;
        match many.send(&socket, most) {
            Ok(took) => sent += took as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // An earlier datagram was refused; flows of ours report this, too.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(told(error)),
        }
        pace.sleep(began, sent);
    }
    say_sent(&line, sent, began);
    Ok(())
}

// --- receiving ------------------------------------------------------------------------------------------------------

/// How slow a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slower {
    /// As fast as it can.
    Never,
    /// Sleeps this number of us for each datagram.
    By(u64),
    /// Begins fast. After each such number of datagrams (first field), it sleeps this number of us more for each
    /// datagram (second field).
    Each(u64, u64),
}

impl FromStr for Slower {
    type Err = ();

    /// Parses `never`, `US`, or `COUNT:US`.
    fn from_str(text: &str) -> Result<Slower, ()> {
        let number = |text: &str| text.parse().map_err(drop);
        match text.split_once(':') {
            _ if text == "never" => Ok(Slower::Never),
            None => number(text).map(Slower::By),
            Some((count, us)) => Ok(Slower::Each(number(count)?, number(us)?)),
        }
    }
}

struct Tally {
    line: Arc<Line>,
    slower: Slower,
    began: Instant,
    received: u64,
    misordered: u64,
    next: u64,
    windows: Vec<u64>,
}

impl Tally {
    fn new(slower: Slower) -> Tally {
        let line = Line::ready();
        Tally { line, slower, began: Instant::now(), received: 0, misordered: 0, next: 0, windows: Vec::new() }
    }

    /// Counts a datagram. Numbers start again with each sender; otherwise they go up.
    fn take(&mut self, payload: &[u8]) {
        let number = payload.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        if number != 0 && number < self.next {
            self.misordered += 1;
        }
        self.next = number.saturating_add(1);
        self.received += 1;
    }

    fn batch(&mut self, count: usize) {
        let window = (self.began.elapsed().as_millis() as u64 / WINDOW_MS) as usize;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] += count as u64;
        self.line.received.store(self.received, Ordering::Relaxed);
        let us = match self.slower {
            Slower::Never => 0,
            Slower::By(us) => us,
            Slower::Each(each, us) => self.received / each * us,
        };
        // In steps, because the parent may ask for the end.
        let mut left = Duration::from_micros(us * count as u64);
        while !left.is_zero() && !self.line.has_ended() {
            let step = left.min(WAIT);
            std::thread::sleep(step);
            left -= step;
        }
    }

    fn say(&self, dropped: u64) {
        println!(
            "{}",
            json!({
                "received": self.received, "dropped": dropped, "misordered": self.misordered, "windows": self.windows,
            })
        );
    }
}

fn receive(daemon: &str, port: u16, slower: Slower) -> Result<(), String> {
    let mut socket = open(daemon, &UdpOptions { port, ..UdpOptions::default() })?;
    let mut tally = Tally::new(slower);
    loop {
        match socket.receive(MANY, &mut |datagram| tally.take(datagram.payload)) {
            // Datagrams that are there when the parent asks for the end still count.
            Ok(0) if tally.line.has_ended() => break,
            Ok(0) => socket.wait(WAIT).map_err(told)?,
            Ok(count) => tally.batch(count),
            Err(SocketError::Reported(_)) => {}
            Err(error) => return Err(told(error)),
        }
    }
    tally.say(socket.counts().not_received.iter().map(|(_, count)| count).sum());
    Ok(())
}

fn kernel_receive(port: u16, slower: Slower) -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(told)?;
    mmsg::prepare(&socket, WAIT).map_err(told)?;
    let mut many = Many::new(2048);
    let mut tally = Tally::new(slower);
    loop {
        match many.receive(&socket, |datagram| tally.take(datagram)) {
            Ok(count) => tally.batch(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if tally.line.has_ended() {
                    break;
                }
            }
            Err(error) => return Err(told(error)),
        }
    }
    tally.say(mmsg::dropped(&socket).map_err(told)?);
    Ok(())
}

fn idle(daemon: &str, connections: usize, flows: usize) -> Result<(), String> {
    let mut open = Vec::new();
    for _ in 0..connections {
        let connection = Connection::open(Path::new(daemon), "bench").map_err(told)?;
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        // The smallest channels; with others, 10,000 flows take 11 GB.
        let small = OpenFlow {
            send_records: 16,
            send_bytes: 4096,
            receive_buffers: 16,
            buffer_bytes: 2048,
            ..OpenFlow::new(None, 17, any, None)
        };
        let opened = (0..flows).map(|_| connection.flow(&small)).collect::<Result<Vec<_>, _>>().map_err(told)?;
        open.push((connection, opened));
    }
    // The driver need not ring for them: this process sleeps until its parent asks for the end.
    for flow in open.iter().filter_map(|(_, flows)| flows.first()) {
        flow.fall_asleep();
    }
    println!("ready");
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(told)?;
    println!("{}", json!({"flows": open.iter().map(|(_, flows)| flows.len()).sum::<usize>()}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_get_slower_as_told() {
        assert_eq!("never".parse(), Ok(Slower::Never));
        assert_eq!("150".parse(), Ok(Slower::By(150)));
        assert_eq!("20000:15".parse(), Ok(Slower::Each(20_000, 15)));
        assert_eq!("20000:".parse::<Slower>(), Err(()));
    }

    #[test]
    fn a_role_that_there_is_not_is_refused() {
        assert!(run(&["sing"]).is_err());
        assert!(run(&["receive", "/no/such/socket", "port", "never"]).is_err());
    }
}
