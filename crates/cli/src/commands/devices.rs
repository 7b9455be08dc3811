//! `streamline devices`: lists the devices that a request can capture from.

use crate::exit::Outcome;
use crate::table::Table;
use driver::device::{self, Device};
use driver::namespace::Namespace;
use serde_json::json;

/// List network devices
///
/// Lists devices of this process's network namespace. A daemon has the devices of the namespace in which it started.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let devices = list()?;
    if args.json {
        let all: Vec<_> = devices.iter().map(as_json).collect();
        return crate::print_json(&json!(all));
    }
    let mut table = Table::new(&["device", "state", "link type", ">mtu", "address", "driver", "captured"]);
    devices.iter().for_each(|device| table.row(row(device)));
    crate::print_text(&table.text())
}

pub(crate) fn list() -> std::io::Result<Vec<Device>> {
    device::list(&Namespace::current()?).map_err(std::io::Error::other)
}

fn state(device: &Device) -> &'static str {
    match (device.link.is_up(), device.link.is_running()) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    }
}

fn link_type(device: &Device) -> String {
    match device.link.link_type() {
        Some(1) => "Ethernet".into(),
        Some(101) => "raw IP".into(),
        Some(number) => format!("LINKTYPE {number}"),
        None => "no number in capture files".into(),
    }
}

/// How a request would capture from this device.
fn how(device: &Device) -> &'static str {
    match (device.link.link_type(), streamline::devices::opener::sees_segments_alike(device)) {
        (None, _) => "not",
        (Some(_), true) => "in the kernel",
        (Some(_), false) => "by copying",
    }
}

fn row(device: &Device) -> [String; 7] {
    let link = &device.link;
    let kind = device.driver.clone().or_else(|| link.kind.clone());
    [
        link.name.clone(),
        state(device).into(),
        link_type(device),
        link.mtu.to_string(),
        if link.address.0.is_empty() { "-".into() } else { link.address.to_string() },
        kind.unwrap_or_else(|| "-".into()),
        how(device).into(),
    ]
}

fn as_json(device: &Device) -> serde_json::Value {
    let Device { link, driver, offloads, namespace, .. } = device;
    let counters: serde_json::Map<_, _> =
        link.counters.all().map(|counter| (counter.name.to_string(), json!(counter.value))).collect();
    json!({
        "name": link.name, "index": link.index, "up": link.is_up(), "running": link.is_running(), "mtu": link.mtu,
        "link_type": link.link_type(), "address": link.address.to_string(), "kind": link.kind, "driver": driver,
        "promiscuous": link.is_promiscuous(), "namespace": namespace, "captured": how(device),
        "offloads": {
            "tso": offloads.tso, "gso": offloads.gso, "gro": offloads.gro, "lro": offloads.lro,
            "receive_vlan": offloads.receive_vlan, "transmit_vlan": offloads.transmit_vlan,
        },
        "counters": counters,
    })
}
