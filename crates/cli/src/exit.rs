//! How a command ends: the one rule for exit status, and the one place that prints errors.
//!
//! | status | means |
//! |---|---|
//! | 0 | done: also with warnings, with a record that is cut at the end of a file, after Ctrl-C, or when standard output closed |
//! | 1 | input, output or the system failed: a file or device that the command names is absent, refused, full or damaged |
//! | 2 | the request or the command line is wrong, and has to be rewritten |
//!
//! A command returns an [`Outcome`]; [`status`] is the only function that turns one into a number.

use std::io;
use std::process::ExitCode;
use streamline::Error;
use streamline::running::protocol::Answer;

pub(crate) type Outcome = Result<(), CommandError>;

/// Why a command did not do what it was asked to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandError {
    /// The request or the command line is wrong. Says what is wrong.
    Wrong(String),
    /// Input, output or the system failed. Says what failed, and what would help.
    Failed(String),
    /// As `Wrong`, with the message already printed.
    ToldWrong,
    /// As `Failed`, with the message already printed.
    ToldFailed,
}

impl CommandError {
    /// The same error, with its subject in front of the message.
    pub(crate) fn about(self, what: &str) -> CommandError {
        match self {
            CommandError::Wrong(text) => CommandError::Wrong(format!("{what}: {text}")),
            CommandError::Failed(text) => CommandError::Failed(format!("{what}: {text}")),
            told => told,
        }
    }

    /// Prints the message, if it was not printed yet.
    pub(crate) fn told(self) -> CommandError {
        match self {
            CommandError::Wrong(text) => {
                tell!("error: {text}");
                CommandError::ToldWrong
            }
            CommandError::Failed(text) => {
                tell!("error: {text}");
                CommandError::ToldFailed
            }
            told => told,
        }
    }

    /// Adds a line that says what to do.
    pub(crate) fn with_help(self, help: &str) -> CommandError {
        let more = |text: String| format!("{text}\n   = help: {help}");
        match self {
            CommandError::Wrong(text) => CommandError::Wrong(more(text)),
            CommandError::Failed(text) => CommandError::Failed(more(text)),
            told => told,
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        match error {
            Error::Request(_) | Error::Input(_) => CommandError::Wrong(error.to_string()),
            Error::System(text) => CommandError::Failed(text),
        }
    }
}

impl From<capture::CaptureError> for CommandError {
    fn from(error: capture::CaptureError) -> CommandError {
        use capture::CaptureErrorKind;
        match error.kind {
            CaptureErrorKind::Request => CommandError::Wrong(error.text),
            CaptureErrorKind::Absent
            | CaptureErrorKind::Denied
            | CaptureErrorKind::Cannot
            | CaptureErrorKind::System
            | CaptureErrorKind::Full => CommandError::Failed(error.text),
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> CommandError {
        CommandError::Failed(error.to_string())
    }
}

/// The error for an unexpected answer of a running request.
impl From<Answer> for CommandError {
    fn from(answer: Answer) -> CommandError {
        match answer {
            Answer::Wrong(text) => CommandError::Wrong(text),
            Answer::Failed(text) => CommandError::Failed(text),
            Answer::Edges(..) | Answer::Ring(_) | Answer::Replaced | Answer::Stopping => {
                CommandError::Failed("it answers something else than was asked".into())
            }
        }
    }
}

/// Prints the error, if there is one, and returns the status for the shell.
pub(crate) fn status(outcome: Outcome) -> ExitCode {
    ExitCode::from(number(&outcome.map_err(CommandError::told)))
}

fn number(outcome: &Outcome) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(CommandError::Failed(_) | CommandError::ToldFailed) => 1,
        Err(CommandError::Wrong(_) | CommandError::ToldWrong) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::CaptureErrorKind;
    use streamline::language::{Diagnostic, Span};

    #[test]
    fn each_error_has_its_status() {
        let text = || "why".to_string();
        let capture = |kind| capture::CaptureError::new(kind, "why").into();
        let rows: [(CommandError, u8); 18] = [
            (CommandError::Wrong(text()), 2),
            (CommandError::Failed(text()), 1),
            (CommandError::ToldWrong, 2),
            (CommandError::ToldFailed, 1),
            (Error::Request(Diagnostic::new("why", Span::NONE)).into(), 2),
            (Error::Input(text()).into(), 2),
            (Error::System(text()).into(), 1),
            (capture(CaptureErrorKind::Request), 2),
            (capture(CaptureErrorKind::Absent), 1),
            (capture(CaptureErrorKind::Denied), 1),
            (capture(CaptureErrorKind::Cannot), 1),
            (capture(CaptureErrorKind::System), 1),
            (capture(CaptureErrorKind::Full), 1),
            (io::Error::from(io::ErrorKind::NotFound).into(), 1),
            (Answer::Wrong(text()).into(), 2),
            (Answer::Failed(text()).into(), 1),
            (Answer::Replaced.into(), 1),
            (Answer::Stopping.into(), 1),
        ];
        for (error, expected) in rows {
            let (told, shown) = (format!("{error:?}"), number(&Err(error)));
            assert_eq!(shown, expected, "{told}");
        }
        assert_eq!(number(&Ok(())), 0);
    }

    #[test]
    fn what_is_said_besides_keeps_whose_fault_it_is() {
        let error = || CommandError::Failed("why".into());
        assert_eq!(error().about("x"), CommandError::Failed("x: why".into()));
        assert_eq!(error().with_help("do y"), CommandError::Failed("why\n   = help: do y".into()));
        for told in [CommandError::ToldWrong, CommandError::ToldFailed] {
            let number = number(&Err(told));
            assert!(number == 1 || number == 2);
        }
        assert_eq!(CommandError::ToldWrong.about("x").with_help("y"), CommandError::ToldWrong);
    }
}
