//! One of the spaces `kernel` and `daemon`.
//!
//! A device, and everything that follows it there, is in the space of its ring's writer: the kernel's program, or a
//! thread of the daemon that copies from a packet socket. The thread writes where that was asked for, or where the
//! program would see other packets. Without a daemon this process's own thread copies, and the kernel filters in front
//! of it as far as it can. That counts as `kernel`.
//!
//! In: the sources of a [`Cut`](super::Cut), which says what each reads. Out: the opened sources. What cannot be
//! opened is told, so that the plan is cut again without it.
//!
//! A device that a request has to itself (`af_xdp`, `af_packet`) is here, too: the expressions behind it choose what it
//! takes away from the host, or what its socket lets in.
//!
//! Packets that the filters above cannot want stay here as well, even if those filters cannot run here. They say what a
//! packet must be ([`filter::Kind::pre_filter`], or an expression); anything else is not captured.

use super::cut::Source;
use super::forward;
use super::known::Known;
use super::leaving::{Why, nothing_comes};
use super::lowering::cannot;
use super::reads::{Counted, Reads, RunningSource, hands_over};
use super::verifier;
use super::way::Way;
use crate::left::{Left, Opened};
use crate::space::Space;
use capture::writer::own;
use capture::{CaptureError, CaptureErrorKind, CaptureReader, CaptureRequest, Devices};
use control::StepError;
use control::transaction::Step;
use engine::{NodeId, Plan, Task};
use filter::device::{Choice, Exclusive, XdpProgram};
use filter::run::Instance;
use filter::{DeviceAccess, ParamError, Params};
use kernel::{ConsumeProgram, Wanted};
use program::{Compile, Program};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct LiveSpace {
    name: &'static str,
    devices: Arc<dyn Devices>,
    compiler: Arc<dyn Compile>,
    /// The sources to open, by the node at which their packets leave.
    sources: BTreeMap<NodeId, Vec<Source>>,
    opened: BTreeMap<NodeId, Vec<Reading>>,
    /// What could not be opened, and why.
    cannot: Vec<(Reads, CaptureError)>,
    /// The sources of the running plan that this plan is to replace; empty without one.
    running: Vec<RunningSource>,
    /// How much later than it came a packet may be found. `None`: not set.
    latency: Option<Duration>,
}

struct Reading {
    ways: Vec<Way>,
    reads: Reads,
    how: How,
}

enum How {
    CaptureReader(Box<CaptureReader>),
    /// Readers that count, and readers of packets that only they can decide about.
    Counts(Vec<CaptureReader>, Vec<filters::count::Undecided>),
    /// A reader that can replace other readers of its device, from this packet on.
    Sure(Box<CaptureReader>, u64),
    Own(Instance),
    /// This source of the running plan, which reads the same.
    Running(usize),
}

impl LiveSpace {
    pub(super) fn new(name: &'static str, devices: Arc<dyn Devices>, compiler: Arc<dyn Compile>) -> LiveSpace {
        let (sources, opened) = (BTreeMap::new(), BTreeMap::new());
        let (cannot, running) = (Vec::new(), Vec::new());
        LiveSpace { name, devices, compiler, sources, opened, cannot, running, latency: None }
    }

    pub(super) fn set_latency(&mut self, latency: Option<Duration>) {
        self.latency = latency;
    }

    pub(super) fn set_beside(&mut self, running: &[RunningSource]) {
        self.running = running.to_vec();
    }

    /// Sets what is to be opened here.
    pub(super) fn set_sources(&mut self, sources: BTreeMap<NodeId, Vec<Source>>) {
        self.sources = sources;
    }

    /// Tells what could not be opened. Gives whether there was something.
    pub(super) fn tell(&mut self, known: &mut Known) -> bool {
        self.cannot.drain(..).fold(false, |told, (reads, why)| known.cannot_read(reads, why) | told)
    }

    /// Takes what leaves this space at a node: each source's label, task, and the source itself.
    pub(super) fn take_sources(&mut self, id: NodeId) -> Vec<(String, Task, Left)> {
        let readings = self.opened.remove(&id).unwrap_or_default();
        let source = |Reading { ways, reads, how }: Reading| {
            let first = ways.first()?;
            let (kind, params) = first.counter().unwrap_or((first.device, &first.params));
            let task = Task::Filter { kind, params: params.clone() };
            let labels: Vec<&str> = ways.iter().map(Way::label).collect();
            let given = |reader: CaptureReader| {
                let decides = first.decides(self.compiler.as_ref(), reader.device().link_type).ok().flatten();
                Opened::New(filters::source(reader, &first.params, decides))
            };
            let (source, number) = match how {
                How::Running(node) => (Opened::Running(node), None),
                How::Own(source) => (Opened::New(source), None),
                How::Sure(reader, number) => (given(*reader), Some(number)),
                How::Counts(registry, undecided) => (Opened::New(filters::count::source(registry, undecided)), None),
                How::CaptureReader(reader) => (given(*reader), None),
            };
            Some((labels.join(" + "), task, Left::Source { origin: id, source, reads, first: number }))
        };
        readings.into_iter().filter_map(source).collect()
    }

    /// Opens a source. If it cannot be read so, another cut may say how else.
    fn open(&mut self, Source { ways, reads, running }: Source) -> Result<Reading, StepError> {
        let fails = |error: ParamError| StepError { refused: false, error };
        let reads = reads.map_err(|error| fails(error.into()))?;
        if let Some(node) = running {
            return Ok(Reading { ways, reads, how: How::Running(node) });
        }
        match self.open_reads(&ways, &reads) {
            Ok(how) => Ok(Reading { ways, reads, how }),
            Err(Why::CaptureError(error) | Why::Opened(error)) if error.kind == CaptureErrorKind::Cannot => {
                self.cannot.push((reads, error.clone()));
                Err(StepError { refused: true, error: error.into() })
            }
            Err(Why::CaptureError(error) | Why::Opened(error)) => Err(fails(error.into())),
            Err(Why::Param(error)) => Err(fails(error)),
        }
    }

    fn open_reads(&self, ways: &[Way], reads: &Reads) -> Result<How, Why> {
        let way = ways.first().ok_or_else(nothing_comes)?;
        let mut how = match reads {
            Reads::Packets(asked, partition, _)
                if self.running.iter().any(|source| hands_over(&source.reads, asked)) =>
            {
                // Earlier packets belong to the reader before this one.
                let (reader, first) =
                    self.devices.open_sure(&CaptureRequest { last_ns: 0, ..asked.clone() }, *partition)?;
                How::Sure(Box::new(reader), first)
            }
            Reads::Packets(asked, partition, _) => How::CaptureReader(Box::new(self.devices.open(asked, *partition)?)),
            Reads::Counts(all) => self.open_counts(ways, all)?,
            Reads::Own { wanted, .. } => match way.device.device {
                Some(DeviceAccess::Exclusive(own)) => How::Own(open_own(own, &way.params, wanted.as_deref())?),
                _ => return Err(nothing_comes().into()),
            },
            Reads::Forward { wanted, to, .. } => {
                How::Own(forward::open(&way.params, to, wanted.as_ref()).map_err(cannot)?)
            }
        };
        if let Some(latency) = self.latency {
            match &mut how {
                How::CaptureReader(reader) | How::Sure(reader, _) => reader.set_latency(latency),
                How::Counts(..) | How::Own(_) | How::Running(_) => {}
            }
        }
        Ok(how)
    }

    /// Opens readers that count, one for each way, and readers of packets that those cannot decide about.
    fn open_counts(&self, ways: &[Way], all: &[Counted]) -> Result<How, CaptureError> {
        let (mut registry, mut undecided) = (Vec::new(), Vec::new());
        for (way, counted) in ways.iter().zip(all) {
            registry.push(self.devices.open(&counted.asked, counted.partition)?);
            let Some((asked, _)) = &counted.undecided else { continue };
            let reader = self.devices.open(asked, counted.partition)?;
            let decides = way.decides(self.compiler.as_ref(), reader.device().link_type)?.ok_or_else(nothing_comes)?;
            undecided.push(filters::count::Undecided::new(reader, decides));
        }
        Ok(How::Counts(registry, undecided))
    }
}

/// Opens a device that only this request has. `wanted`: give what any of these programs passes; `None` = everything.
pub(super) fn open_own(device: Exclusive, params: &Params, wanted: Option<&[Program]>) -> Result<Instance, Why> {
    let opened = match (device.choice, wanted) {
        (Choice::SocketFilter { open, .. }, None) => open(params, None),
        (Choice::Xdp { open, .. }, None) => open(params, None),
        (Choice::SocketFilter { ways, open }, Some(wanted)) => {
            let link_type = (device.link_type)(params).map_err(Why::Param)?;
            // Without the right to load programs the socket may still open; the expressions are then asked above.
            let socket_filter = verifier::socket_filter(wanted, ways(params), link_type);
            let (filter, socket_filter) = socket_filter.map_err(|error| cannot(error.to_string()))?;
            open(params, Some((filter, ("kept out of the socket", Box::new(move || socket_filter.kept_out().packets)))))
        }
        (Choice::Xdp { queues, open }, Some(wanted)) => {
            let wanted: Vec<&Program> = wanted.iter().collect();
            let consume_program = ConsumeProgram::new(queues(params).map_err(Why::Param)?, Wanted::Any(&wanted));
            let consume_program = consume_program.map_err(crate::devices::cannot_choose)?;
            let program =
                XdpProgram { program: own(consume_program.program())?, sockets: own(consume_program.sockets())? };
            let counting = consume_program.counting();
            open(params, Some((program, ("left to the host", Box::new(move || counting.counted().left)))))
        }
    };
    opened.map_err(Why::Param)
}

impl Space for LiveSpace {
    fn name(&self) -> &'static str {
        self.name
    }

    fn carry(&mut self, step: &Step, _: &Plan) -> Result<(), StepError> {
        let Step::Activate(id) = step else { return Ok(()) };
        for source in self.sources.get(id).cloned().unwrap_or_default() {
            match self.open(source) {
                Ok(reading) => self.opened.entry(*id).or_default().push(reading),
                Err(error) => {
                    self.opened.remove(id);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn undo(&mut self, step: &Step) {
        if let Step::Activate(id) = step {
            self.opened.remove(id);
        }
    }
}
