//! `cargo xtask picture`: what a terminal shows of a few commands, as the picture of README's first screen.

use crate::{Failure, Outcome, process};
use std::path::Path;

/// Where it goes, from the repository's folder.
const PICTURE: &str = "docs/terminal.svg";

/// The commands, in order.
const COMMANDS: [&str; 3] = [
    "streamline run -q -r captures/browse.pcap http",
    "streamline run -q -r captures/browse.pcap 'flows | by proto sum=flow.bytes_toclient'",
    "streamline run -r captures/web.pcap 'http | files dir=out'",
];

/// Columns of the terminal.
const COLUMNS: usize = 110;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Outcome {
    if let Some(argument) = arguments.first() {
        return Err(Failure::Usage(format!("`picture` takes no arguments; not `{argument}`")));
    }
    process::run(&mut process::cargo(root, &["build", "--quiet", "--package", "cli"]))?;
    let scratch = root.join("target/picture");
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", scratch.display()));
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch).map_err(failed)?;
    std::os::unix::fs::symlink(root.join("captures"), scratch.join("captures")).map_err(failed)?;
    let screen: String = COMMANDS.iter().map(|command| shown(root, &scratch, command)).collect::<Result<_, _>>()?;
    std::fs::write(root.join(PICTURE), anstyle_svg::Term::new().render_svg(screen.trim_end())).map_err(failed)?;
    println!("{PICTURE}");
    Ok(())
}

/// A prompt, the command, and what it prints to a terminal.
fn shown(root: &Path, folder: &Path, command: &str) -> Result<String, Failure> {
    let path = format!("{}:{}", root.join("target/debug").display(), std::env::var("PATH").unwrap_or_default());
    // script(1) gives it a terminal.
    let sized = format!("stty cols {COLUMNS} rows 40; {command}");
    let mut script = process::program(folder, "script", &["--quiet", "--return", "--command", &sized, "/dev/null"]);
    let said = process::output(script.env("PATH", path).env("TERM", "xterm-256color").env_remove("NO_COLOR"))?;
    Ok(format!("\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{}\n", said.replace('\r', "")))
}
