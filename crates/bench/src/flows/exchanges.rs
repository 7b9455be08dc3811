//! Questions and answers of 64 bytes on one connection, one after the other: the median time of an exchange.

use super::bed::{Bed, Whose};
use super::bulk::{FAR, PORT};
use super::part::failed;
use super::{blocks, in_turns, numbers, row};
use crate::case::{Case, CaseError, Numbers};
use crate::setting::Setting;
use crate::table::Goal;

/// How long a run asks, in ms.
const RUN_MS: &str = "500";

/// The processors of the application with its daemon, and of the peer.
#[derive(Clone, Copy, Debug)]
struct Places {
    near: usize,
    far: usize,
}

/// The rows.
pub static CASES: &[Case] = &[
    row(
        "question and answer, the peer on the other processor: median",
        "the kernel's",
        Goal::AtMost(1.4, 1.15),
        |setting| compared(setting, Places { near: 0, far: 1 }),
    ),
    row("question and answer, all on one processor: median", "the kernel's", Goal::AtMost(2.0, 1.6), |setting| {
        compared(setting, Places { near: 0, far: 0 })
    }),
];

fn compared(setting: &Setting, places: Places) -> Result<Numbers, CaseError> {
    if std::thread::available_parallelism().map_or(1, usize::from) <= places.far {
        return Err(CaseError::Missing("needs two processors".to_owned()));
    }
    let bed = Bed::new(setting, None)?;
    bed.pin_daemon(Some(places.near))?;
    let [ours, kernel] = in_turns(blocks(setting), |whose| run(&bed, whose, places))?;
    Ok(numbers(ours, Some(kernel), "us"))
}

/// The median, in us.
fn run(bed: &Bed, whose: Whose, places: Places) -> Result<f64, CaseError> {
    let _server = bed.tcp(bed.far(whose), Whose::Kernel, &["serve", PORT], Some(places.far))?;
    let mut client = bed.tcp(bed.near(whose), whose, &["exchange", FAR, RUN_MS], Some(places.near))?;
    client.go()?;
    let said = client.finish()?;
    said["p50_us"].as_f64().ok_or_else(|| failed(format!("a part said `{said}`")))
}
