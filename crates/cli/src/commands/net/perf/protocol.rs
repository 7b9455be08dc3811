//! The protocol of iperf3 (version 3.12). A control connection carries states of one byte, and JSON documents behind
//! their length. Each data stream has a connection of its own. Every connection opens with the cookie of its test.

use super::super::tcp::{Stream, is_timeout};
use serde_json::{Value, json};
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Opens every connection of a test: 36 letters and a zero byte.
pub(super) type Cookie = [u8; 37];

/// The most bytes of a document. The results of 128 streams have about 25,000.
const DOCUMENT_BYTES: usize = 256 << 10;

/// The most streams of a test, as in iperf3.
pub(super) const STREAMS: usize = 128;

/// Bytes of one write or read: the default, as in iperf3, and the maximum.
pub(super) const BLOCK: usize = 128 << 10;
const MOST_BLOCK: usize = 1 << 20;

/// How long a peer may be silent on the control connection, outside of the test itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// States, each a signed byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub(super) enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ParameterExchange = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    Done = 16,
    AccessDenied = -1,
    ServerError = -2,
}

const STATES: [State; 12] = [
    State::TestStart,
    State::TestRunning,
    State::TestEnd,
    State::ParameterExchange,
    State::CreateStreams,
    State::ServerTerminate,
    State::ClientTerminate,
    State::ExchangeResults,
    State::DisplayResults,
    State::Done,
    State::AccessDenied,
    State::ServerError,
];

impl State {
    fn of(byte: u8) -> io::Result<State> {
        let found = STATES.into_iter().find(|state| *state as i8 == byte as i8);
        found.ok_or_else(|| damaged(format!("state {} is unknown", byte as i8)))
    }
}

/// iperf3's error number (`iperf_api.h`) for an option that the server does not support.
pub(super) const NOT_IMPLEMENTED: u32 = 13;
/// iperf3's error number for too many streams.
pub(super) const TOO_MANY_STREAMS: u32 = 6;

pub(super) struct Control<S>(pub(super) S);

impl<S: Stream> Control<S> {
    pub(super) fn send(&mut self, state: State) -> io::Result<()> {
        self.0.write_all(&(state as i8).to_be_bytes())
    }

    /// Refuses the client's test, with the reason as one of iperf3's error numbers.
    pub(super) fn refuse(&mut self, error: u32) -> io::Result<()> {
        let mut bytes = (State::ServerError as i8).to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        // No errno belongs to it.
        bytes.extend(0u32.to_be_bytes());
        self.0.write_all(&bytes)
    }

    /// The next state. `None`: none came within `patience`.
    pub(super) fn poll(&mut self, patience: Duration) -> io::Result<Option<State>> {
        self.0.set_read_timeout(Some(patience))?;
        let mut byte = [0];
        match self.0.read_exact(&mut byte) {
            Ok(()) => State::of(byte[0]).map(Some),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next state. A timeout is an error.
    pub(super) fn state(&mut self) -> io::Result<State> {
        self.poll(PATIENCE)?.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the other side does not go on"))
    }

    /// The numbers that follow a refusal.
    pub(super) fn refusal(&mut self) -> io::Result<(u32, u32)> {
        let mut bytes = [0; 8];
        read_exact(&mut self.0, &mut bytes)?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }

    pub(super) fn send_document(&mut self, document: &Value) -> io::Result<()> {
        let text = document.to_string().into_bytes();
        let len = u32::try_from(text.len()).map_err(|_| damaged("a document is too long"))?;
        let mut bytes = len.to_be_bytes().to_vec();
        bytes.extend(text);
        self.0.write_all(&bytes)
    }

    pub(super) fn document(&mut self) -> io::Result<Value> {
        let mut len = [0; 4];
        read_exact(&mut self.0, &mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > DOCUMENT_BYTES {
            return Err(damaged(format!("a document of {len} bytes is longer than {DOCUMENT_BYTES}")));
        }
        let mut bytes = vec![0; len];
        read_exact(&mut self.0, &mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| damaged(format!("a document is no JSON: {error}")))
    }
}

/// Fills `to`, within [`PATIENCE`] altogether.
pub(super) fn read_exact<S: Stream>(stream: &mut S, to: &mut [u8]) -> io::Result<()> {
    let began = Instant::now();
    let mut read = 0;
    while read < to.len() {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the other side does not go on"));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut to[read..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len,
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn damaged(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

pub(super) fn cookie() -> io::Result<Cookie> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = [0; 37];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut cookie[..36])?;
    for byte in &mut cookie[..36] {
        *byte = LETTERS[usize::from(*byte % 32)];
    }
    Ok(cookie)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Seconds. 0: the client ends the test after a number of bytes.
    pub(super) seconds: u32,
    /// Seconds at the beginning that do not count.
    pub(super) omit: u32,
    pub(super) streams: usize,
    pub(super) reverse: bool,
    /// Bytes of one write.
    pub(super) block: usize,
}

impl Parameters {
    pub(super) fn document(&self) -> Value {
        let mut document = json!({
            "tcp": true, "omit": self.omit, "time": self.seconds, "num": 0, "blockcount": 0, "parallel": self.streams,
            "len": self.block, "pacing_timer": 1000, "client_version": "3.12",
        });
        if self.reverse {
            document["reverse"] = true.into();
        }
        document
    }

    /// Reads a client's parameters. The error is one of iperf3's numbers.
    pub(super) fn read(document: &Value) -> Result<Parameters, u32> {
        let number = |name: &str| document[name].as_u64().unwrap_or(0);
        let is = |name: &str| document[name].as_bool().unwrap_or(false) || number(name) > 0;
        let reverse = is("reverse");
        // A limit of the sending rate concerns the server only if it sends.
        let needs_more = !is("tcp") || is("udp") || is("sctp") || is("bidirectional") || is("authtoken");
        if needs_more || document.get("authtoken").is_some() || (reverse && number("bandwidth") > 0) {
            return Err(NOT_IMPLEMENTED);
        }
        let streams = usize::try_from(number("parallel").max(1)).unwrap_or(usize::MAX);
        if streams > STREAMS {
            return Err(TOO_MANY_STREAMS);
        }
        let block = usize::try_from(number("len")).unwrap_or(MOST_BLOCK).min(MOST_BLOCK);
        let seconds = |name| u32::try_from(number(name)).unwrap_or(u32::MAX).min(86_400);
        Ok(Parameters {
            seconds: seconds("time"),
            omit: seconds("omit").min(600),
            streams,
            reverse,
            block: if block == 0 { BLOCK } else { block },
        })
    }
}

/// iperf3's number of the stream at this place: it leaves 2 out.
pub(super) fn id(place: usize) -> usize {
    if place == 0 { 1 } else { place + 2 }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Results {
    /// Bytes of each stream, by place.
    pub(super) bytes: Vec<u64>,
    pub(super) seconds: f64,
    /// Per cent of one processor: in all, in the program, in the system.
    pub(super) processor: [f64; 3],
}

impl Results {
    pub(super) fn document(&self) -> Value {
        let stream = |(place, bytes): (usize, &u64)| {
            json!({
                "id": id(place), "bytes": bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0,
                "start_time": 0, "end_time": self.seconds,
            })
        };
        let streams: Vec<Value> = self.bytes.iter().enumerate().map(stream).collect();
        let [total, user, system] = self.processor;
        json!({
            "cpu_util_total": total, "cpu_util_user": user, "cpu_util_system": system, "sender_has_retransmits": 0,
            "streams": streams,
        })
    }

    pub(super) fn read(document: &Value, streams: usize) -> io::Result<Results> {
        let found = document["streams"].as_array().ok_or_else(|| damaged("the results have no streams"))?;
        let mut results = Results { bytes: vec![0; streams], ..Results::default() };
        for place in 0..streams {
            let stream = found.iter().find(|one| one["id"].as_u64() == Some(id(place) as u64));
            let stream = stream.ok_or_else(|| damaged(format!("the results lack stream {}", id(place))))?;
            results.bytes[place] = stream["bytes"].as_u64().ok_or_else(|| damaged("a stream has no bytes"))?;
            results.seconds = results.seconds.max(stream["end_time"].as_f64().unwrap_or(0.0));
        }
        let cpu = |name: &str| document[name].as_f64().unwrap_or(0.0);
        results.processor = [cpu("cpu_util_total"), cpu("cpu_util_user"), cpu("cpu_util_system")];
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_or_refused() {
        let usual = Parameters { seconds: 10, omit: 0, streams: 2, reverse: true, block: BLOCK };
        assert_eq!(Parameters::read(&usual.document()), Ok(usual.clone()));
        let forward = Parameters { reverse: false, ..usual.clone() };
        assert_eq!(Parameters::read(&forward.document()), Ok(forward));
        for (document, expected) in [
            (json!({ "udp": true }), NOT_IMPLEMENTED),
            (json!({}), NOT_IMPLEMENTED),
            (json!([]), NOT_IMPLEMENTED),
            (json!({ "tcp": true, "bidirectional": 1 }), NOT_IMPLEMENTED),
            (json!({ "tcp": true, "reverse": 1, "bandwidth": 1000 }), NOT_IMPLEMENTED),
            (json!({ "tcp": true, "authtoken": "x" }), NOT_IMPLEMENTED),
            (json!({ "tcp": true, "parallel": 129 }), TOO_MANY_STREAMS),
            (json!({ "tcp": true, "parallel": u64::MAX }), TOO_MANY_STREAMS),
        ] {
            assert_eq!(Parameters::read(&document), Err(expected), "{document}");
        }
        let odd = json!({ "tcp": true, "parallel": -1, "len": u64::MAX, "time": "x", "omit": 1e300 });
        let expected = Parameters { seconds: 0, omit: 0, streams: 1, reverse: false, block: MOST_BLOCK };
        assert_eq!(Parameters::read(&odd), Ok(expected));
    }

    #[test]
    fn results_are_read_or_damaged() {
        let results = Results { bytes: vec![1, 2, 3], seconds: 1.5, processor: [3.0, 1.0, 2.0] };
        assert_eq!(Results::read(&results.document(), 3).unwrap(), results);
        assert!(Results::read(&results.document(), 4).is_err());
        for document in [json!(null), json!({ "streams": 5 }), json!({ "streams": [{ "id": 1, "bytes": -1 }] })] {
            assert!(Results::read(&document, 1).is_err(), "{document}");
        }
    }

    #[test]
    fn states_are_signed_bytes() {
        for state in STATES {
            assert_eq!(State::of(state as i8 as u8).unwrap(), state);
        }
        assert_eq!(State::of(0xff).unwrap(), State::AccessDenied);
        assert!(State::of(3).is_err() && State::of(0x80).is_err());
    }
}
