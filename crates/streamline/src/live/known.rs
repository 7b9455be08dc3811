//! Facts about the world for the cut of a plan: devices, budgets, running sources, and refusals so far.
//!
//! The devices of a request are asked about when it is placed. The kernel and the daemon may refuse more when they are
//! asked for it. That is added here, and the plan is decided again from the top.

use super::ports::{self, Port};
use super::reads::{Reads, RunningSource};
use capture::{Budget, CaptureError, Device, Devices, ETHERNET};
use control::graph::Task;
use control::place::Refused;
use control::{Design, Graph};
use engine::NodeId;
use filter::DeviceAccess;
use program::Compile;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Known {
    pub(super) compiler: Arc<dyn Compile>,
    /// Whether filters may run below besides devices.
    pub(super) push_down: bool,
    /// Whether another process, as daemon, opens the devices.
    pub(super) is_elsewhere: bool,
    devices: BTreeMap<String, Result<Device, CaptureError>>,
    /// The devices that frames are to go between within the kernel.
    ports: BTreeMap<String, Result<Port, String>>,
    /// The room for the user's expressions on each device. `None`: no limit, or no such device.
    pub(super) budgets: BTreeMap<String, Option<Budget>>,
    /// The sources of the running plan that this plan is to replace; empty without one.
    pub(super) running: Vec<RunningSource>,
    /// Nodes that a space will not run.
    pub(crate) refused: Refused,
    /// What cannot be read, and why.
    cannot: Vec<(Reads, CaptureError)>,
}

impl Known {
    pub(crate) fn new(compiler: Arc<dyn Compile>, push_down: bool, running: &[RunningSource]) -> Known {
        Known {
            compiler,
            push_down,
            is_elsewhere: false,
            devices: BTreeMap::new(),
            ports: BTreeMap::new(),
            budgets: BTreeMap::new(),
            running: running.to_vec(),
            refused: Refused::default(),
            cannot: Vec::new(),
        }
    }

    /// Asks about the devices that a request names.
    pub(crate) fn look(&mut self, graph: &Graph, devices: &dyn Devices) {
        for name in graph.ids().filter_map(|id| device_name(&graph.node(id).task)) {
            self.is_elsewhere = devices.is_elsewhere();
            self.budgets.insert(name.clone(), devices.budget(&name));
            self.devices.insert(name.clone(), devices.device(&name));
        }
        self.ports.extend(ports::names(graph).into_iter().map(|name| (name.clone(), ports::ask(&name))));
    }

    /// What is known of a device. `None`: it is not in the request, or cannot be asked.
    pub(super) fn device(&self, name: &str) -> Option<&Device> {
        self.devices.get(name)?.as_ref().ok()
    }

    /// A device that frames are to go between. The error says why there is none.
    pub(super) fn port(&self, name: &str) -> Result<&Port, String> {
        let port = self.ports.get(name).map(|port| port.as_ref().map_err(String::clone));
        port.unwrap_or_else(|| Err(format!("`{name}` was not asked about")))
    }

    /// The device's LINKTYPE number.
    pub(super) fn link_type(&self, device: &str) -> Result<u16, CaptureError> {
        match self.devices.get(device) {
            Some(known) => known.as_ref().map(|device| device.link_type).map_err(CaptureError::clone),
            None => Ok(ETHERNET),
        }
    }

    /// Notes nodes that will not run where they were placed, and why. Gives whether that is new.
    pub(crate) fn refuse(&mut self, design: &Design, nodes: &[(NodeId, String)]) -> bool {
        let before = self.refused.0.len();
        for (id, why) in nodes {
            let (vertex, space) = (design.sites[id.index()].vertex, design.plan.nodes[id.index()].space.clone());
            self.refused.0.insert((vertex, space), why.clone());
        }
        self.refused.0.len() > before
    }

    /// Notes what cannot be read, and why. Gives whether that is new.
    pub(super) fn cannot_read(&mut self, reads: Reads, why: CaptureError) -> bool {
        let is_new = self.why_not(&reads).is_none();
        self.cannot.push((reads, why));
        is_new
    }

    /// Why this cannot be read. `None`: as far as is known, it can.
    pub(super) fn why_not(&self, reads: &Reads) -> Option<&CaptureError> {
        self.cannot.iter().find(|(known, _)| known == reads).map(|(_, why)| why)
    }
}

/// The name of the shared device that a filter reads, as its owner knows it.
fn device_name(task: &Task) -> Option<String> {
    let Task::Filter(call) = task else { return None };
    match call.kind.device {
        Some(DeviceAccess::Shared(shared)) => (shared.asked)(&call.params).ok().map(|(asked, _)| asked.device),
        Some(DeviceAccess::Exclusive(_) | DeviceAccess::Made) | None => None,
    }
}
