//! Where a request's text comes from (the command line, a file, standard input), and how its errors are shown.

use crate::exit::CommandError;
use crate::hints;
use crate::place::PlaceArgs;
use crate::standard_input;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use streamline::language::FilterCall;
use streamline::{Error, Session};

/// The arguments that give a command its request.
#[derive(Args)]
pub(crate) struct RequestArgs {
    /// The request, in single quotes: 'pcap trace.pcap | http | files dir=out'
    #[arg(value_hint = clap::ValueHint::CommandString)]
    request: Option<String>,

    /// What a shell made of a request without quotes
    #[arg(hide = true)]
    more: Vec<String>,

    /// Read the request from a file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "request")]
    file: Option<PathBuf>,

    /// Fill $NAME in the request with VALUE
    #[arg(short = 'D', value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
}

/// The arguments that give a request its source, if it begins without one.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// Read this capture where the request begins without a source, as `pcap FILE`; - is standard input. May be given again
    #[arg(short = 'r', long = "read", value_name = "FILE", conflicts_with = "interface", value_hint = clap::ValueHint::FilePath)]
    read: Vec<String>,

    /// Capture this device where the request begins without a source, as `ethernet DEVICE`; `any`: all devices, 'eth*': those
    /// whose names match
    #[arg(short = 'i', long = "interface", value_name = "DEVICE")]
    interface: Option<String>,

    /// End after this number of packets: those that pass the selectors right behind the source
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl SourceArgs {
    /// A session that reads the source that they name, up to the count, and the request. Without a request it is that the
    /// packets are printed.
    pub(crate) fn session(
        &self,
        place: &PlaceArgs,
        request: &RequestArgs,
    ) -> Result<(Session, RequestText), CommandError> {
        let source = self.source(request)?;
        self.reading(source, place, request)
    }

    /// The same for a request that runs now. Where it names no source, standard input is one, if its first bytes are a
    /// capture.
    pub(crate) fn session_now(
        &self,
        place: &PlaceArgs,
        request: &RequestArgs,
    ) -> Result<(Session, RequestText), CommandError> {
        let named = self.source(request)?;
        if named.is_some() || request.is_on_standard_input() {
            return self.reading(named, place, request);
        }
        let text = request.read()?;
        let is_read = place.session().lacks_source(&text.source, &text.variables) && standard_input::is_capture();
        self.reading(is_read.then(|| FilterCall::new("pcap", ["-".to_string()])), place, request)
    }

    fn reading(
        &self,
        source: Option<FilterCall>,
        place: &PlaceArgs,
        request: &RequestArgs,
    ) -> Result<(Session, RequestText), CommandError> {
        if source.is_none() && request.is_missing() {
            return Err(no_request().with_help("or `-r FILE` alone, to look at its packets"));
        }
        Ok((place.session().reading(source).first(self.count), request.read()?))
    }

    /// The source that they name. An error if it needs the standard input from which the request is read.
    fn source(&self, request: &RequestArgs) -> Result<Option<FilterCall>, CommandError> {
        if self.read.iter().any(|file| file == "-") && request.is_on_standard_input() {
            let text = "the request and a capture cannot both be read from standard input";
            return Err(CommandError::Wrong(text.into()));
        }
        Ok(match &self.interface {
            Some(device) => Some(FilterCall::new("ethernet", [device.clone()])),
            None if self.read.is_empty() => None,
            None => Some(FilterCall::new("pcap", self.read.iter().cloned())),
        })
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
            Ok((name.to_string(), value.to_string()))
        }
        _ => Err("expected NAME=VALUE".to_string()),
    }
}

const COMMAND_LINE: &str = "request";

/// A request's text, with the data that errors need to point into it.
pub(crate) struct RequestText {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) variables: BTreeMap<String, String>,
}

fn no_request() -> CommandError {
    CommandError::Wrong("there is no request".into())
        .with_help("streamline run 'pcap trace.pcap | http | files dir=out'")
}

impl RequestArgs {
    /// Whether the command line has no request, not even an empty one.
    fn is_missing(&self) -> bool {
        self.request.is_none() && self.file.is_none()
    }

    fn is_on_standard_input(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.as_os_str() == "-")
    }

    /// The request's text. An error if there is none.
    pub(crate) fn required(&self) -> Result<RequestText, CommandError> {
        if self.is_missing() { Err(no_request()) } else { self.read() }
    }

    /// The request's text. To look at what its source gives, if there is none: on a terminal as columns.
    fn read(&self) -> Result<RequestText, CommandError> {
        let variables = self.variables.iter().cloned().collect();
        let Some(file) = &self.file else {
            let look = if std::io::stdout().is_terminal() { "packets" } else { "inspect" };
            let source = self.request.clone().unwrap_or_else(|| look.to_string());
            if !self.more.is_empty() {
                return Err(hints::several_words(&[&[source], &self.more[..]].concat()));
            }
            return Ok(RequestText { source, name: COMMAND_LINE.to_string(), variables });
        };
        let (name, read) = if self.is_on_standard_input() {
            let mut source = String::new();
            ("standard input".to_string(), std::io::stdin().read_to_string(&mut source).map(|_| source))
        } else {
            (base::terminal::name(file), std::fs::read_to_string(file))
        };
        match read {
            Ok(source) => Ok(RequestText { source, name, variables }),
            Err(error) => Err(CommandError::Failed(format!("cannot read {name}: {error}"))),
        }
    }
}

impl RequestText {
    pub(crate) fn tell(&self, error: Error) -> CommandError {
        match error {
            Error::Request(diagnostic) => {
                tell_part!("{}", hints::improved(diagnostic, &self.source).render(&self.source, &self.name));
                CommandError::ToldWrong
            }
            error => CommandError::from(error).told(),
        }
    }
}
