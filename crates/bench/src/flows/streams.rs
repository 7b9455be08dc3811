//! Parts that speak TCP: `bench stage flow tcp WHOSE ROLE ...`, where `WHOSE` is `kernel` or the socket of a daemon.
//! The same code drives kernel sockets and flows of ours.
//!
//! The bytes are those of a [pattern](text), and the receiver checks each: one wrong byte makes the measurement void.

use super::lines::{Line, number, told};
use serde_json::{Value, json};
use socket::net::{Options, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of each write and read call, as in iperf3.
const CALL: usize = 128 << 10;

/// Bytes after which the pattern repeats. A prime, so that a loss of whole segments or buffers is noticed.
const PERIOD: usize = 65_521;

/// Bytes of a question and of its answer.
const QUESTION: usize = 64;

/// Connections that may wait at a listener.
const BACKLOG: u32 = 1024;

mod ask {
    /// Take bytes until the end, and answer in 8 bytes how many were right.
    pub const TAKE: u8 = b't';
    /// Send bytes for the number of ms in the next 8 bytes.
    pub const GIVE: u8 = b'g';
    /// Send all bytes back, until the end.
    pub const ECHO: u8 = b'e';
    /// `GET /COUNT` of HTTP: send `COUNT` bytes.
    pub const HTTP: u8 = b'G';
    /// Send this byte back, and finish.
    pub const ONE: u8 = b'1';
}

/// `CALL` bytes of the pattern from `at` on.
pub fn text(at: u64) -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut random = crate::random::Random::new(0x7e57);
        let period: Vec<u8> = (0..PERIOD).map(|_| random.below(256) as u8).collect();
        period.iter().copied().cycle().take(PERIOD + CALL).collect()
    });
    let start = (at % PERIOD as u64) as usize;
    &TEXT[start..start + CALL]
}

/// Whether these are the bytes of the pattern from `at` on.
pub fn is_text(bytes: &[u8], at: u64) -> bool {
    let mut at = at;
    bytes.chunks(CALL).all(|chunk| {
        let is_right = chunk == &text(at)[..chunk.len()];
        at += chunk.len() as u64;
        is_right
    })
}

trait Stream: Read + Write + Send + 'static {
    /// Says that no more is sent.
    fn finish(&self) -> io::Result<()>;
    fn be_prompt(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn be_prompt(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }
}

impl Stream for std::net::TcpStream {
    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn be_prompt(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }
}

type Accept<S> = Box<dyn FnMut() -> io::Result<S> + Send>;

trait Net: Sync {
    type Stream: Stream;
    fn connect(&self, to: SocketAddrV4) -> io::Result<Self::Stream>;
    fn listen(&self, port: u16) -> io::Result<Accept<Self::Stream>>;
}

struct Ours(Options);

impl Net for Ours {
    type Stream = TcpStream;

    fn connect(&self, to: SocketAddrV4) -> io::Result<TcpStream> {
        TcpStream::connect_with(&self.0, to)
    }

    fn listen(&self, port: u16) -> io::Result<Accept<TcpStream>> {
        let listener = TcpListener::bind_with(&self.0, (Ipv4Addr::UNSPECIFIED, port))?;
        Ok(Box::new(move || listener.accept().map(|(stream, _)| stream)))
    }
}

struct Kernel;

impl Net for Kernel {
    type Stream = std::net::TcpStream;

    fn connect(&self, to: SocketAddrV4) -> io::Result<std::net::TcpStream> {
        std::net::TcpStream::connect(to)
    }

    fn listen(&self, port: u16) -> io::Result<Accept<std::net::TcpStream>> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        // The library asks for 128 waiting connections; a second call asks for more.
        rustix::net::listen(&listener, BACKLOG as i32)?;
        Ok(Box::new(move || listener.accept().map(|(stream, _)| stream)))
    }
}

/// Runs a role.
pub fn run(whose: &str, words: &[&str]) -> Result<(), String> {
    match whose {
        "kernel" => play(&Kernel, words),
        daemon => play(&Ours(Options { daemon: PathBuf::from(daemon), backlog: BACKLOG, ..Options::default() }), words),
    }
}

fn play<N: Net>(net: &N, words: &[&str]) -> Result<(), String> {
    match *words {
        ["serve", port] => serve(net, number(port)?),
        ["send", to, ms] => client(|| send(net, number(to)?, Duration::from_millis(number(ms)?))),
        ["receive", to, ms] => client(|| receive(net, number(to)?, number(ms)?)),
        ["exchange", to, ms] => client(|| exchange(net, number(to)?, Duration::from_millis(number(ms)?))),
        ["connect", to, threads, ms] => {
            client(|| connect(net, number(to)?, number(threads)?, Duration::from_millis(number(ms)?)))
        }
        ["crowd", to, count] => client(|| crowd(net, number(to)?, number(count)?)),
        _ => Err(format!("`stage flow tcp {}` is no role", words.join(" "))),
    }
}

/// Does its work when told to, reports the result, and stays until its parent has read its processor time.
fn client(work: impl FnOnce() -> Result<Value, String>) -> Result<(), String> {
    let line = Line::ready();
    line.await_go();
    println!("{}", work()?);
    line.await_end();
    Ok(())
}

// --- the server -----------------------------------------------------------------------------------------------------

fn serve<N: Net>(net: &N, port: u16) -> Result<(), String> {
    let mut accept = net.listen(port).map_err(told)?;
    let line = Line::ready();
    // A thread that waits for a connection can only be ended with the process.
    std::thread::spawn(move || {
        line.await_end();
        std::process::exit(0);
    });
    loop {
        // A client whose connection fails reports it itself.
        if let Ok(stream) = accept() {
            attend(stream);
        }
    }
}

/// Does what a client asks: at once if it is short, else on a thread.
fn attend(mut stream: impl Stream) {
    let mut what = [0];
    match stream.read_exact(&mut what) {
        Ok(()) if what[0] == ask::ONE => drop(stream.write_all(&what)),
        Ok(()) => drop(std::thread::spawn(move || answer(&mut stream, what[0]))),
        Err(_) => {}
    }
}

fn answer(stream: &mut impl Stream, what: u8) -> io::Result<()> {
    match what {
        ask::TAKE => {
            let right = take(stream)?;
            stream.write_all(&right.to_be_bytes())
        }
        ask::GIVE => {
            let mut ms = [0; 8];
            stream.read_exact(&mut ms)?;
            give(stream, Duration::from_millis(u64::from_be_bytes(ms))).map(drop)
        }
        ask::HTTP => serve_file(stream),
        ask::ECHO => {
            stream.be_prompt()?;
            let mut bytes = [0; QUESTION];
            loop {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)?;
            }
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Answers an HTTP request for the number of bytes in its path (RFC 9112).
fn serve_file(stream: &mut impl Stream) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let count = head.split(' ').nth(1).and_then(|path| path.strip_prefix('/')?.parse::<u64>().ok());
    let count = count.ok_or(io::ErrorKind::InvalidInput)?;
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {count}\r\nConnection: close\r\n\r\n")?;
    let mut at = 0;
    while at < count {
        let most = (count - at).min(CALL as u64) as usize;
        at += stream.write(&text(at)[..most])? as u64;
    }
    Ok(())
}

/// Writes the pattern for a while. Gives the number of bytes.
fn give(stream: &mut impl Write, time: Duration) -> io::Result<u64> {
    let (began, mut at) = (Instant::now(), 0);
    while began.elapsed() < time {
        at += stream.write(text(at))? as u64;
    }
    Ok(at)
}

/// Reads the pattern until the end. Gives the number of bytes, or [`u64::MAX`] if one is wrong.
fn take(stream: &mut impl Read) -> io::Result<u64> {
    let (mut bytes, mut at, mut is_right) = (vec![0; CALL], 0, true);
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(if is_right { at } else { u64::MAX }),
            len => {
                is_right &= is_text(&bytes[..len], at);
                at += len as u64;
            }
        }
    }
}

// --- clients --------------------------------------------------------------------------------------------------------

fn said(bytes: u64, began: Instant) -> Value {
    json!({"bytes": bytes, "seconds": began.elapsed().as_secs_f64()})
}

fn send<N: Net>(net: &N, to: SocketAddrV4, time: Duration) -> Result<Value, String> {
    let mut stream = net.connect(to).map_err(told)?;
    stream.write_all(&[ask::TAKE]).map_err(told)?;
    let began = Instant::now();
    let sent = give(&mut stream, time).map_err(told)?;
    stream.finish().map_err(told)?;
    let mut right = [0; 8];
    stream.read_exact(&mut right).map_err(told)?;
    match u64::from_be_bytes(right) {
        right if right == sent => Ok(said(sent, began)),
        u64::MAX => Err("the other side received wrong bytes".to_owned()),
        right => Err(format!("the other side received {right} bytes of {sent}")),
    }
}

fn receive<N: Net>(net: &N, to: SocketAddrV4, ms: u64) -> Result<Value, String> {
    let mut stream = net.connect(to).map_err(told)?;
    let began = Instant::now();
    stream.write_all(&[&[ask::GIVE], &ms.to_be_bytes()[..]].concat()).map_err(told)?;
    match take(&mut stream).map_err(told)? {
        0 => Err("no bytes came".to_owned()),
        u64::MAX => Err("wrong bytes came".to_owned()),
        came => Ok(said(came, began)),
    }
}

/// Questions and answers, one after the other.
fn exchange<N: Net>(net: &N, to: SocketAddrV4, time: Duration) -> Result<Value, String> {
    let mut stream = net.connect(to).map_err(told)?;
    stream.be_prompt().map_err(told)?;
    stream.write_all(&[ask::ECHO]).map_err(told)?;
    let (mut times, mut answer, began) = (Vec::new(), [0; QUESTION], Instant::now());
    while began.elapsed() < time {
        let (asked, at) = (Instant::now(), times.len() as u64);
        stream.write_all(&text(at)[..QUESTION]).map_err(told)?;
        stream.read_exact(&mut answer).map_err(told)?;
        times.push(asked.elapsed().as_nanos() as u64);
        if !is_text(&answer, at) {
            return Err("a wrong answer came".to_owned());
        }
    }
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e3);
    Ok(json!({"exchanges": times.len(), "p50_us": at(0.5), "p99_us": at(0.99)}))
}

fn one<N: Net>(net: &N, to: SocketAddrV4) -> Result<(), String> {
    let mut stream = net.connect(to).map_err(told)?;
    stream.write_all(&[ask::ONE]).map_err(told)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(told)?;
    if answer == [ask::ONE] { Ok(()) } else { Err(format!("the answer was {answer:?}")) }
}

/// Connections one after the other, on `threads` threads; the first failure ends it.
fn connect<N: Net>(net: &N, to: SocketAddrV4, threads: u64, time: Duration) -> Result<Value, String> {
    let (count, failed) = (AtomicU64::new(0), Mutex::new(None));
    let (began, is_over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while began.elapsed() < time && !is_over.load(Ordering::Relaxed) {
                    match one(net, to) {
                        Ok(()) => drop(count.fetch_add(1, Ordering::Relaxed)),
                        Err(why) => {
                            is_over.store(true, Ordering::Relaxed);
                            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(format!("connection {}: {why}", count.into_inner() + 1)),
        None => Ok(json!({"count": count.into_inner(), "seconds": began.elapsed().as_secs_f64()})),
    }
}

/// `count` connections at once, each on a thread. Reports how many failed, and why the first one did.
fn crowd<N: Net>(net: &N, to: SocketAddrV4, count: usize) -> Result<Value, String> {
    let (failures, gate) = (Mutex::new(Vec::new()), Barrier::new(count));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                gate.wait();
                if let Err(why) = one(net, to) {
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(json!({"failed": failures.len(), "first": failures.first(), "seconds": began.elapsed().as_secs_f64()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how a reader of the pattern sees bytes with a fault.
    fn check(fault: impl FnOnce(&mut Vec<u8>), expected: u64) {
        let mut bytes = Vec::new();
        while bytes.len() < 300_000 {
            let at = bytes.len() as u64;
            bytes.extend_from_slice(&text(at)[..1000]);
        }
        fault(&mut bytes);
        assert_eq!(take(&mut &bytes[..]).unwrap(), expected);
    }

    #[test]
    fn a_wrong_byte_is_seen_and_so_is_one_too_few_or_too_many() {
        check(|_| {}, 300_000);
        check(|bytes| bytes[299_999] ^= 1, u64::MAX);
        check(|bytes| drop(bytes.drain(1448..2896)), u64::MAX);
        check(|bytes| drop(bytes.drain(..65_536)), u64::MAX);
        check(|bytes| bytes.extend_from_within(..1448), u64::MAX);
        // Only the sender's count shows this.
        check(|bytes| bytes.truncate(1000), 1000);
    }

    #[test]
    fn clients_and_server_understand_each_other() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut accept = Kernel.listen(port).unwrap();
        std::thread::spawn(move || {
            while let Ok(stream) = accept() {
                attend(stream);
            }
        });
        let (to, time) = (SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), Duration::from_millis(20));
        assert!(send(&Kernel, to, time).unwrap()["bytes"].as_u64() > Some(0));
        assert!(receive(&Kernel, to, 20).unwrap()["bytes"].as_u64() > Some(0));
        assert!(exchange(&Kernel, to, time).unwrap()["p50_us"].as_f64() > Some(0.0));
        assert!(connect(&Kernel, to, 2, time).unwrap()["count"].as_u64() > Some(0));
        assert_eq!(crowd(&Kernel, to, 20).unwrap()["failed"], 0);
        assert!(run("kernel", &["sing"]).is_err());
    }
}
