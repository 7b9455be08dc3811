//! The server of tests: one test at a time. Each connection opens with a cookie. The cookie of the running test makes
//! it a stream of that test. Any other cookie begins a test, or the server refuses it as busy.

use super::super::tcp::{Listener, Stream};
use super::client::Measured;
use super::data::Data;
use super::protocol::{Control, Cookie, PATIENCE, Parameters, Results, State, read_exact};
use base::atomic::StopFlag;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections whose cookies have not come, or that are the control connection of a test.
const CONNECTIONS: usize = 64;

const LOOK: Duration = Duration::from_millis(200);

/// How long the streams of a test may stand still, and how long a test may exceed its time.
const STILL: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Reports tests to the command.
pub(super) trait Tell: Send + Sync + 'static {
    fn begun(&self, peer: SocketAddr, parameters: &Parameters);
    fn measured(&self, peer: SocketAddr, measured: &Measured);
    fn failed(&self, peer: SocketAddr, error: &io::Error);
}

/// The server: the state that its threads share.
pub(super) struct Server<S, T> {
    state: Mutex<Tests<S>>,
    changed: Condvar,
    stop: StopFlag,
    tell: T,
}

struct Tests<S> {
    connections: usize,
    running: Option<Test<S>>,
}

struct Test<S> {
    cookie: Cookie,
    /// Streams that have not come yet.
    missing: usize,
    /// Its streams, each with its place in the order of acceptance.
    streams: Vec<(u64, S)>,
    /// The measurement is over, and the client is about to close.
    ends: bool,
}

impl<S: Stream, T: Tell> Server<S, T> {
    pub(super) fn new(stop: StopFlag, tell: T) -> Arc<Server<S, T>> {
        let state = Mutex::new(Tests { connections: 0, running: None });
        Arc::new(Server { state, changed: Condvar::new(), stop, tell })
    }

    fn state(&self) -> MutexGuard<'_, Tests<S>> {
        // The state stays valid even if a thread panics: each change is complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until the end. A thread for each waits for its cookie.
    pub(super) fn accept(self: &Arc<Server<S, T>>, listener: &impl Listener<Stream = S>) {
        let mut told = None;
        for order in 0.. {
            let accepted = listener.accept();
            if self.stop.is_set() {
                return;
            }
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    let kind = error.kind();
                    if told.replace(kind) != Some(kind) {
                        tell!("warning: a connection was not accepted: {error}");
                    }
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let mut state = self.state();
            while state.connections >= CONNECTIONS {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.connections += 1;
            drop(state);
            let permit = Permit(Arc::clone(self));
            let work = move || {
                if let Err(error) = permit.0.meet(stream, order, peer) {
                    permit.0.tell.failed(peer, &error);
                }
            };
            if let Err(error) = std::thread::Builder::new().name("connection".into()).spawn(work) {
                tell!("warning: a connection was not served: {error}");
            }
        }
    }

    pub(super) fn finish(&self, patience: Duration) {
        self.stop.stop();
        let began = Instant::now();
        let mut state = self.state();
        while state.running.is_some() && began.elapsed() < patience {
            let left = patience.saturating_sub(began.elapsed());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads a connection's cookie, and runs the test or hands the stream over.
    fn meet(&self, mut stream: S, order: u64, peer: SocketAddr) -> io::Result<()> {
        let mut cookie = [0; 37];
        stream.set_write_timeout(Some(PATIENCE))?;
        // A connection without a cookie is from another program.
        read_exact(&mut stream, &mut cookie).map_err(|error| at("its cookie", &error))?;
        let mut state = self.state();
        // The client of the next test may be faster than the last byte of this one.
        while matches!(&state.running, Some(test) if test.ends) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &mut state.running {
            None => {
                state.running = Some(Test { cookie, missing: 0, streams: Vec::new(), ends: false });
                drop(state);
                let running = Running(self);
                self.test(&running, &mut Control(stream), peer)
            }
            Some(test) if test.cookie == cookie && test.missing > 0 => {
                test.missing -= 1;
                test.streams.push((order, stream));
                self.changed.notify_all();
                Ok(())
            }
            Some(_) => {
                drop(state);
                Control(stream).send(State::AccessDenied)
            }
        }
    }

    fn test(&self, running: &Running<'_, S, T>, control: &mut Control<S>, peer: SocketAddr) -> io::Result<()> {
        control.0.set_nodelay(true)?;
        control.send(State::ParameterExchange)?;
        let document = control.document().map_err(|error| at("its parameters", &error))?;
        let parameters = match Parameters::read(&document) {
            Ok(parameters) => parameters,
            Err(error) => {
                control.refuse(error)?;
                return Err(io::Error::new(io::ErrorKind::Unsupported, "a test with options that are not there"));
            }
        };
        self.tell.begun(peer, &parameters);
        running.wants(parameters.streams);
        control.send(State::CreateStreams)?;
        let streams = running.streams()?;
        control.send(State::TestStart)?;
        control.send(State::TestRunning)?;
        let mut data =
            Data::start(streams, &parameters, parameters.reverse).map_err(|error| at("its streams", &error))?;
        self.watch(&mut data, &parameters, control)?;
        let here = data.results();
        // The streams close first: a receiving iperf3 waits for the rest of a block, and for no other message meanwhile.
        drop(data.stop());
        control.send(State::ExchangeResults)?;
        let there = control.document().map_err(|error| at("its results", &error))?;
        let there = Results::read(&there, parameters.streams)?;
        control.send_document(&here.document())?;
        running.ends();
        control.send(State::DisplayResults)?;
        self.tell.measured(peer, &Measured { parameters, here, there });
        match control.state() {
            Ok(State::Done) => Ok(()),
            Ok(state) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the client ends with {state:?}"))),
            // The client has its results.
            Err(_) => Ok(()),
        }
    }

    fn watch(&self, data: &mut Data<S>, parameters: &Parameters, control: &mut Control<S>) -> io::Result<()> {
        let omit = Duration::from_secs(parameters.omit.into());
        let most = match parameters.seconds {
            0 => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()).saturating_add(omit).saturating_add(GRACE),
        };
        let (mut moved, mut moved_at) = (0, Instant::now());
        loop {
            let until_counted = omit.saturating_sub(data.elapsed());
            let wait = if data.has_omitted() || until_counted.is_zero() { LOOK } else { until_counted.min(LOOK) };
            match control.poll(wait).map_err(|error| at("its test", &error))? {
                Some(State::TestEnd) => return Ok(()),
                Some(State::ClientTerminate) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client was ended"));
                }
                Some(state) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the client sends {state:?}")));
                }
                None => {}
            }
            if !omit.is_zero() && !data.has_omitted() && data.elapsed() >= omit {
                data.omit_until_now();
            }
            if data.total() != moved {
                (moved, moved_at) = (data.total(), Instant::now());
            }
            if self.stop.is_set() {
                control.send(State::ServerTerminate)?;
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the server was ended"));
            }
            if moved_at.elapsed() > STILL || data.elapsed() > most {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not end the test"));
            }
        }
    }
}

fn at(step: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step}: {error}"))
}

/// Counts one of the permitted connections while it exists.
struct Permit<S: Stream, T: Tell>(Arc<Server<S, T>>);

impl<S: Stream, T: Tell> Drop for Permit<S, T> {
    fn drop(&mut self) {
        self.0.state().connections -= 1;
        self.0.changed.notify_all();
    }
}

struct Running<'a, S: Stream, T: Tell>(&'a Server<S, T>);

impl<S: Stream, T: Tell> Running<'_, S, T> {
    /// Accepts this number of streams from now on.
    fn wants(&self, streams: usize) {
        if let Some(test) = &mut self.0.state().running {
            test.missing = streams;
        }
    }

    /// Makes the next test wait for the end of this one, from now on.
    fn ends(&self) {
        if let Some(test) = &mut self.0.state().running {
            test.ends = true;
        }
    }

    /// Waits for all streams. Returns them in the order of acceptance, by which both sides number them.
    fn streams(&self) -> io::Result<Vec<S>> {
        let began = Instant::now();
        let mut state = self.0.state();
        loop {
            let Some(test) = &mut state.running else { return Ok(Vec::new()) };
            if test.missing == 0 {
                let mut streams = std::mem::take(&mut test.streams);
                streams.sort_by_key(|(order, _)| *order);
                return Ok(streams.into_iter().map(|(_, stream)| stream).collect());
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not open its streams"));
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<S: Stream, T: Tell> Drop for Running<'_, S, T> {
    fn drop(&mut self) {
        self.0.state().running = None;
        self.0.changed.notify_all();
    }
}
