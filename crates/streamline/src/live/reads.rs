//! How to read what leaves the spaces below: the ways that lead from devices to one place, and what a source there reads.
//!
//! In: filters of a plan, one after the other. Out: [`Reads`], from which `space` opens a source. Opens nothing.
//!
//! Where packets are only counted (`count`), they are not copied: only the record of the counts leaves.

use super::behind::{Behind, wanted};
use super::known::Known;
use super::lowering::{self, Lowered, cannot, counts, forwards_to};
use super::selection::{OneByOne, Selection, selection};
use capture::capture_request::PROGRAM_INSTRUCTIONS;
use capture::{CaptureError, CaptureRequest, ETHERNET, Mode, Share};
use engine::{NodeId, Plan, Task};
use filter::device::{Choice, Exclusive, snap_len};
use filter::{Decides, DeviceAccess, Kind, ParamError, Params};
use program::{Compile, Expression, Passes, Program, to_cbpf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Packets(CaptureRequest, Option<Share>, Given),
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
    snap_len: u32,
    /// The selectors that decide in the reader, for people. `None`: none do.
    decided_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(super) asked: CaptureRequest,
    pub(super) share: Option<Share>,
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

/// A device and the filters behind it, one after the other, all in one space.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) device: &'static Kind,
    pub(super) params: Params,
    /// The filters, with their labels.
    filters: Vec<(String, Selection)>,
    label: String,
}

impl Way {
    /// The way over these nodes of a plan. `None`: it does not lead from a device, or over something that no program
    /// knows.
    pub(super) fn of(plan: &Plan, nodes: &[NodeId]) -> Option<Way> {
        let (first, rest) = nodes.split_first()?;
        let Task::Filter { kind: device, params } = &plan.nodes[first.index()].task else { return None };
        if !matches!(device.device, Some(DeviceAccess::Shared(_) | DeviceAccess::Exclusive(_))) {
            return None;
        }
        let label = |id: &NodeId| plan.nodes[id.index()].label.clone();
        let filters = rest.iter().map(|id| Some((label(id), selection(plan, *id)?)));
        let filters = filters.collect::<Option<Vec<_>>>()?;
        let label = nodes.iter().map(label).collect::<Vec<_>>().join(" | ");
        Some(Way { device, params: params.clone(), filters, label })
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn is_device(&self) -> bool {
        self.filters.is_empty()
    }

    fn last(&self) -> Option<(&'static Kind, &Params)> {
        match self.filters.last() {
            Some((_, Selection::Filter(kind, params))) => Some((kind, params)),
            _ => None,
        }
    }

    /// The last filter, if it counts packets.
    pub(super) fn counter(&self) -> Option<(&'static Kind, &Params)> {
        self.last().filter(|(kind, _)| counts(kind))
    }

    /// The device by which frames are forwarded at its end. `None`: it does not end so.
    fn forwards_to(&self) -> Option<String> {
        self.last().and_then(|(kind, params)| forwards_to(kind, params))
    }

    pub(super) fn lowered(&self, compiler: &dyn Compile, link_type: u16) -> Result<Lowered, CaptureError> {
        lowering::lowered(self.filters.iter().map(|(_, filter)| filter), compiler, link_type)
    }

    /// The selectors that decide in the reader, for people.
    fn decided_by(&self) -> Option<String> {
        let typed = self.filters.iter().filter(|(_, filter)| filter.is_typed());
        let labels: Vec<&str> = typed.map(|(label, _)| label.as_str()).collect();
        (!labels.is_empty()).then(|| labels.join(" | "))
    }

    /// Makes what decides in the reader at its end. `None`: programs decide about all packets.
    pub(super) fn decides(
        &self,
        compiler: &dyn Compile,
        link_type: u16,
    ) -> Result<Option<Box<dyn Decides>>, CaptureError> {
        let mut all = Vec::new();
        for (_, filter) in &self.filters {
            all.extend(filter.decider(compiler, link_type).map_err(cannot)?);
        }
        Ok((!all.is_empty()).then(|| Box::new(OneByOne(all)) as Box<dyn Decides>))
    }

    /// The LINKTYPE of the device's frames. The error says why the device cannot be asked.
    pub(super) fn link_type(&self, known: &Known) -> Result<u16, CaptureError> {
        match self.device.device {
            Some(DeviceAccess::Exclusive(own)) => Ok((own.link_type)(&self.params).unwrap_or(ETHERNET)),
            Some(DeviceAccess::Shared(shared)) => match (shared.asked)(&self.params) {
                Ok((asked, _)) => known.link_type(&asked.device),
                Err(_) => Ok(ETHERNET),
            },
            Some(DeviceAccess::Made) | None => Ok(ETHERNET),
        }
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
            return Ok(Reads::Forward { label: way.label.clone(), wanted, to });
        }
        let mut all = Vec::new();
        for way in &self.ways {
            let shared = match way.device.device {
                Some(DeviceAccess::Shared(shared)) => shared,
                Some(DeviceAccess::Exclusive(own)) => {
                    let wanted = self.of_own(own, way, known, pre_filtering)?;
                    return Ok(Reads::Own { label: way.label.clone(), wanted });
                }
                Some(DeviceAccess::Made) | None => return Err(nothing_comes().into()),
            };
            let (asked, share) = (shared.asked)(&way.params).map_err(Why::Param)?;
            let link_type = known.link_type(&asked.device)?;
            let lowered = way.lowered(compiler, link_type)?;
            if lowered.counts {
                let counted = counted(asked, share, way, &lowered)?;
                (shared.permits)(&counted.asked, &way.params).map_err(Why::Param)?;
                all.push(counted);
                continue;
            }
            let asked = self.capture_request(asked, way, &lowered, known, (pre_filtering, link_type));
            (shared.permits)(&asked, &way.params).map_err(Why::Param)?;
            let given = Given { snap_len: snap_len(&way.params), decided_by: way.decided_by() };
            return Ok(Reads::Packets(asked, share, given));
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

fn counted(asked: CaptureRequest, share: Option<Share>, way: &Way, lowered: &Lowered) -> Result<Counted, CaptureError> {
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
    Ok(Counted { asked, share, undecided })
}

pub(super) fn nothing_comes() -> CaptureError {
    cannot("nothing comes from a device here")
}
