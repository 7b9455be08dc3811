//! Where a request's text comes from (the command line, a file, standard input), and how its errors are shown.

use crate::exit::CommandError;
use crate::hints;
use clap::Args;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use streamline::Error;
use streamline::language::FilterCall;

/// The arguments that give a command its request.
#[derive(Args)]
pub(crate) struct RequestArgs {
    /// The request, in single quotes: 'pcap trace.pcap | http | files dir=out'
    #[arg(required_unless_present = "file", value_hint = clap::ValueHint::CommandString)]
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

    /// Capture this device where the request begins without a source, as `ethernet DEVICE`
    #[arg(short = 'i', long = "interface", value_name = "DEVICE")]
    interface: Option<String>,
}

impl SourceArgs {
    /// The source that they name. An error if it needs the standard input from which the request is read.
    pub(crate) fn source(&self, request: &RequestArgs) -> Result<Option<FilterCall>, CommandError> {
        if self.read.iter().any(|file| file == "-") && request.file.as_ref().is_some_and(|file| file.as_os_str() == "-")
        {
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

impl RequestArgs {
    pub(crate) fn read(&self) -> Result<RequestText, CommandError> {
        let variables = self.variables.iter().cloned().collect();
        let Some(file) = &self.file else {
            let source = self.request.clone().unwrap_or_default();
            if !self.more.is_empty() {
                return Err(hints::several_words(&[&[source], &self.more[..]].concat()));
            }
            return Ok(RequestText { source, name: COMMAND_LINE.to_string(), variables });
        };
        let (name, read) = if file.as_os_str() == "-" {
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
