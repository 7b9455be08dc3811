//! What every case needs: the folder of captures, our program, and how much to measure.

use crate::captures::Store;
use crate::measure::Effort;
use crate::process::{Cost, Program, Stopwatch};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Given to every case.
pub struct Setting {
    /// How much to measure.
    pub effort: Effort,
    /// The captures.
    pub store: Store,
    /// The program `streamline`.
    pub streamline: PathBuf,
    /// This program, for stages of pipelines.
    pub bench: PathBuf,
    /// The folder for charts.
    pub figures: PathBuf,
    /// The folder for output: in memory, so that no disk is measured.
    scratch: TempDir,
}

impl Setting {
    /// Without `captures` they are beside the build's output; without a program, `streamline` is built beside this one.
    pub fn new(
        effort: Effort,
        captures: Option<&Path>,
        streamline: Option<&Path>,
        figures: Option<&Path>,
    ) -> Result<Setting, String> {
        let bench = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
        let built = bench.parent().ok_or("this program lies nowhere")?;
        let captures = captures.map_or_else(|| built.with_file_name("bench-captures"), Path::to_owned);
        let streamline = match streamline {
            Some(path) => path.to_owned(),
            None => build(built)?,
        };
        let memory = Path::new("/dev/shm");
        let scratch = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let scratch = scratch.map_err(|error| format!("no room for output: {error}"))?;
        // A quick run only shows whether everything works, so its figures are not kept.
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let figures = match figures {
            Some(folder) => folder.to_owned(),
            None if effort == Effort::Quick || !kept.is_dir() => captures.clone(),
            None => kept,
        };
        Ok(Setting { effort, store: Store::new(&captures)?, streamline, bench, figures, scratch })
    }

    /// Our program with a request.
    pub fn ours(&self, request: &str) -> Program {
        Program::new(&self.streamline).args(["run", "--quiet", "--stats", "none", request])
    }

    /// Whether our programs accept this request.
    pub fn accepts(&self, request: &str) -> bool {
        Program::new(&self.streamline).args(["check", request]).run().is_ok()
    }

    /// Writes a chart into the folder of figures.
    pub fn draw(&self, name: &str, chart: &chart::Chart<'_>) -> Result<(), String> {
        let path = self.figures.join(name);
        std::fs::write(&path, chart.svg()).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("  drew {}", path.display());
        Ok(())
    }

    /// How often to make a long measurement.
    pub fn rounds(&self) -> usize {
        if self.effort == Effort::Quick { 3 } else { 5 }
    }

    /// An empty folder for output, removed when it is dropped.
    pub fn output(&self) -> Result<TempDir, String> {
        tempfile::tempdir_in(self.scratch.path()).map_err(|error| format!("no room for output: {error}"))
    }

    /// The cost of a program that writes into a folder. `check` reads the folder afterwards, unmeasured.
    pub fn run_into(
        &self,
        program: impl FnOnce(&Path) -> Program,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Cost, String> {
        let folder = self.output()?;
        let out = folder.path().join("out");
        let cost = program(&out).run()?.cost;
        check(&out)?;
        Ok(cost)
    }

    /// The same for work in this process.
    pub fn do_into(
        &self,
        work: impl FnOnce(&Path) -> Result<(), String>,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Cost, String> {
        let folder = self.output()?;
        let watch = Stopwatch::start_here()?;
        work(folder.path())?;
        let cost = watch.stop()?;
        check(folder.path())?;
        Ok(cost)
    }
}

/// Builds `streamline`, and the library for programs under `net run`, in the folder of this program. Files that are up
/// to date stay.
fn build(built: &Path) -> Result<PathBuf, String> {
    let streamline = built.join("streamline");
    // `cargo run` sets this. Without it the program was started directly, and uses the files beside it.
    if let (Some(cargo), Some(target)) = (std::env::var_os("CARGO"), built.parent()) {
        let profile = if built.ends_with("release") { &["--release"][..] } else { &[] };
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "-p", "cli", "-p", "socket-shim"]).args(profile);
        // `cargo run` sets this, too: the program may have been started in another folder.
        if let Some(folder) = std::env::var_os("CARGO_MANIFEST_DIR") {
            command.current_dir(folder);
        }
        let status = command.arg("--target-dir").arg(target).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("building `streamline`: {status}")),
            Err(error) => return Err(format!("building `streamline`: {error}")),
        }
    }
    if streamline.is_file() {
        Ok(streamline)
    } else {
        Err(format!("{} is not there: cargo build --release -p cli", streamline.display()))
    }
}
