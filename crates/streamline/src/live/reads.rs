//! What a source reads of the devices.

use capture::{CaptureRequest, Partition};
use program::Program;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Packets(CaptureRequest, Option<Partition>, Given),
    /// Numbers of packets, from one reader for each entry.
    Counts(Vec<Counted>),
    /// A device that only this request has.
    Own {
        /// The device's name and the filters behind it, for people.
        label: String,
        /// It gives what any of these passes. `None`: everything.
        wanted: Option<Vec<Program>>,
    },
    /// Nothing: frames go from one device to another.
    Forward {
        /// For people.
        label: String,
        /// The frames to forward. `None`: all.
        wanted: Option<Program>,
        /// The other device.
        to: String,
    },
}

impl Reads {
    pub(super) fn all_asked(&self) -> Vec<&CaptureRequest> {
        match self {
            Reads::Packets(asked, ..) => vec![asked],
            Reads::Counts(all) => {
                let undecided = all.iter().filter_map(|counted| counted.undecided.as_ref().map(|(asked, _)| asked));
                all.iter().map(|counted| &counted.asked).chain(undecided).collect()
            }
            Reads::Own { .. } | Reads::Forward { .. } => Vec::new(),
        }
    }
}

/// What a source gives of each packet that it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Most bytes of each packet, 0 = all.
    pub(super) snap_len: u32,
    /// The selectors that decide in the reader, for people. `None`: none do.
    pub(super) decided_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(super) asked: CaptureRequest,
    pub(super) partition: Option<Partition>,
    /// A reader for packets that the program cannot decide about, and the selectors that decide.
    pub(super) undecided: Option<(CaptureRequest, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct RunningSource {
    pub(crate) node: usize,
    pub(crate) reads: Reads,
}

/// Whether a reader for this capture request can take over from a source that reads `reads`. It can if both number their
/// packets alike, which takes the same ring: the same device and the same writer.
pub(crate) fn hands_over(reads: &Reads, asked: &CaptureRequest) -> bool {
    let is_same =
        |other: &CaptureRequest| (&other.device, other.by) == (&asked.device, asked.by) && other.mode == asked.mode;
    matches!(reads, Reads::Packets(other, ..) if is_same(other))
}
