//! `streamline net get`: an HTTP client. This file has the command and its requests; `url` has addresses, `output` has
//! the destination of the bytes.

mod output;
#[cfg(test)]
mod tests;
mod url;

use super::http::range::bounds;
use super::http::{Body, Framing, HEAD_BYTES, NoHead, Patience, Response, Wire};
use super::tcp::{self, FlowArgs, Stream, is_timeout};
use crate::exit::{CommandError, Outcome};
use crate::progress::size;
use crate::signals::{self, Finishing};
use crate::terminal;
use base::atomic::StopFlag;
use output::Output;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use url::Url;

/// Get a file by HTTP
///
/// Writes it to standard output, or to FILE, which has the name FILE.part until it is complete. Follows redirects, at most 10.
/// Answers other than success are errors.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to get: http://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    url: String,

    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only these bytes, from 0 on: 100-199, 100- or -100 (the last). With -o, bytes from N on go behind the N of FILE.part
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    range: Option<String>,

    #[command(flatten)]
    tcp: FlowArgs,
}

const AFTER_HELP: &str = "\
Examples:
  streamline net get http://10.0.0.2/a.txt
  streamline net get http://example.org:8080/big -o big
  streamline net get http://example.org:8080/big -o big --range 1048576-       goes on behind 1 MiB of big.part";

const REDIRECTS: usize = 10;

/// The most 1xx answers before the final one.
const INTERIM: usize = 16;

const SILENCE: Duration = Duration::from_secs(60);

const SHOW: Duration = Duration::from_millis(200);

/// How long a read waits before it checks for a signal to stop.
const LOOK: Duration = Duration::from_millis(500);

const PIECE: usize = 256 << 10;

pub(crate) fn run(args: &Args) -> Outcome {
    let stop = StopFlag::new();
    signals::listen(&stop, Finishing::Untold)?;
    let url = Url::parse(&args.url).map_err(CommandError::Wrong)?;
    let range = args.range.as_deref().map(range).transpose()?;
    let dialer = tcp::Dialer::new(&args.tcp, "streamline net get")?;
    let mut connect = |url: &Url| connect(&dialer, url);
    get(&mut connect, url, range, args.output.as_deref(), &stop)
}

/// First and last byte of a range. `None` for an end that the range leaves out.
type Range = (Option<u64>, Option<u64>);

fn range(text: &str) -> Result<Range, CommandError> {
    let range = bounds(text);
    range
        .ok_or_else(|| CommandError::Wrong(format!("--range: `{text}` is no range of bytes, as 100-199, 100- or -100")))
}

fn connect(dialer: &tcp::Dialer, url: &Url) -> Result<impl Stream + use<>, CommandError> {
    let (stream, _) = dialer.connect_first(&tcp::resolve(&url.host, url.port)?)?;
    Ok(stream)
}

/// Follows redirects, and writes the final answer.
fn get<S: Stream>(
    connect: &mut dyn FnMut(&Url) -> Result<S, CommandError>,
    mut url: Url,
    range: Option<Range>,
    file: Option<&std::path::Path>,
    stop: &StopFlag,
) -> Outcome {
    let mut wire = None;
    for _ in 0..=REDIRECTS {
        let failed = |text: String| CommandError::Failed(format!("{url}: {text}"));
        let wire = wire.insert(Wire::new(connect(&url)?));
        let response = ask(wire, &url, range, stop).map_err(failed)?;
        let location =
            response.fields.one("location").filter(|_| matches!(response.status, 301 | 302 | 303 | 307 | 308));
        if let Some(location) = location {
            let next = url.join(location).map_err(|text| failed(format!("it leads to {location}: {text}")))?;
            url = next;
            continue;
        }
        let first = range.and_then(|(first, _)| first).unwrap_or(0);
        check(&response, range).map_err(failed)?;
        let mut output = match file {
            Some(path) => Output::file(path, first)?,
            None => Output::stdout(),
        };
        return match read(wire, &response, &mut output, stop) {
            Ok(Read::All) => output.complete(),
            Ok(Read::Stopped) => {
                if let Some(text) = output.abandon() {
                    tell!("note: {text}");
                }
                Ok(())
            }
            Err(error) => {
                let error = error.about(&url.to_string());
                Err(output.abandon().into_iter().fold(error, |error, text| error.with_help(&text)))
            }
        };
    }
    Err(CommandError::Failed(format!("{url}: more than {REDIRECTS} redirects")))
}

fn ask<S: Stream>(wire: &mut Wire<S>, url: &Url, range: Option<Range>, stop: &StopFlag) -> Result<Response, String> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let range = range.map(|(first, last)| format!("Range: bytes={}-{}\r\n", number(first), number(last)));
    let (target, authority, version) = (&url.target, url.authority(), env!("CARGO_PKG_VERSION"));
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: streamline/{version}\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\n{}Connection: close\r\n\r\n",
        range.unwrap_or_default()
    );
    let text = |error: io::Error| error.to_string();
    wire.stream.set_write_timeout(Some(SILENCE)).map_err(text)?;
    wire.stream.write_all(request.as_bytes()).and_then(|()| wire.stream.flush()).map_err(text)?;
    let patience = Patience { idle: SILENCE, head: SILENCE, goes_on: &|| !stop.is_set() };
    for _ in 0..INTERIM {
        let head = wire.head(&patience).map_err(|why| match why {
            NoHead::End => "the server closed the connection or does not answer".to_string(),
            NoHead::Slow => "the server does not go on with its answer".to_string(),
            NoHead::Long => format!("the head of the answer has more than {HEAD_BYTES} bytes"),
            NoHead::Stream(error) => error.to_string(),
        })?;
        let response = Response::parse(&head).map_err(|error| format!("the answer is no HTTP/1.1: {error}"))?;
        if response.status >= 200 {
            return Ok(response);
        }
    }
    Err("the server does not come to its answer".into())
}

fn check(response: &Response, range: Option<Range>) -> Result<(), String> {
    let said = format!("the server answers {} {}", response.status, response.reason);
    match (response.status, range) {
        (206, Some((first, _))) => {
            let starts = response.fields.one("content-range").and_then(|text| text.strip_prefix("bytes "));
            let starts = starts.and_then(|text| text.split('-').next()).and_then(|text| text.parse::<u64>().ok());
            match (first, starts) {
                (_, None) => Err(format!("{said}, and does not say which bytes")),
                (Some(first), Some(starts)) if first != starts => {
                    Err(format!("{said}, with other bytes than asked for"))
                }
                _ => Ok(()),
            }
        }
        (200..=299, Some(_)) => Err(format!("{said}: it sends the whole file and no range")),
        (206, None) => Err(format!("{said}: a part, where the whole was asked for")),
        (200..=299, None) => Ok(()),
        _ => Err(said),
    }
}

/// How the reading of a body ended without an error.
enum Read {
    All,
    /// By a signal, or because the reader of standard output closed it.
    Stopped,
}

fn read<S: Stream>(
    wire: &mut Wire<S>,
    response: &Response,
    output: &mut Output,
    stop: &StopFlag,
) -> Result<Read, CommandError> {
    let failed = |error: io::Error| CommandError::Failed(error.to_string());
    let framing = match response.fields.framing() {
        Ok(_) if matches!(response.status, 204 | 205) => Framing::Bytes(0),
        Ok(framing) => framing.unwrap_or(Framing::ToEnd),
        Err(_) => return Err(CommandError::Failed("the answer does not say where it ends".into())),
    };
    let all = if let Framing::Bytes(all) = framing { Some(all) } else { None };
    let mut progress = Progress::new(all, matches!(output, Output::Stdout { .. }));
    wire.stream.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let mut body = Body::new(wire, framing);
    let (mut piece, mut heard) = (vec![0; PIECE], Instant::now());
    let ended = loop {
        if stop.is_set() {
            break Ok(Read::Stopped);
        }
        match body.read(&mut piece) {
            Ok(0) => break Ok(Read::All),
            Ok(len) => {
                heard = Instant::now();
                match output.write(&piece[..len]) {
                    Ok(true) => progress.add(len as u64),
                    Ok(false) => break Ok(Read::Stopped),
                    Err(error) => break Err(error),
                }
            }
            Err(error) if is_timeout(&error) && heard.elapsed() < SILENCE => {}
            Err(error) if is_timeout(&error) => {
                break Err(CommandError::Failed(format!("the server is silent for {} s", SILENCE.as_secs())));
            }
            Err(error) => break Err(failed(error)),
        }
    };
    progress.end();
    ended
}

/// The line of progress on a terminal.
struct Progress {
    shows: bool,
    began: Instant,
    shown: Instant,
    read: u64,
    all: Option<u64>,
}

impl Progress {
    /// `beside`: the bytes go to standard output. If that is the same terminal, the line would stand among them.
    fn new(all: Option<u64>, beside: bool) -> Progress {
        let now = Instant::now();
        let shows = io::stderr().is_terminal() && !(beside && io::stdout().is_terminal());
        Progress { shows, began: now, shown: now, read: 0, all }
    }

    fn add(&mut self, len: u64) {
        self.read += len;
        if self.shows && self.shown.elapsed() >= SHOW {
            self.shown = Instant::now();
            let rate = (self.read as f64 / self.began.elapsed().as_secs_f64()) as u64;
            let (read, rate) = (size(self.read), size(rate));
            match self.all {
                Some(all) => terminal::show_line(&format!("{read} of {}, {rate}/s", size(all))),
                None => terminal::show_line(&format!("{read}, {rate}/s")),
            }
        }
    }

    fn end(&self) {
        if self.shows {
            terminal::clear_line();
        }
    }
}
