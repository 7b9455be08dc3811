//! The share of the wire that a flow asks for, as text: a slice in each period, a weight for the rest, or only unused time.

use crate::error::{NetError, NetErrorKind};
use crate::flow_id::FlowId;
use crate::interface::Core;
use qos::{Class, Guarantee, WHOLE};

/// The limits of a user on the wire of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLimits {
    /// The guarantees of all the user's flows together, in millionths of the wire.
    pub slices_ppm: u32,
    /// The largest weight of a fair flow.
    pub weight: u32,
    /// The user's share of the time that slices leave over, relative to other users: at least 1.
    pub user_weight: u32,
}

impl ShareLimits {
    /// Only the interface's own limit, for root. Its flows together share as those of any other user.
    pub const NONE: ShareLimits = ShareLimits { slices_ppm: 1_000_000, weight: MOST_WEIGHT, user_weight: 1 };
}

impl Default for ShareLimits {
    /// The limits of an ordinary user, if the policy does not give any: a fifth of the wire, weights up to 10, and as
    /// much of the rest as another user.
    fn default() -> ShareLimits {
        ShareLimits { slices_ppm: 200_000, weight: 10, user_weight: 1 }
    }
}

/// The largest weight of all.
const MOST_WEIGHT: u32 = 1000;

impl Core {
    /// Whether `user` may have a flow of this class. All guarantees count, except that of `except`, a flow that is changing.
    pub(crate) fn permits(
        &self,
        class: Class,
        limits: ShareLimits,
        user: u32,
        except: Option<FlowId>,
    ) -> Result<(), NetError> {
        let guarantee = match class {
            Class::Background => return Ok(()),
            Class::Fair { weight } if weight <= limits.weight => return Ok(()),
            Class::Fair { weight } => {
                let text = format!(
                    "`fair:{weight}`: user {user} may have weights up to {} on `{}`; {REMEDY} (`weight`)",
                    limits.weight, self.name
                );
                return Err(NetError::new(NetErrorKind::Full, text));
            }
            Class::Guaranteed(guarantee) => guarantee,
        };
        if limits.slices_ppm >= ShareLimits::NONE.slices_ppm {
            return Ok(());
        }
        let others = self.flows.all().filter(|flow| flow.user == user).filter_map(|flow| {
            let id = self.flows.numbered(flow.number).filter(|id| Some(*id) != except)?;
            match self.scheduler.class(id.key())? {
                Class::Guaranteed(other) => Some(other.share()),
                Class::Fair { .. } | Class::Background => None,
            }
        });
        let taken: u64 = others.sum();
        let limit = (u128::from(WHOLE) * u128::from(limits.slices_ppm) / 1_000_000) as u64;
        if taken + guarantee.share() <= limit {
            return Ok(());
        }
        let percent = |share: u64| (share as f64 / WHOLE as f64 * 1e6).round() / 1e4;
        let text = format!(
            "{guarantee} is {} % of the wire; user {user} may guarantee {} % of `{}` to its flows, and other flows of it have {} %; \
             {REMEDY} (`slices`)",
            percent(guarantee.share()),
            f64::from(limits.slices_ppm) / 1e4,
            self.name,
            percent(taken)
        );
        Err(NetError::new(NetErrorKind::Full, text))
    }
}

/// The remedy for a limit.
const REMEDY: &str = "root can change that in the daemon's policy";

/// Reads `4ms/100ms`, `4ms/100ms+slack`, `fair`, `fair:3` or `background`. `is_paced`: the wire has a rate for slices.
///
/// # Errors
///
/// `Request`: the text has another form, or asks for a slice of a wire without a rate.
pub(crate) fn read(text: &str, is_paced: bool) -> Result<Class, NetError> {
    let wrong = |why: String| NetError::new(NetErrorKind::Request, why);
    match text.split_once(':').map_or((text, None), |(word, number)| (word, Some(number))) {
        ("fair", None) => return Ok(Class::Fair { weight: 1 }),
        ("background", None) => return Ok(Class::Background),
        ("fair", Some(weight)) => {
            let weight = weight.parse().ok().filter(|weight| (1..=MOST_WEIGHT).contains(weight));
            let weight = weight.ok_or_else(|| wrong(format!("`{text}`: a weight is 1 to 1000, as in fair:3")))?;
            return Ok(Class::Fair { weight });
        }
        _ => {}
    }
    let guarantee: Guarantee = text.parse().map_err(|error| {
        wrong(format!("`{text}` is no share of the wire: {error}; 4ms/100ms, 4ms/100ms+slack, fair:3 or background"))
    })?;
    if !is_paced {
        return Err(wrong(format!(
            "`{text}`: a slice is a part of a wire whose rate is known; as root: streamline net up DEVICE --addr ADDRESS/BITS --rate 100M"
        )));
    }
    Ok(Class::Guaranteed(guarantee))
}

pub(crate) fn text(class: Class) -> String {
    match class {
        Class::Guaranteed(guarantee) => guarantee.to_string(),
        Class::Fair { weight: 1 } => "fair".into(),
        Class::Fair { weight } => format!("fair:{weight}"),
        Class::Background => "background".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for good in ["4ms/100ms", "4ms/100ms+slack", "fair", "fair:3", "background"] {
            assert_eq!(text(read(good, true).unwrap()), good);
        }
        for bad in ["", "fair:0", "fair:x", "background:1", "4ms", "5ms/4ms", "0ms/1ms"] {
            assert_eq!(read(bad, true).unwrap_err().kind, NetErrorKind::Request, "{bad}");
        }
        assert!(read("4ms/100ms", false).unwrap_err().text.contains("--rate"));
        assert!(read("fair:2", false).is_ok());
    }
}
