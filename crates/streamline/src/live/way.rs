//! A way: a device and the filters behind it, one after the other.

use super::known::Known;
use super::lowering::{self, Lowered, cannot, counts, forwards_to};
use super::selection::{OneByOne, Selection, selection};
use capture::{CaptureError, ETHERNET};
use engine::{NodeId, Plan, Task};
use filter::{Decides, DeviceAccess, Kind, Params};
use program::Compile;

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
    pub(super) fn forwards_to(&self) -> Option<String> {
        self.last().and_then(|(kind, params)| forwards_to(kind, params))
    }

    pub(super) fn lowered(&self, compiler: &dyn Compile, link_type: u16) -> Result<Lowered, CaptureError> {
        lowering::lowered(self.filters.iter().map(|(_, filter)| filter), compiler, link_type)
    }

    /// The selectors that decide in the reader, for people.
    pub(super) fn decided_by(&self) -> Option<String> {
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
