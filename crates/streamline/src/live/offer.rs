//! The filters that the spaces `kernel` and `daemon` offer to run. `cut` decides about the plan as a whole.

use super::forward;
use super::known::Known;
use super::lowering::{counts, is_own};
use super::selection::is_undecided;
use crate::space::DAEMON;
use capture::{By, CaptureRequest, Mode};
use control::place::Offered;
use control::{Before, Offer};
use filter::device::snap_len;
use filter::{DeviceAccess, Kind, Lower, Params};

/// Whether any of these filters takes one packet in N.
fn samples(filters: &[Before<'_>]) -> bool {
    filters.iter().any(|(kind, _)| matches!(kind.lower, Some(Lower::OneIn(_))))
}

/// Checks that a device's program decides on every packet. The error says which packets the reader chooses.
fn decides_on_all(before: &[Before<'_>]) -> Result<(), String> {
    for (kind, params) in before {
        let Some(DeviceAccess::Shared(shared)) = kind.device else { continue };
        let (asked, partition) = (shared.asked)(params).map_err(|error| error.message)?;
        if partition.is_some() {
            return Err("flows of one part are chosen by the reader".into());
        }
        if asked.last_ns > 0 {
            return Err("packets of the past are looked at by the reader".into());
        }
    }
    Ok(())
}

/// The offer of this space for anything it can run: no other space is cheaper.
const OFFER: Option<Offer> = Some(Offer { cost: 1 });

/// Whether a space can run this kind with these parameters, behind these filters that run there as well. The error says why not;
/// `None` if people would not expect it to.
pub(crate) fn offer(space: &str, known: &Known, kind: &Kind, params: &Params, before: &[Before<'_>]) -> Offered {
    let is_daemon = space == DAEMON;
    // In the daemon, only nodes behind a source of the daemon can run.
    if is_daemon && !kind.is_source() && !before.iter().any(|(kind, _)| kind.is_source()) {
        return Ok(None);
    }
    if is_own(kind) {
        return if known.push_down { Ok(OFFER) } else { Err("it was asked to stay out of the kernel".into()) };
    }
    if let Some(DeviceAccess::Shared(shared)) = kind.device {
        let (asked, _) = (shared.asked)(params).map_err(|error| error.message)?;
        return match (copied_in_daemon(known, &asked), is_daemon) {
            (Some(_), true) | (None, false) => Ok(OFFER),
            (Some(why), false) => Err(why),
            (None, true) => Ok(None),
        };
    }
    if !known.push_down {
        return Err("it was asked to stay out of the kernel".into());
    }
    if before.iter().any(|(kind, _)| counts(kind)) {
        return Err("it counts packets there, and has no records".into());
    }
    match kind.lower {
        None => Err(format!("it has no program for `{}`", kind.name)),
        Some(Lower::Forwards(_)) if is_daemon => Ok(None),
        Some(Lower::Forwards(target)) => {
            let to = target(params)?;
            if !forward::is_here(before, known.is_elsewhere) {
                return Err("a daemon captures, and sends nothing".into());
            }
            forward::check(&to, before, known).map(|()| OFFER)
        }
        Some(Lower::Program(_)) if samples(before) => Err("it asks before it takes one in so many, not after".into()),
        Some(Lower::Program(_)) => Ok(OFFER),
        Some(_) if before.iter().any(|(kind, _)| is_own(kind)) => {
            Err("of a device that is not shared it only chooses what is taken".into())
        }
        Some(Lower::Selects(_)) if before.iter().any(|(_, params)| snap_len(params) > 0) => {
            Err("of packets that are cut it decides by what is left".into())
        }
        Some(Lower::Selects(make)) => make(params).map(|_| OFFER).map_err(|error| error.message),
        Some(Lower::OneIn(_)) if before.iter().any(|(kind, params)| is_undecided(kind, params)) => {
            Err("the reader decides about packets that a program cannot tell about".into())
        }
        Some(Lower::Counts) if samples(before) && before.iter().any(|(kind, params)| is_undecided(kind, params)) => {
            Err("the reader decides about packets that a program cannot tell about".into())
        }
        Some(Lower::OneIn(one_in)) => {
            one_in(params)?;
            decides_on_all(before)?;
            Ok(OFFER)
        }
        Some(Lower::Counts) => {
            decides_on_all(before)?;
            Ok(OFFER)
        }
    }
}

/// Why a thread of the daemon copies the packets of this capture request. `None`: no thread does, as far as that is
/// known before the device is open.
fn copied_in_daemon(known: &Known, asked: &CaptureRequest) -> Option<String> {
    // The kernel's program chooses what is taken away from the host, even if a thread copies it then.
    if asked.mode == Mode::Consume || asked.by == By::Kernel || !known.is_elsewhere {
        return None;
    }
    if asked.by == By::PacketSocket {
        return Some("its packets are copied from a packet socket, as was asked for".into());
    }
    known.device(&asked.device).filter(|device| device.copied).map(|device| device.how.clone())
}

#[cfg(test)]
mod tests {
    use super::super::leaving::Why;
    use super::super::space::open_own;
    use super::*;
    use crate::space::KERNEL;
    use capture::ETHERNET;
    use filter::ParamError;
    use filter::device::{Choice, Exclusive, opened_by_owner};
    use std::sync::Arc;

    static PARSER: Kind = Kind::new("other", "a device that no file knows by name", opened_by_owner).device(
        DeviceAccess::Shared(filter::device::Shared {
            asked: |params| {
                let mode = if params.flag("away") { Mode::Consume } else { Mode::Tap };
                Ok((CaptureRequest { device: "other0".into(), mode, ..CaptureRequest::default() }, None))
            },
            permits: |_, _| Ok(()),
        }),
    );

    static TAKEN: Kind = Kind::new("taken", "a device that one request takes away", opened_by_owner).device(
        DeviceAccess::Exclusive(Exclusive {
            link_type: |_| Ok(ETHERNET),
            choice: Choice::Xdp { queues: |_| Ok(1), open: |_, _| Err(ParamError::new("device", "it was opened")) },
        }),
    );

    #[test]
    fn a_device_is_known_by_what_its_kind_says() {
        let mut params = Params::new();
        assert_eq!((PARSER.takes_away(&params), TAKEN.takes_away(&params)), (false, true));
        let offers = |push_down, kind| {
            let known = Known::new(Arc::new(testkit::Compiler::new()), push_down, &[]);
            offer(KERNEL, &known, kind, &params, &[])
        };
        assert_eq!((offers(true, &PARSER), offers(false, &PARSER)), (Ok(OFFER), Ok(OFFER)));
        assert_eq!(offers(true, &TAKEN), Ok(OFFER));
        assert!(offers(false, &TAKEN).is_err(), "it can be opened without a program");
        let Some(DeviceAccess::Exclusive(taken)) = TAKEN.device else { panic!("it is for one request") };
        let Err(Why::Param(error)) = open_own(taken, &params, None) else { panic!("it says so when it is opened") };
        assert_eq!(error.message, "it was opened");
        params.set("away", filter::param::Value::Flag(true));
        assert!(PARSER.takes_away(&params));
    }
}
