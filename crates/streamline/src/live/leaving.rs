//! How to read what leaves the spaces below at one place: what the source there reads, from the ways that lead to it.
//!
//! Opens nothing. Where packets are only counted (`count`), they are not copied: only the record of the counts leaves.

use super::behind::{Behind, wanted};
use super::known::Known;
use super::lowering::{self, Lowered, cannot};
use super::reads::{Counted, Given, Reads};
use super::way::Way;
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{CaptureError, CaptureRequest, ETHERNET, Mode, Partition};
use filter::device::{Choice, Exclusive, snap_len};
use filter::{DeviceAccess, ParamError};
use program::{Expression, Passes, Program, to_cbpf};

/// How many packets are left out, of those that no filter above can want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreFiltering {
    /// All those that a program can tell.
    Wanted,
    /// Those that cheap programs can tell.
    Roughly,
    None,
}

/// Why a place cannot be read, and whether something else could be tried.
#[derive(Clone, Debug)]
pub(super) enum Why {
    CaptureError(CaptureError),
    /// It was to be read so, and could not be opened.
    Opened(CaptureError),
    Param(ParamError),
}

impl From<CaptureError> for Why {
    fn from(error: CaptureError) -> Why {
        Why::CaptureError(error)
    }
}

/// A place where packets leave the spaces below, by one source.
pub(super) struct Leaving {
    /// One way, or several that are counted together.
    pub(super) ways: Vec<Way>,
    /// The packets that filters above can want, along each edge that leaves. `None`: they are not asked.
    pub(super) behind: Option<Vec<Behind>>,
}

impl Leaving {
    /// How to read it. Packets that no filter above can want are never taken away from the host.
    pub(super) fn reads(&self, known: &Known, pre_filtering: PreFiltering) -> Result<Reads, Why> {
        let compiler = known.compiler.as_ref();
        if let [way] = &self.ways[..]
            && let Some(to) = way.forwards_to()
        {
            let wanted = way.lowered(compiler, ETHERNET)?.expression().program(Passes::Surely);
            let wanted = wanted.filter(|program| program.always().is_none_or(|length| length == 0));
            if let Some(DeviceAccess::Shared(shared)) = way.device.device {
                let program = wanted.as_ref().map_or_else(Vec::new, to_cbpf);
                let (asked, _) = (shared.asked)(&way.params).map_err(Why::Param)?;
                (shared.permits)(&CaptureRequest { program, ..asked }, &way.params).map_err(Why::Param)?;
            }
            return Ok(Reads::Forward { label: way.label().to_string(), wanted, to });
        }
        let mut all = Vec::new();
        for way in &self.ways {
            let shared = match way.device.device {
                Some(DeviceAccess::Shared(shared)) => shared,
                Some(DeviceAccess::Exclusive(own)) => {
                    let wanted = self.of_own(own, way, known, pre_filtering)?;
                    return Ok(Reads::Own { label: way.label().to_string(), wanted });
                }
                Some(DeviceAccess::Made) | None => return Err(nothing_comes().into()),
            };
            let (asked, partition) = (shared.asked)(&way.params).map_err(Why::Param)?;
            let link_type = known.link_type(&asked.device)?;
            let lowered = way.lowered(compiler, link_type)?;
            if lowered.counts {
                let counted = counted(asked, partition, way, &lowered)?;
                (shared.permits)(&counted.asked, &way.params).map_err(Why::Param)?;
                all.push(counted);
                continue;
            }
            let asked = self.capture_request(asked, way, &lowered, known, (pre_filtering, link_type));
            (shared.permits)(&asked, &way.params).map_err(Why::Param)?;
            let given = Given { snap_len: snap_len(&way.params), decided_by: way.decided_by() };
            return Ok(Reads::Packets(asked, partition, given));
        }
        Ok(Reads::Counts(all))
    }

    /// The packets that filters above want. `None`: all may be.
    pub(super) fn wanted(
        &self,
        only_written: bool,
        known: &Known,
        way: &Way,
        link_type: u16,
    ) -> Option<Vec<Expression>> {
        let compiler = known.compiler.as_ref();
        wanted(self.behind.as_ref()?, only_written, compiler, link_type, snap_len(&way.params))
    }

    /// Completes a device's capture request with the filters behind the device.
    fn capture_request(
        &self,
        mut asked: CaptureRequest,
        way: &Way,
        lowered: &Lowered,
        known: &Known,
        (pre_filtering, link_type): (PreFiltering, u16),
    ) -> CaptureRequest {
        let chosen = lowered.expression();
        asked.sample = lowered.sample;
        let is_taken = asked.mode == Mode::Consume;
        // No pre-filter before `sample`: it would change which packets are the first of each `sample`.
        let leaves_out = (pre_filtering != PreFiltering::None || is_taken) && lowered.sample == 1;
        let wanted = leaves_out.then(|| self.wanted(is_taken, known, way, link_type)).flatten();
        let wanted = wanted.and_then(|wanted| match pre_filtering {
            PreFiltering::Roughly if !is_taken => lowering::roughly(wanted),
            _ => Some(wanted),
        });
        let program = lowering::program(&chosen, wanted.as_deref(), Passes::Perhaps);
        asked.program = program.as_ref().map_or_else(Vec::new, to_cbpf);
        asked
    }

    /// The packets wanted of a device that only this request has: those that any of these programs passes. `None`: all.
    fn of_own(
        &self,
        own: Exclusive,
        way: &Way,
        known: &Known,
        pre_filtering: PreFiltering,
    ) -> Result<Option<Vec<Program>>, CaptureError> {
        let link_type = way.link_type(known)?;
        let chosen = way.lowered(known.compiler.as_ref(), link_type)?.expression();
        let is_taken = matches!(own.choice, Choice::Xdp { .. });
        let leaves_out = pre_filtering != PreFiltering::None || is_taken;
        let wanted = leaves_out.then(|| self.wanted(is_taken, known, way, link_type)).flatten();
        Ok(lowering::programs(&chosen, wanted.as_deref()))
    }
}

fn counted(
    asked: CaptureRequest,
    partition: Option<Partition>,
    way: &Way,
    lowered: &Lowered,
) -> Result<Counted, CaptureError> {
    let chosen = lowered.expression();
    // Use both programs or neither: what one surely counts, the other leaves out.
    let of = |passes| {
        let program = chosen.program(passes).filter(|program| to_cbpf(program).len() <= PROGRAM_INSTRUCTIONS);
        program.ok_or_else(|| cannot("the expression is too long for a program"))
    };
    let asked = CaptureRequest { program: Vec::new(), sample: lowered.sample, counts: None, ..asked };
    let undecided = match chosen.is_exact() {
        true => None,
        false => Some((
            CaptureRequest { program: to_cbpf(&of(Passes::Unsure)?), ..asked.clone() },
            way.decided_by().unwrap_or_default(),
        )),
    };
    let program = if lowered.chosen.is_empty() { Vec::new() } else { to_cbpf(&of(Passes::Surely)?) };
    let asked = CaptureRequest { program, counts: Some(snap_len(&way.params)), ..asked };
    Ok(Counted { asked, partition, undecided })
}

pub(super) fn nothing_comes() -> CaptureError {
    cannot("nothing comes from a device here")
}
