//! The client of a test: opens the streams, ends the test, and exchanges results with the server.

use super::super::tcp::Stream;
use super::data::Data;
use super::protocol::{Control, Parameters, Results, State, cookie};
use base::atomic::StopFlag;
use std::io;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) parameters: Parameters,
    pub(super) here: Results,
    pub(super) there: Results,
}

/// How often progress is reported and signals are checked.
const LOOK: Duration = Duration::from_millis(200);

/// How long the client keeps reading the streams of a sending server until its results come.
const DRAIN: Duration = Duration::from_secs(30);

/// Runs a test. `connect` opens a connection to the server. `look` regularly gets the time and the bytes of all streams.
pub(super) fn run<S: Stream>(
    connect: &dyn Fn() -> io::Result<S>,
    parameters: &Parameters,
    stop: &StopFlag,
    look: &mut dyn FnMut(Duration, u64),
) -> io::Result<Measured> {
    let cookie = cookie()?;
    let open = || {
        let mut stream = connect()?;
        stream.write_all(&cookie)?;
        io::Result::Ok(stream)
    };
    let mut control = Control(open()?);
    control.0.set_nodelay(true)?;
    expect(&mut control, State::ParameterExchange)?;
    control.send_document(&parameters.document())?;
    expect(&mut control, State::CreateStreams)?;
    let streams = (0..parameters.streams).map(|_| open()).collect::<io::Result<Vec<S>>>()?;
    expect(&mut control, State::TestStart)?;
    expect(&mut control, State::TestRunning)?;
    let data = Data::start(streams, parameters, !parameters.reverse)?;
    let duration = Duration::from_secs(parameters.seconds.into());
    while data.elapsed() < duration && !stop.is_set() {
        let left = duration.saturating_sub(data.elapsed()).clamp(Duration::from_millis(1), LOOK);
        if let Some(state) = control.poll(left)? {
            return Err(unexpected(&mut control, state));
        }
        look(data.elapsed(), data.total());
        if data.is_over() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server closed the streams"));
        }
    }
    let here = data.results();
    control.send(State::TestEnd)?;
    // A sender stops here. A server that sends may still have data in flight and be blocked: the client reads on until
    // the server's results have come.
    let mut reading = None;
    let streams = if parameters.reverse {
        reading = Some(data);
        Vec::new()
    } else {
        data.stop()
    };
    let began = Instant::now();
    loop {
        match control.poll(LOOK)? {
            Some(State::ExchangeResults) => break,
            // The server sent this state before it knew of the end.
            Some(State::TestStart | State::TestRunning) => {}
            Some(state) => return Err(unexpected(&mut control, state)),
            None if began.elapsed() > DRAIN => return Err(io::ErrorKind::TimedOut.into()),
            None => {}
        }
    }
    control.send_document(&here.document())?;
    let there = Results::read(&control.document()?, parameters.streams)?;
    expect(&mut control, State::DisplayResults)?;
    control.send(State::Done)?;
    drop((reading.map(Data::stop), streams));
    Ok(Measured { parameters: parameters.clone(), here, there })
}

fn expect<S: Stream>(control: &mut Control<S>, expected: State) -> io::Result<()> {
    match control.state()? {
        state if state == expected => Ok(()),
        state => Err(unexpected(control, state)),
    }
}

fn unexpected<S: Stream>(control: &mut Control<S>, state: State) -> io::Error {
    let (kind, text) = match state {
        State::AccessDenied => (io::ErrorKind::ResourceBusy, "the server is busy with another test".to_string()),
        State::ServerTerminate => (io::ErrorKind::ConnectionAborted, "the server was ended".to_string()),
        State::ServerError => match control.refusal() {
            Ok((error, 0)) => (io::ErrorKind::Other, format!("the server refuses: error {error} of iperf3")),
            Ok((error, errno)) => {
                let why = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
                (io::ErrorKind::Other, format!("the server refuses: error {error} of iperf3, {why}"))
            }
            Err(_) => (io::ErrorKind::Other, "the server refuses, and does not say why".to_string()),
        },
        state => (io::ErrorKind::InvalidData, format!("the server is in another state than expected: {state:?}")),
    };
    io::Error::new(kind, text)
}
