//! Where a request's text comes from (the command line, a file, standard input), and how its errors are shown.

use crate::Exit;
use clap::Args;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use streamline::Error;

/// The arguments by which every command is given a request.
#[derive(Args)]
pub(crate) struct RequestArgs {
    /// The request, in single quotes: 'pcap trace.pcap | http | files dir=out'
    #[arg(required_unless_present = "file")]
    request: Option<String>,

    /// Read the request from a file; - is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "request")]
    file: Option<PathBuf>,

    /// Fill $NAME in the request with VALUE
    #[arg(short = 'D', value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
            Ok((name.to_string(), value.to_string()))
        }
        _ => Err("expected NAME=VALUE".to_string()),
    }
}

/// What a request on the command line is called.
const COMMAND_LINE: &str = "request";

/// A request's text and what is needed to point into it.
pub(crate) struct RequestText {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) variables: BTreeMap<String, String>,
}

impl RequestArgs {
    /// Gets the text; a file that cannot be read is told to people.
    pub(crate) fn read(&self) -> Result<RequestText, Exit> {
        let variables = self.variables.iter().cloned().collect();
        let Some(file) = &self.file else {
            let source = self.request.clone().unwrap_or_default();
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
            Err(error) => {
                tell!("error: cannot read {name}: {error}");
                Err(Exit::Failed)
            }
        }
    }
}

impl RequestText {
    /// Tells people what went wrong and gives the exit status that goes with it.
    pub(crate) fn tell(&self, error: &Error) -> Exit {
        match error {
            Error::Request(diagnostic) => {
                tell_part!("{}", diagnostic.render(&self.source, &self.name));
                if self.name == COMMAND_LINE && std::path::Path::new(self.source.trim()).is_file() {
                    tell!("   = help: to run the request in this file: -f {}", self.source.trim());
                }
                Exit::Wrong
            }
            Error::Input(text) => {
                tell!("error: {text}");
                Exit::Wrong
            }
            Error::System(text) => {
                tell!("error: {text}");
                Exit::Failed
            }
        }
    }
}
