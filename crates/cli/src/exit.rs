//! How a command ends: the one rule for exit status, and the one place where errors are told.
//!
//! | status | means |
//! |---|---|
//! | 0 | done: also with warnings, with a record that is cut at the end of a file, after Ctrl-C, or when standard output closed |
//! | 1 | input, output or the system failed: what the command names is absent, refused, full or damaged |
//! | 2 | the request or the command line is wrong: it has to be written otherwise |
//!
//! A command returns an [`Outcome`]; [`status`] is the only function that turns one into a number.

use std::io;
use std::process::ExitCode;
use streamline::Error;
use streamline::running::protocol::Answer;

/// What a command comes to.
pub(crate) type Outcome = Result<(), Trouble>;

/// Why a command did not do what it was asked to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The request or the command line is wrong: what is wrong with it.
    Wrong(String),
    /// Input, output or the system failed: what failed, and what would help.
    Failed(String),
    /// As `Wrong`, and the message was printed.
    ToldWrong,
    /// As `Failed`, and the message was printed.
    ToldFailed,
}

impl Trouble {
    /// The same, beginning with what it is about.
    pub(crate) fn about(self, what: &str) -> Trouble {
        match self {
            Trouble::Wrong(text) => Trouble::Wrong(format!("{what}: {text}")),
            Trouble::Failed(text) => Trouble::Failed(format!("{what}: {text}")),
            told => told,
        }
    }

    /// Prints the message, unless that was done.
    pub(crate) fn told(self) -> Trouble {
        match self {
            Trouble::Wrong(text) => {
                tell!("error: {text}");
                Trouble::ToldWrong
            }
            Trouble::Failed(text) => {
                tell!("error: {text}");
                Trouble::ToldFailed
            }
            told => told,
        }
    }

    /// The same with a line that says what to do.
    pub(crate) fn with_help(self, help: &str) -> Trouble {
        let more = |text: String| format!("{text}\n   = help: {help}");
        match self {
            Trouble::Wrong(text) => Trouble::Wrong(more(text)),
            Trouble::Failed(text) => Trouble::Failed(more(text)),
            told => told,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::Request(_) | Error::Input(_) => Trouble::Wrong(error.to_string()),
            Error::System(text) => Trouble::Failed(text),
        }
    }
}

impl From<capture::Trouble> for Trouble {
    fn from(trouble: capture::Trouble) -> Trouble {
        use capture::writer::TroubleKind;
        match trouble.kind {
            TroubleKind::Wish => Trouble::Wrong(trouble.text),
            TroubleKind::Absent
            | TroubleKind::Denied
            | TroubleKind::Cannot
            | TroubleKind::System
            | TroubleKind::Full => Trouble::Failed(trouble.text),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Failed(error.to_string())
    }
}

/// What a running request answered, other than what it was asked for.
impl From<Answer> for Trouble {
    fn from(answer: Answer) -> Trouble {
        match answer {
            Answer::Wrong(text) => Trouble::Wrong(text),
            Answer::Failed(text) => Trouble::Failed(text),
            Answer::Edges(..) | Answer::Ring(_) | Answer::Replaced | Answer::Stopping => {
                Trouble::Failed("it answers something else than was asked".into())
            }
        }
    }
}

/// Tells what went wrong, and gives the status that a shell sees.
pub(crate) fn status(outcome: Outcome) -> ExitCode {
    ExitCode::from(number(&outcome.map_err(Trouble::told)))
}

fn number(outcome: &Outcome) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(Trouble::Failed(_) | Trouble::ToldFailed) => 1,
        Err(Trouble::Wrong(_) | Trouble::ToldWrong) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::writer::TroubleKind;
    use streamline::language::{Diagnostic, Span};

    /// Every variant of every error that a command can end with.
    #[test]
    fn each_error_has_its_status() {
        let text = || "why".to_string();
        let capture = |kind| capture::Trouble::new(kind, "why").into();
        let rows: [(Trouble, u8); 18] = [
            (Trouble::Wrong(text()), 2),
            (Trouble::Failed(text()), 1),
            (Trouble::ToldWrong, 2),
            (Trouble::ToldFailed, 1),
            (Error::Request(Diagnostic::new("why", Span::NONE)).into(), 2),
            (Error::Input(text()).into(), 2),
            (Error::System(text()).into(), 1),
            (capture(TroubleKind::Wish), 2),
            (capture(TroubleKind::Absent), 1),
            (capture(TroubleKind::Denied), 1),
            (capture(TroubleKind::Cannot), 1),
            (capture(TroubleKind::System), 1),
            (capture(TroubleKind::Full), 1),
            (io::Error::from(io::ErrorKind::NotFound).into(), 1),
            (Answer::Wrong(text()).into(), 2),
            (Answer::Failed(text()).into(), 1),
            (Answer::Replaced.into(), 1),
            (Answer::Stopping.into(), 1),
        ];
        for (trouble, expected) in rows {
            let (told, shown) = (format!("{trouble:?}"), number(&Err(trouble)));
            assert_eq!(shown, expected, "{told}");
        }
        assert_eq!(number(&Ok(())), 0);
    }

    #[test]
    fn what_is_said_besides_keeps_whose_fault_it_is() {
        let trouble = || Trouble::Failed("why".into());
        assert_eq!(trouble().about("x"), Trouble::Failed("x: why".into()));
        assert_eq!(trouble().with_help("do y"), Trouble::Failed("why\n   = help: do y".into()));
        for told in [Trouble::ToldWrong, Trouble::ToldFailed] {
            let number = number(&Err(told));
            assert!(number == 1 || number == 2);
        }
        assert_eq!(Trouble::ToldWrong.about("x").with_help("y"), Trouble::ToldWrong);
    }
}
