//! From a frame to its transport header, for filters that take one protocol: what is theirs, what is another's, and what
//! is broken. Not the protocol itself.
//!
//! The seam for fragments is here: a stage that puts packets together from them stands above this one.

use packet::frame::{self, Frame};
use packet::link::LinkType;
use packet::malformed::Malformed;

/// Why a frame is not for a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It carries something else: no loss.
    Other,
    /// It is broken or a fragment, for this reason.
    Dropped(&'static str),
}

impl From<Malformed> for Refusal {
    fn from(why: Malformed) -> Refusal {
        match why {
            Malformed::NotIp | Malformed::OtherProtocol => Refusal::Other,
            why => Refusal::Dropped(why.reason()),
        }
    }
}

/// Reads a frame up to its transport header, which is of this protocol and whole.
#[inline]
pub(crate) fn read(link: LinkType, bytes: &[u8], wire_len: u32, protocol: u8) -> Result<Frame, Refusal> {
    let frame = frame::parse(link, bytes, wire_len)?;
    match frame.fragment {
        None if frame.protocol == protocol => Ok(frame),
        Some(fragment) if frame.protocol == protocol || fragment.protocol == protocol => {
            Err(Refusal::Dropped("fragment"))
        }
        _ => Err(Refusal::Other),
    }
}

/// The outermost VLAN identifier of a frame.
pub(crate) fn vlan_of(frame: &Frame) -> Option<u16> {
    (frame.vlan_count > 0).then_some(frame.vlan_ids[0])
}
