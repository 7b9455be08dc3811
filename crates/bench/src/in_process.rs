//! Runs requests in this process, timed from the text to the end of the last filter. So a comparison with a loop by
//! hand includes no program start.

use crate::process::{Cost, Stopwatch};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use streamline::{Output, Report, Session, StopFlag};

/// A request that ran.
#[derive(Debug)]
pub struct Ran {
    /// Its cost.
    pub cost: Cost,
    /// Its output on standard output.
    pub stdout: Vec<u8>,
    /// Its report.
    pub report: Report,
}

/// Prepares a request and runs it to its end.
pub fn run(request: &str) -> Result<Ran, String> {
    let kept = Kept::default();
    let session = Session::with_output(Output::new(Box::new(kept.clone()), false));
    let watch = Stopwatch::start_here()?;
    let job = session.prepare(request, &Default::default()).map_err(|error| error.to_string())?;
    let finished = job.run(&StopFlag::new(), &mut |_| {}).map_err(|error| error.to_string())?;
    let cost = watch.stop()?;
    finished.report.check()?;
    let stdout = kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Ran { cost, stdout, report: finished.report })
}

#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
