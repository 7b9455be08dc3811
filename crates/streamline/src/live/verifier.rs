//! Asks the kernel whether it takes programs, before anything is opened. Its refusals become known, and the plan is cut
//! again.

use super::cut::{Cut, Try};
use super::known::Known;
use super::lowering::{WAYS, cannot};
use super::way::Way;
use capture::{By, Direction, ETHERNET, Mode};
use control::Design;
use filter::DeviceAccess;
use filter::device::{Choice, Exclusive};
use kernel::SocketFilter;
use kernel::program_error::ProgramError;
use program::Program;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Asks the kernel about the programs of a cut, and notes what it refuses. Gives whether that is new.
pub(crate) fn ask(known: &mut Known, design: &Design, cut: &Cut) -> bool {
    let mut is_new = false;
    for Try { id, way, programs, link_type, reads } in &cut.tries {
        let Some(why) = refusal(way, programs, *link_type) else { continue };
        is_new |= match reads {
            Some(reads) => known.cannot_read(reads.clone(), cannot(why)),
            None => known.refuse(design, &[(*id, why)]),
        };
    }
    is_new
}

/// Why the kernel will not take these programs on the way's device, as far as that can be tried. `None`: it may take
/// them. Programs that take packets away from the host are not tried: without them the device takes no packets.
fn refusal(way: &Way, wanted: &[Program], link_type: u16) -> Option<String> {
    let shared = match way.device.device {
        Some(DeviceAccess::Exclusive(Exclusive { choice: Choice::SocketFilter { ways, .. }, .. })) => {
            // Without the right to load programs there may still be a packet socket, with no program.
            return socket_filter(wanted, ways(&way.params), link_type).err().map(|error| error.to_string());
        }
        Some(DeviceAccess::Shared(shared)) => shared,
        _ => return None,
    };
    let (asked, _) = (shared.asked)(&way.params).ok()?;
    // A thread that copies asks what its socket's filter cannot.
    if asked.mode == Mode::Consume || asked.by == By::PacketSocket {
        return None;
    }
    let ways = (asked.direction != Direction::Out, asked.direction != Direction::In);
    match socket_filter(wanted, ways, link_type) {
        // This process may not load programs; the daemon may.
        Ok(_) | Err(ProgramError::System(..)) => None,
        Err(ProgramError::Load(error))
            if error.error.kind() == ErrorKind::PermissionDenied && error.reason.is_empty() =>
        {
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Makes the filter of a packet socket for these programs, which also counts what it keeps out.
pub(super) fn socket_filter(
    wanted: &[Program],
    (incoming, outgoing): (bool, bool),
    link_type: u16,
) -> Result<(OwnedFd, SocketFilter), ProgramError> {
    let expression = |(at, program): (usize, &Program)| kernel::Expression {
        incoming,
        outgoing,
        ..kernel::Expression::new((at % WAYS) as u8, Some(Arc::new(program.clone())))
    };
    let expressions: Vec<kernel::Expression> = wanted.iter().enumerate().map(expression).collect();
    let socket_filter = SocketFilter::new(link_type == ETHERNET)?;
    Ok((socket_filter.program(&expressions)?, socket_filter))
}
