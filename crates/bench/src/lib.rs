//! Measures Streamline: against the tools that people use today, and against the barest code for the same work.
//!
//! - [`first_light`] — a comparison: cases with peers and goals. Start reading here.
//! - [`rings`] — queues and rings between threads and processes.
//! - [`capture`] — listeners on a device. [`stages`] — several workers, and forwarded frames.
//! - [`flows`] — flows of applications on an interface. [`inspection`] — questions and rules.
//! - [`case`] — the parts of a comparison; [`setting`] — what every case needs.
//! - [`measure`] — how two things are compared: interleaved blocks, ratios, intervals.
//! - [`process`], [`in_process`] — run programs, and requests in this process, and measure their cost.
//! - [`floors`], [`memory`], [`piped`] — work by hand, over memory, and with pipes between.
//! - [`packets`], [`captures`] — the captures for measurements; [`attack`] — one for tests.
//! - [`table`], [`machine`] — the output. [`random`] — numbers that are the same everywhere.

pub mod attack;
pub mod capture;
pub mod captures;
pub mod case;
pub mod first_light;
pub mod floors;
pub mod flows;
pub mod in_process;
pub mod inspection;
#[cfg(test)]
mod instructions;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod packets;
pub mod piped;
pub mod process;
pub mod random;
pub mod rings;
pub mod setting;
pub mod stages;
pub mod table;

/// Draws charts into a folder.
pub type Draw = fn(&std::path::Path) -> Result<(), String>;

/// Makes the document of a comparison from its table and the document before.
pub type Document = fn(&table::Table, &str) -> String;

/// Cases that are measured and printed together.
pub struct Comparison {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line for `bench list`.
    pub about: &'static str,
    /// Its cases in groups, in the order of the table.
    pub groups: &'static [&'static [case::Case]],
    /// Draws its charts into a folder. `None`: it has no charts.
    pub draw: Option<Draw>,
    /// Makes its document. `None`: the command writes none.
    pub document: Option<Document>,
}

/// All comparisons.
pub static COMPARISONS: &[Comparison] = &[
    Comparison {
        name: "first-light",
        about: "capture files in, counts, streams and HTTP bodies out, in one process",
        groups: &[first_light::CASES],
        draw: None,
        document: None,
    },
    Comparison {
        name: "rings",
        about: "what carries descriptors and bytes between threads and processes",
        groups: rings::GROUPS,
        draw: Some(rings::charts::draw),
        document: None,
    },
    Comparison {
        name: "capture",
        about: "taps on a device: unmodified programs through a shared ring, and on packet sockets of their own",
        groups: &[capture::CASES],
        draw: None,
        document: None,
    },
    Comparison {
        name: "stages",
        about: "requests on several workers, channels, frames generated and forwarded, time left for work",
        groups: stages::GROUPS,
        draw: None,
        document: None,
    },
    Comparison {
        name: "flows",
        about: "flows of applications on an interface, their slices and rates, against sockets of the kernel",
        groups: flows::GROUPS,
        draw: None,
        document: Some(flows::document::text),
    },
    Comparison {
        name: "inspection",
        about: "flows, records of packets, questions and rules over capture files",
        groups: &[inspection::CASES],
        draw: None,
        document: None,
    },
];
