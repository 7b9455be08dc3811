//! The cost of a shared interface for its host's own TCP: one kernel connection with the offloads that devices have at
//! first, beside `net up --share` and an idle flow, and without them.

use super::bed::{Bed, NEAR, USERS, Whose, give_address};
use super::bulk::{self, FAR};
use super::part::failed;
use super::{blocks, in_turns, numbers, row};
use crate::capture::bulk::ALL;
use crate::case::{Case, CaseError, Numbers};
use crate::setting::Setting;
use crate::table::Goal;

/// The rows.
pub static CASES: &[Case] = &[
    row(
        "the host sends bulk TCP by a shared device, one flow idle",
        "not shared",
        Goal::AtLeast(0.8, 0.95),
        |setting| compared(setting, "send"),
    ),
    row(
        "the host receives bulk TCP by a shared device, one flow idle",
        "not shared",
        Goal::AtLeast(0.8, 0.95),
        |setting| compared(setting, "receive"),
    ),
];

fn compared(setting: &Setting, role: &str) -> Result<Numbers, CaseError> {
    let bed = Bed::made(setting)?;
    let (near, far) = (bed.near(Whose::Ours), bed.far(Whose::Ours));
    give_address(near, NEAR)?;
    for end in [near, far] {
        end.set_offloads(ALL).map_err(failed)?;
    }
    let run = || bulk::run(&bed, (near, Whose::Kernel), (far, FAR), role).map(|run| run.rate);
    let [ours, alone] = in_turns(blocks(setting), |whose| match whose {
        Whose::Ours => {
            bed.up(&["--share".to_owned()])?;
            let idle = bed.idle(USERS[0], 1, 1)?;
            let rate = run()?;
            idle.end()?;
            bed.net(&["down", "near"].map(str::to_owned))?;
            Ok(rate)
        }
        Whose::Kernel => run(),
    })?;
    Ok(numbers(ours, Some(alone), "Gb/s"))
}
