//! The budget of a device: what its readers' expressions may cost each packet, in instructions of the kernel.
//!
//! All expressions of a device run for every packet, whichever user it belongs to. Without a limit one user's readers
//! could slow all traffic. An expression for which the budget has no room is refused ([`CaptureErrorKind::Cannot`]).
//! Then its reader asks for all packets that it may see, and filters them itself.

use crate::capture_request::{CaptureError, CaptureErrorKind};

/// Instructions for all readers of a device, unless the daemon's policy sets another number: 64 for each of a ring's 64
/// readers. Typical tcpdump expressions cost 46 on average, from 6 (`greater 1000`) to 76 (`net 10.0.0.0/8 and not port
/// 22`); `tcp port 80` costs 65. A test of the daemon's policy compiles 32 of them.
pub const INSTRUCTIONS: u32 = 64 * 64;

/// The fraction of a budget that one user may take; the rest is kept for other users. Root may take all of it.
const OF_USER: (u32, u32) = (3, 4);

/// A number of instructions, and how many of them are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Instructions taken.
    pub taken: u32,
    /// All instructions.
    pub of: u32,
}

impl Part {
    fn has_room(&self, cost: u32) -> bool {
        self.taken.checked_add(cost).is_some_and(|taken| taken <= self.of)
    }
}

/// A device's budget, for one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The user's part, and what this user's readers take of it.
    pub user: Part,
    /// The whole budget, and what all readers take of it.
    pub all: Part,
}

impl Budget {
    /// A budget of this number of instructions for this user, with nothing taken.
    pub fn new(instructions: u32, user: u32) -> Budget {
        let (part, whole) = OF_USER;
        let of_user = if user == 0 { instructions } else { instructions / whole * part };
        Budget { user: Part { taken: 0, of: of_user }, all: Part { taken: 0, of: instructions } }
    }

    /// Takes an expression's cost for this device, or says why it cannot. An expression without cost always fits.
    pub fn take(&mut self, device: &str, cost: u32) -> Result<(), CaptureError> {
        let (short, whose, for_whom) = match (self.user.has_room(cost), self.all.has_room(cost)) {
            _ if cost == 0 => return Ok(()),
            (true, true) => {
                self.user.taken += cost;
                self.all.taken += cost;
                return Ok(());
            }
            (false, _) => (self.user, "your expressions", "you"),
            (true, false) => (self.all, "the expressions of all readers", "all readers"),
        };
        let Part { taken, of } = short;
        let this = if cost == u32::MAX { "it cannot run there".into() } else { format!("it costs {cost} more") };
        let text = format!(
            "{whose} on `{device}` cost each packet {taken} of the {of} instructions that the daemon's policy gives \
             {for_whom}, and {this}"
        );
        Err(CaptureError::new(CaptureErrorKind::Cannot, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_three_quarters_and_leaves_the_rest_to_others() {
        let mut budget = Budget::new(1000, 7);
        assert_eq!(budget.take("eth0", 700), Ok(()));
        let refused = budget.take("eth0", 51).unwrap_err();
        assert_eq!(refused.kind, CaptureErrorKind::Cannot);
        assert_eq!(
            refused.text,
            "your expressions on `eth0` cost each packet 700 of the 750 instructions that the daemon's policy gives \
             you, and it costs 51 more"
        );
        assert_eq!(budget.take("eth0", 50), Ok(()));
        assert_eq!(budget, Budget { user: Part { taken: 750, of: 750 }, all: Part { taken: 750, of: 1000 } });
        for cost in [1, u32::MAX] {
            assert!(budget.take("eth0", cost).is_err());
        }
        assert_eq!(budget.take("eth0", 0), Ok(()), "who takes all packets takes nothing");
        // Another user finds the rest.
        let mut other = Budget { user: Part { taken: 0, ..budget.user }, ..budget };
        let refused = other.take("eth0", 251).unwrap_err();
        assert!(refused.text.starts_with("the expressions of all readers on `eth0` cost each packet 750 of the 1000"));
        assert_eq!(other.take("eth0", 250), Ok(()));
        assert_eq!(Budget::new(1000, 0).take("eth0", 1000), Ok(()), "root may take all of it");
    }
}
