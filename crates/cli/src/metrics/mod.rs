//! Counters for Prometheus and other programs that scrape: `--metrics` of `run` and `daemon`.
//!
//! - [`address`] — where it listens, and who may reach that.
//! - [`server`] — a small server of HTTP: one page, everything limited.
//! - [`text`] — the text format, OpenMetrics.
//! - [`of_run`], [`of_daemon`] — the counters of a request, and of the daemon.

pub(crate) mod address;
pub(crate) mod of_daemon;
pub(crate) mod of_run;
mod server;
mod text;

use crate::exit::CommandError;
use address::{Address, Listener};

/// Where the counters are served.
#[derive(clap::Args)]
pub(crate) struct MetricsArgs {
    /// Serve the counters at /metrics, as OpenMetrics: ADDRESS:PORT of this host (127.0.0.1:9177), or the path of a
    /// Unix socket
    #[arg(long, value_name = "ADDR")]
    metrics: Option<Address>,

    /// With --metrics: any address, so that other hosts may read the counters, and the requests in them
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
}

impl MetricsArgs {
    /// Listens, if it is wanted. Nobody is answered yet.
    pub(crate) fn listen(&self) -> Result<Option<Listener>, CommandError> {
        self.metrics.as_ref().map(|address| address.listen(self.metrics_public)).transpose()
    }
}
